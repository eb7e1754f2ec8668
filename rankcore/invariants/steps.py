"""Promises about one step: what may change from one state to the next, and what may be asked for."""

from collections.abc import Iterable
from operator import attrgetter
from typing import Any, get_args

from rankcore.commands import (
    AnnounceWorldSize,
    Command,
    InitializeReplica,
    KillReplica,
    PrepareReplica,
    ReconfigureReplica,
    StartReplica,
    StopReplica,
    WakeAt,
)
from rankcore.draft import Step
from rankcore.events import Event, StopRequested
from rankcore.invariants.availability import available, check_proofs, check_served, hangs
from rankcore.invariants.backoff import OWN_FAULTS, check_back_off, check_counts_outlive_slots, check_nobody_starts_early
from rankcore.invariants.evictions import check_starts, check_stops, is_overdue
from rankcore.invariants.hand_over import check_prepared_first
from rankcore.invariants.overlap import check_nobody_needed_ends, check_published, told_another_config
from rankcore.invariants.scarcity import was_starved
from rankcore.invariants.stall import check_progress
from rankcore.invariants.static import asked_to_make_way, check_failed, check_static_commands, is_repairing
from rankcore.invariants.waking import check_asked_to_be_woken
from rankcore.kernel import Violation
from rankcore.notes import NoteKind
from rankcore.state import DeploymentState, Replica
from rankcore.values import DELETED, DELETING, DRAINING, REFILL, RELEASE, ReplicaState

GIVEN: frozenset[type[Command]] = frozenset({StartReplica, PrepareReplica, InitializeReplica, ReconfigureReplica})
ABOUT = GIVEN | {StopReplica, KillReplica}
"""Asked for by exact type: `isinstance` of a struct takes 0.2 us to say no, since its metaclass is not `type`."""
TO_ONE, ORDERED = (
    frozenset(kind for kind in get_args(Command) if name in kind.__struct_fields__) for name in ("replica_id", "revision")
)
"""Commands about one replica, and those with a revision."""
NONE: frozenset[type[Command]] = frozenset()
RANK_CHOSEN = NoteKind.RANK_CHOSEN
SHRUNK = (NoteKind.SLOT_GIVEN_UP, NoteKind.STOP_CHOSEN)
_replica_id_of = attrgetter("replica_id")


def check_step(before: DeploymentState, event: Event, step: Step) -> list[Violation]:
    """Check a step against the promises.

    Args:
        before: The state that the event was applied to.
        event: The event.
        step: What `rankcore.step(before, event)` returned.

    Returns:
        What is broken; empty when all promises hold.
    """
    state, commands, _ = step
    old, new = before.tables, state.tables
    found: list[Violation] = []
    if state.epoch != before.epoch or state.clock < before.clock:
        found += _gone_back(before, state)
    kinds = NONE
    if commands:
        kinds = frozenset(map(type, commands))
        fresh, broken = _sound_commands(before, step)
        found += broken
        if ReconfigureReplica in kinds and state.kept_below:
            found += _no_config_below_the_partition(before, state, fresh)
        if ReconfigureReplica in kinds and len(fresh) > 1:
            found += _reconfigured_once(fresh)
        if StartReplica in kinds or InitializeReplica in kinds:
            found += _ranks_given(step, fresh)
        if StartReplica in kinds:
            found += check_nobody_starts_early(before, event, step)
        if StartReplica in kinds or ReconfigureReplica in kinds:
            found += check_static_commands(before, state, fresh)
        if new.recovery.unreported:
            found += _nothing_given_out_before_all_reported(step, fresh)
        if StopReplica in kinds:
            found += _budget(before, event, step)
            found += check_stops(before, event, step, fresh)
            found += check_prepared_first(before, event, step, fresh)
        if (StopReplica in kinds or PrepareReplica in kinds) and old.early:
            found += check_nobody_needed_ends(before, event, step, fresh)
        if StartReplica in kinds:
            found += check_starts(state, fresh)
    if AnnounceWorldSize in kinds or state.spec is not before.spec:
        found += _world_size_announced(before, step)
    if new.slots is not old.slots:
        found += check_counts_outlive_slots(before, event, step)
        found += check_served(before, step)
    if new.proven is not old.proven or new.previous is not old.previous:
        found += check_proofs(before, step)
    if (old.progress_at, old.stalled_since) != (new.progress_at, new.stalled_since) or new.replicas is not old.replicas:
        found += check_progress(before, state)
    if WakeAt in kinds or new.wake_at != old.wake_at:
        found += check_asked_to_be_woken(before, step)
    if new.replicas is not old.replicas:
        found += _changed_as_allowed(before, step)
        found += check_published(before, event, step)
        if type(event) in OWN_FAULTS:
            found += check_back_off(before, event, step)
    return found


