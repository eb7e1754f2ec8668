"""A world in which time passes in whole ticks, and all that is under way keeps to the planner's estimates (T13).

A load of so many bytes takes as many ticks, and loads of one node come one after the other; whatever leaves is gone after one.
Calls begin where a replica has just become HOT, and end at any time. So whoever was promised to be HOT is it by then, and no
promise is put off: that is bounded liveness as a safety property, and there is no cycle in which the first in line waits, since
each tick brings it nearer to a time that does not move.

A replica may be let go so that another one of its model takes its place, as in an update. That puts off what was promised, but
not twice by a successor of a successor.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rankcore.events import ClockAdvanced
from rankcore.kernel import Violation
from rankcore.residency.commands import LoadToGpu
from rankcore.residency.events import Event, EvictRequested, LoadFinished, OffloadFinished, ReplicaUsed
from rankcore.residency.invariants.line import overdue
from rankcore.residency.levels import Level, Phase
from rankcore.residency.notes import ResidencyNoteKind
from rankcore.residency.state import ResidencyState
from rankcore.residency.step import ResidencyStep
from rankcore.values import ReplicaId

if TYPE_CHECKING:
    from rankcore.testing.model_residency.world import Given, ResidencyWorldDraft

TICK_S = 1.0


def moves_in_ticks(state: ResidencyState, given: Iterable["Given"]) -> Iterator[tuple[str, int]]:
    """What may happen next, but for wishes."""
    if list(given) or (state.waking is not None and state.waking > state.clock):
        yield "a tick passes", 0
    for number, replica_id in enumerate(sorted(state.replicas)):
        record = state.replicas[replica_id]
        if record.phase is Phase.SERVING and record.in_flight:
            yield "call ends", number
        elif record.phase is Phase.SERVING and record.hot_since == record.last_used == state.clock:
            yield "is called", number


def a_tick_passes(draft: "ResidencyWorldDraft", _: int) -> None:
    """All that is under way is a tick nearer to its end, but for loads behind others."""
    at, loading = draft.state.clock + TICK_S, False
    done: list[Given] = []
    for command in draft.given:
        ticks = 1
        if isinstance(command, LoadToGpu):
            if loading:
                continue
            loading, ticks = True, sum(command.gpu_bytes)
        draft.ticks[command.move] = draft.ticks.get(command.move, 0) + 1
        if draft.ticks[command.move] == ticks:
            done.append(command)
    for command in done:
        draft.given.remove(command)
        draft.memory = draft.memory.done(command)
        replica_id, move, heir = command.replica_id, command.move, None
        if isinstance(command, LoadToGpu):
            draft.tell(LoadFinished(replica_id=replica_id, move=move, at=at))
            continue
        if replica_id in draft.replaced:
            draft.replaced.remove(replica_id)
            heir = draft.bounds.spec(draft.state.replicas[replica_id].model)
        draft.tell(OffloadFinished(replica_id=replica_id, move=move, heir=heir, at=at))
    if not done:
        draft.tell(ClockAdvanced(at=at))


def call(in_flight: int, draft: "ResidencyWorldDraft", number: int) -> None:
    """A replica has a call, or none any more."""
    draft.tell(ReplicaUsed(replica_id=_named(draft.state, number), in_flight=in_flight, at=draft.state.clock))


def may_be_replaced(state: ResidencyState) -> Iterator[tuple[str, int]]:
    """Whoever serves."""
    for number, replica_id in enumerate(sorted(state.replicas)):
        if state.replicas[replica_id].phase in (Phase.LOADING, Phase.SERVING):
            yield "is replaced", number


def is_replaced(draft: "ResidencyWorldDraft", number: int) -> None:
    """A replica is let go, and another one of its model is wanted in its place as soon as it has left."""
    draft.spend("replacements")
    replica_id = _named(draft.state, number)
    draft.replaced.add(replica_id)
    draft.tell(EvictRequested(replica_id=replica_id, keep=Level.COLD, at=draft.state.clock))


def check_promises(before: ResidencyState, event: Event, step: ResidencyStep) -> Iterator[Violation]:
    """T13 where all keep to the estimates: nobody is late, and no promise is put off but for a successor, once."""
    yield from overdue(step.state)
    heir, leaver_id = getattr(event, "heir", None), getattr(event, "replica_id", "")
    if heir is not None and before.head is not None and leaver_id not in before.head.heirs:
        return
    for note in step.notes:
        if note.kind is ResidencyNoteKind.SLIPPED:
            yield Violation("T13", f"{note.replica_id}: {note.because}")


def _named(state: ResidencyState, number: int) -> ReplicaId:
    return sorted(state.replicas)[number]
