"""One deployment as Ray carries it out, beside its entry in the cluster's state, where everything about it is decided."""

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from executors.ray_gpu.changes_awaited import Changes
from executors.ray_gpu.environment import RuntimeEnv, uploaded
from executors.ray_gpu.executor import RayExecutor
from executors.ray_gpu.extras import RayExtras, extras_of
from executors.ray_gpu.ids_on_ray import renamed, renamed_id
from executors.ray_gpu.load_poll import LoadPoll
from executors.ray_gpu.membership import Membership
from executors.ray_gpu.messages import CallStatus, Ranks, Routes
from executors.ray_gpu.routing_table import RoutingTable, routing_of
from executors.ray_gpu.status_board import StatusBoard
from executors.ray_gpu.user_code import Code
from executors.ray_gpu.world import World
from rankcore import DeploymentSpec, DeploymentState, DeploymentStatus, ReplicaState
from rankcore.cluster.commands import Availability
from rankcore.cluster.events import LoadReported
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.state import Entry
from rankcore.commands import Command
from rankcore.events import Event
from rankcore.values import ReplicaId

MEMBERS = (ReplicaState.STARTING, ReplicaState.RUNNING, ReplicaState.RECONFIGURING)


class RayDeployment:
    """Has an `Entry`'s processes, and what of them and of it others wait for. On the controller's event loop.

    Args:
        entry: How it begins.
        codes: By version, without the user's code itself.
        tell: What is to be reported of its load.
        on_news: Called when there is something to poll.
        on_change: Called with its id whenever something about it may be new to those who call it.

    Attributes:
        deployment: Its id.
        id_on_ray: What it is called in Ray's names and in the store.
        executor: Its processes.
        entry: How it is, or how it was last.
        extras: What Ray needs beside that.
        is_gone: Whether nothing is left of it but what is to be tidied up.
        spec_on_ray: As its replicas are told it.
        availability: How it stands for those who call it; None: nothing was published in this epoch.
        changes: For whoever waits for something about it.
        status_since: When its status became what it is, or when this controller found it so.
    """

    def __init__(
        self,
        world: World,
        entry: Entry,
        codes: dict[str, Code],
        tell: Callable[[LoadReported], None],
        on_news: Callable[[], None],
        on_change: Callable[[DeploymentId], None],
    ) -> None:
        self.entry = entry
        self.deployment: DeploymentId = entry.spec.deployment
        self.extras: RayExtras = extras_of(entry.spec)
        self.id_on_ray = self.extras.id_on_ray or self.deployment
        self.is_gone = False
        self.changes = Changes(lambda: on_change(self.deployment))
        self.availability: Availability | None = None
        self._codes = codes
        self.spec_on_ray = self._on_ray(entry.ranks.spec)
        self._membership: tuple[DeploymentState, Membership | None] | None = None
        self.executor = RayExecutor(world, lambda: self.spec_on_ray, self.actor_options, self.extras.spares, on_news)
        self._routing_table = RoutingTable(self.deployment, self.id_on_ray, self.executor, world.numbers, self.changes.wake)
        self._now = world.now
        self.status_since = world.now()
        self._status_board = StatusBoard(world.numbers)
        self._load_poll = LoadPoll(self.deployment, world.epoch, self._loads, tell, world.now)
        self.look(entry)

    # -- for the machine

    def execute(self, command: Command) -> None:
        """Begin to carry out a command."""
        self.executor.execute(renamed(command, self.deployment, self.id_on_ray))

    def poll(self) -> Event | None:
        """The next thing that happened; None: there is none now."""
        event = self.executor.poll()
        return renamed(event, self.id_on_ray, self.deployment) if event is not None else None

    def look(self, entry: Entry) -> None:
        """Take from a new entry what others wait for."""
        before, self.entry = self.entry, entry
        if entry.ranks.status is not before.ranks.status:
            self.status_since = self._now()
        if entry.spec is not before.spec:
            self.extras = extras_of(entry.spec)
            self.executor.spares.wanted = self.extras.spares
        if entry.ranks.spec is not before.ranks.spec:
            self.spec_on_ray = self._on_ray(entry.ranks.spec)
        self.executor.limit(routing_of(entry).max_ongoing_requests)
        self.executor.spares.keep(self.spec_on_ray if entry.ranks.status is DeploymentStatus.HEALTHY else None)
        self.executor.group_news.follow(entry.ranks.spec)
        self._load_poll.follow(entry.spec.autoscaling if entry.scaler is not None else None)
        self._routing_table.look(entry)
        self._status_board.look(entry, self._now())
        self.changes.wake()

    def publish(self, availability: Availability) -> None:
        """It stands otherwise for those who call it."""
        self.availability = availability
        self.changes.wake()

    async def close(self) -> None:
        """Nothing is to be told or done any more; returns when what stands by has ended."""
        self._load_poll.close()
        self._routing_table.close()
        await self.executor.close()

    def _on_ray(self, spec: DeploymentSpec) -> DeploymentSpec:
        return spec if self.id_on_ray == self.deployment else attrs.evolve(spec, name=self.id_on_ray)

    async def _loads(self) -> dict[ReplicaId, int]:
        called = [self.replica_on_ray(each.replica_id) for each in self.entry.ranks.replicas.values() if each.routed]
        loads = await self.executor.loads(called)
        return {renamed_id(each, self.id_on_ray, self.deployment): load for each, load in loads.items()}

    # -- the user's code

    def actor_options(self, version: str) -> dict[str, Any]:
        """What a version's actors ask of Ray."""
        return self._codes[version].actor_options if version in self._codes else {}

    def codes(self) -> Mapping[str, Code]:
        """What may be started, by version; the user's code itself is left out."""
        return self._codes

    def add_code(self, code: Code) -> None:
        """A version that may be started from now on."""
        self._codes[code.version] = code.without_code

    def wanted_versions(self) -> frozenset[str]:
        """Those that may be started, or run."""
        state = self.entry.ranks
        specs = (state.spec, state.previous, state.proven, self.entry.spec.ranks)
        running = {each.version for each in state.replicas.values()}
        return frozenset(running.union(spec.version for spec in specs if spec is not None))

    def keep_code(self, versions: frozenset[str]) -> None:
        """All others will not be started again."""
        for version in self._codes.keys() - versions:
            del self._codes[version]

    def packages(self) -> frozenset[str]:
        """The uploaded folders that its replicas are started with, whichever version."""
        return frozenset().union(*(uploaded(environment_of(each)) for each in self._codes.values()))

    # -- for who asks

    def replica_on_ray(self, replica_id: ReplicaId) -> ReplicaId:
        """What a replica is called in Ray's names."""
        return renamed_id(replica_id, self.deployment, self.id_on_ray)

    def routes(self) -> tuple[int, Routes] | None:
        """Where calls go, and a number that grows whenever that changes; None: not published in this epoch yet."""
        return self._routing_table.routes(self.entry, self.extras.rejected_with)

    def status(self) -> tuple[int, CallStatus] | None:
        """How it stands for calls that wait for it, and a number that grows with each change; None: there is nothing to say."""
        return self._status_board.status(self._now())

    def membership(self) -> Membership | None:
        """The world as the replicas were told it; None: a rank has no holder, or two."""
        state = self.entry.ranks
        if self._membership is None or self._membership[0] is not state:  # all replicas may be waiting for a change
            self._membership = state, self._members(state)
        return self._membership[1]

    def _members(self, state: DeploymentState) -> Membership | None:
        holders: dict[int, tuple[ReplicaId, Ranks]] = {}
        for replica_id, replica in state.replicas.items():
            told = replica.told
            if told is None or replica.state not in MEMBERS:
                continue
            if told.rank in holders:
                return None
            holders[told.rank] = (self.replica_on_ray(replica_id), (told.rank, told.node_rank, told.local_rank))
        return Membership.of(holders, state.world_size)


def environment_of(code: Code) -> RuntimeEnv:
    """What a version's replicas run in."""
    return code.actor_options.get("runtime_env") or {}
