"""R10, and sections 2.3 and 2.4 about recovery: ranks are learnt from the running replicas, then repaired."""

import pytest

from rankcore import DeploymentStatus, NoteKind, ReplicaRank, ReplicaState
from rankcore.commands import (
    AnnounceWorldSize,
    InitializeReplica,
    KillReplica,
    PublishRoutes,
    QueryReplica,
    ReconfigureReplica,
    StartReplica,
    StopReplica,
)
from tests.scripted import Deployment

A, B, C, D = "llm#1.0", "llm#1.1", "llm#1.2", "llm#1.3"


def starts(d: Deployment) -> list[int]:
    return [start.rank for start in d.sent(StartReplica)]


# ---------------------------------------------------------------------------------------------------------------------
# learning


def test_recovery_asks_every_replica_found() -> None:
    """R10."""
    d = Deployment.recovered(3, {A: (0, 0, 0), B: (1, 0, 1), C: (2, 0, 2)}, epoch=7)
    assert d.sent(QueryReplica) == [QueryReplica(replica_id, 7) for replica_id in (A, B, C)]
    assert d.status is DeploymentStatus.RECOVERING
    assert d.state.unreported == (A, B, C)


def test_ranks_are_learnt_from_the_running_replicas() -> None:
    """R10: whatever they are."""
    d = Deployment.recovered(3, {A: (2, 0, 0), B: (0, 0, 1), C: (1, 0, 2)})
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert d.ranks == {A: 2, B: 0, C: 1}
    assert d.sent(ReconfigureReplica) == []


def test_no_rank_is_handed_out_until_every_discovered_replica_has_reported() -> None:
    """R10."""
    d = Deployment.recovered(4, {A: (0, 0, 0), B: (3, 0, 1), C: (1, 0, 2)})
    for replica_id in (C, A):
        d.report(replica_id)
        assert d.sent(StartReplica) == []
    d.report(B)
    assert starts(d) == [2]


@pytest.mark.parametrize("end", ["die", "stopped", "missing"])
def test_no_rank_is_handed_out_until_every_discovered_replica_has_reported_or_ended(end: str) -> None:
    """R10."""
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (1, 0, 1)})
    d.report(A)
    assert d.sent(StartReplica) == []
    getattr(d, end)(B)
    assert starts(d) == [1]


def test_recovery_that_finds_nothing_starts_everything_at_once() -> None:
    """Section 2.3: none at all."""
    d = Deployment.recovered(3, {})
    assert starts(d) == [0, 1, 2]
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY


def test_new_replicas_of_a_new_controller_have_ids_that_the_old_one_never_used() -> None:
    """Section 2: derived from deployment, epoch and serial."""
    d = Deployment.running(2)
    d.restart()
    d.settle()
    d.die(A)
    assert d.sent(StartReplica)[-1].replica_id == "llm#2.0"


def test_a_rank_reported_by_a_replica_that_dies_meanwhile_is_kept_for_its_replacement() -> None:
    """R10: while another report is outstanding."""
    d = Deployment.recovered(3, {A: (0, 0, 0), B: (2, 0, 1)})
    d.report(B)
    d.die(B)
    assert d.state.kept_ranks == (2,)
    assert d.sent(StartReplica) == []
    d.report(A)
    assert starts(d) == [2, 1]
    assert [note.rank for note in d.noted(NoteKind.RANK_INHERITED)] == [2]


def test_a_rank_reported_by_a_replica_that_dies_is_not_kept_where_another_reports_it_too() -> None:
    """R10."""
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (1, 0, 1), C: (1, 0, 1)})
    d.report(B)
    d.die(B)
    d.report(C)
    d.report(A)
    assert d.status is DeploymentStatus.HEALTHY
    assert d.ranks == {A: 0, C: 1}
    assert d.sent(StartReplica) == []


def test_a_rank_beyond_the_target_is_not_kept_for_a_reporter_that_dies() -> None:
    """R6, R10."""
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (6, 0, 1)})
    d.report(B)
    d.die(B)
    assert d.state.kept_ranks == ()
    d.report(A)
    assert starts(d) == [1]


def test_gaps_below_the_highest_rank_are_available_again() -> None:
    """R10, section 2.3; and the gaps are explained."""
    d = Deployment.recovered(6, {A: (0, 0, 0), B: (5, 0, 1)})
    d.report(A)
    d.report(B)
    assert starts(d) == [1, 2, 3, 4]
    (complete,) = d.noted(NoteKind.RECOVERY_COMPLETE)
    assert "1, 2, 3, 4" in complete.because


