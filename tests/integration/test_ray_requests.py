"""Requests on a real Ray cluster: limits over all callers, streams, cancellation, large values, composition, ranks, deaths."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.ray_local import ANSWER_S, eventually

pytestmark = pytest.mark.slow


def pids(serve, name):
    return {each.pid for each in serve.status().deployments[name].replicas}


def test_all_callers_together_never_exceed_what_a_replica_takes_at_once(serve, tmp_path):
    import ray

    from tests.ray_apps import Requests

    serve.run(Requests.options(max_ongoing_requests=3).bind(), route_prefix=None)

    @ray.remote(num_cpus=0)
    def caller(path):
        from executors import ray_gpu

        handle = ray_gpu.get_deployment_handle("Requests")
        calls = [handle.one_of.remote(path) for _ in range(10)]
        Path(f"{path}.caller{os.getpid()}").touch()
        return max(each.result(600) for each in calls)

    callers = [caller.remote(str(tmp_path / "go")) for _ in range(3)]
    handle = serve.get_deployment_handle("Requests")
    own = [handle.one_of.remote(str(tmp_path / "go")) for _ in range(10)]
    eventually(lambda: len(list(tmp_path.glob("go.caller*"))) == 3, "all callers have called")
    eventually(lambda: len(list(tmp_path.glob("go.begun*"))) == 3, "three are under way")
    with pytest.raises(TimeoutError):
        own[-1].result(timeout_s=1.0)
    (tmp_path / "go").touch()
    most = max(*(each.result(600) for each in own), *ray.get(callers, timeout=600))
    assert most == 3


def test_what_waits_is_limited_and_turned_away_with_a_time_to_come_back(serve, tmp_path):
    from executors.ray_gpu.errors import OverloadedError
    from tests.ray_apps import Requests

    handle = serve.run(
        Requests.options(max_ongoing_requests=1, max_queued_requests=2, retry_after_s=7).bind(), route_prefix=None
    )
    assert handle.remote(1).result(ANSWER_S) == 1
    calls = [handle.one_of.remote(str(tmp_path / "go")) for _ in range(5)]
    for late in calls[3:]:
        with pytest.raises(OverloadedError) as caught:
            late.result(ANSWER_S)
        assert caught.value.retry_after_s >= 7
    (tmp_path / "go").touch()
    assert [each.result(ANSWER_S) for each in calls[:3]] == [1, 1, 1]


def test_the_first_burst_of_a_process_is_limited_as_any_other(serve, tmp_path):
    import ray

    from tests.ray_apps import Requests

    serve.run(Requests.options(max_ongoing_requests=1, max_queued_requests=2).bind(), route_prefix=None)

    @ray.remote(num_cpus=0)
    def caller(path):
        from executors import ray_gpu
        from executors.ray_gpu.requests.routes import routing_loop

        routing_loop()  # calls and routes race from here on, as in a process that has had calls of something else
        handle = ray_gpu.get_deployment_handle("Requests")
        calls = [handle.one_of.remote(path) for _ in range(16)]
        for call in calls[3:]:
            with pytest.raises(ray_gpu.OverloadedError):
                call.result(ANSWER_S)
        found = [call.done() for call in calls[:3]]
        Path(path).touch()
        return found, [call.result(ANSWER_S) for call in calls[:3]]

    assert ray.get(caller.remote(str(tmp_path / "go")), timeout=600) == ([False] * 3, [1] * 3)


def test_a_limit_can_be_changed_while_it_runs(serve, tmp_path):
    from tests.ray_apps import Requests

    handle = serve.run(Requests.options(max_ongoing_requests=1).bind(), route_prefix=None)
    pid = handle.pid.remote().result(ANSWER_S)
    serve.update("Requests", max_ongoing_requests=4)

    def four_at_once():
        path = tmp_path / f"go{len(list(tmp_path.iterdir()))}"
        calls = [handle.wait_for.remote(f"{path}.{number}") for number in range(4)]
        try:
            eventually(lambda: len(list(tmp_path.glob(f"{path.name}.*.{pid}"))) == 4, "four at once", timeout_s=10.0)
        except AssertionError:
            return False
        finally:
            for number in range(4):
                (tmp_path / f"{path.name}.{number}").touch()
        return [each.result(ANSWER_S) for each in calls] == [pid] * 4

    eventually(four_at_once, "the new limit has arrived")


def test_a_call_that_is_not_answered_in_time_fails_and_is_cancelled(serve, tmp_path):
    from executors.ray_gpu.errors import DeadlineError
    from tests.ray_apps import Requests

    handle = serve.run(Requests.bind(), route_prefix=None)
    assert handle.remote(1).result(ANSWER_S) == 1  # the time is not to pass before it has reached the replica
    call = handle.options(method_name="until_cancelled", timeout_s=10.0).remote(str(tmp_path / "begun"))
    with pytest.raises(DeadlineError):
        call.result(ANSWER_S)
    eventually(lambda: handle.how_many_cancelled.remote().result(ANSWER_S) == 1, "the replica was told")


def test_cancelling_reaches_the_replica_however_it_is_done(serve, tmp_path):
    from executors.ray_gpu.errors import CallCancelledError
    from tests.ray_apps import Requests

    handle = serve.run(Requests.bind(), route_prefix=None)
    first = handle.until_cancelled.remote(str(tmp_path / "first"))
    eventually((tmp_path / "first").exists, "the first has begun")
    assert first.cancel()
    with pytest.raises(CallCancelledError):
        first.result(ANSWER_S)

    async def give_up_waiting():
        task = asyncio.ensure_future(wait(handle.until_cancelled.remote(str(tmp_path / "second"))))
        await asyncio.to_thread(eventually, (tmp_path / "second").exists, "the second has begun")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def wait(response):
        return await response

    asyncio.run(give_up_waiting())
    stream = handle.options(method_name="for_ever", stream=True).remote()
    next(stream)
    stream.cancel()
    with pytest.raises(CallCancelledError):
        next(stream)
    eventually(lambda: handle.how_many_cancelled.remote().result(ANSWER_S) == 2, "both were cancelled")


def test_streams_can_be_read_in_both_ways(serve):
    from tests.ray_apps import Requests

    handle = serve.run(Requests.bind(), route_prefix=None).options(method_name="count", stream=True)
    assert list(handle.remote(1000)) == list(range(1000))

    async def read():
        return [each async for each in handle.remote(1000)]

    assert asyncio.run(read()) == list(range(1000))


def test_what_is_large_goes_through_the_object_store_and_is_read_in_place(serve):
    import numpy

    from tests.ray_apps import Requests

    handle = serve.run(Requests.bind(), route_prefix=None)
    result = handle.array.remote(1_000_000).result(ANSWER_S)
    assert int(result.sum()) == 1_000_000
    assert not result.flags.writeable, "it lies in the object store"
    argument = numpy.ones(1_000_000)
    call = handle.is_read_only.remote(argument)
    argument[:] = 7
    assert call.result(ANSWER_S) == (1_000_000, True), "as it was when it was called with"

    async def both_ways():
        return await handle.is_read_only.remote(handle.array.remote(1_000_000))

    assert asyncio.run(both_ways()) == (1_000_000, True)


def test_what_is_not_so_large_is_sent_directly_as_it_was_when_it_was_called_with(serve):
    import numpy

    from tests.ray_apps import Requests

    handle = serve.run(Requests.bind(), route_prefix=None)
    argument = numpy.ones(100_000)
    calls = [handle.is_read_only.remote(argument) for _ in range(8)]
    argument[:] = 7
    assert [call.result(ANSWER_S) for call in calls] == [(100_000, False)] * 8
    assert int(handle.array.remote(100_000).result(ANSWER_S).sum()) == 100_000
    text = "é" * 500_000
    assert handle.remote(text).result(ANSWER_S) == text


def test_responses_are_arguments_and_nobody_waits_for_them(serve, tmp_path):
    import ray

    from tests.ray_apps import Requests

    handle = serve.run(Requests.bind(), route_prefix=None)
    late = handle.wait_for.remote(str(tmp_path / "go"))
    total = handle.add.remote(late, other=handle.add.remote(1, handle.remote(2)))
    assert not total.done()
    (tmp_path / "go").touch()
    assert total.result(ANSWER_S) == late.result(ANSWER_S) + 3
    with pytest.raises(TypeError):
        handle.add.remote(handle.remote(1), handle.remote("a")).result(ANSWER_S)
    with pytest.raises(TypeError, match="await it"):
        handle.remote([handle.remote(1)])
    assert handle.add.remote(ray.put(1), other=handle.remote(2)).result(ANSWER_S) == 3, "nor of references to objects"
    assert handle.add.remote(1, other=ray.put(3)).result(ANSWER_S) == 4


def test_a_rank_can_be_called_by_itself_and_all_together(serve):
    from executors.ray_gpu.errors import CallError
    from tests.ray_apps import Requests

    handle = serve.run(Requests.options(num_replicas=3).bind(), route_prefix=None)
    assert [handle.options(method_name="rank", rank=rank).remote().result(ANSWER_S) for rank in (2, 0, 1, 2)] == [2, 0, 1, 2]
    assert handle.options(method_name="rank", broadcast=True).remote().result(ANSWER_S) == [0, 1, 2]
    assert handle.broadcast("rank").results(timeout_s=ANSWER_S) == [0, 1, 2]
    with pytest.raises(CallError, match="3"):
        handle.options(method_name="rank", rank=3).remote().result(ANSWER_S)


def test_batches_gather_what_comes_together(serve):
    from tests.ray_apps import Batched

    handle = serve.run(Batched.bind(), route_prefix=None)
    answers = [each.result(ANSWER_S) for each in [handle.remote(number) for number in range(8)]]
    assert answers == [(number, 8) for number in range(8)]


def test_a_model_is_asked_for_where_it_is(serve):
    from tests.ray_apps import ManyModels

    handle = serve.run(ManyModels.bind(), route_prefix=None)
    handle.options(method_name="pid", broadcast=True).remote().result(ANSWER_S)  # both are known from here on
    answers = [
        handle.options(multiplexed_model_id=f"m{number % 4}").remote().result(ANSWER_S) for _ in range(3) for number in range(4)
    ]
    where = {}
    for model_id, pid, _ in answers:
        where.setdefault(model_id, set()).add(pid)
    assert {len(pids) for pids in where.values()} == {1}, "each model is on one replica"


def test_the_replica_knows_which_request_it_answers(serve):
    from tests.ray_apps import Requests

    handle = serve.run(Requests.bind(), route_prefix=None)
    assert handle.options(method_name="request", request_id="r-17").remote().result(ANSWER_S).request_id == "r-17"


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_call_whose_replica_is_killed_is_done_again_only_if_that_is_allowed(serve, tmp_path, idempotent):
    from executors.ray_gpu.errors import ReplicaGoneError
    from tests.ray_apps import Requests

    handle = serve.run(Requests.options(num_replicas=2, idempotent=idempotent).bind(), route_prefix=None)
    call = handle.wait_for.remote(str(tmp_path / "go"))
    (begun,) = eventually(lambda: list(tmp_path.glob("go.*")), "it has begun")
    pid = int(begun.suffix[1:])
    os.kill(pid, signal.SIGKILL)
    if not idempotent:
        with pytest.raises(ReplicaGoneError, match="idempotent"):
            call.result(ANSWER_S)
        return
    eventually(lambda: len(list(tmp_path.glob("go.*"))) == 2, "another replica has begun it")
    (tmp_path / "go").touch()
    assert call.result(ANSWER_S) != pid


def test_a_stream_that_was_begun_is_cut_off_with_its_replica_however_idempotent(serve):
    from executors.ray_gpu.errors import ReplicaGoneError
    from tests.ray_apps import Requests

    handle = serve.run(Requests.options(idempotent=True).bind(), route_prefix=None)
    stream = handle.options(method_name="for_ever", stream=True).remote()
    os.kill(next(stream), signal.SIGKILL)
    with pytest.raises(ReplicaGoneError):
        next(stream)
