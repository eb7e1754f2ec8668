"""The target: the one place where it is written (A1, R9).

How many replicas a deployment is to have is wanted by several: the user, the autoscaler, and whatever takes replicas away.
Each write has a cause and a number. What is decided about an earlier number is late, or an answer that was on its way while
a replica was taken would ask for that very replica again, and displace what it was taken for.

| cause | writes |
|---|---|
| user | what is applied, where it differs from what was applied before; what `ScaleRequested` says, without an autoscaler |
| autoscaler | what the load calls for, if the target still has the number that it looked at; within `max_replicas` and |
| | `min_replicas`, or within what is left where replicas were taken away below that |
| leave | the target less the replicas that `ReplicasLeave` took, as the ranks counted them |

A spec is compared with the last one *applied*, not with the present target: the same file again, after a replica was taken
away or the load has risen, changes nothing.

The order. A write becomes a `SpecChanged` of the deployment's ranks in the same step, except for leaving, where the ranks
machine has stopped exactly these replicas and lowered its target itself, and the write follows it.
"""

import attrs
from msgspec.structs import replace

from rankcore.autoscaling.spec import AutoscalingSpec
from rankcore.cluster.draft import ClusterDraft
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.notes import ClusterNoteKind
from rankcore.cluster.records import Cause
from rankcore.cluster.spec import EntrySpec
from rankcore.cluster.state import Entry, Target
from rankcore.events import SpecChanged
from rankcore.spec import DeploymentSpec
from rankcore.values import ReplicaId


def first(spec: EntrySpec) -> Target:
    """The target that a new deployment begins with."""
    if spec.autoscaling is not None:
        return Target(spec.autoscaling.first_target, Cause.USER)
    return Target(spec.ranks.target_replicas, Cause.USER)


def applied(entry: Entry, spec: EntrySpec) -> Target:
    """The target after another spec is applied."""
    target, before = entry.target, entry.spec
    if spec.autoscaling is not None:
        return written(target, spec.autoscaling.within_bounds(target.replicas), Cause.USER)
    same_wish = before.autoscaling is None and before.ranks.target_replicas == spec.ranks.target_replicas
    if same_wish and spec.ranks.static_placement is None:
        return target
    return written(target, spec.ranks.target_replicas, Cause.USER)


def written(target: Target, replicas: int, cause: Cause) -> Target:
    """The target after a write; the same where it says the same."""
    return target if replicas == target.replicas else Target(replicas, cause, target.number + 1)


def in_force(spec: EntrySpec, target: Target) -> DeploymentSpec:
    """What the ranks of a deployment are told."""
    if spec.ranks.target_replicas == target.replicas:
        return spec.ranks
    return attrs.evolve(spec.ranks, target_replicas=target.replicas)


def followed(entry: Entry) -> Entry:
    """After `ReplicasLeave`: the target that the ranks have left."""
    return replace(entry, target=written(entry.target, entry.ranks.spec.target_replicas, Cause.LEAVE))


def write(draft: ClusterDraft, deployment: DeploymentId, entry: Entry, replicas: int, cause: Cause, *first: ReplicaId) -> None:
    """Write the target of a deployment, and tell its ranks; `first` are whom a downscale stops before any other."""
    target = written(entry.target, replicas, cause)
    because = f"{entry.target.replicas} -> {replicas} by {cause}"
    draft.note(ClusterNoteKind.TARGET_WRITTEN, "R9", deployment, because)
    draft.put(deployment, replace(entry, target=target))
    spec = attrs.evolve(entry.ranks.spec, target_replicas=replicas)
    draft.worklist.add(deployment, SpecChanged(spec=spec, stop_first=first, at=draft.clock))


def bounds(target: Target, spec: AutoscalingSpec) -> AutoscalingSpec:
    """What the autoscaler has to keep to now."""
    if target.cause is Cause.LEAVE and target.replicas < spec.min_replicas:
        return attrs.evolve(spec, min_replicas=target.replicas, initial_replicas=None)
    return spec
