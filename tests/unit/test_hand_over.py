"""V4: with `hand_over="prepared"` a successor's user code is up before its predecessor goes."""

import attrs
import pytest
from msgspec.structs import replace

from rankcore import DeploymentSpec, DeploymentStatus, NoteKind, ReplicaState, step
from rankcore.commands import InitializeReplica, KillReplica, PrepareReplica, QueryReplica, StartReplica, StopReplica
from rankcore.draft import Draft
from rankcore.errors import InvalidSpecError
from rankcore.events import ReplicaPrepared, ReplicaReady, ReplicaReported, ReplicaStartFailed, SpecChanged
from rankcore.invariants import check_step
from rankcore.invariants.hand_over import check_rankless
from rankcore.placement import StaticPlacement
from rankcore.progress import progress_of
from rankcore.rankset import RankSet
from rankcore.replica.messages import receive, user_code_ended
from rankcore.replica.replica import ReplicaHalf, RunUserCode
from rankcore.rules import budget
from rankcore.values import ReplicaRank
from tests.scripted import Deployment

PREPARING, PREPARED, RUNNING = ReplicaState.PREPARING, ReplicaState.PREPARED, ReplicaState.RUNNING


def handing_over(target: int = 3, **spec: object) -> Deployment:
    fields = {"max_surge": 1, "max_unavailable": 1, "hand_over": "prepared"} | spec
    return Deployment.running(target, **fields)


def updated(d: Deployment, version: str = "2") -> str:
    """Ask for another version; returns its first replica, which is up without a rank."""
    d.forget()
    d.change(version=version)
    successor = d.sent(StartReplica)[0].replica_id
    d.place(successor)
    assert d.sent(PrepareReplica, successor)
    return successor


def test_a_predecessor_goes_once_its_successor_is_prepared() -> None:
    d = handing_over()
    successor = updated(d)
    assert d.state.replicas[successor].state is PREPARING
    assert not d.sent(StopReplica)
    d.prepared(successor)
    assert [each.replica_id for each in d.sent(StopReplica)] == ["llm#1.0"]
    assert not d.sent(InitializeReplica)
    d.stopped("llm#1.0")
    assert d.state.replicas[successor].state is ReplicaState.STARTING
    assert d.sent(InitializeReplica, successor)[0].rank.rank == 0
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert sorted(d.ranks.values()) == [0, 1, 2]


def test_a_prepared_one_has_no_rank() -> None:
    d = handing_over()
    successor = updated(d)
    d.prepared(successor)
    assert d.state.rank_of(successor) is None
    assert d.full("llm#1.0") == (0, 0, 0)
    assert successor not in d.routes


@pytest.mark.parametrize("order", ["lowest_rank", "highest_rank"])
def test_of_several_the_one_that_is_furthest_takes_the_rank_of_one_that_crashed(order: str) -> None:
    d = handing_over(6, max_surge=2, update_order=order)
    d.unready("llm#1.3")  # it uses the budget up
    d.change(version="2", max_unavailable=1)
    d.forget()
    pool = [slot.successor for _, slot in sorted(d.state.tables.slots.items()) if slot.successor is not None]
    early, late = pool if order == "lowest_rank" else reversed(pool)
    d.place(late)
    d.place(early)
    d.prepared(early)
    d.die("llm#1.2")
    assert d.state.holder_of(2) == early
    assert d.sent(InitializeReplica, early)[0].rank.rank == 2


def test_it_has_to_be_prepared_for_min_ready_s() -> None:
    d = Deployment(3, max_surge=1, max_unavailable=1, hand_over="prepared", min_ready_s=10.0)
    d.settle()
    d.wait(10.0)
    successor = updated(d)
    d.prepared(successor)
    assert budget.available(Draft.open(d.state)) == 3
    d.wait(9.0)
    assert not d.sent(StopReplica)
    d.wait(1.0)
    assert [each.replica_id for each in d.sent(StopReplica)] == ["llm#1.0"]


