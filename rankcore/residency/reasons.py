"""Why a replica fits nowhere, node by node (T7)."""

from collections import Counter
from collections.abc import Iterator
from heapq import merge
from itertools import islice

from rankcore.residency.displacement import Need, shortfalls, victims_on
from rankcore.residency.ever import has_labels, in_words, why_not
from rankcore.residency.fit import degree_on, share
from rankcore.residency.index import Shape
from rankcore.residency.ledger import Ledger
from rankcore.residency.notes import CantAccommodate, NodeReason, ReasonCount
from rankcore.residency.room import degrees_of
from rankcore.values import NodeId, ReplicaId

SHOWN_MAX = 20

NO_LABELS = "it lacks the labels that are asked for"
TOO_SMALL = "its GPUs are too small or too few"
SPREAD = "a replica of this model is there"
AVOIDED = "what it has of this model could not be loaded"
OVERFULL = "it holds less than it said, and those who leave for that have not left"
TOO_LITTLE = "too little is free, and too little may be displaced"


def reasons_of(ledger: Ledger, need: Need, replica_id: ReplicaId) -> CantAccommodate:
    """The reasons of the nodes that come closest; the others are counted."""
    shown = list(islice(_closest_first(ledger, need), SHOWN_MAX))
    reasons = tuple(NodeReason(node_id, _why(ledger, need, node_id)) for node_id in shown)
    return CantAccommodate(need.spec.model, replica_id, reasons, _others(ledger, need, shown))


def _closest_first(ledger: Ledger, need: Need) -> Iterator[NodeId]:
    """Each node once: those that are large enough by what is free there, then the too small ones, then the wrong ones."""
    large, small = [], []
    for shape in need.shapes:
        degrees = degrees_of(shape, need.spec, need.total_bytes)
        if degrees:
            large.append(iter(ledger.shelf(shape, degrees[0]).cheap))
        else:
            small.append(shape)
    yield from (node_id for _, node_id in merge(*large))
    for shape in small:
        yield from ledger.room.shapes[shape]
    for shape in ledger.shapes():
        if shape not in need.shapes:
            yield from ledger.room.shapes[shape]


def _why(ledger: Ledger, need: Need, node_id: NodeId) -> str:
    node = ledger.nodes[node_id]
    never = why_not(node, need.spec, need.total_bytes)
    if node_id in need.excluded and has_labels(node.labels, need.spec):
        return _why_excluded(need, node_id)
    if never is not None:
        return never
    degree = degree_on(node, need.spec, need.total_bytes)
    assert degree is not None, f"{node_id} could hold it empty"
    short = shortfalls(node, share(need.spec, need.total_bytes, degree))
    if len(short) < degree:
        return OVERFULL
    closest = sorted((lack, gpu) for gpu, lack in short.items())[:degree]
    movable = sum([victim.held.get(gpu, 0) for victim in victims_on(node_id, ledger, need) for _, gpu in closest])
    lack = sum([lack for lack, _ in closest])
    wanted = f"{degree} x {in_words(share(need.spec, need.total_bytes, degree))}"
    return f"{wanted}: {in_words(lack)} too little is free, {in_words(movable)} there may be displaced"


def _others(ledger: Ledger, need: Need, shown: list[NodeId]) -> tuple[ReasonCount, ...]:
    counts: Counter[str] = Counter()
    for shape in ledger.shapes():
        counts[_why_shape(need, shape)] += len(ledger.room.shapes[shape])
    for node_id in need.excluded:
        reason = _why_shape(need, ledger.room.shown[node_id].shape)
        if reason == TOO_LITTLE:
            counts[reason] -= 1
            counts[_why_excluded(need, node_id)] += 1
    for node_id in shown:
        reason = _why_shape(need, ledger.room.shown[node_id].shape)
        counts[_why_excluded(need, node_id) if reason == TOO_LITTLE and node_id in need.excluded else reason] -= 1
    return tuple(ReasonCount(reason, count) for reason, count in sorted(counts.items()) if count)


def _why_excluded(need: Need, node_id: NodeId) -> str:
    return AVOIDED if node_id in need.spec.avoids else SPREAD


def _why_shape(need: Need, shape: Shape) -> str:
    if shape not in need.shapes:
        return NO_LABELS
    return TOO_LITTLE if degrees_of(shape, need.spec, need.total_bytes) else TOO_SMALL
