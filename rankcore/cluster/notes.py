"""Why: one short record per decision of a cluster, those of its parts among them."""

from enum import StrEnum

from rankcore import kernel
from rankcore.autoscaling.notes import AutoscalingNote
from rankcore.cluster.names import DeploymentId
from rankcore.notes import RankNote
from rankcore.residency.notes import ResidencyNote


class ClusterNoteKind(StrEnum):
    """What a note is about."""

    APPLIED = "applied"
    UNCHANGED = "unchanged"
    DELETION_BEGUN = "deletion begun"
    DEPLOYMENT_GONE = "deployment gone"
    TARGET_WRITTEN = "target written"
    TARGET_REFUSED = "target refused"
    RECORD_NUMBERED = "record numbered"
    RECORD_REPEATED = "record repeated"
    COMMANDS_HELD = "commands held"
    COMMANDS_RELEASED = "commands released"
    ADOPTED = "adopted"
    LEFT_ALONE = "left alone"
    POLICY_ASKED = "policy asked"
    POLICY_FAILED = "policy failed"
    FROZEN = "frozen"
    UNKNOWN = "unknown"
    LATE = "late"
    TENURE_GIVEN = "tenure given"
    TENURE_ENDED = "tenure ended"
    CLAIMED = "claimed"
    WITHDRAWN = "withdrawn"
    CANT_EVER = "can't ever"
    MAY_FIT = "may fit"
    TRIED_AGAIN = "tried again"
    NODE_OPENED = "node opened"
    WORKER_KILLED = "worker killed"
    PLANNER = "planner"
    """What the planner of weights has decided: `of` says what."""
    RANKS = "ranks"
    """What the ranks of one deployment have decided: `of` says what."""
    AUTOSCALER = "autoscaler"
    """What an autoscaler has decided: `of` says what."""


class ClusterNote(kernel.Note, frozen=True, gc=False, kw_only=True):
    """One decision.

    Attributes:
        deployment: Whom it concerns; None: the cluster.
        of: The note of a part; None: the cluster itself decided.
    """

    kind: ClusterNoteKind
    deployment: DeploymentId | None = None
    of: RankNote | AutoscalingNote | ResidencyNote | None = None
