"""What an adversary may do in one small cluster, and the series that is explored whole."""

from typing import TypeAlias

import attrs

from rankcore.autoscaling.spec import AutoscalingSpec
from rankcore.cluster.residency import ResidencySpec
from rankcore.cluster.spec import EntrySpec
from rankcore.spec import DeploymentSpec
from rankcore.testing.explorable import expression
from rankcore.testing.model_residency.bounds import NodeBounds

Wish: TypeAlias = tuple[str, str, str]
"""("apply", deployment, version), ("scale", deployment, target), ("delete", deployment, ""), ("evict", deployment, level), or
("calls", deployment, "process:so many wait")."""

BROKEN = "bad"
"""A version that never comes up."""
CALLS_S = 1000.0
"""What calls have to end before a replica leaves."""
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
        weights: Of each deployment in their order: weights on GPUs, 0 replicas to begin with; empty: none has residency.
        nodes: The memory that there is for them.
        listed: Whether it is said which nodes there are, so that what fits on none is told so.
        failures: Moves of weights that fail.
        hangs: Workers that answer nothing any more, but to a kill.
        delays: How often more time passes than a move of weights may take.
        late_s: How much.
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
    weights: tuple[ResidencySpec, ...] = ()
    nodes: tuple[NodeBounds, ...] = ()
    listed: bool = True
    failures: int = 0
    hangs: int = 0
    delays: int = 0
    late_s: float = 2000.0

    def __str__(self) -> str:
        """What differs from the defaults, ready to paste."""
        return expression(self)

    def spec(self, deployment: str, version: str = "1") -> EntrySpec:
        """What is applied."""
        ranks = DeploymentSpec(
            name=deployment,
            target_replicas=0 if self.weights else self.replicas,
            version=version,
            rollback=self.rollback,
            max_start_failures=1,
            graceful_shutdown_timeout_s=CALLS_S,
        )
        return EntrySpec(
            ranks=ranks,
            autoscaling=_WITH_POLICY if self.policy else None,
            policy="waiting" if self.policy else None,
            residency=self.weights[self.deployments.index(deployment)] if self.weights else None,
        )


_SMALL, _LARGE = (ResidencySpec(weight_bytes=size, min_hot_s=0.0) for size in (4, 6))
_ONE, _TWO_GPUS = (NodeBounds((8,), 6),), (NodeBounds((8, 8), 6),)
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
    "cluster-cold-one": ClusterBounds(
        deployments=("a/x",),
        weights=(_SMALL,),
        nodes=_ONE,
        wishes=(("calls", "a/x", "p:1"), ("calls", "a/x", "p:0"), ("evict", "a/x", "WARM"), ("evict", "a/x", "COLD")),
        asks=3,
        failures=1,
    ),
    "cluster-turns": ClusterBounds(
        deployments=("a/x", "b/x"),
        weights=(_SMALL, _LARGE),
        nodes=_ONE,
        wishes=(("calls", "a/x", "p:1"), ("calls", "b/x", "p:1"), ("calls", "b/x", "p:0")),
        asks=3,
    ),
    "cluster-ranked-preempted": ClusterBounds(
        deployments=("a/x", "b/x"),
        weights=(_SMALL, _LARGE),
        nodes=_TWO_GPUS,
        wishes=(("scale", "a/x", "2"), ("scale", "b/x", "1"), ("scale", "a/x", "1")),
        asks=2,
    ),
    "cluster-two-routers": ClusterBounds(
        deployments=("a/x",),
        weights=(_SMALL,),
        nodes=_ONE,
        wishes=(("calls", "a/x", "p:1"), ("calls", "a/x", "q:1"), ("calls", "a/x", "p:0"), ("calls", "a/x", "q:0")),
        asks=4,
    ),
    "cluster-crash-loading": ClusterBounds(
        deployments=("a/x",), weights=(_SMALL,), nodes=_ONE, wishes=(("scale", "a/x", "1"),), asks=1, crashes=2, deaths=1
    ),
    "cluster-update": ClusterBounds(
        deployments=("a/x", "b/x"),
        weights=(_LARGE, _SMALL),
        nodes=_ONE,
        wishes=(("scale", "a/x", "1"), ("apply", "a/x", "2"), ("scale", "b/x", "1")),
        asks=2,
        deaths=1,
    ),
    "cluster-evict-loading": ClusterBounds(
        deployments=("a/x",),
        weights=(_SMALL,),
        nodes=_ONE,
        wishes=(("scale", "a/x", "1"), ("evict", "a/x", "WARM"), ("delete", "a/x", "")),
        asks=2,
        hangs=1,
    ),
    "cluster-kill-late": ClusterBounds(
        deployments=("a/x",),
        weights=(_SMALL,),
        nodes=_ONE,
        wishes=(("scale", "a/x", "1"), ("scale", "a/x", "0")),
        asks=3,
        delays=1,
    ),
    "cluster-copy-late": ClusterBounds(
        deployments=("a/x",),
        weights=(_SMALL,),
        nodes=_ONE,
        wishes=(("scale", "a/x", "1"), ("scale", "a/x", "0")),
        asks=3,
        delays=1,
        late_s=1100.0,
    ),
    "cluster-never": ClusterBounds(
        weights=(_LARGE,),
        nodes=(NodeBounds((4,), 6),),
        wishes=(("calls", "a/x", "p:1"), ("calls", "a/x", "p:0")),
        asks=3,
        crashes=1,
    ),
}
"""The series of `rankcore check --cluster`."""
