"""Where there is room, and where it would be cheap to make some: shelves of nodes, kept up to date as nodes change.

A shelf answers in the order of the answer: the tightest fit first, or the least possible cost first, so whoever looks can
stop as soon as nothing better can follow.
"""

from collections.abc import Sequence
from itertools import accumulate

from rankcore.frozen import PMap
from rankcore.ordered import Ordered, ordered
from rankcore.residency.fit import fewest_gpus, is_listed, share
from rankcore.residency.index import Room, Row, Shape, Shelf, Shown
from rankcore.residency.levels import Phase
from rankcore.residency.roster import is_over
from rankcore.residency.spec import ModelSpec, ResidencyPolicy
from rankcore.residency.state import ResidencyNode, Resident
from rankcore.values import NodeId, ReplicaId

NOBODY_TO_DISPLACE = 2**60
"""More than any cost: where it stands on a shelf, nothing can be gained."""
HELD = (Phase.SERVING, Phase.LOADING)
"""Who is in one of these may be displaced: who is being loaded by a higher priority alone (T16), for which no turn counts."""
SIZE_DIGITS = 5
"""Leading bits of a capacity that count for a shape: 16 sizes an octave."""


class Books:
    """What a room is derived from: the tables of the step that runs."""

    __slots__ = ("clock", "models", "nodes", "on_gpus", "policy", "replicas")

    def __init__(
        self,
        nodes: PMap[NodeId, ResidencyNode],
        replicas: PMap[ReplicaId, Resident],
        models: PMap[str, ModelSpec],
        on_gpus: PMap[NodeId, tuple[ReplicaId, ...]],
        policy: ResidencyPolicy,
        clock: float,
    ) -> None:
        self.nodes = nodes
        self.replicas = replicas
        self.models = models
        self.on_gpus = on_gpus
        self.policy = policy
        self.clock = clock


class RoomDraft:
    """A room that is changed in place while a step runs."""

    def __init__(self, room: Room) -> None:
        self.degrees = room.degrees
        self.shapes = room.shapes
        self.shown = room.shown
        self.shelves = room.shelves

    def freeze(self) -> Room:
        """The same as a value."""
        return Room(degrees=self.degrees, shapes=self.shapes, shown=self.shown, shelves=self.shelves)

    def refresh(self, node_id: NodeId, books: Books) -> None:
        """Show a node as it is now."""
        old = self.shown.get(node_id)
        node = books.nodes.get(node_id)
        new = Shown(shape_of(node), rows_of(node, books, self.degrees)) if node is not None else None
        if old == new:
            return
        if old is None or new is None or old.shape != new.shape:
            self._reshape(node_id, old, new)
            for shown, take in ((old, True), (new, False)):
                if shown is not None:
                    for degree, row in zip(self.degrees, shown.rows, strict=True):
                        self._replace(shown.shape, degree, node_id, row if take else None, None if take else row)
        else:
            for degree, before, after in zip(self.degrees, old.rows, new.rows, strict=True):
                self._replace(new.shape, degree, node_id, before, after)
        self.shown = self.shown.set(node_id, new) if new is not None else self.shown.delete(node_id)

    def shelf(self, shape: Shape, degree: int, books: Books) -> Shelf:
        """The nodes of a shape by their room for so many GPUs. The first that asks for a number of GPUs waits for O(nodes)."""
        if degree not in self.degrees:
            self._add_degree(degree, books)
        return self.shelves.get((shape, degree), EMPTY_SHELF)

    def _reshape(self, node_id: NodeId, old: Shown | None, new: Shown | None) -> None:
        if old is not None:
            left = self.shapes[old.shape].discard(node_id)
            self.shapes = self.shapes.set(old.shape, left) if left else self.shapes.delete(old.shape)
        if new is not None:
            self.shapes = self.shapes.set(new.shape, self.shapes.get(new.shape, NO_NODES).add(node_id))

    def _replace(self, shape: Shape, degree: int, node_id: NodeId, before: Row | None, after: Row | None) -> None:
        if before == after:
            return
        shelf = self.shelves.get((shape, degree), EMPTY_SHELF)
        fits, cheap, ripe, fresh = shelf.fits, shelf.cheap, shelf.ripe, shelf.fresh
        old_fits = before.fits if before is not None else ()
        new_fits = after.fits if after is not None else ()
        if old_fits != new_fits:
            for least, total in old_fits:
                if (least, total) not in new_fits:
                    fits = fits.discard((least, total, node_id))
            for least, total in new_fits:
                if (least, total) not in old_fits:
                    fits = fits.add((least, total, node_id))
        if before is not None:
            cheap = cheap.discard((before.cheap, node_id))
            if before.ripe is not None and before.fresh is not None:
                ripe, fresh = ripe.discard((before.ripe, node_id)), fresh.discard((before.fresh, node_id))
        if after is not None:
            cheap = cheap.add((after.cheap, node_id))
            if after.ripe is not None and after.fresh is not None:
                ripe, fresh = ripe.add((after.ripe, node_id)), fresh.add((after.fresh, node_id))
        changed = Shelf(fits, cheap, ripe, fresh)
        key = (shape, degree)
        self.shelves = self.shelves.set(key, changed) if cheap else self.shelves.delete(key)

    def _add_degree(self, degree: int, books: Books) -> None:
        self.degrees = (*self.degrees, degree)
        shown, by_shape = self.shown.mutate(), dict[Shape, list[tuple[NodeId, Row]]]()
        for node_id, each in self.shown.items():
            row = rows_of(books.nodes[node_id], books, (degree,))[0]
            shown[node_id] = Shown(each.shape, (*each.rows, row))
            if row is not None:
                by_shape.setdefault(each.shape, []).append((node_id, row))
        self.shown = shown.finish()
        for shape, rows in by_shape.items():
            self.shelves = self.shelves.set((shape, degree), _shelf_of(rows))


