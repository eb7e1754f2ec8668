"""What another user of the machine does to deployments on Ray that he sees run."""

import os
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.ray_gpu import names
from tests.attacks.ways_in import every_way_in
from tests.ray_local import ANSWER_S
from tests.second_user import NEEDS_ROOT, as_another_user

pytestmark = [NEEDS_ROOT, pytest.mark.ray]


@pytest.fixture
def model(serve):
    @serve.deployment(ray_actor_options={"num_cpus": 0})
    class Model:
        def __call__(self):
            return os.getpid()

    return serve.run(Model.bind())


def endpoints():
    """Where replicas listen."""
    import ray

    found = [each for each in ray.util.list_named_actors(all_namespaces=True) if names.replica_of(each["name"]) is not None]
    return [ray.get(ray.get_actor(each["name"], namespace=each["namespace"]).describe.remote()) for each in found]


def test_nobody_else_can_put_his_socket_in_the_place_of_a_replicas(model):
    (endpoint,) = endpoints()
    assert Path(endpoint.socket_path).exists()
    assert None not in as_another_user(every_way_in, endpoint.socket_path)
    assert model.remote().result(timeout_s=ANSWER_S) == endpoint.pid