def _sound_commands(before: DeploymentState, step: Step) -> tuple[list[Command], list[Violation]]:
    """2.1, 2.4 and 2: of this epoch, with revisions that only grow, each rank and each ending with a note that says why.

    Returns:
        The commands without those that only repeat what a replica has not acknowledged, and what is broken.
    """
    known, revision, epoch = before.tables.replicas, before.tables.revision, step.state.epoch
    explained = set(map(_replica_id_of, step.notes))
    fresh: list[Command] = []
    found: list[Violation] = []
    command: Any
    for command in step.commands:
        kind = type(command)
        if command.epoch != epoch:
            found.append(Violation("2.4", f"{command} is not of epoch {epoch}"))
        if kind in TO_ONE:
            about = command.replica_id
            if about not in explained and kind in ABOUT:
                found.append(Violation("2", f"{command} has no note that says why"))
            replica = known.get(about)
            if replica is not None and replica.pending == command:
                continue
        fresh.append(command)
        if kind in ORDERED:
            if command.revision <= revision:
                found.append(Violation("2.1", f"{command} does not have a revision above {revision}"))
            revision = command.revision
    return fresh, found


def _changed_as_allowed(before: DeploymentState, step: Step) -> list[Violation]:
    """What has become of the replicas. A step changes few: the others are the very same objects as before."""
    known, now = before.tables.replicas, step.state.tables.replicas
    found: list[Violation] = []
    moved, newcomers, was = [], 0, known.get
    for replica_id, replica in now.items():
        old = was(replica_id)
        if old is replica:
            continue
        if old is None:
            newcomers += 1
        elif old.told is not replica.told:
            moved.append((old, replica))
    if moved and not is_repairing(before):
        found += _forced_moves_only(before, step.state, moved)
    if len(now) - newcomers < len(known):
        found += _slots_are_kept(before, step)
        found += check_failed(before, step.state)
    return found


def _gone_back(before: DeploymentState, state: DeploymentState) -> Iterable[Violation]:
    yield Violation("2", f"epoch {before.epoch} -> {state.epoch}, clock {before.clock:g} -> {state.clock:g}")


def _reconfigured_once(fresh: Iterable[Command]) -> Iterable[Violation]:
    """R8: one change of a replica at a time."""
    told = set()
    for command in fresh:
        if type(command) is ReconfigureReplica:
            if command.replica_id in told:
                yield Violation("R8", f"{command.replica_id} is reconfigured twice in one step")
            told.add(command.replica_id)


def _no_config_below_the_partition(
    before: DeploymentState, state: DeploymentState, fresh: Iterable[Command]
) -> Iterable[Violation]:
    """V12: who keeps its rank below the partition keeps its user_config."""
    for command in fresh:
        old = before.replicas.get(command.replica_id) if type(command) is ReconfigureReplica else None
        if type(command) is ReconfigureReplica and old is not None and old.slot is not None:
            if old.slot < state.kept_below and old.config_id != command.config_id:
                yield Violation("V12", f"{command} brings another user_config below rank {state.kept_below}")


def _forced_moves_only(
    before: DeploymentState, state: DeploymentState, moved: Iterable[tuple[Replica, Replica]]
) -> Iterable[Violation]:
    """R5, R8 and V18: a rank changes only where it has to, or into a starved one; recoveries repair duplicates (R10)."""
    for old, replica in moved:
        if old.slot is None or old.told is None or replica.told is None or old.told == replica.told:
            continue
        nodes_used = len({r.node_id for r in state.replicas.values() if _stays(r)})
        staying = sum(1 for r in state.replicas.values() if r.node_id == replica.node_id and _stays(r))
        for level, bound in (("rank", state.world_size), ("node_rank", nodes_used), ("local_rank", staying)):
            was, now = getattr(old.told, level), getattr(replica.told, level)
            if level == "rank" and was_starved(before, state, was, now):
                continue
            if was != now and (was < bound or now >= bound):
                yield Violation("R8", f"{replica.replica_id} moved {level} {was} -> {now}, which {bound} does not force")


def _stays(replica: Replica) -> bool:
    return replica.node_id is not None and replica.state is not DRAINING


