"""The worlds of schedules: what they say of a broken promise, that they come to an end, and that a schedule gets short."""

import random

import attrs
import pytest
from msgspec.structs import replace

from rankcore import DeploymentSpec, DeploymentStatus, ReplicaRank
from rankcore.commands import AnnounceWorldSize
from rankcore.invariants import Violation
from rankcore.rules import conclude, fill
from rankcore.testing.schedules import (
    CALM,
    HAPPENINGS,
    MOVES,
    BrokenScheduleError,
    Schedule,
    UnknownMoveError,
    World,
    as_test,
    heal,
    placement_from,
    play,
    run,
    shrink,
    static_spec_from,
)
from rankcore.testing.schedules import healing as healings
from rankcore.testing.schedules.promises import clash, unsettled
from rankcore.testing.schedules.shrinking import without_needless

BUSY = (("calm moment", 0), ("calm moment", 0), ("calm moment", 0))


def healthy(**chosen) -> World:
    return run(Schedule(moves=BUSY, **chosen))


def actors(world: World):
    return list(world.actors.values())


def test_every_move_can_be_made_anywhere_and_every_one_is_followed_by_healing() -> None:
    for static in (False, True):
        for name in MOVES:
            for argument in (0, 1, 8, 31, 64, 255):
                run(Schedule(number=10, static=static, moves=((name, argument), *BUSY, (name, argument))))


def test_nobody_is_replaced_where_nobody_is() -> None:
    world = World(DeploymentSpec(name="llm", target_replicas=0))
    world.stop_by_name(0)
    world.replace_by_name(0, None)
    assert world.seen.isdisjoint({"stop by name", "replacement"})


def test_what_has_happened_is_one_of_the_happenings() -> None:
    everything = [(name, argument) for name in MOVES for argument in (1, 8) if "deleted" not in name]
    begun = [*[("command arrives", 0)] * 4, *[("replica is placed", 0)] * 2, *[("news arrives", 0)] * 2]
    seen = run(Schedule(number=3, static=True, moves=(*BUSY, *everything, ("deployment is deleted", 0)))).seen
    seen |= run(Schedule(number=1, moves=(*begun, *[("command arrives", 0)] * 4, ("replica fails", 0)))).seen
    seen |= run(Schedule(number=1, moves=(*BUSY, ("replicas disagree", 1)))).seen
    seen |= run(Schedule(number=1, moves=(("message is lost", 1),))).seen
    changed = (("user_config changes", 2), *[("command arrives", 0)] * 12, ("replica fails", 0))
    seen |= run(Schedule(number=1, moves=(*BUSY, *BUSY, *changed))).seen
    assert seen == set(HAPPENINGS)
    assert set(CALM) < set(MOVES)


def test_any_bytes_are_a_schedule() -> None:
    for seed in range(60):
        world = Schedule(number=seed, static=seed % 3 == 0, timing=seed, bad=seed % 2 == 0).world(book_every=16)
        play(world, random.Random(seed).randbytes(600))
        heal(world)


def test_the_same_schedule_plays_the_same_way_twice() -> None:
    schedule = Schedule(number=7, moves=tuple((name, 77) for name in MOVES))
    assert run(schedule).story(notes=True) == run(schedule).story(notes=True)


def test_a_world_that_remembers_little_goes_the_same_way() -> None:
    schedule = Schedule(number=7, moves=tuple((name, 77) for name in MOVES))
    whole, forgetful = run(schedule), run(schedule, schedule.world(log_max=0))
    assert forgetful.state == whole.state
    assert forgetful.steps == whole.steps
    assert forgetful.story() == []
    assert run(schedule, schedule.world(log_max=9)).story(notes=True) == whole.story(last=9, notes=True)


def test_a_story_has_what_the_core_was_told_and_what_it_commanded() -> None:
    story = "\n".join(healthy(number=2).story())
    assert "ReplicaReady(" in story
    assert "    InitializeReplica(" in story
    assert "believes ReplicaRank" in story


def test_the_first_command_and_the_first_news_arrive_together() -> None:
    world = Schedule(number=2).world()
    play(world, [("command arrives", 0)] * len(world.commands) + [("replica is placed", 0)] * 3)
    told, under_way = world.steps, len(world.events)
    play(world, [("first of each arrives", 0), ("first of each arrives", 0)])
    assert (world.steps, len(world.events)) == (told + 2, under_way - 2)
    assert any(actor.rank is not None for actor in actors(world))