def test_ranks_beyond_the_world_size_are_compacted_after_a_recovery() -> None:
    """Section 2.3: ranks >= N, the right number of replicas."""
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (7, 0, 3)})
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert (d.full(A), d.full(B)) == ((0, 0, 0), (1, 0, 1))


def test_replicas_beyond_the_target_are_stopped_once_all_have_reported() -> None:
    """Section 2.3, and 2.5: no victim is chosen before."""
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (1, 0, 1), C: (2, 0, 2), D: (3, 0, 3)})
    for replica_id in (A, B, C):
        d.report(replica_id)
    assert d.sent(StopReplica) == []
    d.report(D)
    assert [stop.replica_id for stop in d.sent(StopReplica)] == [D, C]
    d.settle()
    assert d.ranks == {A: 0, B: 1}


def test_a_deployment_scaled_down_while_it_recovers_shrinks_afterwards() -> None:
    """Section 2.5: reports outstanding, no victim chosen."""
    d = Deployment.recovered(3, {A: (0, 0, 0), B: (1, 0, 1), C: (2, 0, 2)})
    d.report(A)
    d.resize(1)
    assert d.sent(StopReplica) == []
    d.settle()
    assert len(d.ranks) == 1
    assert d.status is DeploymentStatus.HEALTHY


# ---------------------------------------------------------------------------------------------------------------------
# duplicates


def test_of_two_that_report_one_rank_the_older_keeps_it() -> None:
    """R10, section 2.4: in whichever order they report."""
    for order in ((A, B), (B, A)):
        d = Deployment.recovered(2, {A: (0, 0, 0), B: (0, 0, 1)})
        for replica_id in order:
            d.report(replica_id)
        (move,) = d.sent(ReconfigureReplica)
        assert (move.replica_id, move.rank.rank) == (B, 1)
        assert d.ranks == {A: 0}
        assert [note.rank for note in d.noted(NoteKind.DUPLICATE_FOUND)] == [0]


def test_a_duplicates_loser_has_no_rank_in_the_book_until_it_acknowledges() -> None:
    """R3, section 2.4."""
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (0, 0, 1)})
    d.report(A)
    d.report(B)
    assert d.state.rank_of(B) is None
    d.acknowledge(B)
    assert d.full(B) == (1, 0, 1)
    assert d.status is DeploymentStatus.HEALTHY


def test_age_is_by_epoch_and_serial_and_not_by_the_text_of_the_id() -> None:
    """Section 2.4: llm#1.9 is older than llm#1.10, and both than llm#2.0."""
    d = Deployment.recovered(3, {"llm#2.0": (0, 0, 0), "llm#1.10": (0, 0, 1), "llm#1.9": (0, 0, 2)}, epoch=3)
    d.settle()
    assert d.ranks["llm#1.9"] == 0
    assert sorted(d.ranks.values()) == [0, 1, 2]


def test_a_shared_rank_is_given_to_no_third_while_either_believes_it() -> None:
    """Section 2.4: the keeper dies before the loser has acknowledged."""
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (0, 0, 1)})
    d.report(A)
    d.report(B)
    d.die(A)
    assert d.sent(StartReplica) == []
    d.acknowledge(B)
    assert starts(d) == [0]


def test_a_shared_rank_is_free_when_both_are_gone() -> None:
    """Section 2.4."""
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (0, 0, 1)})
    d.report(A)
    d.report(B)
    d.die(A)
    d.die(B)
    assert sorted(starts(d)) == [0, 1]


def test_a_duplicates_loser_is_moved_to_a_rank_that_nobody_believes() -> None:
    """Section 2.4: three report rank 0, and 1 is somebody's."""
    d = Deployment.recovered(4, {A: (0, 0, 0), B: (0, 0, 1), C: (0, 0, 2), D: (1, 0, 3)})
    d.settle()
    assert d.ranks == {A: 0, B: 2, C: 3, D: 1}


