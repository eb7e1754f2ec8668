"""How long a replica has been ready outlives the controller: its own clock says it (`ReplicaReported.ready_for_s`, V7)."""

import pytest

from rankcore import DeploymentStatus
from rankcore.commands import InitializeReplica, PrepareReplica, QueryReplica, ReconfigureReplica, StartReplica, StopReplica
from rankcore.events import ReplicaReported
from rankcore.invariants.availability import available
from rankcore.replica.messages import readiness_checked, receive, started, user_code_ended
from rankcore.values import ReplicaRank
from tests.scripted import Deployment

ID = "llm#1.0"
RANK = ReplicaRank(0, 0, 0)


class Half:
    """A replica whose owner's clock goes on between whatever happens to it."""

    def __init__(self) -> None:
        self.now, self.value, self.revision = 100.0, started(StartReplica(ID, 0, "1", None, (), 1), "n0"), 1

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def change(
        self, config_id: str = "a", *, kind: type = ReconfigureReplica, during_s: float = 1.0, failure: str | None = None
    ):
        self.revision += 1
        if kind is PrepareReplica:
            command = PrepareReplica(ID, 1, None, config_id, self.revision, 1)
        else:
            command = kind(ID, RANK, 1, None, config_id, self.revision, 1)
        self.value, _ = receive(self.value, command, self.now)
        self.wait(during_s)
        self.value, _ = user_code_ended(self.value, self.now, failure)

    def look(self, problem: str | None) -> None:
        self.value, _ = readiness_checked(self.value, self.now, problem)

    @property
    def ready_for_s(self) -> float | None:
        self.value, (report,) = receive(self.value, QueryReplica(ID, 1), self.now)
        assert isinstance(report, ReplicaReported)
        return report.ready_for_s


def running() -> Half:
    half = Half()
    half.change(kind=InitializeReplica)
    return half


def test_it_counts_from_when_user_code_is_up() -> None:
    half = Half()
    assert half.ready_for_s is None
    half.change(kind=InitializeReplica, during_s=60.0)
    assert half.ready_for_s == 0.0
    half.wait(7.0)
    assert half.ready_for_s == 7.0


def test_another_rank_alone_does_not_end_it_and_another_user_config_does() -> None:
    half = running()
    half.wait(7.0)
    half.change("a", during_s=2.0)
    assert half.ready_for_s == 9.0
    half.change("b", during_s=2.0)
    half.wait(3.0)
    assert half.ready_for_s == 3.0
    half.change("c", failure="boom")
    assert half.ready_for_s is None


def test_what_is_not_ready_for_a_while_counts_anew_after_that() -> None:
    half = running()
    half.wait(7.0)
    half.look("cold cache")
    half.wait(5.0)
    assert half.ready_for_s is None
    half.look(None)
    half.wait(2.0)
    assert half.ready_for_s == 2.0
    half.look(None)
    assert half.ready_for_s == 2.0


def test_one_that_is_prepared_says_for_how_long_and_counts_anew_with_its_rank() -> None:
    half = Half()
    half.change(kind=PrepareReplica)
    half.wait(4.0)
    assert (half.value.prepared, half.ready_for_s) == (True, 4.0)
    half.change(kind=InitializeReplica)
    half.wait(1.0)
    assert half.ready_for_s == 1.0


FOUND = {f"llm#1.{rank}": (rank, 0, rank) for rank in range(3)}


def restarted(**spec: object) -> Deployment:
    return Deployment.recovered(3, FOUND, min_ready_s=10.0, max_unavailable=1, **spec)


def stops(d: Deployment) -> list[str]:
    return [each.replica_id for each in d.sent(StopReplica)]


def test_who_was_available_is_so_to_the_next_controller_in_the_step_of_the_last_report() -> None:
    d = restarted()
    d.change(version="2")
    for replica_id, seconds in zip(FOUND, (3600.0, 10.0, 11.0), strict=True):
        assert stops(d) == []
        d.report(replica_id, ready_for_s=seconds)
    assert stops(d) == ["llm#1.0"]


