"""The two life cycles, declared once as tables of (source, trigger, dest).

A replica moves when news about it arrives (an event) or when something is asked of it (a command). A deployment moves when
its state has come to a certain point (a `Milestone`). What has no row here is late or repeated news: it moves nothing.

`step` looks moves up in the flat dicts compiled from the same rows. The tables are checked, and `docs/lifecycle.md` is drawn,
with `transitions`, by a test and by what writes that page: nothing that runs needs it.
"""

from enum import StrEnum
from typing import TypeAlias

from rankcore.commands import InitializeReplica, KillReplica, PrepareReplica, ReconfigureReplica, StopReplica
from rankcore.events import (
    BundleRestored,
    DeleteRequested,
    NodeLost,
    ReplicaDied,
    ReplicaMissing,
    ReplicaPlaced,
    ReplicaPrepared,
    ReplicaReady,
    ReplicaReconfigured,
    ReplicaStartFailed,
    ReplicaStopped,
    SpecChanged,
)
from rankcore.values import DeploymentStatus, ReplicaState


class Report(StrEnum):
    """What a `ReplicaReported` amounts to."""

    SAYS_READY = "ReportedReady"
    SAYS_STARTING = "ReportedStarting"
    SAYS_PREPARED = "ReportedPrepared"
    SAYS_DRAINING = "ReportedDraining"


class Loss(StrEnum):
    """What a static placement adds to the end of a replica."""

    ENDED_WITHOUT_BUNDLE = "EndedWithoutBundle"


class Milestone(StrEnum):
    """What can move a deployment."""

    VERSION_CHANGED = "VersionChanged"
    PLACEMENT_CHANGED = "PlacementChanged"
    TARGET_RAISED = "TargetRaised"
    TARGET_LOWERED = "TargetLowered"
    SETTLED = "Settled"
    UNSETTLED = "Unsettled"
    BUNDLE_MISSED = "BundleMissed"
    STARTS_EXHAUSTED = "StartsExhausted"
    PROVEN = "Proven"
    DELETE_REQUESTED = "DeleteRequested"
    REPLICAS_GONE = "ReplicasGone"


Trigger: TypeAlias = "type[object] | Report | Loss | Milestone"

_R = ReplicaState
_ENDS = (ReplicaDied, ReplicaStopped, ReplicaStartFailed, ReplicaMissing, NodeLost)
_RANKLESS = (_R.REQUESTED, _R.PLACED, _R.PREPARING, _R.PREPARED)
_ALIVE = (*_RANKLESS, _R.STARTING, _R.RUNNING, _R.RECONFIGURING, _R.DRAINING, _R.RECOVERING)

REPLICA_ROWS: tuple[tuple[ReplicaState, "type[object] | Report | Loss", ReplicaState], ...] = (
    (_R.REQUESTED, ReplicaPlaced, _R.PLACED),
    (_R.PLACED, InitializeReplica, _R.STARTING),
    # Its user code comes up before its predecessor goes, and is told its rank after that.
    (_R.PLACED, PrepareReplica, _R.PREPARING),
    (_R.PREPARING, PrepareReplica, _R.PREPARING),
    (_R.PREPARING, ReplicaPrepared, _R.PREPARED),
    (_R.PREPARED, PrepareReplica, _R.PREPARING),
    (_R.PREPARED, InitializeReplica, _R.STARTING),
    (_R.STARTING, ReplicaReady, _R.RUNNING),
    (_R.RUNNING, ReconfigureReplica, _R.RECONFIGURING),
    (_R.RECONFIGURING, ReconfigureReplica, _R.RECONFIGURING),
    (_R.RECONFIGURING, ReplicaReconfigured, _R.RUNNING),
    # A controller came back and asks. A starting replica may be the loser of a duplicate, and is moved before it is ready.
    (_R.RECOVERING, Report.SAYS_READY, _R.RUNNING),
    (_R.RECOVERING, Report.SAYS_STARTING, _R.STARTING),
    (_R.RECOVERING, Report.SAYS_PREPARED, _R.PREPARED),
    (_R.RECOVERING, Report.SAYS_DRAINING, _R.DRAINING),
    (_R.STARTING, Report.SAYS_READY, _R.RUNNING),
    (_R.STARTING, ReconfigureReplica, _R.STARTING),
    (_R.STARTING, ReplicaReconfigured, _R.STARTING),
    # News of a replica that was told to go while it was on its way.
    (_R.DRAINING, ReplicaPlaced, _R.DRAINING),
    (_R.DRAINING, Report.SAYS_READY, _R.DRAINING),
    (_R.DRAINING, Report.SAYS_STARTING, _R.DRAINING),
    (_R.DRAINING, Report.SAYS_PREPARED, _R.DRAINING),
    (_R.DRAINING, Report.SAYS_DRAINING, _R.DRAINING),
    *((state, command, _R.DRAINING) for state in _ALIVE for command in (StopReplica, KillReplica)),
    *((state, end, _R.STOPPED) for state in _ALIVE for end in _ENDS),
    # A static placement has lost a bundle of its rank: its place is not taken until the bundle is back or another spec comes.
    *((state, Loss.ENDED_WITHOUT_BUNDLE, _R.FAILED) for state in _ALIVE),
    *((_R.FAILED, over, _R.STOPPED) for over in (BundleRestored, SpecChanged, DeleteRequested)),
)

