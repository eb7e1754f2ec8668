"""Section 2.5: the order of the rules in one step, rule by rule, each where the order shows."""

from rankcore import DeploymentStatus, NoteKind, ReplicaState
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
from tests.scripted import Deployment

A, B, C, D = "llm#1.0", "llm#1.1", "llm#1.2", "llm#1.3"


def stops(d: Deployment) -> list[str]:
    return [stop.replica_id for stop in d.sent(StopReplica)]


def test_a_final_event_releases_the_rank_of_a_draining_replica_that_is_not_to_be_refilled() -> None:
    """Apply the event: released in the very step, and given out in it."""
    d = Deployment.running(2)
    d.resize(1)
    d.resize(2)
    step = d.stopped(B)
    assert [command.rank for command in step.commands if isinstance(command, StartReplica)] == [1]
    assert [note.kind for note in step.notes][:2] == [NoteKind.RANK_RELEASED, NoteKind.RANK_CHOSEN]


def test_a_final_event_keeps_the_slot_where_its_rank_is_below_the_target_and_nobody_elses() -> None:
    """Apply the event: kept, and refilled with the same rank in the same step."""
    d = Deployment.running(2)
    step = d.die(A)
    assert [note.kind for note in step.notes][1:3] == [NoteKind.RANK_KEPT, NoteKind.RANK_INHERITED]


def test_deleting_stops_everything_and_starts_nothing_whatever_else_is_due() -> None:
    """Deleting comes first: neither a replacement, nor an update, nor a report that is outstanding matters."""
    d = Deployment.running(3, max_unavailable=1)
    d.change(version="2")
    d.die(C)
    d.forget()
    d.delete()
    d.settle()
    assert d.sent(StartReplica) == d.sent(InitializeReplica) == d.sent(ReconfigureReplica) == []
    assert d.status is DeploymentStatus.DELETED


def test_while_reports_are_outstanding_nothing_is_given_out_and_no_victim_is_chosen() -> None:
    """Reports outstanding: before any of the rules that follow."""
    d = Deployment.recovered(1, {A: (0, 0, 0), B: (1, 0, 1), C: (5, 0, 5)})
    d.report(A)
    d.report(B)
    d.change(version="2", user_config={"a": 1})
    d.resize(4)
    d.resize(1)
    kinds = (StartReplica, InitializeReplica, ReconfigureReplica, StopReplica, PublishRoutes)
    assert [command for command in d.commands if isinstance(command, kinds)] == []


def test_what_a_recovery_found_is_repaired_before_anything_shrinks() -> None:
    """Just recovered: node ranks are agreed on before victims are chosen."""
    d = Deployment.recovered(2, {A: None, B: None, C: None})
    d.report(A, rank=(0, 0, 0), node_id="a")
    d.report(B, rank=(1, 0, 0), node_id="b")
    step = d.report(C, rank=(2, 0, 1), node_id="b")
    kinds = [note.kind for note in step.notes]
    assert kinds.index(NoteKind.RECOVERY_COMPLETE) < kinds.index(NoteKind.STOP_CHOSEN)
    assert kinds.index(NoteKind.RANK_MOVED) < kinds.index(NoteKind.STOP_CHOSEN)


def test_shrinking_takes_vacant_slots_then_leavers_then_named_then_losers_then_the_unstarted_then_the_policys() -> None:
    """Shrink, in its order: one more at a time."""

    def crowded() -> Deployment:
        found = {A: (0, 0, 0), B: (0, 0, 1), C: (1, 0, 2), D: (2, 0, 3), "llm#1.4": (3, 0, 4), "llm#1.5": (4, 0, 5)}
        d = Deployment.recovered(7, found)
        for replica_id in (A, C, D):
            d.report(replica_id)
        d.die(D)  # vacant: rank 2
        d.stop_by_name(C)  # leaving anyway: rank 1
        d.report("llm#1.4", ready=False)  # not running yet: rank 3
        d.report("llm#1.5")
        d.forget()
        return d

    # Seven wanted: six slots or claims are there. A, the loser B, C's slot, the vacant one, 1.4 and 1.5.
    expected = [[], [], [B], [B, "llm#1.4"], [B, "llm#1.4", "llm#1.5"], [B, "llm#1.4", "llm#1.5", A]]
    for target, victims in zip((5, 4, 3, 2, 1, 0), expected, strict=True):
        d = crowded()
        d.resize(target)
        d.report(B)
        assert sorted(stops(d)) == sorted(victims), target
        assert d.state.kept_ranks == ()


def test_a_vacant_slot_is_given_up_before_one_whose_holder_is_leaving_anyway() -> None:
    """Shrink: vacant slots first, although the leaving one has the higher rank."""
    d = Deployment.running(3)
    d.die(A)
    d.start_fails(D)
    d.stop_by_name(C)
    d.resize(2)
    assert [(note.rank, note.replica_id) for note in d.noted(NoteKind.SLOT_GIVEN_UP)] == [(0, None)]
    d.settle()
    d.wait(2.0)  # for what failed in rank 0
    d.settle()
    assert sorted(d.ranks.values()) == [0, 1]


