"""What a router writes down of its calls: where each went, and what became of it."""

import itertools

import pytest

from executors.engine.request_file import OUTCOMES
from executors.ray_gpu.requests.answered_tokens import tokens_in
from executors.ray_gpu.requests.recording import CallRecorder, record_to, recorder_of
from rankcore.routing.commands import Complete, Decline, Expire, Fail, Forget, Reject
from rankcore.routing.events import FailureKind


def recorder():
    found, clock = [], itertools.count(100)
    return CallRecorder("llm", found.append, lambda: next(clock)), found


def test_the_replica_that_answered_is_told_and_not_the_one_that_was_lost():
    calls, found = recorder()
    calls.arrived(7)
    calls.sent(7, "llm#1.0", 0)
    calls.sent(7, "llm#1.1", 1)
    calls.begun(7)
    calls.begun(7)
    calls.ended(Complete(request_id=7))
    assert [tuple(each) for each in found] == [(7, "llm", "llm#1.1", 1, 100, 102, 103, 104, "done")]


@pytest.mark.parametrize(
    ("command", "outcome"),
    [
        (Complete(request_id=1), "done"),
        (Fail(request_id=1, reason="x", kind=FailureKind.RAISED), "raised"),
        (Fail(request_id=1, reason="x", kind=FailureKind.LOST), "lost"),
        (Fail(request_id=1, reason="x", kind=None), "closed"),
        (Reject(request_id=1, reason="x", retry_after_s=1.0), "rejected"),
        (Decline(request_id=1, reason="x", retry_after_s=None), "declined"),
        (Expire(request_id=1, reason="x"), "expired"),
        (Forget(request_id=1), "cancelled"),
    ],
)
def test_every_end_of_a_call_has_a_name(command, outcome):
    calls, found = recorder()
    calls.arrived(1)
    calls.ended(command)
    assert found[0].outcome == outcome
    assert outcome in OUTCOMES
    assert (found[0].replica_id, found[0].rank, found[0].dispatched) == ("", None, None)


def test_nothing_is_recorded_unless_it_was_asked_for():
    assert recorder_of("llm") is None
    record_to(type("Log", (), {"put": print})())
    try:
        assert recorder_of("llm") is not None
    finally:
        record_to(None)


class Completion:
    def __init__(self):
        self.usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


@pytest.mark.parametrize(
    ("answer", "tokens"),
    [
        ({"prompt_tokens": 7, "output_tokens": 3}, (7, 3)),
        ({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}, (7, 3)),
        ({"usage": {"input_tokens": 7, "output_tokens": 0}}, (7, 0)),
        (Completion(), (7, 3)),
        ({"prompt_tokens": 7}, None),
        ({"prompt_tokens": "7", "output_tokens": True}, None),
        ({"prompt_tokens": -1, "output_tokens": 3}, None),
        ("an answer", None),
        (None, None),
    ],
)
def test_tokens_are_those_that_an_answer_says_in_the_ways_of_model_servers(answer, tokens):
    assert tokens_in(answer) == tokens
