"""Every promise that `rankcore.invariants` checks: a sound state or step passes, and one planted violation is reported.

Each test shows first that what it starts from is sound, so that whatever is reported comes from the plant alone.
"""

from collections.abc import Callable
from typing import Any

import attrs
import pytest
from msgspec.structs import replace

from rankcore import DeploymentState, DeploymentStatus, Note, ReplicaRank, ReplicaState, Step, step
from rankcore.commands import (
    AnnounceWorldSize,
    InitializeReplica,
    KillReplica,
    PublishRoutes,
    ReconfigureReplica,
    StartReplica,
    StopReplica,
    WakeAt,
)
from rankcore.events import ClockAdvanced, Event, ReplicaDied, ReplicaPlaced, SpecChanged, StopRequested
from rankcore.frozen import PMap
from rankcore.invariants import Violation, check, check_step
from rankcore.notes import NoteKind
from rankcore.rankset import RankCounts, RankSet
from rankcore.state import Node, Recovery, Rollout, Slot
from rankcore.timers import Queue, Sent
from rankcore.values import Leaving
from tests.scripted import Deployment

A, B, C = "llm#1.0", "llm#1.1", "llm#1.2"


RECORD_OF = dict.fromkeys(Rollout.__struct_fields__, "rollout") | dict.fromkeys(Recovery.__struct_fields__, "recovery")
"""Which activity's record a table is in, where it is in one."""


def table_of(state: DeploymentState, name: str) -> Any:
    return getattr(getattr(state.tables, RECORD_OF[name]) if name in RECORD_OF else state.tables, name)


def with_tables(state: DeploymentState, **changes: Any) -> DeploymentState:
    for name in [name for name in changes if name in RECORD_OF]:
        record = changes.get(RECORD_OF[name], getattr(state.tables, RECORD_OF[name]))
        changes[RECORD_OF[name]] = replace(record, **{name: changes.pop(name)})
    return attrs.evolve(state, tables=replace(state.tables, **changes))


def with_replica(state: DeploymentState, replica_id: str, /, **changes: Any) -> DeploymentState:
    """The record of one replica forged, the indexes left as they were."""
    forged = replace(state.tables.replicas[replica_id], **changes)
    return with_tables(state, replicas=state.tables.replicas.set(replica_id, forged))


def with_slot(state: DeploymentState, rank: int, **changes: Any) -> DeploymentState:
    forged = replace(state.tables.slots[rank], **changes)
    return with_tables(state, slots=state.tables.slots.set(rank, forged))


def with_node(state: DeploymentState, node_id: str, **changes: Any) -> DeploymentState:
    forged = replace(state.tables.nodes[node_id], **changes)
    return with_tables(state, nodes=state.tables.nodes.set(node_id, forged))


def with_status(state: DeploymentState, status: DeploymentStatus) -> DeploymentState:
    return attrs.evolve(state, status=status)


def promises(violations: list[Violation]) -> list[str]:
    """What is reported beside tables that disagree: a forged record makes its indexes wrong as well."""
    return [str(each) for each in violations if each.rule != "index"]


def indexes(violations: list[Violation]) -> list[str]:
    """What is reported of tables, which must be all."""
    assert {each.rule for each in violations} <= {"index"}
    return [each.detail for each in violations]


def sound(d: Deployment) -> DeploymentState:
    assert check(d.state) == []
    return d.state


# ---------------------------------------------------------------------------------------------------------------------
# states: R1


def test_a_gap_in_the_global_ranks_of_a_healthy_deployment_is_reported() -> None:
    state = sound(Deployment.running(2))
    forged = with_replica(state, B, rank=ReplicaRank(5, 0, 1), told=ReplicaRank(5, 0, 1))
    assert promises(check(forged)) == ["R1: ranks are [0, 5], expected 0..1"]


def test_a_gap_in_the_local_ranks_of_a_node_is_reported() -> None:
    state = sound(Deployment.running(2))
    forged = with_replica(state, B, rank=ReplicaRank(1, 0, 4), told=ReplicaRank(1, 0, 4))
    assert promises(check(forged)) == ["R1: local ranks on n0 are [0, 4], expected 0..1"]


def test_a_gap_in_the_node_ranks_is_reported() -> None:
    state = sound(Deployment.running(2, nodes=("n0", "n1")))
    forged = with_replica(state, B, rank=ReplicaRank(1, 3, 0), told=ReplicaRank(1, 3, 0))
    assert promises(check(forged)) == ["R1: node ranks are [0, 3], expected 0..1, one a node"]


def test_two_node_ranks_on_one_node_are_reported() -> None:
    state = sound(Deployment.running(2))
    forged = with_replica(state, B, rank=ReplicaRank(1, 1, 1), told=ReplicaRank(1, 1, 1))
    assert promises(check(forged)) == ["R1: node ranks are [0, 1], expected 0..0, one a node"]


def test_gaps_count_only_once_every_change_is_acknowledged() -> None:
    """R1 speaks of a deployment whose rank changes are acknowledged: here one still has to answer."""
    d = Deployment.running(3)
    d.resize(2, [A])
    d.stopped(A)
    assert d.status is DeploymentStatus.HEALTHY
    state = sound(d)
    (mover,) = [each for each in state.replicas.values() if each.pending is not None]
    forged = with_replica(state, mover.replica_id, rank=ReplicaRank(7, 0, 0))
    assert promises(check(forged)) == []


