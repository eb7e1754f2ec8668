"""S1 to S8: each rank on bundles of a placement group that somebody else owns."""

import attrs
import pytest

from rankcore import DeploymentSpec, DeploymentStatus, NoteKind, ReplicaState, StaticPlacement, deploy, plan, step
from rankcore.commands import InitializeReplica, KillReplica, QueryReplica, ReconfigureReplica, StartReplica, StopReplica
from rankcore.events import BundleLost, BundleRestored
from tests.scripted import Deployment

A, B, C, D, E = "llm#1.0", "llm#1.1", "llm#1.2", "llm#1.3", "llm#1.4"
PAIRS = StaticPlacement({0: [0, 1], 1: [2, 3]}, 4, group="pg")
SINGLES = StaticPlacement({0: [0], 1: [1], 2: [2]}, 8, group="pg")
NODES = {0: "n0", 1: "n0", 2: "n1", 3: "n1"}


def running(placement: StaticPlacement = PAIRS, **more) -> Deployment:
    d = Deployment(None, placement=placement, **more)
    d.bundle_nodes = NODES
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    d.forget()
    return d


def moved(d: Deployment, bundles: dict[int, list[int]], count: int = 8, group: str = "pg", **more) -> None:
    """The user maps ranks to other bundles."""
    d.change(placement=StaticPlacement(bundles, count, group=group), target_replicas=None, **more)


def places(d: Deployment) -> dict[int, tuple[int, ...]]:
    """Which bundles the live replica of each rank stands on."""
    return {r.slot: r.bundles for r in d.state.replicas.values() if r.slot is not None and r.state is not ReplicaState.FAILED}


# ---------------------------------------------------------------------------------------------------------------------
# the rows of the RFC's table


def test_replica_count_is_fixed_to_the_length_of_the_mapping() -> None:
    """S1."""
    d = running()
    assert d.state.world_size == len(d.state.replicas) == 2


def test_replica_actor_scheduling_rank_n_is_started_on_the_first_of_its_bundles() -> None:
    """S2: the first is where the process goes; the command has the whole list, and says of which group."""
    begun = deploy(DeploymentSpec(name="llm", placement=attrs.evolve(PAIRS, group_id="4f2a")))
    starts = [command for command in begun.commands if isinstance(command, StartReplica)]
    assert [(each.rank, each.bundles, each.group_id, each.node_id) for each in starts] == [
        (0, (0, 1), "4f2a", None),
        (1, (2, 3), "4f2a", None),
    ]


def test_a_deployment_that_is_not_placed_statically_has_no_bundles() -> None:
    d = Deployment.running(2)
    assert [(each.bundles, each.group_id) for each in d.sent(StartReplica)] == [((), None), ((), None)]
    assert d.state.message == ""


def test_replica_failure_restarts_it_on_the_same_bundles_with_the_same_rank() -> None:
    """S3."""
    d = running()
    d.die(B)
    (start,) = d.sent(StartReplica)
    assert (start.rank, start.bundles) == (1, (2, 3))
    d.settle()
    assert d.ranks == {A: 0, C: 1}
    assert d.status is DeploymentStatus.HEALTHY


def test_two_replicas_that_fail_in_any_order_come_back_each_on_its_own_bundles() -> None:
    """S3, whatever starts in between."""
    d = running()
    d.die(B)
    d.die(A)
    d.start_fails(C)
    d.wait(2)
    d.settle()
    assert places(d) == {0: (0, 1), 1: (2, 3)}
    assert d.status is DeploymentStatus.HEALTHY


def test_bundle_failure_puts_the_replica_in_failed_until_the_bundle_is_restored() -> None:
    """S5: it is killed, and nothing is started for its rank anywhere."""
    d = running()
    d.lose_bundles(0, 1, reason="node n0 is down")
    assert [kill.replica_id for kill in d.sent(KillReplica)] == [A]
    d.settle()
    failed = d.state.replicas[A]
    assert (failed.state, failed.slot, failed.bundles, failed.node_id) == (ReplicaState.FAILED, 0, (0, 1), None)
    assert d.sent(StartReplica) == []
    assert d.status is DeploymentStatus.UNHEALTHY
    assert d.state.failed_ranks == (0,)
    assert d.state.message == "placement group 'pg': rank 0 needs bundles 0, 1, lost: node n0 is down"
    d.wait(3600)
    assert d.sent(StartReplica) == []
    d.wait(1)
    d.restore_bundles(0)
    assert d.state.replicas[A].state is ReplicaState.FAILED, "its other bundle is still lost"
    d.restore_bundles(1)
    (start,) = d.sent(StartReplica)
    assert (start.replica_id, start.rank, start.bundles) == (C, 0, (0, 1))
    assert A not in d.state.replicas
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert d.state.message == ""


def test_node_failure_puts_its_replicas_in_failed_and_nobody_else() -> None:
    """S5: the node of a replica is that of its first bundle."""
    d = running()
    d.lose("n1", at=1)
    assert d.state.replicas[B].state is ReplicaState.FAILED
    assert d.state.replicas[A].state is ReplicaState.RUNNING
    assert d.sent(StartReplica) == d.sent(KillReplica) == []
    assert d.state.message == "placement group 'pg': rank 1 needs bundle 2, lost: node n1 was lost"
    d.restore_bundles(2, 3, at=2)
    d.settle()
    assert d.ranks == {A: 0, C: 1}


