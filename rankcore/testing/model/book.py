"""What one state of the controller mentions, found once for all the worlds that share it."""

from functools import lru_cache

from rankcore.state import DeploymentState
from rankcore.values import ReplicaId, age_key

INSTANT_S = 2.0**-10
"""Between two things of which the order matters, within one second."""

age = lru_cache(maxsize=65_536)(age_key)
"""Orders replica ids; a world names the same few again and again."""


def instant_of(at: float) -> float:
    """Which of the instants it was, whichever the second; those of later seconds are never lower."""
    return at % 1.0


class Book:
    """What one state of the controller mentions, and how it reads under the names that worlds have given so far.

    Attributes:
        state: Which one.
        ids: Of its replicas, and of those that were named to be stopped.
        revisions: Of its replicas.
        nodes: Those that it knows, in the order in which it came to know them.
        marks: The instants that news is compared with: what is known of nodes and bundles since when.
        heard: The same of replicas, since when it is known whether they are ready.
        read: By the names that matter to it.
    """

    def __init__(self, state: DeploymentState) -> None:
        self.state = state
        self.ids: tuple[ReplicaId, ...] = tuple(sorted(state.replicas, key=age))
        self.revisions = tuple(sorted({replica.revision for replica in state.replicas.values()}))
        self.nodes = tuple(sorted(state.nodes, key=lambda node_id: state.nodes[node_id].index))
        bundles = state.tables.bundles
        marks = [at for node in state.nodes.values() for at in (node.lost_at, node.capacity_at, node.cordon_at)]
        marks.append(state.tables.evictions.forgotten_at)
        if bundles.group_id is not None:
            marks += [bundles.since, *(news.at for _, news in bundles.news.items())]
        self.marks = frozenset(instant_of(at) for at in marks if at >= 0.0)
        self.heard = frozenset(instant_of(each.readiness_at) for each in state.replicas.values() if each.readiness_at >= 0.0)
        self.read: dict[object, bytes] = {}
