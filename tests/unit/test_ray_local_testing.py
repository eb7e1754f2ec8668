"""`run(..., _local_testing_mode=True)`: an application in this process, without Ray."""

import asyncio
import threading

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

import ray

from executors import ray_gpu as serve
from executors.ray_gpu.errors import (
    CallCancelledError,
    DeadlineError,
    DeploymentFailedError,
    InvalidCallError,
    NotInReplicaError,
)

ANSWER_S = 20.0


def here(target, **options):
    return serve.run(target, _local_testing_mode=True, **options)


@serve.deployment(user_config={"by": 3}, max_ongoing_requests=2)
class Model:
    def __init__(self, *parts, name="m"):
        self.parts, self.name, self.by, self.seen = parts, name, 1, []
        self.most = self.now = 0

    def reconfigure(self, config):
        self.by = config["by"]

    def __call__(self, value):
        return value * self.by

    async def ask(self, value):
        return [await each.remote(value) for each in self.parts[0]]

    def append(self, values):
        values.append(threading.current_thread().name)
        return values

    async def wait(self, event=None):
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(ANSWER_S if event else 0.05)
        finally:
            self.now -= 1
            self.seen.append("ended")
        return self.most

    async def looked(self):
        return self.seen

    def count(self, until):
        yield from range(until)

    async def letters(self, text):
        for letter in text:
            yield letter

    async def fails(self):
        raise LookupError("not there")

    async def context(self):
        serve.get_replica_context()

    @serve.multiplexed
    async def model(self, name):
        return f"model {name}"

    async def of_model(self):
        return await self.model(serve.get_multiplexed_model_id())

    @serve.batch(max_batch_size=2, batch_wait_timeout_s=ANSWER_S)
    async def together(self, values):
        return [len(values)] * len(values)


def test_a_call_runs_here_with_its_config_and_no_cluster_is_started():
    handle = here(Model.bind())
    assert handle.remote(5).result(timeout_s=ANSWER_S) == 15
    assert not ray.is_initialized()


def test_deployments_call_each_other_by_the_handles_that_they_are_given():
    handle = here(Model.bind([Model.options(name="a").bind(), Model.options(name="b", user_config=None).bind()]))
    assert handle.ask.remote(2).result(timeout_s=ANSWER_S) == [6, 2]


def test_responses_are_arguments_and_results_are_copied_whatever_their_size():
    handle = here(Model.bind())
    assert handle.remote(handle.remote(2)).result(timeout_s=ANSWER_S) == 18
    values = [b"x" * 6 * 1024 * 1024]
    found = handle.append.remote(values).result(timeout_s=ANSWER_S)
    assert (len(values), len(found), found[0]) == (1, 2, values[0])
    assert found[1] != threading.current_thread().name


def test_streams_come_item_by_item_and_their_window_is_refilled():
    handle = here(Model.bind()).options(stream=True)
    assert list(handle.count.remote(20_000)) == list(range(20_000))
    assert list(handle.letters.remote("abc")) == ["a", "b", "c"]


def test_no_more_run_at_once_than_may():
    handle = here(Model.bind())
    responses = [handle.wait.remote() for _ in range(6)]
    assert max(each.result(timeout_s=ANSWER_S) for each in responses) == 2


def test_what_user_code_raises_is_raised_here():
    handle = here(Model.bind())
    with pytest.raises(LookupError, match="not there"):
        handle.fails.remote().result(timeout_s=ANSWER_S)
    with pytest.raises(AttributeError, match="has no method 'nothing'"):
        handle.nothing.remote().result(timeout_s=ANSWER_S)
    with pytest.raises(NotInReplicaError):
        handle.context.remote().result(timeout_s=ANSWER_S)
    with pytest.raises(InvalidCallError, match="rank 0 alone"):
        handle.options(rank=1).remote(1).result(timeout_s=ANSWER_S)


