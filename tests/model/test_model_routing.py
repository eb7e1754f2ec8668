"""The exhaustive checker of requests: the series holds, planted bugs are found, and the command tells both."""

import json
import re
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
from typer.testing import CliRunner

from executors.cli.app import app
from rankcore.routing import availability, endings, grants, queueing
from rankcore.routing.commands import Dispatch
from rankcore.routing.credits import CreditBook, Holder
from rankcore.testing.explore import Allowance, explored
from rankcore.testing.model_routing import SYSTEMS, RouterSystem, RoutingBounds, make, replay, root
from rankcore.testing.model_routing.system import at_rest
from rankcore.testing.paths import BrokenPromiseError, as_test
from tests.extent import WHOLE, at_most

pytestmark = pytest.mark.traced

ROOT = Path(__file__).resolve().parents[2]


def test_all_promises_hold_in_every_state_of_the_series():
    """In a process of its own, as a user runs it: some seconds; in `make test` the two largest systems only so far."""
    command = (sys.executable, "-m", "executors.cli", "check", "--router", "--json", *at_most(6000))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["holds"]
    assert [each["name"] for each in found["systems"]] == list(SYSTEMS)
    assert all((each["complete"] or not WHOLE) and each["states"] > 50 for each in found["systems"])
    page = (ROOT / "docs" / "verification.md").read_text()
    rows = [
        f"| {each['name']} | {each['states']:,} | {each['moves']:,} | {each['depth']} |"
        for each in found["systems"]
        if each["complete"]
    ]
    assert [row for row in rows if row not in page] == [], "docs/verification.md is old: these rows are new"


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_beginning_of_each_system_holds(name: str):
    assert explored(RouterSystem(SYSTEMS[name]), Allowance(states=150)).broken is None


def test_a_request_may_wait_for_ever_only_where_nobody_is_left():
    search = explored(RouterSystem(RoutingBounds(requests=1, replicas=1, crashes=1)))
    assert (search.broken, search.complete) == (None, True)


def test_a_replica_that_is_sent_too_much_is_found():
    two = (Dispatch(0, "llm#1.0"), Dispatch(1, "llm#1.0"))
    alone = attrs.evolve(root(RoutingBounds(replicas=1)), up=((two,),))
    _, broken = make(make(alone, ("up", 0, 0))[0], ("up", 0, 0))
    assert {each.rule for each in broken} == {"Q2"}
    shared = attrs.evolve(root(SYSTEMS["router-credits"]), up=(((),), (two,)))
    assert {each.rule for each in make(shared, ("up", 1, 0))[1]} == {"C1"}
    book = shared.books[0].holders.set("0", Holder(0, at_work=1))
    left = attrs.evolve(shared, books=(CreditBook(1, book),))
    assert {each.rule for each in at_rest(left)} == {"C4"}


def test_a_second_answer_is_found():
    world = make(root(RoutingBounds(replicas=1)), ("arrives", 0, 0))[0]
    world = make(make(attrs.evolve(world, answers=(1, 0)), ("up", 0, 0))[0], ("ends", 0, 0))[0]
    assert {each.rule for each in make(world, ("down", 0, 0))[1]} == {"Q1"}


def test_the_command_says_how_many_states_there_are():
    done = CliRunner().invoke(app, ["check", "--router", "--only", "router-queue"])
    assert done.exit_code == 0
    assert "Q1 to Q11 and C1 to C4 hold in every state" in " ".join(done.stdout.split())
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
    "accepts the newest": ("router-first-burst", endings, "_serial", lambda request: -request.serial, {"Q5"}),
    "rejects before it knows": ("router-first-burst", queueing, "may_wait", lambda tables: tables.waiting < 1, {"Q5"}),
    "UNAVAILABLE is never lifted": ("router-outages", availability, "lift", lambda tables, because: None, {"Q11"}),
    "UNAVAILABLE with routes": ("router-outages", availability, "any_routed", lambda tables: False, {"Q11"}),
    "who waits as nobody serves waits on": ("router-outages", endings, "those_that_wait", lambda tables: [], {"Q11"}),
    "newcomers wait for nobody": ("router-outages", queueing, "may_wait", lambda tables: True, {"Q11"}),
    "never asks": ("router-credits", grants, "ask_for", lambda tables, request: None, {"Q1"}),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found_with_a_path_that_leads_there(name: str, monkeypatch):
    system, module, function, wrong, rules = PLANTED[name]
    monkeypatch.setattr(module, function, wrong)
    search = explored(RouterSystem(SYSTEMS[system]))
    assert search.broken is not None
    assert {each.rule for each in search.broken.violations} & rules
    test = {}
    exec(as_test(search.system, search.broken), test)
    with pytest.raises(BrokenPromiseError):
        test["test_a_path_found_by_the_checker"]()
    monkeypatch.undo()
    replay(SYSTEMS[system], search.broken.moves[:-1])


def test_the_command_tells_a_broken_promise_and_the_path_to_it(monkeypatch):
    monkeypatch.setattr(queueing, "fill", lambda tables, ranks=(): None)
    done = CliRunner().invoke(app, ["check", "--router", "--only", "router-queue"])
    assert done.exit_code == 1
    assert re.search("BROKEN after .*Q3", done.stdout)
    assert "arrives 0 0" in done.stdout


def test_a_search_that_is_cut_short_says_so():
    search = explored(RouterSystem(RoutingBounds(requests=3, failures=2)), Allowance(states=50))
    assert not search.complete
    assert search.explored == 50
    assert search.sampled == search.worlds - 50
