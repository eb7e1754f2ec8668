"""The controller runs whatever a plugin opens: with a fence of its own, and nodes that come and go."""

from collections import deque
from contextlib import contextmanager

import pytest

from executors.controller import Controller
from executors.private_folder import PlaceError
from executors.run.checkpoint import RECORD
from executors.run.fence import FenceError
from executors.run.files import DamagedFileError
from executors.run.folder_fence import FolderFence
from rankcore import DeploymentSpec
from rankcore.commands import InitializeReplica, KillReplica, StartReplica, StopReplica
from rankcore.events import ReplicaPlaced, ReplicaReady, ReplicaStopped

SPEC = DeploymentSpec(name="a/m", target_replicas=2)


class Elsewhere:
    """A fence that is no folder, such as a database."""

    where = "db://a/m"

    def __init__(self):
        self.epoch, self.mine, self.record = 0, 0, None

    def newest(self):
        return self.epoch

    def raise_to(self, epoch):
        assert epoch > self.epoch
        self.epoch = self.mine = epoch

    @contextmanager
    def upheld(self):
        if self.epoch != self.mine:
            raise FenceError("another controller has it")
        yield

    def read(self):
        return self.record

    def write(self, text):
        with self.upheld():
            self.record = None if text is None else text.encode()


class Obedient:
    """An executor whose replicas are names; at once it does what it is told."""

    def __init__(self, target, spec, epoch, fence):
        assert fence.newest() == epoch, "the fence is up by then"
        self.there, self.node_ids, self.closed, self.inbox = {}, ["n1"], False, deque()

    def execute(self, command):
        match command:
            case StartReplica(replica_id=replica_id):
                self.there[replica_id] = self.node_ids[-1]
                self.tell(ReplicaPlaced, command, node_id=self.node_ids[-1])
            case InitializeReplica():
                self.tell(ReplicaReady, command)
            case StopReplica(replica_id=replica_id) | KillReplica(replica_id=replica_id):
                self.there.pop(replica_id, None)
                self.tell(ReplicaStopped, command)

    def tell(self, kind, command, **fields):
        from executors.controller import now

        self.inbox.append(kind(replica_id=command.replica_id, at=now(), **fields))

    def poll(self):
        return self.inbox.popleft() if self.inbox else None

    def survivors(self):
        return tuple(self.there)

    def nodes(self):
        return tuple(self.node_ids)

    def close_nodes(self, nodes):
        """Nobody is cordoned here."""

    def pid_of(self, replica_id):
        return None

    def wait(self, timeout_s, files=()):
        """There is news at once."""

    def close(self):
        self.closed = True


@pytest.fixture
def fence():
    return Elsewhere()


def test_the_record_is_behind_the_executors_own_fence_and_goes_with_the_deployment(tmp_path, fence):
    controller = Controller(tmp_path, "m:app", SPEC, fence, Obedient)
    controller.run_for(0.0)
    assert controller.status().deployments["a/m"].status == "HEALTHY"
    assert {each.pid for each in controller.status().deployments["a/m"].replicas} == {None}
    assert b'"a/m"' in fence.record
    assert not (tmp_path / RECORD).exists()
    controller.stop(10.0)
    assert (fence.record, fence.epoch, controller.executor.there, controller.executor.closed) == (None, 1, {}, True)


def test_a_deployment_that_has_not_ended_goes_on_with_its_own_executor_wherever_its_record_is(tmp_path, fence):
    Controller(tmp_path, "m:app", SPEC, fence, Obedient, executor_name="elsewhere").leave()
    for name, other in (("local", FolderFence(tmp_path)), ("nomad", Elsewhere())):
        with pytest.raises(PlaceError, match=f"a/m is of executor 'elsewhere', .* found --executor {name}"):
            Controller(tmp_path, "m:app", SPEC, other, Obedient, executor_name=name)
    Controller(tmp_path, "m:app", SPEC, fence, Obedient, executor_name="elsewhere").kill()
    Controller(tmp_path, "m:app", SPEC, FolderFence(tmp_path), Obedient).kill()


def test_a_controller_that_was_replaced_there_ends(tmp_path, fence):
    controller = Controller(tmp_path, "m:app", SPEC, fence, Obedient)
    fence.epoch += 1
    with pytest.raises(FenceError):
        controller.run_for(0.0)
    controller.leave()
    assert controller.executor.there, "and ends nobody"


def test_a_record_that_cannot_be_read_is_refused_with_the_place_where_it_is(tmp_path, fence):
    fence.record = b"{"
    with pytest.raises(DamagedFileError, match=r"^db://a/m must hold what an earlier controller wanted"):
        Controller(tmp_path, "m:app", SPEC, fence, Obedient)


def test_nodes_that_come_are_joined_and_nodes_that_go_are_lost(tmp_path, fence):
    controller = Controller(tmp_path, "m:app", SPEC, fence, Obedient)
    controller.run_for(0.0)
    controller.executor.node_ids.append("n2")
    controller.run_for(0.0)
    assert set(controller.state.nodes) == {"n1", "n2"}
    controller.executor.there.clear()
    controller.executor.node_ids.remove("n1")
    controller.run_for(0.0)
    assert controller.nodes == ("n2",)
    assert set(controller.executor.there.values()) == {"n2"}, "whom the node took is replaced elsewhere"
    controller.kill()
    assert controller.executor.there == {}
