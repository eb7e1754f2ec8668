"""A fleet whose HOT replicas have ranks, under any order of events, with replicas that believe (D12).

What is asked is what the replicas believe, and not the book: messages to them come late, twice or not at all, and so does what
they say; user code fails; controllers are lost and take over.
"""

from typing import Any

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from rankcore.commands import AnnounceWorldSize
from rankcore.dispatching import (
    ControllerTookOver,
    DispatchPolicy,
    RankSpec,
    ReplicaSaid,
    ServingChanged,
    ServingSpec,
    TellReplica,
    open_fleet,
    ranking,
)
from rankcore.dispatching.commands import Command
from rankcore.dispatching.events import Event
from rankcore.events import ClockAdvanced, ReplicaStartFailed
from rankcore.invariants import check_step
from rankcore.replica.messages import Reaction
from rankcore.replica.replica import End, RunUserCode
from rankcore.residency import ModelSpec, Phase, ResidencyPolicy, Wanted
from rankcore.residency.events import (
    DeployRequested,
    LoadFinished,
    NodeJoined,
    NodeLost,
    OffloadFailed,
    OffloadFinished,
    ReplicaLost,
    ScaleRequested,
)
from rankcore.routing import RoutingSpec
from rankcore.routing.commands import Dispatch, Retry
from rankcore.values import HEALTHY
from tests.property.test_dispatching import MODELS, Fleets, models, plans, policies, servings
from tests.replicas import HeldWorker

unchecked_step = ranking.step


def checked_step(before: Any, event: Any) -> Any:
    """Each step of the machine of ranks keeps its own promises, however many there are in one step of the fleet."""
    step = unchecked_step(before, event)
    assert check_step(before, event, step) == []
    return step


rank_specs = st.builds(
    RankSpec,
    user_config=st.sampled_from((None, {"lr": 1}, {"lr": 2})),
    compaction=st.sampled_from(("when_healthy", "immediate")),
    start_timeout_s=st.sampled_from((4.0, 600.0)),
    repeat_period_s=st.just(2.0),
    health_check_timeout_s=st.sampled_from((3.0, 30.0)),
)


@attrs.define(eq=False)
class Process:
    """One process of a replica: what is sent to it dies with it, and is forgotten when it leaves the GPU."""

    replica: HeldWorker
    mail: list[Any] = attrs.Factory(list)
    running: list[RunUserCode] = attrs.Factory(list)
    had_no_rank: bool = False


