"""Requests of a deployment whose replicas serve by an engine: what one takes depends on what else its replica serves.

What: each replica has an `EngineBatch`, whose flights are events of the run: one ends, those that are done leave, the router
hands over others, the next flight begins. A request that arrives, or is given up, cuts the flight to the iteration under way;
a hang stretches that iteration, a crash loses the batch.

Races, at one instant:
1. Several requests come together, or one as a flight ends: a flight begins after everything else of its instant, so they
   are all in it. It begins at the exact time of the engine, whatever the clock of the run rounds to.
2. A request comes while the last flight ends in which it could be admitted: the flight's end is an event of the heap, which
   comes before arrivals of the same time; the next flight finds it.
3. A replica ends just as its flight does: the flight has ended, and who is done with it is done.
4. A flight that was cut has its former end in the heap still: it has another number, and does nothing.
"""

import math
from array import array
from collections.abc import Iterator, Mapping

import attrs

from executors.simulator.clock import EventLoop
from executors.simulator.engines.batching import EngineBatch, EngineWork
from executors.simulator.engines.decoders import EngineSequence
from executors.simulator.engines.gaps import TokenGaps
from executors.simulator.engines.pages import EnginePage, EnginePages
from executors.simulator.engines.spec import PS_PER_S, Engine
from executors.simulator.load.arrivals import Arrivals
from executors.simulator.load.requests import RequestQueue, Server
from executors.simulator.scenario.engines import RequestSlo
from rankcore.routing import FailureKind, RoutingSpec
from rankcore.routing.commands import Command, StopAttempt
from rankcore.routing.events import RequestFailed
from rankcore.values import NodeId, ReplicaId


@attrs.define
class EngineCounts:
    """What engines did in a run so far, and what requests felt of it.

    Attributes:
        ttft_s, tpot_s: Of the done ones, in the order in which they ended: from arrival to the first token, and for each
            further token, where there is one.
        delays_s: Likewise from arrival to the first iteration.
        good: How many of them met what a request is to meet.
        too_long: Turned away, as no replica could hold them.
        prompt_tokens, output_tokens, good_tokens: Of those that are done; output tokens of the good ones.
        iterations, decoded, busy_ps, extrapolated_ps, lived_ps, preemptions, kv_share_ps, kv_peak: Of all replicas together;
            `kv_share_ps`: of a KV cache, summed over the time of iterations; `kv_peak`: the highest share.
        gaps: Between the tokens of a sequence.
    """

    ttft_s: "array[float]" = attrs.Factory(lambda: array("d"))
    tpot_s: "array[float]" = attrs.Factory(lambda: array("d"))
    delays_s: "array[float]" = attrs.Factory(lambda: array("d"))
    good: int = 0
    too_long: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    good_tokens: int = 0
    iterations: int = 0
    decoded: int = 0
    busy_ps: int = 0
    extrapolated_ps: int = 0
    lived_ps: int = 0
    preemptions: int = 0
    kv_share_ps: float = 0.0
    kv_peak: float = 0.0
    gaps: TokenGaps = attrs.Factory(TokenGaps)

    def add(self, batch: EngineBatch, lived_ps: int) -> None:
        """A replica is no more, or the run is over."""
        work = batch.work
        self.iterations += work.iterations
        self.decoded += work.decoded
        self.busy_ps += work.busy_ps
        self.extrapolated_ps += work.extrapolated_ps
        self.lived_ps += lived_ps
        self.preemptions += work.preemptions
        self.kv_share_ps += work.kv_ps / batch.engine.blocks
        self.kv_peak = max(self.kv_peak, work.kv_peak / batch.engine.blocks)
        self.gaps.merge(work.gaps)


@attrs.define(eq=False)
class _Serving:
    """A request that a replica works on."""

    sequence: EngineSequence
    attempt: int
    began_at: float


@attrs.define(eq=False)
class _Replica:
    """A replica that serves by an engine.

    Attributes:
        since_ps: When it started up.
        requests: What it works on, by request.
        number: Of the end of a flight that counts.
        begins: Whether a flight is about to begin, once nothing more happens at this instant.
        ready_ps: When it begins.
        hangs_since_ps: None: it does not hang.
        factors: By which its iterations take longer, for as long as each holds.
        page_at, page_ends: A time in the stretch that its present page is of, and when that ends.
        paged: Its counters when the page was turned.
        longest_line: Most that waited in it since.
    """

    server: Server
    batch: EngineBatch
    since_ps: int
    requests: dict[int, _Serving] = attrs.Factory(dict)
    number: int = 0
    begins: bool = False
    ready_ps: int = 0
    hangs_since_ps: int | None = None
    factors: list[float] = attrs.Factory(list)
    page_at: float = 0.0
    page_ends: float = 0.0
    paged: EngineWork = attrs.Factory(EngineWork)
    longest_line: int = 0


