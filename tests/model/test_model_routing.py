"""The exhaustive checker of requests: the series holds, planted bugs are found, and the command tells both."""

import json

import pytest
from typer.testing import CliRunner

from executors.cli.app import app
from rankcore.routing import endings, grants, queueing
from rankcore.testing.model_routing import SYSTEMS, Bounds, make, root, search


def test_all_promises_hold_in_every_state_of_the_series():
    done = CliRunner().invoke(app, ["check", "--router", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["holds"]
    assert [each["name"] for each in found["systems"]] == list(SYSTEMS)
    assert all(each["complete"] and each["states"] > 50 for each in found["systems"])


def test_the_command_says_how_many_states_there_are():
    done = CliRunner().invoke(app, ["check", "--router", "--only", "router-queue"])
    assert done.exit_code == 0
    assert "Q1 to Q10 and C1 to C4 hold in every state" in " ".join(done.stdout.split())
    wrong = CliRunner().invoke(app, ["check", "--router", "--only", "nothing"])
    assert wrong.exit_code == 2


PLANTED = {
    "retries what is not idempotent": (
        "router-crashes-final",
        endings,
        "why_final",
        lambda tables, request, kind: None,
        {"Q6"},
    ),
    "never fills": ("router-queue", queueing, "fill", lambda tables, ranks=(): None, {"Q3"}),
    "keeps what is called back": ("router-credits", grants, "_promise", lambda tables, replica: None, {"Q1", "C4"}),
    "never asks": ("router-credits", grants, "ask_for", lambda tables, request: None, {"Q1"}),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found_with_a_path_that_leads_there(name: str, monkeypatch):
    system, module, function, wrong, rules = PLANTED[name]
    monkeypatch.setattr(module, function, wrong)
    found = search(SYSTEMS[system])
    assert {each.rule for each in found.broken} & rules
    world = root(SYSTEMS[system])
    broken = ()
    for move in found.path:
        world, broken = make(world, move)
    assert broken == found.broken or not broken, "the last move breaks it, or the world at its end is not well"


def test_the_command_tells_a_broken_promise_and_the_path_to_it(monkeypatch):
    monkeypatch.setattr(queueing, "fill", lambda tables, ranks=(): None)
    done = CliRunner().invoke(app, ["check", "--router", "--only", "router-queue"])
    assert done.exit_code == 1
    assert "router-queue: Q3" in done.stdout
    assert "arrives 0 0" in done.stdout


def test_a_search_that_is_cut_short_says_so():
    found = search(Bounds(requests=3, failures=2), worlds_max=50)
    assert not found.complete
    assert found.worlds >= 50
