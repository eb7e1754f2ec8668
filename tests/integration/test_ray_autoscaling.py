"""The number of replicas follows the load on a real Ray cluster, from none and to none, and every call is answered."""

import os
import signal

import pytest

from tests.ray_local import ANSWER_S, eventually

pytestmark = pytest.mark.slow


def replicas(serve):
    return len(serve.status().deployments["Scaled"].ranks)


def target(serve):
    return serve.status().deployments["Scaled"].world_size


def test_replicas_come_with_the_load_from_none_and_go_with_it(serve, tmp_path):
    from executors.ray_gpu.errors import InvalidDeploymentError
    from tests.ray_apps import Scaled

    handle = serve.run(Scaled.bind())
    assert replicas(serve) == 0
    calls = [handle.remote(str(tmp_path / "go")) for _ in range(12)]
    eventually(lambda: replicas(serve) == 3, "as many as there may be")
    (tmp_path / "go").touch()
    assert {call.result(ANSWER_S) for call in calls} <= {0, 1, 2}
    eventually(lambda: target(serve) == 0 and replicas(serve) == 0, "nobody is needed any more")
    assert handle.remote(str(tmp_path / "go")).result(ANSWER_S) == 0, "one call brings one back"
    with pytest.raises(InvalidDeploymentError, match="follows its load"):
        serve.scale("Scaled", 2)


def test_a_restarted_controller_goes_on_with_the_target_and_then_with_the_load(serve, tmp_path):
    from tests.ray_apps import Scaled

    handle = serve.run(Scaled.bind())
    calls = [handle.remote(str(tmp_path / "go")) for _ in range(12)]
    eventually(lambda: replicas(serve) == 3, "as many as there may be")
    before = serve.status()
    os.kill(before.controller_pid, signal.SIGKILL)
    eventually(
        lambda: serve.status().epoch > before.epoch and (replicas(serve), target(serve)) == (3, 3),
        "the next controller has found them, and wants them",
    )
    (tmp_path / "go").touch()
    assert {call.result(ANSWER_S) for call in calls} <= {0, 1, 2}
    eventually(lambda: target(serve) == 0, "it follows the load again")
