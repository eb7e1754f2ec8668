"""No order of requests, answers, losses and late news breaks a promise of residency (T1 to T10)."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from rankcore.codec import from_json, to_json
from rankcore.events import ClockAdvanced
from rankcore.residency import (
    Level,
    ModelSpec,
    Phase,
    ResidencyPolicy,
    ResidencyState,
    Wanted,
    open_residency,
    plan_residency,
    propose_defragmentation,
)
from rankcore.residency.commands import LoadToGpu, WakeAt
from rankcore.residency.events import (
    DeployRequested,
    EvictRequested,
    LoadFailed,
    LoadFinished,
    MemoryMeasured,
    NodeJoined,
    NodeLost,
    OffloadFailed,
    OffloadFinished,
    ReplicaLost,
    ReplicaUsed,
    UsageReported,
)
from rankcore.residency.invariants import check, check_step
from rankcore.testing.model_residency.driving import DrivenPlanner, driven

pytestmark = pytest.mark.traced

NODES = ("n1", "n2", "n3")
SPECS = {
    "small": {"weight_bytes": 20},
    "medium": {"weight_bytes": 30, "working_bytes": 7},
    "large": {"weight_bytes": 100, "min_hot_s": 10.0},
    "pair": {"weight_bytes": 60, "gpus": 2, "priority": 1},
    "own": {"weight_bytes": 50, "dedicated": True},
    "apart": {"weight_bytes": 15, "spread": True, "node_labels": {"zone": "a"}},
}
models = st.sampled_from(sorted(SPECS))
size = st.sampled_from([80, 40, 81, 55, 0])
sizes = st.one_of(*[st.tuples(size, size)] * 5, st.lists(size, max_size=3).map(tuple))
few = st.integers(0, 3)


class Residency(RuleBasedStateMachine):
    """A planner, driven as in a cluster, and an executor that answers late, twice, out of order, or that it failed."""

    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.sent = []

    @initialize(
        idle=st.sampled_from([None, 20.0]),
        cold=st.sampled_from([None, 30.0]),
        nodes=st.integers(0, 2),
        cpu=st.sampled_from([45, 0, 200]),
    )
    def opens(self, idle, cold, nodes, cpu):
        policy = ResidencyPolicy(in_flight_cost_bytes=10, recent_use_s=20.0, recent_cost_bytes=25)
        self.idle = {"idle_to_warm_s": idle, "idle_to_cold_s": cold}
        self.planner = DrivenPlanner(open_residency(policy))
        for node_id in NODES[:nodes]:
            self.feed(NodeJoined(node_id=node_id, gpu_bytes=(80, 80), cpu_bytes=cpu, labels={"zone": "a"}, at=0.0))

    def feed(self, event):
        self.planner, told = driven(self.planner, event)
        for before, each, step in told:
            assert check(step.state) == []
            assert check_step(before, each, step) == []
            self.sent += [command for command in step.commands if not isinstance(command, WakeAt)]
        for model, wanted in self.planner.called_for.items():
            assert self.state.target(model) == wanted.replicas
        return told

    @property
    def state(self):
        return self.planner.state

    def replicas(self):
        return sorted(self.state.replicas) or ["small#0"]

    @rule(node_id=st.sampled_from(NODES), gpu_bytes=sizes, cpu=st.sampled_from([45, 0, 200]), zone=st.sampled_from(["a", "b"]))
    def node_joins(self, node_id, gpu_bytes, cpu, zone):
        self.feed(NodeJoined(node_id=node_id, gpu_bytes=gpu_bytes, cpu_bytes=cpu, labels={"zone": zone}, at=self.now))

    @rule(node_id=st.sampled_from(NODES), ago=st.sampled_from([0.0, 0.0, 5.0]))
    def node_is_lost(self, node_id, ago):
        self.feed(NodeLost(node_id=node_id, at=max(0.0, self.now - ago)))

    @rule(node_id=st.sampled_from(NODES), gpu_bytes=sizes)
    def memory_is_measured(self, node_id, gpu_bytes):
        self.feed(MemoryMeasured(node_id=node_id, gpu_bytes=gpu_bytes, at=self.now))

    @rule(
        wanted=st.dictionaries(models, few, min_size=1, max_size=3),
        hot_s=st.sampled_from([0.0, 0.0, 0.0, 15.0]),
    )
    def somebody_deploys(self, wanted, hot_s):
        self.deploys(wanted, hot_s)

    def deploys(self, wanted, hot_s):
        options = {"min_hot_s": hot_s, **self.idle}
        specs = {model: ModelSpec(model=model, **{**options, **SPECS[model]}) for model in wanted}
        event = DeployRequested(
            wanted=tuple(Wanted(spec=specs[model], replicas=replicas) for model, replicas in wanted.items()), at=self.now
        )
        plan = plan_residency(self.state, event)
        (_, _, step), *_ = self.feed(event)
        assert plan.commands == step.commands

    @rule(model=models, replicas=st.integers(1, 3))
    def deploys_and_is_answered(self, model, replicas):
        self.deploys({model: replicas}, 0.0)
        self.everything_is_answered()

    @precondition(lambda self: self.planner.called_for)
    @rule(data=st.data(), replicas=few)
    def scales(self, data, replicas):
        known = self.planner.called_for[data.draw(st.sampled_from(sorted(self.planner.called_for)))]
        self.feed(DeployRequested(wanted=(Wanted(spec=known.spec, replicas=replicas),), at=self.now))

    @precondition(lambda self: self.state.models)
    @rule(data=st.data(), keep=st.sampled_from([Level.WARM, Level.COLD]))
    def evicts_a_model(self, data, keep):
        self.feed(EvictRequested(model=data.draw(st.sampled_from(sorted(self.state.models))), keep=keep, at=self.now))

    @precondition(lambda self: self.state.replicas)
    @rule(data=st.data(), keep=st.sampled_from([Level.WARM, Level.COLD]))
    def evicts_a_replica(self, data, keep):
        self.feed(EvictRequested(replica_id=data.draw(st.sampled_from(self.replicas())), keep=keep, at=self.now))

    @rule(data=st.data(), in_flight=few)
    def is_used(self, data, in_flight):
        self.feed(ReplicaUsed(replica_id=data.draw(st.sampled_from(self.replicas())), in_flight=in_flight, at=self.now))

    @rule(data=st.data(), more=st.integers(-5, 30), gpus=st.sampled_from([None, None, 1, 2]))
    def reports_its_usage(self, data, more, gpus):
        replica_id = data.draw(st.sampled_from(self.replicas()))
        record = self.state.replicas.get(replica_id)
        held = record.gpu_bytes if record is not None else ()
        used = tuple(max(0, size + more) for size in held) if gpus is None else (10,) * gpus
        self.feed(UsageReported(replica_id=replica_id, gpu_bytes=used, at=self.now))

    @rule(data=st.data())
    def is_lost(self, data):
        self.feed(ReplicaLost(replica_id=data.draw(st.sampled_from(self.replicas())), at=self.now))

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), fails=st.sampled_from([False, False, False, True]), forgotten=st.booleans())
    def answers(self, data, fails, forgotten):
        """Any command of the past, the newest as likely as not; it may be answered again later."""
        place = data.draw(st.integers(0, min(5, len(self.sent) - 1)))
        command = self.sent[-1 - place]
        if forgotten:
            self.sent.remove(command)
        self.answer(command, fails)

    def answer(self, command, fails):
        finished, failed = (LoadFinished, LoadFailed) if isinstance(command, LoadToGpu) else (OffloadFinished, OffloadFailed)
        self.feed((failed if fails else finished)(replica_id=command.replica_id, move=command.move, at=self.now))

    @rule(seconds=st.sampled_from([0.5, 4.0, 11.0, 40.0]))
    def time_passes(self, seconds):
        self.now += seconds
        self.feed(ClockAdvanced(at=self.now))

    @rule()
    def everything_is_answered(self):
        """With an executor that does what it is told, all that is wanted HOT serves, or waits and says why."""
        for _ in range(200):
            if not self.sent:
                break
            command, self.sent = self.sent[0], self.sent[1:]
            self.answer(command, False)
        assert self.sent == []
        first = self.state.head.replica_id if self.state.head is not None else None
        for record in self.state.replicas.values():
            assert record.phase in (Phase.SERVING, Phase.WAITING, Phase.RESTING) or record.replica_id == first, record

    @rule()
    def a_state_is_the_same_as_its_text(self):
        read = from_json(to_json(self.state), ResidencyState)
        assert read == self.state
        assert hash(read) == hash(self.state)
        assert check(read) == []

    @rule(model=st.none() | models)
    def a_proposal_changes_nothing(self, model):
        if model is None or model in self.state.models:
            before = to_json(self.state)
            propose_defragmentation(self.state, model)
            assert to_json(self.state) == before


Residency.TestCase.settings = settings(stateful_step_count=40)
TestResidency = Residency.TestCase
