"""P2: what outlives a controller is saved before anything is done that depends on it, and no crash loses it."""

from typing import Any

import attrs
import pytest

from rankcore import DeploymentSpec
from rankcore.cluster.commands import CarryOut, SaveRecord
from rankcore.cluster.events import ApplyRequested, DeletionRequested, RecordSaved, ScaleRequested
from rankcore.cluster.invariants import check
from rankcore.cluster.outbox import LAZY_S, REPEAT_S
from rankcore.cluster.records import Cause, Record, newest
from rankcore.cluster.recovery import recover_cluster
from rankcore.commands import StartReplica, StopReplica
from rankcore.errors import InvalidEventError, InvalidSpecError
from rankcore.events import ReplicaDied, ReplicaPlaced, ReplicaReady, ReplicasLeave
from tests.clusters import Cluster, application, entry


def carried_out(cluster: Cluster, kind: type[Any]) -> list[Any]:
    return [each.command for each in cluster.done if isinstance(each, CarryOut) and isinstance(each.command, kind)]


def test_nothing_is_started_before_the_record_is_saved() -> None:
    cluster = Cluster(saves_at_once=False)
    cluster.apply(application(entry("a/d", 2)))
    assert carried_out(cluster, StartReplica) == []
    assert [each.record.deployment for each in cluster.done if isinstance(each, SaveRecord)] == ["a/d"]
    cluster.land()
    assert len(carried_out(cluster, StartReplica)) == 2
    assert cluster.status("a/d") == "HEALTHY"


def test_a_deployment_waits_for_its_own_record_only() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/slow")), application(entry("b/fast")))
    cluster.saves_at_once = False
    cluster.tell(ScaleRequested(deployment="a/slow", target_replicas=2, at=1.0))
    (gone,) = [each for each in cluster.processes if each.startswith("b/fast")]
    cluster.processes.clear()
    cluster.tell(ReplicaDied(replica_id=gone, at=2.0))
    assert cluster.ranks("b/fast") == [0]
    assert cluster.ranks("a/slow") == [0]
    cluster.land()
    assert cluster.ranks("a/slow") == [0, 1]


def test_what_comes_later_waits_behind_what_waits() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 2)))
    cluster.saves_at_once = False
    cluster.tell(ScaleRequested(deployment="a/d", target_replicas=3, at=1.0))
    done = len(cluster.done)
    cluster.tell(ReplicaDied(replica_id="a/d#1.0", at=2.0))
    assert [each for each in cluster.done[done:] if isinstance(each, CarryOut)] == []
    cluster.land()
    assert cluster.ranks("a/d") == [0, 1, 2]


def test_a_save_that_is_not_acknowledged_is_repeated_and_shown() -> None:
    cluster = Cluster(saves_at_once=False)
    cluster.apply(application(entry("a/d")))
    cluster.wait(3.5 * REPEAT_S)
    saves = [each for each in cluster.done if isinstance(each, SaveRecord)]
    assert len(saves) == 4
    assert len({each.record.number for each in saves}) == 1
    assert "2 commands wait for the store since 0 s" in cluster.state.deployments["a/d"].conditions[0]
    held = cluster.state.deployments["a/d"].outbox.held
    assert len({each.command for each in held}) == len(held) == 2, "what is repeated waits once"
    cluster.land()
    assert cluster.state.deployments["a/d"].conditions == ()
    assert cluster.status("a/d") == "HEALTHY"


def test_the_acknowledgement_of_an_earlier_record_lets_go_only_what_needs_no_later_one() -> None:
    cluster = Cluster(saves_at_once=False)
    cluster.apply(application(entry("a/d", 1)))
    cluster.tell(ScaleRequested(deployment="a/d", target_replicas=2, at=0.0))
    first, second = cluster.under_way
    cluster.tell(RecordSaved(deployment="a/d", number=first.number, at=0.0))
    assert len(carried_out(cluster, StartReplica)) == 1
    cluster.tell(RecordSaved(deployment="a/d", number=second.number, at=0.0))
    assert len(carried_out(cluster, StartReplica)) == 2


