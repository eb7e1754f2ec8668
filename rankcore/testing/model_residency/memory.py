"""Whose weights really are in which memory, whatever the planner's books say."""

from collections.abc import Callable, Iterator
from typing import TypeAlias

import attrs

from rankcore.kernel import Violation
from rankcore.residency import Level
from rankcore.residency.commands import DropFromCpu, LoadToGpu, OffloadToCpu, UnloadFromGpu
from rankcore.testing.model_residency.bounds import ResidencyBounds

Place: TypeAlias = tuple[str, int | None]
"""A node, and the number of a GPU; None: its CPU memory."""


@attrs.frozen
class TakenMemory:
    """What is taken.

    Attributes:
        taken: Who takes how many bytes where: from the moment a load or a copy begins until it has been undone.
        amiss: What was asked for that cannot be.
    """

    taken: tuple[tuple[str, Place, int], ...] = ()
    amiss: tuple[str, ...] = ()

    def begun(self, command: LoadToGpu | OffloadToCpu | UnloadFromGpu | DropFromCpu) -> "TakenMemory":
        """A load, or a copy, takes its memory when it begins."""
        taken, amiss = set(self.taken), self.amiss
        if isinstance(command, LoadToGpu):
            for gpu, nbytes in zip(command.gpus, command.gpu_bytes, strict=True):
                taken.add((command.replica_id, (command.node_id, gpu), nbytes))
            if command.source is Level.WARM and not self._has(command.replica_id, (command.node_id, None)):
                amiss = (*amiss, f"{command.replica_id} has no copy on {command.node_id} to be loaded from")
        elif isinstance(command, OffloadToCpu):
            taken.add((command.replica_id, (command.node_id, None), command.cpu_bytes))
        return _memory(taken, amiss)

    def done(self, command: LoadToGpu | OffloadToCpu | UnloadFromGpu | DropFromCpu) -> "TakenMemory":
        """What has been left is free; a copy that was loaded is given up."""
        if isinstance(command, LoadToGpu | DropFromCpu):
            return self.without(lambda who, place: who == command.replica_id and place == (command.node_id, None))
        return self.without(lambda who, place: who == command.replica_id and place[1] is not None)

    def failed(self, command: LoadToGpu | OffloadToCpu | UnloadFromGpu | DropFromCpu) -> "TakenMemory":
        """A load that fails leaves the copy that it came from; what fails to leave leaves nothing."""
        if isinstance(command, LoadToGpu):
            return self.without(lambda who, place: who == command.replica_id and place[1] is not None)
        return self.without(lambda who, place: who == command.replica_id and place[0] == command.node_id)

    def without(self, left: Callable[[str, Place], bool]) -> "TakenMemory":
        """What is taken but for some."""
        return _memory({each for each in self.taken if not left(each[0], each[1])}, self.amiss)

    def check(self, bounds: ResidencyBounds) -> Iterator[Violation]:
        """T1 as the machines see it, and T2: a replica has weights on the GPUs of one node."""
        for words in self.amiss:
            yield Violation("T2", words)
        used: dict[Place, int] = {}
        on_gpus: dict[str, set[str]] = {}
        for who, place, nbytes in self.taken:
            used[place] = used.get(place, 0) + nbytes
            if place[1] is not None:
                on_gpus.setdefault(who, set()).add(place[0])
        for place in sorted(used, key=repr):
            node = bounds.nodes[int(place[0].removeprefix("n"))]
            capacity = node.cpu_bytes if place[1] is None else node.gpu_bytes[place[1]]
            if used[place] > capacity:
                yield Violation("T1", f"{used[place]} of {capacity} bytes are taken at {place}")
        for who, nodes in sorted(on_gpus.items()):
            if len(nodes) > 1:
                yield Violation("T2", f"{who} is on GPUs of {', '.join(sorted(nodes))}")

    def _has(self, replica_id: str, place: Place) -> bool:
        return any(each[:2] == (replica_id, place) for each in self.taken)


def _memory(taken: set[tuple[str, Place, int]], amiss: tuple[str, ...]) -> TakenMemory:
    return TakenMemory(tuple(sorted(taken, key=repr)), amiss)
