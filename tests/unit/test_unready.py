"""V16: who is not ready for a while leaves the routes in the step of the news and is back in that of the next; nothing else
happens to it. `rankcore/rules/unready.py`.
"""

import itertools

import pytest

from rankcore import DeploymentStatus, NoteKind
from rankcore.commands import (
    InitializeReplica,
    KillReplica,
    PublishRoutes,
    QueryReplica,
    ReconfigureReplica,
    StartReplica,
    StopReplica,
    WakeAt,
)
from rankcore.core import step
from rankcore.draft import Draft
from rankcore.events import ReplicaReady, ReplicaReported, ReplicaUnready
from rankcore.progress import progress_of
from rankcore.replica import messages
from rankcore.replica.replica import RunUserCode
from rankcore.rules import budget
from tests.scripted import Deployment

UNHEALTHY, HEALTHY, UPDATING = DeploymentStatus.UNHEALTHY, DeploymentStatus.HEALTHY, DeploymentStatus.UPDATING


def available(d: Deployment) -> int:
    return budget.available(Draft.open(d.state))


def running(target: int, **spec: object) -> Deployment:
    d = Deployment.running(target, **spec)
    d.wait(spec.get("min_ready_s", 0.0) + 1.0)  # type: ignore[operator]
    d.forget()
    return d


def test_off_and_on_the_routes_in_the_step_of_the_news_without_a_kill_or_a_move() -> None:
    d = running(3, max_unavailable=1)
    before = d.ranks
    d.unready("llm#1.1", at=100.0)
    assert d.routes == {"llm#1.0", "llm#1.2"}
    assert (d.state.available, d.status) == (2, UNHEALTHY)
    d.wait(30.0)
    d.ready("llm#1.1")
    assert d.routes == {"llm#1.0", "llm#1.1", "llm#1.2"}
    assert (d.state.available, d.status) == (3, HEALTHY)
    assert d.ranks == before
    assert {type(each) for each in d.commands} <= {PublishRoutes, WakeAt}
    assert [note.because for note in d.noted(NoteKind.REPLICA_UNREADY)] == ["cold cache"]
    assert [note.because for note in d.noted(NoteKind.REPLICA_READY_AGAIN)] == ["it was unready for 30.0 s"]


def test_the_newest_news_holds_in_whatever_order_it_comes() -> None:
    news = [
        ReplicaUnready(replica_id="llm#1.1", at=100.0),
        ReplicaReady(replica_id="llm#1.1", at=110.0),
        ReplicaUnready(replica_id="llm#1.1", at=120.0),
        ReplicaReady(replica_id="llm#1.1", at=130.0),
    ]
    for upto in range(1, len(news) + 1):
        for order in itertools.permutations(news[:upto]):
            state = running(3).state
            for event in (*order, *order):
                state = step(state, event).state
            assert state.available == (2 if isinstance(news[upto - 1], ReplicaUnready) else 3), order


def test_at_one_moment_it_is_unready() -> None:
    for order in ([0, 1], [1, 0]):
        d = running(3)
        for index in order:
            (d.unready, d.ready)[index]("llm#1.1", at=100.0)
        assert d.state.available == 2


@pytest.mark.parametrize("then", ["dies", "is unhealthy"])
def test_one_that_fails_while_it_is_unready_is_a_failure_as_any(then: str) -> None:
    d = running(3)
    d.unready("llm#1.1")
    if then == "dies":
        d.die("llm#1.1")
    else:
        d.unhealthy("llm#1.1")
    assert d.state.tables.slots[1].failures == 1
    d.settle()
    assert d.ranks == {"llm#1.0": 0, "llm#1.2": 2, "llm#1.3": 1}
    assert d.routes == set(d.ranks)
    assert d.status is HEALTHY


def test_it_was_ready_for_long_only_until_it_became_unready() -> None:
    for unready_at, failures in ((500.0, 2), (700.0, 1)):
        d = running(3, stable_after_s=600.0)
        d.die("llm#1.1")
        d.settle()
        d.unready("llm#1.3", at=unready_at)
        d.die("llm#1.3", at=1000.0)
        assert d.state.tables.slots[1].failures == failures, unready_at


def test_news_of_one_that_was_never_initialised_or_leaves_is_late() -> None:
    d = Deployment(2)
    d.unready("llm#1.0")
    d.settle()
    assert d.routes == {"llm#1.0", "llm#1.1"}
    d.resize(1)
    gone = d.draining[0]
    d.unready(gone)
    d.ready(gone, at=d.now + 1.0)
    assert gone not in d.routes
    assert d.noted(NoteKind.LATE, "llm#1.0")
    assert len(d.noted(NoteKind.LATE, gone)) == 2


