"""S1 to S8 as `rankcore.invariants` checks them: a sound state passes, and one planted violation is reported."""

from typing import Any

import attrs
import pytest
from msgspec.structs import replace

from rankcore import DeploymentSpec, DeploymentState, DeploymentStatus, ReplicaState, StaticPlacement, Step, recover, step
from rankcore.commands import ReconfigureReplica, StartReplica, StopReplica
from rankcore.events import ClockAdvanced, Event, ReplicaDied, ReplicaReported, ReplicaStartFailed, SpecChanged
from rankcore.frozen import PMap
from rankcore.invariants import check, check_step
from rankcore.rankset import RankSet
from rankcore.state import BundleNews
from rankcore.values import REFILL, ReplicaRank
from tests.scripted import Deployment

A, B, C = "llm#1.0", "llm#1.1", "llm#1.2"
PAIRS = StaticPlacement({0: [0, 1], 1: [2, 3]}, 4, group="pg")


def running() -> Deployment:
    return Deployment.running(None, placement=PAIRS)


def sound(d: Deployment) -> DeploymentState:
    assert check(d.state) == []
    return d.state


def with_tables(state: DeploymentState, **changes: Any) -> DeploymentState:
    return attrs.evolve(state, tables=replace(state.tables, **changes))


def with_bundles(state: DeploymentState, **changes: Any) -> DeploymentState:
    return with_tables(state, bundles=replace(state.tables.bundles, **changes))


def with_replica(state: DeploymentState, replica_id: str, /, **changes: Any) -> DeploymentState:
    forged = replace(state.tables.replicas[replica_id], **changes)
    return with_tables(state, replicas=state.tables.replicas.set(replica_id, forged))


def found(state: DeploymentState, rule: str) -> list[str]:
    return [each.detail for each in check(state) if each.rule == rule]


def test_a_world_size_that_is_not_the_number_of_ranks_is_reported() -> None:
    """No spec can be made like that; a forged one is found."""
    state = sound(running())
    spec = attrs.evolve(state.spec)
    object.__setattr__(spec, "target_replicas", 3)
    assert found(attrs.evolve(state, spec=spec), "S1") == ["the world size is 3, and 2 ranks have bundles"]


def test_a_replica_on_other_bundles_than_its_ranks_is_reported() -> None:
    state = sound(running())
    forged = with_replica(state, B, bundles=(3, 2))
    assert found(forged, "S2") == [f"HEALTHY, and {B}, of rank 1, is on ('pg', (3, 2)), expected ('pg', (2, 3))"]
    assert found(with_replica(state, B, group_id="other"), "S2") != []
    assert found(with_replica(state, B, slot=None), "S2") != []


def test_a_replica_on_bundles_without_a_static_placement_is_reported() -> None:
    state = sound(Deployment.running(2))
    assert found(with_replica(state, B, bundles=(0,), group_id="pg"), "S2") != []


def test_two_replicas_on_one_bundle_are_reported() -> None:
    state = sound(running())
    assert found(with_replica(state, B, bundles=(2, 1)), "S4") == [f"bundle 1 is used by ['{A}', '{B}']"]


def test_what_a_recovery_found_on_one_bundle_is_repaired_and_not_reported() -> None:
    d = running()
    d.processes[B].bundles = (2, 1)
    d.restart()
    d.report(A)
    d.report(B)
    sound(d)


def test_a_replica_that_failed_for_no_lost_bundle_is_reported() -> None:
    d = running()
    d.lose_bundles(2)
    d.stopped(B)
    state = sound(d)
    forged = with_bundles(state, news=PMap(), stranded=RankSet())
    assert found(forged, "S5") == [f"{B} is FAILED, and no bundle of rank 1 is lost"]


@pytest.mark.parametrize("plant", [{"told": ReplicaRank(1, 0, 1)}, {"node_id": "n0"}, {"pending": ClockAdvanced(at=0.0)}])
def test_a_failed_replica_with_anything_of_a_live_one_is_reported(plant: dict[str, Any]) -> None:
    d = running()
    d.lose_bundles(2)
    d.stopped(B)
    (detail,) = found(with_replica(sound(d), B, **plant), "S5")
    assert detail.startswith(f"{B} is FAILED, and still ")


