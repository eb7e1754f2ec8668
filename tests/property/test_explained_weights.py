"""Whatever happens to weights, their story is told: nobody leaves the GPUs, and no load begins, without a reason."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from executors.engine.clusters import CLUSTER
from executors.engine.journal import JournalWriter
from executors.explain.stories import Question, explain
from rankcore.cluster.commands import MoveWeights
from rankcore.cluster.events import ScaleRequested
from rankcore.cluster.residency import ResidencySpec
from rankcore.errors import RankcoreError
from rankcore.events import NodeLost
from rankcore.residency.commands import DropFromCpu, LoadToGpu
from rankcore.residency.events import EvictRequested, MemoryMeasured
from rankcore.residency.levels import Level, Phase
from tests.clusters import RecordedCluster, application, entry

DEPLOYMENTS = ("a/x", "a/y", "b/x")
SIZES = (4, 5, 8)


class World(RecordedCluster):
    """Weights move when they are told to."""

    def __init__(self, journal: JournalWriter) -> None:
        super().__init__(journal)
        self.moves_end = False
        self.join(8, cpu_bytes=9)
        weights = [ResidencySpec(weight_bytes=size, min_hot_s=0.0, idle_to_warm_s=60.0, wait_for_room_s=20.0) for size in SIZES]
        entries = [entry(each, 0, residency=spec) for each, spec in zip(DEPLOYMENTS, weights, strict=True)]
        self.apply(application(*entries[:2]), application(entries[2]))

    def happens(self, what: str, which: int) -> None:
        deployment, held = DEPLOYMENTS[which % 3], sorted(self.workers.held)
        match what:
            case "calls":
                self.call(deployment, which % 4)
            case "scaled":
                self.tell(ScaleRequested(deployment=deployment, target_replicas=which % 3, at=self.now))
            case "evicted":
                self.tell(EvictRequested(model=deployment, keep=(Level.WARM, Level.COLD)[which % 2], at=self.now))
            case "moved":
                self.end_moves()
            case "failed" if self.moving:
                self.workers.fail(self.moving[which % len(self.moving)], self.now)
            case "killed" if held:
                self.workers.ends(held[which % len(held)], self.now, "killed")
            case "measured":
                self.tell(MemoryMeasured(node_id="n0", gpu_bytes=(3 + which % 3,), at=self.now))
            case "lost":
                self.workers.held.clear()
                self.workers.memory = self.workers.memory.without(lambda *_: True)
                self.tell(NodeLost(node_id="n0", at=self.now))
                self.join(8, cpu_bytes=9)
            case "restarted":
                self.restart()
                self.join(8, cpu_bytes=9)
        self.hear()
        self.settle()
        self.wait(float(which % 7))


WHAT = (
    "calls",
    "calls",
    "calls",
    "scaled",
    "evicted",
    "moved",
    "moved",
    "failed",
    "killed",
    "measured",
    "measured",
    "lost",
    "restarted",
)
happenings = st.lists(st.tuples(st.sampled_from(WHAT), st.integers(0, 41)), min_size=3, max_size=25)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("weights")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(happenings=happenings)
def test_whoever_leaves_the_gpus_or_is_loaded_has_a_reason_that_came_before(folder, happenings):
    path = folder / "run.jsonl"
    with JournalWriter.create(path, kind=CLUSTER) as journal:
        world = World(journal)
        moved = {}
        for what, which in happenings:
            begun = len(world.done)
            try:
                world.happens(what, which)
            except RankcoreError:
                return  # the world may not be asked for this now
            for command in world.done[begun:]:
                if isinstance(command, MoveWeights) and not isinstance(command.command, DropFromCpu):
                    moved[command.command.replica_id] = command.command
    facts = [fact for each in DEPLOYMENTS for fact in explain(path, Question(deployment=each)).facts]
    for fact in facts:
        assert all((cause.line, cause.place) < (fact.line, fact.place) for cause in fact.causes), fact
    for worker_id, move in moved.items():
        told = explain(path, Question(replica_id=worker_id)).facts
        texts = [fact.text for fact in told]
        if isinstance(move, LoadToGpu):
            assert any(text.startswith(f"{worker_id} is to be HOT on") for text in texts), texts
        else:
            left = [fact for fact in told if "has to leave" in fact.text or "is taken off" in fact.text or "lost" in fact.text]
            assert left, texts
            assert any(fact.causes for fact in left), [fact.text for fact in left]
    end = explain(path, Question(at=world.now + 1.0)).state
    serving = [each for each, record in world.state.weights.planner.replicas.items() if record.phase is Phase.SERVING]
    assert all(any(each in line for line in end) for each in serving), end
