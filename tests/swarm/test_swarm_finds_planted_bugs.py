"""The swarm can fail: bugs planted in the core are found, made short, and printed with a command that shows them again."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from executors.cli.app import app
from executors.cli.swarm import SHORTENED_MAX
from executors.swarm import twice
from executors.workers import WorkersLost
from rankcore.testing.schedules import BrokenScheduleError
from tests.model import test_planted_bugs as planted

IN_SCHEDULES = {
    planted.a_rank_is_released_before_its_replica_has_stopped: ("S4", 21),
    planted.the_rank_of_the_dead_is_not_kept: ("R6", 2),
    planted.both_of_two_duplicates_keep_their_rank: ("index", 101),
}
IN_SCENARIOS = {
    planted.a_kept_rank_counts_as_free: ("index", 0),
    planted.the_rank_of_the_dead_is_not_kept: ("R6", 12),
    planted.what_is_not_acknowledged_is_never_repeated: ("2.4", 0),
}
NAMES = {"ids": lambda plant: plant.__name__}


def rankcore(*arguments: str):
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


@pytest.mark.parametrize("plant", IN_SCHEDULES, **NAMES)
def test_a_bug_is_found_by_schedules_and_printed_as_a_test_that_fails_until_it_is_gone(plant, monkeypatch, tmp_path: Path):
    rule, seed = IN_SCHEDULES[plant]
    with monkeypatch.context() as planting:
        plant(planting)
        planting.setattr("executors.swarm.batches.differs", lambda part, seed: None)  # the other process has no such bug
        found = rankcore("swarm", "--part", "pure", "--seed", str(seed), "--out", str(tmp_path / "out"))
        assert found.exit_code == 1
        test = tmp_path / "out" / f"test_swarm_seed_{seed}.py"
        text = test.read_text()
        assert f"BROKEN in the pure part, seed {seed}: {rule}: " in found.stdout
        assert f"again: python -m pytest {test}" in found.stdout
        assert text in found.stdout
        assert text.count('    ("') <= 20, "moves"
        namespace: dict = {}
        exec(text, namespace)
        with pytest.raises(BrokenScheduleError, match=f"^{rule}: "):
            namespace["test_a_schedule_found_by_the_swarm"]()
    namespace["test_a_schedule_found_by_the_swarm"]()


@pytest.mark.parametrize("plant", IN_SCENARIOS, **NAMES)
def test_a_bug_is_found_in_simulated_worlds_and_printed_as_a_scenario_that_shows_it_again(plant, monkeypatch, tmp_path: Path):
    rule, seed = IN_SCENARIOS[plant]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("executors.swarm.shrinking.TRIES_MAX", 40)
    with monkeypatch.context() as planting:
        plant(planting)
        planting.setattr("executors.swarm.batches.differs", lambda part, seed: None)
        found = rankcore("swarm", "--part", "simulator", "--seed", str(seed), "--out", "out")
        assert found.exit_code == 1
        assert f"BROKEN in the simulator part, seed {seed}: " in found.stdout
        (again,) = (line.removeprefix("again: ") for line in found.stdout.splitlines() if line.startswith("again: "))
        assert again.startswith(f"rankcore simulate out/swarm-seed-{seed}.yaml")
        assert Path(f"out/swarm-seed-{seed}.yaml").read_text() in found.stdout
        shown = rankcore(*shlex.split(again)[1:])
        assert shown.exit_code == 1
        assert f"promise {rule} broken" in shown.stderr
    assert rankcore(*shlex.split(again)[1:]).exit_code == 0


def test_a_second_run_that_differs_is_told_with_the_first_line_that_does(monkeypatch, tmp_path: Path):
    """The bug is planted in this process only, so that the other one decides otherwise."""
    planted.a_kept_rank_counts_as_free(monkeypatch)
    found = rankcore("swarm", "--part", "pure", "--seed", "0", "--out", str(tmp_path / "out"))
    assert found.exit_code == 1
    assert "pure seed 0: determinism, see: rankcore swarm --part pure --seed 0" in found.stdout
    assert " of the two runs: " in found.stdout


def test_a_second_process_that_dies_is_no_agreement(monkeypatch):
    monkeypatch.setattr(twice.sys, "executable", "/bin/false")
    with pytest.raises(WorkersLost, match="pure seed 0: the second process ended with status 1"):
        twice.differs("pure", 0)


def test_failures_of_one_kind_are_listed_and_only_the_first_is_made_short(monkeypatch, tmp_path: Path):
    planted.a_kept_rank_counts_as_free(monkeypatch)
    monkeypatch.setattr("executors.swarm.batches.differs", lambda part, seed: None)
    found = rankcore("swarm", "--part", "pure", "--seeds", "12", "--from", "54", "--out", str(tmp_path / "out"))
    others = re.findall(r"pure seed \d+: (\w+), see: rankcore swarm --part pure --seed \d+", found.stdout)
    others += re.findall(r"pure \d+ \((\w+)\)", found.stdout)
    broken = re.findall(r"BROKEN in the pure part, seed (\d+)", found.stdout)
    assert len(others) > 6
    assert len(list((tmp_path / "out").iterdir())) == len(broken) == SHORTENED_MAX
    assert not any(f"pure seed {seed}: " in found.stdout for seed in broken)
    assert " more: pure " in found.stdout
