"""W12: whether promises are checked after each event, at the end or never changes no figure; what is broken is told."""

import json

import pytest
from typer.testing import CliRunner

from executors.cli.app import app
from executors.simulator import controller
from executors.simulator.residency import control
from rankcore.invariants import Violation

RANKS = """\
nodes: [{name: n, count: 3, gpus: 2}]
deployments:
  - {name: llm, target_replicas: 4, requests: {poisson: {rate_per_s: 5, for_s: 60, service_s: 0.5}}}
faults:
  - {kind: node_loss, at: 20, node: n-0, back_after_s: 20}
  - {kind: controller_crash, at: 30, restart_after_s: 2}
changes: [{at: 40, deployment: llm, target_replicas: 2}]
"""


@pytest.fixture
def scenario(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(RANKS)
    return "s.yaml"


def run(*arguments):
    return CliRunner().invoke(app, arguments)


def figures(*arguments):
    done = run("simulate", *arguments, "--json", "-", "--report", "page.html")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_figures_are_the_same_however_often_promises_are_checked(scenario):
    found = {how: figures(scenario, "--check", how) for how in ("each", "end", "off")}
    again = {how: each.pop("rerun") for how, each in found.items()}
    assert found["each"] == found["end"] == found["off"]
    assert [again[how].partition("--check")[2] for how in again] == ["", " end", " off"]


def test_the_page_says_where_nothing_was_checked(scenario, tmp_path):
    for how, said in (("end", "All promises held"), ("off", "Promises were not checked (--check off)")):
        figures(scenario, "--check", how)
        assert said in (tmp_path / "page.html").read_text()


def broken_after(count):
    """A check of books that finds something from its so-manyth time on."""
    asked = []

    def check(_):
        asked.append(1)
        return (Violation("R9", "planted"),) if len(asked) > count else ()

    return check


@pytest.mark.parametrize(("how", "status"), [("each", 1), ("end", 1), ("off", 0)])
def test_a_broken_promise_ends_a_run_that_looks(scenario, monkeypatch, how, status):
    monkeypatch.setattr(controller.invariants, "check", broken_after(5))
    done = run("simulate", scenario, "--check", how, "-q")
    assert (done.exit_code, "promise R9 broken" in done.stderr) == (status, bool(status))


def test_what_a_sweep_finds_broken_is_told_with_the_command_that_looks_closer(scenario, monkeypatch):
    monkeypatch.setattr(controller.invariants, "check", broken_after(3))
    done = run("sweep", scenario, "--vary", "target_replicas=4", "--runs", "1", "--seed", "7", "-q")
    assert done.exit_code == 1
    assert "planted; again: rankcore simulate s.yaml --set target_replicas=4 --seed 7 --check each" in done.stderr


def test_a_sweep_that_did_not_look_is_made_again_by_one_that_does(scenario, tmp_path):
    cells = tmp_path / "s.sweep" / "cells.jsonl"
    for count, how in enumerate(("off", "end", "end"), start=1):
        assert run("sweep", scenario, "--vary", "target_replicas=4", "--runs", "1", "--check", how, "-q").exit_code == 0
        assert len(cells.read_text().splitlines()) == min(count, 2)


def test_a_fork_checks_as_the_recorded_run_did(scenario):
    done = run("simulate", "--from", "run.jsonl", "--at", "1", "--fault", "x", "--check", "off")
    assert done.exit_code == 2
    assert "expected a scenario file, found --from" in done.stderr


def test_a_run_with_residency_is_checked_as_often_as_is_asked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = []
    monkeypatch.setattr(control, "check", lambda *_: asked.append("end") or ())
    monkeypatch.setattr(control, "check_step", lambda *_: asked.append("each") or ())
    (tmp_path / "w.yaml").write_text(
        "nodes: [{name: n, gpus: 1, gpu_gb: 80, cpu_cache_gb: 100}]\n"
        "deployments: [{name: m, residency: {weight_gb: 10}, target_replicas: 0,"
        " requests: {poisson: {rate_per_s: 1, for_s: 20, service_s: 0.1}}}]\n"
    )
    found = []
    for how, kinds in (("each", {"each", "end"}), ("end", {"end"}), ("off", set())):
        asked.clear()
        found.append(figures("w.yaml", "--check", how) | {"rerun": None})
        assert set(asked) == kinds
    assert found[0] == found[1] == found[2]
