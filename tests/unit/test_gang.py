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
    RefusalReason,
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
    assert told(gang, *joins("a"))[1] == [Refuse("a", RefusalReason.LAPSED)]
    gang, commands = told(gang, *joins("cb"))
    assert commands == [Admit("d", 0, 3, 2), Admit("b", 1, 3, 2), Admit("c", 2, 3, 2)]


def test_an_agent_of_the_lost_node_gets_its_rank_before_a_spare() -> None:
    gang, _ = told(running(2, 3, "abc"), Left("a"), Left("b"), Joined("b2", "node-b"), *joins("xc"))
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


def test_a_coordinator_that_was_there_before_gives_no_rank_away_while_a_survivor_may_come() -> None:
    again = Gang(2, 2, restarted=True)
    gang, commands = told(again, *joins("mn"), ClockAdvanced(15))
    assert commands == [Park("m"), Park("n")]
    gang, commands = told(gang, Joined("b", "node-b", Believed(1, 7)), ClockAdvanced(20))
    assert commands == [Park("b"), Admit("m", 0, 2, 8), Admit("b", 1, 2, 8)]


def test_too_few_agents_are_refused_in_the_end_and_so_is_who_comes_later() -> None:
    gang, commands = told(Gang(3, 3), *joins("a"), ClockAdvanced(600), *joins("b"))
    detail = "1 agents are there after 600 s, expected 3"
    assert commands == [Park("a"), Refuse("a", RefusalReason.TIMED_OUT, detail), Refuse("b", RefusalReason.TIMED_OUT)]
    assert told(gang, ClockAdvanced(5), ClockAdvanced(700), CloseRequested())[1] == []


def test_a_time_out_is_told_to_those_who_are_out_as_well() -> None:
    gang, commands = told(running(2, 2, "ab"), Left("a"), ClockAdvanced(700))
    assert commands[0] == Restart("b")
    assert [each.reason for each in commands[1:] if isinstance(each, Refuse)] == [RefusalReason.TIMED_OUT]
    assert told(gang, *joins("b"))[1] == [Refuse("b", RefusalReason.TIMED_OUT)]


def test_a_job_that_is_done_is_told_to_all_and_restarts_nobody() -> None:
    gang, commands = told(running(2, 2, "abs"), CloseRequested())
    assert commands == [Refuse(each, RefusalReason.DONE) for each in "abs"]
    assert told(gang, Left("a"))[1] == []
    assert told(gang, *joins("n"))[1] == [Refuse("n", RefusalReason.DONE)]


def test_who_does_not_fit_is_refused_and_the_gang_runs_on() -> None:
    gang, _ = told(Gang(1, 3), Joined("a", "node-a", nproc=8), Joined("b", "node-b"), ClockAdvanced(15))
    assert gang.nproc == 8
    for other, reason, detail in [
        (Joined("c", "node-c", nproc=4), RefusalReason.OTHER_NPROC, "nproc is 4, expected 8"),
        (Joined("c", "node-c", nproc=8, max_size=2), RefusalReason.OTHER_MAX, "MAX is 2, expected 3"),
        (Joined("c", "node-a", nproc=8, max_size=3), RefusalReason.SAME_NODE, "node node-a has 1 already, expected no more"),
    ]:
        assert step(gang, other) == (gang, (Refuse("c", reason, detail),))
    two = Gang(2, 2, agents_per_node=2)
    assert ranks(told(two, Joined("a", "x"), Joined("b", "x"))[0]) == {"a": 0, "b": 1}


def test_a_crashed_agents_node_has_room_for_another_only_once_it_is_known_to_be_gone() -> None:
    gang, again = running(2, 2, "ab"), Joined("a2", "node-a")
    assert told(gang, again)[1][0] == Refuse("a2", RefusalReason.SAME_NODE, "node node-a has 1 already, expected no more")
    assert ranks(told(gang, LeaseLapsed("a"), again, *joins("b"))[0]) == {"a2": 0, "b": 1}


def test_newcomers_that_do_not_go_with_a_survivor_have_to_go_for_it() -> None:
    first = [Joined("m", "node-b"), Joined("n", "node-n", nproc=4), Joined("o", "node-o", nproc=4), Joined("p", "node-p")]
    survivor = Joined("b", "node-b", Believed(0, 7), nproc=8)
    gang, commands = told(Gang(2, 2, restarted=True), *first, survivor)
    assert [(each.member, each.reason) for each in commands if isinstance(each, Refuse)] == [
        ("m", RefusalReason.SAME_NODE),
        ("n", RefusalReason.OTHER_NPROC),
        ("o", RefusalReason.OTHER_NPROC),
    ]
    assert commands[-1] == Park("b")
    other = Joined("c", "node-c", Believed(1, 7), nproc=4)
    assert told(gang, other)[1] == [Refuse("c", RefusalReason.OTHER_NPROC, "nproc is 4, expected 8")]


def test_a_round_waits_for_the_lost_node_only_where_no_spare_is_parked() -> None:
    """TR2: with a spare the gang is whole at once (TR3), and the agent that returns is a spare."""
    gang, _ = told(running(2, 3, "abcd"), Left("a"), *joins("bc"))
    assert ranks(gang) == {"d": 0, "b": 1, "c": 2}
    assert told(gang, Joined("a2", "node-a"))[1] == [Park("a2")]
    gang, _ = told(running(2, 3, "abc"), Left("a"), *joins("bc"), ClockAdvanced(29.9))
    assert gang.round == 1
    assert ranks(told(gang, Joined("a2", "node-a"))[0]) == {"a2": 0, "b": 1, "c": 2}
