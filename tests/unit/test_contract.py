"""Section 2.4, the core's half of the contract, and section 2 on late, repeated and overtaken news."""

import pytest

from rankcore import DeploymentStatus, NoteKind, ReplicaRank, ReplicaState, deploy, recover, step
from rankcore.commands import (
    AnnounceWorldSize,
    InitializeReplica,
    KillReplica,
    PublishRoutes,
    QueryReplica,
    ReconfigureReplica,
    StartReplica,
    StopReplica,
    WakeAt,
)
from rankcore.events import (
    ClockAdvanced,
    ReplicaDied,
    ReplicaMissing,
    ReplicaPlaced,
    ReplicaReady,
    ReplicaReconfigured,
    ReplicaReconfigureFailed,
    ReplicaReported,
    ReplicaStartFailed,
    ReplicaStopped,
    ReplicaUnhealthy,
)
from tests.scripted import Deployment

# ---------------------------------------------------------------------------------------------------------------------
# repeats


def unanswered(kind: type) -> tuple[Deployment, str]:
    """A deployment that waits for the answer to one command of this kind."""
    if kind is QueryReplica:
        return Deployment.recovered(1, {"llm#1.0": (0, 0, 0)}, health_check_timeout_s=1000.0), "llm#1.0"
    if kind in (StartReplica, InitializeReplica):
        d = Deployment(1)
        if kind is InitializeReplica:
            d.wait(1.0)
            d.place("llm#1.0")
        return d, "llm#1.0"
    d = Deployment.running(2, graceful_shutdown_timeout_s=1000.0)
    if kind is ReconfigureReplica:
        d.change(user_config={"a": 1})
        d.acknowledge("llm#1.1")
    elif kind is StopReplica:
        d.resize(1)
    else:
        d.unhealthy("llm#1.1")
    return d, next(iter(d.outstanding))


ANSWERED = [StartReplica, InitializeReplica, ReconfigureReplica, StopReplica, KillReplica, QueryReplica]


@pytest.mark.parametrize("kind", ANSWERED)
def test_the_core_repeats_what_is_not_acknowledged_identical_to_the_first_time(kind: type) -> None:
    """Section 2.4: once in each period, by WakeAt."""
    d, replica_id = unanswered(kind)
    (first,) = d.sent(kind, replica_id)
    assert d.state.wake_at is not None
    d.forget()
    d.wait(5.0)
    assert d.sent(kind, replica_id) == [first]
    d.wait(5.0)
    assert d.sent(kind, replica_id) == [first, first]
    assert len(d.noted(NoteKind.REPEATED, replica_id)) == 2


@pytest.mark.parametrize("kind", ANSWERED)
def test_nothing_is_repeated_once_it_is_acknowledged(kind: type) -> None:
    """Section 2.4."""
    d, replica_id = unanswered(kind)
    d.settle()
    d.forget()
    d.wait(100.0)
    assert d.sent(kind, replica_id) == []
    assert d.noted(NoteKind.REPEATED) == []


AWKWARD_TIMES = [0.1, 0.3, 0.6, 1 / 3, 1.1, 7.7, 1234567.89, 1.7e9 + 0.1]


@pytest.mark.parametrize("now", AWKWARD_TIMES)
@pytest.mark.parametrize("kind", [StartReplica, QueryReplica])
def test_a_wake_up_at_the_time_asked_for_finds_its_work_due(kind: type, now: float) -> None:
    """Section 2.4: also where a float's rounding makes (at + period) - period less than at; it would wake for ever."""
    spec = Deployment.running(1).state.spec
    begun = deploy(spec, at=now) if kind is StartReplica else recover(spec, ["llm#1.0"], at=now, epoch=2)
    asked = begun.state.wake_at
    assert asked is not None
    woken = step(begun.state, ClockAdvanced(at=asked))
    assert [type(command) for command in woken.commands] == [kind, WakeAt]
    assert woken.state.wake_at is not None
    assert woken.state.wake_at > asked


@pytest.mark.parametrize("now", AWKWARD_TIMES)
def test_a_start_time_out_is_due_at_the_time_asked_for(now: float) -> None:
    """Sections 2.3 and 2.4: likewise."""
    d = Deployment(1, repeat_period_s=1000.0, start_timeout_s=60.1)
    d.place("llm#1.0", at=now)
    asked = d.state.wake_at
    assert asked == now + 60.1
    d.send(ClockAdvanced(at=asked))
    assert [kill.replica_id for kill in d.sent(KillReplica)] == ["llm#1.0"]


