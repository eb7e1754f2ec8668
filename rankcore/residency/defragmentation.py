"""Defragmentation: moves that would let a model fit, with what they cost. A proposal; nothing carries it out by itself."""

from msgspec import Struct

from rankcore.residency.state import ResidencyState
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

    Args:
        state: Of the planner; it does not change.
        model: Which model; None: the largest one that waits.

    Raises:
        InvalidEventError: The model was never deployed.
    """
    raise NotImplementedError
