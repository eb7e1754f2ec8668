"""What is derived from the books of a planner, so that no step has to scan them. docs/residency.md says what it is for."""

from typing import NamedTuple, TypeAlias

from msgspec import Struct

from rankcore.frozen import EMPTY, PMap
from rankcore.ordered import Ordered
from rankcore.values import NodeId, ReplicaId

Shape: TypeAlias = tuple[tuple[tuple[str, str], ...], tuple[int, ...]]
"""Labels, and the sizes of the GPUs to five bits, largest first. Nodes of one shape are looked through together."""


class Roster(Struct, frozen=True, kw_only=True, gc=False):
    """Who is where, and what falls due when.

    Attributes:
        on_gpus: Who has a place on the GPUs of a node, ids ascending.
        copies: Who holds bytes in the CPU memory of a node, likewise.
        groups: The serial numbers of the replicas of a model in a `roster.Group`.
        timers: (due, replica): replicas that will have been idle for too long.
        ages: (due, replica): who will have been HOT for its minimum time.
    """

    on_gpus: PMap[NodeId, tuple[ReplicaId, ...]] = EMPTY
    copies: PMap[NodeId, tuple[ReplicaId, ...]] = EMPTY
    groups: PMap[tuple[str, str], Ordered[int]] = EMPTY
    timers: Ordered[tuple[float, ReplicaId]] = Ordered()
    ages: Ordered[tuple[float, ReplicaId]] = Ordered()


class Kind(NamedTuple):
    """What models have in common that wait for the same room, but for its size.

    Attributes:
        gpus: `ModelSpec.gpus`.
        labels: `ModelSpec.node_labels`, in order.
        shards: `ModelSpec.shard_bytes`.
    """

    priority: int
    dedicated: bool
    gpus: int | None
    labels: tuple[tuple[str, str], ...]
    shards: tuple[tuple[int, int], ...] = ()


class Lack(Struct, frozen=True, gc=False):
    """What the replicas of one model lack that are to be tried again where room appears.

    Attributes:
        asked: The number of the model's request.
        sizes: (bytes on all GPUs together, serial number) of each of them.
        since: (serial number, since when it waits) of each of them.
    """

    kind: Kind
    asked: int
    sizes: Ordered[tuple[int, int]] = Ordered()
    since: Ordered[tuple[int, float]] = Ordered()


class Queue(Struct, frozen=True, kw_only=True, gc=False):
    """Who waits for room, by what would do, and in line.

    Attributes:
        lacks: By model.
        sizes: (bytes, request, model), by kind: each size that a model lacks.
        line: (since, model), by priority: since when the oldest of each model waits. In here those come first that are before
            others in line, whatever time it is.
    """

    lacks: PMap[str, Lack] = EMPTY
    sizes: PMap[Kind, Ordered[tuple[int, int, str]]] = EMPTY
    line: PMap[int, Ordered[tuple[float, str]]] = EMPTY


class Shelf(Struct, frozen=True, gc=False):
    """The nodes of one shape, by the room that they have for replicas on k GPUs.

    Attributes:
        fits: (a, s, node): k free places there have at least `a` bytes free each, and `s` together; one for each `a`.
        cheap: (x, node): whoever needs b bytes on each of k GPUs displaces others there at a cost of at least k * b + x.
        ripe: (x, node): likewise, where somebody's turn is over, of those alone of whom it is.
        fresh: (x, node): as `ripe`, at least k * b + x less what recent use has faded by since time 0.
    """

    fits: Ordered[tuple[int, int, NodeId]] = Ordered()
    cheap: Ordered[tuple[int, NodeId]] = Ordered()
    ripe: Ordered[tuple[int, NodeId]] = Ordered()
    fresh: Ordered[tuple[int, NodeId]] = Ordered()


class Row(Struct, frozen=True, gc=False):
    """What one node has on a shelf; None: nobody's turn is over there."""

    fits: tuple[tuple[int, int], ...]
    cheap: int
    ripe: int | None
    fresh: int | None


class Shown(Struct, frozen=True, gc=False):
    """What the shelves show of a node: a row for each of `Room.degrees`; None: it has fewer GPUs."""

    shape: Shape
    rows: tuple[Row | None, ...]


class Room(Struct, frozen=True, kw_only=True, gc=False):
    """Where there is room, and where it would be cheap to make some.

    Attributes:
        degrees: The numbers of GPUs that anybody has looked for: shelves exist for these.
        shapes: The nodes of a shape.
        shown: What is on the shelves, by node.
        shelves: By shape and degree.
    """

    degrees: tuple[int, ...] = ()
    shapes: PMap[Shape, Ordered[NodeId]] = EMPTY
    shown: PMap[NodeId, Shown] = EMPTY
    shelves: PMap[tuple[Shape, int], Shelf] = EMPTY


class Index(Struct, frozen=True, kw_only=True, gc=False):
    """All of it."""

    roster: Roster = Roster()
    queue: Queue = Queue()
    room: Room = Room()