def test_a_lost_bundle_of_child_actors_fails_the_replica_too() -> None:
    """S5: rank 1 runs on bundle 2, and its child actors on 3."""
    d = running()
    d.lose_bundles(3)
    assert [kill.replica_id for kill in d.sent(KillReplica)] == [B]
    d.settle()
    assert d.state.replicas[B].state is ReplicaState.FAILED


def test_a_group_that_is_removed_fails_every_replica_and_says_why() -> None:
    """S5, S8: all of its bundles are lost; the status shows the reason."""
    placement = StaticPlacement({rank: [rank] for rank in range(6)}, 6, group="pg")
    d = running(placement)
    d.lose_bundles(*range(6), reason="the placement group was removed")
    d.settle()
    assert d.count(ReplicaState.FAILED) == 6
    assert d.status is DeploymentStatus.UNHEALTHY
    assert d.state.message == (
        "placement group 'pg': rank 0 needs bundle 0, lost: the placement group was removed; "
        "rank 1 needs bundle 1, lost: the placement group was removed; "
        "rank 2 needs bundle 2, lost: the placement group was removed; "
        "rank 3 needs bundle 3, lost: the placement group was removed; and 2 more ranks"
    )
    moved(d, {rank: [rank] for rank in range(6)}, group="another")
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert {r.group_id for r in d.state.replicas.values()} == {"another"}


def test_other_features_are_unchanged_an_update_goes_slot_by_slot() -> None:
    d = running()
    d.change(version="2", user_config={"a": 1})
    assert [stop.replica_id for stop in d.sent(StopReplica)] == [A]
    d.settle()
    assert {r.version for r in d.state.replicas.values()} == {"2"}
    assert places(d) == {0: (0, 1), 1: (2, 3)}


def test_other_features_are_unchanged_a_user_config_is_sent_in_place() -> None:
    d = running()
    d.change(user_config={"a": 1})
    d.settle()
    assert [command.rank.rank for command in d.sent(ReconfigureReplica)] == [0, 1]
    assert d.status is DeploymentStatus.HEALTHY


def test_other_features_are_unchanged_failed_starts_back_off_and_give_up() -> None:
    d = Deployment(None, placement=PAIRS)
    for _ in range(3):
        replica_id = d.state.holder_of(0)
        d.place(replica_id)
        d.start_fails(replica_id)
        d.wait(70)
    assert d.status is DeploymentStatus.DEPLOY_FAILED


def test_other_features_are_unchanged_deleting_takes_failed_replicas_along() -> None:
    d = running()
    d.lose_bundles(0)
    d.stopped(A)
    d.delete()
    assert A not in d.state.replicas
    d.settle()
    assert d.status is DeploymentStatus.DELETED


# ---------------------------------------------------------------------------------------------------------------------
# S4: nobody shares a bundle


def test_a_start_waits_until_the_last_user_of_its_bundles_has_ended() -> None:
    """S4: bundles change hands between ranks, and the old one drains for a while."""
    d = running(SINGLES, max_unavailable=3)
    moved(d, {0: [1], 1: [0], 2: [2]})
    assert [stop.replica_id for stop in d.sent(StopReplica)] == [A]
    d.stopped(A)
    assert d.sent(StartReplica) == []
    assert [stop.replica_id for stop in d.sent(StopReplica)] == [A, B]
    d.stopped(B)
    assert [(start.rank, start.bundles) for start in d.sent(StartReplica)] == [(0, (1,)), (1, (0,))]
    assert [note.because for note in d.noted(NoteKind.WAITING)] == [f"{B} still has bundle 1"]


def test_a_replica_that_drains_for_a_downscale_keeps_its_bundles() -> None:
    d = running(SINGLES)
    moved(d, {0: [0], 1: [1]})
    moved(d, {0: [0], 1: [1], 2: [3], 3: [2]})
    assert [(start.rank, start.bundles) for start in d.sent(StartReplica)] == []
    d.stopped(C)
    assert sorted((start.rank, start.bundles) for start in d.sent(StartReplica)) == [(2, (3,)), (3, (2,))]


def test_an_unhealthy_replica_has_to_be_gone_before_its_bundles_are_used_again() -> None:
    d = running()
    d.unhealthy(A)
    assert d.sent(StartReplica) == []
    d.stopped(A)
    assert [start.bundles for start in d.sent(StartReplica)] == [(0, 1)]


# ---------------------------------------------------------------------------------------------------------------------
# S5: losses and returns


def test_a_loss_that_crosses_the_death_it_caused_fails_the_replacement() -> None:
    """The process dies first, as far as anybody knows; its replacement is on its way when the loss is heard of."""
    d = running()
    d.die(A)
    d.lose_bundles(0)
    assert [kill.replica_id for kill in d.sent(KillReplica)] == [C]
    d.settle()
    assert d.state.replicas[C].state is ReplicaState.FAILED
    d.restore_bundles(0)
    d.settle()
    assert d.ranks == {B: 1, D: 0}


def test_a_bundle_that_is_back_before_its_replica_has_ended_fails_nobody() -> None:
    d = running()
    d.lose_bundles(0)
    d.restore_bundles(0)
    d.stopped(A)
    assert [start.bundles for start in d.sent(StartReplica)] == [(0, 1)]
    assert d.noted(NoteKind.REPLICA_FAILED) == []