def test_named_victims_go_before_the_losers_of_duplicates() -> None:
    """Section 2.3: a downscale prefers replicas named by the caller; the loser then gets the rank that is free."""
    d = Deployment.recovered(3, {A: (0, 0, 0), B: (0, 0, 1), C: (1, 0, 2)})
    d.report(A)
    d.report(B)
    d.resize(2, stop_first=[C])
    d.report(C)
    assert stops(d) == [C]
    d.settle()
    assert d.ranks == {A: 0, B: 1}


def test_filling_serves_losers_before_kept_slots_before_newcomers() -> None:
    """Fill, in its order: the loser gets the lowest free rank, the kept one is its own, a newcomer takes the rest."""
    d = Deployment.recovered(4, {A: (0, 0, 0), B: (0, 0, 1), C: (2, 0, 2)})
    d.report(A)
    d.report(C)
    d.die(C)
    d.forget()
    d.report(B)
    given = [(type(c), c.rank) for c in d.commands if isinstance(c, (StartReplica, ReconfigureReplica))]
    assert [kind for kind, _ in given] == [ReconfigureReplica, StartReplica, StartReplica]
    assert given[0][1].rank == 1
    assert [rank for _, rank in given[1:]] == [2, 3]


def test_kept_slots_are_filled_only_where_no_live_replica_may_believe_the_rank() -> None:
    """Fill: then kept slots, only where no live replica may believe the rank."""
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (0, 0, 1)})
    d.report(A)
    d.report(B)
    d.die(A)
    assert d.state.kept_ranks == (0,)
    d.wait(20.0)
    assert d.sent(StartReplica) == []
    d.acknowledge(B)
    assert [start.rank for start in d.sent(StartReplica)] == [0]


def test_an_update_goes_on_only_after_the_gaps_are_filled() -> None:
    """Fill before roll: what is missing is started at the new version, and nobody is stopped for the update."""
    d = Deployment.running(3, max_unavailable=1)
    d.die(A)
    d.start_fails(D)
    d.forget()
    step = d.change(version="2")
    kinds = [type(command) for command in step.commands if isinstance(command, (StartReplica, StopReplica))]
    assert kinds == [StartReplica]


def test_a_new_config_is_sent_after_the_update_has_chosen_whom_to_stop() -> None:
    """Roll before configure: whoever is stopped is not reconfigured first."""
    d = Deployment.running(2, max_unavailable=1)
    d.forget()
    d.change(version="2", user_config={"a": 1})
    assert d.sent(ReconfigureReplica) == []


def test_ranks_are_compacted_last_and_only_by_moving_acknowledged_replicas() -> None:
    """Compact last: a config that is not acknowledged keeps it waiting."""
    d = Deployment.running(4, config_rollout="at_once")
    d.resize(2, stop_first=[A, B])
    d.stopped(A)
    d.change(user_config={"a": 1})
    d.forget()
    d.stopped(B)
    assert d.sent(ReconfigureReplica) == []
    d.acknowledge(C)
    assert d.sent(ReconfigureReplica) == []
    d.acknowledge(D)
    assert [(move.replica_id, move.rank.rank) for move in d.sent(ReconfigureReplica)] == [(C, 0), (D, 1)]


def test_a_step_ends_with_the_status_the_routes_and_the_next_wake_up() -> None:
    """Set the status; publish routes if they changed, and the next WakeAt."""
    d = Deployment(2, start_backoff_s=1.0)
    d.place(A)
    d.ready(A)
    d.change(max_start_failures=9, version="2")
    step = d.delete()
    assert [type(command) for command in step.commands] == [StopReplica, PublishRoutes]
    d = Deployment.running(1)
    step = d.die(A)
    assert [type(command) for command in step.commands] == [StartReplica, PublishRoutes]
    d = Deployment.running(1)
    d.wait(100.0)
    step = d.die(A)
    assert [type(command) for command in step.commands] == [StartReplica, PublishRoutes, WakeAt]
    assert step.notes[-1].kind is NoteKind.STATUS_CHANGED
    assert d.status is DeploymentStatus.UNHEALTHY


def test_the_wake_up_is_the_earliest_of_what_is_due() -> None:
    """The next WakeAt: back-off, repeats, start time-out, reports."""
    d = Deployment(2, repeat_period_s=5.0, start_backoff_s=1.0)
    d.start_fails(A)
    assert d.state.wake_at == 1.0
    d = Deployment.recovered(1, {A: (0, 0, 0)}, repeat_period_s=50.0, health_check_timeout_s=30.0)
    assert d.state.wake_at == 30.0
    d = Deployment(1, start_timeout_s=3.0)
    d.place(A)
    assert d.state.wake_at == 3.0


def test_a_recovery_asks_before_it_does_anything_else() -> None:
    """Reports outstanding: the first step of a recovery holds questions and the announcement only."""
    d = Deployment.recovered(3, {A: (0, 0, 0), B: (1, 0, 1)})
    assert {type(command).__name__ for command in d.commands} == {"AnnounceWorldSize", "QueryReplica", "WakeAt"}
    assert d.sent(QueryReplica)[0].replica_id == A
    assert d.sent(KillReplica) == []
    assert d.count(ReplicaState.RECOVERING) == 2