def test_two_that_report_the_same_three_ranks_are_told_apart_at_each_level() -> None:
    """R3, R10: one message gives the loser another rank and another local rank; on another node, another node rank."""
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (0, 0, 0)})
    d.settle()
    assert (d.full(A), d.full(B)) == ((0, 0, 0), (1, 0, 1))
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (0, 0, 0)}, nodes="ab")
    d.settle()
    assert (d.full(A), d.full(B)) == ((0, 0, 0), (1, 1, 0))
    assert len(d.sent(ReconfigureReplica)) == 1


def test_a_duplicates_loser_that_dies_before_it_acknowledges_leaves_its_new_rank_to_its_replacement() -> None:
    """R6, section 2.3."""
    d = Deployment.recovered(3, {A: (0, 0, 0), B: (0, 0, 1), C: (1, 0, 2)})
    for replica_id in (A, B, C):
        d.report(replica_id)
    assert d.sent(ReconfigureReplica)[-1].rank.rank == 2
    d.die(B)
    assert starts(d) == [2]


def test_a_duplicates_loser_is_the_first_to_go_where_there_are_too_many() -> None:
    """Section 2.5: losers of duplicates before any that runs with a rank of its own."""
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (0, 0, 1), C: (1, 0, 2)})
    d.settle()
    assert d.ranks == {A: 0, C: 1}
    assert [stop.replica_id for stop in d.sent(StopReplica)] == [B]


def test_a_duplicates_loser_waits_where_no_rank_is_free() -> None:
    """R3, R4: rank 1 is the draining one's until it is gone."""
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (0, 0, 1), C: (1, 0, 2)})
    d.report(A)
    d.report(B)
    d.report(C, draining=True)
    assert d.sent(ReconfigureReplica) == []
    d.stopped(C)
    assert [(move.replica_id, move.rank.rank) for move in d.sent(ReconfigureReplica)] == [(B, 1)]
    d.settle()
    assert d.ranks == {A: 0, B: 1}


def test_of_two_that_report_one_rank_the_one_that_is_not_draining_keeps_it() -> None:
    """Section 2.4: although it is younger; and the older one is told to stop."""
    for order in ((A, B), (B, A)):
        d = Deployment.recovered(1, {A: (0, 0, 0), B: (0, 0, 1)})
        for replica_id in order:
            d.report(replica_id, draining=replica_id == A)
        assert [stop.replica_id for stop in d.sent(StopReplica)] == [A]
        d.settle()
        assert d.ranks == {B: 0}
        assert d.sent(StartReplica) == []


def test_a_replica_that_is_being_killed_does_not_keep_the_rank_that_another_reports_too() -> None:
    """Section 2.4: the one that is not draining keeps it. The older one was found unhealthy before it reported."""
    for order in ((A, B), (B, A)):
        d = Deployment.recovered(1, {A: (0, 0, 0), B: (0, 0, 1)})
        d.unhealthy(A)
        for replica_id in order:
            d.report(replica_id)
        assert d.state.holder_of(0) == B
        d.settle()
        assert d.ranks == {B: 0}
        assert d.sent(StartReplica) == []


def test_a_keeper_that_dies_while_reports_are_outstanding_leaves_its_rank_to_the_other() -> None:
    """R10: kept for its replacement, unless another reports it too."""
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (0, 0, 1), C: (1, 0, 2)})
    d.report(A)
    d.report(B)
    d.die(A)
    d.report(C)
    d.settle()
    assert d.ranks == {B: 0, C: 1}
    assert d.sent(StartReplica) == []


def test_a_duplicates_loser_that_is_still_starting_is_moved_before_it_is_ready() -> None:
    """Section 2.2."""
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (0, 0, 1)})
    d.report(A)
    d.report(B, ready=False)
    assert d.sent(ReconfigureReplica)[-1].rank.rank == 1
    d.acknowledge(B)
    assert d.state.replicas[B].state is ReplicaState.STARTING
    d.ready(B)
    assert d.full(B) == (1, 0, 1)
    assert d.status is DeploymentStatus.HEALTHY


# ---------------------------------------------------------------------------------------------------------------------
# reports of other kinds


def test_a_replica_that_reports_no_rank_is_killed_and_its_slot_starts_afresh_once_it_is_gone() -> None:
    """R10, section 2.3: it was never initialised."""
    d = Deployment.recovered(2, {A: (0, 0, 0), B: None})
    d.report(A)
    d.report(B)
    assert [kill.replica_id for kill in d.sent(KillReplica)] == [B]
    assert d.sent(StartReplica) == []
    d.stopped(B)
    assert starts(d) == [1]