def test_nobody_goes_without_a_prepared_successor() -> None:
    d = handing_over(4, max_unavailable=2)
    successor = updated(d)
    d.prepared(successor)
    assert [each.replica_id for each in d.sent(StopReplica)] == ["llm#1.0"]


def test_another_user_config_is_prepared_once_more() -> None:
    d = handing_over()
    successor = updated(d)
    first = d.state.replicas[successor].revision
    d.prepared(successor)
    d.change(user_config={"a": 1})
    first_again, second = d.sent(PrepareReplica, successor)
    assert first_again.revision == first < second.revision
    assert second.user_config == {"a": 1}
    assert d.state.replicas[successor].state is PREPARING
    d.prepared(successor, first)
    assert d.state.replicas[successor].state is PREPARING
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY


def test_a_failed_preparation_counts_in_the_slot_and_n_old_ones_serve() -> None:
    d = handing_over(target=1, max_start_failures=2)
    successor = updated(d)
    d.start_fails(successor)
    assert d.state.tables.slots[0].failures == 1
    d.wait(1.0)
    again = d.sent(StartReplica)[-1].replica_id
    d.place(again)
    d.start_fails(again)
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    assert d.serving == 1
    assert not d.sent(StopReplica)


def test_a_preparation_that_takes_too_long_is_a_failure() -> None:
    d = handing_over(start_timeout_s=5.0, repeat_period_s=100.0)
    successor = updated(d)
    d.wait(5.0)
    assert d.sent(KillReplica, successor)
    assert d.state.tables.slots[0].failures == 1
    assert "not prepared 5 s after it was told to be" in d.noted(NoteKind.KILL_CHOSEN)[0].because


def test_a_rank_that_falls_vacant_takes_a_preparing_successor_and_that_finishes_first() -> None:
    d = handing_over()
    successor = updated(d)
    d.die("llm#1.2")
    assert d.state.holder_of(2) == successor
    assert not d.sent(InitializeReplica, successor)
    d.prepared(successor)
    assert d.sent(InitializeReplica, successor)[0].rank.rank == 2


def test_without_room_the_budget_alone_says_who_goes() -> None:
    d = handing_over()
    d.forget()
    d.change(version="2")
    successor = d.sent(StartReplica)[0].replica_id
    d.wait(29.0)
    assert not d.sent(StopReplica)
    d.pending(successor)
    assert d.sent(StopReplica)
    assert d.state.tables.rollout.full


def test_one_that_gets_a_place_after_all_is_prepared() -> None:
    d = handing_over(max_surge=2)
    d.forget()
    d.change(version="2")
    first, second = (each.replica_id for each in d.sent(StartReplica))
    d.pending(first)
    d.pending(second)
    assert [each.replica_id for each in d.sent(StopReplica)] == ["llm#1.0"]
    d.place(second)
    assert d.sent(PrepareReplica, second)
    assert not d.state.tables.rollout.full
    d.stopped("llm#1.0")
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY


def test_one_that_dies_while_it_is_prepared_is_not_waited_for() -> None:
    d = handing_over(min_ready_s=10.0)
    d.wait(10.0)
    successor = updated(d)
    d.prepared(successor)
    d.die(successor)
    assert d.state.tables.slots[0].failures == 1
    d.wait(10.0)
    assert not d.sent(StopReplica)
    assert len({each.replica_id for each in d.sent(StartReplica)}) == 2


def test_who_moves_to_another_rank_takes_its_successor_along() -> None:
    d = handing_over(update_order="highest_rank", compaction="immediate")
    successor = updated(d)
    d.resize(2, ["llm#1.0"])
    d.settle(except_for=[successor])
    assert (d.state.holder_of(0), d.state.tables.slots[0].successor) == ("llm#1.2", successor)
    d.forget()
    d.prepared(successor)
    assert [each.replica_id for each in d.sent(StopReplica)] == ["llm#1.2"]


