"""What the live page shows: one look at the cluster a second, for all readers, and what the last ten minutes were.

One task looks: at what the controller said (`cluster_view`, which asks it seldom however many read), at what replicas have
counted, at nodes, and at the lines that the journal has since. Nothing runs on a call's way or on the controller's loop for it.
Where nobody reads it looks once in five seconds, so that a page that opens later sees the past. With many replicas it looks
more seldom: it never asks more than a hundred replicas a second.

A sample says replicas and nodes only where they differ from the sample before, so that the past is small. When the oldest
samples are forgotten, what they alone say is handed on to the next. Readers take the bytes of one and the same event; one that
comes too late for what is kept begins again with the whole past.
"""

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from time import monotonic, time
from typing import Any, TypeAlias

import attrs

from executors.engine.recent_notes import BOOKKEEPING
from executors.ray_gpu.metrics.counts import BOUNDS_S
from executors.ray_gpu.overview import DeploymentInfo, Status
from executors.ray_gpu.rest import journal_file
from executors.ray_gpu.rest.cluster_view import ClusterView, NothingRunsError
from executors.ray_gpu.rest.journal_file import JournalPlace, LostPlaceError
from executors.ray_gpu.rest.notes import notes_in
from executors.ray_gpu.world import NodeInfo
from executors.simulator.from_journal.calls import MeasuredCalls, MeasuredTimes
from executors.simulator.from_journal.past import PHASES
from rankcore.errors import RankcoreError
from rankcore.values import ReplicaState

LOG = logging.getLogger(__name__)

Plain: TypeAlias = dict[str, Any]
Counted: TypeAlias = Mapping[str, Plain]
"""What replicas have counted, by their ids; who does not answer is left out."""

READ_S, IDLE_S = 1.0, 5.0
REPLICA_S = 0.01
"""So much longer between two looks for each replica."""
NODES_S = 5.0
KEPT_S = 600.0
KEPT_BYTES = 8 << 20
QUANTILES_S, RATE_S = 10.0, 5.0
"""Quantiles and rates are of the calls that have ended within so long."""
MEASURED_S = 120.0
"""What-ifs go by so much of the past."""
EVENTS = 64
NOTES_MAX = 100
"""In one sample; of more, the newest."""
LINES = 2000
ALIVE_S = 15.0
OTHER_PHASES = {ReplicaState.RECOVERING: "recovering"}


@attrs.define
class _Ended:
    """Calls that have ended between two looks."""

    at: float
    for_s: float
    counts: list[int]
    sum_s: float


@attrs.define
class _KeptSample:
    at: float
    sample: Plain
    size: int