def test_a_return_that_overtakes_the_loss_counts() -> None:
    d = running()
    d.restore_bundles(0, at=7)
    d.lose_bundles(0, at=5)
    assert d.sent(KillReplica) == []
    assert d.state.failed_ranks == ()
    d.lose_bundles(0, at=7)
    assert d.state.failed_ranks == (), "of a loss and a return at one moment the return is the later"
    d.lose_bundles(0, at=8)
    assert d.state.failed_ranks == (0,)


def test_repeated_and_late_news_of_bundles_changes_nothing_but_leaves_a_note() -> None:
    d = running()
    d.lose_bundles(0, at=5)
    d.stopped(A)
    before = d.state
    for again in (BundleLost(bundles=[0], at=5.0), BundleRestored(bundles=[0], at=4.0)):
        result = step(before, again)
        assert result.state == before
        assert result.commands == ()
        assert [note.kind for note in result.notes] == [NoteKind.LATE]
    d.restore_bundles(0, at=6)
    d.forget()
    d.restore_bundles(0, at=6)
    d.restore_bundles(0, at=9)
    d.lose_bundles(0, at=8)
    assert {note.kind for note in d.notes} == {NoteKind.LATE}
    assert d.commands == []


def test_news_of_another_group_is_late() -> None:
    """What is told of the group that a deployment has left must not fail it in its new one."""
    d = running()
    d.lose_bundles(0, group_id="former")
    assert d.state.failed_ranks == ()
    assert [note.kind for note in d.notes] == [NoteKind.LATE]
    d.lose_bundles(0, group_id="pg")
    assert d.state.failed_ranks == (0,)
    d.restore_bundles(0, group_id="former", at=9)
    assert d.state.failed_ranks == (0,)


def test_news_from_before_the_controller_is_late() -> None:
    """What is lost is told anew when a controller begins; older news may have been overtaken by a return."""
    d = running()
    d.wait(10)
    d.restart(at=20)
    d.lose_bundles(0, at=19)
    assert d.state.failed_ranks == ()
    d.lose_bundles(0, at=20)
    assert d.state.failed_ranks == (0,)


def left_and_named_again() -> Deployment:
    """Its group is left for another at 10 s, and named again at 20 s, before anybody has moved."""
    d = running()
    moved(d, {0: [0, 1], 1: [2, 3]}, 4, "other", at=10)
    moved(d, {0: [0, 1], 1: [2, 3]}, 4, "pg", at=20)
    return d


def test_news_from_before_a_group_was_named_again_is_late() -> None:
    """What is lost is told anew when a group is named; of a return in the meantime nobody was told."""
    d = left_and_named_again()
    d.lose_bundles(0, group_id="pg", at=9)
    d.lose_bundles(0, group_id="pg", at=19)
    assert d.state.failed_ranks == ()
    assert d.notes[-1].kind is NoteKind.LATE
    d.lose_bundles(0, group_id="pg", at=20)
    assert d.state.failed_ranks == (0,)


def test_a_node_that_was_lost_before_its_group_was_named_again_fails_no_rank_for_ever() -> None:
    d = left_and_named_again()
    d.lose("n0", at=15)
    assert d.state.failed_ranks == ()
    assert A not in d.state.replicas
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    d.lose("n0", at=d.now)
    assert d.state.failed_ranks == (0,)


def test_a_replica_that_was_placed_on_a_node_already_lost_fails() -> None:
    """The placement and the loss of the node overtook each other."""
    d = Deployment(None, placement=PAIRS)
    d.lose("n0", at=5)
    d.place(A, "n0", at=4)
    del d.processes[A]
    assert d.state.replicas[A].state is ReplicaState.FAILED
    d.restore_bundles(0, at=6)
    assert d.state.holder_of(0) == C


def test_a_node_that_is_lost_while_bundles_change_hands_on_it_fails_everybody_there() -> None:
    """Rank 0 is to move to where rank 1 stands: what is lost with the one is the place of the other."""
    d = running(SINGLES, max_unavailable=1)
    d.lose_bundles(5)
    moved(d, {0: [1], 1: [5], 2: [2]})
    assert d.sent(StopReplica) == []
    d.forget()
    for replica_id in (A, B):
        assert d.state.replicas[replica_id].node_id == "n0"
    d.lose("n0", at=1)
    assert d.state.failed_ranks == (0, 1)
    assert d.state.replicas[A].state is d.state.replicas[B].state is ReplicaState.FAILED


def test_a_node_that_came_back_before_its_loss_was_heard_of_fails_nobody() -> None:
    d = running()
    d.restore_bundles(2, at=7)
    d.lose("n1", at=5)
    assert [start.bundles for start in d.sent(StartReplica)] == [(2, 3)]


@pytest.mark.parametrize("news_of_the_return", ["before", "after"])
def test_a_bundle_that_came_back_elsewhere_is_not_lost_with_the_node_that_it_was_on(news_of_the_return) -> None:
    """The replica that stood on it has not ended yet when the node is lost, or its end is not known."""
    d = running()
    placed_at = d.state.replicas[A].seen_at
    d.lose_bundles(0, at=placed_at + 1)
    if news_of_the_return == "before":
        d.restore_bundles(0, at=placed_at + 2)
    d.forget()
    d.lose("n0", at=placed_at + 3)
    if news_of_the_return == "after":
        assert d.state.failed_ranks == (0,)
        d.restore_bundles(0, at=placed_at + 2)
    assert d.state.failed_ranks == ()
    assert [start.bundles for start in d.sent(StartReplica)] == [(0, 1)]


