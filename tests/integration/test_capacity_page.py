"""docs/capacity.md: its five commands print what it says, and its numbers of the benchmark are those of the scenario (W24)."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.integration.test_tutorial import COLUMNS, missing, typed

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "capacity.md").read_text(encoding="utf-8")


def test_it_takes_five_commands_and_the_scenario_has_the_row_of_the_benchmark():
    assert [each.command.split()[1] for each in typed(TEXT)] == ["simulate", "optimize", "optimize", "optimize", "simulate"]
    (deployment,) = yaml.safe_load((ROOT / "examples" / "how-many-replicas.yaml").read_text(encoding="utf-8"))["deployments"]
    trace = deployment["requests"]["trace"]
    assert deployment["max_ongoing_requests"] == 25
    assert trace["prompt_s_per_token"] == pytest.approx(0.689 / 5000, rel=1e-3)
    assert trace["output_s_per_token"] == 0.03875


@pytest.mark.night
@pytest.mark.slow
def test_commands_print_what_the_page_says(tmp_path):
    work = tmp_path / "capacity"
    shutil.copytree(ROOT / "examples", work)
    command = tmp_path / "rankcore"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m executors.cli "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": str(COLUMNS), "LC_ALL": "C.UTF-8"}
    for each in typed(TEXT):
        done = subprocess.run(
            ["bash", "-c", each.command], cwd=work, env=environment, capture_output=True, text=True, timeout=600
        )
        assert (done.returncode, done.stderr) == (0, ""), each.command
        assert missing(each.shown, done.stdout) is None, f"$ {each.command}\n{done.stdout}"