def test_an_acknowledgement_of_what_was_never_sent_is_late() -> None:
    cluster = Cluster(saves_at_once=False)
    cluster.apply(application(entry("a/d")))
    before = cluster.state.deployments["a/d"]
    for deployment, number in (("a/d", before.outbox.sent + 1), ("a/other", 1)):
        cluster.tell(RecordSaved(deployment=deployment, number=number, at=0.0))
        assert cluster.notes[-1].kind == "late"
    assert cluster.state.deployments["a/d"] is before


def test_a_target_that_falls_because_replicas_leave_is_saved_lazily() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 2)))
    saved = len(cluster.store)
    cluster.saves_at_once = False
    cluster.tell(ReplicasLeave(replica_ids=("a/d#1.0",), at=0.0))
    assert cluster.ranks("a/d") == [0], "it moved to rank 0 without waiting for the store"
    assert not cluster.under_way
    cluster.wait(LAZY_S)
    cluster.land()
    assert [each.cause for each in cluster.store[saved:]][:1] == [Cause.LEAVE]
    assert cluster.store[-1].spec.target_replicas == 1


def test_a_target_that_changes_all_the_time_is_saved_all_the_same() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 4)))
    cluster.saves_at_once = False
    for serial in range(3):
        cluster.tell(ReplicasLeave(replica_ids=(f"a/d#1.{serial}",), at=cluster.now))
        cluster.wait(0.4 * LAZY_S)
    assert [each.spec.target_replicas for each in cluster.under_way] == [1]


def test_records_are_given_to_the_store_before_anything_of_their_step_is_done() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d")))
    step = recover_cluster(cluster.store, (*cluster.processes, "x/y#1.0"), at=0.0, epoch=2)
    assert [type(each) for each in step.commands][:2] == [SaveRecord, CarryOut]


def test_a_rollback_survives_a_crash_at_once() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 1, version="1", rollback=True, max_start_failures=1, max_surge=1)))
    cluster.broken.add("2")
    cluster.apply(application(entry("a/d", 1, version="2", rollback=True, max_start_failures=1, max_surge=1)))
    assert cluster.starts[:2] == ["1", "2"]
    assert newest(cluster.store)["a/d"].spec.version == "1"
    cluster.restart()
    assert cluster.state.deployments["a/d"].ranks.spec.version == "1"
    assert cluster.starts.count("2") == 1
    assert cluster.state.deployments["a/d"].spec.ranks.version == "2", "what was applied last is known too"


def test_what_is_rolled_back_is_tried_again_when_it_is_applied_again() -> None:
    cluster = Cluster()
    options = {"rollback": True, "max_start_failures": 1, "max_surge": 1}
    cluster.apply(application(entry("a/d", 1, version="1", **options)))
    cluster.broken.add("2")
    cluster.apply(application(entry("a/d", 1, version="2", **options)))
    cluster.broken.clear()
    cluster.apply(application(entry("a/d", 1, version="2", **options)))
    cluster.wait(2.0)
    assert cluster.state.deployments["a/d"].ranks.spec.version == "2"
    assert cluster.status("a/d") == "HEALTHY"


def test_deploy_failed_survives_a_crash_with_its_reason() -> None:
    cluster = Cluster()
    cluster.broken.add("1")
    cluster.apply(application(entry("a/d", 1, max_start_failures=1)))
    assert cluster.status("a/d") == "DEPLOY_FAILED"
    assert "broken" in newest(cluster.store)["a/d"].trouble
    cluster.restart()
    assert cluster.status("a/d") == "DEPLOY_FAILED"
    trouble = cluster.state.deployments["a/d"].trouble
    assert "broken" in trouble
    cluster.restart()
    assert cluster.state.deployments["a/d"].trouble == trouble
    assert cluster.starts == ["1"]


def test_a_deletion_survives_a_crash_and_ends() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 2)))
    cluster.saves_at_once = False
    cluster.step(DeletionRequested(applications=("a",), at=1.0))
    assert carried_out(cluster, StopReplica) == []
    cluster.store.append(cluster.under_way.popleft())
    cluster.restart()
    cluster.land()
    assert dict(cluster.state.deployments) == {}
    assert cluster.processes == {}
    cluster.restart()
    assert dict(cluster.state.deployments) == {}