def test_a_bundle_of_no_rank_may_come_and_go() -> None:
    d = running(SINGLES)
    d.lose_bundles(7)
    assert d.status is DeploymentStatus.HEALTHY
    moved(d, {0: [0], 1: [1], 2: [7]})
    assert d.state.failed_ranks == (2,)
    assert d.sent(StopReplica) == [], "nobody is stopped for a place that is lost"
    assert d.status is DeploymentStatus.UNHEALTHY
    d.restore_bundles(7)
    d.settle()
    assert places(d) == {0: (0,), 1: (1,), 2: (7,)}


def test_a_deployment_that_begins_on_lost_bundles_starts_what_it_can() -> None:
    d = Deployment(None, placement=PAIRS)
    d.lose_bundles(1)
    d.settle()
    assert d.ranks == {B: 1}
    assert d.status is DeploymentStatus.UNHEALTHY
    assert d.state.replicas[A].state is ReplicaState.FAILED


def test_a_rank_that_is_added_on_a_lost_bundle_waits() -> None:
    d = running(SINGLES)
    d.lose_bundles(5)
    moved(d, {0: [0], 1: [1], 2: [2], 3: [5]})
    assert d.sent(StartReplica) == []
    assert d.state.kept_ranks == (3,)
    assert d.status is DeploymentStatus.UNHEALTHY
    d.restore_bundles(5)
    assert [start.bundles for start in d.sent(StartReplica)] == [(5,)]


def test_another_mapping_lets_a_failed_replica_be_replaced() -> None:
    """S5: until the bundle is back, or another spec."""
    d = running(SINGLES)
    d.lose_bundles(0)
    d.stopped(A)
    moved(d, {0: [6], 1: [1], 2: [2]})
    assert A not in d.state.replicas
    assert [(start.rank, start.bundles) for start in d.sent(StartReplica)] == [(0, (6,))]
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY


def test_another_version_does_not_let_a_failed_replica_be_replaced() -> None:
    """Its bundle is lost for that one too; and while it is out, the update has to keep its budget."""
    d = running()
    d.lose_bundles(0)
    d.stopped(A)
    d.change(version="2")
    assert d.sent(StartReplica) == d.sent(StopReplica) == []
    assert d.state.replicas[A].state is ReplicaState.FAILED
    d.restore_bundles(0)
    d.settle()
    assert {r.version for r in d.state.replicas.values()} == {"2"}


def test_a_mapping_that_only_changes_others_keeps_a_replica_failed() -> None:
    d = running(SINGLES)
    d.lose_bundles(0)
    d.stopped(A)
    moved(d, {0: [0], 1: [1], 2: [5]})
    assert d.state.replicas[A].state is ReplicaState.FAILED


def test_late_news_of_a_failed_replica_changes_nothing() -> None:
    d = running()
    d.lose_bundles(0)
    d.stopped(A)
    d.forget()
    d.die(A)
    d.ready(A)
    d.place(A)
    d.unhealthy(A)
    d.stop_by_name(A)
    assert d.commands == []
    assert {note.kind for note in d.notes} == {NoteKind.LATE}
    assert d.state.replicas[A].state is ReplicaState.FAILED


def test_a_replica_that_drains_for_an_update_when_its_bundle_goes_ends_up_failed() -> None:
    d = running()
    d.change(version="2")
    d.lose_bundles(0)
    assert d.sent(KillReplica) == []
    d.stopped(A)
    assert d.state.replicas[A].state is ReplicaState.FAILED


def test_news_of_bundles_without_a_static_placement_waits_for_one() -> None:
    d = running(SINGLES)
    d.change(placement=None)
    d.settle()
    d.lose_bundles(0)
    assert d.status is DeploymentStatus.HEALTHY
    d.change(placement=SINGLES, target_replicas=None)
    assert d.state.failed_ranks == (0,)


# ---------------------------------------------------------------------------------------------------------------------
# S6: nobody moves


def test_compaction_never_runs() -> None:
    """S6: a bundle comes back on another node, which leaves gaps in local and node ranks; nobody is told others."""
    d = running(SINGLES)
    d.bundle_nodes = {0: "n9", 1: "n1", 2: "n1"}
    before = {replica_id: d.full(replica_id) for replica_id in (B, C)}
    d.lose_bundles(0)
    d.settle()
    d.restore_bundles(0)
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert {replica_id: d.full(replica_id) for replica_id in (B, C)} == before
    assert d.sent(ReconfigureReplica) == []


def test_a_smaller_mapping_stops_the_highest_ranks_and_moves_nobody() -> None:
    """S1, S6: whatever the policy says, and whoever is named."""
    d = running(SINGLES, victims="newest")
    smaller = StaticPlacement({0: [0], 1: [1]}, 8, group="pg")
    d.send_spec(attrs.evolve(d.state.spec, placement=smaller, target_replicas=None), stop_first=(A,))
    assert [stop.replica_id for stop in d.sent(StopReplica)] == [C]
    d.settle()
    assert d.ranks == {A: 0, B: 1}
    assert d.sent(ReconfigureReplica) == []