_D = DeploymentStatus
_CHANGING = (_D.UPDATING, _D.UPSCALING, _D.DOWNSCALING)
_SERVING = (*_CHANGING, _D.HEALTHY, _D.UNHEALTHY)

DEPLOYMENT_ROWS: tuple[tuple[DeploymentStatus, Milestone, DeploymentStatus], ...] = (
    *((status, Milestone.VERSION_CHANGED, _D.UPDATING) for status in (*_SERVING, _D.DEPLOY_FAILED)),
    *((status, Milestone.PLACEMENT_CHANGED, _D.UPDATING) for status in (*_SERVING, _D.DEPLOY_FAILED)),
    *((status, Milestone.TARGET_RAISED, _D.UPSCALING) for status in _SERVING if status is not _D.UPDATING),
    *((status, Milestone.TARGET_LOWERED, _D.DOWNSCALING) for status in _SERVING if status is not _D.UPDATING),
    *((status, Milestone.SETTLED, _D.HEALTHY) for status in (*_CHANGING, _D.UNHEALTHY, _D.RECOVERING)),
    (_D.HEALTHY, Milestone.UNSETTLED, _D.UNHEALTHY),
    *((status, Milestone.BUNDLE_MISSED, _D.UNHEALTHY) for status in (*_CHANGING, _D.HEALTHY, _D.RECOVERING)),
    # After a recovery: the reports are in, and this is what they amount to.
    (_D.RECOVERING, Milestone.VERSION_CHANGED, _D.UPDATING),
    (_D.RECOVERING, Milestone.PLACEMENT_CHANGED, _D.UPDATING),
    (_D.RECOVERING, Milestone.TARGET_LOWERED, _D.DOWNSCALING),
    (_D.RECOVERING, Milestone.UNSETTLED, _D.UNHEALTHY),
    *((status, Milestone.STARTS_EXHAUSTED, _D.DEPLOY_FAILED) for status in _SERVING),
    # A replica that had the failed build before it was given up is ready on it after all.
    (_D.DEPLOY_FAILED, Milestone.PROVEN, _D.UPDATING),
    *((status, Milestone.DELETE_REQUESTED, _D.DELETING) for status in (*_SERVING, _D.RECOVERING, _D.DEPLOY_FAILED)),
    (_D.DELETING, Milestone.REPLICAS_GONE, _D.DELETED),
)

REPLICA_MOVES = {(source, trigger): dest for source, trigger, dest in REPLICA_ROWS}
DEPLOYMENT_MOVES = {(source, trigger): dest for source, trigger, dest in DEPLOYMENT_ROWS}


def trigger_name(trigger: "Trigger") -> str:
    """How a trigger is called in a drawing: an event or command by its class, the others by their value."""
    return trigger.__name__ if isinstance(trigger, type) else trigger.value
