"""What the lines of a fleet's journal say, as facts, and which fact follows from which."""

from collections.abc import Callable, Mapping

from executors.engine.fleets import FleetEntry
from executors.explain.facts import Fact
from executors.explain.models.places import Move, Place, Places, Stay
from executors.explain.wording import listed
from executors.simulator.times import TENTHS, moment
from rankcore.dispatching import FleetImage, FleetNote, FleetNoteKind
from rankcore.dispatching.events import Event
from rankcore.residency import Level, ResidencyNote
from rankcore.residency.commands import DropFromCpu, LoadToGpu
from rankcore.residency.events import (
    DeployRequested,
    EvictRequested,
    LoadFinished,
    OffloadFailed,
    ScaleRequested,
)
from rankcore.residency.notes import ResidencyNoteKind as Kind
from rankcore.values import ReplicaId

REASONS_MAX = 3
"""So many nodes are named of those where a replica does not fit; the journal has more."""

ROOTS: Mapping[type, Callable[[object], str]] = {
    DeployRequested: lambda event: "models were deployed",
    ScaleRequested: lambda event: f"somebody wants {_field(event, 'replicas')} of {_field(event, 'model')}",
    EvictRequested: lambda event: f"somebody wants {_field(event, 'replica_id') or _field(event, 'model')} off the GPUs",
    OffloadFailed: lambda event: f"{_field(event, 'replica_id')} left without its copy: {_field(event, 'reason')}",
}
"""Events that notes follow from, in words. Of the others the notes say enough."""

TEXTS: Mapping[str, str] = {
    Kind.PLACED: "{replica} is to be HOT on {node}: {because}",
    Kind.PROMOTED: "{replica} is to be HOT on {node}: {because}",
    Kind.DISPLACED: "{replica} has to leave {node}, displaced {because}",
    Kind.BECAME_WARM: "{replica} became WARM on {node}: {because}",
    Kind.BECAME_COLD: "{replica} has no copy on {node} any more: {because}",
    Kind.CANT_ACCOMMODATE: "{replica} fits nowhere: {reasons}",
    Kind.RETRIED: "{replica} is tried again: {because}",
    Kind.EVICTED: "{replica} is taken off its GPUs, {because}",
    Kind.LOAD_FAILED: "the load of {replica} failed: {because}",
    Kind.GAVE_UP: "{replica} is not tried again: {because}",
    Kind.REPLICA_LOST: "{replica} is lost: {because}",
    Kind.IDLE: "{replica} has to leave {node}: {because}",
    Kind.NODE_JOINED: "node {node} can be used: {because}",
    Kind.NODE_LOST: "node {node} was lost, {because}",
    Kind.MEASURED: "{who}: {because}",
    Kind.SCALED: "{who}: {because}",
    Kind.REMOVED: "{model} is removed, {because}",
    Kind.ENDED: "nobody knows {model} any more: {because}",
    FleetNoteKind.ASKED_FOR: "a replica of {model} is asked for: {because}",
    FleetNoteKind.WITHDRAWN: "{model} is asked for no longer: {because}",
    FleetNoteKind.CUT_LOOSE: "{replica} is gone with requests in flight: {because}",
}
"""What a note says. Those of other kinds are about single requests, or change nothing."""

OF_NODES = frozenset({Kind.NODE_JOINED, Kind.NODE_LOST, Kind.MEASURED})
OF_FLEET = frozenset({FleetNoteKind.ASKED_FOR, FleetNoteKind.WITHDRAWN, FleetNoteKind.CUT_LOOSE})

CHANGES = frozenset(
    {Kind.PLACED, Kind.PROMOTED, Kind.DISPLACED, Kind.BECAME_WARM, Kind.BECAME_COLD, Kind.CANT_ACCOMMODATE, Kind.EVICTED}
    | {Kind.LOAD_FAILED, Kind.GAVE_UP, Kind.REPLICA_LOST, Kind.IDLE, Kind.REMOVED, FleetNoteKind.WITHDRAWN}
)
"""What somebody may ask the reason of."""

