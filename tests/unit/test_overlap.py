"""V3: with `hand_over="overlap"` a successor takes requests before it has its rank: the routes never hold fewer than N - U."""

import attrs
import pytest
from msgspec.structs import replace

from rankcore import DeploymentSpec, DeploymentState, DeploymentStatus, ReplicaState, step
from rankcore.commands import InitializeReplica, KillReplica, PrepareReplica, PublishRoutes, StartReplica, StopReplica
from rankcore.draft import Draft
from rankcore.errors import InvalidSpecError
from rankcore.events import ClockAdvanced, ReplicaPrepared, ReplicasLeave
from rankcore.invariants import check, check_step
from rankcore.invariants.overlap import check_nobody_needed_ends
from rankcore.placement import StaticPlacement
from rankcore.progress import progress_of
from rankcore.rankset import RankSet
from rankcore.rules import budget
from rankcore.testing.schedules import Schedule, run
from tests.scripted import Deployment

PREPARING, PREPARED, RUNNING = ReplicaState.PREPARING, ReplicaState.PREPARED, ReplicaState.RUNNING
STARTING = ReplicaState.STARTING


def overlapping(target: int = 2, **spec: object) -> Deployment:
    fields = {"max_surge": 1, "max_unavailable": 0, "hand_over": "overlap"} | spec
    d = Deployment(target, **fields)
    d.settle()
    d.wait(float(fields.get("min_ready_s", 0.0)))
    assert d.status is DeploymentStatus.HEALTHY
    d.forget()
    return d


def available(d: Deployment) -> int:
    return budget.available(Draft.open(d.state))


def updated(d: Deployment, version: str = "2") -> str:
    """Ask for another version; returns its first replica, which has a place and is told to come up without a rank."""
    known = set(d.state.replicas)
    d.change(version=version)
    successor = next(each.replica_id for each in d.sent(StartReplica) if each.replica_id not in known)
    d.place(successor)
    return successor


def stopped(d: Deployment) -> list[str]:
    return [each.replica_id for each in d.sent(StopReplica)]


# -- V3: what is published, when, and for how many


def test_a_prepared_successor_takes_requests_and_then_its_predecessor_goes() -> None:
    d = overlapping()
    successor = updated(d)
    assert successor not in d.routes
    d.prepared(successor)
    assert d.routes == {"llm#1.1", successor}
    assert stopped(d) == ["llm#1.0"]
    assert d.state.rank_of(successor) is None
    published = d.sent(PublishRoutes)[-1]
    assert (published.added, published.removed) == ((successor,), ("llm#1.0",))


def test_its_rank_does_not_make_it_available_before_it_has_been_ready_for_min_ready_s() -> None:
    d = overlapping(min_ready_s=10.0)
    successor = updated(d)
    d.prepared(successor)
    d.wait(4.0)
    d.die("llm#1.0")
    d.ready(successor)
    assert (d.state.rank_of(successor).rank, available(d)) == (0, 1)
    d.wait(6.0)
    assert available(d) == 2


def test_it_stays_on_the_routes_while_it_is_told_its_rank() -> None:
    d = overlapping()
    successor = updated(d)
    d.prepared(successor)
    d.stopped("llm#1.0")
    assert d.sent(InitializeReplica, successor)[0].rank.rank == 0
    assert d.state.replicas[successor].state is STARTING
    assert successor in d.routes
    assert available(d) == 2


def test_it_is_published_once_more_when_it_has_its_rank() -> None:
    d = overlapping()
    successor = updated(d)
    d.prepared(successor)
    d.stopped("llm#1.0")
    d.forget()
    d.ready(successor)
    assert successor in d.sent(PublishRoutes)[0].added
    assert d.full(successor) == (0, 0, 0)


def test_an_update_never_has_fewer_than_n_on_the_routes() -> None:
    d = overlapping(10)
    least = len(d.routes)
    d.change(version="2")
    while d.outstanding:
        d.answer(min(d.outstanding))
        least = min(least, len(d.routes))
    assert least == 10
    assert d.status is DeploymentStatus.HEALTHY
    assert {replica.version for replica in d.state.replicas.values()} == {"2"}


def test_it_takes_requests_for_min_ready_s_before_its_predecessor_goes() -> None:
    d = overlapping(min_ready_s=10.0)
    successor = updated(d)
    d.prepared(successor)
    assert successor in d.routes
    assert available(d) == 2
    d.wait(9.0)
    assert not stopped(d)
    d.wait(1.0)
    assert stopped(d) == ["llm#1.0"]