# ---------------------------------------------------------------------------------------------------------------------
# states: R2, R3


def test_a_running_replica_that_was_never_told_a_rank_is_reported() -> None:
    state = sound(Deployment.running(2))
    assert f"R2: {B} is RUNNING and was never told a rank" in promises(check(with_replica(state, B, told=None)))


def test_a_running_replica_without_a_rank_in_the_book_is_reported() -> None:
    state = sound(Deployment.running(2))
    assert promises(check(with_replica(state, B, rank=None))) == [f"R2: {B} is RUNNING and has no rank in the book"]


def test_the_loser_of_a_duplicate_may_be_without_a_rank_until_it_acknowledges() -> None:
    """The one exception to R2 and R3; it ends with the mark that a recovery has made."""
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (0, 0, 1)})
    d.report(A)
    assert d.state.unreported == (B,)
    sound(d)
    d.report(B)
    state = sound(d)
    assert state.rank_of(B) is None
    forged = with_tables(state, disputed=PMap())
    assert promises(check(forged)) == [
        f"R2: {B} is RECONFIGURING and has no rank in the book",
        f"R3: rank 0 is held or believed by ['{A}', '{B}']",
    ]


def test_duplicates_are_not_reported_while_reports_are_outstanding() -> None:
    d = Deployment.recovered(3, {A: (0, 0, 0), B: (0, 0, 0), C: (1, 0, 1)})
    d.report(A)
    d.report(B)
    assert d.state.unreported == (C,)
    assert d.state.rank_of(B) is None
    assert check(d.state) == []


@pytest.mark.parametrize(
    ("rank", "expected"),
    [
        (ReplicaRank(0, 1, 0), f"R3: rank 0 is held or believed by ['{A}', '{B}']"),
        (ReplicaRank(1, 0, 0), "R3: node rank 0 is held or believed on the nodes ['n0', 'n1']"),
    ],
)
def test_a_number_that_two_replicas_hold_is_reported(rank: ReplicaRank, expected: str) -> None:
    state = sound(Deployment.running(2, nodes=("n0", "n1")))
    assert expected in promises(check(with_replica(state, B, rank=rank, told=rank)))


def test_a_local_rank_that_two_replicas_of_a_node_hold_is_reported() -> None:
    state = sound(Deployment.running(2))
    rank = ReplicaRank(1, 0, 0)
    forged = with_replica(state, B, rank=rank, told=rank)
    assert f"R3: local rank 0 on n0 is held or believed by ['{A}', '{B}']" in promises(check(forged))


@pytest.mark.parametrize(
    ("older", "expected"),
    [
        (ReplicaRank(0, 1, 5), f"R3: rank 0 is held or believed by ['{A}', '{B}']"),
        (ReplicaRank(5, 0, 5), "R3: node rank 0 is held or believed on the nodes ['n0', 'n1']"),
    ],
)
def test_a_number_that_one_holds_and_another_still_believes_is_reported(older: ReplicaRank, expected: str) -> None:
    state = sound(Deployment.running(2, nodes=("n0", "n1")))
    assert promises(check(with_replica(state, B, believed=(older,)))) == [expected]


# ---------------------------------------------------------------------------------------------------------------------
# states: statuses


def test_healthy_with_a_replica_that_does_not_run_is_reported() -> None:
    state = sound(Deployment.running(2))
    unanswered, found = promises(check(with_replica(state, B, state=ReplicaState.DRAINING, routed=False)))
    assert unanswered == f"2.4: {B} is DRAINING with nothing to be repeated"
    assert found.startswith("2.3: HEALTHY with a target of 2")
    assert f"not running the current generation: ['{B}']" in found


def test_healthy_with_a_replica_of_another_version_is_reported() -> None:
    state = sound(Deployment.running(2))
    (found,) = promises(check(with_replica(state, B, version="0")))
    assert f"not running the current generation: ['{B}']" in found


def test_healthy_with_too_few_replicas_is_reported() -> None:
    d = Deployment(2)
    d.place(A)
    d.ready(A)
    forged = with_tables(sound(d), replicas=d.state.tables.replicas.delete(B))
    assert promises(check(forged)) == []
    (found, *_) = promises(check(with_status(forged, DeploymentStatus.HEALTHY)))
    assert found == "R1: ranks are [0], expected 0..1"
    assert any("HEALTHY with a target of 2, and 1 replicas" in each for each in promises(check(_healthy(forged))))


def _healthy(state: DeploymentState) -> DeploymentState:
    return with_status(state, DeploymentStatus.HEALTHY)


def test_healthy_with_a_kept_rank_is_reported() -> None:
    state = sound(Deployment.running(2))
    forged = with_tables(state, slots=state.tables.slots.set(2, Slot()), vacant=RankSet.of([2]))
    (found,) = promises(check(forged))
    assert "kept ranks: (2,)" in found


def test_deleted_with_a_live_replica_is_reported() -> None:
    d = Deployment.running(1)
    d.delete()
    assert promises(check(with_status(sound(d), DeploymentStatus.DELETED))) == ["2.3: DELETED with 1 live replicas"]
    d.stopped(A)
    assert d.status is DeploymentStatus.DELETED
    sound(d)


