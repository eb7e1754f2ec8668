"""Every reachable state of one or two deployments in a cluster: the exhaustive checker for P2, P6 and the writer of targets.

A world holds the cluster's state, the commands that are not carried out yet, records on their way to the store and in it, and
the processes. An adversary applies, scales and deletes, lets records land late or never, ends replicas, and crashes the
controller before any command: what was on its way to the store still lands, at any time, also after a successor has read it.
`ClusterSystem` says so to `rankcore.testing.explore`.

    >>> search = explored(ClusterSystem(SYSTEMS["cluster-update"]))
    >>> search.done, search.broken
    (True, None)

What is checked beside the promises of `rankcore.cluster.invariants`: a successor adopts, of each deployment, a record that is
at least as new as any on which a command rests that was carried out. What a command rests on is worked out here, and not taken
from the machine: the newest record at the time when version, failure, deletion or the user's target last changed.
"""

from rankcore.testing.model_cluster.bounds import SYSTEMS, ClusterBounds
from rankcore.testing.model_cluster.system import ClusterSystem, replay
from rankcore.testing.model_cluster.world import ClusterWorld, make, moves, root

__all__ = ["SYSTEMS", "ClusterBounds", "ClusterSystem", "ClusterWorld", "make", "moves", "replay", "root"]
