"""`rankcore run` and `rankcore status`, each in a process of its own."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ray_local import eventually

pytestmark = pytest.mark.slow
pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

ROOT = Path(__file__).parents[2]

APP = """
from executors import ray_gpu as serve

@serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 0}, start_backoff_s=0.1)
class Model:
    def __init__(self, fail=False):
        if fail:
            raise ValueError("no weights")
    def __call__(self):
        return "hello"

app = Model.bind()
broken = Model.bind(fail=True)
negative = Model.options(num_replicas=-3).bind()
"""


@pytest.fixture
def place(tmp_path):
    """A folder with an application, where no other Ray cluster is found."""
    (tmp_path / "models.py").write_text(APP)
    # Unix sockets have short paths.
    folder = Path("/tmp") / f"rc-{os.getpid()}"
    folder.mkdir(exist_ok=True)
    yield (
        tmp_path,
        {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "RAY_TMPDIR": str(folder),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ADDRESS": "",
        },
    )
    subprocess.run(["rm", "-rf", str(folder)], check=True)


def command(place, *arguments, **options):
    folder, env = place
    line = [sys.executable, "-m", "executors.cli", *arguments]
    return subprocess.Popen(
        line, cwd=folder, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, **options
    )


def outcome(process):
    stdout, stderr = process.communicate(timeout=600)
    return process.returncode, stdout, "\n".join(line for line in stderr.splitlines() if line.startswith("rankcore: error"))


def test_run_shows_ranks_and_stops_cleanly_on_interrupt(place):
    running = command(place, "run", "models:app", "--journal", "run.jsonl")
    try:
        lines = []
        for line in running.stdout:
            lines.append(line)
            if "HEALTHY" in line:
                break
        assert "2 of 2 running, ranks 0: models:app/Model#1." in lines[-1]
        status, stdout, _ = outcome(command(place, "status", "--json"))
        assert status == 0
        model = json.loads(stdout)["deployments"]["models:app/Model"]
        assert [each["rank"]["rank"] for each in model["replicas"]] == [0, 1]
        status, stdout, _ = outcome(command(place, "status"))
        assert status == 0
        assert "HEALTHY" in stdout
        running.send_signal(signal.SIGINT)
        stdout, stderr = running.communicate(timeout=600)
        assert running.returncode == 0, stderr
        assert "stopped" in stderr
    finally:
        if running.poll() is None:
            running.kill()
    folder, _ = place
    status, stdout, _ = outcome(command(place, "replay", str(folder / "run.jsonl")))
    assert status == 0, stdout


FILE = """
applications:
  - name: shop
    import_path: words:app
    deployments: [{name: Says, num_replicas: 1}]
"""
WORDS = """
from executors import ray_gpu as serve
from helper import WORD

@serve.deployment(ray_actor_options={"num_cpus": 0})
class Says:
    def __call__(self):
        return WORD

app = Says.bind()
"""
ASK = """
from executors import ray_gpu as serve
print(serve.get_app_handle("shop").remote().result(60))
"""


def test_a_file_is_run_and_what_changes_in_its_working_dir_is_uploaded_and_deployed_anew(place):
    folder, env = place
    code = folder / "code"
    code.mkdir()
    (folder / "apps.yaml").write_text(FILE)
    (code / "words.py").write_text(WORDS)
    (code / "helper.py").write_text("WORD = 'before'")

    def says():
        return subprocess.run(
            [sys.executable, "-c", ASK], cwd=folder, env=env, text=True, capture_output=True, timeout=120
        ).stdout

    running = command(place, "run", "apps.yaml", "--reload", "--working-dir", "code", "--app-dir", "code")
    try:
        for line in running.stdout:
            if line.startswith("shop/Says HEALTHY, 1 of 1 running"):
                break
        assert says() == "before\n"
        (code / "helper.py").write_text("WORD = 'after'")
        eventually(lambda: says() == "after\n", "the new code is there, in replicas too")
        running.send_signal(signal.SIGINT)
        _, stderr = running.communicate(timeout=600)
        assert (running.returncode, "helper.py changed: it is deployed anew" in stderr) == (0, True), stderr
    finally:
        if running.poll() is None:
            running.kill()


def test_run_says_why_an_application_does_not_come_up(place):
    status, _, problem = outcome(command(place, "run", "models:broken"))
    assert status == 1
    assert "Model did not come up" in problem


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("models", "expected MODULE:APP"),
        ("nowhere:app", "there is no module 'nowhere'"),
        ("models:Model", "write `app = Model.bind()`"),
        ("models:missing", "models has no 'missing'"),
    ],
)
def test_bad_targets_are_refused_without_starting_anything(place, target, problem):
    status, stdout, found = outcome(command(place, "run", target))
    assert (status, stdout) == (2, "")
    assert problem in found


def test_status_without_ray_says_what_to_do(place):
    status, stdout, problem = outcome(command(place, "status"))
    assert (status, stdout) == (2, "")
    assert problem == "rankcore: error: Ray is not running: start it with `ray start --head`, or call ray.init() first"


@pytest.mark.parametrize(("variables", "options"), [({"RAY_ADDRESS": "127.0.0.1:1"}, []), ({}, ["--address", "127.0.0.1:1"])])
def test_a_cluster_that_cannot_be_reached_is_named(place, variables, options):
    folder, env = place
    status, _, problem = outcome(command((folder, {**env, **variables}), "status", *options))
    assert status == 2
    assert "no Ray cluster can be reached at RAY_ADDRESS=127.0.0.1:1" in problem
