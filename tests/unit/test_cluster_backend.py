"""The backend of a cluster: every command reaches the one whose work it is, and all that happens is told, in a fair order."""

from collections import deque
from types import SimpleNamespace

import pytest

from executors.engine.backend import ClusterBackend
from executors.engine.clusters import CLUSTER, ClusterRecovered
from executors.engine.loop import Loop
from rankcore.cluster import ApplicationSpec, EntrySpec
from rankcore.cluster.commands import AskPolicy, KillWorker
from rankcore.cluster.events import ApplyRequested, PolicyAnswered, RecordSaved
from rankcore.commands import KillReplica, StartReplica, StopReplica
from rankcore.events import ReplicaPlaced, SpecChanged
from rankcore.spec import DeploymentSpec


class Processes:
    """An executor that places what it is to start, and writes down all commands."""

    def __init__(self, world, deployment):
        self.world, self.deployment = world, deployment
        self.commands, self.news = [], deque()
        self.fails = False

    def execute(self, command):
        self.world.log.append((self.deployment, type(command).__name__))
        self.commands.append(command)
        if self.fails:
            raise RuntimeError("a bug")

    def poll(self):
        self.world.polls.append(self.deployment)
        return self.news.popleft() if self.news else None


class World:
    """A cluster under its loop, and a store that answers when it is told to."""

    def __init__(self):
        self.now, self.log, self.polls, self.asked, self.told = 0.0, [], [], [], 0
        self.backend = ClusterBackend(self, self.executor, lambda: self.now, on_news=self.on_news)
        how = ClusterRecovered()
        first = how.step()
        self.loop = Loop(CLUSTER, self.backend, first.state)
        self.loop.start(how, first, None)

    def save(self, record, answer):
        self.log.append(("store", record.deployment))
        self.asked.append((record, answer))

    def executor(self, deployment):
        return Processes(self, deployment)

    def on_news(self):
        self.told += 1

    def apply(self, *names):
        entries = [EntrySpec(ranks=DeploymentSpec(name=f"a/{name}", target_replicas=1)) for name in names]
        self.loop.deliver(ApplyRequested(applications=[ApplicationSpec(name="a", deployments=entries)], at=self.now))

    def answer(self, problem=""):
        asked, self.asked = self.asked, []
        for _, answer in asked:
            answer(problem)
        return self.loop.deliver_all()


def test_a_record_is_stored_before_any_command_reaches_an_executor():
    world = World()
    world.apply("d")
    assert world.log == [("store", "a/d")]
    assert not world.backend.executors
    assert world.answer() == 1
    assert [who for who, _ in world.log] == ["store"] + ["a/d"] * len(world.backend.executors["a/d"].commands)
    assert any(isinstance(each, StartReplica) for each in world.backend.executors["a/d"].commands)


def test_a_store_that_does_not_answer_or_fails_is_asked_again_and_shown_until_it_has_stored():
    world = World()
    world.apply("d")
    assert world.answer("the disk is full") == 0
    assert world.backend.unsaved == {"a/d": "the disk is full"}
    world.now = world.backend.wake_at
    assert world.loop.deliver_all() == 1
    assert world.log == [("store", "a/d")] * 2
    world.answer()
    assert world.backend.unsaved == {}
    assert world.backend.executors["a/d"].commands


def test_one_deployment_whose_record_is_not_stored_holds_back_no_other():
    world = World()
    world.apply("c", "d")
    (record, answer), _ = world.asked
    answer("")
    world.loop.deliver_all()
    assert record.deployment == "a/c"
    assert list(world.backend.executors) == ["a/c"]


def test_an_acknowledgement_is_told_and_calls_for_a_poll():
    world = World()
    world.apply("d")
    (record, answer), told = world.asked[0], world.told
    answer("")
    assert world.told == told + 1
    assert world.backend.poll() == RecordSaved(deployment="a/d", number=record.number, at=0.0)


def test_who_has_much_to_tell_does_not_keep_others_waiting():
    world = World()
    world.apply("c", "d", "e")
    world.answer()
    c, d, e = (world.backend.executors[f"a/{name}"] for name in "cde")
    c.news.extend(range(6))
    e.news.extend("xyz")
    found = []
    while (event := world.backend.poll()) is not None:
        found.append(event)
        if event == "y":
            d.news.append("late")  # its turn in this round is over
    assert found[:4] == [0, "x", 1, "y"]
    assert sorted(map(str, found)) == sorted(["0", "1", "2", "3", "4", "5", "x", "y", "z", "late"])
    world.polls.clear()
    assert world.backend.poll() is None
    assert sorted(world.polls) == ["a/c", "a/d", "a/e"]


