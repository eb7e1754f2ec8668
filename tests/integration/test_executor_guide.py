"""What docs/executors.md shows runs as it stands there, and prints what the page says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rankcore.testing import conformance
from tests.conformance.broken import SaysStoppedTooEarly
from tests.conformance.in_memory import World

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "executors.md").read_text(encoding="utf-8")
APPLICATION, LOOP, TESTS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
_, PRINTED, COMPLAINT = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    bench = "from executors.local.bench import LocalBench as MyBench\n"
    files = {"models.py": APPLICATION, "loop.py": LOOP, "test_mine.py": TESTS, "my_bench.py": bench}
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{folder}", "TMPDIR": "/tmp"}
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=env, capture_output=True, text=True, timeout=600)


def test_the_guide_s_loop_replaces_a_killed_process_under_its_rank(folder):
    done = run(folder, "loop.py")
    assert (done.stdout, done.returncode) == (PRINTED, 0), done.stderr


def test_the_guide_s_test_file_is_short_and_runs_the_kit(folder):
    assert len(TESTS.splitlines()) < 20
    done = run(
        folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py", "-k", "(unknown and not faults) or delete-1"
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_broken_line_is_told_as_the_guide_shows():
    (case,) = [case for case in conformance.CONTRACT if case.name == "an end is told when clean up is over"]
    with pytest.raises(conformance.BrokenLineError) as caught:
        conformance.check(case, World(SaysStoppedTooEarly))
    assert str(caught.value) == COMPLAINT.strip()