def test_it_is_available_at_once_when_it_has_its_rank() -> None:
    d = overlapping(min_ready_s=10.0)
    successor = updated(d)
    d.prepared(successor)
    d.wait(10.0)
    d.stopped("llm#1.0")
    d.ready(successor)
    assert available(d) == 2
    assert d.state.proven == d.state.spec


def test_nobody_proves_a_build_without_a_rank() -> None:
    d = overlapping()
    successor = updated(d)
    d.prepared(successor)
    assert d.state.proven != d.state.spec


def test_what_fails_when_it_is_told_its_rank_ends_in_deploy_failed() -> None:
    d = overlapping(2, max_start_failures=3, start_backoff_s=1.0)
    d.change(version="2")
    least = 2
    for _ in range(200):
        if d.status is DeploymentStatus.DEPLOY_FAILED:
            break
        waiting = sorted(d.outstanding)
        if not waiting:
            d.wait(10.0)
            continue
        failing = [each for each in waiting if isinstance(d.outstanding[each], InitializeReplica)]
        if failing and d.state.replicas[failing[0]].version == "2":
            d.start_fails(failing[0])
        else:
            d.answer(waiting[0])
        least = min(least, len(d.routes))
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    assert least >= 1
    d.settle()
    d.wait(60.0)
    d.settle()
    assert sorted(replica.version for replica in d.state.replicas.values()) == ["1", "1"]


def test_one_that_dies_while_it_serves_without_a_rank_leaves_the_routes_and_its_predecessor_stays() -> None:
    d = overlapping(min_ready_s=10.0)
    successor = updated(d)
    d.prepared(successor)
    d.die(successor)
    assert d.routes == {"llm#1.0", "llm#1.1"}
    assert not stopped(d)


def test_one_that_does_not_adopt_in_time_is_killed_as_any_start_is() -> None:
    d = overlapping(start_timeout_s=60.0)
    successor = updated(d)
    d.prepared(successor)
    d.stopped("llm#1.0")
    d.wait(60.0)
    assert d.sent(KillReplica, successor)
    assert successor not in d.routes
    d.stopped(successor)
    assert d.state.tables.slots[0].failures == 1
    assert d.state.kept_ranks == () or d.sent(StartReplica)[-1].rank == 0


def test_with_prepared_alone_nobody_takes_requests_without_a_rank() -> None:
    d = overlapping(hand_over="prepared", max_unavailable=1)
    successor = updated(d)
    d.prepared(successor)
    assert successor not in d.routes


def test_those_who_are_prepared_take_requests_from_when_overlap_is_asked_for() -> None:
    d = overlapping(3, hand_over="prepared", max_unavailable=1, min_ready_s=10.0)
    successor = updated(d)
    d.prepared(successor)
    d.wait(9.0)
    d.change(hand_over="overlap", max_unavailable=0)
    assert successor in d.routes
    d.wait(9.0)
    assert not stopped(d)
    d.wait(1.0)
    assert stopped(d) == ["llm#1.0"]


# -- a budget of nothing


@pytest.mark.parametrize("nothing", [0, "0%"])
def test_a_budget_of_nothing_needs_overlap(nothing: int | str) -> None:
    for hand_over in ("none", "prepared"):
        with pytest.raises(InvalidSpecError, match="max_unavailable"):
            DeploymentSpec(name="llm", target_replicas=2, max_unavailable=nothing, max_surge=1, hand_over=hand_over)
    spec = DeploymentSpec(name="llm", target_replicas=2, max_unavailable=nothing, max_surge=1, hand_over="overlap")
    assert spec.unavailable_max == 0


def test_overlap_needs_surge_and_no_static_placement() -> None:
    with pytest.raises(InvalidSpecError, match="hand_over"):
        DeploymentSpec(name="llm", target_replicas=2, hand_over="overlap")
    with pytest.raises(InvalidSpecError, match="hand_over"):
        DeploymentSpec(name="llm", target_replicas=2, max_unavailable=0, hand_over="overlap")
    placement = StaticPlacement({0: [0], 1: [1]}, 2, group="g")
    with pytest.raises(InvalidSpecError, match="max_surge"):
        DeploymentSpec(name="llm", placement=placement, max_surge=1, max_unavailable=0, hand_over="overlap")


@pytest.mark.parametrize("wrong", [False, -1, 0.0, "-1%", "101%", float("nan")])
def test_a_budget_is_a_number_or_a_share(wrong: object) -> None:
    with pytest.raises(InvalidSpecError, match="max_unavailable"):
        DeploymentSpec(name="llm", target_replicas=2, max_unavailable=wrong, max_surge=1, hand_over="overlap")


