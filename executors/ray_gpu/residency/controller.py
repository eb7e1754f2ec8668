"""The controller of a fleet: one detached actor per namespace that hosts the machine of `rankcore.dispatching`.

Whatever happens, and whatever anybody wants, is an event of that machine, told in one place (`_tell`), which also keeps the
journal. Ray restarts the controller when it dies: it then goes on from the state that it kept in the cluster's store.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, ActorUnschedulableError, RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from executors.ray_gpu.errors import ReplicaGoneError, UnknownNameError
from executors.ray_gpu.residency.hosts import LOOK_AGAIN_S, Hosts, unless_blocked, why
from executors.ray_gpu.residency.journal import LenientFleetJournal
from executors.ray_gpu.residency.memory import Memory
from executors.ray_gpu.residency.packing import is_same, unpack_model
from executors.ray_gpu.residency.places import NodeMemory, Places, forget, measure
from executors.ray_gpu.residency.store import FleetStore
from executors.ray_gpu.residency.waiting import Waiting
from executors.ray_gpu.residency.words import Answer, FleetStanding, MoveEnded, Progressed, Told, pack_error, unpack
from executors.ray_gpu.versions import versions
from executors.ray_gpu.world import live_nodes, persist
from rankcore.codec import from_json, to_json
from rankcore.dispatching import (
    FleetImage,
    FleetState,
    LoadProgressed,
    ModelRequested,
    ServingChanged,
    TellCaller,
    fleet_of,
    fleet_step,
    image_of,
    open_fleet,
    outstanding,
)
from rankcore.dispatching.commands import Command
from rankcore.dispatching.events import Event
from rankcore.events import ClockAdvanced
from rankcore.residency import Level, Wanted
from rankcore.residency.commands import DropFromCpu, LoadToGpu, OffloadToCpu, UnloadFromGpu
from rankcore.residency.events import (
    DeployRequested,
    EvictRequested,
    LoadFailed,
    LoadFinished,
    NodeJoined,
    NodeLost,
    OffloadFailed,
    OffloadFinished,
    ReplicaLost,
    ScaleRequested,
    UsageReported,
)
from rankcore.routing import FailureKind
from rankcore.routing.commands import (
    Complete,
    Dispatch,
    Expire,
    Fail,
    Forget,
    Reject,
    Retry,
    StopAttempt,
    WakeAt,
)
from rankcore.routing.events import RequestCancelled, RequestDone, RequestFailed
from rankcore.values import NodeId, ReplicaId

LOG = logging.getLogger(__name__)

LOOK_AT_NODES_S = 1.0
FORGET_S = 15.0
BEGUN_KEPT = 100_000  # requests: who asks again for one of them has lost its answer on the way
TOLD_S = 30.0  # a process that says nothing for so long blocks its loop, and would block whoever waits for it
OF_REQUESTS = (ModelRequested, RequestDone, RequestFailed, RequestCancelled, LoadProgressed, ClockAdvanced)
"""Events after which the state need not be kept: where weights are does not depend on them."""


class FleetController:
    """What callers talk to."""

    _state: FleetState

    async def __init__(self, namespace: str, options: bytes, journal: str | None) -> None:  # type: ignore[misc]
        """Go on from what an earlier controller has kept, or begin."""
        self._store = FleetStore(namespace)
        self._namespace = namespace
        kept = await persist(lambda: self._store.get("options"))
        if kept is None:
            await persist(lambda: self._store.put("options", options))
        self._options = unpack(kept or options)
        self._origin = await persist(self._store.origin)
        self._epoch = await persist(self._store.raise_epoch)
        self._journal = LenientFleetJournal(journal, self._epoch)
        self._memory = Memory()
        self._models = await persist(self._store.models)
        self._node_memory: dict[NodeId, NodeMemory] = {}
        self._probing: set[NodeId] = set()
        self._waiting = Waiting()
        self._begun: dict[str, None] = {}
        self._hosts = Hosts(namespace, self._epoch, self._on_host_lost)
        self._tasks: set[asyncio.Task[None]] = set()
        self._alarm: asyncio.TimerHandle | None = None
        self._unsaved, self._closed = asyncio.Event(), False
        self._state = open_fleet(self._options.dispatch, self._options.residency)
        text = await persist(lambda: self._store.get("state"))
        if text is not None:
            self._state = fleet_of(from_json(text.decode(), FleetImage))
        self._journal.begin(self._state)
        if self._epoch > 1:
            await self._recover()
        self._spawn(self._keep_state())
        self._spawn(self._look_at_nodes())

    # -- what callers want

    async def hello(self) -> dict[str, str]:
        """Which versions speak here."""
        return versions()

    async def deploy(self, wanted: tuple[tuple[str, bytes, int], ...]) -> None:
        """Have models HOT, so many replicas of each: name, model as packed, replicas. One request. Repeatable."""
        declared = [(unpack_model(packed), packed, replicas) for _, packed, replicas in wanted]
        specs = [(model, model.spec(), packed, replicas) for model, packed, replicas in declared]
        asked = tuple(Wanted(spec=spec, replicas=replicas) for _, spec, _, replicas in specs)
        DeployRequested(wanted=asked, at=self._now())  # refused before anything is changed
        for model, _, packed, _ in specs:
            former = self._models.get(model.name)
            if former is not None and not is_same(former, packed) and model.name in self._state.residency.models:
                # Its processes have the code of before.
                self._tell(EvictRequested(model=model.name, keep=Level.COLD, at=self._now()))
            self._models[model.name] = packed
            await persist(lambda name=model.name, packed=packed: self._store.put(f"model/{name}", packed))  # type: ignore[misc]
            self._tell(ServingChanged(spec=model.serving(), at=self._now()))
        self._tell(DeployRequested(wanted=asked, at=self._now()))

    async def scale(self, model: str, replicas: int) -> None:
        """Have so many replicas of a model HOT."""
        self._check(model)
        self._tell(ScaleRequested(model=model, replicas=replicas, at=self._now()))

    async def evict(self, model: str | None, replica_id: str | None, keep: str) -> None:
        """Take a model, or one of its replicas, off the GPU."""
        if model is not None:
            self._check(model)
        elif replica_id not in self._state.residency.replicas:
            raise UnknownNameError(f"there is no replica {replica_id!r}: `rankcore where MODEL` shows which there are")
        self._tell(EvictRequested(model=model, replica_id=replica_id, keep=Level(keep), at=self._now()))

    async def standing(self) -> FleetStanding:
        """Where everything is, and why."""
        return self._memory.standing(self._state)

    async def ask(self, request_id: str, model: str, call: bytes, timeout_s: float | None, again: bool) -> Answer:
        """Answer a request, once its model is HOT. Repeatable as long as it has not been answered.

        Args:
            again: The caller has asked before, and a controller, or the way to it, was lost since.
        """
        known = self._waiting.get(request_id)
        if known is not None:
            return await asyncio.shield(known.answer)
        if again and request_id in self._begun and not self._is_idempotent(model):
            lost = ReplicaGoneError("the controller was lost while the request ran; it may have had its effect")
            return Answer(error=pack_error(lost, ""))
        entry = self._waiting.enter(request_id, call)
        deadline = None if timeout_s is None else self._now() + timeout_s
        self._tell(ModelRequested(request_id=request_id, model=model, deadline=deadline, at=self._now()))
        return await asyncio.shield(entry.answer)

    async def told(self, request_id: str, after: int) -> Any:
        """How a request stands, once that has changed; None: nothing new for long, or it is over."""
        return await self._waiting.told(request_id, after)

    async def cancel(self, request_id: str) -> None:
        """Nobody waits for the answer any more."""
        if self._waiting.get(request_id) is not None:
            self._tell(RequestCancelled(request_id=request_id, at=self._now()))

    async def shut_down(self) -> None:
        """End all replicas and forget everything. The actor itself is ended by whoever asked."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*(self._hosts.end(*key) for key in self._hosts))
        await asyncio.gather(*(self._forget_node(node_id) for node_id in self._node_memory))
        await persist(self._store.forget)

    def _check(self, model: str) -> None:
        if model not in self._state.residency.models:
            known = ", ".join(sorted(self._state.residency.models)) or "none"
            raise UnknownNameError(f"there is no model {model!r}; deployed are: {known}")

    def _is_idempotent(self, model: str) -> bool:
        served = self._state.models.get(model)
        return served is not None and served.spec.routing.idempotent

    # -- the machine

    def _now(self) -> float:
        return max(self._state.clock, time.time() - self._origin)

    def _tell(self, event: Event) -> None:
        """The one place where anything is decided."""
        if self._closed:  # what is started now would outlive the fleet
            return
        step = fleet_step(self._state, event)
        self._journal.append(event, step)
        self._state = step.state
        self._memory.remember(step.notes, self._state)
        for command in step.commands:
            self._carry_out(command)
        if not isinstance(event, OF_REQUESTS):
            self._unsaved.set()
            for key in self._hosts.unneeded(self._state.residency.replicas.get):
                self._spawn(self._hosts.end(*key))

    def _carry_out(self, command: Command) -> None:
        handler = CARRIED_OUT[type(command)]
        doing = handler(self, command)
        if doing is not None:
            self._spawn(doing)

    def _spawn(self, doing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(doing)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            LOG.error("a task of the fleet's controller failed", exc_info=task.exception())

    def _wake(self, command: WakeAt) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        delay_s = max(0.0, command.at - self._now())
        self._alarm = asyncio.get_running_loop().call_later(delay_s, self._woken, command.at)

    def _woken(self, due: float) -> None:
        """Told at `due` at the earliest: the loop's clock is another one, and what falls due is not commanded twice."""
        self._tell(ClockAdvanced(at=max(due, self._now())))

    # -- weights

    async def _load(self, command: LoadToGpu) -> None:
        packed, memory = self._models.get(command.model), self._node_memory.get(command.node_id)
        if packed is None or memory is None:
            reason = "its code is not known any more: deploy it again" if packed is None else "nothing is known of the node"
            self._tell(LoadFailed(replica_id=command.replica_id, move=command.move, reason=reason, at=self._now()))
            return
        places = Places(self._options, self._namespace, command.node_id, memory)
        await self._hosts.ended(command.replica_id, command.node_id)
        if self._closed:
            return
        host = self._hosts.start(command.replica_id, packed, places)
        while True:
            words = host.load.options(num_returns="streaming").remote(
                self._epoch, command.move, command.gpus, command.gpu_bytes
            )
            try:
                async for reference in words:
                    await self._hear(command, await reference)
            except ActorUnavailableError:
                await asyncio.sleep(LOOK_AGAIN_S)  # it goes on there: the same is asked again
                continue
            except (RayActorError, ActorUnschedulableError):
                LOG.info("replica %s ended while it was loaded", command.replica_id)  # `Hosts` tells of it
            except RayError as error:
                self._tell(LoadFailed(replica_id=command.replica_id, move=command.move, reason=why(error), at=self._now()))
            return

    async def _hear(self, command: LoadToGpu, word: Progressed | MoveEnded) -> None:
        if isinstance(word, MoveEnded):
            await self._loaded(command, word)
            return
        replica_id, done = command.replica_id, word.bytes_done
        self._tell(LoadProgressed(replica_id=replica_id, move=command.move, bytes_done=done, at=self._now()))

    async def _loaded(self, command: LoadToGpu, end: MoveEnded) -> None:
        if end.poisoned:
            await self._restart(command.replica_id, command.node_id, end.failed_because or "")
        elif end.failed_because is not None:
            reason = end.failed_because
            self._tell(LoadFailed(replica_id=command.replica_id, move=command.move, reason=reason, at=self._now()))
        else:
            self._tell(LoadFinished(replica_id=command.replica_id, move=command.move, at=self._now()))
            if any(taken > given for taken, given in zip(end.gpu_bytes, command.gpu_bytes, strict=True)):
                self._tell(UsageReported(replica_id=command.replica_id, gpu_bytes=end.gpu_bytes, at=self._now()))

    async def _restart(self, replica_id: ReplicaId, node_id: NodeId, reason: str) -> None:
        """Its process can use the GPU no more: end it, and let the planner start the replica again."""
        await self._hosts.end(replica_id, node_id)
        self._tell(ReplicaLost(replica_id=replica_id, reason=reason, at=self._now()))

    async def _leave(self, command: OffloadToCpu | UnloadFromGpu) -> None:
        resident = self._state.residency.replicas.get(command.replica_id)
        # A load that is broken off leaves the copy that it was made from.
        keep = isinstance(command, OffloadToCpu) or (resident is not None and resident.copy_node_id == command.node_id)
        host = self._hosts.get(command.replica_id, command.node_id)
        failed: str | None = "its process has ended"
        if host is not None:
            try:
                asked = host.leave.remote(self._epoch, command.move, command.timeout_s, keep)
                failed = (await unless_blocked(host, asked, command.timeout_s, TOLD_S)).failed_because
            except TimeoutError:
                failed = f"its process did not answer for {TOLD_S:g} s"
            except RayError as error:
                failed = why(error)
        if failed is not None or not keep:
            # Before it is told: who is loaded again next gets a process of its own.
            await self._hosts.end(command.replica_id, command.node_id)
        self._left(command, failed if keep else None)

    async def _drop(self, command: DropFromCpu) -> None:
        host = self._hosts.get(command.replica_id, command.node_id)
        if host is not None:
            # By itself first: when Ray says that a process has ended, its memory may be taken still.
            with suppress(RayError, TimeoutError):
                await unless_blocked(host, host.drop.remote(self._epoch, command.move), 0.0, TOLD_S)
        await self._hosts.end(command.replica_id, command.node_id)
        self._left(command, None)

    def _left(self, command: OffloadToCpu | UnloadFromGpu | DropFromCpu, failed: str | None) -> None:
        if failed is None:
            self._tell(OffloadFinished(replica_id=command.replica_id, move=command.move, at=self._now()))
        else:
            self._tell(OffloadFailed(replica_id=command.replica_id, move=command.move, reason=failed, at=self._now()))

    def _on_host_lost(self, replica_id: ReplicaId, node_id: NodeId, reason: str) -> None:
        resident = self._state.residency.replicas.get(replica_id)
        if resident is not None and node_id in (resident.node_id, resident.copy_node_id):
            self._tell(ReplicaLost(replica_id=replica_id, reason=reason, at=self._now()))

    # -- requests

    async def _send(self, command: Dispatch | Retry) -> None:
        request_id, replica_id = str(command.request_id), command.replica_id
        entry, resident = self._waiting.get(request_id), self._state.residency.replicas.get(replica_id)
        node_id = resident.node_id if resident is not None else None
        host = self._hosts.get(replica_id, node_id) if node_id is not None else None
        if entry is None or host is None:
            self._failed(command, FailureKind.REFUSED, "the replica is not there any more")
            return
        self._begun[request_id] = None
        if len(self._begun) > BEGUN_KEPT:
            del self._begun[next(iter(self._begun))]
        try:
            answer: Answer = await host.answer.remote(self._epoch, request_id, command.attempt, entry.call)
        except RayError as error:
            self._failed(command, FailureKind.LOST, why(error))
            return
        entry.newest = answer
        if answer.refused:
            self._failed(command, FailureKind.REFUSED, answer.reason)
        elif answer.error is not None:
            self._failed(command, FailureKind.RAISED, answer.reason)
        else:
            self._tell(RequestDone(request_id=request_id, attempt=command.attempt, at=self._now()))
        if answer.poisoned and node_id is not None:
            await self._restart(replica_id, node_id, answer.reason)

    def _failed(self, command: Dispatch | Retry, kind: FailureKind, reason: str) -> None:
        news = RequestFailed(request_id=command.request_id, attempt=command.attempt, kind=kind, reason=reason, at=self._now())
        self._tell(news)

    async def _stop(self, command: StopAttempt) -> None:
        resident = self._state.residency.replicas.get(command.replica_id)
        host = self._hosts.get(command.replica_id, resident.node_id) if resident is not None and resident.node_id else None
        if host is not None:
            host.stop_attempt.remote(str(command.request_id), command.attempt)

    def _tell_caller(self, command: TellCaller) -> None:
        self._waiting.tell(str(command.request_id), command.revision, command.status)

    def _answer(self, command: Complete | Fail | Reject | Expire | Forget) -> None:
        self._waiting.close(command)

    # -- nodes

    async def _look_at_nodes(self) -> None:
        while True:
            await self._see_nodes()
            await asyncio.sleep(LOOK_AT_NODES_S)

    async def _see_nodes(self) -> None:
        try:
            alive = await asyncio.to_thread(live_nodes)
        except Exception as error:  # it raises whatever its connection raises
            LOG.warning("Ray does not say which nodes are alive: %s", error)
            return
        for node_id in sorted(set(self._state.residency.nodes) - set(alive)):
            self._node_memory.pop(node_id, None)
            self._tell(NodeLost(node_id=node_id, at=self._now()))
        unseen = sorted(set(alive) - set(self._node_memory))
        for node_id in unseen:
            if node_id not in self._probing:
                self._probing.add(node_id)
                self._spawn(self._see_node(node_id, dict(alive[node_id].labels)))

    async def _nodes_seen(self) -> None:
        while self._probing:
            await asyncio.sleep(LOOK_AGAIN_S)

    async def _see_node(self, node_id: NodeId, labels: dict[str, str]) -> None:
        probe: Any = ray.remote(num_cpus=0, max_retries=0)(measure)
        there = NodeAffinitySchedulingStrategy(node_id, soft=False)
        try:
            found: NodeMemory = await probe.options(scheduling_strategy=there).remote(self._options)
        except RayError as error:
            LOG.warning("node %s does not say what memory it has; it is asked again: %s", node_id, error)
            return
        finally:
            self._probing.discard(node_id)
        self._node_memory[node_id] = found
        self._tell(
            NodeJoined(node_id=node_id, gpu_bytes=found.gpu_bytes, cpu_bytes=found.cpu_bytes, labels=labels, at=self._now())
        )

    async def _forget_node(self, node_id: NodeId) -> None:
        task: Any = ray.remote(num_cpus=0, max_retries=0)(forget)
        there = NodeAffinitySchedulingStrategy(node_id, soft=False)
        with suppress(RayError, TimeoutError):  # whoever looks at that node next frees what is left there
            forgetting = task.options(scheduling_strategy=there).remote(self._namespace, node_id)
            await asyncio.wait_for(asyncio.wrap_future(forgetting.future()), FORGET_S)

    # -- restarts

    async def _keep_state(self) -> None:
        while True:
            await self._unsaved.wait()
            self._unsaved.clear()
            text = to_json(image_of(self._state)).encode()
            await persist(lambda text=text: self._store.put("state", text))  # type: ignore[misc]

    async def _recover(self) -> None:
        """Go on from the state that was kept: its requests are lost here, its replicas are not."""
        await asyncio.to_thread(self._hosts.find)
        self._hosts.watch()
        told = await asyncio.gather(*(self._told_at(key) for key in self._hosts))
        self._begun = dict.fromkeys(sorted(frozenset().union(*told)))
        await self._see_nodes()
        with suppress(TimeoutError):  # what a node that says nothing was to load fails, and is planned elsewhere
            await asyncio.wait_for(self._nodes_seen(), TOLD_S)
        for command in outstanding(self._state):
            if isinstance(command, Dispatch | Retry):
                self._failed(command, FailureKind.LOST, "the controller was lost")
        for request_id in self._state.unanswered:
            self._tell(RequestCancelled(request_id=request_id, at=self._now()))
        for replica_id, resident in sorted(self._state.residency.replicas.items()):
            place = resident.node_id if resident.level is Level.HOT else resident.copy_node_id
            if resident.level is not Level.COLD and place is not None and self._hosts.get(replica_id, place) is None:
                self._on_host_lost(replica_id, place, "its process ended while there was no controller")
        for command in outstanding(self._state):
            self._carry_out(command)
        self._tell(ClockAdvanced(at=self._now()))
        for key in self._hosts.unneeded(self._state.residency.replicas.get):
            self._spawn(self._hosts.end(*key))

    async def _told_at(self, key: tuple[ReplicaId, NodeId]) -> frozenset[str]:
        """The requests that were begun there. A process that does not say, or knows more than was kept, is ended."""
        asked = self._hosts.get(*key).told.remote(self._epoch)
        try:
            told: Told = await asyncio.wait_for(asked, TOLD_S)
        except (RayError, TimeoutError):
            LOG.warning("replica %s does not say what it was told", key[0])
            await self._hosts.end(*key)
            return frozenset()
        if told.move >= self._state.residency.moves:
            # Commanded after the state was last kept: the same number is about to mean something else.
            LOG.info("replica %s was told of move %d, which was not kept", key[0], told.move)
            await self._hosts.end(*key)
        return told.begun


CARRIED_OUT: dict[type[Any], Callable[[FleetController, Any], Coroutine[Any, Any, None] | None]] = {
    LoadToGpu: FleetController._load,
    OffloadToCpu: FleetController._leave,
    UnloadFromGpu: FleetController._leave,
    DropFromCpu: FleetController._drop,
    Dispatch: FleetController._send,
    Retry: FleetController._send,
    StopAttempt: FleetController._stop,
    TellCaller: FleetController._tell_caller,
    Complete: FleetController._answer,
    Fail: FleetController._answer,
    Reject: FleetController._answer,
    Expire: FleetController._answer,
    Forget: FleetController._answer,
    WakeAt: FleetController._wake,
}
"""How each command is carried out; what takes time is a coroutine."""
