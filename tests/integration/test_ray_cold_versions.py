"""Versions of weights on Ray: replaced under load, rolled back where they do not load, each answered by one set of bytes."""

import os
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'rankcore[torch]'")

import torch
from safetensors.torch import save_file

from executors.ray_gpu.errors import DeploymentFailedError
from tests.fleet_models import WEIGHT_BYTES, Probe, write_weights
from tests.ray_local import ANSWER_S, clean_up, eventually, ray_cluster  # noqa: F401 (a fixture)

pytestmark = [pytest.mark.ray, pytest.mark.night]

LARGE = 2304
"""Rows and columns of weights of which only samples are compared before a load."""
LARGE_BYTES = 4 * LARGE * LARGE
CALLERS = 4


class Large(Probe):
    """Its weights are more than 16 MiB."""

    def __init__(self) -> None:
        with torch.device("meta"):
            self.module = torch.nn.Linear(LARGE, LARGE, bias=False)


@pytest.fixture(scope="module")
def serve(ray_cluster):  # noqa: F811
    """Two GPUs, each with room for one model."""
    from executors import ray_gpu

    room = LARGE_BYTES + LARGE_BYTES // 2
    ray_gpu.start(
        memory={"device": "cpu", "stand_in_gpu_bytes": (room, room), "cache_bytes": 2 * LARGE_BYTES}, proxy_location="Disabled"
    )
    yield ray_gpu
    clean_up(ray_gpu)


def deploy(serve, code, path, replicas=2, **options):
    size = options.pop("weight_bytes", None)
    # So large that there is one place each.
    residency = serve.Residency(weights=path, weight_bytes=size, min_hot_s=0.0, working_bytes=LARGE_BYTES - WEIGHT_BYTES)
    if code is Large:
        residency = serve.Residency(weights=path, min_hot_s=0.0)
    options = {"ray_actor_options": {"num_cpus": 0}, "max_ongoing_requests": 4, "num_replicas": replicas, **options}
    model = serve.deployment(code).options(name="m", residency=residency, **options)
    return serve.run(model.bind(), name="m", route_prefix=None)


class Callers:
    """Call all the time, and keep what they hear."""

    def __init__(self, handle):
        self.answers, self.failed, self._over = [], [], threading.Event()
        self._threads = [threading.Thread(target=self._call, args=(handle,)) for _ in range(CALLERS)]

    def _call(self, handle):
        while not self._over.is_set():
            try:
                self.answers.append((time.monotonic(), handle.remote().result(ANSWER_S)))
            except Exception as error:
                self.failed.append(error)

    def __enter__(self):
        for each in self._threads:
            each.start()
        eventually(lambda: len(self.answers) > 20, "calls are answered")
        return self

    def __exit__(self, *_):
        self._over.set()
        for each in self._threads:
            each.join()


def test_a_new_version_takes_the_place_of_the_former_one_and_no_call_fails(serve, tmp_path):
    (former_path, former), (new_path, new) = write_weights(tmp_path, "one", 5), write_weights(tmp_path, "two", 6)
    handle = deploy(serve, Probe, former_path)
    with Callers(handle) as callers:
        deploy(serve, Probe, new_path)
        eventually(lambda: callers.answers[-1][1] == pytest.approx(new), "the new version answers")
        at = time.monotonic()
        eventually(lambda: callers.answers[-1][0] > at + 0.5, "some more are answered")
    assert callers.failed == []
    assert {round(answer, 2) for _, answer in callers.answers} == {round(former, 2), round(new, 2)}
    assert all(answer == pytest.approx(new) for when, answer in callers.answers if when > at + 0.25)
    versions = {each.version for each in serve.status().deployments["m/m"].workers}
    assert len(versions) == 1, "nothing of the former one is left"
    serve.delete("m")


def test_a_version_that_does_not_load_is_rolled_back_and_no_call_fails(serve, tmp_path):
    (former_path, former), (new_path, _) = write_weights(tmp_path, "one", 5), write_weights(tmp_path, "two", 6)
    fields = {"rollback": True, "max_start_failures": 2, "start_backoff_s": 0.1}
    handle = deploy(serve, Probe, former_path, **fields)
    Path(new_path).write_bytes(Path(new_path).read_bytes()[:-100])
    with Callers(handle) as callers:
        with pytest.raises(DeploymentFailedError, match="was rolled back to version"):
            deploy(serve, Probe, new_path, weight_bytes=WEIGHT_BYTES, **fields)
        eventually(lambda: serve.status().deployments["m/m"].status == "HEALTHY", "all of the former version are back")
    assert callers.failed == []
    assert {round(answer, 2) for _, answer in callers.answers} == {round(former, 2)}
    serve.delete("m")


def write_large(path, unseen=0.0):
    """The same but for one number that is in no sample; with the same time of change."""
    weight = torch.ones(LARGE, LARGE)
    weight[LARGE // 3, 7] = unseen
    save_file({"weight": weight}, path)
    os.utime(path, ns=(10**18, 10**18))
    return float(LARGE * LARGE - 1 + unseen)


def test_what_no_sample_sees_is_served_by_nobody_until_the_deployment_is_another_one(serve, tmp_path):
    path = tmp_path / "m.safetensors"
    former = write_large(path)
    fields = {"start_backoff_s": 0.2, "replicas": 1}
    handle = deploy(serve, Large, path, **fields)
    assert handle.remote().result(ANSWER_S) == former
    new = write_large(path, unseen=100.0)
    serve.evict("m", keep="COLD")
    eventually(lambda: not serve.status().deployments["m/m"].workers, "it is on disk only")
    waits = handle.remote()
    eventually(lambda: "found root" in serve.status().deployments["m/m"].message, "why it is not loaded")
    assert write_large(path) == former
    assert waits.result(ANSWER_S) == former
    write_large(path, unseen=100.0)
    serve.delete("m")
    (node,) = serve.status().memory
    assert all(capacity == free for capacity, free in node.gpus)
    handle = deploy(serve, Large, path, **fields)
    assert handle.remote().result(ANSWER_S) == new
    serve.delete("m")