def test_a_quiet_deployment_asks_for_no_wake_up() -> None:
    """Section 2.4: nothing to wait for, no WakeAt once what was asked for has come."""
    d = Deployment.running(2)
    d.wait(1000.0)
    assert d.state.wake_at is None
    d.forget()
    d.wait(1000.0)
    assert d.commands == []


def test_a_replica_that_does_not_stop_in_its_time_is_killed() -> None:
    """Section 2.4: a command that cannot be carried out is followed by a harder one."""
    d = Deployment.running(2, graceful_shutdown_timeout_s=20.0, health_check_timeout_s=30.0)
    d.resize(1)
    d.wait(49.0)
    assert d.sent(KillReplica) == []
    d.wait(6.0)
    assert {kill.replica_id for kill in d.sent(KillReplica)} == {"llm#1.1"}


def test_a_discovered_replica_that_never_answers_is_killed_after_the_health_time_out() -> None:
    """Section 2.4."""
    d = Deployment.recovered(1, {"llm#1.0": (0, 0, 0)}, health_check_timeout_s=12.0)
    d.wait(11.0)
    assert d.sent(KillReplica) == []
    d.wait(1.0)
    assert [kill.replica_id for kill in d.sent(KillReplica)] == ["llm#1.0"]


# ---------------------------------------------------------------------------------------------------------------------
# epochs and revisions


@pytest.mark.parametrize("epoch", [2, 77, 2**31 - 1])
def test_every_command_carries_the_epoch_and_revisions_are_above_those_of_every_earlier_one(epoch: int) -> None:
    """Section 2.1: they start at epoch << 32. The scripted world checks each command of every test, too."""
    d = Deployment.recovered(2, {"llm#1.0": (0, 0, 0), "llm#1.1": (0, 0, 1)}, epoch=epoch)
    d.settle()
    d.resize(4)
    d.settle()
    d.resize(1)
    d.settle()
    assert {command.epoch for command in d.commands} == {epoch}
    revisions = [command.revision for command in d.commands if hasattr(command, "revision")]
    assert all(epoch << 32 < revision < (epoch + 1) << 32 for revision in revisions)


def test_revisions_only_grow() -> None:
    """Section 2.1."""
    d = Deployment.running(3)
    d.change(user_config={"a": 1})
    d.settle()
    d.resize(2, stop_first=["llm#1.0"])
    d.settle()
    kinds = (AnnounceWorldSize, InitializeReplica, ReconfigureReplica, PublishRoutes)
    revisions = [command.revision for command in d.commands if isinstance(command, kinds)]
    assert revisions == sorted(set(revisions))


def test_an_acknowledgement_of_the_last_controller_counts_for_nothing() -> None:
    """Section 2.1."""
    d = Deployment.running(2)
    d.change(user_config={"a": 1})
    old = d.state.replicas["llm#1.0"].revision
    d.restart()
    d.report("llm#1.0", config_id="before")
    d.report("llm#1.1", config_id="before")
    d.acknowledge("llm#1.0", old)
    assert d.state.replicas["llm#1.0"].state is ReplicaState.RECONFIGURING
    assert len(d.noted(NoteKind.LATE, "llm#1.0")) == 1


# ---------------------------------------------------------------------------------------------------------------------
# late, repeated and unknown news

STRANGER = "llm#1.99"
LIVE_NEWS = [
    ReplicaPlaced(replica_id=STRANGER, node_id="a", at=1.0),
    ReplicaReady(replica_id=STRANGER, at=1.0),
    ReplicaReconfigured(replica_id=STRANGER, revision=1, at=1.0),
    ReplicaReconfigureFailed(replica_id=STRANGER, revision=1, reason="", at=1.0),
    ReplicaReported(replica_id=STRANGER, node_id="a", rank=None, version="1", ready=False, epoch=1, at=1.0),
    ReplicaUnhealthy(replica_id=STRANGER, reason="", at=1.0),
]
FINAL_NEWS = [
    ReplicaDied(replica_id=STRANGER, reason="", at=1.0),
    ReplicaStopped(replica_id=STRANGER, at=1.0),
    ReplicaStartFailed(replica_id=STRANGER, reason="", at=1.0),
    ReplicaMissing(replica_id=STRANGER, at=1.0),
]


