"""What requests come to: models wanted HOT, and evicted (T10)."""

from itertools import chain, islice

from rankcore.errors import InvalidEventError
from rankcore.residency.displacement import Need
from rankcore.residency.events import DeployRequested, EvictRequested
from rankcore.residency.leaving import drop, leave
from rankcore.residency.ledger import Ledger
from rankcore.residency.levels import Level, Phase
from rankcore.residency.notes import CantAccommodate, ResidencyNoteKind
from rankcore.residency.placing import fits_beside_its_copy, give_up_place, need_of, place, wait_too
from rankcore.residency.roster import Group, is_wanted
from rankcore.residency.state import Resident, replica_id_of
from rankcore.values import ReplicaId

EVICTED = "evicted"


def on_deploy_requested(ledger: Ledger, event: DeployRequested) -> None:
    """At least so many of each model HOT."""
    others = [each.spec.model for each in event.wanted if ledger.models.get(each.spec.model, each.spec) != each.spec]
    for wanted in event.wanted:
        if wanted.replicas or wanted.spec.model in ledger.models:  # else it would be known without a record
            ledger.set_spec(wanted.spec)
            if wanted.spec.model not in ledger.asked:
                ledger.ask(wanted.spec.model, 0)
    # The largest first, so that the others fit into what it leaves.
    known = [each for each in event.wanted if each.spec.model in ledger.models]
    turns = sorted(known, key=lambda each: (-each.spec.priority, -each.spec.total_bytes, each.spec.model))
    _bring_to(ledger, [(each.spec.model, each.replicas) for each in turns])
    for model in others:
        _try_again(ledger, model)


def on_evict_requested(ledger: Ledger, event: EvictRequested) -> None:
    """Off the GPUs, and where it is to be COLD out of CPU memory too."""
    if event.model is not None:
        if event.model not in ledger.models:
            raise InvalidEventError("EvictRequested.model", event.model, "a model that was deployed")
        records = _all_of(ledger, event.model, event.keep)
    else:
        assert event.replica_id is not None
        if event.replica_id not in ledger.replicas:
            raise InvalidEventError("EvictRequested.replica_id", event.replica_id, "a replica that there is")
        records = [ledger.replicas[event.replica_id]]
    for record in records:
        _evict(ledger, record, event.keep)


def _all_of(ledger: Ledger, model: str, keep: Level) -> list[Resident]:
    """The replicas of a model that are to be HOT; where nothing is to be kept, all that have anything in memory."""
    records = ledger.records(model, Group.WANTED)
    if keep is Level.COLD:
        leaving = [each for each in ledger.records(model, Group.PLACED) if each.phase is Phase.LEAVING]
        records += leaving + ledger.records(model, Group.WARM)
    return records


def _bring_to(ledger: Ledger, goals: list[tuple[str, int]]) -> None:
    missing = {model: replicas - len(ledger.roster.members(model, Group.WANTED)) for model, replicas in goals}
    if any(more > 0 for more in missing.values()):
        for model in missing:
            ledger.ask(model, ledger.requests)
        ledger.requests += 1
    for model, more in missing.items():
        if more > 0:
            _grow(ledger, model, more)


def _try_again(ledger: Ledger, model: str) -> None:
    """Its spec is another one: what fitted nowhere may fit now (T7)."""
    for record in ledger.records(model, Group.WAITING):
        place(ledger, record)


def _grow(ledger: Ledger, model: str, more: int) -> None:
    """WARM replicas that fit beside their copy, the other WARM ones, those whose copy is being dropped, then new ones."""
    ledger.note(ResidencyNoteKind.SCALED, "T10", because=f"{more} more are wanted", model=model)
    beside: set[ReplicaId] = set()
    needs: dict[int, Need] = {}
    for record in ledger.records(model, Group.WARM):
        if len(beside) == more:
            break
        # With what it was measured to take, which may be more than its model's.
        need = needs.get(record.size_bytes) or needs.setdefault(record.size_bytes, need_of(ledger, model, record.size_bytes))
        if fits_beside_its_copy(ledger, need, record):
            place(ledger, record)
            beside.add(record.replica_id)
            needs = {}
    # Those placed first may have had the copies of later ones dropped: a record is looked up when it is its turn.
    resting = chain(ledger.roster.members(model, Group.WARM), ledger.roster.members(model, Group.COLD))
    rest = [replica_id_of(model, serial) for serial in islice(resting, more - len(beside))]
    cant: CantAccommodate | None = None
    for index in range(more - len(beside)):
        record = ledger.replicas[rest[index]] if index < len(rest) else ledger.new_record(model)
        if cant is not None and not record.size_bytes:
            wait_too(ledger, record, cant)
        elif not place(ledger, record) and not record.size_bytes:
            cant = ledger.notes[-1].cant


def _evict(ledger: Ledger, record: Resident, keep: Level) -> None:
    cached = record.copy_node_id is not None and record.phase is not Phase.DROPPING
    if not is_wanted(record) and not (keep is Level.COLD and (cached or record.phase is Phase.LEAVING)):
        ledger.note(ResidencyNoteKind.LATE, "T10", record, f"it is {record.phase.value} already")
        return
    ledger.note(ResidencyNoteKind.EVICTED, "T10", record, f"to be {keep.value} at most")
    if record.phase in (Phase.LOADING, Phase.SERVING):
        leave(ledger, record, EVICTED, keep=keep)
        return
    if record.phase is Phase.LEAVING:
        ledger.change(record, forgets=record.forgets or keep is Level.COLD, because=EVICTED)
        return
    if record.phase is Phase.RESERVING:
        record = give_up_place(ledger, record, EVICTED)
    phase = Phase.DROPPING if record.dropping else Phase.RESTING
    record = ledger.change(record, phase=phase, because=EVICTED)
    if keep is Level.COLD and record.copy_node_id is not None and not record.dropping:
        drop(ledger, record, because=EVICTED)