def test_who_moves_to_another_rank_is_gone_without_as_before() -> None:
    d, successor = without_room_and_budget(update_order="highest_rank", compaction="immediate")
    d.resize(2, ["llm#1.0"])
    d.forget()
    d.settle(except_for=[successor])
    assert (d.state.holder_of(0), d.state.tables.slots[0].successor) == ("llm#1.3", successor)
    assert not d.sent(StopReplica)
    d.wait(10.0)
    assert d.sent(StopReplica, "llm#1.3")


def test_an_update_comes_forward_when_a_successor_is_prepared_for_long_enough() -> None:
    """Else a drain that takes long would count together with the start-up before it, and stall the update."""
    d = handing_over(min_ready_s=10.0, progress_deadline_s=100.0)
    d.wait(10.0)
    successor = updated(d)
    d.wait(80.0)
    d.prepared(successor)
    d.wait(10.0)
    assert d.sent(StopReplica)
    d.wait(99.0)
    assert d.state.stalled_since is None
    d.wait(1.0)
    assert d.state.stalled_since == d.now


def test_a_status_says_who_comes_up_before_its_predecessor_goes() -> None:
    d = handing_over(min_ready_s=10.0)
    d.wait(10.0)
    successor = updated(d)
    d.wait(3.0)
    assert progress_of(d.state).because == f"rank 0 ({successor}) has been coming up for 3 s"
    d.prepared(successor)
    d.wait(4.0)
    assert progress_of(d.state).because == f"rank 0 ({successor}) has been up for 4 of 10 s"
    d.wait(6.0)
    assert progress_of(d.state).because.startswith("rank 0 (llm#1.0) has been draining")
    d.stopped("llm#1.0")
    next_one = d.sent(StartReplica)[-1].replica_id
    d.place(next_one)
    d.prepared(next_one)
    d.wait(10.0)
    d.ready(successor)
    assert progress_of(d.state).because == "not available (1 may be): rank 0 ready for 0 of 10 s"


def test_a_shorter_min_ready_s_lets_the_predecessor_of_a_prepared_one_go() -> None:
    d = handing_over(min_ready_s=10.0)
    d.wait(10.0)
    successor = updated(d)
    d.prepared(successor)
    d.wait(5.0)
    d.change(min_ready_s=6.0)
    assert not d.sent(StopReplica)
    d.change(min_ready_s=5.0)
    assert [each.replica_id for each in d.sent(StopReplica)] == ["llm#1.0"]


def without_room_and_budget(**spec: object) -> tuple[Deployment, str]:
    """An update whose first successor finds no room, while one is out of service; returns that successor."""
    d = handing_over(min_ready_s=10.0, **spec)
    d.wait(10.0)
    d.die("llm#1.2")
    d.settle()
    d.forget()
    d.change(version="2")
    successor = d.sent(StartReplica)[0].replica_id
    d.pending(successor)
    assert not d.sent(StopReplica)
    return d, successor


def test_who_was_gone_without_is_so_for_another_user_config_too() -> None:
    d, successor = without_room_and_budget()
    d.change(user_config={"a": 1})
    assert d.state.tables.rollout.full
    d.wait(10.0)
    assert [each.replica_id for each in d.sent(StopReplica)] == ["llm#1.0"]
    assert d.state.replicas[successor].state is ReplicaState.REQUESTED


def test_another_version_looks_for_room_again() -> None:
    d, successor = without_room_and_budget()
    d.change(version="3")
    assert d.state.replicas[successor].state is ReplicaState.DRAINING
    assert not d.state.tables.rollout.full
    d.wait(10.0)
    assert {each.replica_id for each in d.sent(StopReplica)} == {successor}


@pytest.mark.parametrize("surge", [0, "0%"])
def test_a_hand_over_needs_a_surge(surge: object) -> None:
    with pytest.raises(InvalidSpecError, match=r"hand_over must be 'none' with max_surge=0"):
        DeploymentSpec(name="llm", target_replicas=3, hand_over="prepared", max_surge=surge)  # type: ignore[arg-type]