class EngineQueue(RequestQueue):
    """Hands requests over as the router says, and lets engines work on them.

    Attributes:
        told: What engines did so far; those of replicas that live are counted at the end.
        slo: What a good request meets.
        along: What engines did along the run.
    """

    def __init__(
        self,
        loop: EventLoop,
        arrivals: Arrivals,
        spec: RoutingSpec,
        sessions: int | None,
        engines: Mapping[NodeId, Engine],
        slo: RequestSlo | None = None,
    ) -> None:
        """`engines`: of a replica on each node; `slo`: what a good request meets."""
        super().__init__(loop, arrivals, spec, sessions)
        self.told = EngineCounts()
        self.along = EnginePages()
        self._engines = engines
        self.slo = slo or RequestSlo()
        self._replicas: dict[ReplicaId, _Replica] = {}

    def finish(self) -> None:
        """The run is over: count what replicas did that still live."""
        for replica in self._replicas.values():
            self._turn_page(replica)
            self.told.add(replica.batch, self._now_ps() - replica.since_ps)

    def _worked_on(self) -> Iterator[tuple[int, int, float]]:
        """Those in engines, and those that are just about to be turned away."""
        for replica in self._replicas.values():
            for index, serving in replica.requests.items():
                yield index, serving.attempt, serving.began_at
        for _, index, attempt in self._loop.arguments_of(self._refuse):
            yield index, attempt, self._loop.now

    # -- what happens to replicas

    def accept(self, replica_id: ReplicaId, node_id: NodeId | None = None) -> None:
        """A replica has started up on a node: it takes requests as soon as it is routed."""
        assert node_id is not None, "an engine is that of a node"
        server = self._servers.setdefault(replica_id, Server(replica_id))
        if replica_id not in self._replicas:
            self._replicas[replica_id] = _Replica(server, EngineBatch(self._engines[node_id]), self._now_ps())
        super().accept(replica_id, node_id)

    def lose(self, replica_id: ReplicaId) -> int:
        """A replica has ended, with its batch; returns how many requests are lost, those apart that are done again."""
        replica, now_ps = self._replicas.get(replica_id), self._now_ps()
        if replica is not None:
            ends_ps, hangs = replica.batch.ends_ps, replica.hangs_since_ps is not None
            replica.hangs_since_ps = now_ps  # no flight begins any more
            if ends_ps is not None and ends_ps <= now_ps and not hangs:
                self._land((replica, replica.number))
            replica.batch.lose(now_ps)
            self._turn_page(replica)
            self.told.add(replica.batch, now_ps - replica.since_ps)
            del self._replicas[replica_id]
        return super().lose(replica_id)

    def freeze(self, replica_id: ReplicaId) -> None:
        """A replica hangs: its iteration stands still, and none begins."""
        replica = self._replicas.get(replica_id)
        if replica is None or replica.hangs_since_ps is not None:
            return
        replica.hangs_since_ps = now_ps = self._now_ps()
        batch = replica.batch
        if batch.ends_ps is not None:
            batch.cut(now_ps)
            if batch.ends_ps > now_ps:
                replica.number += 1  # its end is scheduled once the replica goes on
            else:
                self._schedule(replica)

    def thaw(self, replica_id: ReplicaId) -> None:
        """A replica goes on with its iteration where it was."""
        replica = self._replicas.get(replica_id)
        if replica is None or replica.hangs_since_ps is None:
            return
        hung_ps, replica.hangs_since_ps = self._now_ps() - replica.hangs_since_ps, None
        if replica.batch.ends_ps is None:
            self._ask(replica)
        else:
            replica.batch.stretch(hung_ps)
            self._schedule(replica)

    def slow_down(self, replica_id: ReplicaId, factor: float) -> None:
        """A replica takes so many times as long for what it begins from now on."""
        replica = self._replicas.get(replica_id)
        if replica is not None:
            replica.factors.append(factor)
            self._keep_pace(replica)

    def slow_no_more(self, replica_id: ReplicaId, factor: float) -> None:
        """That is over, unless the replica is."""
        replica = self._replicas.get(replica_id)
        if replica is not None and factor in replica.factors:
            replica.factors.remove(factor)
            self._keep_pace(replica)

    def _keep_pace(self, replica: _Replica) -> None:
        if replica.batch.ends_ps is not None and replica.hangs_since_ps is None:
            self._cut(replica)
        replica.batch.pace(math.prod(replica.factors))

    # -- what happens to requests

    def _begin(self, replica_id: ReplicaId, index: int, attempt: int) -> None:
        replica, now = self._replicas[replica_id], self._loop.now
        batch, prompt, output = replica.batch, self.arrivals.prompt[index], self.arrivals.output[index]
        if prompt + output > batch.engine.longest:
            self._loop.at_with(now, self._refuse, (replica, index, attempt))
            return
        sequence = EngineSequence(index, prompt, output)
        if self.arrivals.cached is not None:
            sequence.cached = min(self.arrivals.cached[index], prompt - 1)  # the last one gives the first token of output
        replica.requests[index] = _Serving(sequence, attempt, now)
        batch.add(sequence)
        if batch.ends_ps is None:
            self._ask(replica)
        elif batch.heeds_arrivals and replica.hangs_since_ps is None:
            self._cut(replica)

    def _refuse(self, what: tuple[_Replica, int, int]) -> None:
        """A request that the engine can't hold is turned away, just as it has come."""
        replica, index, attempt = what
        if replica.server.gone:
            return
        self.told.too_long += 1
        reason = f"prompt and output are longer than {replica.batch.engine.longest} tokens"
        now, raised = self._loop.now, FailureKind.RAISED
        self.tell(RequestFailed(request_id=index, kind=raised, reason=reason, attempt=attempt, at=now))
        self._look_idle(replica.server)

    def _carry_out_rare(self, command: Command) -> None:
        if isinstance(command, StopAttempt):
            self._give_up(command)
        else:
            super()._carry_out_rare(command)

    def _give_up(self, command: StopAttempt) -> None:
        """Nobody waits for a request any more: it leaves at the end of the iteration under way."""
        replica = self._replicas.get(command.replica_id)
        serving = replica.requests.get(int(command.request_id)) if replica is not None else None
        if replica is None or serving is None or serving.attempt != command.attempt:
            return
        replica.batch.leave(serving.sequence)
        if replica.batch.ends_ps is not None and replica.hangs_since_ps is None:
            self._cut(replica)

    # -- flights

    def _now_ps(self) -> int:
        return round(self._loop.now * PS_PER_S)

    def _ask(self, replica: _Replica) -> None:
        """Let a flight begin after everything else that happens now."""
        if replica.begins or replica.hangs_since_ps is not None:
            return
        replica.begins = True
        replica.ready_ps = max(replica.batch.now_ps, self._now_ps())
        self._loop.at_with(math.nextafter(self._loop.now, math.inf), self._fly, replica)

    def _fly(self, replica: _Replica) -> None:
        """Begin a flight, if there is anything to do."""
        if replica.server.gone or replica.hangs_since_ps is not None:
            replica.begins = False
            return
        batch = replica.batch
        replica.begins = True  # those that are handed over now are in this flight
        for sequence in batch.drop() if batch.leaving else ():
            self._leave(replica, sequence)
        replica.begins = False
        if batch.begin(replica.ready_ps):
            self._schedule(replica)

    def _cut(self, replica: _Replica) -> None:
        before = replica.batch.ends_ps
        replica.batch.cut(self._now_ps())
        if replica.batch.ends_ps != before:
            self._schedule(replica)

    def _schedule(self, replica: _Replica) -> None:
        assert replica.batch.ends_ps is not None, "only a flight ends"
        replica.number += 1
        self._loop.at_with(replica.batch.ends_ps / PS_PER_S, self._land, (replica, replica.number))

    def _land(self, what: tuple[_Replica, int]) -> None:
        """A flight has ended."""
        replica, number = what
        if number != replica.number or replica.server.gone:
            return
        batch = replica.batch
        if self._loop.now >= replica.page_ends:
            self._turn_page(replica)
        left = batch.end()
        if len(batch.waiting) > replica.longest_line:
            replica.longest_line = len(batch.waiting)
        if left:
            replica.begins = True  # those that are handed over now ask for nothing: the next flight begins below
            for sequence in left:
                self._leave(replica, sequence)
            replica.begins = False
        replica.ready_ps = batch.now_ps
        if self._loop.is_done_for_now:
            self._fly(replica)
        elif batch.has_work:
            self._ask(replica)

    def _turn_page(self, replica: _Replica) -> None:
        """What a replica did so far is of the stretch before; what comes now is of the present one."""
        now, batch = self._loop.now, replica.batch
        self.along.add(replica.page_at, EnginePage.since(replica.paged, batch.work, batch.engine.blocks, replica.longest_line))
        self.told.gaps.merge(batch.work.gaps)
        replica.paged, batch.work.gaps = attrs.evolve(batch.work), TokenGaps()
        replica.page_at, replica.page_ends, replica.longest_line = now, self.along.end_of(now), 0

    def _leave(self, replica: _Replica, sequence: EngineSequence) -> None:
        """A request is done, or was given up."""
        index, done = sequence.key, self.counts.done
        serving = replica.requests.pop(index)
        self._end((replica.server, index, serving.attempt, serving.began_at))
        if self.counts.done > done:
            self._keep(sequence)

    def _keep(self, sequence: EngineSequence) -> None:
        """What a request felt that is done."""
        told = self.told
        assert sequence.first_ps is not None, "a request that is done has a token"
        assert sequence.begun_ps is not None, "likewise"
        arrived_at = self.arrivals.at_s[sequence.key]
        ttft_s = sequence.first_ps / PS_PER_S - arrived_at
        told.delays_s.append(max(sequence.begun_ps / PS_PER_S - arrived_at, 0.0))
        more = sequence.output - 1
        tpot_s = (sequence.last_ps - sequence.first_ps) / PS_PER_S / more if more else None
        told.ttft_s.append(ttft_s)
        told.prompt_tokens += sequence.prompt
        told.output_tokens += sequence.output
        if tpot_s is not None:
            told.tpot_s.append(tpot_s)
        if self.slo.is_met(ttft_s, tpot_s, self.counts.latencies_s[-1]):
            told.good += 1
            told.good_tokens += sequence.output