def test_who_waits_for_something_and_is_not_woken_for_it_is_reported() -> None:
    """2.4: a command to be repeated, a start, a back-off, a successor, reports, a rank without a place (V18)."""
    asked = Deployment.running(2)
    asked.stop_by_name(A)
    starting = Deployment(1, start_timeout_s=3.0)
    starting.place(A)
    backing_off = Deployment(1)
    backing_off.start_fails(A)
    surging = Deployment.running(1, max_surge=1, surge_patience_s=3.0)
    surging.change(version="2")
    discovered = Deployment.recovered(1, {A: (0, 0, 0)}, health_check_timeout_s=3.0)
    scarce = Deployment.running(2, scarcity_after_s=3.0)
    scarce.die(A)
    scarce.find_no_room()
    for d, due in ((asked, 5), (starting, 3), (backing_off, 1), (surging, 3), (discovered, 3), (scarce, 3)):
        state = sound(d)
        assert state.wake_at == due
        for wake_at in (None, due + 1.0):
            found = promises(check(with_tables(state, wake_at=wake_at)))
            assert found == [f"2.4: something falls due at {due} s, and the core asks to be woken at {wake_at}"]


def test_recovering_with_no_report_outstanding_is_reported() -> None:
    d = Deployment.recovered(1, {A: (0, 0, 0)})
    assert d.status is DeploymentStatus.RECOVERING
    forged = with_tables(sound(d), unreported=PMap())
    assert "R10: RECOVERING with no report outstanding" in promises(check(forged))


# ---------------------------------------------------------------------------------------------------------------------
# indexes: every table that is derived from others


def busy() -> Deployment:
    """Something in every index: a vacant slot that backs off, a leaving holder, successors, packed nodes with room."""
    d = Deployment(5, placement="pack_ranks", max_surge=2, begin=True)
    d.node("n0", 8)
    d.node("n1", 8)
    d.settle()
    d.forget()
    d.unhealthy("llm#1.3")
    d.die("llm#1.4")
    d.place("llm#1.5")
    d.start_fails("llm#1.5")
    d.change(version="2")
    return d


def test_the_busy_deployment_has_something_in_every_index() -> None:
    """What the tests below tamper with is there to be tampered with."""
    state = sound(busy())
    for name in ("surging", "running", "nodes_by_room", "taken", "node_ranks"):
        assert table_of(state, name), name


DERIVED: dict[str, Callable[[Any], Any]] = {
    "available": lambda number: number + 1,
    "taken": lambda counts: counts.add(999),
    "node_ranks": lambda counts: counts.add(999),
    "nodes_by_staying": lambda nodes: nodes.add((999, 0, "node-999")),
    "vacant": lambda ranks: ranks.add(999),
    "unstarted": lambda ranks: ranks.add(999),
    "running": lambda ranks: ranks.add(999),
    "requested": lambda ranks: ranks.add(999),
    "surging": lambda ranks: ranks.add(999),
    "arrived": lambda ranks: ranks.add(999),
    "placed": lambda ids: ids.set("llm#1.999", 999),
    "losers": lambda ids: ids.set("llm#1.999", 999),
    "owed": lambda ids: ids.set("llm#1.999", 999),
    "stale_config": lambda ids: ids.set("llm#1.999", 999),
    "misplaced": lambda ids: ids.set("llm#1.999", 999),
    "compaction_waits_for": lambda ids: ids.set("llm#1.999", 999),
    "disputed": lambda ids: ids.set("llm#1.999", 999),
    "nodes_by_room": lambda sets: sets.set(999, RankSet.of([0])),
    "unacknowledged": lambda queue: queue.push(Sent("llm#1.999", 0.0)),
    "starting": lambda queue: queue.push(Sent("llm#1.999", 0.0)),
}


@pytest.mark.parametrize("name", sorted(DERIVED))
def test_an_index_with_something_that_does_not_belong_there_is_reported(name: str) -> None:
    state = sound(busy())
    forged = with_tables(state, **{name: DERIVED[name](table_of(state, name))})
    (found,) = indexes(check(forged))
    assert found.startswith(f"{name} is ")


def test_a_queue_of_timers_that_begins_elsewhere_is_reported() -> None:
    """It would wake the core too late, or look for an entry that is not there."""
    state = sound(busy())
    queue = state.tables.unacknowledged
    (found,) = indexes(check(with_tables(state, unacknowledged=Queue(queue.items, queue.head + 1, queue.tail))))
    assert found.startswith(f"unacknowledged begins at {queue.head + 1}, and has [{queue.head}")


@pytest.mark.parametrize("name", ["available", "surging", "running"])
def test_an_index_that_has_lost_its_members_is_reported(name: str) -> None:
    state = sound(busy())
    assert table_of(state, name)
    forged = with_tables(state, **{name: type(table_of(state, name))()})
    assert any(each.startswith(f"{name} is ") for each in indexes(check(forged)))


def test_a_replica_that_waits_and_is_forgotten_is_reported() -> None:
    """A loser without a slot, a leaving replica whose place is owed, a user_config that was never sent."""
    d = Deployment.recovered(1, {A: (0, 0, 0), B: (0, 0, 1), C: None})
    for replica_id in (A, B, C):
        d.report(replica_id)
    d.change(progress_deadline_s=None)
    state = sound(d)
    forged = with_replica(state, A, config_id="other")
    assert f"stale_config is {{}}, expected { {A: 0} }" in indexes(check(forged))
    forged = with_replica(state, A, slot=None, leaving=None)
    assert f"losers is {{}}, expected { {A: 0} }" in [each for each in indexes(check(forged)) if each.startswith("losers")]
    forged = with_replica(state, A, slot=None, leaving=Leaving.REFILL)
    assert any(each.startswith("owed is ") for each in indexes(check(forged)))


