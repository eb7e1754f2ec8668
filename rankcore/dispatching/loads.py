"""How far loads have come, and how long they take from there, by measured bytes/s (D9)."""

from rankcore.dispatching.draft import Draft, model_of
from rankcore.dispatching.events import LoadProgressed
from rankcore.dispatching.notes import FleetNoteKind
from rankcore.dispatching.state import MoveUnderWay
from rankcore.residency.commands import LoadToGpu
from rankcore.residency.events import LoadFailed, LoadFinished


def progressed(draft: Draft, event: LoadProgressed) -> None:
    """More of the weights has arrived; what counts are the steps that are told."""
    under_way = load_under_way(draft, event)
    if under_way is None or event.bytes_done <= under_way.bytes_done:
        known = "it is not being loaded by this move" if under_way is None else f"{under_way.bytes_done} bytes are known"
        draft.note(FleetNoteKind.LATE, "D9", replica_id=event.replica_id, because=known)
        return
    now = MoveUnderWay(under_way.command, under_way.since, event.bytes_done, draft.clock)
    if percent_done(draft, now) == percent_done(draft, under_way):
        return  # nobody is told before the next step, and an estimate is made there
    draft.moves = draft.moves.set(event.replica_id, now)
    draft.touched.add(model_of(event.replica_id))


def load_under_way(draft: Draft, event: LoadProgressed | LoadFinished | LoadFailed) -> MoveUnderWay | None:
    """The load that an event speaks of; None: it is over, or never was."""
    under_way = draft.moves.get(event.replica_id)
    if under_way is None or not isinstance(under_way.command, LoadToGpu) or under_way.command.move != event.move:
        return None
    return under_way


def measure(draft: Draft, event: LoadFinished) -> None:
    """A load has finished: how fast it was counts for the next ones from there."""
    under_way = load_under_way(draft, event)
    if under_way is None:
        return
    command = under_way.command
    assert isinstance(command, LoadToGpu)
    took_s = draft.clock - under_way.since
    if took_s <= 0.0:
        return
    pair = (command.node_id, str(command.source))
    newest = draft.residency.models[command.model].weight_bytes / took_s
    weight = draft.policy.newest_weight
    mean = draft.bandwidths.get(pair)
    draft.bandwidths = draft.bandwidths.set(pair, newest if mean is None else mean + weight * (newest - mean))
    why = f"{command.source} to HOT on {command.node_id}: {newest:.4g} bytes/s over {took_s:g} s"
    draft.note(FleetNoteKind.MEASURED, "D9", command.model, replica_id=command.replica_id, because=why)


def percent_done(draft: Draft, under_way: MoveUnderWay) -> int:
    """How much of a load is done, rounded down to a step that is told."""
    step = draft.policy.progress_percent
    return min(100, 100 * under_way.bytes_done // _weight_bytes(draft, under_way)) // step * step


def seconds_left(draft: Draft, under_way: MoveUnderWay) -> float | None:
    """How long a load takes from the step that is told; None: nothing was measured yet.

    By the mean of its node and source; the first one there goes by its own pace.
    """
    command = under_way.command
    assert isinstance(command, LoadToGpu)
    rate = draft.bandwidths.get((command.node_id, str(command.source)))
    if rate is None:
        ran_s = under_way.seen_at - under_way.since
        rate = under_way.bytes_done / ran_s if ran_s > 0.0 else 0.0
    weight_bytes = _weight_bytes(draft, under_way)
    left = weight_bytes * (100 - percent_done(draft, under_way)) / 100
    return round(left / rate, 3) if rate > 0.0 else None


def _weight_bytes(draft: Draft, under_way: MoveUnderWay) -> int:
    command = under_way.command
    assert isinstance(command, LoadToGpu)
    return draft.residency.models[command.model].weight_bytes
