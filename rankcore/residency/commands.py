"""What a planner of residency asks for: one frozen class each, in the imperative, to be carried out in this order."""

from typing import TypeAlias

from msgspec import Struct

from rankcore import kernel
from rankcore.residency.levels import Level
from rankcore.values import NodeId, ReplicaId


class LoadToGpu(Struct, frozen=True, kw_only=True, gc=False):
    """Bring a replica's weights to GPUs; answer `LoadFinished` or `LoadFailed` with the same `move`.

    Attributes:
        gpus: Their numbers on the node, ascending.
        gpu_bytes: What it may take on each of them.
        source: WARM: from its copy in this node's CPU memory, which is given up once it is HOT. COLD: from disk.
        version: What is loaded has to be that; "": the executor knows it by the model.
    """

    replica_id: ReplicaId
    model: str
    node_id: NodeId
    gpus: tuple[int, ...]
    gpu_bytes: tuple[int, ...]
    source: Level
    move: int
    version: str = ""


class OffloadToCpu(Struct, frozen=True, kw_only=True, gc=False):
    """Take no more requests, finish those in flight, copy the weights to CPU memory, free the GPUs.

    Answer `OffloadFinished` or `OffloadFailed` with the same `move`.

    Attributes:
        cpu_bytes: What the copy may take.
        timeout_s: For how long requests may be finished.
    """

    replica_id: ReplicaId
    node_id: NodeId
    cpu_bytes: int
    timeout_s: float
    move: int


class UnloadFromGpu(Struct, frozen=True, kw_only=True, gc=False):
    """Likewise, but no copy is made; a load that is under way is broken off.

    Attributes:
        timeout_s: For how long requests may be finished.
        keep_copy: There is a WARM copy on this node that the load came from, and it stays; False: nothing does.
    """

    replica_id: ReplicaId
    node_id: NodeId
    timeout_s: float
    move: int
    keep_copy: bool = False


class DropFromCpu(Struct, frozen=True, kw_only=True, gc=False):
    """Free a WARM copy; answer `OffloadFinished` or `OffloadFailed` with the same `move`."""

    replica_id: ReplicaId
    node_id: NodeId
    move: int


WakeAt = kernel.WakeAt
Command: TypeAlias = LoadToGpu | OffloadToCpu | UnloadFromGpu | DropFromCpu | WakeAt
