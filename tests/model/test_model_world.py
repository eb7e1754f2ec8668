"""The model world keeps its half of the contract (section 2.4), and two worlds that count as one behave as one."""

import pytest

from rankcore import core
from rankcore.commands import WakeAt
from rankcore.draft import Draft
from rankcore.kernel import Violation
from rankcore.testing.explore import Allowance, Search, explored
from rankcore.testing.model import Bounds, InvalidBoundsError, RankSystem, describe, make, moves, replay, root
from rankcore.testing.model.canonical import canonical
from rankcore.testing.model.systems import DEEP, SMALL
from rankcore.testing.paths import FAIR_MOVES_MAX, NoSuchMoveError, settle, tried

pytestmark = pytest.mark.traced


def ways(bounds: Bounds, path: list[str]) -> list[str]:
    world = replay(bounds, path)
    return [describe(world, move) for move in moves(world)]


STARTED = [
    "start llm#1.0 on a",
    "tell ReplicaPlaced llm#1.0 node_id=a at=1.0",
    "hand InitializeReplica llm#1.0 revision=4294967298 epoch=1",
]


@pytest.mark.parametrize(
    ("bound", "value", "allowed"),
    [
        ("replicas", 6, "from 1 to 5"),
        ("replicas", 0, "from 1 to 5"),
        ("nodes", 4, "from 1 to 3"),
        ("start", 3, "from 0 to 2"),
        ("crashes", 10, "from 0 to 9"),
        ("deletes", 2, "from 0 to 1"),
        ("total", -1, "from 0 to"),
        ("bundles", 7, "from 2 to 6"),
        ("bundles", 1, "from 2 to 6"),
        ("bundles_each", 0, "from 1 to 6"),
        ("rooms", 1, "from 2 to 5"),
    ],
)
def test_a_bound_out_of_range_is_refused_by_name(bound, value, allowed):
    with pytest.raises(InvalidBoundsError, match=rf"Bounds\.{bound} must be an integer {allowed}"):
        Bounds(**{bound: value})


@pytest.mark.parametrize(
    ("bound", "needed"),
    [("mappings", "bundles"), ("bundle_losses", "bundles"), ("bundles_each", "bundles"), ("room_changes", "rooms")],
)
def test_a_bound_that_would_do_nothing_is_refused(bound, needed):
    with pytest.raises(
        InvalidBoundsError, match=rf"Bounds\.{bound} must be \d without {needed}, for which it would do nothing"
    ):
        Bounds(**{bound: 2})
    assert Bounds(**{bound: 2, needed: 4}).spec()


def test_bounds_are_shown_as_what_makes_them():
    bounds = Bounds(replicas=3, healthy=True, crashes=1, victims="newest")
    assert eval(str(bounds)) == bounds


def test_every_system_of_the_series_is_within_bounds_and_begins():
    for bounds in (*SMALL.values(), *DEEP.values()):
        assert next(moves(root(bounds)), None) is not None


def test_healthy_worlds_begin_spread_over_their_nodes():
    world = root(Bounds(replicas=3, nodes=3, healthy=True))
    assert sorted(replica.node_id for replica in world.replicas) == ["a", "b", "c"]
    assert not list(moves(world))


def test_of_nodes_where_nothing_has_ever_been_one_stands_for_all():
    assert [way for way in ways(Bounds(nodes=3), []) if "1.0" in way] == ["start llm#1.0 on a"]
    after_one = ways(Bounds(nodes=3), ["start llm#1.0 on a"])
    assert [way for way in after_one if "start" in way] == ["start llm#1.1 on a", "start llm#1.1 on b"]


def test_time_passes_only_when_nothing_else_is_left_or_for_a_budget():
    assert "wait" not in ways(Bounds(replicas=1), STARTED)
    assert "wait" in ways(Bounds(replicas=1, delays=1), STARTED)
    assert ways(Bounds(replicas=1, losses=1), ["lose command StartReplica llm#1.0 epoch=1"]) == ["wait"]