class RankedFleets(Fleets):
    """The executor's half of D12 as well, with everything that may go wrong in it."""

    @initialize(policy=policies, plan=plans, replicas=st.integers(0, 5), ranks=rank_specs, warm=st.booleans())
    def begin(self, policy: DispatchPolicy, plan: ResidencyPolicy, replicas: int, ranks: RankSpec, warm: bool) -> None:
        ranking.step = checked_step
        self.state = open_fleet(policy, plan)
        self.now = 0.0
        self.arrived = 0
        self.moves, self.flights, self.finals, self.told, self.ready = [], [], {}, {}, set()
        self.processes: dict[str, Process] = {}
        self.news: list[ReplicaSaid] = []
        for model in ("a", "b"):
            spec = ServingSpec(routing=RoutingSpec(name=model, max_ongoing_requests=1), ranks=ranks)
            self.send(ServingChanged(spec=spec, at=self.now))
        self.send(NodeJoined(node_id="n1", gpu_bytes=(80, 80), cpu_bytes=60, at=self.now))
        self.send(NodeJoined(node_id="n2", gpu_bytes=(80,), cpu_bytes=60, at=self.now))
        wanted = tuple(
            Wanted(spec=ModelSpec(model=each, weight_bytes=size), replicas=replicas * (each == "a"))
            for each, size in MODELS.items()
        )
        self.send(DeployRequested(wanted=wanted, at=self.now))
        self.nothing_goes_wrong_for_a_while(rounds=1, news_too=warm)

    # -- what is told is true

    def send(self, event: Event) -> None:
        self.make_true(event)
        super().send(event)
        for replica_id in set(self.processes) - set(self.state.residency.replicas):
            self.ends(replica_id)

    def make_true(self, event: Event) -> None:
        records = self.state.residency.replicas
        if isinstance(event, ReplicaLost):
            self.ends(event.replica_id)
        elif isinstance(event, NodeLost) or (isinstance(event, NodeJoined) and self.has_other_gpus(event)):
            for replica_id in sorted(self.processes):
                if event.node_id in (records[replica_id].node_id, records[replica_id].copy_node_id):
                    self.ends(replica_id)
        elif isinstance(event, (OffloadFinished, OffloadFailed, LoadFinished)):
            record = records.get(event.replica_id)
            if record is None or record.move != event.move:
                return
            if isinstance(event, LoadFinished):
                if record.phase is Phase.LOADING:
                    self.process_of(event.replica_id)
            elif record.phase is Phase.LEAVING and event.replica_id in self.processes:
                process = self.processes[event.replica_id]
                process.replica.leave()
                process.mail.clear()
                process.running.clear()
                process.had_no_rank = False
                if isinstance(event, OffloadFailed):
                    self.ends(event.replica_id)

    def ends(self, replica_id: str) -> None:
        """A process ends, and with it what was sent to it."""
        process = self.processes.pop(replica_id, None)
        if process is not None:
            process.mail.clear()
            process.running.clear()

    def has_other_gpus(self, event: NodeJoined) -> bool:
        node = self.state.residency.nodes.get(event.node_id)
        return node is not None and len(node.gpus) != len(event.gpu_bytes)

    def process_of(self, replica_id: str) -> Process:
        record = self.state.residency.replicas[replica_id]
        known = self.processes.get(replica_id)
        if known is None or known.replica.value.node_id != record.node_id:
            known = self.processes[replica_id] = Process(HeldWorker(replica_id, record.node_id))
        return known

    def obey(self, command: Command) -> None:
        if isinstance(command, TellReplica):
            self.processes[command.replica_id].mail.append(command.command)
        elif isinstance(command, (Dispatch, Retry)):
            process = self.processes.get(command.replica_id)
            ranked = self.state.models[command.replica_id[0]].ranking is not None
            if process is not None and ranked and not process.had_no_rank:
                assert process.replica.rank is not None, f"{command.replica_id} has a request before it has a rank"
            super().obey(command)
        else:
            super().obey(command)

    # -- messages

    def some(self) -> list[Process]:
        return [self.processes[each] for each in sorted(self.processes)]

    @precondition(lambda self: any(each.mail for each in self.processes.values()))
    @rule(number=st.integers(0, 20), fate=st.sampled_from(("arrives", "arrives", "arrives", "twice", "lost")))
    def a_message_travels(self, number: int, fate: str) -> None:
        letters = [(process, index) for process in self.some() for index in range(len(process.mail))]
        process, index = letters[number % len(letters)]
        if fate == "lost" and isinstance(process.mail[index], AnnounceWorldSize):
            return  # it is state, not a message: it arrives in the end
        command = process.mail[index] if fate == "twice" else process.mail.pop(index)
        if fate != "lost":
            self.react(process, process.replica.receive(command, self.now))

    @precondition(lambda self: any(each.running for each in self.processes.values()))
    @rule(number=st.integers(0, 9), fails=st.sampled_from((False, False, False, True)))
    def user_code_ends(self, number: int, fails: bool) -> None:
        busy = [each for each in self.some() if each.running]
        self.end_user_code(busy[number % len(busy)], "raised" if fails else None)

    def end_user_code(self, process: Process, failure: str | None = None) -> None:
        self.react(process, process.replica.user_code_ended(process.running.pop(0), self.now, failure))

    @precondition(lambda self: self.news)
    @rule(number=st.integers(0, 9), fate=st.sampled_from(("arrives", "arrives", "arrives", "twice", "lost")))
    def news_travels(self, number: int, fate: str) -> None:
        number %= len(self.news)
        news = self.news[number] if fate == "twice" else self.news.pop(number)
        if fate != "lost":
            self.send(news)

    @rule(rounds=st.integers(1, 3), news_too=st.booleans())
    def nothing_goes_wrong_for_a_while(self, rounds: int, news_too: bool) -> None:
        """What is rare is reached from states that are deep."""
        for _ in range(rounds):
            for under_way in sorted(self.state.moves.values(), key=lambda each: each.command.move):
                if under_way == self.state.moves.get(under_way.command.replica_id):
                    self.answer(under_way.command)
            if news_too:
                self.carry_messages()

    def react(self, process: Process, reactions: tuple[Reaction, ...]) -> None:
        replica_id = process.replica.value.worker_id
        for each in reactions:
            if isinstance(each, RunUserCode):
                process.running.append(each)
            elif isinstance(each, End):
                self.send(ReplicaLost(replica_id=replica_id, reason="killed", at=self.now))
            else:
                said = ReplicaSaid(replica_id=replica_id, news=each, at=self.now)
                if isinstance(each, ReplicaStartFailed):
                    self.ends(replica_id)
                    self.send(said)
                else:
                    self.news.append(said)

    # -- whoever runs the fleet

    @rule(spec=servings, ranks=st.none() | rank_specs)
    def is_served_otherwise(self, spec: ServingSpec, ranks: RankSpec | None) -> None:
        """Ranks may come at any time, and stay."""
        served = self.state.models.get(spec.model)
        has = None if served is None else served.spec.ranks
        if has is None and ranks is not None and served is not None:
            for replica_id in served.routed:
                self.processes[replica_id].had_no_rank = True
        self.send(ServingChanged(spec=attrs.evolve(spec, ranks=ranks or has), at=self.now))

    @rule(model=models, replicas=st.integers(0, 4))
    def is_scaled(self, model: str, replicas: int) -> None:
        Fleets.is_scaled(self, model, replicas)

    @rule(more=st.integers(0, 2))
    def another_controller_takes_over(self, more: int) -> None:
        """With the same epoch it is late."""
        self.send(ControllerTookOver(epoch=self.state.epoch + more, at=self.now))

    # -- what holds

    @invariant()
    def no_two_believe_the_same(self) -> None:
        seen: dict[tuple[Any, ...], str] = {}
        for replica_id, process in getattr(self, "processes", {}).items():
            rank = process.replica.rank
            if rank is not None:
                model = replica_id[0]
                for key in ((model, rank.rank), (model, process.replica.value.node_id, "local", rank.local_rank)):
                    other = seen.setdefault(key, replica_id)
                    assert other == replica_id, f"{other} and {replica_id} both believe {key}"

    def carry_messages(self) -> None:
        for process in self.some():
            while process.mail or process.running:
                if process.mail:
                    self.react(process, process.replica.receive(process.mail.pop(0), self.now))
                else:
                    self.end_user_code(process)
        while self.news:
            self.send(self.news.pop(0))

    def messages_wait(self) -> bool:
        return bool(self.news) or any(process.mail or process.running for process in self.some())

    def settle(self) -> None:
        """There is room for all: what was given up is tried again, until every model has all its ranks."""
        for model in filter(self.is_known, MODELS):
            self.send(ScaleRequested(model=model, replicas=self.state.residency.target(model), at=self.now))
        for _ in range(300):
            self.carry_messages()
            for under_way in sorted(self.state.moves.values(), key=lambda each: each.command.move):
                self.answer(under_way.command)
            if not self.state.moves and not self.messages_wait():
                if all(self.is_settled(model) for model in MODELS):
                    return
                self.now = max(self.now, self.state.wake_at or 0.0)
                self.send(ClockAdvanced(at=self.now))
        raise AssertionError("ranks never settle")

    def is_settled(self, model: str) -> bool:
        served = self.state.models.get(model)
        ranks = None if served is None else served.ranking
        if ranks is None:
            return True
        replicas = ranks.deployment.replicas.values()
        return ranks.deployment.status is HEALTHY and all(each.pending is None for each in replicas)

    def teardown(self) -> None:
        """Faults are off: everybody is answered, and the replicas of each ranked model believe 0..N-1, and N."""
        try:
            super().teardown()
            if hasattr(self, "processes"):
                self.settle()
                for model in MODELS:
                    self.believes_what_is_so(model)
        finally:
            ranking.step = unchecked_step

    def believes_what_is_so(self, model: str) -> None:
        size = self.state.world_size_of(model)
        if size is None:
            return
        hot = self.state.residency.hot_replicas(model)
        believed = {each: self.processes[each].replica for each in hot}
        assert sorted(each.rank.rank for each in believed.values()) == list(range(size))
        assert {each: replica.rank for each, replica in believed.items()} == self.state.ranks_of(model)
        assert all(replica.world_size == size for replica in believed.values())


TestRankedFleets = RankedFleets.TestCase
TestRankedFleets.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
