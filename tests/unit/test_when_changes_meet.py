"""Two things at once: a downscale during a surge, a recovery's repair that crosses a crash, a failure beside another."""

import pytest

from rankcore import DeploymentStatus, NoteKind, ReplicaRank, ReplicaState
from rankcore.commands import InitializeReplica, KillReplica, ReconfigureReplica, StartReplica, StopReplica
from tests.scripted import Deployment

A, B, C, D = "llm#1.0", "llm#1.1", "llm#1.2", "llm#1.3"


# ---------------------------------------------------------------------------------------------------------------------
# an update with surge, and a downscale or another change beside it


def surging_beyond_the_world(*, placed: bool) -> Deployment:
    """Four become three while version 2 comes in with surge: rank 3 has a successor, and rank 1 is being given up."""
    d = Deployment.running(4, compaction="immediate", max_surge=4, max_unavailable=1)
    d.change(version="2")
    assert [start.rank for start in d.sent(StartReplica)[-4:]] == [0, 1, 2, 3]
    d.place("llm#1.5")
    assert d.draining == [B]
    if placed:
        # C's death takes the last of the budget, so that D is not stopped for the update yet. The successor of B has a place,
        # and that of C has none: they change ranks (V2).
        d.die(C)
        d.acknowledge(D)
        d.place("llm#1.7")
    d.resize(3)
    assert d.draining == [B, "llm#1.6" if placed else "llm#1.5"]
    assert d.state.holder_of(3) == D
    d.forget()
    return d


@pytest.mark.parametrize("placed", [False, True])
def test_a_slot_that_compaction_moves_takes_its_successor_along(placed: bool) -> None:
    """R6, R8: the update of the mover goes on under its new rank."""
    d = surging_beyond_the_world(placed=placed)
    d.stopped(B)
    assert [sent.rank.rank for sent in d.sent(ReconfigureReplica, D)] == [1]
    assert (d.state.holder_of(1), d.state.holder_of(3)) == (D, None)
    assert d.state.replicas["llm#1.7"].slot == 1
    d.settle()
    assert d.ranks == {"llm#1.4": 0, "llm#1.5" if placed else "llm#1.6": 2, "llm#1.7": 1}
    assert d.sent(StopReplica, "llm#1.7") == []


def test_a_successor_that_was_placed_before_its_slot_moved_is_not_waited_for_again() -> None:
    """Section 2.3: its predecessor is stopped as soon as the budget allows, without another word from the successor."""
    d = surging_beyond_the_world(placed=True)
    d.stopped(B)
    d.acknowledge(D)
    assert d.ranks[D] == 1
    assert d.sent(StopReplica, D) == []
    d.ready("llm#1.5")
    assert [stop.replica_id for stop in d.sent(StopReplica)] == [D]


def test_a_successor_that_was_waited_for_too_long_is_not_waited_for_again_when_its_slot_moves() -> None:
    """Section 2.3: it is still not placed, and the update of its slot goes on without it as soon as the budget allows."""
    d = Deployment.running(4, compaction="immediate", max_surge=4, max_unavailable=1, scarcity_after_s=None)
    d.change(version="2")
    d.die(A)
    d.acknowledge(D)
    d.wait(70.0)
    assert d.draining == []  # the budget is used up by A
    d.resize(3, [B])
    d.stopped("llm#1.5")
    d.stopped(B)
    assert (d.state.holder_of(1), d.state.replicas["llm#1.7"].slot) == (D, 1)
    d.acknowledge(C)
    d.acknowledge(D)
    d.place("llm#1.4")
    d.ready("llm#1.4")
    assert d.draining == [D]


def test_a_slot_that_moves_while_it_backs_off_is_tried_again_under_its_new_rank() -> None:
    """Section 2.3, R8: the successor of rank 2 has just failed when compaction moves that slot to rank 0."""
    d = Deployment.running(3, compaction="immediate", max_surge=3, max_unavailable=1)
    d.change(version="2")
    d.start_fails("llm#1.5")
    d.resize(2, [A])
    d.stopped(A)
    assert d.state.holder_of(0) == C
    d.die(C)
    assert d.state.kept_ranks == (0,)
    d.forget()
    d.wait(0.5)
    assert (d.sent(StartReplica), d.state.holder_of(0)) == ([], None)
    d.wait(0.5)
    assert d.state.holder_of(0) == "llm#1.4", "the successor of rank 1, which gets another one (V2)"
    assert [start.rank for start in d.sent(StartReplica)] == [1]