@pytest.mark.parametrize("event", LIVE_NEWS, ids=lambda event: type(event).__name__)
def test_news_of_an_unknown_live_replica_is_answered_with_a_kill(event: object) -> None:
    """Section 2: the one answer that such news can get; nothing else changes."""
    d = Deployment.running(1)
    before = d.state.tables
    step = d.send(event)
    assert step.commands == (KillReplica(STRANGER, 1),)
    assert d.state.tables == before
    assert [note.kind for note in step.notes] == [NoteKind.UNKNOWN_REPLICA]


@pytest.mark.parametrize("event", FINAL_NEWS, ids=lambda event: type(event).__name__)
def test_the_end_of_an_unknown_replica_changes_nothing_and_leaves_a_note(event: object) -> None:
    """Section 2: late or repeated."""
    d = Deployment.running(1)
    before = d.state.tables
    step = d.send(event)
    assert step.commands == ()
    assert d.state.tables == before
    assert [note.kind for note in step.notes] == [NoteKind.LATE]


@pytest.mark.parametrize("event", FINAL_NEWS, ids=lambda event: type(event).__name__)
def test_a_replica_that_is_gone_never_comes_back(event: object) -> None:
    """Section 2.4: what overtook its end is answered with a kill."""
    d = Deployment.running(1)
    d.die("llm#1.0")
    d.settle()
    before = d.state.tables
    assert d.ready("llm#1.0").commands == (KillReplica("llm#1.0", 1),)
    assert d.state.tables == before


def test_every_repeated_event_of_a_life_changes_nothing_the_second_time() -> None:
    """Section 2: repeated news is not an error, changes nothing and leaves a note."""
    d = Deployment(1)
    for happens in (lambda: d.place("llm#1.0"), lambda: d.ready("llm#1.0")):
        happens()
        before = d.state
        step = happens()
        assert step.commands == ()
        assert step.state == before
        assert len(step.notes) == 1
    d.change(user_config={"a": 1})
    revision = d.state.replicas["llm#1.0"].revision
    d.acknowledge("llm#1.0", revision)
    before = d.state
    step = d.acknowledge("llm#1.0", revision)
    assert (step.state, step.commands, len(step.notes)) == (before, (), 1)


def test_ready_before_placed_changes_nothing() -> None:
    """Section 2: out of order."""
    d = Deployment(1)
    before = d.state
    step = d.ready("llm#1.0")
    assert (step.state, step.commands) == (before, ())
    assert [note.kind for note in step.notes] == [NoteKind.LATE]


def test_a_replica_placed_a_second_time_elsewhere_stays_where_it_is() -> None:
    """Section 2."""
    d = Deployment(1)
    d.place("llm#1.0", "a")
    d.place("llm#1.0", "b")
    assert d.state.replicas["llm#1.0"].node_id == "a"


def test_a_report_that_nobody_asked_for_changes_nothing() -> None:
    """Section 2."""
    d = Deployment.running(1)
    before = d.state
    rank = ReplicaRank(5, 5, 5)
    step = d.send(ReplicaReported(replica_id="llm#1.0", node_id="b", rank=rank, version="7", ready=False, epoch=1, at=0.0))
    assert (step.state, step.commands) == (before, ())
    assert [note.kind for note in step.notes] == [NoteKind.LATE]


def test_the_clock_is_the_largest_at_and_never_goes_back() -> None:
    """Section 2: `at` says when a thing happened."""
    d = Deployment.running(1)
    d.wait(50.0)
    d.unhealthy("llm#1.0", at=20.0)
    assert d.state.clock == 50.0


# ---------------------------------------------------------------------------------------------------------------------
# NodeLost and SpecChanged against their own `at`


def test_a_lost_node_ends_only_replicas_that_were_placed_there_no_later_than_the_loss() -> None:
    """Section 2: the node was lost at 5, came back, and had a new replica at 6 before the news of the loss arrived."""
    d = Deployment(2)
    d.place("llm#1.0", "a", at=1.0)
    d.place("llm#1.1", "a", at=6.0)
    d.lose("a", at=5.0)
    assert "llm#1.0" not in d.state.replicas
    assert "llm#1.1" in d.state.replicas


def test_a_replica_reported_on_a_node_after_its_loss_lives() -> None:
    """Section 2: or reported there."""
    d = Deployment.recovered(2, {"llm#1.0": (0, 0, 0), "llm#1.1": (1, 0, 1)})
    d.report("llm#1.0", at=1.0)
    d.report("llm#1.1", at=6.0)
    d.lose("n0", at=5.0)
    assert set(d.state.replicas) & {"llm#1.0", "llm#1.1"} == {"llm#1.1"}


