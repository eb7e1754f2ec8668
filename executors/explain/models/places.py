"""Where each replica's weights are, learnt from a fleet's journal line by line."""

from collections.abc import Iterable
from enum import StrEnum

import attrs

from executors.explain.facts import Fact
from executors.explain.wording import listed, plural
from executors.simulator.times import TENTHS, moment
from rankcore.dispatching import FleetImage
from rankcore.residency import Level
from rankcore.residency.commands import DropFromCpu, LoadToGpu, OffloadToCpu, UnloadFromGpu
from rankcore.residency.levels import Phase
from rankcore.residency.state import Resident
from rankcore.values import NodeId, ReplicaId, age_key

Move = LoadToGpu | OffloadToCpu | UnloadFromGpu | DropFromCpu
NODES_MAX = 20
"""So many nodes a picture of a moment shows."""


class Stay(StrEnum):
    """How a replica is there."""

    COLD = "is COLD: its weights are on disk only"
    WAITS = "waits for a place"
    RESERVED = "is to be HOT"
    LOADING = "is being loaded"
    HOT = "is HOT"
    LEAVING = "is leaving"
    WARM = "is WARM, in CPU memory"


ON_GPUS = (Stay.HOT, Stay.LOADING, Stay.LEAVING, Stay.RESERVED)
UNSETTLED = (Stay.WAITS, Stay.RESERVED, Stay.LOADING, Stay.LEAVING)
_STAYS = {Phase.WAITING: Stay.WAITS, Phase.RESERVING: Stay.RESERVED, Phase.LOADING: Stay.LOADING} | {
    Phase.SERVING: Stay.HOT,
    Phase.LEAVING: Stay.LEAVING,
    Phase.DROPPING: Stay.WARM,
}


@attrs.define(kw_only=True)
class Place:
    """One replica.

    Attributes:
        since: When it came to stay so.
        move: Of the newest load that it was told.
        because: Why it is there, in words; empty: nobody said.
        placed: Why it was to be HOT; None: it is not, or nobody said.
        left: Why it left the GPUs; None: it did not, or nobody said.
        last: The newest fact about it.
    """

    model: str
    stay: Stay = Stay.COLD
    node_id: NodeId | None = None
    gpus: tuple[int, ...] = ()
    since: float = 0.0
    move: int = 0
    because: str = ""
    placed: Fact | None = None
    left: Fact | None = None
    last: Fact | None = None

    def becomes(self, stay: Stay, at: float, node_id: NodeId | None = None, because: str = "") -> None:
        """From now on it stays so; where, and why."""
        self.stay, self.since, self.because = stay, at, because
        if node_id is not None:
            self.node_id = node_id
        if stay in (Stay.COLD, Stay.WAITS, Stay.WARM):
            self.gpus = ()
        if stay in (Stay.COLD, Stay.WAITS):
            self.node_id = None

    @property
    def where(self) -> str:
        """Its node and GPUs, in words; empty: nowhere."""
        gpus = f", GPU{'s' if len(self.gpus) > 1 else ''} {listed(map(str, self.gpus))}" if self.gpus else ""
        return f" on {self.node_id}{gpus}" if self.node_id is not None else ""


class Places:
    """All replicas and nodes that were ever heard of.

    Attributes:
        replicas: By id.
        nodes: Those that are there, in the order in which they came.
        models: Every model that was named.
        clock: The latest time so far, in seconds.
    """

    def __init__(self) -> None:
        self.replicas: dict[ReplicaId, Place] = {}
        self.nodes: dict[NodeId, None] = {}
        self.models: dict[str, None] = {}
        self.clock = 0.0

    def begin(self, image: FleetImage) -> None:
        """What follows begins with this state."""
        self.replicas = {replica_id: _place_of(each) for replica_id, each in sorted(image.residency.replicas.items())}
        self.nodes = dict.fromkeys(sorted(image.residency.nodes))
        self.models.update(dict.fromkeys(sorted(image.models)))

    def of(self, replica_id: ReplicaId, model: str | None = None) -> Place:
        """A replica's place; that of one that was never heard of is new."""
        if replica_id not in self.replicas:
            self.replicas[replica_id] = Place(model=model or replica_id.rpartition("#")[0])
        return self.replicas[replica_id]

    def of_model(self, model: str) -> dict[ReplicaId, Place]:
        """Of all its replicas."""
        return {each: self.replicas[each] for each in sorted(self.replicas, key=age_key) if self.replicas[each].model == model}


def replica_lines(replicas: Iterable[tuple[ReplicaId, Place]]) -> list[str]:
    """How these stand, one a line."""
    return [
        f"{replica_id} {place.stay.value}{place.where}, since {moment(place.since, TENTHS)}"
        + (f": {place.because}" if place.because else "")
        for replica_id, place in replicas
    ]


def node_lines(places: Places) -> list[str]:
    """What is on each node, and who waits."""
    found = []
    for node_id in list(places.nodes)[:NODES_MAX]:
        there = [(each, place) for each, place in places.replicas.items() if place.node_id == node_id]
        on_gpus = [f"{each}{_short(place)}" for each, place in there if place.stay in ON_GPUS]
        cached = [each for each, place in there if place.stay is Stay.WARM]
        found.append(f"{node_id}: {listed(on_gpus) or 'nothing on its GPUs'}" + (f"; WARM: {listed(cached)}" if cached else ""))
    if len(places.nodes) > NODES_MAX:
        found.append(f"and {plural(len(places.nodes) - NODES_MAX, 'node')} more")
    waiting = [each for each, place in places.replicas.items() if place.stay is Stay.WAITS]
    return [*found, f"wait for a place: {listed(waiting)}"] if waiting else found


def _short(place: Place) -> str:
    return "" if place.stay is Stay.HOT else f" ({place.stay.value})"


def _place_of(record: Resident) -> Place:
    resting = Stay.WARM if record.level is Level.WARM else Stay.COLD
    stay = _STAYS.get(record.phase, resting)
    return Place(
        model=record.model,
        stay=stay,
        node_id=record.node_id,
        gpus=record.gpus,
        since=record.since,
        move=record.move,
        because=record.because,
    )