@pytest.mark.parametrize("share", ["1%", "20%", None])
def test_only_a_plain_zero_means_nothing(share: str | None) -> None:
    spec = DeploymentSpec(name="llm", target_replicas=2, max_unavailable=share, max_surge=1, hand_over="overlap")
    assert spec.unavailable_max == 1


def test_without_room_nobody_is_stopped_and_the_update_says_so() -> None:
    d = overlapping(2, max_surge=2, surge_patience_s=30.0, progress_deadline_s=600.0)
    d.change(version="2")
    for command in d.sent(StartReplica):
        d.pending(command.replica_id)
    d.wait(700.0)
    assert not stopped(d)
    assert d.routes == {"llm#1.0", "llm#1.1"}
    assert d.state.stalled_since is not None
    assert "no room" in progress_of(d.state).because


def test_with_room_for_one_it_goes_on_one_after_another() -> None:
    d = overlapping(3, max_surge=2)
    d.change(version="2")
    first, second = (command.replica_id for command in d.sent(StartReplica))
    d.pending(second)
    d.place(first)
    d.prepared(first)
    assert len(stopped(d)) == 1
    assert len(d.routes) == 3


# -- M5 to M7: who serves without a rank counts for the budget


def serving_after_a_stop(d: Deployment) -> str:
    """Its update has a successor that serves, whose predecessor `llm#1.0` drains."""
    successor = updated(d)
    d.prepared(successor)
    assert stopped(d) == ["llm#1.0"]
    assert available(d) == 2
    d.forget()
    return successor


def test_m5_a_successor_that_is_needed_is_not_dismissed_for_a_newer_version() -> None:
    d = overlapping()
    successor = serving_after_a_stop(d)
    d.change(version="3")
    assert not stopped(d)
    assert available(d) == 2
    d.stopped("llm#1.0")
    assert d.sent(InitializeReplica, successor)[0].rank.rank == 0
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert {replica.version for replica in d.state.replicas.values()} == {"3"}


def test_m5_one_that_is_not_needed_goes_at_once() -> None:
    d = overlapping(min_ready_s=10.0)
    successor = updated(d)
    d.prepared(successor)
    d.change(version="3")
    assert stopped(d) == [successor]


def test_m5_it_goes_as_soon_as_another_is_available() -> None:
    d = overlapping(3)
    d.change(version="2", max_unavailable=1)
    successor = d.sent(StartReplica)[0].replica_id
    d.place(successor)
    d.die("llm#1.2")
    again = d.sent(StartReplica)[-1].replica_id
    d.prepared(successor)
    d.change(version="3", max_unavailable=0)
    assert successor in d.routes
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert again not in d.routes


def test_m5_it_takes_the_rank_that_lacks_a_place_whatever_is_wanted_there() -> None:
    """Room for 2 beside the drained node: the successor has the last place, and the rank that lacks one takes it."""
    d = overlapping(2, min_ready_s=0.0)
    d.replace("llm#1.0")
    successor = d.sent(StartReplica)[0].replica_id
    d.place(successor)
    d.prepared(successor)
    assert stopped(d) == ["llm#1.0"]
    d.forget()
    d.change(version="3")
    assert successor in d.routes
    d.die("llm#1.1")
    d.stopped("llm#1.0")
    assert d.state.replicas[successor].state is STARTING
    assert successor in d.routes
    d.ready(successor)
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY


def test_m5_one_that_nobody_wants_takes_a_vacant_rank_with_its_own_build() -> None:
    d = overlapping()
    successor = serving_after_a_stop(d)
    d.change(version="3")
    d.die("llm#1.1")
    assert d.sent(InitializeReplica, successor)[0].rank.rank == 1
    assert d.state.replicas[successor].version == "2"
    assert successor in d.routes
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert {replica.version for replica in d.state.replicas.values()} == {"3"}


def test_m5_who_waited_for_that_rank_is_not_left_to_succeed_one_who_is_to_stay() -> None:
    """Found by the swarm: an unwanted successor of rank 0 takes rank 2 from one that has no place, and rank 0 is to stay."""
    calm, version = ("calm moment", 0), "version changes"
    placed, command, first = ("replica is placed", 1), ("command arrives", 0), ("first of each arrives", 0)
    newest, news, fewer = ("news arrives", -1), ("news arrives", 0), "target changes with victims"
    moves = (first, command, ("replica is placed", 0), newest, calm, newest, (version, 0), calm, news, first, command)
    moves += (placed, placed, newest, calm, calm, ("message is lost", 0), (fewer, 2), (fewer, 3), calm, newest, command)
    moves += (calm, command, calm, calm, first, command, (version, 1), first, ("replica works", 0))
    world = run(Schedule(number=497, moves=moves))
    assert world.state.status is DeploymentStatus.HEALTHY


