"""The conformance suite against the simulator, and against simulators that were broken on purpose."""

import attrs
import pytest
from msgspec.structs import replace

from executors.simulator.deployment import DeploymentWorld
from executors.simulator.replicas import life
from rankcore.commands import KillReplica, QueryReplica, ReconfigureReplica, StartReplica, StopReplica
from rankcore.events import ReplicaMissing, ReplicaReported, ReplicaStopped
from rankcore.testing import conformance
from tests.conformance.simulated import SimulatedSystem


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", conformance.CASES, ids=str)
def test_the_simulator_conforms(case, seed):
    with SimulatedSystem(seed) as system:
        conformance.run(case, system)


def _is_deaf_to_the_world_size(patch):
    receive = life.receive

    def learn_once(replica, message, now):
        after, reactions = receive(replica, message, now)
        return after if replica.world_size is None else replace(after, world_size=replica.world_size), reactions

    patch.setattr(life, "receive", learn_once)


def _acknowledges_and_keeps_its_rank(patch):
    receive = life.receive

    def keep(replica, message, now):
        after, reactions = receive(replica, message, now)
        return replace(after, rank=replica.rank) if isinstance(message, ReconfigureReplica) else after, reactions

    patch.setattr(life, "receive", keep)


def _reports_another_rank_than_it_believes(patch):
    receive = life.receive

    def misreport(replica, message, now):
        after, reactions = receive(replica, message, now)
        return after, tuple(falsified(each) for each in reactions)

    def falsified(said):
        if not isinstance(said, ReplicaReported) or said.rank is None:
            return said
        return attrs.evolve(said, rank=attrs.evolve(said.rank, rank=said.rank.rank + 1))

    patch.setattr(life, "receive", misreport)


def _says_stopped_too_early(patch):
    execute = DeploymentWorld.execute

    def execute_and_say(self, command):
        execute(self, command)
        if isinstance(command, StopReplica):
            self._loop.after(0.0, self._arrive, ReplicaStopped(replica_id=command.replica_id, at=self._loop.now))

    patch.setattr(DeploymentWorld, "execute", execute_and_say)


def _says_missing_of_the_living(patch):
    execute = DeploymentWorld.execute

    def deny(self, command):
        if isinstance(command, QueryReplica):
            self._loop.after(0.0, self._arrive, ReplicaMissing(replica_id=command.replica_id, at=self._loop.now))
        else:
            execute(self, command)

    patch.setattr(DeploymentWorld, "execute", deny)


def _starts_the_wrong_version(patch):
    started = life.started
    patch.setattr(life, "started", lambda start, node_id: replace(started(start, node_id), version="1"))


def _stops_nobody(patch):
    execute = DeploymentWorld.execute
    patch.setattr(
        DeploymentWorld, "execute", lambda self, c: None if isinstance(c, (StopReplica, KillReplica)) else execute(self, c)
    )


def _loses_every_fourth_start(patch):
    execute = DeploymentWorld.execute

    def lose(self, command):
        if not (isinstance(command, StartReplica) and command.replica_id.endswith(("3", "7"))):
            execute(self, command)

    patch.setattr(DeploymentWorld, "execute", lose)


@pytest.mark.parametrize(
    "breaks",
    [
        _is_deaf_to_the_world_size,
        _acknowledges_and_keeps_its_rank,
        pytest.param(_reports_another_rank_than_it_believes, marks=pytest.mark.traced),
        _says_stopped_too_early,
        _says_missing_of_the_living,
        _starts_the_wrong_version,
        _stops_nobody,
        _loses_every_fourth_start,
    ],
)
def test_a_broken_executor_does_not_conform(breaks, monkeypatch):
    breaks(monkeypatch)
    caught = [str(case) for case in conformance.CASES if _is_caught(case)]
    assert caught


def _is_caught(case):
    try:
        with SimulatedSystem() as system:
            conformance.run(case, system)
    except conformance.NonconformityError:
        return True
    return False


class KillsNobody(SimulatedSystem):
    def kill_replica(self, replica_id):
        """It only says so."""


class KillsAnotherToo(SimulatedSystem):
    def kill_replica(self, replica_id):
        (port,) = self.run.world.deployments.values()
        other = next(each for each in sorted(port.processes) if each != replica_id)
        super().kill_replica(replica_id)
        super().kill_replica(other)


class UpdatesInPlace(SimulatedSystem):
    wanted = "1"

    def change(self, spec):
        self.wanted = spec.version
        super().change(attrs.evolve(spec, version="1"))

    def reports(self, name):
        return [attrs.evolve(report, version=self.wanted) for report in super().reports(name)]


@pytest.mark.traced
@pytest.mark.parametrize(
    ("kind", "name", "complaint"),
    [
        (KillsNobody, "crash of one", "were killed, and are still there"),
        (KillsAnotherToo, "crash of one", "ran before, and do not any more"),
        (UpdatesInPlace, "rolling update", "of the old version still run"),
    ],
)
def test_a_complaint_says_what_is_wrong(kind, name, complaint):
    (case,) = [case for case in conformance.CASES if str(case) == name]
    with kind() as system, pytest.raises(conformance.NonconformityError, match=complaint):
        conformance.run(case, system)