def test_a_late_put_of_an_earlier_controller_changes_nothing() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 1)))
    old = attrs.evolve(newest(cluster.store)["a/d"])
    cluster.restart()
    cluster.tell(ScaleRequested(deployment="a/d", target_replicas=3, at=cluster.now))
    cluster.store.append(attrs.evolve(old, number=old.number + 5))
    cluster.restart()
    assert cluster.target("a/d") == 3


def test_a_late_put_does_not_bring_back_what_is_deleted() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 1)))
    old = newest(cluster.store)["a/d"]
    cluster.restart()
    cluster.tell(DeletionRequested(deployments=("a/d",), at=cluster.now))
    assert dict(cluster.state.deployments) == {}
    cluster.store.append(attrs.evolve(old, number=old.number + 5))
    cluster.restart()
    assert dict(cluster.state.deployments) == {}


def test_a_controller_acts_on_what_it_adopted_only_once_that_is_its_own() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 1)))
    cluster.saves_at_once = False
    done = len(cluster.done)
    cluster.restart()
    assert [type(each) for each in cluster.done[done:] if not isinstance(each, SaveRecord)][:1] != [CarryOut]
    cluster.land()
    assert cluster.status("a/d") == "HEALTHY"
    assert newest(cluster.store)["a/d"].epoch == 2


def test_replicas_without_a_record_are_killed_and_those_of_an_unreadable_one_are_left() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 1)), application(entry("b/d", 1)))
    cluster.store = [each for each in cluster.store if each.deployment == "a/d"]
    cluster.restart(unreadable=("a/d",))
    assert set(cluster.processes) == {"a/d#1.0"}
    assert cluster.state.left_alone == ("a/d",)
    cluster.tell(ReplicaReady(replica_id="a/d#1.0", at=cluster.now))
    assert "a/d#1.0" in cluster.processes
    with pytest.raises(InvalidEventError, match="whose record can be read"):
        cluster.apply(application(entry("a/d", 1)))


@pytest.mark.parametrize("landed", [("a/d",), ("b/d",), ("a/d", "b/d"), ()])
def test_a_prefix_that_moved_is_one_applications_whatever_of_it_was_saved(landed: tuple[str, ...]) -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d"), prefix="/x"), application(entry("b/d"), prefix="/y"))
    cluster.saves_at_once = False
    swapped = application(entry("a/d"), prefix="/y"), application(entry("b/d"), prefix="/x")
    cluster.apply(*swapped)
    cluster.store.extend(each for each in cluster.under_way if each.deployment in landed)
    cluster.saves_at_once = True
    cluster.under_way.clear()
    cluster.restart()
    assert check(cluster.state) == []
    had = {name: each.route_prefix for name, each in cluster.state.applications.items()}
    new, old = {"a": "/y", "b": "/x"}, {"a": "/x", "b": "/y"}
    assert had == {name: new[name] if f"{name}/d" in landed else None if landed else old[name] for name in had}
    cluster.restart()
    assert {name: each.route_prefix for name, each in cluster.state.applications.items()} == had
    cluster.apply(*swapped)
    assert {name: each.route_prefix for name, each in cluster.state.applications.items()} == new


def test_a_record_of_one_deployment_speaks_of_no_other() -> None:
    spec = DeploymentSpec(name="a/d", target_replicas=1)
    with pytest.raises(InvalidSpecError, match=r"Record\.spec\.name must be 'b/d', of which the record is, got 'a/d'"):
        Record(deployment="b/d", number=1, applied=entry("b/d"), spec=spec)
    with pytest.raises(InvalidSpecError, match=r"Record\.applied\.ranks\.name must be 'b/d'"):
        Record(deployment="b/d", number=1, applied=entry("a/d"), spec=spec)


@pytest.mark.parametrize("unreadable", ["a/d", [3], [""]])
def test_a_single_name_is_no_list_of_unreadable_deployments_whose_replicas_would_be_killed(unreadable: Any) -> None:
    with pytest.raises(InvalidEventError, match=r"recover_cluster\.unreadable"):
        recover_cluster([], ["a/d#1.0"], at=0.0, epoch=2, unreadable=unreadable)