def _slots_are_kept(before: DeploymentState, step: Step) -> Iterable[Violation]:
    """R6 and R7: the slot of a replica that has ended is kept, unless it is given up."""
    if step.state.status in (DELETING, DELETED):
        return
    now = step.state.tables.replicas
    for replica_id in [each for each in before.tables.replicas if each not in now]:
        replica = before.tables.replicas[replica_id]
        if replica.slot is None or replica.leaving is RELEASE:
            continue
        slot = before.tables.slots.get(replica.slot)
        if slot is None or slot.holder != replica_id or replica.slot >= step.state.world_size:
            continue
        given_up = {note.rank for note in step.notes if note.kind in SHRUNK}
        if replica.slot not in step.state.tables.slots and replica.slot not in given_up:
            yield Violation("R6", f"{replica_id} ended, and its rank {replica.slot} is not kept")


def _ranks_given(step: Step, fresh: list[Command]) -> Iterable[Violation]:
    """R4 and R6: no rank beyond the world size, the lowest available one for newcomers, the slot's for replacements."""
    tables = step.state.tables
    chosen = {note.replica_id for note in step.notes if note.kind is RANK_CHOSEN}
    for command in fresh:
        if type(command) is InitializeReplica and not command.rank.rank < command.world_size:
            yield Violation("R4", f"{command.replica_id} is initialised with {command.rank} of {command.world_size}")
        if type(command) is StartReplica and command.rank < step.state.kept_below and step.state.previous is not None:
            replica, base = step.state.replicas.get(command.replica_id), step.state.previous.generation
            if replica is not None and (command.version, command.restart_token) != base and replica.slot == command.rank:
                yield Violation("V12", f"{command} is below the partition, where {base} is to run")
        if type(command) is StartReplica and command.replica_id in chosen:
            lower = [rank for rank in range(command.rank) if rank not in tables.taken]
            if lower:
                yield Violation("R4", f"{command.replica_id} gets rank {command.rank} while {lower} are available")


def _world_size_announced(before: DeploymentState, step: Step) -> Iterable[Violation]:
    """R9: a new world size is announced in the step that brings it."""
    announced = [c.world_size for c in step.commands if type(c) is AnnounceWorldSize]
    expected = [step.state.world_size] if step.state.world_size != before.world_size else []
    if announced != expected:
        yield Violation("R9", f"announced {announced}, expected {expected}")


def _nothing_given_out_before_all_reported(step: Step, fresh: list[Command]) -> Iterable[Violation]:
    """R10: while a discovered replica has neither reported nor ended, no rank is given out. Ask while there is one."""
    for command in [each for each in fresh if type(each) in GIVEN]:
        yield Violation("R10", f"{command} while {list(step.state.unreported)} have not reported")


def _budget(before: DeploymentState, event: Event, step: Step) -> Iterable[Violation]:
    """2.3, V1: an update stops no running replica if fewer than N - max_unavailable would be left. V10, V12."""
    state = step.state
    named = set(event.replica_ids) if isinstance(event, StopRequested) else {getattr(event, "replica_id", None)}
    killed = {command.replica_id for command in step.commands if type(command) is KillReplica}
    stopped = []
    for command in step.commands:
        if type(command) is not StopReplica or command.replica_id in named | killed:
            continue
        old, new = before.replicas.get(command.replica_id), state.replicas.get(command.replica_id)
        running = old is not None and old.state in (ReplicaState.RUNNING, ReplicaState.RECONFIGURING)
        if old is not None and asked_to_make_way(before, state, old):
            continue
        if new is not None and is_overdue(state, new):
            continue
        if running and new is not None and new.leaving is REFILL:
            if new.unready is None and old is not None and not hangs(state, old):  # else it costs nothing (V16)
                stopped.append(command.replica_id)
            if command.replica_id in before.tables.evictions.asked or command.replica_id in state.tables.evictions.asked:
                continue  # V14 says when
            if new.slot is not None and new.slot < state.kept_below and new.place == state.spec.place_of(new.slot):
                yield Violation("V12", f"{command.replica_id} is stopped, and its rank {new.slot} is below {state.kept_below}")
            if new.generation == state.spec.generation and new.slot is not None and new.place == state.spec.place_of(new.slot):
                yield Violation("V10", f"{command.replica_id} is replaced, and is of the generation that is wanted")
    left_at_least = state.world_size - state.spec.unavailable_max
    if stopped and available(state) + told_another_config(before, state) < left_at_least:
        left = f"{available(state)} of {state.world_size} are left, {state.spec.unavailable_max} may be unavailable"
        yield Violation("2.3", f"an update stopped {sorted(stopped)}: {left}")