def test_a_second_config_during_a_surge_keeps_the_successors_that_have_its_version() -> None:
    """Section 2.3: the version is what makes a successor; it is initialised with the newest configuration."""
    d = Deployment.running(2, max_surge=1)
    d.change(version="2", user_config={"a": 1})
    assert d.state.replicas[C].version == "2"
    d.forget()
    d.change(user_config={"a": 2})
    assert d.sent(StopReplica) == []
    d.settle()
    assert d.sent(InitializeReplica, C)[0].user_config == {"a": 2}
    assert {replica.config_id for replica in d.state.replicas.values()} == {d.state.spec.config_id}


@pytest.mark.parametrize("target", [1, 2])
def test_naming_a_holder_and_its_successor_gives_up_one_slot_and_not_two(target: int) -> None:
    """R11: the successor goes with its holder, and a downscale by two takes another slot besides."""
    d = Deployment.running(3, max_surge=3)
    d.change(version="2")
    d.forget()
    d.resize(target, [A, D])
    assert d.state.holder_of(0) is None
    assert [d.state.holder_of(1), d.state.holder_of(2)] == [B, C if target == 2 else None]
    d.settle()
    assert sorted(d.ranks.values()) == list(range(target))


def test_a_successor_that_finds_no_node_keeps_the_update_waiting_for_the_start_timeout_only() -> None:
    """Section 2.3: then its predecessor makes room for it."""
    d = Deployment.running(1, max_surge=1, start_timeout_s=30.0)
    d.change(version="2")
    d.wait(29.0)
    assert d.draining == []
    d.wait(2.0)
    assert d.draining == [A]
    assert d.state.replicas[B].state is ReplicaState.REQUESTED
    d.settle()
    assert d.ranks == {B: 0}


def test_a_failed_version_takes_all_its_successors_with_it() -> None:
    """Section 2.3: what ran before keeps running."""
    d = Deployment.running(2, max_surge=2, max_start_failures=1)
    d.change(version="2")
    d.forget()
    d.start_fails(C)
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    assert [stop.replica_id for stop in d.sent(StopReplica)] == [D]
    d.settle()
    assert d.ranks == {A: 0, B: 1}


def test_a_placed_replica_that_waits_for_a_rank_is_replaced_by_a_new_version() -> None:
    """R4, section 2.3: it has no rank below the world size yet, so that it is never initialised with the old version."""
    d = Deployment.running(2)
    d.resize(3)
    d.resize(2, [B])
    d.place(C)
    assert d.state.replicas[C].state is ReplicaState.PLACED
    d.forget()
    d.change(version="2")
    assert d.sent(InitializeReplica) == []
    assert [stop.replica_id for stop in d.sent(StopReplica, C)] == [C]
    d.settle()
    assert sorted(d.ranks.values()) == [0, 1]
    assert {replica.version for replica in d.state.replicas.values()} == {"2"}


# ---------------------------------------------------------------------------------------------------------------------
# a recovery's repair, and something else


def test_a_successor_waits_while_a_loser_still_believes_its_rank() -> None:
    """R3, R10: B reported rank 0 as well, and has not acknowledged rank 1 yet."""
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (0, 0, 1)}, version="1")
    d.report(A)
    d.report(B)
    d.change(version="2", max_surge=2, max_unavailable=1)
    successor = d.sent(StartReplica)[0]
    assert successor.rank == 0
    d.place(successor.replica_id)
    assert d.draining == [A]
    d.stopped(A)
    assert d.state.holder_of(0) == successor.replica_id
    assert d.sent(InitializeReplica) == []
    d.acknowledge(B)
    assert [given.rank.rank for given in d.sent(InitializeReplica)] == [0]
    d.settle()
    assert sorted(d.ranks.values()) == [0, 1]


