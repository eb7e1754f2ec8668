"""The examples that embed the core elsewhere do what they say, and print what docs/embedding.md shows."""

import importlib.util
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "embedding.md").read_text(encoding="utf-8")


def shown(example):
    """The first block of text behind the name of an example."""
    return re.search(r"```text\n(.*?)```", PAGE.partition(f"`examples/{example}`")[2], re.DOTALL)[1]


def run(example, python=sys.executable, *words, timeout_s=120):
    command, env = [python, f"examples/{example}", *words], {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=timeout_s)


@pytest.fixture
def with_kubernetes(tmp_path):
    """A Python with the client library."""
    if importlib.util.find_spec("kubernetes"):
        return sys.executable
    venv.create(tmp_path / "env", with_pip=True, symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    wanted = ["attrs", "immutables", "msgspec", "kubernetes>=37"]
    if subprocess.run([python, "-m", "pip", "install", "-q", *wanted], capture_output=True, timeout=600).returncode:
        pytest.skip("the client library of Kubernetes cannot be installed here")
    return python


def test_the_rank_table_alone_in_a_scheduler_prints_what_the_page_shows():
    done = run("embed_rank_table.py")
    assert (done.stdout, done.returncode) == (shown("embed_rank_table.py"), 0), done.stderr


@pytest.mark.night
def test_rollouts_in_a_controller_with_kubernetes_api_print_what_the_page_shows(with_kubernetes):
    done = run("embed_in_kubernetes.py", with_kubernetes)
    assert (done.stdout, done.returncode) == (shown("embed_in_kubernetes.py"), 0), done.stderr
    assert "epoch 1, KillReplica: ReplacedError llm-1.2 is of epoch 2" in done.stderr.splitlines()


UNCLAIMED = {
    "room": "capacities",
    "take_requests": "readiness",
    "hang": "health checks",
    "partition": "lease",
    "group": "static",
}
"""What its bench cannot do, and how the head of the example says so."""


@pytest.mark.night
@pytest.mark.parametrize("words", ["contract:", "deployment:"])
def test_rollouts_in_a_controller_with_kubernetes_api_keep_the_contract_but_for_what_they_do_not_claim(with_kubernetes, words):
    done = run("kubernetes_bench.py", with_kubernetes, words, timeout_s=1800)
    assert done.returncode == 0, done.stdout
    skipped = {re.search(r"`(\w+)`", line)[1] for line in done.stdout.splitlines() if line.startswith("skipped")}
    assert skipped <= {*UNCLAIMED}
    head = (ROOT / "examples" / "embed_in_kubernetes.py").read_text(encoding="utf-8").split('"""')[1]
    assert all(UNCLAIMED[each] in head for each in skipped)
    assert int(re.search(r"(\d+) kept", done.stdout)[1]) > 60


def test_the_kubernetes_example_says_at_its_head_that_no_cluster_has_seen_it():
    first = (ROOT / "examples" / "embed_in_kubernetes.py").read_text(encoding="utf-8").splitlines()[0]
    assert "UNTESTED ON A CLUSTER" in first


def test_nothing_but_the_example_imports_kubernetes():
    """And nothing of the product asks for it."""
    using = [path for folder in ("rankcore", "executors") for path in (ROOT / folder).rglob("*.py")]
    assert not [path for path in using if re.search(r"^\s*(import|from) kubernetes\b", path.read_text(), re.MULTILINE)]


@pytest.mark.parametrize("example", ["embed_rank_table.py", "embed_in_kubernetes.py"])
def test_the_readme_names_it(example):
    assert f"examples/{example}" in (ROOT / "README.md").read_text(encoding="utf-8")