@pytest.mark.parametrize(("ready_at", "routes"), [(3.0, set()), (5.0, set()), (6.0, {"llm#1.0"})])
def test_news_that_overtakes_the_first_ready_is_late_and_remembered(ready_at: float, routes: set[str]) -> None:
    d = Deployment(1)
    d.place("llm#1.0")
    d.unready("llm#1.0", at=5.0)
    assert d.noted(NoteKind.LATE)
    d.ready("llm#1.0", at=ready_at)
    assert d.routes == routes
    assert d.status is (HEALTHY if routes else UPDATING)


@pytest.mark.parametrize("found_unready", [False, True])
@pytest.mark.parametrize("then_ready", [False, True])
def test_news_that_overtakes_the_report_is_remembered(found_unready: bool, then_ready: bool) -> None:
    d = running(1)
    d.restart()
    d.unready("llm#1.0", at=5.0)
    if then_ready:
        d.ready("llm#1.0", at=6.0)
    d.processes["llm#1.0"].unready = "cold cache" if found_unready else None
    d.report("llm#1.0", at=4.0)
    assert d.routes == ({"llm#1.0"} if then_ready else set())


def test_one_that_leaves_while_it_is_unready_is_taken_off_the_routes_once() -> None:
    d = running(3)
    d.unready("llm#1.2")
    d.stop_by_name("llm#1.2")
    assert d.state.available == 2
    d.settle()
    assert d.routes == {"llm#1.0", "llm#1.1", "llm#1.3"}
    assert d.status is HEALTHY


# -- available


def test_an_update_within_its_budget_stops_nobody_while_one_is_unready() -> None:
    d = running(4, max_unavailable=1)
    d.unready("llm#1.3")
    d.replace("llm#1.0")
    d.settle()
    assert not d.sent(StopReplica)
    assert available(d) == 3
    d.ready("llm#1.3", at=d.now + 1.0)
    d.settle()
    assert [each.replica_id for each in d.sent(StopReplica)] == ["llm#1.0"]


def test_min_ready_s_counts_anew_once_it_is_ready_again() -> None:
    d = running(3, max_unavailable=1, min_ready_s=10.0)
    assert available(d) == 3
    d.unready("llm#1.1", at=100.0)
    d.ready("llm#1.1", at=105.0)
    assert (d.state.available, available(d)) == (3, 2)
    d.wait(9.0)
    assert available(d) == 2
    d.wait(1.0)
    assert available(d) == 3


def test_one_that_is_unready_before_min_ready_s_proves_nothing() -> None:
    d = running(2, min_ready_s=10.0, max_unavailable=1)
    d.change(version="2")
    d.settle()
    newcomer = d.sent(StartReplica)[-1].replica_id
    d.wait(5.0)
    d.unready(newcomer)
    d.wait(60.0)
    assert d.state.proven.version == "1"
    assert len(d.sent(StopReplica)) == 1
    d.ready(newcomer)
    d.wait(10.0)
    assert d.state.proven.version == "2"


def test_who_becomes_ready_again_at_once_where_no_time_is_asked_for_goes_on_with_the_update() -> None:
    d = running(3, max_unavailable=1)
    d.change(version="2")
    d.settle(except_for=["llm#1.3"])
    d.settle()
    assert d.status is HEALTHY
    assert d.state.previous.version == "2"


def update_with_one_unready(**spec: object) -> Deployment:
    """Version "2" runs everywhere; rank 0 has said that it is not ready, before the other was."""
    d = running(2, max_unavailable=1, **spec)
    d.change(version="2")
    while not (d.state.holder_of(0) == "llm#1.2" and d.state.replicas["llm#1.2"].state == "RUNNING"):
        d.answer(sorted(d.outstanding)[0])
    d.unready("llm#1.2")
    d.settle()
    while d.outstanding:
        d.settle()
    return d


def test_one_that_is_ready_again_before_it_has_its_config_serves_and_is_available_with_that_only() -> None:
    d = running(3, max_unavailable=1, user_config={"v": 1})
    d.change(user_config={"v": 2})
    (owes,) = [each.replica_id for each in d.sent(ReconfigureReplica)]
    d.unready(owes)
    d.ready(owes, at=d.now + 1.0)
    assert (owes in d.routes, available(d)) == (True, 2)
    d.acknowledge(owes)
    assert available(d) == 3 - (len(d.sent(ReconfigureReplica)) - 1)
    d.settle()
    assert d.status is HEALTHY


def test_a_deployment_is_not_healthy_and_becomes_no_base_while_one_is_unready() -> None:
    d = update_with_one_unready()
    assert d.status is UPDATING
    assert d.state.previous.version == "1"
    assert "rank 0 unready for 0 s: cold cache" in progress_of(d.state).because
    d.ready("llm#1.2", at=d.now + 1.0)
    d.settle()
    assert (d.status, d.state.previous.version) == (HEALTHY, "2")


