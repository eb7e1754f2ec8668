"""The replica actor: one process that believes one rank, and runs the user's code on a thread of its own.

It imports as little as possible: a thousand idle replicas should weigh no more than a thousand bare actors.
"""

import asyncio
import os
import pickle
import time
from pathlib import Path
from typing import Any

import attrs
import ray
from ray.experimental import internal_kv

from executors.beliefs import Beliefs, Verdict
from executors.deployment_ids import own_name
from executors.ray_gpu import context, names, socket_files
from executors.ray_gpu.environment import find_modules
from executors.ray_gpu.messages import WATCH_S, Change, Endpoint, Outcome, Ranks, Report
from executors.ray_gpu.os_processes import processors_in_use, started_at
from executors.ray_gpu.requests.packing import Arguments, Reference
from executors.ray_gpu.requests.server import CallServer
from executors.ray_gpu.user_code import Code, UserCode, traceback_of


class FencedError(Exception):
    """A controller that has been replaced started this replica."""


@attrs.define(eq=False)
class _Pending:
    change: Change
    outcome: "asyncio.Future[Outcome]"


class Replica:
    """What the controller talks to. Every method answers while user code runs, unless it says that it waits."""

    def __init__(
        self,
        namespace: str,
        deployment: str,
        replica_id: str,
        version: str,
        epoch: int,
        bundles: tuple[int, ...] = (),
        group_id: str | None = None,
    ) -> None:
        newest = newest_epoch(namespace)
        if newest > epoch:
            raise FencedError(f"{replica_id} was started in epoch {epoch}, and epoch {newest} has begun")
        code = load_code(namespace, deployment, version)
        self._version = version
        self._place = (bundles, group_id)
        self._beliefs = Beliefs[Ranks](epoch)
        find_modules(code.sys_path, code.sys_path_behind)
        self._user = UserCode(code)
        runtime = ray.get_runtime_context()
        self._endpoint = Endpoint(
            replica_id,
            names.actor_name(deployment, replica_id),
            runtime.get_node_id(),
            socket_files.new_path(),
            os.getpid(),
            started_at(os.getpid()),
        )
        self._server = CallServer(self._user, self._endpoint.socket_path, code.max_ongoing_requests)
        self._limited_by = (0, 0)
        self._context = context.ReplicaContext(
            app_name=code.app_name,
            deployment=own_name(code.app_name, deployment),
            replica_id=replica_id,
            ranks=(-1, -1, -1),
            world_size=0,
            node_id=self._endpoint.node_id,
            namespace=namespace,
            bundle_indices=list(bundles),
        )
        self._history: list[tuple[float, Ranks]] = []
        self._ready = False
        self._draining = False
        self._newest: _Pending | None = None  # the change accepted last, and its answer
        self._next: _Pending | None = None  # accepted, and waiting for the one that runs
        self._worker: asyncio.Task[None] | None = None

    # -- what the controller asks

    async def describe(self) -> Endpoint:
        """Where this replica is."""
        return self._endpoint

    async def watch(self) -> None:
        """Returns after a while: that this call fails is how the controller learns of this process's end."""
        await asyncio.sleep(WATCH_S)

    async def query(self, epoch: int) -> Report | Outcome:
        """What this replica believes. Waits while a change of ranks or user_config runs, but not for the start-up."""
        if not self._beliefs.admit(epoch):
            return self._refusal()
        while self._ready and self._worker is not None:
            await asyncio.wait([self._worker])
        return self.report()

    async def beliefs(self) -> Report:
        """What this replica believes at this moment, whatever runs. For those who watch, not for the controller."""
        return self.report()

    async def change(self, change: Change) -> Outcome:
        """Adopt ranks and user_config, and let user code know where R12 says so. Waits until that is done."""
        stamp = (change.epoch, change.revision)
        match self._beliefs.accept(stamp, change.ranks, change.world_size, change.config_id, initialize=change.initialize):
            case Verdict.REFUSED:
                return self._refusal()
            case Verdict.OVERTAKEN:
                self._show()
                return Outcome("overtaken")
            case Verdict.REPEATED:
                assert self._newest is not None, "a repeated change has come before"
                return await asyncio.shield(self._newest.outcome)
            case Verdict.CARRY_OUT:
                if not self._history or self._history[-1][1] != change.ranks:
                    self._history.append((time.monotonic(), change.ranks))
                self._show()
                self._newest = _Pending(change, asyncio.get_running_loop().create_future())
                return await self._carry_out(self._newest)

    async def wait_ready(self) -> Outcome:
        """How the start-up ended. Waits until it has."""
        while not self._ready and self._user.failure is None and self._worker is not None:
            await asyncio.wait([self._worker])
        return Outcome("failed", self._user.failure) if self._user.failure is not None else Outcome("done")

    async def announce(self, epoch: int, revision: int, world_size: int) -> bool:
        """Learn a world size; user code is not called."""
        accepted = self._beliefs.announce(epoch, revision, world_size)
        self._show()
        return accepted

    async def check_health(self) -> str | None:
        """None: all is well; else what is wrong. Waits for the user's `check_health`."""
        if not self._ready or not self._user.checks_health:
            return None
        try:
            await self._user.run(self._user.check_health())
        except Exception as error:
            return traceback_of(error)
        return None

    async def drain(self, epoch: int, timeout_s: float) -> Outcome:
        """Finish the calls that are under way, for `timeout_s` at most, and let user code clean up. Repeatable."""
        if not self._beliefs.admit(epoch):
            return self._refusal()
        self._draining = True
        if not self._ready:
            return Outcome("done")
        try:
            async with asyncio.timeout(timeout_s):
                await self._user.run(self._server.drain())
                await self._user.run(self._user.end())
        except TimeoutError:
            return Outcome("failed", f"calls were still under way after {timeout_s:g} s")
        except Exception as error:
            return Outcome("failed", traceback_of(error))
        return Outcome("done")

    async def limit(self, by: tuple[int, int], max_ongoing_requests: int) -> None:
        """Take so many calls at once from now on. `by`: epoch and number, of which the highest counts."""
        if by > self._limited_by:
            self._limited_by = by
            self._user.loop.call_soon_threadsafe(self._server.limit, max_ongoing_requests)

    async def load(self) -> int:
        """How many calls are under way."""
        return self._server.under_way

    async def processors_in_use(self, during_s: float) -> float:
        """What share of this node's processor time is in use, from 0 to 1. Waits so long."""
        return await processors_in_use(during_s)

    # -- what callers on other nodes ask, and all whose arguments or results are large

    async def say(self, key: str, number: int, data: bytes) -> None:
        """Frames of a caller; see `requests.connection.Mailbox`."""
        self._user.loop.call_soon_threadsafe(lambda: self._server.mailbox(key).say(number, data))

    async def hear(self, key: str, heard: int) -> tuple[int, bytes]:
        """Frames for a caller. Waits until there are some, for a while."""
        return await self._user.run(self._server.hear(key, heard))

    async def hang_up(self, key: str) -> None:
        """A caller needs nothing more."""
        self._user.loop.call_soon_threadsafe(lambda: self._server.mailbox(key).hang_up())

    async def call_large(self, key: str, call_id: int, method: str, about: tuple[str, str, bool], arguments: Arguments) -> None:
        """Begin a call whose arguments are large; it is answered through the connection that the key names.

        Raises:
            RayError: An argument is the result of another call, and lost.
        """
        args, kwargs = arguments
        there = tuple([await _here(each) for each in args]), {name: await _here(each) for name, each in kwargs.items()}
        await self._user.run(self._server.call_large(key, call_id, method, there, about))

    async def fetch(self, key: str, call_id: int) -> Any:
        """The large result of a call."""
        return await self._user.run(self._server.fetch(key, call_id))

    def report(self) -> Report:
        """What this replica believes now."""
        return Report(
            endpoint=self._endpoint,
            ranks=self._beliefs.rank,
            world_size=self._beliefs.world_size,
            version=self._version,
            ready=self._ready,
            draining=self._draining,
            config_id=self._beliefs.config_id,
            epoch=self._beliefs.epoch,
            failure=self._user.failure,
            at=time.monotonic(),
            history=tuple(self._history),
            bundles=self._place[0],
            group_id=self._place[1],
        )

    # -- changes, one after another

    async def _carry_out(self, pending: _Pending) -> Outcome:
        if self._next is not None:
            # It never began: only the newest is carried out.
            self._next.outcome.set_result(Outcome("overtaken"))
        self._next = pending
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())
        return await asyncio.shield(pending.outcome)

    async def _work(self) -> None:
        try:
            while self._next is not None:
                pending, self._next = self._next, None
                pending.outcome.set_result(await self._apply(pending.change))
        finally:
            self._worker = None

    async def _apply(self, change: Change) -> Outcome:
        try:
            if self._ready:
                await self._user.run(self._user.change(change))
            elif self._user.failure is None:
                await self._user.run(self._start(change))
                self._ready = True
                self._show()
        except Exception as error:
            self._user.failure = traceback_of(error)
        return Outcome("failed", self._user.failure) if self._user.failure is not None else Outcome("done")

    async def _start(self, change: Change) -> None:
        await self._user.start(change)
        await self._server.listen()
        self._server.accepting = True
        if self._endpoint.socket_path:
            socket_files.sweep(Path(self._endpoint.socket_path).parent)  # those of killed replicas, which this one may replace

    def _show(self) -> None:
        """Let user code see what this replica believes now."""
        if self._beliefs.rank is None or self._beliefs.world_size is None:
            return
        self._context = attrs.evolve(
            self._context,
            ranks=self._beliefs.rank,
            world_size=self._beliefs.world_size,
            servable_object=self._user.instance,
        )
        context.set_context(self._context)

    def _refusal(self) -> Outcome:
        return Outcome("refused", str(self._beliefs.epoch))


async def _here(argument: Any) -> Any:
    return await argument.reference if type(argument) is Reference else argument


def load_code(namespace: str, deployment: str, version: str) -> Code:
    """What the user deployed, from the cluster's key-value store.

    Raises:
        LookupError: It is not there (any more).
    """
    packed = internal_kv._internal_kv_get(names.code_key(namespace, deployment, version), namespace=names.KV_NAMESPACE)
    if packed is None:
        raise LookupError(f"the code of {deployment} version {version} is not in the cluster: was the deployment deleted?")
    code = pickle.loads(packed)
    assert isinstance(code, Code)
    return code


def newest_epoch(namespace: str) -> int:
    """The epoch of the newest controller: the fence."""
    claimed = internal_kv._internal_kv_list(names.epoch_prefix(namespace), namespace=names.KV_NAMESPACE)
    return max((int(key.rpartition(b"/")[2]) for key in claimed), default=0)
