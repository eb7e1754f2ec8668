"""rankcore with compiled rules: installed as a user installs it, and asked the same questions as the one that is not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.extent import examples

pytest.importorskip("mypyc", reason="mypy is not installed: pip install 'rankcore[test]'")

pytestmark = pytest.mark.night  # the build alone takes minutes

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 900
ASK = f"""
import hashlib
from executors.swarm.runs import run_seed
from rankcore.rules import fill
from rankcore.testing.schedules import world

seeds = [("pure", seed) for seed in range({examples(80)})] + [("simulator", seed) for seed in range({examples(8)})]
record = "\\n".join(run_seed(part, seed, None, record=True).record for part, seed in seeds)
print(fill.__file__.endswith(".py"), world.__file__.endswith(".py"))
print(len(record), hashlib.sha256(record.encode()).hexdigest())
"""
REFUSED = """
from rankcore import DeploymentSpec, RankcoreError, deploy, step
from rankcore.events import ReplicaDied, StopRequested

state = deploy(DeploymentSpec(name="m", target_replicas=2), epoch=1).state
for wrong in (
    lambda: deploy(None, epoch=1),
    lambda: deploy(state.spec, epoch="1"),
    lambda: deploy(state.spec, epoch=1, at="now"),
    lambda: DeploymentSpec(name="m", target_replicas="2"),
    lambda: step(None, ReplicaDied(replica_id="m#1.0", reason="", at=0.0)),
    lambda: step(state, None),
    lambda: step(state, ReplicaDied(replica_id="x#1.0", reason="", at=0.0)),
    lambda: step(state, StopRequested(replica_ids=["m#1.0", "?"], at=0.0)),
    lambda: ReplicaDied(replica_id=3, reason="", at=0.0),
):
    try:
        print(wrong())
    except RankcoreError as error:
        print(type(error).__name__, error)
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """The folder into which it is installed, from a copy: the build leaves its files beside the sources."""
    folder = tmp_path_factory.mktemp("compiled")
    copied = folder / "source"
    copied.mkdir()
    names = ("rankcore", "executors", "setup.py", "pyproject.toml", "README.md", "LICENSE")
    subprocess.run(["cp", "-r", *(str(ROOT / name) for name in names), str(copied)], check=True)
    options = ["--quiet", "--disable-pip-version-check", "--no-build-isolation", "--no-deps", "--target", str(folder / "there")]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "."],
        cwd=copied,
        env=os.environ | {"RANKCORE_COMPILE": "0"},
        check=True,
        timeout=TIMEOUT_S,
    )
    return folder / "there"


def answers(question: str, folder: Path) -> list[str]:
    """What the rankcore in a folder says; `-P` keeps the one here out of the way."""
    asked = subprocess.run(
        [sys.executable, "-P", "-c", question],
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
        timeout=TIMEOUT_S,
    )
    return asked.stdout.splitlines()


def test_compiled_rules_decide_the_same_to_the_byte(compiled):
    which, record = answers(ASK, compiled)
    assert which == "False False", "it is compiled"
    assert answers(ASK, ROOT) == ["True True", record]


def test_compiled_rules_refuse_bad_input_in_the_same_words(compiled):
    refusals = answers(REFUSED, ROOT)
    assert len(refusals) == 9
    assert answers(REFUSED, compiled) == refusals