def test_m5_a_successor_is_employed_for_a_rank_that_waits_for_a_place() -> None:
    d = overlapping(2)
    successor = updated(d)  # for rank 0
    d.die("llm#1.1")
    waiting = d.sent(StartReplica)[-1].replica_id  # for rank 1, and there is no room
    assert d.state.replicas[waiting].state is ReplicaState.REQUESTED
    d.prepared(successor)
    assert d.state.replicas[successor].slot == 1
    assert d.sent(InitializeReplica, successor)


def test_m6_an_outdated_one_that_adopts_is_not_stopped_while_it_is_needed() -> None:
    d = overlapping()
    successor = serving_after_a_stop(d)
    d.stopped("llm#1.0")
    assert d.state.replicas[successor].state is STARTING
    d.forget()
    d.change(version="3")
    assert successor not in stopped(d)
    assert available(d) == 2
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert {replica.version for replica in d.state.replicas.values()} == {"3"}


def test_m7_one_that_is_needed_is_not_prepared_anew_for_another_config() -> None:
    d = overlapping(2, max_unavailable=1)
    newcomer = updated(d)
    d.die("llm#1.1")
    assert d.state.replicas[newcomer].slot == 1
    successor = d.sent(StartReplica)[-1].replica_id
    d.place(successor)
    assert d.state.replicas[newcomer].state is PREPARING
    d.prepared(successor)
    assert stopped(d) == ["llm#1.0"]
    assert available(d) == 1
    d.forget()
    d.change(user_config={"a": 1})
    assert not d.sent(PrepareReplica, successor)
    assert successor in d.routes
    d.stopped("llm#1.0")
    command = d.sent(InitializeReplica, successor)[0]
    assert command.user_config is None
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert {replica.config_id for replica in d.state.replicas.values()} == {d.state.spec.config_id}


def test_m7_else_it_leaves_the_routes_and_is_prepared_anew() -> None:
    d = overlapping(min_ready_s=10.0)
    successor = updated(d)
    d.prepared(successor)
    d.forget()
    d.change(user_config={"a": 1})
    assert d.sent(PrepareReplica, successor)[0].user_config == {"a": 1}
    assert successor not in d.routes


def test_at_most_one_is_out_for_another_config_where_the_budget_is_nothing() -> None:
    d = overlapping(4)
    d.change(user_config={"a": 1})
    least = available(d)
    assert least == 3
    while d.outstanding:
        d.answer(min(d.outstanding))
        least = min(least, available(d))
    assert least == 3
    assert d.status is DeploymentStatus.HEALTHY


# -- evictions, a restarted controller, a failed version


def test_a_drain_stops_nobody_before_its_successor_serves() -> None:
    d = overlapping(2, nodes=("n0", "n1"))
    least = 2
    d.drain("n0")
    while d.outstanding:
        d.answer(min(d.outstanding))
        least = min(least, len(d.routes))
    assert least == 2
    assert {replica.node_id for replica in d.state.replicas.values()} == {"n1"}
    assert not d.sent(KillReplica)


def test_one_that_serves_without_a_rank_on_a_drained_node_is_not_killed() -> None:
    d = overlapping(2, nodes=("n0", "n1"))
    successor = updated(d)
    d.prepared(successor)
    d.forget()
    d.drain("n0")
    assert not d.sent(KillReplica)
    assert successor in d.routes
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert {replica.node_id for replica in d.state.replicas.values()} == {"n1"}


def test_a_victim_that_a_downscale_names_goes_at_once_though_it_is_needed() -> None:
    """It is the caller's choice, as a stop by name is."""
    d = overlapping(4)
    d.change(partition=1)
    d.replace("llm#1.0")
    successor = d.sent(StartReplica)[-1].replica_id
    d.place(successor)
    for gone in ("llm#1.1", "llm#1.2"):
        d.die(gone)
    d.prepared(successor)
    assert successor in d.routes
    d.resize(3, stop_first=(successor, "llm#1.3"))
    assert successor in stopped(d)
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY


def test_one_that_is_named_goes_within_the_budget() -> None:
    d = overlapping()
    successor = serving_after_a_stop(d)
    d.replace(successor)
    assert not stopped(d)
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert successor not in d.routes


def test_who_serves_without_a_rank_is_in_the_first_routes_after_a_restart() -> None:
    d = overlapping()
    successor = serving_after_a_stop(d)
    d.stopped("llm#1.0")
    d.outstanding.clear()
    d.processes[successor].ranks.clear()
    d.restart()
    d.forget()
    d.settle()
    assert successor in d.sent(PublishRoutes)[0].added
    assert not d.sent(KillReplica, successor)


