"""The sample distribution in examples/executor_plugin: found by its name, it runs and conforms."""

import json
import os
import re
import shutil
import signal
import subprocess
import sysconfig
import time
import tomllib
import venv
from pathlib import Path

import pytest

from executors.plugin import named
from rankcore.commands import StartReplica
from rankcore.testing.conformance.contract import FIRST_EPOCH
from tests.distributions import install

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "examples" / "executor_plugin"
PROJECT = tomllib.loads((SAMPLE / "pyproject.toml").read_text())["project"]
MODELS = """
from executors import ray_gpu as serve

@serve.deployment(num_replicas=2)
class Model:
    pass

app = Model.bind()
"""


def test_the_sample_is_short():
    assert sum(len(file.read_text().splitlines()) for file in SAMPLE.iterdir() if file.is_file()) <= 150


def test_the_sample_is_found_by_its_name_and_starts_replicas_under_its_command(tmp_path, monkeypatch):
    install(tmp_path / "site", PROJECT["name"], PROJECT["version"], PROJECT["entry-points"]["rankcore.executors"])
    monkeypatch.syspath_prepend(SAMPLE)
    monkeypatch.syspath_prepend(tmp_path / "site")
    found, plugin = named("under")
    assert (found.distribution, plugin.check(plugin.options())) == ("rankcore-under", None)
    assert plugin.check(plugin.options(under=("nowhere",))) == "no nowhere on PATH"
    with plugin.bench(tmp_path, plugin.options()) as bench:
        executor = bench.open(FIRST_EPOCH)
        executor.under = ("nice", "-n", "7")
        executor.execute(StartReplica("conformance#2.0", 0, "1", None, (), FIRST_EPOCH))
        deadline = time.monotonic() + 60
        while not bench.replicas():
            assert time.monotonic() < deadline
            bench.advance()
        assert os.getpriority(os.PRIO_PROCESS, executor.pid_of("conformance#2.0")) == os.getpriority(os.PRIO_PROCESS, 0) + 7


@pytest.mark.night
def test_the_sample_is_installed_into_a_fresh_environment_and_runs_and_conforms(tmp_path):
    home, place = tmp_path / "env", tmp_path / "place"
    venv.create(home, with_pip=True, symlinks=True)
    python = home / "bin" / "python"
    subprocess.run([python, "-m", "pip", "uninstall", "-q", "-y", "setuptools"], check=True, timeout=300)  # too old a one
    (site,) = (home / "lib").glob("python*/site-packages")
    (site / "rankcore.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")  # rankcore, and what it needs
    shutil.copytree(SAMPLE, tmp_path / "sample")
    temporary = Path("/tmp") / f"rcp-{os.getpid()}"  # sockets have short paths
    temporary.mkdir()
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"TMPDIR": str(temporary)}
    place.mkdir()
    (place / "models.py").write_text(MODELS)

    def run(*arguments):
        done = subprocess.run([python, *arguments], cwd=place, env=env, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-build-isolation", str(tmp_path / "sample"))
    rankcore = ("-m", "executors.cli")
    shown = {each["name"]: each for each in json.loads(run(*rankcore, "executors", "--json"))}
    assert (shown["under"]["distribution"], shown["under"]["problem"]) == ("rankcore-under", None)
    command = [python, *rankcore, "run", "models:app", "--executor", "under", "--option", "under=nice,-n,5"]
    running = subprocess.Popen(command, cwd=place, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        for line in running.stdout:
            if re.search(r"\bHEALTHY\b", line):
                break
        deployments = json.loads(run(*rankcore, "status", "--executor", "under", "--json"))["deployments"]
        nice = [os.getpriority(os.PRIO_PROCESS, each["pid"]) for each in deployments["default/Model"]["replicas"]]
        assert nice == [os.getpriority(os.PRIO_PROCESS, 0) + 5] * 2
        running.send_signal(signal.SIGINT)
        _, stderr = running.communicate(timeout=60)
        assert (running.returncode, stderr.splitlines()[-1]) == (0, "stopped")
    finally:
        running.kill()
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
    assert " 0 broken, 0 skipped" in run(*rankcore, "conform", "under", "-k", "unknown and not faults or crash of one")
    shutil.rmtree(temporary)
