"""Before a commit, on the forge and by hand the same checks run: those of `.ci/run`, and `make night` where there is time."""

import os
import re
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
CI = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def _workflow():
    return yaml.safe_load((ROOT / ".github" / "workflows" / "checks.yml").read_text(encoding="utf-8"))["jobs"]


def test_a_change_on_the_forge_is_tried_by_ci_run():
    steps = _workflow()["run"]["steps"]
    assert [step["run"] for step in steps if "run" in step] == ["sudo --preserve-env=CI,PATH bash .ci/run"]


def test_the_night_on_the_forge_is_make_night():
    night = re.search(r"^night: ([^#]*)##", MAKEFILE, re.MULTILINE)[1].split()
    assert _workflow()["night"]["strategy"]["matrix"]["target"] == night


def test_before_a_commit_the_first_target_of_ci_run_is_made():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]
    first = re.search(r"for target in (\w+)", CI)[1]
    assert hooks[0]["entry"] == f"make {first}"


def test_every_target_that_is_called_exists():
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    called = set(re.search(r"for target in ([\w ]+);", CI)[1].split()) | set(
        _workflow()["night"]["strategy"]["matrix"]["target"]
    )
    assert called <= targets


def test_what_fails_is_kept_for_the_last_lines_of_make_test(tmp_path):
    kept = tmp_path / "kept"
    (tmp_path / "test_red.py").write_text(
        "def test_red(monkeypatch):\n    monkeypatch.chdir('/')\n    assert 1 == 2, 'it is red'\n\ndef test_green(): pass\n"
    )
    (tmp_path / "test_lost.py").write_text("import nothing_of_this_name\n")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "FAILURES_FILE": str(kept)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "--continue-on-collection-errors"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    told = kept.read_text(encoding="utf-8")
    assert "test_red.py::test_red (call)\n    AssertionError: it is red\n" in told
    assert "test_lost.py (collect)\n" in told
    assert "No module named 'nothing_of_this_name'" in told
    assert "green" not in told