def test_a_restarted_controller_takes_the_prepared_one_for_the_rank_that_nobody_has() -> None:
    d = handing_over()
    successor = updated(d)
    d.prepared(successor)
    d.stopped("llm#1.0")
    d.processes[successor].ranks = []  # what it was told has not arrived
    d.forget()
    d.restart()
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert d.ranks[successor] == 0
    assert not d.sent(KillReplica, successor)


def test_a_restarted_controller_keeps_the_prepared_one_for_a_rank_that_is_being_left() -> None:
    d = handing_over(target=2)
    successor = updated(d)
    d.prepared(successor)
    assert d.processes["llm#1.0"].draining
    d.forget()
    d.restart()
    d.settle(except_for=["llm#1.0"])
    d.report("llm#1.0")
    assert successor in d.state.replicas
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert d.ranks[successor] == 0
    assert not d.sent(KillReplica)


def test_a_restarted_controller_lets_it_succeed_whoever_is_still_to_go() -> None:
    d = handing_over(target=2, min_ready_s=10.0)
    d.wait(10.0)
    successor = updated(d)
    d.prepared(successor)
    d.wait(5.0)
    d.restart()
    d.settle()
    assert d.state.tables.slots[0].successor == successor
    d.wait(9.0)
    assert not d.draining
    d.wait(1.0)
    assert d.draining == ["llm#1.0"]


def test_each_that_is_found_prepared_succeeds_another_one() -> None:
    d = handing_over(target=3, max_surge=2, min_ready_s=10.0)
    d.wait(10.0)
    d.forget()
    d.change(version="2")
    successors = [each.replica_id for each in d.sent(StartReplica)]
    for successor in successors:
        d.place(successor)
        d.prepared(successor)
    d.restart()
    d.settle()
    assert [d.state.tables.slots[rank].successor for rank in range(3)] == [*successors, None]


def test_one_that_is_found_prepared_and_not_wanted_is_stopped() -> None:
    d = handing_over(target=2)
    successor = updated(d)
    d.prepared(successor)
    d.processes["llm#1.0"].draining = False
    d.outstanding.clear()
    d.change(version="1")
    d.processes[successor].draining = False
    d.restart()
    d.settle()
    assert successor not in d.state.replicas
    assert d.status is DeploymentStatus.HEALTHY


def test_a_controller_that_found_somebody_being_prepared_kills_it() -> None:
    d = handing_over(target=2)
    successor = updated(d)
    d.forget()
    d.restart()
    d.report(successor)
    assert d.sent(KillReplica, successor)
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY


# -- what is planted in a step is reported


def let_go_early(d: Deployment) -> list[str]:
    """What is reported where rank 0 is taken for one whose successor is far enough."""
    rollout = replace(d.state.tables.rollout, stoppable=RankSet.of([0]))
    forged = attrs.evolve(d.state, tables=replace(d.state.tables, rollout=rollout))
    event = SpecChanged(spec=attrs.evolve(d.state.spec, start_timeout_s=99.0), at=d.now)
    result = step(forged, event)
    assert StopReplica in map(type, result.commands)
    return [str(each) for each in check_step(forged, event, result)]


def test_a_stop_for_a_successor_that_has_no_place_is_reported() -> None:
    d = handing_over()
    d.change(version="2")
    assert let_go_early(d) == ["V4: llm#1.0 is stopped, nobody is up to succeed it, and nobody found no room"]


def test_a_stop_for_a_successor_that_is_not_prepared_is_reported() -> None:
    d = handing_over()
    successor = updated(d)
    assert let_go_early(d) == [f"V4: llm#1.0 is stopped, and {successor} is PREPARING"]


def test_a_stop_for_one_that_has_been_prepared_for_less_than_min_ready_s_is_reported() -> None:
    d = handing_over(min_ready_s=10.0)
    d.wait(10.0)
    successor = updated(d)
    d.prepared(successor)
    assert let_go_early(d) == [f"V4: llm#1.0 is stopped, and {successor} is PREPARED"]


