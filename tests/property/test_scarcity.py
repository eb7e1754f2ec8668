"""V18 at random: k places for N, whoever gets them, whoever is lost; against an oracle that tries every assignment of ranks."""

from itertools import combinations, permutations

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from rankcore.commands import ReconfigureReplica, StartReplica
from rankcore.values import age_key
from tests.scripted import Deployment

AFTER_S = 60.0


def fewest_moves(ranks: list[int]) -> int:
    """The fewest changes that lead from these ranks to 0..k-1: every assignment is tried."""
    wanted = permutations(range(len(ranks)))
    return min(sum(before != after for before, after in zip(ranks, each, strict=True)) for each in wanted)


class Scarce:
    """A deployment on so many places; who waits for one gets a free one in an order that is drawn."""

    def __init__(self, target: int, places: int, lots: list[int]) -> None:
        self.d = Deployment(target, scarcity_after_s=AFTER_S, repeat_period_s=AFTER_S, start_backoff_s=1.0)
        self.places, self.lots = places, lots

    def go_on(self) -> None:
        """All that needs no time: places are given out, replicas become ready and acknowledge, in any order."""
        while True:
            waiting = {each for each, told in self.d.outstanding.items() if isinstance(told, StartReplica)}
            full = sum(process.node_id is not None for process in self.d.processes.values()) >= self.places
            able = sorted((each for each in self.d.outstanding if not (full and each in waiting)), key=age_key)
            if not able:
                self.d.find_no_room()
                return
            self.d.answer(able[self.draw() % len(able)])

    def draw(self) -> int:
        self.lots.append(lot := self.lots.pop(0))
        return lot

    def lose(self, *, with_place: bool) -> None:
        there = sorted((each for each, process in self.d.processes.items() if process.node_id is not None), key=age_key)
        if there:
            self.places -= with_place
            self.d.die(there[self.draw() % len(there)])

    @property
    def moves(self) -> int:
        return len(self.d.sent(ReconfigureReplica))

    @property
    def running(self) -> list[int]:
        return sorted(self.d.ranks[replica_id] for replica_id in self.d.routes)


STEPS = st.sampled_from(["crash", "loss", "place", "go on", "wait", "half"])


@given(st.integers(1, 5), st.integers(0, 5), st.lists(STEPS, max_size=8), st.lists(st.integers(0, 59), min_size=7, max_size=7))
def test_a_while_after_the_last_loss_the_lowest_ranks_run_with_the_fewest_moves(
    target: int, places: int, steps: list[str], lots: list[int]
) -> None:
    world = Scarce(target, places, lots)
    if "go on" in steps[:1]:
        world.go_on()
        assert world.running == list(range(min(target, places)))
        assert world.moves == 0, "a first start moves nobody"
    for each in steps:
        match each:
            case "crash" | "loss":
                world.lose(with_place=each == "loss")
            case "place":
                world.places += 1
            case "go on":
                world.go_on()
            case "wait" | "half":
                world.d.wait(AFTER_S if each == "wait" else AFTER_S / 2)
    world.d.wait(1.0)  # whoever failed to start is asked for again
    world.go_on()
    world.d.wait(2.0)
    world.go_on()
    before, ranks = world.moves, world.running
    world.d.wait(AFTER_S)
    world.go_on()
    fits = min(target, world.places)
    assert world.running == list(range(fits))
    assert world.moves - before == fewest_moves(ranks)
    event(f"{world.moves - before} moves")
    world.d.wait(10 * AFTER_S)
    assert world.moves - before == fewest_moves(ranks), "and then nobody any more"


@pytest.mark.parametrize("target", range(1, 6))
def test_whichever_are_lost_with_their_places_the_oracle_knows_no_fewer_moves(target: int) -> None:
    for count in range(target + 1):
        for lost in combinations(range(target), count):
            world = Scarce(target, target, [0])
            world.go_on()
            for rank in lost:
                world.places -= 1
                world.d.die(f"llm#1.{rank}")
            world.d.find_no_room()
            expected = fewest_moves(world.running)
            world.d.wait(AFTER_S)
            assert len(world.d.sent(ReconfigureReplica)) == expected, lost
            world.go_on()
            assert world.running == list(range(target - count)), lost


@given(st.integers(1, 5), st.lists(st.integers(0, 4), max_size=8), st.lists(st.sampled_from([None, False, True]), max_size=5))
def test_however_long_starts_take_nobody_who_lives_is_moved(target: int, crashes: list[int], said: list[bool | None]) -> None:
    """There is a place for each, and the executor says that there is, or nothing, or takes back that there was none."""
    d = Deployment.running(target, scarcity_after_s=AFTER_S, repeat_period_s=AFTER_S, max_start_failures=100)
    for rank in crashes:
        holder = d.state.holder_of(rank) if rank < target else None
        if holder is not None and holder in d.routes:
            d.die(holder)
            d.wait(3 * AFTER_S)
    d.wait(3 * AFTER_S)
    starting = [each for each, told in d.outstanding.items() if isinstance(told, StartReplica)]
    for replica_id, word in zip(starting, said, strict=False):
        if word is True:
            d.pending(replica_id)
            d.wait(AFTER_S / 10)
        if word is not None:
            d.pending(replica_id, no_room=False)
    d.wait(10 * AFTER_S)
    assert d.sent(ReconfigureReplica) == []
    event(f"{len(starting)} start")
    d.settle()
    assert sorted(d.ranks.values()) == list(range(target))
    assert d.sent(ReconfigureReplica) == []
