"""Whatever comes in whatever order: no rank is held twice, rounds are dense, and who lives and fits keeps its rank."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankcore.gang import Admit, Believed, ClockAdvanced, CloseRequested, Event, Gang, Joined, LeaseLapsed, Left, Restart, step
from rankcore.gang.invariants import check, check_step
from tests.extent import examples

pytestmark = pytest.mark.traced

MEMBERS = [f"m{index}" for index in range(6)]
EVENTS = st.one_of(
    st.sampled_from(MEMBERS).map(lambda member: Joined(member, f"node-{int(member[1:]) % 4}")),
    st.sampled_from(MEMBERS).map(Left),
    st.sampled_from(MEMBERS).map(LeaseLapsed),
    st.integers(0, 20).map(lambda s: ClockAdvanced(10.0 * s)),
    st.builds(Joined, st.sampled_from(MEMBERS), st.just("node-x"), st.builds(Believed, st.integers(0, 3), st.just(7))),
)


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(1, 3), st.lists(EVENTS, max_size=40))
def test_survivors_keep_their_ranks_and_rounds_are_dense(low: int, events: list[Event]) -> None:
    gang = Gang(low, 3)
    for event in events:
        before = {member: gang.table.rank_of(member).rank for member in gang.living}
        there = {*gang.arrived, *(one.member for one in gang.waiting), getattr(event, "member", None)}
        gone, was_open, seats = gang.lost, gang.opened_s is not None, len(gang.table)
        gang, commands = step(gang, event)
        admitted = {said.member: said.rank for said in commands if isinstance(said, Admit)}
        if admitted:
            size = len(admitted)
            assert sorted(admitted.values()) == list(range(size))
            assert low <= size <= 3
            assert not admitted.keys() & set(gone)
            assert admitted.keys() <= there
            left = {event.member} if isinstance(event, Left | LeaseLapsed) else set()
            for member in before.keys() - left:
                assert member in admitted
                assert admitted[member] == before[member] or before[member] >= size
        if isinstance(event, Joined) and event.member not in before and seats == 3 and not was_open:
            assert not any(isinstance(said, Restart) for said in commands)


WHAT = ["new", "new", "again", "again", "gone", "time", "survivor"]


def happening(gang: Gang, what: str, which: int, serial: int) -> Event:
    """What a gang is told next: mostly something about who is there."""
    there = [*gang.living, *(one.member for one in gang.waiting)] or ["nobody"]
    match what:
        case "new":
            return Joined(f"m{serial}", f"node-{which % 5}")
        case "survivor":
            return Joined(f"m{serial}", f"node-{which % 5}", Believed(which % 3, 7))
        case "again":
            return Joined((*gang.living, "nobody")[which % (1 + len(gang.living))], "node-9")
        case "gone":
            return (Left, LeaseLapsed)[which % 2](there[which % len(there)])
        case _:
            return ClockAdvanced(gang.now_s + (5.0, 15.0, 20.0)[which % 3]) if which else CloseRequested()


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(1, 3), st.lists(st.tuples(st.sampled_from(WHAT), st.integers(0, 9)), max_size=40), st.integers(1, 3))
def test_tr1_to_tr8_hold_after_each_step(low: int, happens: list[tuple[str, int]], each: int) -> None:
    gang = Gang(low, 3, agents_per_node=each, join_timeout_s=60.0)
    for serial, (what, which) in enumerate(happens):
        before, event = gang, happening(gang, what, which, serial)
        gang, commands = step(gang, event)
        assert [*check(gang), *check_step(before, event, gang, commands)] == []