# -- updates


def test_an_update_replaces_the_unready_first_and_they_cost_nothing() -> None:
    d = running(5, max_unavailable=1)
    d.unready("llm#1.3")
    d.unready("llm#1.4")
    d.change(version="2")
    assert [each.replica_id for each in d.sent(StopReplica)] == ["llm#1.3", "llm#1.4"]
    assert (d.state.available, available(d)) == (3, 3)
    d.settle()
    assert d.status is HEALTHY
    assert {each.version for each in d.state.replicas.values()} == {"2"}


def test_one_that_becomes_unready_during_an_update_goes_at_once() -> None:
    d = running(4, max_unavailable=1)
    d.change(version="2")
    assert [each.replica_id for each in d.sent(StopReplica)] == ["llm#1.0"]
    d.unready("llm#1.2")
    assert [each.replica_id for each in d.sent(StopReplica)] == ["llm#1.0", "llm#1.2"]
    assert d.routes == {"llm#1.1", "llm#1.3"}


@pytest.mark.parametrize("spec", [{"partition": 4}, {"max_unavailable": 1}])
def test_where_nothing_newer_is_wanted_an_unready_one_is_left_alone(spec: dict[str, int]) -> None:
    d = running(3, **spec)
    d.unready("llm#1.1")
    d.change(version="2", partition=4)
    d.wait(1000.0)
    assert not d.sent(StopReplica, "llm#1.1")
    assert not d.sent(KillReplica)


def test_with_hand_over_an_unready_one_does_not_wait_for_its_successor() -> None:
    d = running(3, max_unavailable=1, max_surge=1, hand_over="prepared", min_ready_s=5.0)
    d.unready("llm#1.2")
    d.change(version="2")
    assert [each.replica_id for each in d.sent(StopReplica)] == ["llm#1.2"]
    for _ in range(60):
        d.settle()
        d.wait(1.0)
    assert d.status is HEALTHY
    assert {each.version for each in d.state.replicas.values()} == {"2"}


def test_a_config_goes_to_the_unready_at_once_and_the_others_wait_for_their_turn() -> None:
    d = running(3, max_unavailable=1, user_config={"v": 1})
    for replica_id in ("llm#1.1", "llm#1.2"):
        d.unready(replica_id)
    d.change(user_config={"v": 2})
    assert {each.replica_id for each in d.sent(ReconfigureReplica)} == {"llm#1.1", "llm#1.2"}
    for replica_id in ("llm#1.1", "llm#1.2"):
        d.acknowledge(replica_id)
    assert d.state.available == 1
    assert len(d.sent(ReconfigureReplica)) == 2
    for replica_id in ("llm#1.1", "llm#1.2"):
        d.ready(replica_id, at=d.now + 1.0)
    d.settle()
    assert len(d.sent(ReconfigureReplica)) == 3
    assert d.status is HEALTHY


def test_one_that_owes_a_config_and_is_unready_takes_one_part_of_the_budget() -> None:
    d = running(4, max_unavailable=2, user_config={"v": 1})
    d.change(user_config={"v": 2})
    assert available(d) == 2
    d.unready("llm#1.0")
    assert available(d) == 2
    d.acknowledge("llm#1.0")
    assert available(d) == 2
    d.ready("llm#1.0", at=d.now + 1.0)
    assert available(d) == 3 - len(d.sent(ReconfigureReplica)) + 2
    d.settle()
    assert d.status is HEALTHY


@pytest.mark.parametrize("rollback", [False, True])
def test_an_update_in_which_all_come_up_and_one_stays_unready_is_stalled_and_rolled_back_where_that_is_asked_for(
    rollback: bool,
) -> None:
    d = update_with_one_unready(progress_deadline_s=100.0, rollback=rollback)
    d.wait(99.0)
    assert d.state.stalled_since is None
    d.wait(1.0)
    assert "rank 0 unready for 100 s: cold cache" in d.noted(NoteKind.STALLED)[0].because
    d.settle()
    assert d.state.spec.version == ("1" if rollback else "2")
    assert d.status is (HEALTHY if rollback else UPDATING)
    assert len(d.noted(NoteKind.ROLLED_BACK)) == rollback


# -- planned loss, downscale


def test_a_drained_one_that_is_unready_goes_once_its_successor_has_a_place_at_no_cost() -> None:
    d = running(2, nodes=("n0", "n1"), max_unavailable=1)
    d.unready("llm#1.1")
    d.unready("llm#1.0")
    d.drain("n0")
    successor = d.sent(StartReplica)[0].replica_id
    assert not d.sent(StopReplica)
    d.place(successor, "n1")
    assert [each.replica_id for each in d.sent(StopReplica)] == ["llm#1.0"]
    d.settle()
    assert d.routes == {successor}


