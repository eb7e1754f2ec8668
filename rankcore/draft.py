"""The working copy of one step: opened from a state, changed by the rules, closed into the next state.

A draft lives only while a step runs, so changing it in place is invisible from outside.
"""

from collections.abc import Iterator
from typing import TypeAlias, cast

from msgspec import field
from msgspec.structs import astuple

from rankcore import kernel
from rankcore.commands import Command
from rankcore.lifecycle import DEPLOYMENT_MOVES, Milestone
from rankcore.notes import STATUS_CHANGED, NoteKind, RankNote
from rankcore.spec import DeploymentSpec
from rankcore.state import BundleTables, DeploymentState, Ids, Replica, TableFields, Tables, oldest_first
from rankcore.values import DEPLOY_FAILED, DeploymentStatus, ReplicaId, ReplicaRank

NEVER = float("inf")

Step: TypeAlias = kernel.Step[DeploymentState, Command, RankNote]


class Draft(TableFields, kw_only=True, gc=False):
    """The tables of a state, open for change, with what a step gives out.

    Attributes:
        spec, status, epoch, clock: As in `DeploymentState`.
        commands, notes: Given out so far.
        routes_added: Replicas to be published as on the routes: True if they have begun to take requests in this step, False if
            they did before, and have a rank since.
        routes_removed: Replicas that have ceased to take requests in this step.
        recheck: Ranks of which something has changed that keeps them from being started, or moved, on their bundles.
        to_prepare: Successors that have come to a place, or may have to be prepared once more.
        wake_by: The earliest time at which something that this step began to wait for falls due.
        progressed: Whether this step brings the update under way forward (V9).
        idle: Whether the event has changed nothing but the clock, being late, repeated, or no more than a clock.
    """

    spec: DeploymentSpec = cast(DeploymentSpec, None)  # `open` fills these in
    status: DeploymentStatus = DeploymentStatus.UPDATING
    epoch: int = 0
    clock: float = 0.0
    commands: list[Command] = field(default_factory=list)
    notes: list[RankNote] = field(default_factory=list)
    routes_added: dict[ReplicaId, bool] = field(default_factory=dict)
    routes_removed: dict[ReplicaId, None] = field(default_factory=dict)
    recheck: list[int] = field(default_factory=list)
    to_prepare: list[ReplicaId] = field(default_factory=list)
    wake_by: float = NEVER
    progressed: bool = False
    idle: bool = False

    @staticmethod
    def open(state: DeploymentState) -> "Draft":
        """A draft that starts out as this state."""
        # Storing these is cheaper than handing them over by name.
        draft = Draft(*astuple(state.tables))
        draft.spec, draft.status, draft.epoch, draft.clock = state.spec, state.status, state.epoch, state.clock
        return draft

    @staticmethod
    def new(spec: DeploymentSpec, status: DeploymentStatus, epoch: int, at: float) -> "Draft":
        """A draft without any replica. Revisions of an epoch are above those of every earlier one (section 2.1)."""
        state = DeploymentState(
            spec, status, epoch, at, Tables(revision=epoch << 32, spec_at=at, bundles=BundleTables(since=at))
        )
        return Draft.open(state)

    def close(self) -> Step:
        """The step that this draft has come to."""
        tables = Tables(*astuple(self)[:TABLE_FIELDS])
        state = DeploymentState(self.spec, self.status, self.epoch, self.clock, tables)
        # The constructor of a named tuple is a function of Python, and costs twice as much.
        return tuple.__new__(kernel.Step, (state, tuple(self.commands), tuple(self.notes)))

    def note(
        self,
        kind: NoteKind,
        rule: str,
        replica_id: ReplicaId | None = None,
        because: str = "",
        *,
        rank: int | None = None,
        before: ReplicaRank | None = None,
        after: ReplicaRank | None = None,
    ) -> None:
        """Record one decision and its cause."""
        self.notes.append(RankNote(kind, rule, replica_id, before, after, rank, because=because))

    def reach(self, milestone: Milestone, because: str) -> None:
        """Move the deployment along its life cycle to where this milestone leads from here, if anywhere."""
        status = DEPLOYMENT_MOVES.get((self.status, milestone))
        if status is not None and status is not self.status:
            self.note(STATUS_CHANGED, "2.3", because=f"{self.status} -> {status}: {because}")
            self.status = status

    @property
    def recipe(self) -> DeploymentSpec | None:
        """Which generation and user_config ranks get that the spec reaches; None: nothing that works is known (section 2.3)."""
        return self.proven if self.status is DEPLOY_FAILED else self.spec

    @property
    def kept_below(self) -> int:
        """The partition, where there is anything older: ranks below it are kept, and refilled with `previous` (V12, V13)."""
        return self.spec.partition if self.previous is not None else 0

    def recipe_of(self, rank: int) -> DeploymentSpec:
        """Which generation and user_config a replica is started with in a slot. Where there is no recipe: what failed."""
        if rank < self.spec.partition and self.previous is not None:
            return self.previous
        return self.spec if self.status is not DEPLOY_FAILED or self.proven is None else self.proven

    def those(self, ids: Ids) -> Iterator[Replica]:
        """These replicas, the oldest first, each as it is when its turn comes."""
        return (self.replicas[replica_id] for replica_id in oldest_first(ids))

    def wake(self, due: float) -> None:
        """Have the core woken at this time at the latest."""
        if due < self.wake_by:
            self.wake_by = due

    def next_revision(self) -> int:
        """A revision above every earlier one; messages to replicas and announcements share the counter."""
        self.revision += 1
        return self.revision


# Stores are what a step does most. A draft is never tracked by the collector, so Python's own store will do, which the
# interpreter specialises, and msgspec's it does not (2 against 14 ns, measured). Both names share one slot of the type.
Draft.__setattr__ = object.__setattr__  # type: ignore[method-assign]
Draft.__delattr__ = object.__delattr__  # type: ignore[method-assign]

TABLE_FIELDS = len(Tables.__struct_fields__)