def test_a_loser_waits_while_another_node_believes_its_nodes_rank() -> None:
    """R3, R10: C leaves node n0 and believes its node rank, which is that of n1 now."""
    d = Deployment.recovered(3, {A: (0, 0, 0), B: (0, 0, 1), C: (1, 0, 0)})
    d.report(A, node_id="n1")
    d.report(B, node_id="n1")
    d.report(C, node_id="n0", draining=True)
    assert d.state.rank_of(B) is None
    assert d.sent(ReconfigureReplica) == []
    d.stopped(C)
    assert [sent.rank for sent in d.sent(ReconfigureReplica, B)] == [ReplicaRank(1, 0, 1)]
    d.settle()
    assert sorted(d.ranks.values()) == [0, 1, 2]


def test_a_newcomer_waits_while_another_node_believes_its_nodes_rank() -> None:
    """R3, R10: its node has the rank in the book, and one that leaves another node believes it too."""
    d = Deployment.recovered(3, {A: (0, 0, 0), C: (1, 0, 0)})
    d.report(A, node_id="n1")
    d.report(C, node_id="n0", draining=True)
    newcomer = d.sent(StartReplica)[0].replica_id
    d.place(newcomer, "n1")
    assert d.sent(InitializeReplica) == []
    d.stopped(C)
    assert d.full(newcomer) == (1, 0, 1)  # V18: it takes the lower rank that C has left


def test_duplicates_on_nodes_of_their_own_get_node_ranks_that_nobody_has() -> None:
    """R3, R10: three nodes report one rank and one node rank; no two are given the same."""
    d = Deployment.recovered(3, {A: (0, 0, 0), B: (0, 0, 0), C: (0, 0, 0)}, nodes=("n0", "n1", "n2"))
    for replica_id in (A, B, C):
        d.report(replica_id)
    assert sorted(sent.rank.node_rank for sent in d.sent(ReconfigureReplica)) == [1, 2]
    d.settle()
    assert sorted(d.ranks.values()) == [0, 1, 2]


def test_nodes_whose_replicas_believe_each_others_rank_are_told_apart() -> None:
    """R3, R10: each waits for the other's number; one of them takes a number that nobody believes."""
    d = Deployment.recovered(4, {A: (0, 0, 0), B: (1, 1, 1), C: (2, 1, 0), D: (3, 0, 1)})
    for replica_id, node_id in ((A, "n0"), (B, "n0"), (C, "n1"), (D, "n1")):
        d.report(replica_id, node_id=node_id)
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    ranks = {(d.state.replicas[each].node_id, d.state.ranks[each].node_rank) for each in (A, B, C, D)}
    assert sorted(node_rank for _, node_rank in ranks) == [0, 1]


def test_a_node_that_only_leavers_are_left_on_claims_no_node_rank() -> None:
    """R10: it is not moved to another one for the little time that it has."""
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (1, 0, 0)})
    d.report(A, node_id="n0")
    d.report(B, node_id="n1", draining=True)
    assert d.sent(ReconfigureReplica) == []
    d.settle()
    assert sorted(d.ranks.values()) == [0, 1]


def waiting_loser(*, ready: bool = True) -> Deployment:
    """B reported A's rank; the only other one is C's, which is leaving and has it until it has stopped (R7)."""
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (0, 0, 1), C: (1, 0, 2)}, user_config={"a": 1})
    d.report(A)
    d.report(B, ready=ready)
    d.report(C, draining=True)
    assert d.state.rank_of(B) is None
    assert d.sent(ReconfigureReplica) == []
    return d


def test_a_loser_takes_the_rank_of_one_that_leaves_once_it_is_gone() -> None:
    """R7, R10."""
    d = waiting_loser()
    d.stopped(C)
    assert [sent.rank.rank for sent in d.sent(ReconfigureReplica, B)] == [1]
    d.settle()
    assert d.ranks == {A: 0, B: 1}


def test_a_loser_that_waits_gets_a_new_user_config_with_its_rank_at_the_latest() -> None:
    """R10, R12."""
    d = waiting_loser()
    d.change(user_config={"a": 2})
    d.settle()
    assert d.ranks == {A: 0, B: 1}
    assert {replica.config_id for replica in d.state.replicas.values()} == {d.state.spec.config_id}
    assert d.processes[B].config_id == d.state.spec.config_id


