"""The page of names of Ray Serve is made of both sides; `handle.broadcast`, and names that a handle keeps free."""

import asyncio
import importlib.util
import threading
from pathlib import Path

import pytest

pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install 'ray[serve]'")

from executors.ray_gpu.errors import CallCancelledError, InvalidCallError
from executors.ray_gpu.requests.call import Answer, Call
from executors.ray_gpu.requests.frames import PARTS
from executors.ray_gpu.requests.handle import CallOptions, DeploymentHandle
from executors.ray_gpu.requests.packing import pack_error, pack_value
from executors.ray_gpu.requests.response import DeploymentBroadcastResponse, DeploymentResponse

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def make():
    spec = importlib.util.spec_from_file_location("make_serve_compatibility", ROOT / "docs" / "make_serve_compatibility.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_current(make):
    assert make.PAGE.read_text() == make.page(), "run `make docs`"


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ({}, ["a.elsewhere: is not here, and has no entry", "a.number: is 1 there and 2 here, and has no entry"]),
        ({"elsewhere": "same: it is", "number": "other: two"}, ["a.elsewhere: is called same, and is not here"]),
        ({"elsewhere": "missing: no", "number": "missing: no"}, ["a.number: is called missing, and is here"]),
        ({"elsewhere": "gone", "number": "other: two"}, ["a.elsewhere: expected one of same, other, renamed, missing"]),
        ({"elsewhere": "missing: no", "number": "other: two", "none": "missing: no"}, ["a.none: has an entry"]),
    ],
)
def test_a_name_that_is_not_decided_about_is_an_error_that_names_it(make, said, wrong):
    surface = make.Surface("a", "a", lambda: {"alike": 1, "elsewhere": 1, "number": 1}, lambda: {"alike": 1, "number": 2})
    with pytest.raises(make.Undecided) as caught:
        list(make.rows_of(surface, said))
    lines = str(caught.value).splitlines()
    assert [each.startswith(line) for each, line in zip(lines, wrong, strict=True)] == [True] * len(wrong)


def test_no_member_of_a_handle_of_ray_serve_is_a_method_of_the_user():
    from ray.serve.handle import DeploymentHandle as Theirs

    assert {name for name in dir(Theirs) if name[0] != "_"} <= set(dir(DeploymentHandle("app/Model")))


def test_a_session_is_a_key():
    handle = DeploymentHandle("app/Model")
    assert handle.options(session_id="s")._options == CallOptions(key="s")
    assert handle.options(session_id="s").options(session_id="")._options == CallOptions()
    with pytest.raises(InvalidCallError, match="session_id cannot be had with key"):
        handle.options(session_id="s", key="k")
    with pytest.raises(InvalidCallError, match="key must be a non-empty string, got 3"):
        handle.options(session_id=3)


def answered(*answers):
    call = Call("reset")
    if answers:
        call.finish(Answer(PARTS, [Answer(*each) for each in answers]))
    return call, DeploymentBroadcastResponse(DeploymentResponse(call))


BOTH = (pack_value(1), pack_error(ValueError("not this one"), "trace"))


def test_a_broadcast_has_the_results_of_all_ranks_in_their_order():
    _, response = answered(pack_value("a"), pack_value("b"))
    assert response.results() == asyncio.run(response.results_async()) == ["a", "b"]


def test_what_one_replica_raises_is_raised_or_stands_in_its_place():
    _, response = answered(*BOTH)
    with pytest.raises(ValueError, match="not this one"):
        response.results()
    with pytest.raises(ValueError, match="not this one"):
        asyncio.run(response.results_async())
    for results in (response.results(return_exceptions=True), asyncio.run(response.results_async(return_exceptions=True))):
        assert results[0] == 1
        assert isinstance(results[1], ValueError)


def test_a_broadcast_that_is_late_goes_on():
    call, response = answered()
    with pytest.raises(TimeoutError, match=r"no answer to 'reset' within 0.01 s. The call goes on"):
        response.results(timeout_s=0.01)
    with pytest.raises(TimeoutError, match=r"no answer to 'reset' within 0.01 s. The call goes on"):
        asyncio.run(response.results_async(timeout_s=0.01))
    threading.Timer(0.01, lambda: call.finish(Answer(PARTS, [Answer(*pack_value(7))]))).start()
    assert asyncio.run(response.results_async()) == [7]


def test_a_broadcast_can_be_given_up_and_does_not_block_a_loop():
    call, response = answered()

    async def blocks():
        response.results()

    with pytest.raises(InvalidCallError, match=r"`await response.results_async\(\)`"):
        asyncio.run(blocks())
    assert not DeploymentResponse(call).cancelled()
    assert response.cancel()
    assert DeploymentResponse(call).cancelled()
    with pytest.raises(CallCancelledError):
        response.results()
    with pytest.raises(CallCancelledError):
        asyncio.run(response.results_async())