def test_a_replica_that_stays_on_a_lost_bundle_is_reported() -> None:
    state = sound(running())
    forged = with_bundles(state, news=PMap({3: BundleNews(True, 1.0)}), stranded=RankSet.of([1]))
    assert found(forged, "S5") == [f"{B} is RUNNING on the lost bundles [3]", "HEALTHY while ranks [1] have lost bundles"]


@pytest.mark.parametrize(
    ("plant", "name"),
    [
        ({"users": PMap()}, "users"),
        ({"stranded": RankSet.of([0])}, "stranded"),
        ({"misfits": RankSet.of([0])}, "misfits"),
        ({"movable": RankSet.of([0])}, "movable"),
    ],
)
def test_a_table_of_bundles_that_disagrees_is_reported(plant: dict[str, Any], name: str) -> None:
    state = sound(running())
    details = found(with_bundles(state, **plant), "index")
    assert any(detail.startswith(f"bundles: {name} is ") for detail in details), details


def test_a_slot_that_is_forgotten_while_nothing_keeps_it_waiting_is_reported() -> None:
    d = running()
    d.lose_bundles(2)
    d.unhealthy(A)
    d.restart()
    d.lose_bundles(2)
    d.settle()
    state = sound(d)
    assert state.kept_ranks == (1,)
    forged = with_bundles(state, news=PMap(), stranded=RankSet())
    assert "bundles: waiting without reason is {1}, expected set()" in found(forged, "index")


# ---------------------------------------------------------------------------------------------------------------------
# steps


def reported(d: Deployment, event: Event, plant: Any) -> list[str]:
    """What is reported of a step after its commands were forged; the real one is sound."""
    result = step(d.state, event)
    assert check_step(d.state, event, result) == []
    return [f"{each.rule}: {each.detail}" for each in check_step(d.state, event, plant(result)) if each.rule[0] == "S"]


def starting(result: Step, **changes: Any) -> Step:
    commands = [attrs.evolve(each, **changes) if isinstance(each, StartReplica) else each for each in result.commands]
    return result._replace(commands=tuple(commands))


@pytest.mark.parametrize("changes", [{"bundles": (0, 1)}, {"bundles": ()}, {"group_id": None}])
def test_a_start_elsewhere_is_reported(changes: dict[str, Any]) -> None:
    died = ReplicaDied(replica_id=B, at=1.0)
    (detail,) = reported(running(), died, lambda result: starting(result, **changes))
    assert detail.startswith("S2: StartReplica(")
    assert detail.endswith("is not for ('pg', (2, 3))")


def test_a_start_on_a_lost_bundle_is_reported() -> None:
    died = ReplicaDied(replica_id=B, at=1.0)

    def plant(result: Step) -> Step:
        return result._replace(state=with_bundles(result.state, news=PMap({3: BundleNews(True, 1.0)})))

    (detail,) = reported(running(), died, plant)
    assert detail.startswith("S5: StartReplica(")
    assert detail.endswith("on the lost bundles [3]")


def test_a_move_in_a_static_placement_is_reported() -> None:
    """S6; a recovery that repairs is the one exception."""
    d = running()

    def plant(result: Step) -> Step:
        move = ReconfigureReplica(B, ReplicaRank(1, 0, 5), 2, None, None, result.state.tables.revision + 1, 1)
        return result._replace(commands=(*result.commands, move))

    (detail,) = reported(d, ClockAdvanced(at=1.0), plant)
    assert detail == f"S6: {B} is moved from {ReplicaRank(1, 0, 1)} to {ReplicaRank(1, 0, 5)}"


def test_a_stop_beyond_the_budget_that_makes_no_way_is_reported() -> None:
    """S7: only who stands on a bundle that a vacant rank waits for may be stopped beyond it."""
    d = Deployment.running(None, placement=StaticPlacement({0: [0], 1: [1], 2: [2]}, 8, group="pg"), max_unavailable=1)
    placement = StaticPlacement({0: [4], 1: [5], 2: [6]}, 8, group="pg")
    event = SpecChanged(spec=attrs.evolve(d.state.spec, placement=placement), at=1.0)
    result = step(d.state, event)
    assert [command.replica_id for command in result.commands if isinstance(command, StopReplica)] == [A]
    more = step(result.state, SpecChanged(spec=attrs.evolve(result.state.spec, max_unavailable=2), at=2.0))
    assert [command.replica_id for command in more.commands if isinstance(command, StopReplica)] == [B]
    state = attrs.evolve(more.state, spec=result.state.spec)
    violations = check_step(result.state, ClockAdvanced(at=2.0), more._replace(state=state))
    assert any(each.rule == "2.3" and f"an update stopped ['{B}']" in each.detail for each in violations)