def test_who_stands_on_bundles_that_nobody_wants_any_more_goes_by_the_budget_alone() -> None:
    placement = StaticPlacement({0: [0], 1: [1]}, 2, group="g")
    d = Deployment.running(None, placement=placement, compaction="when_healthy")
    d.forget()
    d.change(placement=None, target_replicas=2, max_surge=1, max_unavailable=1, hand_over="prepared")
    assert [each.replica_id for each in d.sent(StopReplica)] == ["llm#1.0"]
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY


def test_one_that_has_no_rank_and_was_told_one_is_reported() -> None:
    d = handing_over()
    successor = updated(d)
    told = replace(d.state.replicas[successor], told=ReplicaRank(0, 0, 0))
    assert [str(each) for each in check_rankless([told])] == [f"R2: {successor} is PREPARING, and was told {told.told}"]


# -- the replica's half

RANK = ReplicaRank(3, 0, 0)


def half() -> ReplicaHalf:
    return ReplicaHalf(epoch=1, replica_id="llm#1.0", version="1", node_id="n0")


def preparation(revision: int = 1, epoch: int = 1) -> PrepareReplica:
    return PrepareReplica("llm#1.0", 4, None, "c", revision, epoch)


def initialization(revision: int = 2) -> InitializeReplica:
    return InitializeReplica("llm#1.0", RANK, 4, None, "c", revision, 1)


def test_a_preparation_starts_user_code_without_a_rank() -> None:
    assert not half().begun
    replica, reactions = receive(half(), preparation(), 0.0)
    assert reactions == (RunUserCode(True, preparation()),)
    assert (replica.rank, replica.world_size, replica.begun, replica.prepared) == (None, 4, True, False)
    replica, reactions = user_code_ended(replica, 1.0)
    assert replica.begun
    assert reactions == (ReplicaPrepared(replica_id="llm#1.0", revision=1, at=1.0),)
    assert (replica.rank, replica.prepared, replica.ready) == (None, True, False)


def test_what_is_prepared_is_not_constructed_again() -> None:
    replica, _ = user_code_ended(receive(half(), preparation(), 0.0)[0], 1.0)
    replica, reactions = receive(replica, initialization(), 2.0)
    assert reactions == (RunUserCode(False, initialization()),)
    assert replica.rank == RANK
    replica, reactions = user_code_ended(replica, 3.0)
    assert reactions == (ReplicaReady(replica_id="llm#1.0", at=3.0),)
    assert replica.ready


def test_a_rank_that_comes_during_the_preparation_waits_for_its_end() -> None:
    replica, _ = receive(half(), preparation(), 0.0)
    replica, reactions = receive(replica, initialization(), 0.5)
    assert (replica.rank, reactions) == (RANK, ())
    replica, reactions = user_code_ended(replica, 1.0)
    assert reactions[1] == RunUserCode(False, initialization())


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_preparation_is_refused_once_there_is_a_rank(epoch: int) -> None:
    replica, _ = user_code_ended(receive(half(), initialization(), 0.0)[0], 1.0)
    after, reactions = receive(replica, preparation(revision=9, epoch=epoch), 2.0)
    assert (after.rank, after.running, reactions) == (RANK, None, ())


def test_a_failed_adoption_is_final() -> None:
    replica, _ = user_code_ended(receive(half(), preparation(), 0.0)[0], 1.0)
    replica, _ = receive(replica, initialization(), 2.0)
    replica, reactions = user_code_ended(replica, 3.0, "boom")
    assert reactions == (ReplicaStartFailed(replica_id="llm#1.0", reason="boom", at=3.0),)


def test_it_says_that_it_is_prepared_unless_it_is_being_prepared_again() -> None:
    replica, _ = user_code_ended(receive(half(), preparation(), 0.0)[0], 1.0)
    replica, (report,) = receive(replica, QueryReplica("llm#1.0", 1), 1.0)
    assert isinstance(report, ReplicaReported)
    assert (report.rank, report.prepared, report.ready) == (None, True, False)
    replica, _ = receive(replica, preparation(revision=2), 2.0)
    replica, (report,) = receive(replica, QueryReplica("llm#1.0", 1), 2.0)
    assert isinstance(report, ReplicaReported)
    assert not report.prepared
