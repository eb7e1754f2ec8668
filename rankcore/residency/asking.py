"""What requests of users come to: models deployed, scaled and evicted (T10)."""

from itertools import chain, islice

from rankcore.errors import InvalidEventError
from rankcore.residency.displacement import Need, cost_of
from rankcore.residency.events import DeployRequested, EvictRequested, RemoveRequested, ScaleRequested
from rankcore.residency.leaving import drop, leave
from rankcore.residency.ledger import Ledger
from rankcore.residency.levels import Level, Phase
from rankcore.residency.notes import CantAccommodate, ResidencyNoteKind
from rankcore.residency.placing import fits_beside_its_copy, give_up_place, has_given_up, need_of, place, wait_too
from rankcore.residency.roster import Group, is_wanted
from rankcore.residency.state import Resident, replica_id_of
from rankcore.values import ReplicaId

RELEASED_FIRST = (Phase.LEAVING, Phase.RESERVING, Phase.LOADING, Phase.SERVING)


def on_deploy_requested(ledger: Ledger, event: DeployRequested) -> None:
    """So many of each model HOT. Where one model is to have fewer than it has, those go first; so does another version."""
    others = [each.spec.model for each in event.wanted if ledger.models.get(each.spec.model, each.spec) != each.spec]
    named = {each.spec.model for each in event.wanted}
    ledger.removed = tuple(each for each in ledger.removed if each not in named)
    for wanted in event.wanted:
        before = ledger.models.get(wanted.spec.model)
        if before is not None and before.version != wanted.spec.version:
            _retire(ledger, before.model)
    for wanted in event.wanted:
        ledger.set_spec(wanted.spec)
        if wanted.spec.model not in ledger.asked:
            ledger.ask(wanted.spec.model, 0)
    # The largest first, so that the others fit into what it leaves.
    turns = sorted(event.wanted, key=lambda each: (-each.spec.priority, -each.spec.total_bytes, each.spec.model))
    _bring_to(ledger, [(each.spec.model, each.replicas) for each in turns])
    for model in others:
        _try_again(ledger, model)


def on_scale_requested(ledger: Ledger, event: ScaleRequested) -> None:
    """So many of a known model HOT."""
    if event.model not in ledger.models or event.model in ledger.removed:
        raise InvalidEventError("ScaleRequested.model", event.model, "a model that was deployed")
    _bring_to(ledger, [(event.model, event.replicas)])


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


def on_remove_requested(ledger: Ledger, event: RemoveRequested) -> None:
    """Off the GPUs and out of CPU memory, and its records end."""
    if event.model not in ledger.models or event.model in ledger.removed:
        because = "it is being removed" if event.model in ledger.models else "nobody knows this model"
        ledger.note(ResidencyNoteKind.LATE, "T10", model=event.model, because=because)
        return
    ledger.note(ResidencyNoteKind.REMOVED, "T10", model=event.model, because="with all its replicas")
    ledger.removed = tuple(sorted((*ledger.removed, event.model)))
    for record in _all_of(ledger, event.model, Level.COLD):
        _release(ledger, record, Level.COLD, "its model was removed")


def end_what_is_removed(ledger: Ledger) -> None:
    """Replicas of models that are removed end once they hold nothing."""
    for model in ledger.removed:
        ledger.end(model)


def _retire(ledger: Ledger, model: str) -> None:
    """Nothing of the version that there is stays in memory; it is COLD, and then of the new one."""
    because = "another version is deployed"
    for record in _all_of(ledger, model, Level.COLD):
        ledger.note(ResidencyNoteKind.EVICTED, "T10", record, because)
        _release(ledger, record, Level.COLD, because)


def _all_of(ledger: Ledger, model: str, keep: Level) -> list[Resident]:
    """The replicas of a model that are to be HOT; where nothing is to be kept, all that have anything in memory."""
    records = ledger.records(model, Group.WANTED)
    if keep is Level.COLD:
        leaving = [each for each in ledger.records(model, Group.PLACED) if each.phase is Phase.LEAVING]
        records += [each for each in leaving if not each.returns] + ledger.records(model, Group.WARM)
    return records


def _bring_to(ledger: Ledger, goals: list[tuple[str, int]]) -> None:
    targets = {model: len(ledger.roster.members(model, Group.WANTED)) for model, _ in goals}
    stuck = {model: [each for each in ledger.records(model, Group.WAITING) if has_given_up(ledger, each)] for model, _ in goals}
    if any(replicas > targets[model] or stuck[model] for model, replicas in goals):
        for model, _ in goals:
            ledger.ask(model, ledger.requests)
        ledger.requests += 1
    for model, replicas in goals:
        if replicas < targets[model]:
            _shrink(ledger, model, targets[model] - replicas)
    for model, replicas in goals:
        for record in stuck[model]:
            again = ledger.replicas[record.replica_id]
            if again.phase is Phase.WAITING:
                place(ledger, ledger.change(again, failures=0))
        if replicas > targets[model]:
            _grow(ledger, model, replicas - targets[model])


def _try_again(ledger: Ledger, model: str) -> None:
    """Its spec is another one: what fitted nowhere may fit now (T7)."""
    for record in ledger.records(model, Group.WAITING):
        if record.retry_at is None:
            place(ledger, record)


def _grow(ledger: Ledger, model: str, more: int) -> None:
    """WARM replicas that fit beside their copy, then the other WARM ones, then COLD ones, then new ones."""
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


def _shrink(ledger: Ledger, model: str, fewer: int) -> None:
    """Those first that have no place, then those that do not serve yet, then the cheapest to load again."""
    ledger.note(ResidencyNoteKind.SCALED, "T10", because=f"{fewer} fewer are wanted", model=model)
    waiting = [replica_id_of(model, serial) for serial in ledger.roster.members(model, Group.WAITING)]
    for replica_id in reversed(waiting[-fewer:]):
        _release(ledger, ledger.replicas[replica_id], Level.WARM, "scaled down")
    fewer -= len(waiting)
    if fewer <= 0:
        return
    spec = ledger.models[model]
    records = list(reversed(ledger.records(model, Group.WANTED)))
    records.sort(key=lambda each: (RELEASED_FIRST.index(each.phase), cost_of(each, spec, ledger.policy, ledger.clock)))
    for record in records[:fewer]:
        _release(ledger, record, Level.WARM, "scaled down")


def _evict(ledger: Ledger, record: Resident, keep: Level) -> None:
    cached = record.copy_node_id is not None and record.phase is not Phase.DROPPING
    if not is_wanted(record) and not (keep is Level.COLD and (cached or record.phase is Phase.LEAVING)):
        ledger.note(ResidencyNoteKind.LATE, "T10", record, f"it is {record.phase.value} already")
        return
    ledger.note(ResidencyNoteKind.EVICTED, "T10", record, f"to be {keep.value} at most")
    _release(ledger, record, keep, "evicted")


def _release(ledger: Ledger, record: Resident, keep: Level, because: str) -> None:
    """A replica is not wanted HOT any more."""
    if record.phase in (Phase.LOADING, Phase.SERVING):
        leave(ledger, record, because, keep=keep)
        return
    if record.phase is Phase.LEAVING:
        ledger.change(record, returns=False, forgets=record.forgets or keep is Level.COLD, because=because)
        return
    if record.phase is Phase.RESERVING:
        record = give_up_place(ledger, record, because)
    phase = Phase.DROPPING if record.dropping else Phase.RESTING
    record = ledger.change(record, phase=phase, retry_at=None, failures=0, because=because)
    if keep is Level.COLD and record.copy_node_id is not None and not record.dropping:
        drop(ledger, record, because=because)
