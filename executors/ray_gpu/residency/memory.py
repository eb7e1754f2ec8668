"""Why replicas are where they are: the newest decisions about each, for whoever asks."""

import os
from collections import deque
from collections.abc import Iterable

from executors.ray_gpu.residency.words import FleetStanding, ModelStanding, NodeStanding, ReplicaStanding
from rankcore.dispatching import FleetState, Served
from rankcore.dispatching.state import Note
from rankcore.residency import ResidencyNote, ResidencyNoteKind, Resident
from rankcore.values import ReplicaId, ReplicaRank

KEPT = 20


class Memory:
    """Of one controller; what an earlier one has decided is forgotten, but for the newest reason, which is in the record."""

    def __init__(self) -> None:
        self._history: dict[ReplicaId, deque[str]] = {}
        self._displaced: dict[ReplicaId, deque[str]] = {}

    def remember(self, notes: Iterable[Note], state: FleetState) -> None:
        """Keep what is about a replica's place.

        Args:
            state: After the step that the notes explain.
        """
        for note in notes:
            if not isinstance(note, ResidencyNote) or note.replica_id is None or note.kind is ResidencyNoteKind.LATE:
                continue
            where = f" on {note.node_id[:8]}" if note.node_id is not None else ""
            words = f"{state.clock:.1f} s: {note.kind}{where}: {note.because} ({note.rule})"
            self._history.setdefault(note.replica_id, deque(maxlen=KEPT)).append(words)
            resident = state.residency.replicas.get(note.replica_id)
            if note.kind is ResidencyNoteKind.DISPLACED and resident is not None and resident.makes_room_for is not None:
                displaced = self._displaced.setdefault(resident.makes_room_for, deque(maxlen=KEPT))
                displaced.append(f"{note.replica_id} at {state.clock:.1f} s")

    def standing(self, state: FleetState) -> FleetStanding:
        """All of a fleet in words."""
        residency = state.residency
        nodes = tuple(
            NodeStanding(
                node_id,
                tuple((gpu.capacity_bytes, gpu.free_bytes) for gpu in node.gpus),
                node.cpu_capacity_bytes,
                node.cpu_free_bytes,
            )
            for node_id, node in sorted(residency.nodes.items())
        )
        by_model: dict[str, list[Resident]] = {model: [] for model in residency.models}
        for _, resident in sorted(residency.replicas.items()):
            by_model.setdefault(resident.model, []).append(resident)
        models = tuple(self._model(state, model, found) for model, found in sorted(by_model.items()))
        return FleetStanding(nodes, models, os.getpid())

    def _model(self, state: FleetState, model: str, residents: list[Resident]) -> ModelStanding:
        served = state.models.get(model)
        waiting = state.waiting(model)
        ranks = state.ranks_of(model)
        replicas = tuple(self._replica(state, each, ranks.get(each.replica_id)) for each in residents)
        return ModelStanding(model, state.residency.target(model), len(waiting), _told(served) if waiting else "", replicas)

    def _replica(self, state: FleetState, resident: Resident, rank: ReplicaRank | None) -> ReplicaStanding:
        replica_id = resident.replica_id
        move = state.moves.get(replica_id)
        weight_bytes = state.residency.models[resident.model].weight_bytes
        return ReplicaStanding(
            replica_id,
            str(resident.level),
            str(resident.phase),
            resident.node_id or resident.copy_node_id,
            resident.gpus,
            resident.gpu_bytes,
            resident.cpu_bytes,
            resident.in_flight,
            min(100, 100 * move.bytes_done // weight_bytes) if move is not None and resident.phase == "loading" else None,
            rank.rank if rank is not None else None,
            resident.because,
            tuple(self._displaced.get(replica_id, ())),
            tuple(self._history.get(replica_id, ())),
        )


def _told(served: Served | None) -> str:
    status = served.status if served is not None else None
    return "" if status is None else f"{status.kind}: {status.because}"
