"""The one exhaustive search, asked of systems that are small enough to be explored by hand, and the law behind its keys."""

from collections import Counter
from itertools import count

import pytest

from rankcore.kernel import Violation
from rankcore.testing.explorable import Explorable, expression
from rankcore.testing.explore import SHOWN_EVERY, Allowance, Search, explore, explored
from rankcore.testing.model_residency import SYSTEMS as RESIDENCY
from rankcore.testing.model_residency import ResidencySystem
from rankcore.testing.model_routing import SYSTEMS as ROUTING
from rankcore.testing.model_routing import RouterSystem, RoutingBounds
from rankcore.testing.paths import BrokenPromiseError, NoSuchMoveError, as_test, replayed, settle

pytestmark = pytest.mark.traced


class Walk(Explorable[tuple[int, int], str, int]):
    """A walker on a line from 0 to `size`, who gets tired at most once; home is at 0, and the fair move leads there."""

    imports = "from tests.model.test_explore import replay"
    rest_rule = "home"

    def __init__(self, size=9, forbidden=(), homeless=(), circle=False):
        self.size, self.forbidden, self.homeless, self.circle = size, forbidden, homeless, circle

    @property
    def bounds(self):
        return self.size

    def start(self):
        return (0, 0)

    def moves(self, world):
        if world[0] > 0:
            yield "back"
        if world[0] < self.size:
            yield "on"
            if world[0] + 2 <= self.size:
                yield "jump"
        if world[1] < 1:
            yield "tires"

    def is_fair(self, move):
        return move == "back"

    def make(self, world, move):
        place, tired = world
        if move == "back" and self.circle and place == 3:
            return (4, tired), 1
        step = {"back": -1, "on": 1, "jump": 2, "tires": 0}[move]
        if (place + step) == 13:
            raise ValueError("a bad place")
        return (place + step, tired + (move == "tires")), step

    def violations(self, before, after, steps):
        assert after[0] - before[0] in (steps, 1)
        return [Violation("walk", f"at {after[0]}")] if after in self.forbidden else []

    def unsettled(self, world):
        return [Violation("home", f"rests at {world}")] if world in self.homeless else []

    def key(self, world):
        return bytes(world)

    def describe(self, world, move):
        return f"{move} from {world[0]}"

    def count(self, steps, exercised):
        exercised[f"step {steps}"] += 1


def replay(size, path, *, settles=False):
    return replayed(Walk(size), path, settles=settles)


def test_each_world_is_explored_once_and_how_deep_and_how_far_from_rest_is_told():
    search = explored(Walk())
    assert (search.done, search.complete, search.broken) == (True, True, None)
    assert search.worlds == 2 * 10
    assert search.edges == 2 * (9 + 9 + 8) + 10
    assert search.depth == 6, "five jumps or steps, and getting tired"
    assert search.rest == 9
    assert search.exercised == Counter({"step -1": 18, "step 1": 18, "step 2": 16, "step 0": 10})


def test_the_path_to_what_is_broken_is_a_shortest_one_and_of_those_the_first():
    search = explored(Walk(forbidden=((6, 1),)))
    assert search.broken is not None
    assert search.broken.moves == ("jump from 0", "jump from 2", "jump from 4", "tires from 6")
    assert not search.broken.settles
    assert [str(each) for each in search.broken.violations] == ["walk: at 6"]
    explored_before = search.explored
    search.expand(10)
    assert search.explored == explored_before, "nothing is explored any further"


def test_a_machine_that_raises_is_found_by_the_path_to_it():
    search = explored(Walk(size=20))
    assert search.broken is not None
    assert str(search.broken.violations[0]) == "2: the core raised ValueError: a bad place"
    assert search.broken.moves[-1] in ("on from 12", "jump from 11")
    assert "jump from 11" in as_test(search.system, search.broken)


