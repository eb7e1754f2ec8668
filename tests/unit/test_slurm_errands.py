"""What waits for Slurm: the newest of each kind, behind a call that is under way, and never whoever asks."""

import socket
import threading
import time

import pytest

from executors.lines import Conversation
from executors.run.fence import Fence
from executors.slurm import scheduler
from executors.slurm.errands import EndJob, Errands, Exclude, Listed, Refused, Submit
from executors.slurm.folder import prepare
from executors.slurm.options import SlurmError, SlurmOptions
from executors.slurm.scheduler import SlurmAwayError
from rankcore.commands import StartReplica

PATIENCE_S = 10.0


def submit(number: int) -> Submit:
    return Submit(StartReplica(f"a/m#1.{number}", 0, "1", None, (), 1), f"t{number}", ())


@pytest.fixture
def errands(tmp_path, monkeypatch):
    prepare(tmp_path)
    monkeypatch.setattr(scheduler, "jobs", lambda name: {})
    monkeypatch.setattr(scheduler, "nodes", lambda partition: {})
    found = Errands(tmp_path, "models:app", "name", Fence(tmp_path, 1), SlurmOptions(poll_s=0.05))
    yield found
    found.close()


def outcomes(errands, done):
    found, end = [], time.monotonic() + PATIENCE_S
    while not done(found):
        assert time.monotonic() < end, found
        found += errands.outcomes()
        time.sleep(0.001)
    return found


def test_whoever_asks_never_waits_and_of_each_kind_the_newest_is_done(errands, monkeypatch):
    done, is_called, goes_on = [], threading.Event(), threading.Event()

    def exclude(job_id, nodes):
        done.append((job_id, nodes))
        is_called.set()
        goes_on.wait(PATIENCE_S)

    monkeypatch.setattr(scheduler, "exclude", exclude)
    monkeypatch.setattr(scheduler, "end", lambda job_id: done.append(job_id))
    errands.begin({}, ["t"])
    errands._job_ids["t"] = "7"
    errands.ask(Exclude("a/m#1.0", "t", ("n0",)))
    assert is_called.wait(PATIENCE_S)
    for number in range(70_000):  # more than any queue that once was here
        errands.ask(Exclude("a/m#1.0", "t", (f"n{number}",)))
    errands.ask(EndJob("a/m#1.0", "t"))
    goes_on.set()
    outcomes(errands, lambda _: len(done) >= 3)
    assert done == [("7", ("n0",)), ("7", ("n69999",)), "7"]


def test_a_list_is_made_while_submissions_go_on_and_misses_none_of_those_that_wait(errands, monkeypatch):
    submitted = []

    def slow(*given):
        time.sleep(0.005)
        submitted.append(given)
        return str(len(submitted))

    monkeypatch.setattr(scheduler, "submit", slow)
    asked = [submit(number) for number in range(40)]
    errands.watched = {each.replica_id: each.token for each in asked}
    for each in asked:
        errands.ask(each)
    errands.begin({}, ())
    found = outcomes(errands, lambda _: len(submitted) == len(asked))
    waiting = [len(each.unsure) for each in found if isinstance(each, Listed)]
    assert len(waiting) >= 3
    assert waiting == sorted(waiting, reverse=True)
    assert waiting[0] == len(asked) > waiting[1]


def test_a_submission_whose_outcome_is_unknown_is_tried_again_only_after_two_lists_without_it(errands, monkeypatch):
    tries, lists = [], []

    def away(*_):
        tries.append(len(lists))
        raise (SlurmAwayError if len(tries) == 1 else SlurmError)("no answer")

    monkeypatch.setattr(scheduler, "submit", away)
    monkeypatch.setattr(scheduler, "jobs", lambda name: lists.append(name) or {})
    errands.ask(submit(0))
    errands.begin({}, ())
    found = outcomes(errands, lambda found: any(isinstance(each, Refused) for each in found))
    assert tries[1] >= tries[0] + 2
    assert Refused("a/m#1.0", "no answer") in found


def test_nothing_is_open_once_it_is_closed(tmp_path, monkeypatch):
    prepare(tmp_path)
    monkeypatch.setattr(scheduler, "jobs", lambda name: {})
    monkeypatch.setattr(scheduler, "nodes", lambda partition: {})
    errands = Errands(tmp_path, "models:app", "name", Fence(tmp_path, 1), SlurmOptions(poll_s=0.05))
    errands.begin({}, ())
    outcomes(errands, lambda found: found)
    errands.close()
    errands._thread.join(PATIENCE_S)
    assert (errands._bell.fileno(), errands._ringer.fileno()) == (-1, -1)


def test_what_is_said_before_there_is_a_connection_comes_after_the_greeting():
    ours, theirs = socket.socketpair()
    conversation = Conversation()
    conversation.send("first")
    assert (conversation.hear(), conversation.fileno(), conversation.is_connected) == ([], -1, False)
    conversation.connect(ours, "secret\n")
    assert theirs.recv(100) == b"secret\nfirst\n"
    theirs.sendall(b"half")
    assert conversation.hear() == []
    theirs.close()
    assert (conversation.hear(), conversation.is_over) == ([], True)
    conversation.hang_up()
    assert (conversation.is_connected, conversation.is_over) == (False, False)
