"""The machine of a cluster of applications, in the table. It begins with the records of a store, or goes on with a state."""

from collections.abc import Mapping
from typing import TypeAlias

import attrs

from executors.engine.kinds import JournalLine, MachineKind
from rankcore import Step, kernel
from rankcore.cluster import ClusterState, ClusterStep, cluster_step, recover_cluster
from rankcore.cluster.commands import ClusterCommand
from rankcore.cluster.draft import RankStep
from rankcore.cluster.events import ClusterEvent
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.notes import ClusterNote
from rankcore.cluster.records import Record
from rankcore.cluster.recovery import NO_WORKERS
from rankcore.cluster.residency import WorkerId
from rankcore.residency.spec import ResidencyPolicy
from rankcore.values import NodeId, ReplicaId

FINGERPRINT_EVERY = 1_000
"""Steps from one fingerprint to the next, which costs as much as the cluster is big."""


@attrs.frozen(kw_only=True)
class ClusterRecovered:
    """A cluster began, or its controller came back: the arguments of `rankcore.cluster.recover_cluster`."""

    records: tuple[Record, ...] = ()
    replica_ids: tuple[ReplicaId, ...] = ()
    at: float = 0.0
    epoch: int = 1
    unreadable: tuple[DeploymentId, ...] = ()
    workers: Mapping[WorkerId, NodeId] = NO_WORKERS
    placing: bool = True
    policy: ResidencyPolicy | None = None

    def step(self, trace: list[RankStep] | None = None) -> ClusterStep:
        """What the core makes of it."""
        return recover_cluster(
            self.records,
            self.replica_ids,
            at=self.at,
            epoch=self.epoch,
            unreadable=self.unreadable,
            workers=self.workers,
            placing=self.placing,
            policy=self.policy,
            trace=trace,
        )


@attrs.frozen(kw_only=True)
class ClusterResumed:
    """A run goes on from a state that existed before. No command is given again."""

    state: ClusterState

    @property
    def at(self) -> float:
        """When that was, in seconds on the executor's clock."""
        return self.state.clock

    def step(self, trace: list[RankStep] | None = None) -> ClusterStep:
        """The state, and nothing to do."""
        if trace is not None:
            trace[:] = (
                RankStep(each, None, Step(entry.ranks, (), ())) for each, entry in sorted(self.state.deployments.items())
            )
        return kernel.Step(self.state, (), ())


ClusterBeginning: TypeAlias = ClusterRecovered | ClusterResumed
ClusterEntry: TypeAlias = JournalLine[ClusterBeginning | ClusterEvent, ClusterCommand, ClusterNote]

KIND = CLUSTER = MachineKind(
    name="cluster",
    describe="a cluster",
    beginning=ClusterBeginning,
    event=ClusterEvent,
    command=ClusterCommand,
    note=ClusterNote,
    begin=lambda how: how.step(),
    step=cluster_step,
    resume=lambda state: ClusterResumed(state=state),
    image=lambda state: state,
    whose=None,
    is_over=lambda state: False,
    extent=lambda state: f"{len(state.deployments)} deployment(s)",
    fingerprint_every=lambda state: FINGERPRINT_EVERY,
)