EMPTY_SHELF = Shelf()
NO_NODES: Ordered[NodeId] = Ordered()


def shape_of(node: ResidencyNode) -> Shape:
    """Labels, and the sizes of the GPUs to five bits, largest first."""
    sizes = sorted((_size_class(gpu.real_bytes) for gpu in node.gpus), reverse=True)
    return tuple(sorted(node.labels.items())), tuple(sizes)


def degrees_of(shape: Shape, spec: ModelSpec, total_bytes: int) -> Sequence[int]:
    """On how many GPUs of a node of this shape a replica may have to be: one number, or a few where sizes are on the brink."""
    least = shape[1]
    if spec.gpus is not None:
        suffice = spec.gpus <= len(least) and _size_above(least[spec.gpus - 1]) >= share(spec, total_bytes, spec.gpus)
        return (spec.gpus,) if suffice else ()
    lowest = fewest_gpus([_size_above(size) for size in least], spec, total_bytes)
    if lowest is None:
        return ()
    highest = fewest_gpus(least, spec, total_bytes)
    upto = highest if highest is not None else len(least)
    return [degree for degree in range(lowest, upto + 1) if is_listed(spec, degree)]


def labels_of(shape: Shape) -> tuple[tuple[str, str], ...]:
    """What the nodes of a shape are labelled."""
    return shape[0]


def rows_of(node: ResidencyNode, books: Books, degrees: tuple[int, ...]) -> tuple[Row | None, ...]:
    """What shelves show of a node."""
    free = sorted([gpu.free_bytes for gpu in node.gpus])
    sums = list(accumulate(free, initial=0))
    burdens = _least_burdens(node.node_id, books)
    return tuple([_row(free, sums, degree, *burdens) for degree in degrees])


def _row(free: list[int], sums: list[int], degree: int, steady: int, ripe: int, fading: int) -> Row | None:
    last = len(free) - degree
    if last < 0:
        return None
    fits = [
        (free[at], sums[at + degree] - sums[at]) for at in range(last + 1) if free[at] and (not at or free[at] != free[at - 1])
    ]
    most = sums[-1] - sums[last]
    if ripe == NOBODY_TO_DISPLACE:
        return Row(tuple(fits), steady - most, None, None)
    return Row(tuple(fits), steady - most, ripe - most, fading - most)


def _least_burdens(node_id: NodeId, books: Books) -> tuple[int, int, int]:
    """Bounds for what any victim there weighs beyond its bytes, as if none was used; of those whose turn is over as if none
    was, and as if all were used at time 0.
    """
    steady = ripe = fading = NOBODY_TO_DISPLACE
    policy = books.policy
    for replica_id in books.on_gpus.get(node_id, ()):
        record = books.replicas[replica_id]
        spec = books.models[record.model]
        if record.phase in HELD and not spec.dedicated:
            burden = record.in_flight * policy.in_flight_cost_bytes
            if spec.priority:
                burden += record.held_bytes * spec.priority
            steady = min(steady, burden)
            if is_over(record, spec, books.clock):
                recent = int(policy.recent_cost_bytes * (1.0 + record.last_used / policy.recent_use_s))
                ripe, fading = min(ripe, burden), min(fading, burden + recent)
    return steady, ripe, fading


def _shelf_of(rows: list[tuple[NodeId, Row]]) -> Shelf:
    fits: Ordered[tuple[int, int, NodeId]] = ordered((*fit, node_id) for node_id, row in rows for fit in row.fits)
    cheap = ordered((row.cheap, node_id) for node_id, row in rows)
    ripe = ordered((row.ripe, node_id) for node_id, row in rows if row.ripe is not None)
    return Shelf(fits, cheap, ripe, ordered((row.fresh, node_id) for node_id, row in rows if row.fresh is not None))


def _size_class(size: int) -> int:
    shift = max(0, size.bit_length() - SIZE_DIGITS)
    return size >> shift << shift


def _size_above(size_class: int) -> int:
    """The largest capacity of a class."""
    return size_class + (1 << max(0, size_class.bit_length() - SIZE_DIGITS)) - 1