def test_a_replica_placed_exactly_at_the_loss_ends() -> None:
    """Section 2: no later than its own `at`."""
    d = Deployment(1)
    d.place("llm#1.0", "a", at=5.0)
    d.lose("a", at=5.0)
    assert "llm#1.0" not in d.state.replicas


def test_a_placement_that_the_loss_of_its_node_has_overtaken_is_an_end() -> None:
    """Section 2: news may be overtaken."""
    d = Deployment(1)
    d.lose("a", at=5.0)
    d.place("llm#1.0", "a", at=4.0)
    assert "llm#1.0" not in d.state.replicas
    assert d.state.holder_of(0) == "llm#1.1"
    assert d.noted(NoteKind.START_FAILED) == []


def test_a_repeated_loss_of_a_node_changes_nothing() -> None:
    """Section 2."""
    d = Deployment.running(2, nodes="ab")
    d.lose("a", at=1.0)
    d.place("llm#1.2", "a", at=1.5)
    before = d.state
    step = d.lose("a", at=1.0)
    assert (step.state, step.commands) == (before, ())
    assert [note.kind for note in step.notes] == [NoteKind.LATE]


def test_a_spec_older_than_the_one_in_force_is_late() -> None:
    """Section 2."""
    d = Deployment.running(2)
    d.resize(5, at=10.0)
    d.forget()
    d.resize(1, at=9.0)
    assert d.state.world_size == 5
    assert d.sent(StopReplica) == d.sent(AnnounceWorldSize) == []
    assert len(d.noted(NoteKind.LATE)) == 1


def test_a_spec_of_the_same_moment_is_in_force() -> None:
    """Section 2: only older ones are late."""
    d = Deployment.running(2)
    d.resize(3, at=10.0)
    d.resize(4, at=10.0)
    assert d.state.world_size == 4


# ---------------------------------------------------------------------------------------------------------------------
# steps are pure


def test_a_step_leaves_the_old_state_as_it_was() -> None:
    """Section 2: old states stay valid; keep them, fork them, compare them."""
    d = Deployment.running(3, nodes="ab")
    before, ranks, replicas = d.state, dict(d.state.ranks), dict(d.state.replicas)
    d.die("llm#1.1")
    d.resize(1)
    d.change(version="2")
    d.settle()
    assert (dict(before.ranks), dict(before.replicas)) == (ranks, replicas)
    assert before.status is DeploymentStatus.HEALTHY
    assert before.world_size == 3


def test_two_futures_of_one_state_do_not_know_of_each_other() -> None:
    """Section 2: a fork costs nothing."""
    d = Deployment.running(2)
    fork = d.state
    first = d.die("llm#1.0")
    d.state = fork
    d.processes["llm#1.0"] = d.processes.pop("llm#1.2")
    assert "llm#1.0" in fork.ranks
    assert "llm#1.0" not in first.state.ranks


def test_equal_calls_give_equal_steps() -> None:
    """Section 2: one function of state and event."""
    spec = Deployment.running(3).state.spec
    assert deploy(spec, at=1.0, epoch=4) == deploy(spec, at=1.0, epoch=4)
    found = ["llm#1.0", "llm#1.1"]
    assert recover(spec, found, at=2.0, epoch=5) == recover(spec, found, at=2.0, epoch=5)


def test_discovered_ids_may_come_in_any_order() -> None:
    """Section 2: what is emitted is sorted."""
    spec = Deployment.running(3).state.spec
    one = recover(spec, ["llm#1.10", "llm#1.9", "llm#2.0"], at=2.0, epoch=5)
    other = recover(spec, {"llm#2.0", "llm#1.10", "llm#1.9"}, at=2.0, epoch=5)
    assert one == other
    queries = [command.replica_id for command in one.commands if isinstance(command, QueryReplica)]
    assert queries == ["llm#1.9", "llm#1.10", "llm#2.0"]


def test_wake_ups_are_asked_for_only_where_the_time_is_new() -> None:
    """Section 2.1: WakeAt replaces the previous one."""
    d = Deployment(3)
    wakes = d.sent(WakeAt)
    assert [wake.at for wake in wakes] == [5.0]
    assert d.state.wake_at == 5.0
