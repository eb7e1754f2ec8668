"""The replica actor: one process that believes one rank, and runs the user's code on a thread of its own.

It imports as little as possible: a thousand idle replicas should weigh no more than a thousand bare actors.
"""

import asyncio
import os
import pickle
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, assert_never

import attrs
import ray
from ray.experimental import internal_kv

from executors.deployment_ids import own_name
from executors.ray_gpu import context, deployment_actors, names, socket_files, traces
from executors.ray_gpu.environment import find_modules
from executors.ray_gpu.fence import newest_epoch
from executors.ray_gpu.logs.config import UNASKED, from_plain
from executors.ray_gpu.logs.process import log_from_here
from executors.ray_gpu.logs.shown_name import show_as, shown_name
from executors.ray_gpu.logs.who import Writer
from executors.ray_gpu.messages import NO_RANKS, WATCH_S, Change, Endpoint, Outcome, Ranks, Report
from executors.ray_gpu.metrics.counts import count_here
from executors.ray_gpu.metrics.of_requests import of_replica
from executors.ray_gpu.metrics.publisher import publish
from executors.ray_gpu.os_processes import processors_in_use, reap, started_at
from executors.ray_gpu.requests.packing import Arguments, Reference
from executors.ray_gpu.requests.server import CallServer
from executors.ray_gpu.requests.tracing import trace_as
from executors.ray_gpu.user_code import FIRST_CHECK_S, Code, UserCode, traceback_of
from rankcore.replica import replica as half
from rankcore.replica.beliefs import Stamp
from rankcore.replica.replica import (
    BecameReady,
    BecameUnready,
    Done,
    Drain,
    End,
    Overtaken,
    Reaction,
    Refused,
    RunUserCode,
    StartFailed,
)


class FencedError(Exception):
    """A controller that has been replaced started this replica."""


