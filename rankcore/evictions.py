"""What is to be taken away from where it is: nodes that are cordoned or drained, and replicas that are asked to be replaced.

Records of a state; `rankcore.rules.evict` has the rule, and the theory.
"""

from msgspec import Struct

from rankcore.events import NodeDrainRequested
from rankcore.frozen import EMPTY, PMap
from rankcore.rankset import RankSet
from rankcore.timers import Queue
from rankcore.values import NodeId, ReplicaId


class Drain(Struct, frozen=True, gc=False):
    """A node is to be left by all.

    Attributes:
        deadline_at: Nobody is to be there any more from then on; None: there is time.
        reason: Shown while it lasts: "drain", "preemption", or what the caller says.
        since: When it was asked for first.
        final: Whether the node is gone by the deadline, whatever anybody wants.
    """

    deadline_at: float | None
    reason: str
    since: float
    final: bool = False


def deadline_of_both(known: Drain | NodeDrainRequested | None, request: NodeDrainRequested) -> float | None:
    """Until when a node is to be left, of which this was known: what is asked for later holds, but nobody puts off the end of a
    node that is final, nor has to wait for it.
    """
    if known is None or not (known.final or request.final):
        return request.deadline_at
    return min((each for each in (known.deadline_at, request.deadline_at) if each is not None), default=None)


class Eviction(Struct, frozen=True, gc=False):
    """A replica is to be replaced, with its own rank.

    Attributes:
        since: When it was asked for: who was asked first goes first.
        deadline_at: Of its own; that of its node counts besides. None: there is time.
        with_node: Whether its node is the reason, so that it may stay once that is uncordoned.
    """

    since: float
    deadline_at: float | None = None
    with_node: bool = False


class Departed(Struct, frozen=True, gc=False):
    """A node that was lost, and is to be forgotten some time.

    Attributes:
        lost_at: Which of its losses this is.
        births: Older replicas may still be on their way there.
        at: When it was last looked at, on the state's clock.
    """

    node_id: NodeId
    lost_at: float
    births: int
    at: float


class EvictionTables(Struct, frozen=True, gc=False):
    """Who is to be replaced, and which nodes are to be forgotten. Stays as it is, empty, while nobody and none is.

    Attributes:
        asked: By replica, until it has ended or is asked for no more.
        ranks: Slots whose holder is one of these and was not told to go yet.
        departed: Lost nodes, the first to be forgotten first.
        forgotten_at: The last loss of a node that is forgotten; news of an unknown node up to then is late.
    """

    asked: PMap[ReplicaId, Eviction] = EMPTY
    ranks: RankSet = RankSet()
    departed: Queue[Departed] = Queue()
    forgotten_at: float = -1.0