def test_the_death_of_a_loser_that_starts_is_counted_against_no_slot() -> None:
    """Section 2.3: failures are counted per slot, and it has none."""
    d = waiting_loser(ready=False)
    assert d.state.replicas[B].state is ReplicaState.STARTING
    d.die(B)
    assert d.noted(NoteKind.START_FAILED) == []
    d.settle()
    assert sorted(d.ranks.values()) == [0, 1]


@pytest.mark.parametrize("acknowledges_first", [False, True])
def test_a_starting_loser_is_ready_and_has_moved_in_whichever_order_it_says_so(acknowledges_first: bool) -> None:
    """R10: being ready is no acknowledgement of the move."""
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (0, 0, 1)})
    d.report(A)
    d.report(B, ready=False)
    assert [sent.rank.rank for sent in d.sent(ReconfigureReplica, B)] == [1]
    if acknowledges_first:
        d.acknowledge(B)
        assert d.state.replicas[B].state is ReplicaState.STARTING
        d.ready(B)
    else:
        d.ready(B)
        assert d.state.replicas[B].state is ReplicaState.RECONFIGURING
        assert d.state.rank_of(B) is None
        d.acknowledge(B)
    assert d.state.replicas[B].state is ReplicaState.RUNNING
    assert d.ranks == {A: 0, B: 1}
    assert d.routes == {A, B}


def test_a_version_is_not_given_up_while_reports_are_outstanding() -> None:
    """R10, section 2.3: one that has not reported yet may run it, which would prove it."""
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (1, 0, 1)}, max_start_failures=1)
    d.report(A, ready=False)
    d.die(A)
    assert [note.replica_id for note in d.noted(NoteKind.START_FAILED)] == [A]
    assert d.status is DeploymentStatus.RECOVERING
    d.report(B)
    assert d.state.proven == d.state.spec
    d.wait(10.0)
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY


def test_a_silent_suspect_is_told_to_die_once_and_then_reminded() -> None:
    """Section 2.4: it was killed as unhealthy; that it has not reported either brings no second reason."""
    d = Deployment.recovered(1, {A: (0, 0, 0)}, health_check_timeout_s=30.0)
    d.unhealthy(A)
    d.wait(40.0)
    assert len(d.noted(NoteKind.KILL_CHOSEN, A)) == 1
    assert set(d.sent(KillReplica, A)) == {KillReplica(A, 2)}
    d.stopped(A)
    d.settle()
    assert sorted(d.ranks.values()) == [0]


def test_a_misplaced_replica_that_dies_leaves_nothing_to_be_put_right() -> None:
    """R10: B stays with its own node rank until C has given up that of its node, and dies before."""
    d = Deployment.recovered(3, {A: (0, 1, 0), C: (1, 1, 0), B: (2, 0, 1)})
    for replica_id, node_id in ((A, "n0"), (C, "n1"), (B, "n0")):
        d.report(replica_id, node_id=node_id)
    assert d.sent(ReconfigureReplica, B) == []
    assert d.state.tables.recovery.misplaced
    d.die(B)
    assert not d.state.tables.recovery.misplaced
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert sorted(d.ranks.values()) == [0, 1, 2]


def test_a_suspect_that_then_reports_no_rank_is_still_replaced_once_it_is_gone() -> None:
    """R10, section 2.3: it was told to die already, and is not told again."""
    d = Deployment.recovered(2, {A: None, B: (0, 0, 0)})
    d.unhealthy(A)
    d.forget()
    d.report(A)
    assert d.sent(KillReplica) == []
    assert d.noted(NoteKind.KILL_CHOSEN) == []
    d.report(B)
    assert d.sent(StartReplica) == []
    d.stopped(A)
    assert [start.rank for start in d.sent(StartReplica)] == [1]


def test_a_replica_that_drains_already_is_not_told_again_when_all_is_deleted() -> None:
    """Section 2.3: one that gives its rank back, and one that was to be replaced and is not any more."""
    d = Deployment.running(3)
    d.resize(2, [A])
    d.stop_by_name(B)
    d.forget()
    d.delete()
    assert [stop.replica_id for stop in d.sent(StopReplica)] == [C]
    assert [note.replica_id for note in d.noted(NoteKind.SLOT_GIVEN_UP)] == [B]
    d.settle()
    assert d.status is DeploymentStatus.DELETED
    assert d.sent(StartReplica) == []