def test_a_report_with_a_rank_that_is_not_ready_means_starting() -> None:
    """Section 2.3."""
    d = Deployment.recovered(1, {A: (0, 0, 0)})
    d.report(A, ready=False)
    assert d.state.replicas[A].state is ReplicaState.STARTING
    assert d.status is not DeploymentStatus.HEALTHY
    assert d.routes == set()
    d.ready(A)
    assert d.status is DeploymentStatus.HEALTHY
    assert d.routes == {A}


def test_a_second_report_says_that_a_starting_replica_has_become_ready() -> None:
    """Section 2.4: everything that is not final may be lost, ReplicaReady too."""
    d = Deployment.recovered(1, {A: (0, 0, 0)})
    d.report(A, ready=False)
    d.report(A, ready=True)
    assert d.state.replicas[A].state is ReplicaState.RUNNING


def test_a_replica_found_starting_is_given_up_after_the_start_time_out() -> None:
    """Section 2.3, after a recovery."""
    d = Deployment.recovered(1, {A: (0, 0, 0)}, start_timeout_s=60.0)
    d.report(A, ready=False)
    d.wait(59.0)
    assert d.sent(KillReplica) == []
    d.wait(2.0)
    assert [kill.replica_id for kill in d.sent(KillReplica)][:1] == [A]


def test_a_draining_replica_is_not_taken_for_a_running_one() -> None:
    """Section 2.4: it is told to stop again in this epoch, and its place is filled when it has."""
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (1, 0, 1)})
    d.report(A)
    d.report(B, draining=True)
    assert d.state.available == 1
    assert d.routes == {A}
    assert [stop.epoch for stop in d.sent(StopReplica, B)] == [2]
    assert d.sent(StartReplica) == []
    d.stopped(B)
    assert starts(d) == [1]


def test_a_draining_replica_keeps_its_ranks_until_it_is_gone_after_a_recovery() -> None:
    """R7, section 2.4: what it believes stays taken."""
    d = Deployment.recovered(3, {A: (0, 0, 0), B: (1, 0, 1)})
    d.report(A)
    d.report(B, draining=True)
    assert starts(d) == [2]
    d.place("llm#2.0")
    assert d.full("llm#2.0") == (2, 0, 2)


def test_a_report_for_an_older_query_changes_nothing() -> None:
    """Section 2.4: it may have been overtaken by a command of the controller that asked."""
    d = Deployment.recovered(1, {A: (0, 0, 0)}, epoch=5)
    d.report(A, rank=(3, 0, 3), epoch=4)
    assert d.state.unreported == (A,)
    assert len(d.noted(NoteKind.STALE_EPOCH, A)) == 1
    d.report(A, rank=(0, 0, 0))
    assert d.ranks == {A: 0}


def test_a_second_report_of_a_running_replica_changes_nothing() -> None:
    """Section 2.4: news may be repeated."""
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (1, 0, 1)})
    d.report(A)
    before = d.state
    step = d.report(A)
    assert (d.state, step.commands) == (before, ())
    assert [note.kind for note in step.notes] == [NoteKind.LATE]


def test_a_replica_that_does_not_report_in_time_is_killed() -> None:
    """Section 2.4: after the health time-out; its end lets the recovery go on."""
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (1, 0, 1)}, health_check_timeout_s=30.0)
    d.report(A)
    d.wait(29.0)
    assert d.sent(KillReplica) == []
    d.wait(1.0)
    assert [kill.replica_id for kill in d.sent(KillReplica)] == [B]
    assert d.sent(StartReplica) == []
    d.stopped(B)
    assert starts(d) == [1]


def test_an_overdue_report_still_counts_while_the_replica_is_being_killed() -> None:
    """R10, R3: its rank stays taken until it is gone, and its replacement inherits it."""
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (1, 0, 1)})
    d.report(A)
    d.wait(31.0)
    d.report(B)
    assert d.state.replicas[B].state is ReplicaState.DRAINING
    assert d.sent(StartReplica) == []
    d.stopped(B)
    assert starts(d) == [1]


def test_while_reports_are_outstanding_a_replica_can_be_stopped_by_name() -> None:
    """Section 2.4: announcements, repeats, kills and stops by name go on."""
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (1, 0, 1)})
    d.report(A)
    d.stop_by_name(A)
    assert [stop.replica_id for stop in d.sent(StopReplica)] == [A]
    d.stopped(A)
    assert d.sent(StartReplica) == []
    d.report(B)
    assert starts(d) == [0]


