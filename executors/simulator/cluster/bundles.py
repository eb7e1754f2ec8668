"""Bundles of placement groups: reserved once and for all, lost with their node or by themselves, and back again."""

from collections.abc import Iterable, Sequence

import attrs

from executors.simulator.cluster.nodes import SimulatedNode
from executors.simulator.replicas.processes import SimulatedProcess
from rankcore.values import NodeId


@attrs.define(eq=False)
class SimulatedBundle:
    """A part of a node that somebody has reserved.

    Attributes:
        faults: For how many reasons it is gone beside those of its node.
    """

    index: int
    node: SimulatedNode
    gpus: int
    memory_mb: int
    faults: int = 0

    @property
    def there(self) -> bool:
        """Whether it exists: it goes with its node, and with a node whose lease has lapsed."""
        return self.node.up and not self.node.lapsed and self.faults == 0


class PlacementGroups:
    """Who stands on which bundle is up to the core; this lets a process begin once its first bundle can be used."""

    def __init__(self, groups: Iterable[tuple[str, Sequence[SimulatedBundle]]]) -> None:
        self._groups = {name: tuple(bundles) for name, bundles in groups}
        self._waiting: dict[SimulatedProcess, None] = {}
        for bundles in self._groups.values():
            for bundle in bundles:
                bundle.node.free_gpus -= bundle.gpus
                bundle.node.free_memory_mb -= bundle.memory_mb

    @property
    def names(self) -> tuple[str, ...]:
        """All groups."""
        return tuple(self._groups)

    def of(self, group: str) -> tuple[SimulatedBundle, ...]:
        """The bundles of a group, by index."""
        return self._groups[group]

    def on(self, node_id: NodeId, group: str) -> tuple[SimulatedBundle, ...]:
        """Those of them that are on a node."""
        return tuple(bundle for bundle in self._groups[group] if bundle.node.node_id == node_id)

    def gpus_of(self, process: SimulatedProcess) -> int:
        """What a replica has of its group: all of its bundles, whole."""
        return sum(bundle.gpus for bundle in self._bundles_of(process))

    def claim(self, process: SimulatedProcess) -> None:
        """Let it begin on its first bundle, now or when that is there and can be reached."""
        self._waiting[process] = None
        self.serve_waiting()

    def withdraw(self, process: SimulatedProcess) -> None:
        """It does not wait any more."""
        self._waiting.pop(process, None)

    def serve_waiting(self) -> None:
        """Let those begin whose first bundle can be used now."""
        for process in tuple(self._waiting):
            first = self._bundles_of(process)[0]
            if first.there and first.node.usable:
                del self._waiting[process]
                process.placed_on(first.node)

    def _bundles_of(self, process: SimulatedProcess) -> tuple[SimulatedBundle, ...]:
        group = self._groups[process.start.group_id or ""]
        return tuple(group[index] for index in process.start.bundles)