def test_a_downscale_chooses_as_today() -> None:
    d = running(3, victims="highest_rank")
    d.unready("llm#1.0")
    d.resize(2)
    assert [each.replica_id for each in d.sent(StopReplica)] == ["llm#1.2"]


def test_nobody_is_moved_into_a_gap_while_one_is_unready() -> None:
    d = running(4)
    d.unready("llm#1.3")
    d.stop_by_name("llm#1.0")
    d.resize(3)
    d.settle()
    assert not d.sent(ReconfigureReplica, "llm#1.3")
    d.ready("llm#1.3", at=d.now + 1.0)
    d.settle()
    assert d.status is HEALTHY
    assert sorted(d.ranks.values()) == [0, 1, 2]


# -- a controller's restart


def test_one_that_reports_that_it_is_unready_is_not_on_the_first_routes() -> None:
    d = running(3, min_ready_s=5.0)
    d.unready("llm#1.1", reason="no licence")
    d.restart()
    d.settle()
    assert d.routes == {"llm#1.0", "llm#1.2"}
    assert d.state.replicas["llm#1.1"].unready.reason == "no licence"
    assert d.status is UNHEALTHY
    d.ready("llm#1.1", at=d.now + 1.0)
    assert d.routes == {"llm#1.0", "llm#1.1", "llm#1.2"}
    d.settle()
    assert d.status is HEALTHY


def test_a_report_that_stands_for_a_lost_ready_says_whether_it_is_unready() -> None:
    d = Deployment.recovered(1, {"llm#1.0": (0, 0, 0)})
    d.report("llm#1.0", ready=False)
    d.processes["llm#1.0"].unready = "cold cache"
    d.report("llm#1.0", ready=True)
    assert d.routes == set()
    assert d.state.replicas["llm#1.0"].unready.reason == "cold cache"
    d.ready("llm#1.0", at=d.now + 1.0)
    assert d.routes == {"llm#1.0"}


# -- the replica's half


def started_half() -> messages.ReplicaHalf:
    d = Deployment(1)
    half = messages.started(d.sent(StartReplica)[0], "n0")
    d.place("llm#1.0")
    half, reactions = messages.receive(half, d.outstanding["llm#1.0"], 1.0)
    assert isinstance(reactions[0], RunUserCode)
    half, _ = messages.user_code_ended(half, 2.0)
    return half


def test_a_replica_says_each_change_once() -> None:
    half = started_half()
    half, said = messages.readiness_checked(half, 3.0)
    assert said == ()
    half, said = messages.readiness_checked(half, 4.0, "cold")
    assert said == (ReplicaUnready(replica_id="llm#1.0", reason="cold", at=4.0),)
    half, said = messages.readiness_checked(half, 5.0, "colder")
    assert (said, half.unready) == ((), "colder")
    half, said = messages.readiness_checked(half, 6.0)
    assert said == (ReplicaReady(replica_id="llm#1.0", at=6.0),)


def test_one_that_has_not_started_or_drains_says_nothing() -> None:
    d = Deployment(1)
    half = messages.started(d.sent(StartReplica)[0], "n0")
    assert messages.readiness_checked(half, 3.0, "cold") == (half, ())


def test_a_repeated_initialization_is_answered_and_that_it_is_unready_is_said_behind_that() -> None:
    d = running(1)
    half, command = started_half(), Deployment(1).place("llm#1.0").commands[-1]
    assert isinstance(command, InitializeReplica)
    half, _ = messages.readiness_checked(half, 4.0, "cold")
    half, said = messages.receive(half, command, 6.0)
    assert said == (ReplicaReady(replica_id="llm#1.0", at=6.0), ReplicaUnready(replica_id="llm#1.0", reason="cold", at=6.0))
    d.unready("llm#1.0", at=4.0)
    for event in said:
        d.send(event)
    assert d.routes == set()


def test_the_report_says_why() -> None:
    half, _ = messages.readiness_checked(started_half(), 4.0, "cold")
    half, (report,) = messages.receive(half, QueryReplica("llm#1.0", 2), 5.0)
    assert isinstance(report, ReplicaReported)
    assert (report.ready, report.unready) == (True, "cold")


def test_an_outdated_one_that_is_named_goes_before_its_successor_has_a_place() -> None:
    """Every step is checked: nobody is stopped too early (V14) who serves nobody."""
    d = Deployment.running(2, max_surge=1)
    d.replace("llm#1.1")
    d.unready("llm#1.1")
    d.change(version="2", partition=1)
    d.wait(1.0)
    assert "llm#1.1" in [each.replica_id for each in d.sent(StopReplica)]