def test_while_reports_are_outstanding_queries_are_repeated_and_the_unhealthy_are_killed() -> None:
    """Section 2.4."""
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (1, 0, 1)})
    d.report(A)
    d.unhealthy(A)
    assert [kill.replica_id for kill in d.sent(KillReplica)] == [A]
    d.wait(5.0)
    assert d.sent(QueryReplica, B) == [QueryReplica(B, 2)] * 2
    assert d.sent(KillReplica, A) == [KillReplica(A, 2)] * 2


def test_a_new_config_is_sent_only_when_all_have_reported() -> None:
    """Section 2.4: gives out nothing while a discovered replica has neither reported nor ended."""
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (1, 0, 1)})
    d.report(A)
    d.change(user_config={"a": 1}, config_rollout="at_once")
    assert d.sent(ReconfigureReplica) == []
    d.report(B)
    assert [told.replica_id for told in d.sent(ReconfigureReplica)] == [A, B]


def test_placed_replicas_are_not_initialised_while_reports_are_outstanding() -> None:
    """Section 2.4: a second recovery begins while the first one's starts are on their way."""
    d = Deployment.recovered(2, {A: (0, 0, 0)})
    d.report(A)
    d.restart()
    d.report("llm#2.0")
    assert d.sent(InitializeReplica) == []
    assert [kill.replica_id for kill in d.sent(KillReplica)] == ["llm#2.0"]
    d.settle()
    assert d.ranks == {A: 0, "llm#3.0": 1}


# ---------------------------------------------------------------------------------------------------------------------
# node and local ranks


def test_the_oldest_replica_on_a_node_speaks_for_its_node_rank() -> None:
    """Section 2.4: the replicas of one node may differ while a change was under way."""
    d = Deployment.recovered(3, {A: None, B: None, C: None})
    d.report(C, rank=(2, 0, 1), node_id="a")
    d.report(A, rank=(0, 1, 0), node_id="a")
    d.report(B, rank=(1, 0, 0), node_id="b")
    d.settle()
    assert d.full(A) == (0, 1, 0)
    assert d.full(B) == (1, 0, 0)
    assert d.full(C) == (2, 1, 1)
    assert {move.replica_id for move in d.sent(ReconfigureReplica)} == {C}


def test_of_two_nodes_that_claim_one_node_rank_that_of_the_oldest_replica_keeps_it() -> None:
    """Section 2.4: the other gets one that nobody believes, and it is explained."""
    d = Deployment.recovered(3, {A: None, B: None, C: None})
    d.report(B, rank=(1, 0, 0), node_id="b")
    d.report(C, rank=(2, 1, 0), node_id="c")
    d.report(A, rank=(0, 0, 0), node_id="a")
    assert d.full(A) == (0, 0, 0)
    assert d.full(B) == (1, 2, 0)
    assert d.full(C) == (2, 1, 0)
    (moved,) = d.noted(NoteKind.RANK_MOVED)
    assert (moved.rule, moved.replica_id, moved.after) == ("R10", B, ReplicaRank(1, 2, 0))


def test_of_two_that_report_one_local_rank_on_a_node_the_older_keeps_it() -> None:
    """R3, R10 at the third level."""
    d = Deployment.recovered(2, {A: None, B: None})
    d.report(B, rank=(1, 0, 0), node_id="a")
    d.report(A, rank=(0, 0, 0), node_id="a")
    assert d.full(A) == (0, 0, 0)
    assert d.full(B) == (1, 0, 1)
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY


def test_local_ranks_reported_with_gaps_are_compacted() -> None:
    """R1, R10."""
    d = Deployment.recovered(2, {A: (0, 4, 3), B: (1, 4, 5)})
    d.settle()
    assert d.full(A) == (0, 0, 0)
    assert d.full(B) == (1, 0, 1)
    assert all(len(d.sent(ReconfigureReplica, each)) == 1 for each in (A, B))


# ---------------------------------------------------------------------------------------------------------------------
# what goes on afterwards