def test_nobody_is_placed_where_a_bundle_is_lost() -> None:
    world = Schedule(number=8, static=True).world()
    world.lose_bundles(0, everything=True)
    world.lose_bundles(8, everything=True)
    play(world, [("command arrives", 0)] * len(world.commands))
    assert actors(world)
    assert not world.place(0, 0)
    assert not any(actor.node_id for actor in actors(world))
    world.restore_bundles(0, everything=True)
    assert world.place(0, 0)
    assert any(actor.node_id for actor in actors(world))


def test_numbers_that_follow_each_other_shuffle_bundles_differently() -> None:
    orders = {tuple(placement_from(number, 4).bundles[rank] for rank in range(4)) for number in range(60)}
    assert len(orders) > 30


def test_a_move_that_there_is_not_is_named() -> None:
    with pytest.raises(UnknownMoveError, match="got \\['replica flies'\\]"):
        run(Schedule(moves=(("replica flies", 0),)))


@pytest.mark.parametrize(
    ("spoil", "rule"),
    [
        (lambda world: setattr(actors(world)[0], "replica", replace(actors(world)[0].replica, rank=None)), "liveness"),
        (lambda world: world.actors.popitem(), "R1"),
        (lambda world: setattr(actors(world)[0], "replica", replace(actors(world)[0].replica, version="9")), "liveness"),
        (lambda world: setattr(world, "announced", AnnounceWorldSize(9, 9, 1)), "R9"),
        (lambda world: setattr(world, "state", attrs.evolve(world.state, status=DeploymentStatus.UPDATING)), "liveness"),
        (lambda world: setattr(world, "state", attrs.evolve(world.state, status=DeploymentStatus.DELETED)), "liveness"),
    ],
)
def test_what_is_wrong_where_nothing_is_left_to_do_is_told(spoil, rule: str) -> None:
    world = healthy(number=2)
    assert unsettled(world) == []
    spoil(world)
    assert rule in {found.partition(":")[0] for found in unsettled(world)}


def test_a_replica_that_stands_on_other_bundles_than_its_rank_is_told() -> None:
    world = healthy(number=3, static=True)
    one, other, *_ = actors(world)
    one.replica, other.replica = (
        replace(one.replica, bundles=other.replica.bundles),
        replace(other.replica, bundles=one.replica.bundles),
    )
    one.node_id = "elsewhere"
    assert {found.partition(":")[0] for found in unsettled(world)} == {"S2"}


@pytest.mark.parametrize("level", ["rank", "local_rank", "node_rank"])
def test_two_that_believe_the_same_are_found(level: str) -> None:
    world = healthy(number=1)
    one, other = actors(world)
    one.node_id, other.node_id = ("a", "a") if level == "local_rank" else ("a", "b")
    numbers = {"rank": 1, "node_rank": int(level != "local_rank"), "local_rank": 1}
    one.replica = replace(one.replica, rank=ReplicaRank(0, 0, 0))
    other.replica = replace(other.replica, rank=ReplicaRank(**{**numbers, level: 0}))
    assert clash(one, actors(world))
    with pytest.raises(BrokenScheduleError, match=r"^R3: ") as broken:
        world.check_beliefs()
    assert broken.value.rule == "R3"
    assert "believes" in broken.value.story
    one.corrupted = True
    world.check_beliefs()


def test_two_that_share_a_bundle_are_found() -> None:
    world = healthy(number=3, static=True)
    one, other, *_ = actors(world)
    one.replica = replace(one.replica, bundles=other.replica.bundles)
    world.actors.pop(one.replica_id)
    world.state = attrs.evolve(world.state)
    world.bundle_nodes[other.first_bundle] = "a"
    again = World(static_spec_from(3))
    again.actors = {one.replica_id: one, other.replica_id: other}
    with pytest.raises(BrokenScheduleError, match=r"^S4: "):
        play(again, (("command arrives", 1),) * 4)