def test_a_discovered_replica_that_is_asked_nothing_is_reported() -> None:
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (1, 0, 1)})
    state = sound(d)
    forged = with_replica(state, A, pending=None)
    assert f"unreported is { {A: 0, B: 1} }, expected a part of { {B: 1} }" in [each.detail for each in check(forged)]


def test_a_rank_that_is_believed_outside_its_slot_has_to_be_counted_as_taken() -> None:
    """R3: what a mover gives up stays taken until it acknowledges; a book that forgets it is reported."""
    d = Deployment.running(3)
    d.resize(2, [A])
    d.stopped(A)
    state = sound(d)
    assert 2 in state.tables.taken
    (found,) = indexes(check(with_tables(state, taken=state.tables.taken.discard(2))))
    assert found.startswith("taken is ")


def test_a_rank_that_is_taken_twice_has_to_be_counted_twice() -> None:
    state = sound(Deployment.running(2))
    (found,) = indexes(check(with_tables(state, taken=state.tables.taken.add(0))))
    assert found.startswith("taken is {0: 2, 1: 1}")


def test_a_placed_replica_that_nobody_initialises_is_reported() -> None:
    """Placed beyond the world size, it waits for a lower rank; an index without it would let it wait for ever."""
    d = Deployment.running(2)
    d.resize(3)
    d.resize(2, [A])
    d.place(C)
    state = sound(d)
    assert state.replicas[C].state is ReplicaState.PLACED
    (found,) = indexes(check(with_tables(state, placed=PMap())))
    assert found.startswith("placed is ")


def test_a_slot_that_names_a_replica_which_is_gone_is_reported() -> None:
    state = sound(Deployment.running(2))
    found = indexes(check(with_slot(state, 1, holder="llm#1.77")))
    assert "slot 1 names llm#1.77 as its holder, which says None" in found


def test_a_slot_whose_holder_thinks_it_has_another_is_reported() -> None:
    state = sound(Deployment.running(2))
    found = indexes(check(with_replica(state, B, slot=5)))
    assert any(each.startswith(f"slot 1 names {B} as its holder, which says Replica(") for each in found)


def test_a_slot_whose_holder_gives_its_rank_back_is_reported() -> None:
    d = Deployment.running(2)
    d.stop_by_name(B)
    found = indexes(check(with_replica(sound(d), B, leaving=Leaving.RELEASE)))
    assert any(each.startswith(f"slot 1 names {B} as its holder") for each in found)


def test_a_slot_whose_successor_is_gone_is_reported() -> None:
    d = Deployment.running(2, max_surge=1)
    d.change(version="2")
    state = sound(d)
    (rank,) = state.tables.rollout.surging
    found = indexes(check(with_slot(state, rank, successor="llm#1.77")))
    assert f"slot {rank} names llm#1.77 as its successor, which says None" in found


@pytest.mark.parametrize(("name", "within"), [("ready", "vacant"), ("stoppable", "surging")])
def test_a_slot_that_is_to_be_acted_upon_and_does_not_qualify_is_reported(name: str, within: str) -> None:
    state = sound(Deployment.running(2))
    forged = with_tables(state, **{name: RankSet.of([1])})
    assert indexes(check(forged)) == [f"{name} is {{1}}, expected a part of set()"]
    assert not table_of(state, within)


def test_a_slot_that_is_not_tried_again_when_its_back_off_is_over_is_reported() -> None:
    d = Deployment(1)
    d.start_fails(A)
    state = sound(d)
    assert state.tables.slots[0].retry_at == 1.0
    assert indexes(check(attrs.evolve(state, clock=1.0))) == ["ready is set(), and the back-off of {0} is over"]