def test_a_repeated_command_is_acknowledged_again_and_not_carried_out_again():
    bounds = Bounds(replicas=1, repeats=2)
    again = "hand twice InitializeReplica llm#1.0 revision=4294967298 epoch=1"
    path = [*STARTED[:2], again, "finish llm#1.0", "tell ReplicaReady llm#1.0 at=1.0"]
    told = replay(bounds, [*path, STARTED[2]])
    assert [type(event).__name__ for event in told.events] == ["ReplicaReady"]
    assert not replay(bounds, [*STARTED[:2], again, STARTED[2]]).events, "its start-up still runs"


def test_a_start_that_comes_after_the_end_creates_nothing():
    bounds = Bounds(replicas=1, changes=1, repeats=1, losses=1)
    stopped = ["target 0", "hand StopReplica llm#1.0 epoch=1", "start llm#1.0 on a"]
    world = replay(bounds, stopped)
    assert not world.replicas
    assert [type(event).__name__ for event in world.events] == ["ReplicaStopped", "ReplicaDied"]


def test_a_start_that_is_repeated_says_again_where_it_is():
    bounds = Bounds(replicas=1, losses=1)
    path = ["start llm#1.0 on a", "lose event ReplicaPlaced llm#1.0 node_id=a at=1.0", "wait", "start llm#1.0 on a"]
    assert len(replay(bounds, path).replicas) == 1


def test_the_fence_of_a_new_controller_stops_old_starts():
    world = replay(Bounds(replicas=1, restarts=1), ["restart"])
    assert [describe(world, move) for move in moves(world)] == ["start llm#2.0 on a"]


def test_a_query_waits_for_a_change_that_runs_and_is_answered_with_what_is_believed():
    bounds = Bounds(replicas=1, healthy=True, configs=1, restarts=1)
    path = [
        "configure",
        "hand ReconfigureReplica llm#1.0 revision=4294967300 epoch=1",
        "restart",
        "hand QueryReplica llm#1.0 epoch=2",
    ]
    assert not replay(bounds, path).events
    said = replay(bounds, [*path, "finish llm#1.0"]).events
    assert [type(event).__name__ for event in said] == ["ReplicaReconfigured", "ReplicaReported"]


def test_a_failed_change_fails_again_when_it_is_repeated():
    bounds = Bounds(replicas=1, healthy=True, configs=1, failures=1, repeats=1)
    change = "ReconfigureReplica llm#1.0 revision=4294967300 epoch=1"
    failed = "tell ReplicaReconfigureFailed llm#1.0 revision=4294967300 at=1.0"
    world = replay(bounds, ["configure", f"hand twice {change}", "fail llm#1.0", failed, f"hand {change}"])
    assert [type(event).__name__ for event in world.events] == ["ReplicaReconfigureFailed"]


def test_a_replica_of_a_lost_node_is_gone_and_who_comes_later_is_not():
    bounds = Bounds(replicas=1, healthy=True, node_losses=1, nodes=1)
    world = replay(bounds, ["lose node a"], settles=True)
    assert [replica.replica_id for replica in world.replicas] == ["llm#1.1"]


def test_a_query_of_the_gone_finds_nobody():
    bounds = Bounds(replicas=1, healthy=True, restarts=1, crashes=1)
    world = replay(bounds, ["restart", "crash llm#1.0", "hand QueryReplica llm#1.0 epoch=2"])
    assert [type(event).__name__ for event in world.events] == ["ReplicaDied", "ReplicaMissing"]


def test_two_that_believe_one_rank_are_excused_until_they_differ():
    world = replay(Bounds(replicas=2, healthy=True, duplicates=1), ["confuse llm#1.1 with llm#1.0"])
    assert world.excused == {"llm#1.0", "llm#1.1"}
    rested, wrong, _ = settle(RankSystem(world.bounds), world)
    assert not wrong
    assert not rested.excused


def test_a_path_that_is_not_possible_says_what_is():
    with pytest.raises(NoSuchMoveError, match=r"move 0 .* got 'crash llm#1.7', possible: start llm#1.0 on a"):
        replay(Bounds(replicas=1), ["crash llm#1.7"])


