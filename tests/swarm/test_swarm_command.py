"""`rankcore swarm`: what it runs depends on the seeds and on nothing else, and it says what it has seen."""

import json
import os
from itertools import combinations
from pathlib import Path

import pytest
from typer.testing import CliRunner

from executors.cli.app import app
from executors.simulator.scenario.structuring import structure_scenario
from executors.swarm.batches import batches_of, run_batch
from executors.swarm.coverage import KINDS
from executors.swarm.drawing import chance_of, swarm_weights
from executors.swarm.scenarios import draw_scenario
from executors.swarm.schedules import CALM_WEIGHTS, FAULT_WEIGHTS, draw_schedule
from rankcore.testing.schedules import CALM, MOVES


def swarm(*arguments: str):
    return CliRunner().invoke(app, ["swarm", *arguments], catch_exceptions=False)


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def timeless(text: str) -> dict:
    found = json.loads(text)
    for part in found["parts"].values():
        del part["events_per_minute_and_core"]
    return found


def test_a_swarm_holds_and_leaves_nothing_behind() -> None:
    found = swarm("--seeds", "12")
    assert found.exit_code == 0, found.output
    assert found.stdout.endswith("\nAll promises held.\n")
    assert "run twice" in found.stdout
    assert os.listdir() == []


def test_as_many_jobs_as_one_likes_see_the_same() -> None:
    one, two = (swarm("--seeds", "24", "--json", "--jobs", jobs) for jobs in ("1", "2"))
    assert timeless(one.stdout) == timeless(two.stdout)
    assert timeless(one.stdout)["parts"]["pure"]["seeds"] == 24


@pytest.mark.night
@pytest.mark.ray
def test_a_swarm_on_ray_sees_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "local")
    here, there = (swarm("--seeds", "12", "--json", "--jobs", "2", "--on", where) for where in ("processes", "ray"))
    assert there.exit_code == 0, there.output
    assert timeless(here.stdout) == timeless(there.stdout)


def test_one_seed_is_run_twice_and_everything_seen_can_be_listed() -> None:
    found = swarm("--seed", "17", "--part", "pure", "--coverage")
    assert found.exit_code == 0, found.output
    lines = {line.strip().partition("  ")[2]: line.split()[0] for line in found.stdout.splitlines() if line.startswith("  ")}
    assert set(lines) == {name for kind, names in KINDS.items() if not kind.endswith("simulator") for name in names}
    assert "17" not in os.listdir()


def test_ctrl_c_tells_what_was_seen_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(batch):
        if batch.seeds[0] > 0:
            raise KeyboardInterrupt
        return run_batch(batch)

    monkeypatch.setattr("executors.cli.swarm.run_batch", interrupted)
    found = swarm("--seeds", "60", "--part", "pure")
    assert found.exit_code == 130
    assert "pure" in found.stdout
    assert "All promises held" not in found.stdout
    assert found.stdout.endswith("\nNo promise was broken so far.\n")
    assert found.stderr == "rankcore: interrupted after 20 of 60 seeds (pure)\n"


@pytest.mark.parametrize("arguments", [("--seeds", "0"), ("--part", "none"), ("--from", str(2**63 - 5)), ("--jobs", "0")])
def test_bad_input_is_one_line_and_status_2(arguments: tuple[str, ...]) -> None:
    found = swarm(*arguments)
    assert (found.exit_code, found.stdout) == (2, "")
    assert found.stderr.count("\n") == 1


def test_seeds_draw_the_same_everywhere_and_valid_scenarios() -> None:
    """These very numbers: another version of Python that drew otherwise would make seeds that were told useless."""
    assert [chance_of("x", 1).randrange(1000) for _ in range(2)] == [chance_of("x", 1).randrange(1000)] * 2
    assert chance_of("schedule", 7).getrandbits(32) == 1115838468
    for seed in range(200):
        structure_scenario(draw_scenario(seed))
        assert {name for name, _ in draw_schedule(seed).moves} <= set(MOVES)


def test_every_move_has_a_weight() -> None:
    assert set(CALM_WEIGHTS) == set(CALM)
    assert set(CALM_WEIGHTS) | set(FAULT_WEIGHTS) == set(MOVES)


def test_some_faults_are_off_and_some_extreme() -> None:
    drawn = [swarm_weights(chance_of("x", seed), {"a": 1.0}) for seed in range(300)]
    assert {each.get("a") for each in drawn} == {None, 1.0, 12.0}


def test_batches_have_every_seed_once_whichever_part() -> None:
    work = batches_of(("pure", "simulator"), range(5, 60))
    for part in ("pure", "simulator"):
        assert sorted(seed for batch in work if batch.part == part for seed in batch.seeds) == list(range(5, 60))


def test_no_node_is_slow_twice_over() -> None:
    """Two factors of 20 multiply, and a start takes longer than the run; of this seed one slow start is left out for that."""
    drawn = draw_scenario(80428)["faults"]
    slow = [(fault["node"], fault["at"], fault["at"] + fault["for_s"]) for fault in drawn if fault["kind"] == "slow_start"]
    assert len(slow) == 7
    assert all(one[0] != other[0] or one[2] <= other[1] for one, other in combinations(slow, 2))