@pytest.mark.parametrize(
    "changes",
    [
        {"members": PMap({A: 0})},
        {"staying": 0},
        {"newest": 0},
        {"locals": RankCounts().add(0)},
        {"reserved": PMap({"llm#1.9": 9})},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_node_whose_record_disagrees_with_its_replicas_is_reported(changes: dict[str, Any]) -> None:
    state = sound(Deployment.running(2))
    found = indexes(check(with_node(state, "n0", **changes)))
    assert any(each.startswith("node n0 is ") for each in found)


def test_a_node_rank_that_does_not_lead_back_to_its_node_is_reported() -> None:
    state = sound(Deployment.running(2, nodes=("n0", "n1")))
    forged = with_tables(state, node_of_rank=state.tables.node_of_rank.set(1, "n0"))
    assert indexes(check(forged)) == ["node_of_rank is {0: 'n0', 1: 'n0'}, expected {0: 'n0', 1: 'n1'}"]


def test_a_node_that_has_a_rank_and_no_replica_is_reported() -> None:
    state = sound(Deployment.running(1, nodes=("n0",)))
    forged = with_tables(
        state,
        nodes=state.tables.nodes.set("gone", Node(7, node_rank=1)),
        node_of_rank=state.tables.node_of_rank.set(1, "gone"),
        node_ranks=state.tables.node_ranks.add(1),
    )
    assert indexes(check(forged)) == ["node gone has node rank 1 and no replica"]


# ---------------------------------------------------------------------------------------------------------------------
# steps: a real step, sound, and the same step with one thing forged


@attrs.frozen
class Taken:
    """One real step, which is sound."""

    before: DeploymentState
    event: Event
    step: Step

    def forged(self, **changes: Any) -> list[str]:
        """What is reported of this step with some of its parts replaced."""
        return [str(each) for each in check_step(self.before, self.event, self.step._replace(**changes))]

    def with_command(self, old: object, new: object) -> list[str]:
        assert old in self.step.commands
        return self.forged(commands=tuple(new if each == old else each for each in self.step.commands))

    def with_more(self, *commands: object) -> list[str]:
        return self.forged(commands=(*self.step.commands, *commands))


def taken(before: DeploymentState, event: Event) -> Taken:
    result = step(before, event)
    assert check_step(before, event, result) == []
    return Taken(before, event, result)


def upscale(d: Deployment, target: int) -> Taken:
    return taken(d.state, SpecChanged(spec=attrs.evolve(d.state.spec, target_replicas=target), at=d.now))


def update(d: Deployment, **changes: Any) -> Taken:
    return taken(d.state, SpecChanged(spec=attrs.evolve(d.state.spec, **changes), at=d.now))


def death(d: Deployment, replica_id: str) -> Taken:
    return taken(d.state, ReplicaDied(replica_id=replica_id, at=d.now))


def only(result: Taken, kind: type[Any]) -> Any:
    (command,) = [each for each in result.step.commands if isinstance(each, kind)]
    return command


def test_a_step_that_changes_the_epoch_is_reported() -> None:
    one = upscale(Deployment.running(2), 2)
    assert one.forged(state=attrs.evolve(one.step.state, epoch=2)) == ["2: epoch 1 -> 2, clock 0 -> 0"]


def test_a_clock_that_goes_back_is_reported() -> None:
    d = Deployment.running(2)
    d.wait(9.0)
    one = taken(d.state, ClockAdvanced(at=9.0))
    assert one.forged(state=attrs.evolve(one.step.state, clock=8.0)) == ["2: epoch 1 -> 1, clock 9 -> 8"]


def test_a_command_of_another_epoch_is_reported() -> None:
    one = upscale(Deployment.running(2), 3)
    start = only(one, StartReplica)
    (found,) = one.with_command(start, attrs.evolve(start, epoch=7))
    assert found.startswith("2.4: StartReplica(")
    assert found.endswith("is not of epoch 1")


def test_a_revision_that_does_not_grow_is_reported() -> None:
    one = upscale(Deployment.running(2), 3)
    announced = only(one, AnnounceWorldSize)
    old = one.before.tables.revision
    (found,) = one.with_command(announced, attrs.evolve(announced, revision=old))
    assert found == f"2.1: {attrs.evolve(announced, revision=old)} does not have a revision above {old}"


def test_two_messages_of_one_step_with_the_same_revision_are_reported() -> None:
    one = upscale(Deployment.running(2), 3)
    announced = only(one, AnnounceWorldSize)
    (found,) = one.with_more(PublishRoutes((), (), announced.revision, 1))
    assert found.startswith("2.1: PublishRoutes(")


def test_a_repeated_message_keeps_its_revision_and_is_sound() -> None:
    """2.4: what is not acknowledged is repeated, identical to the first time."""
    d = Deployment.running(2, config_rollout="at_once")
    d.change(user_config={"a": 1})
    again = taken(d.state, ClockAdvanced(at=d.now + 5.0))
    repeated = [each for each in again.step.commands if isinstance(each, ReconfigureReplica)]
    assert len(repeated) == 2
    (found,) = again.with_command(repeated[0], attrs.evolve(repeated[0], world_size=9))
    assert found.startswith("2.1: ReconfigureReplica(")


def test_a_replica_that_is_reconfigured_twice_in_one_step_is_reported() -> None:
    """R8: each by one message."""
    d = Deployment.running(3)
    d.resize(2, [A])
    one = taken(d.state, ReplicaDied(replica_id=A, at=d.now))
    sent = only(one, ReconfigureReplica)
    found = one.with_more(attrs.evolve(sent, revision=sent.revision + 9))
    assert found == [f"R8: {C} is reconfigured twice in one step"]


def move_forged(one: Taken, replica_id: str, to: ReplicaRank) -> list[str]:
    return one.forged(state=with_replica(one.step.state, replica_id, told=to, rank=to))


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        (ReplicaRank(2, 0, 0), f"R8: {A} moved rank 0 -> 2, which 2 does not force"),
        (ReplicaRank(0, 1, 0), f"R8: {A} moved node_rank 0 -> 1, which 1 does not force"),
        (ReplicaRank(0, 0, 1), f"R8: {A} moved local_rank 0 -> 1, which 1 does not force"),
    ],
)
def test_a_survivor_whose_rank_changes_without_need_is_reported(to: ReplicaRank, expected: str) -> None:
    """R5: another replica's death changes no survivor's ranks."""
    assert move_forged(death(Deployment.running(2), B), A, to) == [expected]