def test_routes_are_published_whole_when_all_have_reported() -> None:
    """Section 2.5; a router forgets those of an older epoch."""
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (1, 0, 1)})
    d.report(B)
    assert d.sent(PublishRoutes) == []
    d.report(A)
    (published,) = d.sent(PublishRoutes)
    assert (published.added, published.removed) == ((A, B), ())


def test_a_recovery_that_finds_nothing_publishes_that_nothing_takes_requests() -> None:
    """Routers forget the routes of an older epoch when the first ones of the new arrive."""
    d = Deployment.recovered(2, {})
    published = d.sent(PublishRoutes)
    assert [(each.added, each.removed) for each in published] == [((), ())]


def test_a_node_lost_while_reports_are_outstanding_ends_those_that_reported_there() -> None:
    """R10, section 2."""
    d = Deployment.recovered(3, {A: None, B: None, C: None})
    d.report(A, rank=(0, 0, 0), node_id="a")
    d.report(B, rank=(1, 1, 0), node_id="b")
    d.lose("b", at=1.0)
    assert d.state.kept_ranks == (1,)
    assert d.sent(StartReplica) == []
    d.report(C, rank=(2, 0, 1), node_id="a")
    assert starts(d) == [1]


def test_a_report_from_a_node_that_was_lost_since_counts_as_an_end() -> None:
    """Section 2: NodeLost overtook the report of a replica that was there."""
    d = Deployment.recovered(1, {A: (0, 0, 0)})
    d.nodes = ("b",)
    d.processes[A].node_id = "gone"
    d.lose("a", at=3.0)
    d.report(A, node_id="a", at=2.0)
    assert A not in d.state.replicas
    assert starts(d) == [0]


@pytest.mark.parametrize("restarts", [1, 2, 5])
def test_any_number_of_restarts_leaves_every_rank_where_it_was(restarts: int) -> None:
    """R10."""
    d = Deployment.running(4, nodes="ab")
    before = {replica_id: d.full(replica_id) for replica_id in d.ranks}
    for _ in range(restarts):
        d.restart()
        d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert {replica_id: d.full(replica_id) for replica_id in d.ranks} == before


def test_a_second_restart_during_the_first_recovery_starts_over() -> None:
    """R10, section 2.4: only reports for the latest epoch count."""
    d = Deployment.running(3)
    d.restart()
    d.report(A)
    d.restart()
    assert d.state.unreported == (A, B, C)
    d.report(A)
    d.report(B)
    assert d.ranks == {A: 0, B: 1}
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY


def test_nothing_about_ranks_has_to_be_checkpointed() -> None:
    """R10: the spec, the ids that were found and what they say are enough to get the same ranks."""
    d = Deployment.running(5, nodes="ab")
    d.die(B)
    d.settle()
    before = {replica_id: d.full(replica_id) for replica_id in d.ranks}
    d.restart()
    assert dict(d.state.ranks) == {}
    d.settle()
    assert {replica_id: d.full(replica_id) for replica_id in d.ranks} == before


def test_the_state_of_a_recovery_says_how_many_replicas_were_found() -> None:
    """Notes explain a recovery from its start to its end."""
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (0, 0, 1)})
    d.settle()
    (started,) = d.noted(NoteKind.RECOVERY_STARTED)
    assert "2 replicas" in started.because
    assert [note.replica_id for note in d.noted(NoteKind.REPORT_ADOPTED)] == [A, B]
    (complete,) = d.noted(NoteKind.RECOVERY_COMPLETE)
    assert "1 duplicates" in complete.because


def test_recovery_announces_the_world_size_before_it_asks() -> None:
    """R9, section 2.4."""
    d = Deployment.recovered(2, {A: (0, 0, 0)})
    kinds = [type(command) for command in d.commands]
    assert kinds.index(AnnounceWorldSize) < kinds.index(QueryReplica)


def test_a_duplicates_loser_keeps_its_rank_when_the_other_ends_before_all_have_reported() -> None:
    """R10: nobody else has the rank any more, so that it is in the book again at once, and not with another acknowledgement."""
    d = Deployment.recovered(2, {"llm#1.0": (0, 0, 0), "llm#1.1": (0, 0, 1), "llm#1.2": (1, 0, 2)})
    d.report("llm#1.0")
    d.report("llm#1.1")
    d.die("llm#1.0")
    d.report("llm#1.2")
    assert d.state.holder_of(0) == "llm#1.1"
    assert d.ranks == {"llm#1.1": 0, "llm#1.2": 1}
