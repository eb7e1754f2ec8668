"""The machine of the ranks of one deployment, in the table: the three ways in which it begins, and its types."""

from collections.abc import Iterable
from typing import Self, TypeAlias

import attrs

import rankcore
from executors.engine.kinds import JournalLine, MachineKind
from rankcore import DeploymentSpec, DeploymentState, DeploymentStatus, Step
from rankcore.commands import Command
from rankcore.events import Event
from rankcore.notes import Note
from rankcore.values import ReplicaId

FINGERPRINT_EVERY_MIN = 100
STEPS_PER_REPLICA = 10
"""A fingerprint costs some 50 us a replica: spread over this many steps of each, it costs a step 5 us, at any size."""


@attrs.frozen(kw_only=True)
class Deployed:
    """A deployment began new: the arguments of `rankcore.deploy`."""

    spec: DeploymentSpec
    at: float = 0.0
    epoch: int = 1

    def step(self) -> Step:
        """What the core makes of it."""
        return rankcore.deploy(self.spec, at=self.at, epoch=self.epoch)


@attrs.frozen(kw_only=True)
class Recovered:
    """A controller came back: the arguments of `rankcore.recover`. Local controllers store it as their checkpoint."""

    __stored__ = True

    spec: DeploymentSpec
    replica_ids: tuple[ReplicaId, ...]
    at: float
    epoch: int
    previous: DeploymentSpec | None = None
    deleting: bool = False
    failed: bool = False

    @classmethod
    def of(cls, state: DeploymentState, replica_ids: Iterable[ReplicaId] = (), *, at: float = 0.0, epoch: int = 0) -> Self:
        """What of a state outlives its controller. Never ranks: the replicas know them. The successor adds what it finds."""
        deleting = state.status in (DeploymentStatus.DELETING, DeploymentStatus.DELETED)
        failed = state.status is DeploymentStatus.DEPLOY_FAILED
        ids, previous = tuple(replica_ids), state.previous
        return cls(spec=state.spec, replica_ids=ids, at=at, epoch=epoch, previous=previous, deleting=deleting, failed=failed)

    def step(self) -> Step:
        """What the core makes of it."""
        return rankcore.recover(
            self.spec,
            self.replica_ids,
            at=self.at,
            epoch=self.epoch,
            previous=self.previous,
            deleting=self.deleting,
            failed=self.failed,
        )


@attrs.frozen(kw_only=True)
class Resumed:
    """A run goes on from a state that existed before: a fork, or a snapshot. No command is given again."""

    state: DeploymentState

    @property
    def at(self) -> float:
        """When that was, in seconds on the executor's clock."""
        return self.state.clock

    def step(self) -> Step:
        """The state, and nothing to do."""
        return Step(self.state, (), ())


Beginning: TypeAlias = Deployed | Recovered | Resumed
Entry: TypeAlias = JournalLine[Beginning | Event, Command, Note]


KIND = DEPLOYMENTS = MachineKind(
    name="deployments",
    describe="deployments",
    beginning=Beginning,
    event=Event,
    command=Command,
    note=Note,
    begin=lambda how: how.step(),
    step=lambda state, event: rankcore.step(state, event),
    resume=lambda state: Resumed(state=state),
    image=lambda state: state,
    whose=lambda state: state.spec.name,
    is_over=lambda state: state.status is DeploymentStatus.DELETED,
    extent=lambda state: f"{len(state.replicas)} replica(s)",
    fingerprint_every=lambda state: max(FINGERPRINT_EVERY_MIN, STEPS_PER_REPLICA * len(state.replicas)),
)