def test_a_call_that_is_given_up_or_late_is_cancelled_where_it_runs():
    handle = here(Model.bind())
    response = handle.wait.remote(event=True)
    handle.looked.remote().result(timeout_s=ANSWER_S)
    assert response.cancel()
    with pytest.raises(CallCancelledError):
        response.result(timeout_s=ANSWER_S)
    with pytest.raises(DeadlineError, match=r"no answer to 'wait' within 0.05 s"):
        handle.options(timeout_s=0.05).wait.remote(event=True).result(timeout_s=ANSWER_S)
    assert handle.looked.remote().result(timeout_s=ANSWER_S) == ["ended", "ended"]


def test_models_batches_and_broadcasts_are_as_on_ray():
    handle = here(Model.bind())
    assert handle.options(multiplexed_model_id="fr").of_model.remote().result(timeout_s=ANSWER_S) == "model fr"
    both = [handle.together.remote(1), handle.together.remote(2)]
    assert [each.result(timeout_s=ANSWER_S) for each in both] == [2, 2]
    assert handle.broadcast("__call__", 1).results(timeout_s=ANSWER_S) == [3]


def test_asynchronous_code_awaits_its_responses():
    handle = here(Model.bind())

    async def calls():
        return await asyncio.gather(handle.remote(1), handle.remote(2))

    assert asyncio.run(calls()) == [3, 6]


def test_a_function_is_a_deployment_too():
    @serve.deployment
    def double(value):
        return value * 2

    assert here(double.bind()).remote(4).result(timeout_s=ANSWER_S) == 8


def test_an_init_that_raises_fails_the_run_with_its_traceback():
    @serve.deployment
    class Broken:
        def __init__(self):
            raise RuntimeError("no weights")

    with pytest.raises(DeploymentFailedError, match=r"(?s)default/Broken is DEPLOY_FAILED.*no weights"):
        here(Broken.bind())


def test_an_application_that_is_scaled_from_outside_has_no_autoscaler():
    from executors.ray_gpu.deploying import RunTarget, packages_of
    from executors.ray_gpu.errors import InvalidDeploymentError

    target = Model.options(autoscaling_config={"max_replicas": 2})
    with pytest.raises(
        InvalidDeploymentError, match="external_scaler_enabled cannot be had with autoscaling_config, which a/Model"
    ):
        packages_of(RunTarget(target.bind(), "a", None, True), "ns")
    assert packages_of(RunTarget(Model.bind(), "a", None, True), "ns")[0]


def threads():
    return [each for each in threading.enumerate() if each.name.startswith(("user-code", "sync-"))]


def ended(before):
    """Whether no more threads of users' code run than did before, soon."""
    for each in set(threads()) - set(before):
        each.join(ANSWER_S)
    return set(threads()) <= set(before)


@pytest.mark.parametrize("end", [lambda: serve.delete("one"), serve.shutdown, lambda: here(Model.bind(), name="one")])
def test_an_application_ends_with_delete_shutdown_and_the_next_of_its_name(end):
    serve.shutdown()
    before = threads()
    handle = here(Model.bind(), name="one")
    assert handle.remote(2).result(timeout_s=ANSWER_S) == 6
    waits = handle.wait.remote("for ever")
    its = set(threads()) - set(before)
    assert its
    end()
    for each in its:
        each.join(ANSWER_S)
        assert not each.is_alive(), each
    with pytest.raises(serve.RayExecutorError):
        waits.result(timeout_s=ANSWER_S)
    with pytest.raises(serve.RayExecutorError):
        handle.remote(2).result(timeout_s=ANSWER_S)
    serve.shutdown()
    assert ended(before)


def test_one_that_does_not_come_up_leaves_no_threads():
    serve.shutdown()
    before = threads()

    @serve.deployment
    class Broken:
        def __init__(self):
            raise ValueError("as asked")

    with pytest.raises(DeploymentFailedError):
        here(Broken.bind(), name="one")
    assert ended(before)
