"""What is demanded at the end of a run whose faults are over, asked of runs that are spoilt on purpose."""

import json
from pathlib import Path

import attrs
import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from executors.cli.app import app
from executors.simulator.questions.healed import unhealed
from executors.simulator.run import Run
from executors.simulator.scenario.loading import load_arrivals
from executors.simulator.scenario.structuring import structure_scenario
from rankcore import DeploymentStatus

CALM = {
    "nodes": [{"name": "n", "gpus": 4}],
    "deployments": [{"name": "llm", "target_replicas": 2}],
    "duration_s": 100.0,
}


def ran(**changes) -> tuple[Run, object]:
    scenario = structure_scenario({**CALM, **changes})
    run = Run(scenario, load_arrivals(scenario, Path(), 0))
    return run, run.go()


def set_status(run: Run, status: DeploymentStatus) -> None:
    driver = run.controller.drivers["llm"]
    driver.state = attrs.evolve(driver.state, status=status)


def test_a_calm_run_is_well() -> None:
    assert unhealed(*ran()) is None


def test_who_is_deleted_and_who_is_given_up_is_well() -> None:
    assert unhealed(*ran(changes=[{"at": 50, "deployment": "llm", "delete": True}])) is None
    run, result = ran()
    set_status(run, DeploymentStatus.DEPLOY_FAILED)
    assert unhealed(run, result) is None


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda run: set_status(run, DeploymentStatus.DELETED), "live on"),
        (lambda run: set_status(run, DeploymentStatus.UPDATING), "still UPDATING 100 s after"),
        (lambda run: run.world.deployments["llm"].processes.popitem(), "the book has"),
        (lambda run: run.controller.drivers.clear(), "no controller is there"),
        (lambda run: _spoil_first(run, rank=None), "believes None, the book says"),
        (lambda run: _spoil_first(run, version="9"), "runs '9' in a world of 2"),
    ],
)
def test_what_is_wrong_is_told(spoil, text: str) -> None:
    run, result = ran()
    spoil(run)
    found = unhealed(run, result)
    assert found is not None
    assert (found.rule, found.deployment) == ("liveness", "llm")
    assert text in found.text


def test_ranks_that_nobody_serves_and_requests_left_over_are_told() -> None:
    run, result = ran()
    assert "ranks [] are served, of 2" in unhealed(run, attrs.evolve(result, holds={"llm": ()})).text
    (figures,) = result.deployments
    left = attrs.evolve(figures, requests=attrs.evolve(figures.requests, unfinished=3))
    assert "3 requests are not done" in unhealed(run, attrs.evolve(result, deployments=(left,))).text


def _spoil_first(run: Run, **changes):
    process = next(iter(run.world.deployments["llm"].processes.values()))
    process.replica = replace(process.replica, **changes)


def test_the_command_demands_it_when_asked_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    never = {**CALM, "duration_s": 5.0}  # replicas start for 11 s
    Path("short.yaml").write_text(json.dumps(never))
    asked, not_asked = (CliRunner().invoke(app, ["simulate", "short.yaml", *more]) for more in (["--must-heal"], []))
    assert (asked.exit_code, not_asked.exit_code) == (1, 0)
    assert "promise liveness broken" in asked.stderr
    assert "--must-heal" in asked.stdout
    fork = CliRunner().invoke(app, ["simulate", "--from", "run.jsonl", "--must-heal"])
    assert (fork.exit_code, fork.stderr.count("\n")) == (2, 1)