@pytest.mark.parametrize(
    "bounds",
    [
        Bounds(replicas=2, crashes=1, delays=1),
        Bounds(replicas=2, healthy=True, nodes=2, node_losses=2, restarts=1, total=2),
        Bounds(replicas=2, healthy=True, nodes=2, changes=1, duplicates=1),
        Bounds(replicas=2, healthy=True, updates=1, max_surge=1, failures=1, rollback=True, delays=1),
        Bounds(replicas=2, healthy=True, configs=1, stops=1, suspicions=1, losses=1, repeats=1, total=2),
        Bounds(replicas=2, bundles=3, nodes=2, healthy=True, mappings=2, bundle_losses=1, node_losses=1, restarts=1, total=2),
        Bounds(replicas=2, nodes=2, rooms=2, room_changes=1, node_losses=1, losses=1, exits=1, total=2),
        Bounds(replicas=2, rooms=2, parking=True, healthy=True, updates=1, max_surge=2, crashes=1, delays=1, total=2),
        Bounds(replicas=2, nodes=2, rooms=1, parking=True, healthy=True, drains=1, updates=1, partitions=1, partition=1),
        Bounds(replicas=2, nodes=2, healthy=True, notices=1, renewals=1, restarts=1, delays=1, total=2),
        Bounds(replicas=3, nodes=2, rooms=1, parking=True, crashes=1, scarcity_after_s=2.0, min_ready_s=1.0),
    ],
    ids=str,
)
def test_worlds_that_count_as_one_go_on_as_one(bounds):
    """The law behind leaving names out: equal fingerprints, equal futures. Two that differ in what counts would show here."""
    first, waiting, compared, found = {}, [root(bounds)], 0, 0
    first[canonical(waiting[0])] = waiting[0]
    while waiting and compared < 60:
        world = waiting.pop(0)
        words = [describe(world, move) for move in moves(world)]
        assert len(words) == len(set(words)), "a path in words is one path"
        for move in moves(world):
            (after, _), wrong = tried(RankSystem(bounds), world, move)
            assert not wrong
            name = canonical(after)
            if name not in first:
                first[name] = after
                waiting.append(after)
                continue
            found += 1
            if found % 7 == 0:
                compared += 1
                assert futures(first[name]) == futures(after)
    assert compared == 60


def futures(world):
    return {(move.kind, canonical(make(world, move)[0])) for move in moves(world)}


class Settling(RankSystem):
    """Finds a step that has left something to do: to settle its state once more gives a command."""

    def violations(self, before, after, steps):
        states = [told.result.state for told in steps]
        again = [command for state in states for command in core._settle(Draft.open(state)).commands]
        left = [command for command in again if not isinstance(command, WakeAt)]
        return [Violation("2.5", f"the next step would give {left}, whatever it is about")] if left else []


@pytest.mark.parametrize(
    "name",
    [
        "surge-full-restarts",
        "surge-full-raised",
        "partition-surge",
        "scarce",
        "drain-partition",
        "drain-token",
        "configs-rolled-back",
    ],
)
def test_a_step_leaves_nothing_to_do_for_one_that_is_about_something_else(name):
    """Else a deployment would stand still until news comes that has nothing to do with it."""
    assert explored(Settling(SMALL[name]), Allowance(states=1000)).broken is None


def test_an_exploration_is_the_same_in_steps_of_any_size(monkeypatch):
    """And however few worlds it has at hand."""
    bounds = Bounds(replicas=2, crashes=1)
    whole, pieces = Search(RankSystem(bounds)), Search(RankSystem(bounds))
    whole.expand(10**6)
    monkeypatch.setattr("rankcore.testing.explore.AT_HAND_MAX", 3)
    while not pieces.done:
        pieces.expand(7)
    assert whole.fingerprints.all == pieces.fingerprints.all
    assert whole.level_ends == pieces.level_ends
    assert (whole.worlds, whole.edges, whole.depth) == (pieces.worlds, pieces.edges, pieces.depth)
    assert whole.longest_rest() == pieces.longest_rest() < FAIR_MOVES_MAX
    pieces.expand(1)
    assert pieces.explored == pieces.worlds