# ---------------------------------------------------------------------------------------------------------------------
# S7: another mapping


def test_another_mapping_replaces_in_place_only_those_whose_bundles_change() -> None:
    d = running(SINGLES)
    moved(d, {0: [0], 1: [4], 2: [2]})
    assert d.status is DeploymentStatus.UPDATING
    assert [stop.replica_id for stop in d.sent(StopReplica)] == [B]
    assert d.sent(StartReplica) == []
    d.settle()
    assert d.ranks == {A: 0, C: 2, D: 1}
    assert places(d) == {0: (0,), 1: (4,), 2: (2,)}
    assert d.status is DeploymentStatus.HEALTHY


def test_a_move_keeps_the_budget_and_begins_where_the_bundles_are_free() -> None:
    """Everybody moves one on: only the last one's place is free at first."""
    d = running(SINGLES, max_unavailable=1)
    moved(d, {0: [1], 1: [2], 2: [3]})
    order = []
    while d.outstanding:
        order += [stop.replica_id for stop in d.sent(StopReplica)][len(order) :]
        assert d.serving >= 2
        d.answer(min(d.outstanding))
    assert order == [C, B, A]
    assert places(d) == {0: (1,), 1: (2,), 2: (3,)}


def test_nobody_is_stopped_before_its_place_is_free_however_large_the_budget() -> None:
    d = running(SINGLES, max_unavailable=3)
    moved(d, {0: [1], 1: [2], 2: [3]})
    assert d.draining == [C]
    d.stopped(C)
    assert d.draining == [B]
    d.settle()
    assert places(d) == {0: (1,), 1: (2,), 2: (3,)}


def test_nobody_begins_a_chain_that_ends_at_a_lost_bundle() -> None:
    """Rank 0 waits for rank 1, which waits for rank 2, whose place is lost: all run on, and move when it is back."""
    d = running(SINGLES, max_unavailable=3)
    d.lose_bundles(7)
    moved(d, {0: [1], 1: [2], 2: [7]})
    assert d.sent(StopReplica) == []
    assert d.serving == 3
    d.restore_bundles(7)
    d.settle()
    assert places(d) == {0: (1,), 1: (2,), 2: (7,)}


def test_nobody_begins_a_ring_one_of_whose_places_is_lost_in_part() -> None:
    d = running(SINGLES, max_unavailable=3)
    d.lose_bundles(7)
    moved(d, {0: [1, 7], 1: [0], 2: [2]})
    assert d.sent(StopReplica) == []
    d.restore_bundles(7)
    d.settle()
    assert places(d) == {0: (1, 7), 1: (0,), 2: (2,)}


def test_a_ring_is_not_held_up_by_a_lost_bundle_of_others() -> None:
    d = running(StaticPlacement({rank: [rank] for rank in range(4)}, 8, group="pg"))
    d.lose_bundles(7)
    moved(d, {0: [7], 1: [2], 2: [3], 3: [1]})
    d.settle()
    assert places(d) == {0: (0,), 1: (2,), 2: (3,), 3: (1,)}
    assert d.state.failed_ranks == (0,)


def test_bundles_that_change_hands_in_a_ring_take_one_more_than_the_budget() -> None:
    """S7: no budget can be kept where the place of the first is free only once the second has gone."""
    d = running(SINGLES, max_unavailable=1)
    moved(d, {0: [1], 1: [2], 2: [0]})
    least = 3
    while d.outstanding:
        least = min(least, d.serving)
        d.answer(min(d.outstanding))
    assert least == 1
    assert places(d) == {0: (1,), 1: (2,), 2: (0,)}
    assert d.status is DeploymentStatus.HEALTHY


def test_a_lost_place_keeps_nobody_else_from_making_way() -> None:
    """Rank 0 waits for a lost bundle, rank 1 for one on which rank 2 stands, which is to move."""
    d = running(SINGLES, max_unavailable=1)
    d.lose_bundles(0)
    d.unhealthy(B)
    d.restart()
    d.lose_bundles(0, 4)
    moved(d, {0: [0], 1: [2], 2: [4]})
    d.settle()
    assert places(d) == {1: (2,)}
    assert d.state.failed_ranks == (0, 2)
    assert d.state.kept_ranks == (0,)
    assert d.state.replicas[C].state is ReplicaState.FAILED


@pytest.mark.parametrize("min_ready_s", [0.0, 30.0])
def test_no_more_than_one_beyond_the_budget_go_for_a_ring_where_those_that_come_up_do_not_last(min_ready_s: float) -> None:
    """Who rests after a failure, or has not been ready for long enough, is out already: nobody else goes before it is back."""
    d = running(SINGLES, max_unavailable=1, start_backoff_s=8.0, start_backoff_max_s=8.0, min_ready_s=min_ready_s)
    d.wait(min_ready_s)
    d.settle()
    d.forget()
    moved(d, {0: [1], 1: [2], 2: [0]})
    d.settle(except_for=("llm#1.3",))
    assert [stop.replica_id for stop in d.sent(StopReplica)] == [A, B], "one more than may be unavailable"
    d.place("llm#1.3", "n0")
    if min_ready_s:
        d.ready("llm#1.3")
        d.wait(1.0)
        d.die("llm#1.3")
        d.settle(except_for=(C,))
        d.wait(20.0)
    else:
        d.start_fails("llm#1.3")
        d.wait(7.0)
    assert C in d.routes
    assert C not in [stop.replica_id for stop in d.sent(StopReplica)]
    d.settle()
    d.wait(100.0)
    d.settle()
    assert (d.status, places(d)) == (DeploymentStatus.HEALTHY, {0: (1,), 1: (2,), 2: (0,)})