def test_a_machine_that_cannot_even_begin_is_found_and_the_test_to_save_is_red(monkeypatch):
    monkeypatch.setattr(Walk, "start", lambda _: (0, 1 // 0))
    search = explored(Walk())
    assert search.broken is not None
    assert str(search.broken.violations[0]).startswith("2: the first world cannot be made: ZeroDivisionError: ")
    assert (search.broken.moves, search.explored) == ((), 0)
    printed = dict[str, object]()
    exec(compile(as_test(search.system, search.broken), "printed", "exec"), printed)
    with pytest.raises(ZeroDivisionError):
        printed["test_a_path_found_by_the_checker"]()


@pytest.mark.parametrize("moves", range(1, 9))
def test_what_is_interrupted_in_a_world_and_gone_on_with_counts_each_move_once(moves):
    class Interrupted(Walk):
        left = moves

        def make(self, world, move):
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt
            return super().make(world, move)

    half, resumed, whole = Search(Interrupted()), Search(Walk()), explored(Walk())
    with pytest.raises(KeyboardInterrupt):
        half.expand(99)
    resumed.resume(half.parents, half.moves, half.fair, half.fingerprints.all)
    resumed.edges, resumed.exercised = half.edges, half.exercised
    explore(resumed)
    assert (resumed.worlds, resumed.edges, resumed.exercised) == (whole.worlds, whole.edges, whole.exercised)


def test_a_world_that_is_not_well_at_rest_is_found():
    search = explored(Walk(homeless=((0, 1),)))
    assert search.broken is not None
    assert search.broken.moves == ("tires from 0",)
    assert search.broken.settles


def test_a_circle_of_fair_moves_is_found_by_its_first_world():
    search = explored(Walk(circle=True))
    assert search.broken is not None
    assert search.broken.moves == ("on from 0", "jump from 1")
    assert search.broken.settles
    assert str(search.broken.violations[0]) == "home: not at rest after 400 moves without a fault"


def test_an_allowance_of_states_ends_the_search_and_the_rest_is_followed_in_samples():
    search = explored(Walk(), Allowance(states=7))
    assert (search.explored, search.done, search.broken) == (7, False, None)
    assert search.sampled == search.worlds - 7
    explore(search)
    assert search.done
    assert search.worlds == 20
    unwell = explored(Walk(homeless=((0, 0),), size=30), Allowance(states=0))
    assert unwell.broken is not None
    assert unwell.broken.moves == ()


def test_an_allowance_of_time_ends_the_search():
    ticks = count()
    seen = []
    search = Search(RouterSystem(ROUTING["router-deadlines"]))
    explore(search, Allowance(time_s=2.0, clock=lambda: float(next(ticks))), lambda search: seen.append(search.explored))
    assert seen == [SHOWN_EVERY]
    assert not search.done
    assert search.broken is None


def test_a_printed_test_goes_the_path_and_fails_while_the_promise_is_broken():
    system = Walk(forbidden=((3, 0),))
    search = explored(system)
    test = {}
    exec(as_test(system, search.broken), test)
    test["test_a_path_found_by_the_checker"]()  # the honest walker goes it, and nothing is wrong
    with pytest.raises(BrokenPromiseError, match="walk: at 3\n  after\n  on from 0\n  jump from 1"):
        replayed(system, search.broken.moves)
    with pytest.raises(BrokenPromiseError, match="home"):
        replayed(Walk(homeless=((0, 1),)), ["tires from 0"], settles=True)
    with pytest.raises(NoSuchMoveError, match="possible: back from 1; on from 1; jump from 1; tires from 1"):
        replayed(system, ["on from 0", "back from 9"])


def test_settling_goes_on_until_nothing_fair_is_left_or_something_breaks():
    assert settle(Walk(), (5, 0)) == ((0, 0), [], 5)
    world, violations, moves = settle(Walk(forbidden=((2, 0),)), (5, 0))
    assert (world, [each.rule for each in violations], moves) == ((3, 0), ["walk"], 3)


def test_bounds_are_told_by_what_differs_from_their_defaults():
    assert str(RoutingBounds(replicas=1, timeout=True)) == "RoutingBounds(replicas=1, timeout=True)"
    assert expression((1,)) == "(1,)"
    assert expression(RoutingBounds(), always=("routers",)) == "RoutingBounds(routers=1)"


@pytest.mark.parametrize(
    "system",
    [*(RouterSystem(bounds) for bounds in ROUTING.values()), *(ResidencySystem(bounds) for bounds in RESIDENCY.values())],
    ids=[*ROUTING, *RESIDENCY],
)
def test_worlds_with_one_key_go_on_as_one(system):
    """The law behind leaving things out of a key: equal keys, equal futures. And a path in words is one path."""
    first, waiting, compared = {}, [system.start()], 0
    first[system.key(waiting[0])] = waiting[0]
    while waiting and compared < 40:
        world = waiting.pop(0)
        words = [system.describe(world, move) for move in system.moves(world)]
        assert len(words) == len(set(words))
        fair = [system.is_fair(move) for move in system.moves(world)]
        assert not any(fair) or fair[0], "where something has to happen, the first move does"
        for move in system.moves(world):
            after, _ = system.make(world, move)
            name = system.key(after)
            if name not in first:
                first[name] = after
                waiting.append(after)
                continue
            compared += 1
            assert futures(system, first[name]) == futures(system, after)
    assert compared >= 40


def futures(system, world):
    return sorted((system.key(system.make(world, move)[0])) for move in system.moves(world))