def test_a_forced_move_to_a_rank_that_is_no_better_is_reported() -> None:
    d = Deployment.running(3)
    d.resize(2, [A])
    one = taken(d.state, ReplicaDied(replica_id=A, at=d.now))
    assert one.step.state.replicas[C].told == ReplicaRank(0, 0, 0)
    assert move_forged(one, C, ReplicaRank(7, 0, 0)) == [f"R8: {C} moved rank 2 -> 7, which 2 does not force"]


def test_a_repair_after_a_recovery_may_move_more_than_compaction() -> None:
    """R10: while reports are outstanding or a loser waits, ranks change for other reasons than gaps."""
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (0, 0, 0)})
    d.report(A)
    before = d.state
    d.report(B)
    moved = with_replica(d.state, A, told=ReplicaRank(1, 0, 0), rank=ReplicaRank(1, 0, 0))
    event = ClockAdvanced(at=0.0)
    kinds = {each.rule for each in check_step(before, event, Step(moved, (), ()))}
    assert "R8" not in kinds
    settled = with_tables(before, unreported=PMap())
    assert "R8" not in {each.rule for each in check_step(settled, event, Step(moved, (), ()))}, "not repaired yet"
    waiting = with_tables(settled, repaired=True, losers=PMap({B: 1}))
    assert "R8" not in {each.rule for each in check_step(waiting, event, Step(moved, (), ()))}, "a loser waits"
    repaired = with_tables(settled, repaired=True)
    assert "R8" in {each.rule for each in check_step(repaired, event, Step(moved, (), ()))}


@pytest.mark.parametrize("excused", [{"misplaced": PMap({A: 0})}, "unslotted"])
def test_a_loser_and_a_misplaced_replica_may_be_moved_anywhere(excused: Any) -> None:
    one = death(Deployment.running(2), B)
    moved = with_replica(one.step.state, A, told=ReplicaRank(0, 1, 0), rank=ReplicaRank(0, 1, 0))
    before = with_replica(one.before, A, slot=None) if excused == "unslotted" else with_tables(one.before, **excused)
    assert check_step(one.before, one.event, one.step._replace(state=moved)) != []
    assert check_step(before, one.event, one.step._replace(state=moved)) == []


def test_a_slot_that_is_lost_with_its_holder_is_reported() -> None:
    """R6."""
    one = death(Deployment.running(2), B)
    lost = with_tables(one.step.state, slots=one.step.state.tables.slots.delete(1))
    assert one.forged(state=lost) == [f"R6: {B} ended, and its rank 1 is not kept"]


def test_a_slot_that_is_lost_when_a_replica_comes_to_a_lost_node_is_reported() -> None:
    """R6 holds for whatever ends a replica: here news of its place, overtaken by the loss of that node."""
    d = Deployment(2)
    d.place(A, "n0")
    d.lose("n0", at=5.0)
    one = taken(d.state, ReplicaPlaced(replica_id=B, node_id="n0", at=3.0))
    assert B not in one.step.state.replicas
    lost = with_tables(one.step.state, slots=one.step.state.tables.slots.delete(1))
    assert one.forged(state=lost) == [f"R6: {B} ended, and its rank 1 is not kept"]


def test_a_slot_that_was_given_up_need_not_be_kept() -> None:
    """2.5: a slot whose holder is leaving anyway is given up by a downscale, and a note says so."""
    one = death(Deployment.running(2), B)
    lost = with_tables(one.step.state, slots=one.step.state.tables.slots.delete(1))
    (kept,) = [each for each in one.step.notes if each.kind is NoteKind.RANK_KEPT]
    said = (*one.step.notes, replace(kept, kind=NoteKind.SLOT_GIVEN_UP))
    assert one.forged(state=lost, notes=said) == []


def test_a_released_rank_need_not_be_kept_and_neither_does_one_beyond_the_world() -> None:
    """R7; and R6: a slot whose rank is >= N is not kept when its holder dies."""
    d = Deployment.running(4)
    d.die(B)
    d.resize(3, [A])
    assert 0 not in death(d, A).step.state.tables.slots
    one = death(d, "llm#1.3")
    assert 3 not in one.step.state.tables.slots
    # In a larger world, the same step would have lost a rank.
    larger = attrs.evolve(one.step.state, spec=attrs.evolve(d.state.spec, target_replicas=4))
    assert "R6: llm#1.3 ended, and its rank 3 is not kept" in one.forged(state=larger)


def test_slots_are_kept_for_those_who_end_and_not_while_the_deployment_is_deleted() -> None:
    """R6: a slot that a living replica loses is a matter of the indexes."""
    one = death(Deployment.running(2), B)
    lost = with_tables(one.step.state, slots=one.step.state.tables.slots.delete(1))
    alive = with_tables(one.step.state, slots=one.step.state.tables.slots.delete(0))
    assert one.forged(state=lost) != []
    assert one.forged(state=with_status(lost, DeploymentStatus.DELETING)) == []
    assert one.forged(state=alive) == []


def test_an_initialisation_beyond_the_world_size_is_reported() -> None:
    """R4."""
    d = Deployment(1)
    d.forget()
    before = d.state
    d.place(A)
    sent = d.sent(InitializeReplica)[0]
    forged = attrs.evolve(sent, rank=ReplicaRank(1, 0, 0))
    commands = tuple(forged if each == sent else each for each in d.last.commands)
    found = check_step(before, ClockAdvanced(at=0.0), d.last._replace(commands=commands))
    assert [str(each) for each in found] == [f"R4: {A} is initialised with {forged.rank} of 1"]