def test_healthy_while_bundles_are_lost_is_reported() -> None:
    d = running()
    d.lose_bundles(0)
    d.stopped(A)
    forged = attrs.evolve(sound(d), status=DeploymentStatus.HEALTHY)
    assert "HEALTHY while ranks [0] have lost bundles" in found(forged, "S5")
    assert d.count(ReplicaState.FAILED) == 1


def test_a_replica_that_ends_in_a_stranded_rank_without_having_failed_is_reported() -> None:
    d = running()
    d.lose_bundles(2)

    def plant(result: Step) -> Step:
        tables = result.state.tables
        slots = tables.slots.set(1, replace(tables.slots[1], holder=None))
        return result._replace(state=with_tables(result.state, replicas=tables.replicas.delete(B), slots=slots))

    (detail,) = reported(d, ReplicaDied(replica_id=B, at=1.0), plant)
    assert detail == f"S5: {B} ended in the stranded rank 1, and is not FAILED"


def test_a_slot_that_waited_for_bundles_is_started_without_them_once_all_have_reported() -> None:
    """Its back-off is over when its bundles change, and nobody looks at bundles while a recovery waits for reports."""
    spec = DeploymentSpec(name="llm", target_replicas=2, placement=PAIRS)
    state = recover(spec, (A, B), at=0.0, epoch=2).state
    swapped = StaticPlacement({0: [3, 2], 1: [1, 0]}, 4, group="pg")
    common: dict[str, Any] = {"node_id": "n0", "version": "1", "config_id": spec.config_id, "group_id": "pg", "epoch": 2}
    for event in (
        ReplicaReported(replica_id=A, rank=ReplicaRank(0, 0, 0), ready=False, bundles=(0, 1), at=0.0, **common),
        ReplicaStartFailed(replica_id=A, at=1.0),
        SpecChanged(spec=attrs.evolve(spec, placement=swapped), at=1.0),
        SpecChanged(spec=attrs.evolve(spec, placement=None), at=1.0),
    ):
        state = step(state, event).state
        assert check(state) == []
    assert set(state.tables.vacant) == {0}
    done = step(state, ReplicaReported(replica_id=B, rank=ReplicaRank(1, 0, 1), ready=True, bundles=(2, 3), at=2.0, **common))
    assert check(done.state) == []
    assert set(done.state.tables.vacant) == set()
    assert any(isinstance(each, StartReplica) for each in done.commands)


@pytest.mark.parametrize("comes_up", [True, False])
def test_who_makes_way_in_a_ring_while_another_is_to_be_back_is_reported(comes_up: bool) -> None:
    """It rests after a failure, or has not been ready for `min_ready_s`: V1 has room for one of them at a time."""
    ring = StaticPlacement({0: [0], 1: [1], 2: [2]}, 4, group="pg")
    d = Deployment.running(None, placement=ring, max_unavailable=1, min_ready_s=30.0, start_backoff_s=60.0)
    d.wait(30.0)
    d.change(placement=StaticPlacement({0: [1], 1: [2], 2: [0]}, 4, group="pg"))
    d.settle(except_for=("llm#1.3",))
    d.place("llm#1.3", "n0")
    if comes_up:
        d.ready("llm#1.3")
    else:
        d.start_fails("llm#1.3")
    before, event = sound(d), ClockAdvanced(at=d.now + 1.0)
    honest = step(before, event)
    assert not check_step(before, event, honest)
    gone = with_replica(honest.state, C, state=ReplicaState.DRAINING, leaving=REFILL, routed=False)
    forged = Step(gone, (*honest.commands, StopReplica(C, 1.0, 1)), honest.notes)
    reported = [str(each) for each in check_step(before, event, forged)]
    assert "2.3: an update stopped ['llm#1.2']: 0 of 3 are left, 1 may be unavailable" in reported
