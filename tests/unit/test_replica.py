"""The replica's half of section 2.4, promise by promise."""

from unittest.mock import ANY

import pytest

from rankcore.commands import (
    AnnounceWorldSize,
    InitializeReplica,
    KillReplica,
    QueryReplica,
    ReconfigureReplica,
    StartReplica,
    StopReplica,
)
from rankcore.events import ReplicaReady, ReplicaReconfigured, ReplicaReconfigureFailed, ReplicaReported, ReplicaStartFailed
from rankcore.replica.replica import Drain, End, Overtaken, RunUserCode, change
from rankcore.values import ReplicaRank
from tests.replicas import HeldReplica

ID = "llm#1.0"


def new_replica(epoch: int = 1) -> HeldReplica:
    return HeldReplica(StartReplica(ID, 0, "v1", None, (), epoch), "n0")


def ranks(rank: int) -> ReplicaRank:
    return ReplicaRank(rank, 0, 0)


def initialize(rank=0, world_size=4, revision=10, epoch=1, config_id="c1"):
    return InitializeReplica(ID, ranks(rank), world_size, None, config_id, revision, epoch)


def reconfigure(rank=0, world_size=4, revision=20, epoch=1, config_id="c1"):
    return ReconfigureReplica(ID, ranks(rank), world_size, None, config_id, revision, epoch)


def running_replica(epoch: int = 1) -> HeldReplica:
    replica = new_replica(epoch)
    replica.receive(initialize(rank=3, epoch=epoch), 1.0)
    assert replica.user_code_ended(2.0) == (ReplicaReady(replica_id=ID, at=2.0),)
    return replica


def report_of(replica: HeldReplica, epoch: int = 1) -> ReplicaReported:
    (report,) = replica.receive(QueryReplica(ID, epoch), 9.0)
    assert isinstance(report, ReplicaReported)
    return report


def test_a_new_replica_believes_nothing():
    report = report_of(new_replica())
    assert report.rank is None
    assert report.config_id is None
    assert not report.ready


def test_belief_changes_when_the_command_is_accepted_before_user_code_runs():
    replica = new_replica()
    assert replica.receive(initialize(rank=3), 1.0) == (RunUserCode(starting=True, command=ANY),)
    assert replica.rank == ranks(3)
    assert replica.config_id == "c1"
    assert not replica.ready


def test_a_rank_change_is_believed_before_reconfigure_has_run():
    replica = running_replica()
    assert replica.receive(reconfigure(rank=1), 3.0) == (RunUserCode(starting=False, command=ANY),)
    assert replica.rank == ranks(1)


def test_a_reconfigure_is_acknowledged_with_its_revision_once_user_code_has_run():
    replica = running_replica()
    replica.receive(reconfigure(rank=1, revision=21), 3.0)
    assert replica.user_code_ended(4.0) == (ReplicaReconfigured(replica_id=ID, revision=21, at=4.0),)


