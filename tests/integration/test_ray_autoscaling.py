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

    handle = serve.run(Scaled.bind(), route_prefix=None)
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

    handle = serve.run(Scaled.bind(), route_prefix=None)
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


def test_a_policy_of_the_users_is_followed_and_one_that_fails_is_reported_and_changes_nothing(serve, tmp_path):
    from tests.ray_apps import Scaled

    wanted = tmp_path / "wanted"
    wanted.write_text("2")

    def as_written(view):
        return int(wanted.read_text())

    def message():
        return serve.status().deployments["Scaled"].message

    config = {**Scaled.settings["autoscaling_config"], "policy": as_written, "min_replicas": 1}
    serve.run(Scaled.options(autoscaling_config=config).bind(), route_prefix=None)
    eventually(lambda: target(serve) == replicas(serve) == 2, "what the policy says")
    wanted.write_text("many")
    eventually(lambda: "the autoscaling policy as_written raised ValueError" in message(), "status says why")
    before = serve.status()
    assert before.deployments["Scaled"].world_size == 2
    wanted.write_text("3")
    eventually(lambda: target(serve) == replicas(serve) == 3 and not message(), "it is followed again")
    os.kill(before.controller_pid, signal.SIGKILL)
    wanted.write_text("1")
    eventually(lambda: serve.status().epoch > before.epoch and target(serve) == 1, "the next controller has the policy too")
    serve.run(Scaled.options(autoscaling_config={**config, "policy": "no_such_module:policy"}).bind(), route_prefix=None)
    eventually(lambda: "no_such_module:policy cannot be imported" in message(), "status says why")
    assert target(serve) == 1