class Replica:
    """What the controller talks to. Every method answers while user code runs, unless it says that it waits.

    Attributes:
        half: What it believes.
    """

    def __init__(
        self,
        namespace: str,
        deployment: str,
        replica_id: str,
        version: str,
        epoch: int,
        bundles: tuple[int, ...] = (),
        group_id: str | None = None,
        user: UserCode | None = None,
        actor_name: str | None = None,
        restart_token: str = "",
    ) -> None:
        self._replica_id = replica_id  # first: Ray asks one that does not come up for its name too
        self._namespace = namespace
        self._user = user or admitted_code(namespace, deployment, version, replica_id, epoch)
        code = self._user.code
        self._endpoint = Endpoint(
            replica_id,
            actor_name or names.actor_name(deployment, replica_id),
            ray.get_runtime_context().get_node_id(),
            socket_files.new_path(),
            os.getpid(),
            started_at(os.getpid()),
        )
        self.half = half.ReplicaHalf(
            epoch=epoch,
            replica_id=replica_id,
            version=version,
            node_id=self._endpoint.node_id,
            bundles=bundles,
            group_id=group_id,
            restart_token=restart_token,
        )
        self._server = CallServer(self._user, self._endpoint.socket_path, code.max_ongoing_requests)
        count_here(self._server.counts)
        publish(self._server, partial(of_replica, deployment, replica_id))
        self._limited_by = (0, 0)
        self._context = context.ReplicaContext(
            app_name=code.app_name,
            deployment=own_name(code.app_name, deployment),
            replica_id=replica_id,
            ranks=NO_RANKS,
            world_size=0,
            node_id=self._endpoint.node_id,
            namespace=namespace,
            bundle_indices=list(bundles),
            code_version=version,
        )
        self._shown_name = ""
        self._history: list[tuple[float, Ranks]] = []
        self._answers: dict[Stamp, asyncio.Future[Outcome]] = {}
        self._queries: list[asyncio.Future[None]] = []
        self._working: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        """What Ray calls it while it has no rank, and its dashboard always: see `logs.shown_name`."""
        return self._replica_id

    # -- what the controller asks

    async def describe(self) -> Endpoint:
        """Where this replica is."""
        return self._endpoint

    async def watch(self) -> None:
        """Returns after a while: that this call fails is how the controller learns of this process's end."""
        await asyncio.sleep(WATCH_S)

    async def query(self, epoch: int) -> Report | Outcome:
        """What this replica believes. Waits while a change of ranks or user_config runs, but not for the start-up."""
        self.half, reactions = half.query(self.half, epoch)
        if _refused(reactions):
            return self._refusal()
        self._queries.append(answer := asyncio.get_running_loop().create_future())
        self._react(reactions)
        await answer
        return self.report()

    async def beliefs(self) -> Report:
        """What this replica believes at this moment, whatever runs. For those who watch, not for the controller."""
        return self.report()

    async def change(self, change: Change) -> Outcome:
        """Adopt ranks and user_config, and let user code know where R12 says so. Waits until that is done."""
        after, reactions = half.change(self.half, change)
        self._become(after)
        if _refused(reactions):
            return self._refusal()
        ranks = _ranks(self.half)
        if ranks is not None and (not self._history or self._history[-1][1] != ranks):
            self._history.append((time.monotonic(), ranks))
        self._show()
        # Repeated while it is under way, it has the same answer at the same time.
        answer = self._answers.setdefault((change.epoch, change.revision), asyncio.get_running_loop().create_future())
        self._react(reactions)
        return await asyncio.shield(answer)

    async def wait_ready(self) -> Outcome:
        """How the start-up ended. Waits until it has."""
        while self.half.starting and self._working is not None:
            await asyncio.wait([self._working])
        return Outcome("failed", self.half.failure or "") if self.half.failed_to_start else self._started()

    async def announce(self, epoch: int, revision: int, world_size: int) -> bool:
        """Learn a world size; user code is not called."""
        self.half, reactions = half.announce(self.half, epoch, revision, world_size)
        self._show()
        return not _refused(reactions)

    async def check_health(self) -> str | None:
        """None: all is well; else what is wrong. Waits for the user's `check_health`."""
        if not self.half.constructed or not self._user.checks_health:
            return None
        try:
            await self._user.run(self._user.check_health())
        except Exception as error:
            return traceback_of(error)
        return None

    async def check_ready(self, timeout_s: float) -> tuple[bool, str | None]:
        """Whether the user wrote a `check_ready`, and why it takes no requests for now; None: it takes them."""
        if self.half.ready:
            problem = await self._user.problem(timeout_s)
            self._become(half.readiness(self.half, problem)[0])
        return self._user.checks_readiness, self.half.unready

    async def drain(self, epoch: int, timeout_s: float) -> Outcome:
        """Finish the calls that are under way, for `timeout_s` at most, and let user code clean up. Repeatable."""
        if (newest := await asyncio.to_thread(newest_epoch, self._namespace)) > epoch:
            return Outcome("refused", str(newest))  # by a controller that has said nothing here yet
        self.half, reactions = half.stop(self.half, epoch, timeout_s)
        if _refused(reactions):
            return self._refusal()
        if not self.half.constructed:
            return Outcome("done")
        try:
            async with asyncio.timeout(timeout_s):
                await self._user.run(self._server.drain())
                await self._user.run(self._user.end())
        except TimeoutError:
            return Outcome("failed", f"calls were still under way after {timeout_s:g} s")
        except Exception as error:
            return Outcome("failed", traceback_of(error))
        finally:
            calls = sys.modules.get("executors.ray_gpu.requests.routes")
            if calls is not None:  # else it has called nobody
                await calls.say_goodbye()
        return Outcome("done")

    async def limit(self, by: tuple[int, int], max_ongoing_requests: int) -> None:
        """Take so many calls at once from now on. `by`: epoch and number, of which the highest counts."""
        if by > self._limited_by:
            self._limited_by = by
            self._user.loop.call_soon_threadsafe(self._server.limit, max_ongoing_requests)

    async def load(self) -> int:
        """How many calls are under way."""
        return self._server.under_way

    async def counted(self) -> dict[str, Any]:
        """How many are under way, and how many have ended so far within which time: as plain data, for other releases."""
        took = self._server.counts.all_latency
        return {"in_flight": self._server.under_way, "counts": took.counts, "sum_s": took.sum}

    async def requests(self) -> list[dict[str, Any]]:
        """Which they are: see `CallServer.requests`."""
        return await self._user.run(self._server.requests())

    async def end_request(self, key: str, call_id: int, why: str) -> bool:
        """End one of them; whether there is such a call."""
        return await self._user.run(self._server.end_request(key, call_id, why))

    async def processors_in_use(self, during_s: float) -> float:
        """What share of this node's processor time is in use, from 0 to 1. Waits so long."""
        return await processors_in_use(during_s)

    async def reap(self, pid: int, started: int | None) -> bool:
        """Whether another process of this node is gone. Waits for that a while; one that is stuck is killed."""
        return await asyncio.to_thread(reap, pid, started)

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
            ranks=_ranks(self.half),
            world_size=self.half.world_size,
            version=self.half.version,
            ready=self.half.ready,
            draining=self.half.draining,
            config_id=self.half.config_id,
            epoch=self.half.epoch,
            failure=self.half.failure,
            at=(now := time.monotonic()),
            history=tuple(self._history),
            bundles=self.half.bundles,
            group_id=self.half.group_id,
            protocol=names.PROTOCOL,
            restart_token=self.half.restart_token,
            prepared=self.half.prepared,
            unready=self.half.unready,
            ready_for_s=half.ready_for_s(self.half, now),
        )

    # -- what the half of the contract says is to be done, and said

    def _react(self, reactions: tuple[Reaction, ...]) -> None:
        for each in reactions:
            match each:
                case RunUserCode():
                    self._working = asyncio.create_task(self._run(each))
                case Done(command=command, failure=failure):
                    failed = failure is not None and not command.initialize
                    outcome = Outcome("failed", failure or "") if failed else self._started()
                    self._answer((command.epoch, command.revision), outcome)
                case Overtaken(command=command):
                    self._answer((command.epoch, command.revision), Outcome("overtaken"))
                case StartFailed(reason=reason):
                    for stamp in list(self._answers):
                        self._answer(stamp, Outcome("failed", reason))
                    self._report()
                case half.ReportBeliefs():
                    self._report()
                case Drain() | End() | Refused() | BecameUnready() | BecameReady():
                    pass  # `drain` does it, and the controller ends the process; `check_ready` and `Outcome.detail` say it
                case _:
                    assert_never(each)

    def _become(self, after: half.ReplicaHalf) -> None:
        self.half = half.timed(self.half, after, time.monotonic())

    def _started(self) -> Outcome:
        return Outcome("done", self.half.unready or "")

    _apply = _carry_out = _work = _react
    """The last name is of now. Ray unpickles the class of a replica of before by the others, and needs each; see `_Pending`."""

    def _answer(self, stamp: Stamp, outcome: Outcome) -> None:
        answer = self._answers.pop(stamp, None)
        if answer is not None:
            answer.set_result(outcome)

    def _report(self) -> None:
        queries, self._queries = self._queries, []
        for each in queries:
            if not each.done():  # whoever asked may be gone
                each.set_result(None)

    async def _run(self, work: RunUserCode) -> None:
        change, failure = work.command, None
        assert isinstance(change, Change), f"{change} has not come through `change`"
        try:
            await self._user.run(self._start(change) if work.starting else self._user.change(change))
        except Exception as error:
            failure = traceback_of(error)
        first = failure is None and change.rank is not None and not self.half.ready
        problem = await self._user.problem(FIRST_CHECK_S) if first else None
        after, reactions = half.ended(self.half, failure)
        self._become(after)
        if problem is not None:
            self._become(half.readiness(self.half, problem)[0])
        self._show()
        self._react(reactions)

    async def _start(self, change: Change) -> None:
        if (shared := deployment_actors.shared_here()) is not None:
            await asyncio.to_thread(shared.start)
        await self._user.start(change)
        await self._server.listen()
        self._server.accepting = True  # with ranks or without: who gets calls, the routes say
        if self._endpoint.socket_path:
            socket_files.sweep(Path(self._endpoint.socket_path).parent)  # those of killed replicas, which this one may replace

    def _show(self) -> None:
        """Let user code see what this replica believes now."""
        ranks, world_size = _ranks(self.half), self.half.world_size
        if world_size is None or (ranks is None and not self.half.begun):
            return
        self._context = attrs.evolve(
            self._context,
            ranks=ranks if ranks is not None else NO_RANKS,
            world_size=world_size,
            servable_object=self._user.instance,
        )
        context.set_context(self._context)
        self._show_name()

    def _show_name(self) -> None:
        now, ranks = self._context, self._context.ranks
        name = shown_name(now.app_name, now.deployment, now.replica_id, None if ranks == NO_RANKS else ranks[0])
        if name != self._shown_name:
            self._shown_name = name
            show_as(name)

    def _refusal(self) -> Outcome:
        return Outcome("refused", str(self.half.epoch))