def test_an_executor_that_was_taken_out_is_not_asked_any_more():
    world = World()
    world.apply("c", "d")
    world.answer()
    c, d = (world.backend.executors[f"a/{name}"] for name in "cd")
    c.news.extend(range(2))
    d.news.extend("xy")
    assert world.backend.poll() == 0
    del world.backend.executors["a/d"]
    assert [world.backend.poll() for _ in range(2)] == [1, None]


def test_the_clock_is_told_once_when_it_is_time():
    world = World()
    world.apply("d")
    at = world.backend.wake_at
    assert world.backend.poll() is None
    world.now = at + 1.0
    assert world.backend.poll().at == at + 1.0
    assert world.backend.poll() is None


def test_a_command_that_an_executor_cannot_carry_out_keeps_none_behind_it(caplog):
    world = World()
    world.apply("c", "d")
    (_, answer), _ = world.asked
    answer("")
    world.loop.deliver_all()
    executor = world.backend.executors["a/c"]
    executor.fails = True
    start = next(each for each in executor.commands if isinstance(each, StartReplica))
    world.loop.deliver(ReplicaPlaced(replica_id=start.replica_id, node_id="n", at=0.0))
    assert "InitializeReplica of a/c was not carried out" in caplog.text
    world.answer()
    assert world.backend.executors["a/d"].commands


def test_a_replica_of_nobody_is_ended_by_an_executor_of_its_own():
    world = World()
    world.loop.deliver(ReplicaPlaced(replica_id="a/gone#1.0", node_id="n", at=0.0))
    assert world.backend.executors["a/gone"].commands == [KillReplica("a/gone#1.0", 1)]
    assert not any(isinstance(each, StopReplica) for each in world.backend.executors["a/gone"].commands)


def test_a_question_that_nobody_can_answer_is_answered_with_why():
    world = World()
    world.backend.execute(AskPolicy("a/d", 7, 2, "mine", None, 1))
    problem = "there is nobody to ask mine"
    assert world.backend.poll() == PolicyAnswered(
        deployment="a/d", ask=7, target_number=2, wanted=None, problem=problem, at=0.0
    )


def test_a_policy_is_asked_of_who_runs_them_and_its_answer_told():
    class Runner:
        def ask(self, question, answer):
            self.asked = question, answer

    world, runner = World(), Runner()
    backend = ClusterBackend(world, world.executor, lambda: 0.0, policies=runner)
    backend.execute(AskPolicy("a/d", 7, 2, "mine", None, 1))
    assert backend.poll() is None
    question, answer = runner.asked
    answer(PolicyAnswered(deployment="a/d", ask=question.ask, target_number=question.target_number, wanted=3.0, at=1.0))
    assert backend.poll().wanted == 3.0


def test_what_ranks_are_told_by_other_parts_is_no_news_of_an_executor():
    world = World()
    world.apply("d")
    world.answer()
    world.backend.executors["a/d"].news.append(SpecChanged(spec=DeploymentSpec(name="a/d", target_replicas=1), at=0.0))
    with pytest.raises(AssertionError, match="SpecChanged"):
        world.backend.poll()


def test_what_is_about_weights_is_not_taken_for_carried_out():
    world = World()
    with pytest.raises(NotImplementedError, match="KillWorker: nobody here moves weights of a cluster"):
        world.backend.execute(KillWorker("a/x", "a/x@1#1.0", None, False, 1))


def test_what_is_about_weights_goes_to_who_has_the_workers_and_a_bug_there_concerns_nobody_else():
    world, given = World(), []
    world.backend._workers = SimpleNamespace(execute=given.append)
    world.backend.execute(KillWorker("a/x", "a/x@1#1.0", None, False, 1))
    world.backend._workers = SimpleNamespace(execute=None)
    world.backend.execute(KillWorker("a/x", "a/x@1#1.0", None, False, 1))
    assert given == [KillWorker("a/x", "a/x@1#1.0", None, False, 1)]
