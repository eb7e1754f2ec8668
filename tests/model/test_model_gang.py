"""The exhaustive checker of gangs: the series holds, planted bugs are found, and the command tells both."""

import json
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from executors.cli.app import app
from rankcore.gang import Admit, Believed, Gang, Joined, LeaseLapsed, Left, RefusalReason
from rankcore.gang import step as honest
from rankcore.testing.explore import Allowance, explored
from rankcore.testing.model_gang import SYSTEMS, GangBounds, GangSystem, make, replay, root, world
from rankcore.testing.model_gang.system import at_rest
from rankcore.testing.paths import BrokenPromiseError, as_test
from tests.extent import WHOLE

pytestmark = pytest.mark.traced

PAGE = Path(__file__).resolve().parents[2] / "docs" / "verification.md"
SMALL = GangBounds(low=1, members=2, spares=1, crashes=1, restarts=1)


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_promises_hold_in_every_state_of_the_series(name: str) -> None:
    """In `make test` only so far."""
    search = explored(GangSystem(SYSTEMS[name]), Allowance() if WHOLE else Allowance(states=200))
    assert search.broken is None
    row = f"| {name} | {search.worlds:,} | {search.edges:,} | {search.depth} | {search.rest} |"
    assert not WHOLE or (search.complete and row in PAGE.read_text(encoding="utf-8")), "docs/verification.md is old"


def test_a_small_gang_holds_whole_with_each_kind_of_fault() -> None:
    search = explored(GangSystem(attrs.evolve(SMALL, spares=0, returns=1)))
    assert (search.broken, search.complete) == (None, True)


def forgets_that_it_was_there(gang: Gang, event):
    return honest(replace(gang, restarted=False), event)


def takes_a_lapse_for_a_newcomer(gang: Gang, event):
    """A failed worker is taken for a lost agent: the rank of one that lives is given away."""
    if isinstance(event, Joined) and event.member in gang.table and gang.opened_s is None:
        gang, told = honest(gang, Left(event.member))
        return gang, told
    return honest(gang, event)


def lets_nobody_go(gang: Gang, event):
    return (gang, ()) if isinstance(event, LeaseLapsed) else honest(gang, event)


def restarts_nobody(gang: Gang, event):
    gang, told = honest(gang, event)
    return gang, tuple(each for each in told if type(each).__name__ != "Restart")


@pytest.mark.parametrize(
    ("planted", "bounds", "rule"),
    [
        (forgets_that_it_was_there, GangBounds(members=2, restarts=1), {"TR1", "TR8"}),
        (takes_a_lapse_for_a_newcomer, GangBounds(members=2, spares=1, failures=1), {"TR1", "TR8"}),
        (lets_nobody_go, SMALL, {"TR3"}),
        (restarts_nobody, SMALL, {"TR3", "TR7"}),
    ],
)
def test_planted_bugs_are_found(planted: Callable, bounds: GangBounds, rule: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "step", planted)
    found = explored(GangSystem(bounds)).broken
    assert found is not None
    assert {each.rule for each in found.violations} <= rule
    with pytest.raises(BrokenPromiseError):
        replay(bounds, found.moves, settles=found.settles)
    assert f"replay({bounds}" in as_test(GangSystem(bounds), found)


def test_who_hears_of_another_rank_than_its_own_is_told() -> None:
    first, *others = root(SMALL).agents
    heard = attrs.evolve(root(SMALL), agents=(attrs.evolve(first, inbox=(Admit(first.member, 1, 2, 2),)), *others))
    assert [each.rule for each in make(heard, ("hears", 0))[1]] == ["TR1"]


def test_a_world_at_rest_that_is_wrong_is_told() -> None:
    fine = root(SMALL)
    assert not list(at_rest(fine))
    first, *others = fine.agents
    for wrong, rule in [
        (attrs.evolve(fine, gang=replace(fine.gang, closed=RefusalReason.DONE)), "TR7"),
        (attrs.evolve(fine, agents=(attrs.evolve(first, believed=Believed(1, 1)), *others)), "TR7"),
        (attrs.evolve(fine, agents=(attrs.evolve(first, size=3), *others)), "TR4"),
        (attrs.evolve(fine, agents=(attrs.evolve(first, lives=False), *others)), "TR3"),
        (attrs.evolve(fine, gang=replace(fine.gang, max_size=3)), "TR6"),
    ]:
        assert {each.rule for each in at_rest(wrong)} == {rule}


def test_the_command_explores_gangs() -> None:
    done = CliRunner().invoke(app, ["check", "--gang", "--only", "gang-crashes", "--states", "50", "--json"])
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert (found["holds"], [each["name"] for each in found["systems"]]) == (True, ["gang-crashes"])