def test_a_newcomer_that_does_not_get_the_lowest_available_rank_is_reported() -> None:
    """R4."""
    one = upscale(Deployment.running(2), 3)
    start = only(one, StartReplica)
    assert one.with_command(start, attrs.evolve(start, rank=4)) == [
        f"R4: {start.replica_id} gets rank 4 while [3] are available"
    ]


def test_a_replacement_may_have_any_rank_below_which_others_are_available() -> None:
    """R6 goes before R4: here rank 0 is available, and the replacement of rank 1 has rank 1."""
    d = Deployment.recovered(3, {"llm#1.1": (1, 0, 0), "llm#1.2": (2, 0, 1)})
    d.settle(except_for=["llm#1.2"])
    one = death(d, "llm#1.2")
    assert sorted(each.rank for each in one.step.commands if isinstance(each, StartReplica)) == [0, 2]


def test_a_wake_up_that_the_state_waits_for_and_nobody_was_told_is_reported() -> None:
    """2.4."""
    d = Deployment.running(1)
    d.wait(9.0)
    one = death(d, A)
    wake = only(one, WakeAt)
    rest = tuple(each for each in one.step.commands if each != wake)
    assert one.forged(commands=rest) == ["2.4: the state waits to be woken at 14 s, and the executor was told None"]
    (found,) = one.with_command(wake, attrs.evolve(wake, at=20.0))
    assert found == "2.4: the state waits to be woken at 14 s, and the executor was told 20.0"


def test_a_new_world_size_that_is_not_announced_is_reported() -> None:
    """R9."""
    one = upscale(Deployment.running(2), 3)
    rest = tuple(each for each in one.step.commands if not isinstance(each, AnnounceWorldSize))
    assert one.forged(commands=rest) == ["R9: announced [], expected [3]"]


def test_an_announcement_of_another_world_size_is_reported() -> None:
    """R9."""
    one = upscale(Deployment.running(2), 3)
    announced = only(one, AnnounceWorldSize)
    assert one.with_command(announced, attrs.evolve(announced, world_size=4)) == ["R9: announced [4], expected [3]"]


def test_an_announcement_without_a_new_world_size_is_reported() -> None:
    """R9."""
    one = death(Deployment.running(2), B)
    assert one.with_more(AnnounceWorldSize(2, one.step.state.tables.revision + 1, 1)) == ["R9: announced [2], expected []"]


def test_a_rank_given_out_while_a_report_is_outstanding_is_reported() -> None:
    """R10."""
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (1, 0, 1)})
    one = taken(d.state, ReplicaDied(replica_id=B, at=0.0))
    assert one.step.state.unreported == (A,)
    (note,) = one.step.notes
    start = StartReplica("llm#2.0", 1, "1", None, (), 2)
    found = one.forged(commands=(start,), notes=(note, replace(note, replica_id="llm#2.0")))
    assert found == [f"R10: {start} while ['{A}'] have not reported"]


def test_a_repeat_while_a_report_is_outstanding_is_sound() -> None:
    """R10: repeats go on."""
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (1, 0, 1)})
    one = taken(d.state, ClockAdvanced(at=5.0))
    assert len(one.step.commands) >= 2


def test_an_update_that_stops_more_than_its_budget_is_reported() -> None:
    """2.3: max_unavailable is 1 of 3."""
    d = Deployment.running(3, max_unavailable=1)
    one = update(d, version="2")
    stop = only(one, StopReplica)
    assert stop.replica_id == A
    # The same step, as it would be if B had been stopped with it.
    state = with_replica(one.step.state, B, state=ReplicaState.DRAINING, leaving=Leaving.REFILL, routed=False)
    state = with_tables(state, available=state.tables.available - 1)
    (note,) = [each for each in one.step.notes if each.kind is NoteKind.STOP_CHOSEN]
    notes = (*one.step.notes, replace(note, replica_id=B))
    commands = [replace(each, removed=(A, B)) if type(each) is PublishRoutes else each for each in one.step.commands]
    found = one.forged(state=state, commands=(*commands, attrs.evolve(stop, replica_id=B)), notes=notes)
    assert found == [f"2.3: an update stopped ['{A}', '{B}']: 1 of 3 are left, 1 may be unavailable"]


def test_what_users_ask_for_takes_no_budget() -> None:
    """2.3: replicas stopped by name, or killed for their failure, are not stopped by an update."""
    d = Deployment.running(3, max_unavailable=1)
    one = taken(d.state, StopRequested(replica_ids=(A, B, C), at=d.now))
    stops = [each for each in one.step.commands if isinstance(each, StopReplica)]
    assert len(stops) == 3
    as_an_update = check_step(one.before, ClockAdvanced(at=0.0), one.step)
    assert [each.rule for each in as_an_update] == ["V10", "V10", "V10", "2.3"], "they are of the generation that is wanted"
    killed = tuple(KillReplica(each.replica_id, 1) for each in stops)
    with_kills = one.step._replace(commands=(*one.step.commands, *killed))
    assert check_step(one.before, ClockAdvanced(at=0.0), with_kills) == []