def test_one_that_was_being_told_its_rank_is_in_the_first_routes_after_a_restart() -> None:
    d = overlapping()
    successor = serving_after_a_stop(d)
    d.stopped("llm#1.0")
    assert d.processes[successor].ranks
    d.restart()
    d.forget()
    for each in d.state.unreported:
        d.report(each)
    assert set(d.sent(PublishRoutes)[0].added) == {"llm#1.1", successor}
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY


def test_a_failed_version_keeps_who_is_needed_until_the_proven_one_serves() -> None:
    d = overlapping(2, max_start_failures=1)
    successor = serving_after_a_stop(d)
    d.stopped("llm#1.0")
    assert d.status is DeploymentStatus.UPDATING
    second = d.sent(StartReplica)[-1].replica_id
    d.start_fails(second)
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    assert successor in d.routes
    assert available(d) == 2


def test_one_that_starts_on_a_version_that_is_given_up_goes_as_soon_as_it_is_not_needed() -> None:
    d = overlapping(3, max_unavailable=1, max_start_failures=1)
    early = updated(d)
    d.prepared(early)
    d.stopped("llm#1.0")
    assert d.state.replicas[early].state is STARTING
    d.die("llm#1.1")
    given_up = d.state.holder_of(1) or ""
    d.start_fails(given_up)
    assert (d.status, d.routes) == (DeploymentStatus.DEPLOY_FAILED, {"llm#1.2", early})  # of three, one may be missing
    proven = d.sent(StartReplica)[-1]
    assert (proven.rank, proven.version) == (1, "1")
    d.place(proven.replica_id)
    assert early in d.routes
    d.ready(proven.replica_id)
    assert stopped(d)[-1] == early
    d.settle()
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    assert [each.version for each in d.state.replicas.values()] == ["1", "1", "1"]


def test_a_lower_target_takes_successors_along() -> None:
    d = overlapping(3)
    successor = updated(d)
    d.prepared(successor)
    d.resize(1)
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert len(d.routes) == 1


def test_deleting_ends_everybody() -> None:
    d = overlapping()
    serving_after_a_stop(d)
    d.delete()
    d.settle()
    assert d.status is DeploymentStatus.DELETED
    assert not d.routes


def test_an_update_with_a_partition_touches_nobody_below_it() -> None:
    d = overlapping(3, partition=2)
    d.change(version="2")
    d.settle()
    assert {r.slot: r.version for r in d.state.replicas.values()} == {0: "1", 1: "1", 2: "2"}


def test_compatible() -> None:
    assert attrs.fields(DeploymentSpec).hand_over.default == "none"


@pytest.mark.parametrize("adopts", [False, True])
@pytest.mark.parametrize("rollback", [False, True])
def test_who_fails_is_not_counted_among_those_who_are_left(rollback: bool, adopts: bool) -> None:
    d = overlapping(3, max_surge=2, max_unavailable=1, max_start_failures=1, rollback=rollback)
    d.change(version="2")
    first, second = (each.replica_id for each in d.sent(StartReplica))
    for successor in (first, second):
        d.place(successor)
        d.prepared(successor)
    assert stopped(d) == ["llm#1.0", "llm#1.1"]
    d.stopped("llm#1.0")
    if adopts:
        d.stopped("llm#1.1")
    d.start_fails(first)
    assert d.routes == {"llm#1.2", second}  # of three, one may be missing


def test_one_that_is_needed_serves_until_a_rank_that_it_may_not_have_is_filled() -> None:
    d = overlapping(3, partition=1)
    d.resize(1, stop_first=("llm#1.0", "llm#1.1"))
    early = updated(d)
    d.prepared(early)
    for gone in ("llm#1.0", "llm#1.1", "llm#1.2"):
        d.stopped(gone)
    assert d.routes == {early}
    newcomer = d.sent(StartReplica)[-1]
    assert (newcomer.rank, newcomer.version) == (0, "1")
    d.place(newcomer.replica_id)
    assert d.routes == {early}
    d.ready(newcomer.replica_id)
    assert d.routes == {newcomer.replica_id}
    d.settle()
    assert (d.status, list(d.processes)) == (DeploymentStatus.HEALTHY, [newcomer.replica_id])


def test_who_is_to_leave_for_good_does_though_it_is_needed() -> None:
    """Every step is checked: that is somebody else's choice, as a stop by name is."""
    d = overlapping(2)
    successor = serving_after_a_stop(d)
    d.send(ReplicasLeave(replica_ids=(successor,), at=d.now))
    assert d.routes == {"llm#1.1"}


