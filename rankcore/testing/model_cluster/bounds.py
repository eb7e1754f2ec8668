"""What an adversary may do in one small cluster, and the series that is explored whole."""

from typing import TypeAlias

import attrs

from rankcore.autoscaling.spec import AutoscalingSpec
from rankcore.cluster.spec import EntrySpec
from rankcore.spec import DeploymentSpec
from rankcore.testing.explorable import expression

Wish: TypeAlias = tuple[str, str, str]
"""("apply", deployment, version), ("scale", deployment, target), or ("delete", deployment, "")."""

BROKEN = "bad"
"""A version that never comes up."""
_WITH_POLICY = AutoscalingSpec(
    min_replicas=1, max_replicas=3, metrics_interval_s=10.0, look_back_period_s=10.0, upscale_delay_s=0.0, initial_replicas=2
)


@attrs.frozen(kw_only=True)
class ClusterBounds:
    """The system, and how often something may happen on one path.

    Attributes:
        deployments: Their ids; each is of an application of its own.
        replicas: What each begins with.
        rollback: Whether a version that fails is given up for the last healthy one.
        policy: Whether the target follows a user's policy, which is asked about calls that wait.
        wishes: What users may ask for, each at any moment.
        asks: How many wishes there are.
        crashes: Of the controller.
        losses: Records that are given to the store and never land.
        deaths: Of replicas.
        leaves: Replicas that are taken away for good.
        reports: Of calls that wait; time passes after each.
    """

    deployments: tuple[str, ...] = ("a/x",)
    replicas: int = 1
    rollback: bool = False
    policy: bool = False
    wishes: tuple[Wish, ...] = ()
    asks: int = 1
    crashes: int = 0
    losses: int = 0
    deaths: int = 0
    leaves: int = 0
    reports: int = 0

    def __str__(self) -> str:
        """What differs from the defaults, ready to paste."""
        return expression(self)

    def spec(self, deployment: str, version: str = "1") -> EntrySpec:
        """What is applied."""
        ranks = DeploymentSpec(
            name=deployment,
            target_replicas=self.replicas,
            version=version,
            rollback=self.rollback,
            max_start_failures=1,
            graceful_shutdown_timeout_s=1000.0,
        )
        return EntrySpec(
            ranks=ranks, autoscaling=_WITH_POLICY if self.policy else None, policy="waiting" if self.policy else None
        )


_BAD = (("apply", "a/x", BROKEN), ("apply", "a/x", "1"))
SYSTEMS: dict[str, ClusterBounds] = {
    "cluster-apply": ClusterBounds(replicas=2, wishes=(("scale", "a/x", "1"), ("delete", "a/x", "")), asks=2, crashes=1),
    "cluster-two": ClusterBounds(
        deployments=("a/x", "b/x"), wishes=(("scale", "a/x", "2"), ("delete", "b/x", "")), asks=2, deaths=1
    ),
    "cluster-rollback": ClusterBounds(rollback=True, wishes=_BAD, asks=2, crashes=1, losses=1),
    "cluster-failed": ClusterBounds(wishes=_BAD, asks=2, crashes=2),
    "cluster-late-puts": ClusterBounds(wishes=(("scale", "a/x", "2"), ("delete", "a/x", "")), asks=2, crashes=2),
    "cluster-policy": ClusterBounds(policy=True, asks=0, leaves=1, reports=2),
}
"""The series of `rankcore check --cluster`."""