def test_nobody_begins_a_ring_where_somebody_only_has_to_finish_draining() -> None:
    """Rank 0 is to move to where a replica drains that the mapping no longer has: it runs on until that has gone."""
    d = running(SINGLES, max_unavailable=2)
    moved(d, {0: [2], 1: [1]})
    assert [stop.replica_id for stop in d.sent(StopReplica)] == [C]
    d.wait(1)
    assert d.serving == 2
    d.stopped(C)
    assert [stop.replica_id for stop in d.sent(StopReplica)] == [C, A]


def test_who_is_to_move_and_to_be_updated_runs_on_until_its_place_is_free() -> None:
    d = running(SINGLES, max_unavailable=2)
    moved(d, {0: [2], 1: [1]}, version="2")
    assert [stop.replica_id for stop in d.sent(StopReplica)] == [C, B]
    d.settle(except_for=[C])
    assert d.draining == [C]
    assert d.state.replicas[A].state is ReplicaState.RUNNING
    d.settle()
    assert places(d) == {0: (2,), 1: (1,)}
    assert {r.version for r in d.state.replicas.values()} == {"2"}


def test_a_vacant_rank_that_waits_for_a_draining_replica_asks_nobody_to_make_way() -> None:
    d = running(StaticPlacement({rank: [rank] for rank in range(4)}, 8, group="pg"), max_unavailable=1)
    moved(d, {0: [3], 1: [5], 2: [6]})
    assert d.draining == [B, D]
    d.die(A)
    d.settle(except_for=[D])
    assert d.state.kept_ranks == (0,), "D drains on the bundle of rank 0"
    assert d.draining == [D]
    d.change(max_unavailable=2)
    assert d.draining == [C, D]
    d.settle()
    assert places(d) == {0: (3,), 1: (5,), 2: (6,)}


def test_a_mapping_that_changes_while_reports_are_outstanding_is_followed_afterwards() -> None:
    d = running(SINGLES)
    d.restart()
    d.report(A)
    moved(d, {0: [4], 1: [1], 2: [2]})
    assert d.status is DeploymentStatus.RECOVERING
    assert d.sent(StopReplica) == []
    d.settle()
    assert places(d) == {0: (4,), 1: (1,), 2: (2,)}


def test_what_does_not_run_yet_is_replaced_at_once_on_other_bundles() -> None:
    d = Deployment(None, placement=SINGLES)
    d.place(A)
    moved(d, {0: [5], 1: [6], 2: [7]})
    assert [stop.replica_id for stop in d.sent(StopReplica)] == [A, B, C]
    d.settle()
    assert places(d) == {0: (5,), 1: (6,), 2: (7,)}


def test_a_failure_on_other_bundles_counts_no_longer() -> None:
    """The back-off was for what failed there; and a deployment that has failed gets another chance."""
    d = Deployment(None, placement=PAIRS, max_start_failures=1)
    d.place(A)
    d.start_fails(A)
    d.settle()
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    moved(d, {0: [4, 5], 1: [2, 3]})
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert places(d) == {0: (4, 5), 1: (2, 3)}


def test_a_back_off_from_other_bundles_does_not_hold_up_a_start() -> None:
    d = running(SINGLES)
    d.die(A)
    d.start_fails(D)
    d.forget()
    moved(d, {0: [5], 1: [1], 2: [2]})
    assert [start.bundles for start in d.sent(StartReplica)] == [(5,)]


def test_a_failure_on_bundles_that_stay_goes_on_backing_off() -> None:
    d = running(SINGLES)
    d.die(A)
    d.start_fails(D)
    assert d.sent(StartReplica)[1:] == []
    moved(d, {0: [0], 1: [1], 2: [5]})
    assert [start.rank for start in d.sent(StartReplica)[1:]] == []


def test_a_group_of_the_same_shape_is_another_place() -> None:
    """Who stands in the old group's bundles is in nobody's way in the new one."""
    d = running(SINGLES, max_unavailable=3)
    moved(d, {0: [0], 1: [1], 2: [2]}, group="other")
    d.stopped(A)
    assert [(start.rank, start.group_id) for start in d.sent(StartReplica)] == [(0, "other")]
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY


def test_what_is_known_of_a_group_is_forgotten_with_it() -> None:
    d = running(SINGLES)
    d.lose_bundles(0)
    d.settle()
    moved(d, {0: [0], 1: [1], 2: [2]}, group="other")
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert d.state.message == ""


def test_a_deployment_becomes_static_and_back_replica_by_replica() -> None:
    d = Deployment.running(3, nodes=("n0", "n1"), max_unavailable=1)
    d.forget()
    d.change(placement=SINGLES, target_replicas=None)
    while d.outstanding:
        assert d.serving >= 2
        d.answer(min(d.outstanding))
    assert places(d) == {0: (0,), 1: (1,), 2: (2,)}
    d.change(placement=None)
    d.settle()
    assert places(d) == {0: (), 1: (), 2: ()}
    assert d.status is DeploymentStatus.HEALTHY