def test_an_exploration_that_is_resumed_ends_as_if_it_had_not_stopped():
    bounds = Bounds(replicas=2, crashes=1)
    whole, half, resumed = Search(RankSystem(bounds)), Search(RankSystem(bounds)), Search(RankSystem(bounds))
    whole.expand(10**6)
    half.expand(300)
    resumed.resume(half.parents[:], half.moves[:], half.fair[:], half.fingerprints.all[:])
    assert resumed.level_ends == half.level_ends
    resumed.expand(10**6)
    assert (resumed.fingerprints.all, resumed.fair, resumed.depth) == (whole.fingerprints.all, whole.fair, whole.depth)


def test_what_another_core_has_explored_is_not_gone_on_with():
    half, other = Search(RankSystem(Bounds(replicas=2, crashes=1))), Search(RankSystem(Bounds(replicas=1)))
    half.expand(100)
    arrays = half.parents, half.moves, half.fair, half.fingerprints.all
    with pytest.raises(ValueError, match="not of one exploration"):
        other.resume(*arrays)
    wrong_end, wrong_move = half.fingerprints.all[:], half.moves[:]
    wrong_end[-1] += 1
    wrong_move[-1] = 60_000
    for changed in ((*arrays[:3], wrong_end), (arrays[0], wrong_move, *arrays[2:])):
        with pytest.raises(ValueError, match="decides otherwise"):
            Search(RankSystem(half.system.bounds)).resume(*changed)


def test_what_is_not_explored_is_followed_to_rest_in_samples():
    search = Search(RankSystem(Bounds(replicas=2, crashes=1)))
    search.expand(100)
    assert 0 < search.sample(10) <= 10
    assert search.broken is None
    assert search.longest_rest() > 0


BUNDLES = Bounds(replicas=2, bundles=2, nodes=2, healthy=True, bundle_losses=1, mappings=1, node_losses=1, restarts=1)


def news(world) -> list[tuple[str, tuple[int, ...]]]:
    """What is under way of bundles."""
    return [(type(event).__name__, event.bundles) for event in world.events if hasattr(event, "bundles")]


def test_a_world_with_bundles_begins_with_a_replica_on_those_of_each_rank():
    world = root(BUNDLES)
    assert [(each.rank.rank, each.bundles, each.group_id, each.node_id) for each in world.replicas] == [
        (0, (0,), "g", "a"),
        (1, (1,), "g", "b"),
    ]


def test_who_stands_on_a_lost_bundle_lives_until_it_is_killed_and_is_started_again_once_that_is_back():
    path = ["lose bundle 0 of g", "tell BundleLost g bundles=(0,) at=1.0009765625", "hand KillReplica llm#1.0 epoch=1"]
    world = replay(BUNDLES, path)
    assert [each.replica_id for each in world.replicas] == ["llm#1.1"]
    rested = replay(BUNDLES, path, settles=True)
    assert {each.bundles for each in rested.replicas} == {(0,), (1,)}


def test_nobody_is_started_on_a_bundle_that_is_lost():
    world = replay(Bounds(replicas=1, bundles=1, bundle_losses=1), ["lose bundle 0 of g"])
    assert [describe(world, move).partition(" at=")[0] for move in moves(world)] == [
        "tell BundleLost g bundles=(0,)",
        "restore bundle 0 of g on a",
    ]


def test_a_lost_node_takes_its_bundles_along_and_they_come_back_anywhere():
    world = replay(BUNDLES, ["lose node a"])
    assert news(world) == [("BundleLost", (0,))]
    assert [way for way in ways(BUNDLES, ["lose node a"]) if way.startswith("restore bundle 0 of g")] == [
        "restore bundle 0 of g on a",
        "restore bundle 0 of g on b",
    ]