def test_a_user_config_that_comes_with_the_rank_is_confirmed_with_it() -> None:
    """Every step is checked: that is progress (V9), for whoever took requests before as for whoever runs."""
    d = overlapping(2, max_unavailable=1, config_rollout="at_once")
    successor = updated(d)
    d.prepared(successor)
    d.unready("llm#1.1")
    d.change(user_config={"a": 1})
    d.stopped("llm#1.0")
    assert d.sent(InitializeReplica)[-1].replica_id == successor
    d.change(version="3")
    d.ready(successor, at=d.now + 1.0)
    assert d.processes[successor].config_id == d.state.spec.config_id


# -- what is planted is reported


def reported(state: DeploymentState) -> list[str]:
    return [str(each) for each in check(state)]


def with_replica(d: Deployment, replica_id: str, **changes: object) -> DeploymentState:
    changed = replace(d.state.replicas[replica_id], **changes)
    tables = replace(d.state.tables, replicas=d.state.tables.replicas.set(replica_id, changed))
    return attrs.evolve(d.state, tables=tables)


def test_who_runs_and_is_off_the_routes_is_reported() -> None:
    d = overlapping()
    assert "P5: llm#1.0 is RUNNING, and not on the routes" in reported(with_replica(d, "llm#1.0", routed=False))


def test_who_is_unready_and_on_the_routes_is_reported() -> None:
    d = overlapping()
    d.unready("llm#1.0")
    assert "P5: llm#1.0 is RUNNING, and on the routes and unready" in reported(with_replica(d, "llm#1.0", routed=True))
    healthy = attrs.evolve(d.state, status=DeploymentStatus.HEALTHY)
    assert "V16: HEALTHY, and ['llm#1.0'] are unready" in reported(healthy)


def test_who_is_not_up_and_on_the_routes_is_reported() -> None:
    d = overlapping()
    successor = updated(d)
    assert f"V3: {successor} is PREPARING, and on the routes" in reported(with_replica(d, successor, routed=True))


def test_one_that_is_neither_wanted_nor_needed_is_reported() -> None:
    d = overlapping()
    successor = updated(d)
    rollout = replace(d.state.tables.rollout, unwanted=RankSet.of([0]))
    forged = attrs.evolve(d.state, tables=replace(d.state.tables, rollout=rollout))
    assert f"V3: {successor} is not wanted, not needed, and PREPARING" in reported(forged)


def test_one_that_starts_on_what_was_given_up_and_is_not_needed_is_reported() -> None:
    d = overlapping(2, max_start_failures=1)
    successor = serving_after_a_stop(d)
    d.stopped("llm#1.0")
    d.start_fails(d.sent(StartReplica)[-1].replica_id)
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    assert not check(d.state)
    forged = attrs.evolve(d.state, spec=attrs.evolve(d.state.spec, max_unavailable=1))
    assert f"V3: {successor} starts on a build that was given up, and is not needed" in reported(forged)


def test_what_routers_are_not_told_is_reported() -> None:
    d = overlapping()
    successor = updated(d)
    before = d.state
    event = ReplicaPrepared(replica_id=successor, revision=before.replicas[successor].revision, at=d.now)
    honest = step(before, event)
    assert not check_step(before, event, honest)
    silent = honest._replace(commands=tuple(each for each in honest.commands if not isinstance(each, PublishRoutes)))
    expected = f"V3: published: added [], removed []; expected: added ['{successor}'], removed ['llm#1.0']"
    assert expected in [str(each) for each in check_step(before, event, silent)]
    kept = replace(honest.state.replicas[successor], routed=False)
    tables = replace(honest.state.tables, replicas=honest.state.tables.replicas.set(successor, kept))
    off = honest._replace(state=attrs.evolve(honest.state, tables=tables))
    assert f"V3: {successor} is PREPARED, and takes no requests" in [str(each) for each in check_step(before, event, off)]


def test_who_is_needed_and_ended_is_reported() -> None:
    d = overlapping()
    successor = serving_after_a_stop(d)
    event = ClockAdvanced(at=d.now + 1.0)
    forged = step(d.state, event)._replace(state=with_replica(d, successor, state=ReplicaState.DRAINING, routed=False))
    found = check_nobody_needed_ends(d.state, event, forged, [StopReplica(successor, 1.0, 1)])
    assert [str(each) for each in found] == [f"V1: ['{successor}'] are ended, and 1 of 2 are left, at least 2 have to be"]