def test_who_is_to_be_replaced_by_name_and_gives_its_bundles_back_goes_once_its_successor_has_a_place() -> None:
    """V14, S7: in an update too, which would replace it anyway."""
    d = running(SINGLES, max_unavailable=1, update_order="highest_rank")
    d.change(restart_token="monday")
    assert d.state.replicas[C].state is ReplicaState.DRAINING, "which takes what the budget has"
    d.replace(A)
    d.change(placement=None)
    d.stopped(C)
    d.place(D)
    d.ready(D)
    assert d.state.tables.slots[0].successor == E
    assert d.state.replicas[E].state is ReplicaState.REQUESTED
    assert d.state.replicas[A].state is ReplicaState.RUNNING
    assert d.state.replicas[B].state is ReplicaState.DRAINING
    d.settle()
    assert places(d) == {0: (), 1: (), 2: ()}
    assert d.status is DeploymentStatus.HEALTHY


def test_who_moves_into_a_starved_rank_while_it_stands_on_bundles_that_it_is_to_leave_still_leaves_them() -> None:
    """V18, S7: it is another rank now that belongs elsewhere."""
    d = running(max_unavailable=1)
    d.die(A)
    d.change(placement=None)
    d.stopped(C)
    d.find_no_room()
    d.wait(60.0)
    assert d.ranks == {B: 0}
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert places(d) == {0: (), 1: ()}


def test_who_ends_as_the_last_that_a_recovery_waits_for_fails_no_rank_on_whose_bundles_it_did_not_stand() -> None:
    """S5: it was started before there was a static placement, and the bundles of its rank are lost."""
    d = Deployment.recovered(None, {A: (0, 0, 0), B: (1, 0, 1)}, placement=PAIRS)
    d.lose_bundles(0)
    for replica_id in (A, B):
        d.unhealthy(replica_id)
    d.report(A)
    d.place(B)
    d.lose("n0")
    assert (d.state.failed_ranks, d.state.holder_of(0)) == ((0,), None)
    d.wait(1.0)
    d.restore_bundles(0)
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY


def test_a_duplicates_loser_that_takes_a_rank_back_makes_way_for_one_that_waits_for_its_bundle() -> None:
    """S7: it is to move, and nothing else can free that bundle, whatever the budget says."""
    d = Deployment.recovered(
        None, {A: (0, 0, 0), B: (0, 1, 0), C: None}, nodes=("n0", "n1"), placement=PAIRS, max_unavailable=1
    )
    for replica_id, bundles in ((A, (0, 1)), (B, (2, 3))):
        d.processes[replica_id].bundles, d.processes[replica_id].group_id = bundles, "pg"
        d.report(replica_id)
    d.die(A)
    d.missing(C)
    assert d.draining == [B]
    d.settle()
    assert (d.status, places(d)) == (DeploymentStatus.HEALTHY, {0: (0, 1), 1: (2, 3)})


def test_a_surge_ends_when_a_static_placement_begins() -> None:
    d = Deployment.running(3, max_surge=1)
    d.change(version="2")
    d.place(D)
    d.change(placement=SINGLES, target_replicas=None, max_surge=0)
    assert D in d.draining
    d.settle()
    assert places(d) == {0: (0,), 1: (1,), 2: (2,)}


def test_a_static_placement_of_fewer_ranks_stops_who_has_none() -> None:
    d = Deployment.running(4, max_unavailable=1)
    d.forget()
    d.change(placement=SINGLES, target_replicas=None)
    assert d.sent(StopReplica)[0].replica_id == D
    d.settle()
    assert places(d) == {0: (0,), 1: (1,), 2: (2,)}


def test_a_smaller_mapping_lets_go_of_failed_and_vacant_ranks() -> None:
    d = running(StaticPlacement({rank: [rank] for rank in range(4)}, 4, group="pg"))
    d.lose_bundles(1)
    d.stopped(B)
    d.unhealthy(C)
    d.die(D)
    d.start_fails(E)
    moved(d, {0: [0]}, 4)
    assert d.state.failed_ranks == ()
    assert B not in d.state.replicas
    d.settle()
    assert d.ranks == {A: 0}
    assert d.status is DeploymentStatus.HEALTHY


# ---------------------------------------------------------------------------------------------------------------------
# S8: a controller comes back


def test_a_restarted_controller_leaves_everybody_on_their_bundles() -> None:
    d = running()
    d.restart()
    d.settle()
    assert d.sent(StartReplica) == d.sent(StopReplica) == d.sent(KillReplica) == []
    assert d.ranks == {A: 0, B: 1}
    assert places(d) == {0: (0, 1), 1: (2, 3)}
    assert d.status is DeploymentStatus.HEALTHY


def test_a_restarted_controller_replaces_who_stands_elsewhere() -> None:
    """The mapping was changed, and the controller crashed before anything came of it."""
    d = running(SINGLES, max_unavailable=1)
    moved(d, {0: [0], 1: [4], 2: [5]})
    d.restart()
    d.settle()
    assert places(d) == {0: (0,), 1: (4,), 2: (5,)}
    assert d.status is DeploymentStatus.HEALTHY
    assert A in d.state.replicas


def test_after_a_recovery_that_found_replicas_elsewhere_the_deployment_is_updating() -> None:
    d = running(SINGLES)
    moved(d, {0: [4], 1: [5], 2: [6]})
    d.restart(found=[B, C])
    d.report(B)
    d.report(C)
    assert d.status is DeploymentStatus.UPDATING