def test_what_is_done_below_the_partition_is_reported() -> None:
    """V12: a stop, a user_config, and what is started there."""
    d = Deployment.running(3, partition=2)
    d.change(version="2", user_config={"a": 1})
    d.settle()
    sound(d)
    one = taken(d.state, StopRequested(replica_ids=(A,), at=d.now))
    found = [str(each) for each in check_step(one.before, ClockAdvanced(at=0.0), one.step)]
    assert found == [f"V12: {A} is stopped, and its rank 0 is below 2"]
    of_rank_0 = d.state.replicas[A]
    assert of_rank_0.told is not None
    config = ReconfigureReplica(A, of_rank_0.told, 3, None, d.state.spec.config_id, d.state.tables.revision + 1, 1)
    told = with_tables(with_replica(d.state, A, state=ReplicaState.RECONFIGURING, pending=config), revision=config.revision)
    forged = Step(told, (config,), (Note(NoteKind.CONFIG_SENT, "V12", A),))
    assert [each.rule for each in check_step(d.state, ClockAdvanced(at=0.0), forged)] == ["V12"]
    known = with_replica(d.state, A, config_id=d.state.spec.config_id)
    assert check_step(known, ClockAdvanced(at=0.0), forged) == [], "it has that already"
    crashed = taken(d.state, ReplicaDied(replica_id=A, at=d.now))
    (start,) = [each for each in crashed.step.commands if isinstance(each, StartReplica)]
    commands = [attrs.evolve(each, version="2") if each is start else each for each in crashed.step.commands]
    (found,) = crashed.forged(commands=tuple(commands))
    assert found.startswith("V12: StartReplica(")


def test_a_downscale_and_what_does_not_run_yet_take_no_budget() -> None:
    """2.3: a downscale gives ranks back; and old-version replicas that do not run yet are replaced without budget."""
    d = Deployment.running(3, max_unavailable=1)
    assert len([each for each in upscale(d, 1).step.commands if isinstance(each, StopReplica)]) == 2
    fresh = Deployment(3, max_unavailable=1)
    assert len([each for each in update(fresh, version="2").step.commands if isinstance(each, StopReplica)]) == 3


@pytest.mark.parametrize(
    ("begin", "kind"),
    [
        (lambda d: upscale(d, 3), StartReplica),
        (lambda d: upscale(d, 1), StopReplica),
        (lambda d: update(d, user_config={"a": 1}), ReconfigureReplica),
    ],
)
def test_a_command_that_no_note_explains_is_reported(begin: Callable[[Deployment], Taken], kind: type[Any]) -> None:
    one = begin(Deployment.running(2))
    commands = [each for each in one.step.commands if isinstance(each, kind)]
    ids = {each.replica_id for each in commands}
    silent = tuple(each for each in one.step.notes if each.replica_id not in ids)
    assert one.forged(notes=silent) == [f"2: {each} has no note that says why" for each in commands]


def test_a_violation_reads_as_its_rule_and_what_was_found() -> None:
    assert str(Violation("R3", "two hold rank 1")) == "R3: two hold rank 1"


def test_who_could_move_into_a_starved_rank_and_does_not_is_reported() -> None:
    d = Deployment.running(2, scarcity_after_s=3.0)
    d.die(A)
    d.find_no_room()
    late = attrs.evolve(sound(d), clock=3.0)
    assert promises(check(late)) == ["V18: rank 0 is starved since 3 s, and llm#1.1 keeps rank 1"]


def test_who_has_a_place_above_one_that_has_none_is_reported() -> None:
    d = Deployment(2)
    d.place(A)
    d.place(B)
    state = with_replica(with_replica(sound(d), B, state=ReplicaState.PLACED), A, state=ReplicaState.REQUESTED)
    found = [each for each in promises(check(state)) if each.startswith("V18")]
    assert found == ["V18: llm#1.0 has rank 0 and no place, and llm#1.1 has a place and rank 1"]
    assert not [each for each in promises(check(with_slot(state, 0, retry_at=9.0))) if each.startswith("V18")]


@pytest.mark.parametrize(("after_s", "waited_s"), [(None, 100.0), (60.0, 59.0)])
def test_a_move_into_a_rank_that_is_not_starved_is_reported(after_s: float | None, waited_s: float) -> None:
    d = Deployment.running(2, scarcity_after_s=waited_s, repeat_period_s=1000.0)
    d.die(A)
    d.find_no_room()
    before, event = sound(d), ClockAdvanced(at=waited_s)
    moved = step(before, event)
    assert check_step(before, event, moved) == []
    forged = attrs.evolve(moved.state, spec=attrs.evolve(before.spec, scarcity_after_s=after_s))
    found = [str(each) for each in check_step(before, event, moved._replace(state=forged)) if each.rule == "R8"]
    assert found == ["R8: llm#1.1 moved rank 1 -> 0, which 2 does not force"]


def test_a_move_into_a_rank_of_which_it_is_not_said_that_it_finds_no_room_is_reported() -> None:
    d = Deployment.running(2, scarcity_after_s=60.0, repeat_period_s=1000.0)
    d.die(A)
    d.find_no_room()
    before, event = sound(d), ClockAdvanced(at=60.0)
    moved = step(before, event)
    starts = moved.state.replicas[d.sent(StartReplica)[-1].replica_id]
    forged = with_tables(with_replica(moved.state, starts.replica_id, waiting=None), roomless=RankSet())
    found = [str(each) for each in check_step(before, event, moved._replace(state=forged)) if each.rule == "R8"]
    assert found == ["R8: llm#1.1 moved rank 1 -> 0, which 2 does not force"]