def _refused(reactions: tuple[Reaction, ...]) -> bool:
    return any(isinstance(each, Refused) for each in reactions)


def _ranks(replica: half.ReplicaHalf) -> Ranks | None:
    rank = replica.rank
    return None if rank is None else (rank.rank, rank.node_rank, rank.local_rank)


async def _here(argument: Any) -> Any:
    return await argument.reference if type(argument) is Reference else argument


def admitted_code(namespace: str, deployment: str, version: str, process: str, epoch: int) -> UserCode:
    """The user's code in a process that has just begun, whose modules can be imported from now on.

    Raises:
        FencedError: The controller that started the process has been replaced.
        LookupError: The code is not in the cluster (any more).
    """
    newest = newest_epoch(namespace)
    if newest > epoch:
        raise FencedError(f"{process} was started in epoch {epoch}, and epoch {newest} has begun")
    code = load_code(namespace, deployment, version)
    find_modules(code.sys_path, code.sys_path_behind)
    trace_as(traces.kept(namespace), process)
    deployment_actors.share(_shared(namespace, code))
    user = UserCode(code)
    writer = Writer(code.app_name, own_name(code.app_name, code.deployment), process)
    user.access_log = log_from_here(from_plain(code.logging) or UNASKED, "replica", process, writer.said)
    return user


def _shared(namespace: str, code: Code) -> deployment_actors.Shared | None:
    if not code.actors:
        return None
    actors: list[deployment_actors.Packed] = pickle.loads(code.actors)
    return deployment_actors.Shared(
        namespace=namespace,
        deployment=code.deployment,
        version=code.version,
        app_name=code.app_name,
        own_name=own_name(code.app_name, code.deployment),
        actors={each.name: each for each in actors},
        python_path=os.pathsep.join((*code.sys_path, *code.sys_path_behind)),
    )


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


_Pending = Outcome
"""A class that methods of replicas of before speak of. Else a controller that finds such a replica could say nothing to it."""