def test_who_does_not_say_counts_from_its_report() -> None:
    d = restarted()
    d.change(version="2")
    for replica_id in FOUND:
        d.report(replica_id, ready_for_s=None if replica_id == "llm#1.2" else 3600.0)
    d.wait(9.0)
    assert stops(d) == []
    d.wait(1.0)
    assert stops(d) == ["llm#1.0"]


@pytest.mark.parametrize("order", [(1.0, 8.0, 5.0), (8.0, 5.0, 1.0), (1.0, 5.0, 8.0)])
def test_those_who_have_been_ready_for_a_part_of_it_wait_for_the_rest_whatever_the_order_of_their_reports(order) -> None:
    d = restarted()
    d.change(version="2")
    for replica_id, seconds in zip(FOUND, order, strict=True):
        d.report(replica_id, ready_for_s=seconds)
    waits = [d.state.replicas[each.replica_id].ready_at for each in d.state.tables.maturing.items.values()]
    assert sorted(waits) == [-8.0, -5.0, -1.0]
    assert d.state.wake_at == 2.0
    d.wait(8.9)
    assert stops(d) == []
    d.wait(0.1)
    assert stops(d) == ["llm#1.0"]


def test_a_build_that_was_ready_for_long_enough_while_reports_were_outstanding_is_proven_with_the_last() -> None:
    d = restarted()
    first, second, third = FOUND
    d.report(first, ready_for_s=8.0)
    d.wait(4.0)
    assert d.state.proven is None
    d.report(second, ready_for_s=0.0)
    d.report(third, ready_for_s=0.0)
    assert d.state.proven is d.state.spec
    d.wait(10.0)
    assert d.status is DeploymentStatus.HEALTHY


def test_who_becomes_available_while_reports_are_outstanding_is_progress_with_the_last() -> None:
    d = restarted()
    first, second, third = FOUND
    d.report(first, ready_for_s=0.0)
    d.report(second, ready_for_s=0.0)
    d.wait(12.0)
    assert d.state.tables.progress_at == 0.0
    d.report(third, config_id="older", ready_for_s=0.0)
    assert d.state.tables.progress_at == 12.0


def test_who_takes_requests_and_was_being_told_its_rank_has_been_ready_for_as_long_to_the_next_controller() -> None:
    """V3: it is available, so that a crash of the controller takes nobody from the budget."""
    d = Deployment.running(2, min_ready_s=10.0, max_surge=1, hand_over="overlap", max_unavailable=0)
    d.wait(10.0)
    d.change(version="2")
    (successor,) = [each.replica_id for each in d.state.replicas.values() if each.version == "2"]
    d.place(successor)
    d.prepared(successor)
    d.wait(10.0)
    (going,) = stops(d)
    d.stopped(going)
    assert d.sent(InitializeReplica, successor), "and it is prepared still, with no answer to that"
    d.processes[successor].prepared = True
    d.restart()
    for replica_id in d.state.unreported:
        d.report(replica_id, ready=replica_id != successor, ready_for_s=10.0)
    assert d.state.replicas[successor].state == "STARTING"
    assert available(d.state) == 2


@pytest.mark.parametrize("hand_over", ["prepared", "overlap"])
def test_one_that_is_prepared_is_so_for_as_long_to_the_next_controller(hand_over: str) -> None:
    d = Deployment.running(2, min_ready_s=10.0, max_surge=1, hand_over=hand_over, max_unavailable=1)
    d.wait(10.0)
    d.change(version="2")
    (successor,) = [each.replica_id for each in d.state.replicas.values() if each.version == "2"]
    d.place(successor)
    d.prepared(successor)
    d.restart()
    for replica_id in d.state.unreported:
        d.report(replica_id, ready_for_s=4.0 if replica_id == successor else 3600.0)
    found = d.state.replicas[successor]
    assert d.state.clock - found.since == 4.0
    assert (found.ready_at is not None) is (hand_over == "overlap")
    for _ in range(6):
        d.settle()
        d.wait(10.0)
    assert {each.version for each in d.state.replicas.values()} == {"2"}