@pytest.mark.parametrize(
    "message",
    [
        initialize(rank=0, revision=99),
        reconfigure(rank=0, revision=99),
        AnnounceWorldSize(9, 99, 1),
        QueryReplica(ID, 1),
        StopReplica(ID, 1.0, 1),
        KillReplica(ID, 1),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_message_of_an_older_epoch_is_refused_and_changes_nothing(message):
    replica = running_replica(epoch=2)
    assert replica.receive(message, 5.0) == ()
    assert replica.refused == 1
    assert (replica.rank, replica.world_size, replica.draining, replica.epoch) == (ranks(3), 4, False, 2)


def test_a_query_makes_it_adopt_the_epoch_before_it_answers():
    replica = running_replica(epoch=1)
    report = report_of(replica, epoch=5)
    assert report.epoch == 5
    assert replica.receive(reconfigure(rank=0, revision=99, epoch=4), 6.0) == ()
    assert replica.rank == ranks(3)


def test_it_never_goes_back_to_an_older_revision():
    replica = running_replica()
    replica.receive(reconfigure(rank=1, revision=30), 3.0)
    replica.user_code_ended(4.0)
    assert replica.receive(reconfigure(rank=2, revision=25), 5.0) == ()
    assert replica.rank == ranks(1)


def test_a_newer_epoch_counts_for_more_than_a_higher_revision():
    replica = running_replica()
    replica.receive(reconfigure(rank=1, revision=5, epoch=2), 3.0)
    assert replica.rank == ranks(1)


def test_a_repeated_command_runs_user_code_once_and_is_acknowledged_again():
    replica = running_replica()
    command = reconfigure(rank=1, revision=21)
    assert replica.receive(command, 3.0) == (RunUserCode(starting=False, command=ANY),)
    assert replica.receive(command, 3.5) == ()  # the answer comes when it is done
    replica.user_code_ended(4.0)
    assert replica.receive(command, 5.0) == (ReplicaReconfigured(replica_id=ID, revision=21, at=5.0),)


def test_a_repeated_initialize_is_acknowledged_again_with_ready():
    replica = running_replica()
    assert replica.receive(initialize(rank=3), 5.0) == (ReplicaReady(replica_id=ID, at=5.0),)


def test_a_query_during_start_up_is_answered_with_the_rank_and_not_ready():
    replica = new_replica()
    replica.receive(initialize(rank=3), 1.0)
    report = report_of(replica)
    assert report.rank == ranks(3)
    assert not report.ready


def test_a_query_waits_until_no_rank_change_is_running():
    replica = running_replica()
    replica.receive(reconfigure(rank=1, revision=21), 3.0)
    assert replica.receive(QueryReplica(ID, 2), 3.5) == ()
    acknowledgement, report = replica.user_code_ended(4.0)
    assert acknowledgement == ReplicaReconfigured(replica_id=ID, revision=21, at=4.0)
    assert isinstance(report, ReplicaReported)
    assert (report.rank, report.epoch) == (ranks(1), 2)


def test_of_several_changes_during_one_only_the_newest_is_carried_out_after_it():
    replica = running_replica()
    replica.receive(reconfigure(rank=1, revision=21), 3.0)
    assert replica.receive(reconfigure(rank=2, revision=22), 3.1) == ()
    assert replica.receive(reconfigure(rank=0, revision=23), 3.2) == ()
    assert replica.rank == ranks(0)
    first, again = replica.user_code_ended(4.0)
    assert first == ReplicaReconfigured(replica_id=ID, revision=21, at=4.0)
    assert again == RunUserCode(starting=False, command=ANY)
    assert replica.user_code_ended(5.0) == (ReplicaReconfigured(replica_id=ID, revision=23, at=5.0),)


def test_a_draining_replica_answers_a_query_and_says_so():
    replica = running_replica()
    assert replica.receive(StopReplica(ID, 20.0, 1), 3.0) == (Drain(20.0),)
    report = report_of(replica)
    assert report.draining
    assert report.rank == ranks(3)


def test_a_repeated_stop_does_not_drain_twice():
    replica = running_replica()
    replica.receive(StopReplica(ID, 20.0, 1), 3.0)
    assert replica.receive(StopReplica(ID, 20.0, 1), 4.0) == ()


def test_a_kill_ends_it_at_once():
    assert running_replica().receive(KillReplica(ID, 1), 3.0) == (End(),)


def test_of_two_world_sizes_it_keeps_the_newer_whichever_comes_first():
    replica = running_replica()
    replica.receive(AnnounceWorldSize(8, 40, 1), 3.0)
    replica.receive(AnnounceWorldSize(6, 30, 1), 3.1)
    assert replica.world_size == 8


def test_a_newer_announcement_does_not_hide_a_rank_that_was_sent_before_it():
    replica = new_replica()
    replica.receive(AnnounceWorldSize(8, 40, 1), 1.0)
    replica.receive(initialize(rank=3, world_size=4, revision=10), 1.1)
    assert replica.rank == ranks(3)
    assert replica.world_size == 8


def test_a_reconfigure_that_overtakes_the_initialize_is_left_to_be_repeated():
    replica = new_replica()
    assert replica.receive(reconfigure(rank=1, revision=20), 1.0) == ()
    assert replica.rank is None


def test_a_failed_reconfigure_is_answered_with_its_failure_each_time_it_is_repeated():
    replica = running_replica()
    assert replica.receive(reconfigure(rank=1), 3.0) == (RunUserCode(starting=False, command=ANY),)
    failed = ReplicaReconfigureFailed(replica_id=ID, revision=20, reason="no memory", at=4.0)
    assert replica.user_code_ended(4.0, "no memory") == (failed,)
    assert replica.receive(reconfigure(rank=1), 5.0) == (
        ReplicaReconfigureFailed(replica_id=ID, revision=20, reason="no memory", at=5.0),
    )
    assert replica.rank == ranks(1)


def test_a_reconfigure_after_a_failed_one_is_acknowledged():
    replica = running_replica()
    replica.receive(reconfigure(rank=1), 3.0)
    replica.user_code_ended(4.0, "no memory")
    replica.receive(reconfigure(rank=2, revision=21), 5.0)
    assert replica.user_code_ended(6.0) == (ReplicaReconfigured(replica_id=ID, revision=21, at=6.0),)


def test_a_failed_start_is_told_and_leaves_the_replica_not_ready():
    replica = new_replica()
    replica.receive(initialize(), 1.0)
    assert replica.user_code_ended(2.0, "no weights") == (ReplicaStartFailed(replica_id=ID, reason="no weights", at=2.0),)
    assert not replica.ready


def test_a_change_that_comes_after_a_failed_start_has_the_same_answer():
    replica = new_replica()
    replica.receive(initialize(), 1.0)
    replica.user_code_ended(2.0, "no weights")
    failed = ReplicaStartFailed(replica_id=ID, reason="no weights", at=3.0)
    assert replica.receive(initialize(), 3.0) == (failed,)
    assert replica.receive(initialize(revision=11, epoch=2), 3.0) == (failed,)
    assert (replica.epoch, replica.ready, replica.refused) == (2, False, 0)


def test_a_query_during_start_up_waits_for_a_change_that_waits_for_the_start_up():
    replica = new_replica()
    replica.receive(initialize(), 1.0)
    assert replica.receive(reconfigure(rank=1), 2.0) == ()
    assert replica.receive(QueryReplica(ID, 1), 3.0) == ()
    assert replica.user_code_ended(4.0) == (ReplicaReady(replica_id=ID, at=4.0), RunUserCode(starting=False, command=ANY))
    acknowledgement, report = replica.user_code_ended(5.0)
    assert acknowledgement == ReplicaReconfigured(replica_id=ID, revision=20, at=5.0)
    assert (report.rank, report.ready) == (ranks(1), True)


def test_a_query_is_answered_once():
    replica = running_replica()
    replica.receive(reconfigure(rank=1, revision=21), 3.0)
    replica.receive(QueryReplica(ID, 1), 3.5)
    assert len(replica.user_code_ended(4.0)) == 2
    replica.receive(reconfigure(rank=2, revision=22), 5.0)
    assert replica.user_code_ended(6.0) == (ReplicaReconfigured(replica_id=ID, revision=22, at=6.0),)


def test_the_failure_of_a_change_is_no_failure_of_the_next():
    replica = running_replica()
    replica.receive(reconfigure(rank=1), 3.0)
    replica.user_code_ended(4.0, "no memory")
    assert replica.failure == "no memory"
    replica.receive(reconfigure(rank=2, revision=21), 5.0)
    assert replica.failure is None


def test_of_a_change_that_is_not_carried_out_its_sender_can_learn_so():
    running = running_replica().value
    first, second, third = (reconfigure(rank=rank, revision=20 + rank) for rank in (0, 1, 2))
    running, _ = change(running, first)
    running, reactions = change(running, second)
    assert reactions == ()
    running, reactions = change(running, third)
    assert reactions == (Overtaken(second),)
    assert change(running, second)[1] == (Overtaken(second),)