LEAVES = frozenset({Kind.DISPLACED, Kind.EVICTED, Kind.IDLE, Kind.REPLICA_LOST})
PLACES = frozenset({Kind.PLACED, Kind.PROMOTED})
WAITS = frozenset({Kind.CANT_ACCOMMODATE, Kind.LOAD_FAILED, Kind.GAVE_UP, Kind.REPLICA_LOST})
CAME_TO_REST = frozenset({Kind.BECAME_WARM, Kind.BECAME_COLD})


class Teller:
    """Follows a fleet's journal.

    Attributes:
        places: Where everybody is after the line that was told last.
    """

    def __init__(self) -> None:
        self.places = Places()
        self._line: list[Fact] = []
        self._wished: dict[str, Fact] = {}
        self._entry_line = 0
        self._at = 0.0

    def facts_of(self, entry: FleetEntry) -> list[Fact]:
        """What this line says."""
        self._line, self._wished, self._entry_line, self._at = [], {}, entry.line, entry.at
        self.places.clock = max(self.places.clock, entry.at)
        if isinstance(entry.cause, FleetImage):
            self.places.begin(entry.cause)
            return []
        root = self._root(entry.cause)
        if isinstance(entry.cause, LoadFinished):
            self._hot(entry.cause)
        for note in entry.notes:
            if (isinstance(note, ResidencyNote) and note.kind in TEXTS) or (
                isinstance(note, FleetNote) and note.kind in OF_FLEET
            ):
                fact = self._note(note, root)
                root = fact if root is None and note.kind in OF_NODES else root
        for command in entry.commands:
            if isinstance(command, Move):
                self._command(command, root)
        return self._line

    def _tell(self, text: str, **known: object) -> Fact:
        fact = Fact(line=self._entry_line, place=len(self._line), at=self._at, text=text, **known)  # type: ignore[arg-type]
        self._line.append(fact)
        return fact

    def _root(self, event: Event) -> Fact | None:
        words = ROOTS.get(type(event))
        if words is None:
            return None
        about = getattr(event, "replica_id", None)
        model = getattr(event, "model", None)
        return self._tell(words(event), replica_ids=(about,) if about else (), models=(model,) if model else ())

    def _hot(self, event: LoadFinished) -> None:
        place = self.places.of(event.replica_id)
        if place.stay is not Stay.LOADING or place.move != event.move:
            return
        because = place.because
        place.becomes(Stay.HOT, self._at, because=because)
        causes = (place.placed,) if place.placed is not None else ()
        self._about(
            place, self._tell(f"{event.replica_id} is HOT{place.where}", causes=causes, is_change=True), event.replica_id
        )
        if place.placed is not None:
            place.placed.later = f"HOT at {moment(self._at, TENTHS)}"

    def _note(self, note: ResidencyNote | FleetNote, root: Fact | None) -> Fact:
        model, replica_id = note.model, note.replica_id
        node_id = note.node_id if isinstance(note, ResidencyNote) else None
        if model is not None:
            self.places.models.setdefault(model)
        text = TEXTS[note.kind].format(
            replica=replica_id,
            model=model,
            node=node_id,
            because=note.because,
            who=replica_id or model or node_id,
            reasons=_reasons(note),
        )
        place = self.places.of(replica_id, model) if replica_id is not None else None
        fact = self._tell(text, rule=note.rule, causes=self._causes(note, place, root), is_change=note.kind in CHANGES)
        fact.models = (model,) if model is not None else ()
        if model is not None and note.kind in (Kind.SCALED, Kind.REMOVED, FleetNoteKind.ASKED_FOR):
            self._wished[model] = fact
        if place is not None and replica_id is not None:
            self._about(place, fact, replica_id)
            if isinstance(note, ResidencyNote):
                self._move(place, note, fact)
        elif note.kind in (FleetNoteKind.WITHDRAWN, Kind.REMOVED) and model is not None:
            for waiting in self.places.of_model(model).values():
                if waiting.stay is Stay.WAITS:
                    waiting.becomes(Stay.COLD, self._at, because=note.because)
        if note.kind is Kind.NODE_JOINED and node_id is not None:
            self.places.nodes.setdefault(node_id)
        elif note.kind is Kind.NODE_LOST and node_id is not None:
            self.places.nodes.pop(node_id, None)
        return fact

    def _causes(self, note: ResidencyNote | FleetNote, place: Place | None, root: Fact | None) -> tuple[Fact, ...]:
        """What a note follows from: what was decided before in the same line, or what its replica was told before."""
        if note.kind is Kind.DISPLACED:
            newcomer = self.places.replicas.get(note.because.removeprefix("by "))
            found = newcomer.placed if newcomer is not None else None
        elif place is not None and note.kind in CAME_TO_REST:
            found = place.left or root
        elif place is not None and note.kind is Kind.GAVE_UP:
            found = place.last
        elif place is not None and note.kind is Kind.RETRIED:
            found = place.last or root
        elif place is not None and place.last is not None and place.last.line == self._entry_line and note.kind in PLACES:
            found = place.last
        else:
            found = self._wished.get(note.model or "", root)
        return (found,) if found is not None else ()

    def _move(self, place: Place, note: ResidencyNote, fact: Fact) -> None:
        """Where it is from now on."""
        at, kind = self._at, note.kind
        if kind in PLACES:
            place.becomes(Stay.RESERVED, at, note.node_id, note.because)
            place.placed = fact
        elif kind is Kind.BECAME_WARM:
            place.becomes(Stay.WARM, at, note.node_id, note.because)
        elif kind is Kind.BECAME_COLD and place.stay in (Stay.WARM, Stay.LEAVING):
            place.becomes(Stay.COLD, at, because=note.because)
        elif kind in WAITS:
            place.becomes(Stay.WAITS, at, because=note.because)
        elif kind in LEAVES and place.stay is Stay.HOT:
            place.becomes(Stay.LEAVING, at, because=note.because if kind is not Kind.DISPLACED else f"displaced {note.because}")
        if kind in LEAVES:
            place.left = fact
        if kind is Kind.DISPLACED:
            fact.replica_ids = (*fact.replica_ids, note.because.removeprefix("by "))
        if kind in CAME_TO_REST and place.left is not None and not place.left.later:
            place.left.later = f"{'WARM' if kind is Kind.BECAME_WARM else 'COLD'} at {moment(at, TENTHS)}"

    def _command(self, command: Move, root: Fact | None) -> None:
        place = self.places.of(command.replica_id)
        if isinstance(command, LoadToGpu):
            source = "disk" if command.source is Level.COLD else "CPU memory"
            because = place.because
            place.becomes(Stay.LOADING, self._at, command.node_id, because)
            place.gpus, place.move = command.gpus, command.move
            causes = (place.placed,) if place.placed is not None else ()
            text = f"{command.replica_id} is loaded from {source}{place.where.replace(' on ', ' to ', 1)}"
            self._about(place, self._tell(text, causes=causes), command.replica_id)
        elif not isinstance(command, DropFromCpu) and place.stay in (Stay.HOT, Stay.LOADING):
            cause = self._wished.get(place.model, root)
            place.left = self._tell(
                f"{command.replica_id} has to leave {command.node_id}",
                causes=(cause,) if cause is not None else (),
                is_change=True,
            )
            place.becomes(Stay.LEAVING, self._at)
            self._about(place, place.left, command.replica_id)

    def _about(self, place: Place, fact: Fact, replica_id: ReplicaId) -> None:
        place.last = fact
        fact.replica_ids, fact.models = (replica_id,), (place.model,)
        self.places.models.setdefault(place.model)


def _field(event: object, name: str) -> str:
    value = getattr(event, name)
    return "" if value is None else str(value)


def _reasons(note: ResidencyNote | FleetNote) -> str:
    cant = note.cant if isinstance(note, ResidencyNote) else None
    if cant is None:
        return note.because
    found = [f"{each.node_id}: {each.because}" for each in cant.reasons]
    found += [f"{each.nodes} nodes: {each.because}" for each in cant.others]
    return listed(found, REASONS_MAX) or note.because
