"""What falls due as time passes, and who is tried again when there is room (T7)."""

from rankcore.residency.leaving import drop, leave
from rankcore.residency.ledger import Ledger
from rankcore.residency.levels import Phase
from rankcore.residency.notes import ResidencyNoteKind
from rankcore.residency.placing import has_given_up, place
from rankcore.residency.roster import Group, replica_id_of
from rankcore.residency.state import Resident


def do_what_is_due(ledger: Ledger) -> None:
    """Retries, and replicas that were idle for too long; who has been HOT for its minimum time may be displaced now."""
    while ledger.roster.timers and ledger.roster.timers.first()[0] <= ledger.clock:
        _due(ledger, ledger.replicas[ledger.roster.timers.first()[1]])
    while ledger.roster.ages and ledger.roster.ages.first()[0] <= ledger.clock:
        due, replica_id = ledger.roster.ages.first()
        ledger.roster.ripen(replica_id, due, None, ledger.clock)
        node_id = ledger.replicas[replica_id].node_id
        assert node_id is not None
        ledger.roomier[node_id] = None


def retry(ledger: Ledger) -> None:
    """Those that wait are tried on the nodes where something has become possible; nothing has on the others."""
    while ledger.roomier:
        nodes = sorted(ledger.roomier)
        ledger.roomier = {}
        for model in sorted(ledger.roster.waiting, key=lambda each: _turn(ledger, each)):
            too_large: int | None = None
            for serial in ledger.roster.members(model, Group.WAITING):
                record = ledger.replicas[replica_id_of(model, serial)]
                size = max(ledger.models[model].total_bytes, record.size_bytes)
                if record.retry_at is not None or has_given_up(ledger, record) or (too_large is not None and size >= too_large):
                    continue
                if not place(ledger, record, among=[each for each in nodes if each in ledger.nodes]):
                    too_large = size


def ask_to_be_woken(ledger: Ledger) -> None:
    """At the next time when something falls due without any news."""
    due = [ledger.roster.timers.first()[0]] if ledger.roster.timers else []
    if ledger.roster.ages and ledger.roster.waiting:
        due.append(ledger.roster.ages.first()[0])
    if due:
        ledger.wake(min(due))


def _turn(ledger: Ledger, model: str) -> tuple[int, float, str]:
    """The highest priority first, then who waits for longest."""
    oldest = ledger.replicas[replica_id_of(model, ledger.roster.members(model, Group.WAITING).first())]
    return -ledger.models[model].priority, oldest.since, model


def _due(ledger: Ledger, record: Resident) -> None:
    if record.phase is Phase.WAITING:
        place(ledger, ledger.change(record, retry_at=None))
    elif record.phase is Phase.SERVING:
        ledger.note(ResidencyNoteKind.IDLE, "T10", record, f"not used since {record.last_used:g} s")
        leave(ledger, record, "idle")
    else:
        ledger.note(ResidencyNoteKind.IDLE, "T6", record, f"not used since {record.since:g} s")
        drop(ledger, record, because="idle")
