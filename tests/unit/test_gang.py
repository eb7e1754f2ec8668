"""A gang's ranks: who survives keeps its own, a spare takes exactly the lost one, a shrink moves the least."""

import pytest

from rankcore.gang import (
    Admit,
    Believed,
    ClockAdvanced,
    CloseRequested,
    Command,
    Event,
    Gang,
    Joined,
    LeaseLapsed,
    Left,
    Park,
    Refuse,
    Restart,
    step,
)


def told(gang: Gang, *events: Event) -> tuple[Gang, list[Command]]:
    commands: list[Command] = []
    for event in events:
        gang, more = step(gang, event)
        commands += more
    return gang, commands


def joins(names: str) -> list[Event]:
    return [Joined(name, f"node-{name}") for name in names]


def ranks(gang: Gang) -> dict[str, int]:
    return {member: rank.rank for member, rank in gang.table.ranks.items()}


def running(low: int, high: int, names: str) -> Gang:
    return told(Gang(low, high), *joins(names), ClockAdvanced(15))[0]


def test_a_full_gang_starts_at_once_and_more_are_parked_without_a_restart() -> None:
    gang, commands = told(Gang(3, 3), *joins("abcd"))
    assert commands[-4:] == [Admit("a", 0, 3, 1), Admit("b", 1, 3, 1), Admit("c", 2, 3, 1), Park("d")]
    assert told(gang, *joins("d"))[1] == [Park("d")]
    assert told(gang, Left("d"), Left("d"))[0].waiting == ()


@pytest.mark.parametrize("end", [Left("a"), LeaseLapsed("a")])
def test_the_spare_that_waits_longest_takes_exactly_the_lost_rank(end: Event) -> None:
    gang, commands = told(running(2, 3, "abcde"), end)
    assert commands == [Restart("b"), Restart("c")]
    assert told(gang, *joins("a"))[1] == [Refuse("a", "its lease lapsed: its rank may be another's")]
    gang, commands = told(gang, *joins("cb"))
    assert commands == [Admit("d", 0, 3, 2), Admit("b", 1, 3, 2), Admit("c", 2, 3, 2)]


def test_an_agent_of_the_lost_node_gets_its_rank_before_a_spare() -> None:
    gang, _ = told(running(2, 3, "abc"), Left("a"), Left("b"), *joins("x"), Joined("b2", "node-b"), *joins("c"))
    assert ranks(gang) == {"x": 0, "b2": 1, "c": 2}


def test_a_shrink_moves_only_who_is_above_the_new_size_and_a_growth_moves_nobody() -> None:
    gang, _ = told(running(2, 3, "abc"), Left("a"), *joins("bc"))
    assert gang.round == 1
    gang, _ = told(gang, ClockAdvanced(30))
    assert ranks(gang) == {"c": 0, "b": 1}
    gang, commands = told(gang, *joins("e"))
    assert commands == [Park("e"), Restart("c"), Restart("b")]
    assert ranks(told(gang, *joins("bc"))[0]) == {"c": 0, "b": 1, "e": 2}


def test_a_member_that_comes_again_keeps_its_rank_and_one_that_is_gone_from_an_open_round_is_no_longer_there() -> None:
    gang, commands = told(running(2, 2, "ab"), *joins("b"))
    assert commands == [Restart("a")]
    gang, commands = told(gang, Left("b"), ClockAdvanced(40), *joins("a"))
    assert commands == []
    assert gang.round == 1
    assert ranks(told(gang, *joins("n"))[0]) == {"a": 0, "n": 1}


def test_survivors_of_a_coordinator_say_their_ranks_and_no_new_agent_takes_one_of_them() -> None:
    late = Joined("a", "node-a", Believed(0, 7))
    gang, commands = told(Gang(1, 2), Joined("b", "node-b", Believed(1, 7)), *joins("n"), ClockAdvanced(15))
    assert commands == [Park("b"), Park("n")]
    assert told(gang, late)[1][-2:] == [Admit("a", 0, 2, 8), Admit("b", 1, 2, 8)]
    assert told(gang, ClockAdvanced(20))[1] == [Admit("n", 0, 2, 8), Admit("b", 1, 2, 8)]


def test_too_few_agents_are_refused_in_the_end() -> None:
    gang, commands = told(Gang(3, 3), *joins("a"), ClockAdvanced(600), *joins("b"))
    reason = "1 agents are there after 600 s, at least 3 are needed"
    assert commands == [Park("a"), Refuse("a", reason), Refuse("b", "the job is done")]
    assert told(gang, ClockAdvanced(5), ClockAdvanced(700))[1] == []


def test_a_job_that_is_done_sends_its_spares_away_and_restarts_nobody() -> None:
    gang, commands = told(running(2, 2, "abs"), CloseRequested())
    assert commands == [Refuse("s", "the job is done")]
    assert told(gang, Left("a"))[1] == []