def test_whoever_asks_anew_is_told_what_is_lost():
    """A controller that begins, and one whose spec names another group."""
    assert news(replay(BUNDLES, ["lose bundle 1 of g", "restart"])) == [("BundleLost", (1,))] * 2
    assert not news(replay(BUNDLES, ["lose bundle 1 of h"])), "nobody has asked for that group yet"
    named = replay(BUNDLES, ["lose bundle 1 of h", "place on h [[0], [1]]"])
    assert [(event.group_id, event.bundles) for event in named.events] == [("h", (1,))]


def test_a_bundle_that_is_elsewhere_when_the_node_of_its_user_is_lost_is_told_to_be_there():
    path = ["lose bundle 0 of g", "restore bundle 0 of g on b", "lose node a"]
    assert news(replay(BUNDLES, path)) == [("BundleLost", (0,)), ("BundleRestored", (0,)), ("BundleRestored", (0,))]


ROOMS = Bounds(replicas=2, nodes=2, rooms=1, room_changes=1, losses=1)


def test_the_controller_is_told_how_much_room_there_is_until_it_knows():
    assert ways(ROOMS, [])[:2] == ["tell room a", "tell room b"]
    told = ["tell room a", "lose event NodeChanged a capacity=1 at=1.0009765625"]
    assert ways(ROOMS, told)[:2] == ["tell room a", "tell room b"]


def test_nobody_is_started_where_there_is_no_room():
    path = ["tell room a", "tell NodeChanged a capacity=1 at=1.0009765625"]
    assert "start llm#1.0 on a" in ways(ROOMS, path)
    full = ways(ROOMS, [*path, "resize a to 0"])
    assert "start llm#1.0 on a" not in full
    assert "make room a" in full


FULL = Bounds(replicas=2, nodes=2, rooms=1, parking=True, room_changes=1, losses=1, changes=1, start=1)


def test_who_finds_no_place_waits_for_one_and_the_controller_knows_nothing_of_it():
    assert FULL.spec().placement is None
    begun = ways(FULL, [])
    assert [move for move in begun if move.startswith("start")] == ["start llm#1.0 on a", "start llm#1.0 on b"]
    assert not any(move.startswith("tell room") for move in begun)
    taken = ["start llm#1.0 on a", "resize b to 0", "target 2"]
    assert not replay(FULL, taken[:2]).events[1:], "nothing is told of the room"
    assert not any(move.startswith("start llm#1.1") for move in ways(FULL, taken))
    assert "start llm#1.1 on b" in ways(FULL, [*taken, "make room b"])


def test_who_has_left_makes_room_for_one_that_waits():
    bounds = Bounds(replicas=2, rooms=2, parking=True, healthy=True, updates=1, max_surge=1)
    full = ["update", "hand StopReplica llm#1.1 epoch=1"]
    assert "start llm#1.2 on a" not in ways(bounds, full)
    assert "start llm#1.2 on a" in ways(bounds, [*full, "end llm#1.1"])


def test_room_that_nobody_is_told_of_has_to_be_there():
    with pytest.raises(InvalidBoundsError, match=r"Bounds\.parking must be False without rooms, for which it would do nothing"):
        Bounds(parking=True)


def test_an_end_that_nobody_asked_for_is_told_in_two_ways():
    bounds = Bounds(replicas=1, healthy=True, exits=1)
    for move, event in (("exit", "ReplicaStopped"), ("vanish", "ReplicaMissing")):
        world = replay(bounds, [f"{move} llm#1.0"])
        assert [type(each).__name__ for each in world.events] == [event]
        assert [each.replica_id for each in replay(bounds, [f"{move} llm#1.0"], settles=True).replicas] == ["llm#1.1"]


def test_a_start_that_is_refused_never_comes_up():
    world = replay(Bounds(replicas=1, failures=1), ["refuse llm#1.0"])
    assert [type(event).__name__ for event in world.events] == ["ReplicaStartFailed"]
    assert not world.commands


def test_a_world_without_bundles_has_no_other_placement_to_ask_for():
    assert Bounds().placements == (None,)
    assert [placement and placement.bundles for placement in Bounds(replicas=2, bundles=3).placements] == [
        ((0,),),
        ((0,), (1,)),
        ((1,), (0,)),
        ((1,), (2,)),
        ((0,), (1,)),
        None,
    ]