def test_who_is_needed_and_prepared_anew_is_reported() -> None:
    d = overlapping()
    successor = serving_after_a_stop(d)
    before, event = d.state, ClockAdvanced(at=d.now + 1.0)
    d.unready("llm#1.1")
    forged = step(before, event)._replace(state=with_replica(d, successor, state=PREPARING, routed=False))
    command = PrepareReplica(successor, 2, None, "", 1, 1)
    found = check_nobody_needed_ends(before, event, forged, [command])
    assert [str(each) for each in found] == [f"V1: ['{successor}'] are prepared anew, and 0 of 2 are left"]


def test_one_that_is_stopped_for_a_successor_that_nobody_wants_is_reported() -> None:
    d = overlapping()
    successor = updated(d)
    before = d.state
    event = ReplicaPrepared(replica_id=successor, revision=before.replicas[successor].revision, at=d.now)
    honest = step(before, event)
    rollout = replace(honest.state.tables.rollout, unwanted=RankSet.of([0]))
    forged = honest._replace(state=attrs.evolve(honest.state, tables=replace(honest.state.tables, rollout=rollout)))
    found = [str(each) for each in check_step(before, event, forged)]
    assert f"V3: llm#1.0 is stopped for {successor}, which is not wanted any more" in found


# -- who changes its mind


def test_a_successor_whose_node_is_drained_and_uncordoned_succeeds_all_the_same() -> None:
    d = overlapping(2, nodes=("n0", "n1"))
    successor = serving_after_a_stop(d)
    node = d.state.replicas[successor].node_id
    d.drain(node)
    d.uncordon(node)
    d.settle()
    assert (d.status, successor in d.routes) == (DeploymentStatus.HEALTHY, True)


def test_one_that_a_new_controller_needs_waits_for_a_rank_and_takes_any() -> None:
    d = overlapping()
    successor = serving_after_a_stop(d)
    d.change(version="3")
    d.restart()
    for each in d.state.unreported:
        d.report(each)
    assert successor in d.routes
    d.stopped("llm#1.0")
    assert d.sent(InitializeReplica, successor)[-1].rank.rank == 0
    d.settle()
    assert (d.status, {each.version for each in d.state.replicas.values()}) == (DeploymentStatus.HEALTHY, {"3"})


def test_below_the_partition_nobody_takes_another_generation_though_it_is_needed() -> None:
    d = overlapping(2, partition=1)
    successor = updated(d)  # for rank 1
    d.die("llm#1.0")
    d.prepared(successor)
    waiting = d.sent(StartReplica)[-1]
    assert (waiting.rank, waiting.version) == (0, "1")
    assert d.state.replicas[successor].slot == 1
    d.settle()
    assert [each.version for each in sorted(d.state.replicas.values(), key=lambda each: each.slot or 0)] == ["1", "2"]


def out_below_the_partition() -> tuple[Deployment, str, str]:
    """Three places. Rank 2, below the partition, has none of them: the third is that of a canary which is needed."""
    d = overlapping(3, min_ready_s=5.0, repeat_period_s=5.0, scarcity_after_s=None)
    early = updated(d)  # for rank 0
    d.prepared(early)
    d.wait(4.0)
    d.unready("llm#1.2")  # goes first, and at no cost
    d.wait(1.0)
    d.change(partition=3)
    d.stopped("llm#1.2")
    waiting = d.sent(StartReplica)[-1]
    assert (waiting.rank, waiting.version) == (2, "1")
    d.find_no_room()
    d.wait(10.0)
    assert d.routes == {"llm#1.0", "llm#1.1", early}
    return d, early, waiting.replica_id


def test_where_one_that_is_needed_has_the_place_of_a_rank_below_the_partition_the_status_names_it_and_what_ends_that() -> None:
    d, early, _ = out_below_the_partition()
    assert progress_of(d.state).because == (
        "no room, 2 of 3: rank 2 has no place (all places are taken); "
        f"it is taken by {early} of version 2, which serves without a rank and has to, "
        "with max_unavailable=0; one more place ends that, or a higher max_unavailable, or a partition of 2 at most"
    )


@pytest.mark.parametrize("way", ["a place", "budget", "partition"])
def test_each_way_out_that_the_status_names_ends_it(way: str) -> None:
    d, early, waiting = out_below_the_partition()
    if way == "a place":
        d.place(waiting)
    elif way == "budget":
        d.change(max_unavailable=1)
        assert stopped(d)[-1] == early
    else:
        d.change(partition=2)
        assert d.state.holder_of(2) == early
    for _ in range(4):
        d.settle()
        d.wait(5.0)
    assert (d.status, sorted(d.ranks.values()), len(d.routes)) == (DeploymentStatus.HEALTHY, [0, 1, 2], 3)
    assert "taken by" not in progress_of(d.state).because


