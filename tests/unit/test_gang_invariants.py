"""TR1 to TR8 are asked from outside: a gang, or a step, that is wrong on purpose breaks the promise that it should."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from rankcore.frozen import PMap
from rankcore.gang import Admit, ClockAdvanced, Command, Event, Gang, Joined, Left, RefusalReason, Refuse, Restart, step
from rankcore.gang.invariants import check, check_step
from rankcore.gang.state import WaitingMember
from rankcore.ranks import RankTable


def seated(names: str, waiting: str = "", **others: object) -> Gang:
    """A gang that runs, 2 to 3, each on a node of its own."""
    table = RankTable()
    for name in names:
        table, _ = table.assign(name, f"node-{name}")
    told = Gang(
        2, 3, table=table, round=1, opened_s=None, waiting=tuple(WaitingMember(each, f"node-{each}", None) for each in waiting)
    )
    return replace(told, **others)


def some(names: str) -> PMap[str, None]:
    return PMap(dict.fromkeys(names))


def rules(*steps: tuple[Gang, Event, Gang, Sequence[Command]]) -> set[str]:
    return {found.rule for each in steps for found in check_step(*each)}


@pytest.mark.parametrize(
    ("rule", "gang"),
    [
        ("TR6", seated("abc", "a")),
        ("TR6", seated("ab", "d")),
        ("TR7", seated("abcd")),
        ("TR7", seated("a")),
        ("TR7", seated("abc", lost=some("a"))),
        ("TR8", seated("ab", opened_s=0.0, lost=some("x"))),
        ("TR8", seated("ab", opened_s=0.0, lost=some("a"), arrived=some("a"))),
    ],
)
def test_a_gang_that_is_wrong_is_told(rule: str, gang: Gang) -> None:
    assert {found.rule for found in check(gang)} == {rule}
    assert not list(check(seated("abc", "d")))


D, E = WaitingMember("d", "node-d", None), WaitingMember("e", "node-e", None)
ROUND = seated("abc", opened_s=0.0, arrived=some("bc"), lost=some("a"))
"""Rank 0 is lost, the others have come."""


def closed(ranks: str, waiting: str = "") -> tuple[Gang, list[Command]]:
    """The round after, and who is admitted; by rank."""
    return seated(ranks, waiting, round=2), [Admit(each, rank, len(ranks), 2) for rank, each in enumerate(ranks)]


@pytest.mark.parametrize(
    ("rule", "before", "after"),
    [
        ("TR1", replace(ROUND, waiting=(D,)), closed("dcb")),
        (
            "TR2",
            replace(ROUND, waiting=(WaitingMember("a2", "node-a", None), D)),
            closed("dbc", "a2"),
        ),
        (
            "TR3",
            replace(ROUND, waiting=(D, E)),
            closed("ebc", "d"),
        ),
        ("TR4", seated("abc", opened_s=0.0, arrived=some("abc")), closed("ab")),
        ("TR5", seated("ab", "d", opened_s=0.0, arrived=some("ab")), closed("bad")),
        ("TR7", replace(ROUND, arrived=some("b"), waiting=(D,)), closed("dbc")),
        ("TR8", replace(ROUND, lost=some("a"), waiting=(D,)), closed("abc", "d")),
    ],
)
def test_a_round_that_closes_wrong_is_told(rule: str, before: Gang, after: tuple[Gang, list[Command]]) -> None:
    assert rule in rules((before, ClockAdvanced(20), *after))


def test_a_round_that_closes_right_is_not() -> None:
    gang = seated("abc", "de", opened_s=None)
    for event in (Left("b"), Joined("a", "node-a"), Joined("c", "node-c")):
        before = gang
        gang, commands = step(gang, event)
        assert not rules((before, event, gang, commands))
    assert gang.round == 2


def test_a_step_that_takes_a_seat_or_restarts_for_nothing_is_told() -> None:
    whole = seated("abc")
    assert rules((whole, ClockAdvanced(1), seated("ab"), ())) == {"TR1"}
    assert rules((whole, ClockAdvanced(1), replace(whole, opened_s=0.0, lost=some("a")), ())) == {"TR1", "TR8"}
    assert rules((whole, Joined("d", "node-d"), seated("abc", "d"), (Restart("a"),))) == {"TR6"}
    late = (Refuse("b", RefusalReason.TIMED_OUT), Refuse("c", RefusalReason.TIMED_OUT))
    assert rules((ROUND, ClockAdvanced(900), replace(ROUND, closed=RefusalReason.TIMED_OUT), late)) == {"TR7"}