class LivePlane:
    """On the REST server's loop.

    Args:
        replicas: Asks those of a status what they have counted.
        nodes: Asks Ray for the nodes that are alive.
        clock: Wall time, which pages show.
    """

    def __init__(
        self,
        view: ClusterView,
        replicas: Callable[[Status], Awaitable[Counted]],
        nodes: Callable[[], Awaitable[Mapping[str, NodeInfo]]],
        clock: Callable[[], float] = time,
    ) -> None:
        self._view = view
        self._replicas = replicas
        self._ask_nodes = nodes
        self._clock = clock
        self._nodes: Mapping[str, NodeInfo] | None = None
        self._nodes_at = -NODES_S
        self._kept: deque[_KeptSample] = deque()
        self._kept_bytes = 0
        self._said: dict[str, Plain] = {}  # what the last samples said of each deployment's replicas
        self._nodes_said: list[Plain] | None = None
        self._before: dict[str, Plain] = {}  # what each replica had counted
        self._ended: dict[str, deque[_Ended]] = {}
        self._under_way: dict[str, tuple[int, int]] = {}
        self._looked_at: float | None = None
        self._place: tuple[str, JournalPlace] | None = None
        self._events: deque[tuple[int, bytes]] = deque(maxlen=EVENTS)
        self._number = 0
        self._news = asyncio.Condition()
        self._wanted = asyncio.Event()
        self._readers = 0
        self._task: asyncio.Task[None] | None = None

    async def nodes_now(self) -> Mapping[str, NodeInfo] | None:
        """Those that are alive; None: nobody has said yet."""
        self._nodes_at = monotonic()
        try:
            self._nodes = await self._ask_nodes()
        except Exception as error:  # it raises whatever its connection raises
            LOG.warning("Ray does not say which nodes are alive: %s", error)
        return self._nodes

    def begin(self) -> None:
        """Look from now on."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._go())

    async def end(self) -> None:
        """Look no longer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _go(self) -> None:
        while True:
            began = monotonic()
            try:
                await self.look()
            except Exception:  # whatever it was, the next look may see more
                LOG.exception("the live page has missed a look")
            replicas = sum(len(each.get("replicas", ())) for each in self._said.values())
            period_s = (READ_S if self._readers else IDLE_S) + REPLICA_S * replicas
            self._wanted.clear()
            try:
                async with asyncio.timeout(max(0.05, began + period_s - monotonic())):
                    await self._wanted.wait()
            except TimeoutError:
                pass

    # -- readers

    async def events(self) -> AsyncIterator[bytes]:
        """The past, then each sample as it is taken, for as long as the reader stays."""
        self.begin()
        self._readers += 1
        self._wanted.set()
        try:
            seen = self._number
            yield self._past()
            while True:
                try:
                    async with asyncio.timeout(ALIVE_S), self._news:
                        while self._number == seen:
                            await self._news.wait()
                except TimeoutError:
                    yield b": alive\n\n"
                    continue
                due = [event for number, event in self._events if number > seen]
                late = len(due) < self._number - seen
                seen = self._number
                yield self._past() if late else b"".join(due)
        finally:
            self._readers -= 1

    def _past(self) -> bytes:
        data = {"samples": [each.sample for each in self._kept], "now": self._clock(), "kept_s": KEPT_S}
        return f"event: past\ndata: {json.dumps(data)}\n\n".encode()

    # -- what was measured

    def measured(self) -> dict[str, MeasuredCalls]:
        """What deployments were asked in the last minutes, of those that were looked at for some of them."""
        found = {}
        for name, ended in self._ended.items():
            since = ended[-1].at - MEASURED_S if ended else 0.0
            recent = [each for each in ended if each.at > since]
            for_s = sum(each.for_s for each in recent)
            took = _together(recent)
            waiting, in_flight = self._under_way.get(name, (0, 0))
            if for_s:
                rate = took.count / for_s
                found[name] = MeasuredCalls(rate_per_s=rate, took=took, waiting=waiting, in_flight=in_flight, measured_s=for_s)
        return found

    # -- a look

    async def look(self) -> Plain:
        """Take one sample, keep it and tell readers."""
        sample: Plain = {"at": round(self._clock(), 3), "problem": None, "deployments": {}}
        try:
            status: Status | None = (await self._view.look()).status
        except NothingRunsError:
            status = None
        except RankcoreError as error:
            sample["problem"] = " ".join(str(error).split())
            self._looked_at = None
            self._said.clear()  # the next one that sees them says all of them
            return await self._keep(sample)
        if status is not None:
            counted = await self._replicas(status)
            now = monotonic()
            for_s = now - self._looked_at if self._looked_at is not None else 0.0
            for name, info in status.deployments.items():
                sample["deployments"][name] = self._of_deployment(info, counted, now, for_s)
            self._looked_at = now
            self._forget(status)
            sample["notes"], sample["missed"] = await self._notes(status.journal)
        said = await self._of_nodes(status)
        if said != self._nodes_said:
            self._nodes_said = sample["nodes"] = said
        return await self._keep(sample)

    def _of_deployment(self, info: DeploymentInfo, counted: Counted, now: float, for_s: float) -> Plain:
        ended = _Ended(now, for_s, [0] * (len(BOUNDS_S) + 1), 0.0)
        in_flight = 0
        for replica in info.replicas:
            counts = counted.get(replica.replica_id)
            if counts is None or len(counts["counts"]) != len(ended.counts):  # of a release with other buckets
                continue
            in_flight += counts["in_flight"]
            before = self._before.get(replica.replica_id)
            self._before[replica.replica_id] = counts
            was = before["counts"] if before is not None else [0] * len(counts["counts"])
            if sum(was) > sum(counts["counts"]):
                was, before = [0] * len(was), None  # another process with the id
            ended.counts = [have + now - then for have, now, then in zip(ended.counts, counts["counts"], was, strict=True)]
            ended.sum_s += counts["sum_s"] - (before["sum_s"] if before is not None else 0.0)
        kept = self._ended.setdefault(info.name, deque())
        if for_s:  # what was before the first look was not within it
            kept.append(ended)
        while kept and kept[0].at < now - MEASURED_S:
            kept.popleft()
        self._under_way[info.name] = info.waiting, in_flight
        took = _together([each for each in kept if each.at > now - QUANTILES_S])
        said: Plain = {
            "status": str(info.status),
            "message": info.message[:300],
            "rollout": info.rollout,
            "target": info.world_size,
            "waiting": info.waiting,
            "in_flight": in_flight,
            "rate": _rate([each for each in kept if each.at > now - RATE_S]),
            "p50": _rounded(took.quantile(0.5)),
            "p99": _rounded(took.quantile(0.99)),
        }
        if info.has_residency:
            said["residency"] = True
        changed = {"replicas": _replicas(info)} | ({"workers": _workers(info)} if info.has_residency else {})
        known = self._said.setdefault(info.name, {})
        for key, value in changed.items():
            if known.get(key) != value:
                known[key] = said[key] = value
        return said

    def _forget(self, status: Status) -> None:
        """Whoever is gone: another one of the name begins anew."""
        there = {replica.replica_id for info in status.deployments.values() for replica in info.replicas}
        self._before = {key: each for key, each in self._before.items() if key in there}
        for name in self._ended.keys() - status.deployments.keys():
            del self._ended[name]
            self._under_way.pop(name, None)
            self._said.pop(name, None)

    async def _of_nodes(self, status: Status | None) -> list[Plain]:
        if monotonic() - self._nodes_at >= NODES_S:
            await self.nodes_now()
        cordons = {each.node_id: each for each in status.cordons} if status is not None else {}
        memory = {each.node_id: each for each in status.memory} if status is not None else {}
        found = []
        for node_id, node in sorted((self._nodes or {}).items()):
            said: Plain = {"id": node_id, "address": node.address, "total": _shown(node.total), "free": _shown(node.free)}
            cordon, weights = cordons.get(node_id), memory.get(node_id)
            if cordon is not None and cordon.state != "open":
                left_s = round(cordon.left_s) if cordon.left_s is not None else None
                said["cordon"] = {"state": cordon.state, "left_s": left_s, "reason": cordon.reason}
            if weights is not None:
                said["gpus"] = weights.gpus
                said["host"] = (weights.cpu_bytes, weights.cpu_free_bytes)
            found.append(said)
        return found

    async def _notes(self, path: str | None) -> tuple[list[Plain], int]:
        """Those that the journal has since the last look."""
        if path is None:
            return [], 0
        if self._place is None or self._place[0] != path:
            place = await asyncio.to_thread(journal_file.end, path)
            self._place = (path, place) if place is not None else None
            return [], 0
        try:
            lines, after = await asyncio.to_thread(journal_file.lines_after, path, self._place[1], LINES)
        except (LostPlaceError, OSError):
            self._place = None
            return [], 1
        self._place = path, after
        found = [
            note for line, _ in lines for note in notes_in(line) if (note.get("of") or note).get("kind") not in BOOKKEEPING
        ]
        return found[-NOTES_MAX:], max(0, len(found) - NOTES_MAX)

    async def _keep(self, sample: Plain) -> Plain:
        text = json.dumps(sample)
        self._kept.append(_KeptSample(sample["at"], sample, len(text)))
        self._kept_bytes += len(text)
        while len(self._kept) > 1 and (self._kept[0].at < sample["at"] - KEPT_S or self._kept_bytes > KEPT_BYTES):
            oldest = self._kept.popleft()
            self._kept_bytes -= oldest.size
            _hand_on(oldest.sample, self._kept[0].sample)
        async with self._news:
            self._number += 1
            self._events.append((self._number, f"event: sample\ndata: {text}\n\n".encode()))
            self._news.notify_all()
        return sample


