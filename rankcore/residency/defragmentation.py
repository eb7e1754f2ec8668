"""Defragmentation: moves that would let a model fit, with what they cost. A proposal; nothing carries it out by itself."""

from collections.abc import Iterator

from msgspec import Struct

from rankcore.errors import InvalidEventError
from rankcore.residency.cover import Victim, cheapest_cover
from rankcore.residency.displacement import Need, shortfalls
from rankcore.residency.fit import Place, degree_on, share
from rankcore.residency.ledger import Ledger
from rankcore.residency.levels import Phase
from rankcore.residency.placing import best_fit, need_of
from rankcore.residency.roster import ripe_at
from rankcore.residency.state import ResidencyState, Resident
from rankcore.values import NodeId, ReplicaId


class ProposedMove(Struct, frozen=True, kw_only=True, gc=False):
    """A replica that would be HOT elsewhere.

    Attributes:
        bytes_moved: What would be loaded there.
    """

    replica_id: ReplicaId
    model: str
    from_node: NodeId
    from_gpus: tuple[int, ...]
    to_node: NodeId
    to_gpus: tuple[int, ...]
    bytes_moved: int


class Proposal(Struct, frozen=True, kw_only=True, gc=False):
    """Moves after which a model fits.

    Attributes:
        model: Which model; None: none waits, and none was named.
        node_id: Where one replica of it would then fit; None: no moves were found.
        gpus: On which GPUs.
        moves: In this order: each goes to room that is free.
        bytes_moved: In all.
        because: What was found, in words.
    """

    model: str | None
    node_id: NodeId | None = None
    gpus: tuple[int, ...] = ()
    moves: tuple[ProposedMove, ...] = ()
    bytes_moved: int = 0
    because: str = ""


def propose_defragmentation(state: ResidencyState, model: str | None = None) -> Proposal:
    """Find moves that would let a replica of a model fit without displacing anybody.

    Only replicas move that serve, are not dedicated, and are older than their minimum time. On each node the set is tried
    that moves the fewest bytes, among those that fit elsewhere one by one; the proposal is the cheapest of those that fit
    elsewhere together. Costs O(nodes).

    Args:
        state: Of the planner; it does not change.
        model: Which model; None: the largest one that waits.

    Raises:
        InvalidEventError: The model was never deployed.
    """
    if model is None:
        model = _largest_that_waits(state)
        if model is None:
            return Proposal(model=None, because="nobody waits")
    if model not in state.models:
        raise InvalidEventError("propose_defragmentation.model", model, "a model that was deployed")
    ledger = Ledger(state, state.clock)
    newcomer = ledger.new_record(model)
    need = need_of(ledger, model)
    fits = best_fit(ledger, need)
    if fits is not None:
        return Proposal(model=model, node_id=fits.node_id, gpus=fits.gpus, because="it fits without any move")
    best: Proposal | None = None
    for lack, node_id, each_bytes, degree in sorted(_candidates(ledger, need)):
        if best is not None and lack >= best.bytes_moved:
            break
        short = shortfalls(ledger.nodes[node_id], each_bytes)
        limit = best.bytes_moved - 1 if best is not None else None
        cover = cheapest_cover(_movable(ledger, node_id), short, degree, limit)
        if cover is None:
            continue
        found = _rehoused(Ledger(state, state.clock), newcomer, Place(node_id, cover.gpus, each_bytes), cover.victims)
        if found is not None:
            best = found
    return best or Proposal(model=model, because="no moves to free room would let it fit")


def _largest_that_waits(state: ResidencyState) -> str | None:
    waiting = sorted(state.index.queue.lacks, key=lambda model: (-state.models[model].total_bytes, model))
    return waiting[0] if waiting else None


def _candidates(ledger: Ledger, need: Need) -> Iterator[tuple[int, NodeId, int, int]]:
    """What has to move away at least, for every node that is large enough."""
    for shape in need.shapes:
        for node_id in ledger.room.shapes[shape]:
            node = ledger.nodes[node_id]
            degree = degree_on(node, need.spec, need.total_bytes)
            if degree is not None and node_id not in need.excluded:
                each_bytes = share(need.spec, need.total_bytes, degree)
                lack = sum(sorted(shortfalls(node, each_bytes).values())[:degree])
                yield lack, node_id, each_bytes, degree


def _movable(ledger: Ledger, node_id: NodeId) -> list[Victim]:
    found = []
    for record in ledger.on_gpus(node_id):
        spec = ledger.spec_of(record)
        ripe = ripe_at(record, spec)
        if record.phase is not Phase.SERVING or spec.dedicated or (ripe is not None and ripe > ledger.clock):
            continue
        if best_fit(ledger, need_of(ledger, record.model, record.size_bytes)) is not None:
            held = dict(zip(record.gpus, record.gpu_bytes, strict=True))
            found.append(Victim(record.replica_id, record.held_bytes, held))
    return found


def _rehoused(ledger: Ledger, newcomer: Resident, place: Place, movers: tuple[ReplicaId, ...]) -> Proposal | None:
    """Try the moves, the largest first, on books of their own; the newcomer keeps everybody off its place."""
    ledger.put(newcomer)
    moves = []
    for replica_id in (None, *sorted(movers, key=lambda each: (-ledger.replicas[each].held_bytes, each))):
        if replica_id is not None:
            record = ledger.replicas[replica_id]
            found = best_fit(ledger, need_of(ledger, record.model, record.size_bytes))
            if found is None:
                return None
            assert record.node_id is not None
            size = found.each_bytes * len(found.gpus)
            moves.append(
                ProposedMove(
                    replica_id=replica_id,
                    model=record.model,
                    from_node=record.node_id,
                    from_gpus=record.gpus,
                    to_node=found.node_id,
                    to_gpus=found.gpus,
                    bytes_moved=size,
                )
            )
            sizes = (found.each_bytes,) * len(found.gpus)
            ledger.change(record, node_id=found.node_id, gpus=found.gpus, gpu_bytes=sizes, need_bytes=sizes)
        _settle(ledger, newcomer.replica_id, place)
    return Proposal(
        model=newcomer.model,
        node_id=place.node_id,
        gpus=place.gpus,
        moves=tuple(moves),
        bytes_moved=sum(move.bytes_moved for move in moves),
        because=f"{len(moves)} moves make room for it",
    )


def _settle(ledger: Ledger, replica_id: ReplicaId, place: Place) -> None:
    record, node = ledger.replicas[replica_id], ledger.nodes[place.node_id]
    own = record.gpu_bytes or (0,) * len(place.gpus)
    held = tuple(has + min(place.each_bytes - has, node.gpus[gpu].free_bytes) for has, gpu in zip(own, place.gpus, strict=True))
    ledger.change(
        record, node_id=place.node_id, gpus=place.gpus, gpu_bytes=held, need_bytes=(place.each_bytes,) * len(place.gpus)
    )