def test_failed_is_not_checkpointed_the_loss_is_told_again() -> None:
    d = running()
    d.lose_bundles(0)
    d.stopped(A)
    d.restart()
    d.lose_bundles(0, 1)
    d.report(B)
    assert d.sent(StartReplica) == []
    assert d.state.kept_ranks == (0,)
    assert d.status is DeploymentStatus.UNHEALTHY
    assert d.state.message == "placement group 'pg': rank 0 needs bundles 0, 1, lost"
    d.restore_bundles(0, 1)
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY


def test_a_replica_that_reports_from_a_lost_bundle_is_killed() -> None:
    d = running()
    d.restart()
    d.lose_bundles(1)
    d.report(A)
    assert [kill.replica_id for kill in d.sent(KillReplica)] == [A]
    d.report(B)
    d.stopped(A)
    assert d.state.replicas[A].state is ReplicaState.FAILED


def test_a_replica_that_reports_from_a_node_already_lost_strands_its_rank() -> None:
    d = running()
    d.restart()
    d.processes[A].node_id = None  # nobody knows yet where it is
    d.lose("n0", at=5)
    d.report(A, node_id="n0", at=4)
    del d.processes[A]
    d.report(B)
    assert d.state.failed_ranks == (0,)


def test_the_loser_of_a_duplicate_is_stopped_since_it_can_be_moved_nowhere() -> None:
    """R10 would move it to a free rank; its bundles are not that rank's (S6)."""
    d = running(SINGLES)
    d.restart()
    d.report(A)
    d.report(B, rank=(0, 0, 1))
    d.report(C)
    assert [stop.replica_id for stop in d.sent(StopReplica)] == [B]
    assert d.sent(StartReplica) == []
    d.settle()
    assert places(d) == {0: (0,), 1: (1,), 2: (2,)}
    assert d.status is DeploymentStatus.HEALTHY


def test_who_was_never_initialised_has_to_be_gone_before_its_bundles_are_used() -> None:
    d = Deployment(None, placement=PAIRS)
    d.restart()
    d.report(A)
    d.report(B)
    assert d.sent(QueryReplica)
    assert [kill.replica_id for kill in d.sent(KillReplica)] == [A, B]
    d.forget()
    d.stopped(A)
    assert [start.bundles for start in d.sent(StartReplica)] == [(0, 1)]
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY


# ---------------------------------------------------------------------------------------------------------------------
# plans


def test_a_plan_says_on_which_bundles() -> None:
    d = running(SINGLES)
    d.lose_bundles(0)
    d.settle()
    placement = StaticPlacement({0: [4], 1: [1], 2: [5], 3: [6]}, 8, group="pg")
    planned = plan(d.state, attrs.evolve(d.state.spec, placement=placement, target_replicas=None))
    assert sorted((start.rank, start.bundles) for start in planned.starts) == [(0, (4,)), (2, (5,)), (3, (6,))]
    assert [stop.replica_id for stop in planned.stops] == [C], "who is FAILED does not live, and is not stopped"
    assert planned.moves == ()
    assert planned.status is DeploymentStatus.HEALTHY


def test_a_plan_on_lost_bundles_ends_up_unhealthy() -> None:
    d = running(SINGLES)
    d.lose_bundles(0)
    d.settle()
    assert plan(d.state, attrs.evolve(d.state.spec, version="2", max_unavailable=2)).status is DeploymentStatus.UNHEALTHY


def test_starts_of_a_placement_take_no_notice_of_the_room_on_nodes() -> None:
    """The bundles are reserved already; what a node can hold otherwise says nothing of them."""
    d = Deployment(None, placement=PAIRS)
    d.node("n0", 0)
    assert len(d.sent(StartReplica)) == 2
    assert d.sent(InitializeReplica) == []


@pytest.mark.parametrize("restored_first", [True, False])
def test_a_loss_during_the_start_is_not_the_replicas_fault(restored_first: bool) -> None:
    d = Deployment(None, placement=PAIRS, max_start_failures=1)
    d.place(A)
    d.lose_bundles(0)
    if restored_first:
        d.restore_bundles(0)
    d.start_fails(A)
    if not restored_first:
        d.restore_bundles(0)
    d.settle()
    assert d.noted(NoteKind.START_FAILED) == []
    assert d.status is DeploymentStatus.HEALTHY


def test_who_drains_is_not_asked_to_make_way_since_another_with_its_rank_is_to_move() -> None:
    """S7: A leaves already, on the bundle of the vacant rank 2. B, which is to move, says that it has A's rank too (R10)."""
    d = Deployment.recovered(None, {A: (0, 0, 0), B: (0, 0, 1), C: (1, 0, 2)}, placement=SINGLES, max_unavailable=1)
    for replica_id, bundles in ((A, (2,)), (B, (3,)), (C, (1,))):
        d.processes[replica_id].bundles, d.processes[replica_id].group_id = bundles, "pg"
        d.report(replica_id, draining=replica_id == A)
    assert [stop.replica_id for stop in d.sent(StopReplica)] == [A]
    d.settle()
    assert (d.status, places(d)) == (DeploymentStatus.HEALTHY, {0: (0,), 1: (1,), 2: (2,)})
