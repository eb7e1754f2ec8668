"""A process that may hold tenures: one at a time, none twice, and nothing of an old one reaches a new one."""

from rankcore.commands import AnnounceWorldSize, InitializeReplica, KillReplica, QueryReplica, ReconfigureReplica, StartReplica
from rankcore.events import ReplicaMissing, ReplicaReady, ReplicaStartFailed
from rankcore.replica.messages import worker_receive
from rankcore.replica.replica import End, Refused, RunUserCode
from rankcore.values import ReplicaRank
from tests.replicas import HeldWorker


def start(serial, epoch=1):
    return StartReplica(f"a#{epoch}.{serial}", 0, "1", None, (), epoch)


def change(kind, serial, rank, revision, epoch=1):
    return kind(f"a#{epoch}.{serial}", ReplicaRank(rank, 0, 0), 4, None, None, (epoch << 32) + revision, epoch)


def worker_with(serial, rank):
    worker = HeldWorker("a#0", "n")
    worker.receive(start(serial), 0.0)
    (run,) = worker.receive(change(InitializeReplica, serial, rank, serial), 0.0)
    assert isinstance(run, RunUserCode)
    return worker, run


def test_a_tenure_that_was_denied_is_never_taken():
    worker = HeldWorker("a#0", "n")
    assert worker.receive(QueryReplica("a#1.3", 1), 1.0) == (ReplicaMissing(replica_id="a#1.3", at=1.0),)
    worker.receive(start(3), 2.0)
    assert worker.tenure is None
    worker.receive(start(4), 3.0)
    assert worker.tenure == "a#1.4"


def test_a_start_of_a_replaced_controller_gives_no_tenure():
    worker = HeldWorker("a#0", "n")
    worker.receive(QueryReplica("a#2.0", 2), 1.0)
    worker.receive(StartReplica("a#2.9", 0, "1", None, (), 1), 2.0)
    assert worker.tenure is None


def test_a_message_for_another_tenure_changes_nothing():
    worker, _ = worker_with(3, 0)
    assert worker.receive(change(ReconfigureReplica, 2, 7, 9), 1.0) == ()
    assert worker.rank == ReplicaRank(0, 0, 0)
    assert worker.receive(QueryReplica("a#1.2", 1), 2.0) == (ReplicaMissing(replica_id="a#1.2", at=2.0),)
    assert worker.tenure == "a#1.3"


def test_user_code_of_a_tenure_that_was_left_ends_unheard_in_the_next():
    worker, old = worker_with(3, 0)
    worker.leave()
    worker.receive(start(4), 1.0)
    (new,) = worker.receive(change(InitializeReplica, 4, 1, 9), 1.0)
    assert worker.user_code_ended(old, 2.0, "off the GPU") == ()
    assert worker.user_code_ended(new, 3.0) == (ReplicaReady(replica_id="a#1.4", at=3.0),)


def test_what_is_of_an_older_epoch_is_refused():
    worker, _ = worker_with(3, 0)
    worker.receive(QueryReplica("a#1.3", 2), 1.0)
    assert worker_receive(worker.value, change(ReconfigureReplica, 3, 7, 9), 2.0) == (worker.value, (Refused(2),))


def test_a_worker_takes_its_newest_tenure_only():
    worker = HeldWorker("a#0", "n1")
    assert worker.receive(change(InitializeReplica, 3, 2, 5), 0.0) == (), "its tenure has not come yet"
    worker.receive(start(3), 0.0)
    [run] = worker.receive(change(InitializeReplica, 3, 2, 5), 0.0)
    assert (worker.tenure, worker.rank, worker.world_size) == ("a#1.3", ReplicaRank(2, 0, 0), 4)
    [said] = worker.user_code_ended(run, 1.0)
    assert isinstance(said, ReplicaReady)
    worker.receive(start(2), 0.0)
    assert worker.tenure == "a#1.3"
    worker.leave()
    assert (worker.tenure, worker.rank, worker.world_size) == (None, None, None)
    assert worker.user_code_ended(run, 1.0) == ()
    worker.receive(start(3), 0.0)
    assert worker.tenure is None, "a tenure that was left is not taken again"


def test_a_world_size_that_comes_before_the_tenure_is_kept_for_it():
    worker = HeldWorker("a#0", "n1")
    for revision in (9, 8):
        worker.receive(AnnounceWorldSize(revision, (1 << 32) + revision, 1), 0.0)
    worker.receive(start(0), 0.0)
    worker.receive(change(InitializeReplica, 0, 0, 5), 0.0)
    assert worker.world_size == 9
    for revision in (12, 11):
        worker.receive(AnnounceWorldSize(revision, (1 << 32) + revision, 1), 1.0)
    assert worker.world_size == 12


def test_a_worker_refuses_the_controller_before_and_says_what_it_does_not_know():
    worker = HeldWorker("a#0", "n1")
    [said] = worker.receive(QueryReplica("a#1.3", 2), 0.0)
    assert said == ReplicaMissing(replica_id="a#1.3", at=0.0)
    worker.receive(start(3), 0.0)
    worker.receive(start(3, epoch=2), 0.0)
    assert worker.tenure == "a#2.3"
    [end] = worker.receive(KillReplica("a#2.3", 2), 0.0)
    assert isinstance(end, End)


def test_a_start_that_fails_is_said():
    worker = HeldWorker("a#0", "n1")
    worker.receive(start(0), 0.0)
    [run] = worker.receive(change(InitializeReplica, 0, 0, 5), 0.0)
    [said] = worker.user_code_ended(run, 1.0, "no")
    assert isinstance(said, ReplicaStartFailed)