def _hand_on(oldest: Plain, following: Plain) -> None:
    """What only a sample says that is forgotten now is said by the one after it."""
    if "nodes" in oldest:
        following.setdefault("nodes", oldest["nodes"])
    for name, said in following["deployments"].items():
        for key in ("replicas", "workers"):
            if key in oldest["deployments"].get(name, ()):
                said.setdefault(key, oldest["deployments"][name][key])


def _together(ended: list[_Ended]) -> MeasuredTimes:
    counts = [sum(column) for column in zip(*(each.counts for each in ended), strict=True)]
    return MeasuredTimes(BOUNDS_S, counts or [0] * (len(BOUNDS_S) + 1), sum(each.sum_s for each in ended))


def _rate(ended: list[_Ended]) -> float | None:
    for_s = sum(each.for_s for each in ended)
    return round(sum(sum(each.counts) for each in ended) / for_s, 3) if for_s else None


def _rounded(seconds: float | None) -> float | None:
    return round(seconds, 6) if seconds is not None else None


def _replicas(info: DeploymentInfo) -> list[list[Any]]:
    """Rank, id, node, phase in the words of the report, what it waits for."""
    return [
        [
            each.rank.rank if each.rank is not None else None,
            each.replica_id,
            each.node_id,
            str(PHASES.get(each.state, OTHER_PHASES.get(each.state, str(each.state).lower()))),
            each.message[:200],
        ]
        for each in info.replicas
    ]


def _workers(info: DeploymentInfo) -> list[list[Any]]:
    return [
        [
            each.worker_id,
            each.level,
            each.phase,
            each.node_id,
            list(each.gpus),
            sum(each.gpu_bytes),
            each.percent,
            each.replica_id,
        ]
        for each in info.workers
    ]


def _shown(amounts: Mapping[str, float]) -> dict[str, float]:
    return {name: round(amounts[name], 3) for name in ("CPU", "GPU", "memory") if name in amounts}
