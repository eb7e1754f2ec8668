"""What callers of a deployment without a replica see on a real Ray cluster, and what that takes of the controller."""

import os
import signal
import urllib.request

import pytest
import ray

from executors.ray_gpu import names
from tests.free_ports import free_ports
from tests.ray_local import ANSWER_S, eventually

pytestmark = pytest.mark.slow


def pending():
    """How many questions of processes wait at the controller."""
    controller = ray.get_actor(names.CONTROLLER, namespace=names.DEFAULT_NAMESPACE)
    return ray.get(controller.__ray_call__.remote(lambda self: self._watches.pending))


def test_a_process_has_one_question_however_many_deployments_it_calls(serve):
    @serve.deployment(ray_actor_options={"num_cpus": 0})
    class Echo:
        def __call__(self, x):
            return x

    called = [f"Echo{number}" for number in range(4)]
    handles = [serve.run(Echo.options(name=each).bind(), name=each, route_prefix=None) for each in called]
    assert [each.remote(number).result(ANSWER_S) for number, each in enumerate(handles)] == [0, 1, 2, 3]
    eventually(lambda: pending() == 1, "one question of this process")
    response = handles[0].remote("x")
    assert list(response.statuses()) == [], "it has none of its own to load, and the answer ends it"
    assert response.result(ANSWER_S) == "x"


def test_what_waits_for_a_first_replica_is_answered_whoever_dies_meanwhile(serve, tmp_path):
    from tests.ray_apps import Scaled

    port = free_ports(1)[0]
    serve.start(http_options={"host": "127.0.0.1", "port": port}, proxy_location="HeadOnly")

    @serve.deployment(ray_actor_options={"num_cpus": 0})
    class Front:
        def __init__(self, scaled, go):
            self.scaled, self.go = scaled, go

        async def __call__(self, request):
            return await self.scaled.remote(self.go)

    go = tmp_path / "go"
    serve.run(Front.bind(Scaled.bind(), str(go)), route_prefix="/front")
    before = serve.status()
    handle = serve.get_deployment_handle("Scaled", "default")
    go.touch()
    os.kill(before.controller_pid, signal.SIGKILL)
    response = handle.remote(str(go))
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/front", timeout=ANSWER_S) as answer:
        assert answer.status == 200
    assert response.result(ANSWER_S) in (0, 1, 2)
    eventually(lambda: serve.status().deployments["Scaled"].world_size == 0, "nobody is needed any more")
    assert handle.remote(str(go)).result(ANSWER_S) == 0