def test_live_news_of_a_replica_of_nothing_has_it_killed() -> None:
    cluster = Cluster()
    cluster.step(ReplicaDied(replica_id="a/d#1.0", at=1.0))
    assert [each for each in cluster.done if isinstance(each, CarryOut)] == []
    cluster.step(ReplicaPlaced(replica_id="a/d#1.1", node_id="n0", at=1.0))
    assert cluster.done[-1].command.replica_id == "a/d#1.1"


@pytest.mark.parametrize(
    ("records", "replica_ids", "problem"),
    [
        (("x",), (), "must be a Record"),
        (None, (), r"recover_cluster\.records must be records, as a list"),
        ((), None, r"recover_cluster\.replica_ids must be ids, as a list"),
        ((), "a/d#1.0", r"recover_cluster\.replica_ids must be ids, as a list"),
        ((), ("a/d#1.0", "a/d#1.0"), "an id that occurs once"),
        ((), ("nobody",), "an id such as"),
    ],
)
def test_what_a_recovery_is_given_is_checked(records: Any, replica_ids: Any, problem: str) -> None:
    with pytest.raises(InvalidEventError, match=problem):
        recover_cluster(records, replica_ids, at=0.0, epoch=2)


def test_a_deployment_with_a_replica_of_a_later_epoch_is_left_alone_and_all_others_are_not() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 1), entry("a/e", 1)))
    step = recover_cluster(cluster.store, ("a/d#1.0", "a/d#2.0", "a/e#1.0", "b/x#9.0"), at=0.0, epoch=2)
    assert step.state.left_alone == ("a/d", "b/x")
    assert list(step.state.deployments) == ["a/e"]
    assert {each.record.deployment for each in step.commands if isinstance(each, SaveRecord)} == {"a/e"}
    assert not [each for each in step.commands if isinstance(each, CarryOut)]
    assert "a/d#2.0 is not of an epoch before 2" in [note.because for note in step.notes]


def test_a_record_of_this_epoch_or_a_later_one_is_refused() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 1)))
    with pytest.raises(InvalidEventError, match="of an epoch before 1"):
        recover_cluster(cluster.store, (), at=0.0, epoch=1)


def test_a_deployment_may_be_gone_with_its_last_acknowledgement_whatever_else_is_due() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 1)))
    cluster.saves_at_once = False
    cluster.tell(DeletionRequested(applications=("a",), at=0.0))
    cluster.step(RecordSaved(deployment="a/d", number=cluster.under_way.popleft().number, at=0.0))
    cluster.settle()
    cluster.step(RecordSaved(deployment="a/d", number=cluster.under_way.popleft().number, at=100.0))
    assert dict(cluster.state.deployments) == {}
    assert list(cluster.state.alarms) == []


def test_an_acknowledgement_may_let_go_nothing() -> None:
    cluster = Cluster(saves_at_once=False)
    cluster.apply(application(entry("a/d", 1)))
    cluster.tell(ScaleRequested(deployment="a/d", target_replicas=2, at=0.0))
    second = cluster.under_way[1].number
    cluster.tell(RecordSaved(deployment="a/d", number=second, at=0.0))
    started = len(carried_out(cluster, StartReplica))
    cluster.tell(RecordSaved(deployment="a/d", number=cluster.under_way[0].number, at=0.0))
    assert len(carried_out(cluster, StartReplica)) == started == 2
    assert cluster.notes[-1].kind == "late" or cluster.status("a/d") == "HEALTHY"


@pytest.mark.parametrize(
    "make",
    [
        lambda: ApplyRequested(applications=3, at=0.0),
        lambda: ApplyRequested(applications=(3,), at=0.0),
        lambda: DeletionRequested(applications="a", at=0.0),
        lambda: DeletionRequested(applications=[""], at=0.0),
    ],
)
def test_requests_that_cannot_be_are_refused(make: Any) -> None:
    with pytest.raises(InvalidEventError):
        make()
