"""The save barrier: what a step decides is stored before its commands are given out, and no command is lost or overtaken."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executors.engine.loop import SaveBarrier

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 2)),  # a step, and the record that it decides on
        st.tuples(st.just("ack"), st.just(0)),
        st.tuples(st.just("fail"), st.just(0)),
        st.tuples(st.just("go on"), st.just(0)),
        st.tuples(st.just("stored"), st.integers(0, 2)),  # a user's change, stored beside the barrier
    ),
    max_size=40,
)


class World:
    """A store that answers when it is told to, and what was given out, each with how much was stored by then."""

    def __init__(self, raises=frozenset()):
        self.raises = raises
        self.asked = 0
        self.stored = [(0, None)]
        self.given_out = []
        self.barrier = SaveBarrier(self.save, self.give_out)

    def save(self, barrier):
        assert not self.asked, "one save at a time"
        self.asked = 1

    def give_out(self, commands):
        self.given_out.append((commands, self.stored[-1][0]))
        if commands[0] in self.raises:
            raise RuntimeError(f"{commands[0]} cannot be carried out")

    def ack(self, problem=""):
        self.asked = 0
        newest = self.barrier.newest
        if not problem:
            self.stored.append(newest)
        self.barrier.answer(newest.number, problem)


@given(ACTIONS)
def test_what_is_given_out_follows_from_what_is_stored_and_all_of_it_in_order(actions):
    world, decided = World(), []
    barrier = world.barrier
    for action, record in actions:
        match action:
            case "put":
                barrier.put((len(decided),), record)
                decided.append(barrier.newest.number)
            case "ack" if world.asked:
                world.ack()
            case "fail" if world.asked:
                world.ack("the disk is full")
                assert barrier.problem == ("" if barrier.is_stored else "the disk is full")
            case "go on":
                barrier.go_on()
            case "stored":
                barrier.stored(record)
                world.stored.append(barrier.newest)
        order = [commands[0] for commands, _ in world.given_out]
        assert order == list(range(len(order)))  # none is lost, none comes twice, none overtakes another
        for commands, stored in world.given_out:
            assert decided[commands[0]] <= stored
        assert barrier.is_open == (len(order) == len(decided) and world.stored[-1][0] == barrier.newest.number)
    barrier.go_on()
    while world.asked:
        world.ack()
    assert barrier.is_open
    assert barrier.problem == ""
    assert len(world.given_out) == len(decided)
    assert world.stored[-1].record == barrier.newest.record if decided else True


def test_steps_that_change_no_record_do_not_wait():
    world = World()
    world.barrier.put(("first",), "a")
    world.ack()
    world.barrier.put(("second",), "a")
    assert [commands for commands, _ in world.given_out] == [("first",), ("second",)]
    assert not world.asked


def test_of_records_that_come_up_during_a_save_only_the_newest_is_stored():
    world = World()
    for record in "abcd":
        world.barrier.put((record,), record)
    number, record = 1, "a"
    world.asked = 0
    world.stored.append((number, record))
    world.barrier.answer(number)
    assert [commands for commands, _ in world.given_out] == [("a",)]
    world.ack()
    assert [commands for commands, _ in world.given_out] == [("a",), ("b",), ("c",), ("d",)]
    assert world.stored == [(0, None), (1, "a"), (4, "d")]


def test_a_command_that_cannot_be_carried_out_keeps_none_behind_it():
    world = World(raises={"b", "c"})
    for command in "abcd":
        world.barrier.put((command,), "record")
    with pytest.raises(RuntimeError, match="b cannot be carried out"):
        world.ack()
    assert [commands for commands, _ in world.given_out] == [("a",), ("b",), ("c",), ("d",)]
    assert world.barrier.is_open


def test_a_process_that_was_replaced_is_told_so_and_does_nothing():
    class ReplacedError(Exception):
        pass

    def save(_):
        raise ReplacedError

    given_out = []
    barrier = SaveBarrier(save, given_out.append)
    with pytest.raises(ReplacedError):
        barrier.put(("start",), "record")
    barrier.go_on()
    assert given_out == []