def test_a_core_that_asks_for_no_time_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conclude, "_ask_to_be_woken", lambda draft: None)
    with pytest.raises(BrokenScheduleError, match=r"^2\.4: something falls due at"):
        run(Schedule())
    with pytest.raises(BrokenScheduleError, match="liveness"):
        heal(_unwatched(Schedule(number=1, moves=(("message is lost", 1),) * 4)))


def _unwatched(schedule: Schedule) -> World:
    world = schedule.world(book_every=1_000_000)
    play(world, schedule.moves)
    world.check_book = lambda: None  # type: ignore[method-assign]
    return world


def test_a_world_that_never_comes_to_rest_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(healings, "CALM_ROUNDS_MAX", 1)
    with pytest.raises(BrokenScheduleError, match="liveness: at one moment"):
        run(Schedule(number=3))
    monkeypatch.setattr(healings, "MESSAGES_MAX", 2)
    with pytest.raises(BrokenScheduleError, match="liveness: 2 messages"):
        run(Schedule(number=3))
    monkeypatch.undo()
    monkeypatch.setattr(healings, "ROUNDS_MAX", 0)
    with pytest.raises(BrokenScheduleError, match="liveness: not converged"):
        run(Schedule(number=3))


def test_a_step_that_breaks_a_promise_is_found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Violation("R9", "announced [], expected [2]")
    monkeypatch.setattr("rankcore.testing.schedules.world.check_step", lambda *_: [wrong])
    world = Schedule().world()
    with pytest.raises(BrokenScheduleError, match="R9: announced"):
        run(Schedule(), world)
    assert world.steps == 1


def test_a_core_that_raises_is_found_and_its_schedule_gets_short(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = fill.start

    def start(draft, rank, spec, **kwargs):
        assert rank < 4, "a bug"
        return honest(draft, rank, spec, **kwargs)

    monkeypatch.setattr(fill, "start", start)
    noise = tuple((name, 200) for name in CALM)
    found = shrink(Schedule(number=5 + 240, timing=1, bad=True, moves=(*noise, ("target changes", 5), *noise)))
    assert found is not None
    schedule, broken = found
    assert (schedule.moves, schedule.timing, schedule.bad) == ((("target changes", 5),), 0, False)
    assert schedule.number < 245
    assert broken.rule == "2"
    assert "AssertionError: a bug" in broken.broken[0]
    namespace: dict = {}
    exec(as_test(schedule, broken), namespace)
    with pytest.raises(BrokenScheduleError):
        namespace["test_a_schedule_found_by_the_swarm"]()
    monkeypatch.undo()
    namespace["test_a_schedule_found_by_the_swarm"]()
    assert shrink(schedule) is None


def test_numbers_of_moves_get_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """The victim's number does not matter to a bug, so it ends as 0; where the bug is another one, it stays."""
    monkeypatch.setitem(MOVES, "replica crashes", lambda world, argument: world.demand(["R6: x" if argument > 2 else "R7: y"]))
    found = shrink(Schedule(moves=(("replica crashes", 200),)))
    assert found is not None
    assert found[0].moves == (("replica crashes", 3),)


def test_nothing_is_left_out_once_the_budget_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankcore.testing.schedules.shrinking.MOVES_MAX", 1)
    monkeypatch.setitem(MOVES, "replica crashes", lambda world, _: world.demand(["R6: x"]))
    moves = (("calm moment", 0), ("replica crashes", 9), ("calm moment", 0))
    found = shrink(Schedule(moves=moves))
    assert found is not None
    assert found[0].moves == moves[:2]


def test_leaving_out_keeps_what_is_needed_together() -> None:
    assert without_needless(tuple(range(40)), lambda some: {3, 17, 38} <= set(some)) == (3, 17, 38)
    assert without_needless((), lambda some: True) == ()


def test_whoever_watches_sees_every_step() -> None:
    world = Schedule(number=2, moves=(*BUSY, ("controller restarts", 0))).world(book_every=7)
    seen = []
    world.watch = lambda before, event, step: seen.append((before, event, step))
    run(Schedule(number=2, moves=(*BUSY, ("controller restarts", 0))), world)
    assert len(seen) == world.steps + 1
    assert [event for _, event, _ in seen].count(None) == 1
    assert seen[-1][2].state is world.state
