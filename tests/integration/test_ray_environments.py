"""Programs with folders, modules and variables of their own on one cluster: the code of each runs in its own environment.

The pieces of all of them have the same names. The first program starts the controllers, and has ended when the others come.
"""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import attrs
import pytest

from tests.fleet_models import write_weights
from tests.ray_local import ANSWER_S, clean_up, eventually, start_ray

pytestmark = pytest.mark.ray

PROGRAM = """
import contextlib, json, os, sys
import ray
given = json.loads(sys.argv[1])
ray.init(address=given["address"], runtime_env=given["runtime_env"], log_to_driver=False, logging_level="error")
from executors import ray_gpu as serve
import parts
app = parts.Part.options(name=given["name"]).bind(1)
if given["weights"]:  # which memory they use is said before there are any
    with contextlib.suppress(serve.InvalidDeploymentError):
        serve.start(memory={"device": "cpu", "stand_in_gpu_bytes": (100_000_000,)}, proxy_location="Disabled")
serve.run(app, name=given["application"], timeout_s=240, route_prefix=None)
if given["weights"]:
    weights = serve.Residency(weights=given["weights"])
    model = serve.deployment(parts.Model).options(name="m", residency=weights, ray_actor_options={"num_cpus": 0})
    serve.run(model.bind(), name=given["name"] + "-model", route_prefix=None).remote().result(240)
"""
PARTS = """
import os
from executors import ray_gpu as serve
from helper import ANSWER

def seen():
    return [ANSWER, os.environ.get("GREETING"), os.environ.get("ONLY_OF_THE_FIRST")]

@serve.deployment(ray_actor_options={"num_cpus": 0, "runtime_env": {"env_vars": {"OWN": "1"}}})
class Part:
    def __init__(self, number):
        self.own = os.environ["OWN"]
    def __call__(self):
        return seen()

class Model:
    def __call__(self):
        return seen()
"""
FIRST = ["first", "hello", "yes"]
SECOND = ["second", "good day", None]
PLAIN = ["plain", None, None]


@attrs.frozen
class Programs:
    """Runs programs, each of which is a job of its own and has ended when `run` returns."""

    folder: object
    address: str

    def run(self, name, application, *, folder, runtime_env, weights=None):
        given = {
            "address": self.address,
            "runtime_env": runtime_env,
            "name": name,
            "application": application,
            "weights": weights,
        }
        variables = {
            "PYTHONPATH": os.getcwd(),
            "RAY_AUTH_MODE": "token",
            "RAY_RUNTIME_ENV_TEMPORARY_REFERENCE_EXPIRATION_S": "1",  # ten minutes as a rule, in which nothing is deleted
        }
        found = subprocess.run(
            [sys.executable, str(folder / "program.py"), json.dumps(given)],
            cwd=folder,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert found.returncode == 0, found.stderr

    def of(self, name):
        """The folder and the environment of a program."""
        folder = self.folder / name
        if name == "plain":
            return {"folder": folder, "runtime_env": None}
        variables = {"GREETING": "hello", "ONLY_OF_THE_FIRST": "yes"} if name == "first" else {"GREETING": "good day"}
        return {"folder": folder, "runtime_env": {"working_dir": str(folder), "env_vars": variables}}


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")
    import ray

    folder = tmp_path_factory.mktemp("programs")
    for name in ("first", "second", "plain"):
        (folder / name).mkdir()
        for file, text in (("program", PROGRAM), ("parts", PARTS), ("helper", f"ANSWER = {name!r}\n")):
            (folder / name / f"{file}.py").write_text(text)
    os.environ["RAY_RUNTIME_ENV_WORKING_DIR_CACHE_SIZE_GB"] = "0"  # the node keeps no folder that nothing uses
    try:
        start_ray()
        yield Programs(folder, ray.get_runtime_context().gcs_address)
    finally:
        del os.environ["RAY_RUNTIME_ENV_WORKING_DIR_CACHE_SIZE_GB"]
        ray.shutdown()


@pytest.fixture(scope="module")
def deployed(programs, tmp_path_factory):
    """A program has run, and then two at once: a deployment of each, and a model of those that have an environment."""
    from executors import ray_gpu

    weights = write_weights(tmp_path_factory.mktemp("weights"), "w", 1)[0]
    programs.run("first", "first", weights=weights, **programs.of("first"))
    with ThreadPoolExecutor() as pool:
        others = [pool.submit(programs.run, "second", "second", weights=weights, **programs.of("second"))]
        others.append(pool.submit(programs.run, "plain", "plain", **programs.of("plain")))
        for each in others:
            each.result()
    yield ray_gpu
    clean_up(ray_gpu)


def pids(serve, name):
    return [each.pid for each in serve.status().deployments[name].replicas]


def asked(serve, name):
    return serve.get_deployment_handle(name).remote().result(ANSWER_S)


@pytest.mark.parametrize("expected", [FIRST, SECOND, PLAIN], ids=lambda expected: expected[0])
def test_replicas_run_in_the_environment_of_the_program_that_deployed_them(deployed, expected):
    assert asked(deployed, expected[0]) == expected


@pytest.mark.parametrize("expected", [FIRST, SECOND], ids=lambda expected: expected[0])
def test_models_run_in_the_environment_of_the_program_that_deployed_them(deployed, expected):
    assert deployed.get_app_handle(f"{expected[0]}-model").remote().result(ANSWER_S) == expected


@pytest.mark.parametrize("expected", [FIRST, SECOND], ids=lambda expected: expected[0])
def test_what_is_started_when_the_program_has_ended_has_its_environment_too(deployed, expected):
    """Nothing else refers to the uploaded folder: no job, no replica, and no cache of the node."""
    name, model = expected[0], f"{expected[0]}-model/m"
    deployed.evict(model, keep="COLD")
    deployed.scale(name, 0)
    eventually(lambda: not deployed.status().deployments[model].workers, "the model has no process")
    eventually(lambda: not deployed.status().deployments[name].replicas, "there is no replica")
    os.kill(deployed.status().controller_pid, signal.SIGKILL)
    deployed.scale(name, 1)
    assert asked(deployed, name) == expected
    (killed,) = pids(deployed, name)
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: all(pid not in (None, killed) for pid in pids(deployed, name)), "it is replaced")
    assert asked(deployed, name) == expected
    assert deployed.get_deployment_handle("m", f"{name}-model").remote().result(ANSWER_S) == expected


def test_the_same_program_again_changes_nothing_and_the_same_from_another_folder_answers_with_what_is_there(deployed, programs):
    before = deployed.status().deployments["first"]
    programs.run("first", "first", **programs.of("first"))
    again = deployed.status().deployments["first"]
    assert (again.version, [each.pid for each in again.replicas]) == (before.version, [each.pid for each in before.replicas])
    programs.run("first", "first", **programs.of("second"))
    assert deployed.status().deployments["first"].version != before.version
    assert asked(deployed, "first") == SECOND