def test_what_is_wanted_again_is_not_ended_for_that_it_was_not() -> None:
    d = overlapping(2, max_unavailable=1)
    successor = updated(d)
    d.prepared(successor)
    d.change(version="3", max_unavailable=0)
    d.change(version="2")
    d.settle()
    assert (d.status, successor in d.routes) == (DeploymentStatus.HEALTHY, True)


def test_one_that_is_available_and_not_needed_goes_in_the_step_in_which_it_is_not_wanted() -> None:
    d = overlapping(3, max_unavailable=1)
    successor = updated(d)
    d.prepared(successor)
    assert stopped(d) == ["llm#1.0"]
    d.change(version="3")
    assert stopped(d) == ["llm#1.0", successor]


def test_one_that_says_it_is_unready_while_it_is_told_its_rank_leaves_the_routes() -> None:
    d = overlapping()
    successor = serving_after_a_stop(d)
    d.stopped("llm#1.0")
    d.unready(successor)
    d.ready(successor)
    assert (d.state.replicas[successor].state, d.routes) == (RUNNING, {"llm#1.1"})


def taker_of_a_rank_that_is_still_believed(**spec: object) -> tuple[Deployment, str]:
    """The holder of rank 2 moves to rank 0, which had no place; a successor that is up has its slot, and waits for its rank."""
    d = overlapping(3, scarcity_after_s=5.0, **spec)
    d.die("llm#1.0")
    unplaced = d.sent(StartReplica)[-1].replica_id
    d.find_no_room()
    d.wait(5.0)
    assert d.state.holder_of(0) == "llm#1.2"
    successor = updated(d)
    d.prepared(successor)
    d.stopped(unplaced)
    assert (d.state.holder_of(2), d.sent(InitializeReplica)) == (successor, [])
    return d, successor


@pytest.mark.parametrize("spec", [{}, {"hand_over": "prepared", "max_unavailable": 1}])
def test_one_that_waits_for_its_rank_and_is_neither_wanted_nor_needed_goes(spec: dict[str, object]) -> None:
    d, taker = taker_of_a_rank_that_is_still_believed(**spec)
    d.change(version="3", max_unavailable=1)
    assert stopped(d)[-1] == taker
    d.settle()
    assert (d.status, {each.version for each in d.state.replicas.values()}) == (DeploymentStatus.HEALTHY, {"3"})


def test_one_that_waits_for_its_rank_and_is_needed_has_it_below_the_partition_too() -> None:
    d, taker = taker_of_a_rank_that_is_still_believed()
    d.change(partition=3)
    assert taker in d.routes
    d.acknowledge("llm#1.2")
    assert d.sent(InitializeReplica, taker)[-1].rank.rank == 2
    d.settle()
    assert (d.status, taker in d.routes) == (DeploymentStatus.HEALTHY, True), "it holds its rank, which is not updated"


def test_one_that_a_new_controller_found_prepared_serves_on_where_a_static_placement_begins_and_it_is_needed() -> None:
    d = overlapping(3, max_unavailable=1)
    d.replace("llm#1.0")
    early = d.sent(StartReplica)[-1].replica_id
    d.place(early)
    d.prepared(early)
    assert stopped(d) == ["llm#1.0"]
    d.restart()
    for each in d.state.unreported:
        d.report(each)
    placement = StaticPlacement({0: [0], 1: [1], 2: [2]}, 4, group="pg")
    d.change(placement=placement, target_replicas=None, max_surge=0, hand_over="none")
    d.settle()
    assert (d.status, len(d.routes)) == (DeploymentStatus.HEALTHY, 3)


def unwanted_successor() -> tuple[Deployment, str]:
    """Rank 0, below the partition, has no place; rank 1 has a successor of an older version than is wanted, which is needed."""
    d = overlapping(2, partition=1, scarcity_after_s=60.0)
    successor = updated(d)
    d.die("llm#1.0")
    d.prepared(successor)
    d.change(version="3")
    assert list(d.state.tables.rollout.unwanted) == [1]
    return d, successor


def test_one_that_is_not_wanted_is_so_too_where_the_holder_of_its_slot_moves() -> None:
    d, successor = unwanted_successor()
    d.find_no_room()
    d.wait(60.0)
    assert d.state.holder_of(0) == "llm#1.1"
    assert d.state.tables.slots[0].successor == successor
    assert list(d.state.tables.rollout.unwanted) == [0]
    assert successor in d.routes
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY


def test_nobody_goes_for_one_that_is_not_wanted_because_it_has_been_ready_for_long_enough() -> None:
    d, _ = unwanted_successor()
    d.wait(10.0)
    d.change(min_ready_s=5.0)
    assert not stopped(d)
    d.settle()
    d.wait(5.0)
    d.settle()
    d.wait(5.0)
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
