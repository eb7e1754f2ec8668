"""V9: an update that makes no progress for `progress_deadline_s` says so, and what it waits for; `rankcore/rules/stall.py`."""

import pytest
from msgspec.structs import replace

from rankcore import DeploymentSpec, DeploymentStatus, NoteKind, StaticPlacement
from rankcore.commands import PrepareReplica, StartReplica, StopReplica
from rankcore.errors import InvalidSpecError
from rankcore.invariants.stall import check_progress, check_stall
from rankcore.progress import RolloutPhase, progress_of
from tests.scripted import Deployment


def updating(target: int = 2, **spec: object) -> Deployment:
    """Version "2" is wanted, and the replacement of rank 0 has no place."""
    d = Deployment.running(target, max_unavailable=1, progress_deadline_s=100.0, scarcity_after_s=None, **spec)
    d.forget()
    d.change(version="2")
    d.stopped(d.sent(StopReplica)[-1].replica_id)
    return d


def newcomer(d: Deployment) -> str:
    return d.sent(StartReplica)[-1].replica_id


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), True, "10"])
def test_what_is_no_deadline_is_refused(value: object) -> None:
    with pytest.raises(InvalidSpecError, match="progress_deadline_s"):
        DeploymentSpec(name="llm", target_replicas=1, progress_deadline_s=value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [None, 1, 1.5])
def test_what_is_a_deadline_is_taken(value: float | None) -> None:
    assert DeploymentSpec(name="llm", target_replicas=1, progress_deadline_s=value).progress_deadline_s == value


def test_an_update_is_stalled_from_the_deadline_on_until_the_first_progress() -> None:
    d = updating()
    d.wait(99.0)
    assert d.state.stalled_since is None
    d.wait(1.0)
    assert d.state.stalled_since == 100.0
    assert d.noted(NoteKind.STALLED)[0].because == "no progress for 100 s: no place yet, 1 of 2: rank 0 has no place"
    d.wait(50.0)
    assert d.state.stalled_since == 100.0
    assert len(d.noted(NoteKind.STALLED)) == 1
    d.place(newcomer(d))
    assert d.state.stalled_since == 100.0, "to have a place is no progress: it has had one before"
    d.ready(newcomer(d))
    assert d.state.stalled_since is None
    assert d.noted(NoteKind.STALL_OVER)[0].because == "it goes on; it was stalled since 100 s"
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY


def test_it_is_said_in_the_first_step_after_the_deadline_however_late_that_comes() -> None:
    d = updating()
    d.pending(newcomer(d), at=1000.0)
    assert d.state.stalled_since == 1000.0


def test_the_core_asks_to_be_woken_for_it() -> None:
    d = Deployment(1, progress_deadline_s=3.0)
    d.place("llm#1.0")
    assert d.state.wake_at == 3.0


def test_without_a_deadline_nothing_is_said() -> None:
    d = Deployment.running(2, max_unavailable=1, progress_deadline_s=None)
    d.change(version="2")
    d.wait(10_000.0)
    assert d.state.stalled_since is None


def test_a_deadline_that_is_taken_back_ends_it() -> None:
    d = updating()
    d.wait(100.0)
    d.change(progress_deadline_s=None)
    assert d.state.stalled_since is None
    assert d.noted(NoteKind.STALL_OVER)


@pytest.mark.parametrize("progress", ["end", "available", "another version"])
def test_every_progress_ends_it(progress: str) -> None:
    d = Deployment.running(3, max_unavailable=2, progress_deadline_s=100.0)
    d.forget()
    d.change(version="2")
    first, second = (each.replica_id for each in d.sent(StopReplica))
    d.stopped(first)
    d.place(newcomer(d))
    d.wait(15.0)
    d.wait(86.0)
    assert d.state.stalled_since is not None
    if progress == "end":
        d.stopped(second)
    elif progress == "available":
        d.ready(newcomer(d))
    else:
        d.change(version="3")
    assert d.state.stalled_since is None


def test_a_config_that_is_confirmed_is_progress_before_it_is_available() -> None:
    d = Deployment.running(2, max_unavailable=1, progress_deadline_s=100.0, min_ready_s=1000.0)
    d.wait(1000.0)
    d.change(user_config={"a": 1})
    assert d.state.status is DeploymentStatus.UPDATING
    d.wait(100.0)
    assert progress_of(d.state).because == "rank 0 (llm#1.0) has not confirmed its user_config for 100 s"
    assert d.state.stalled_since == d.now
    d.acknowledge("llm#1.0")
    assert d.state.stalled_since is None


def test_a_target_that_as_many_run_as_hides_no_stall_where_one_of_them_is_stopped_for_it() -> None:
    d = Deployment(3, progress_deadline_s=100.0)
    for replica_id in ("llm#1.1", "llm#1.2", "llm#1.0"):
        d.place(replica_id)
    d.ready("llm#1.1")
    d.ready("llm#1.2")
    d.resize(2, stop_first=["llm#1.2"], at=100.0)
    assert d.state.tables.available == 1
    assert d.state.stalled_since == 100.0


def test_another_target_is_no_progress() -> None:
    d = updating()
    d.wait(60.0)
    d.resize(3)
    d.wait(40.0)
    assert d.state.stalled_since == 100.0


def test_a_crash_below_the_partition_is_no_progress() -> None:
    d = Deployment.running(3, max_unavailable=1, progress_deadline_s=100.0)
    d.change(version="2", partition=2)
    d.stopped("llm#1.2")
    d.wait(60.0)
    d.die("llm#1.0")
    d.place(newcomer(d))
    d.ready(newcomer(d))
    d.wait(40.0)
    assert d.state.stalled_since == 100.0


def test_who_is_paused_or_has_failed_or_goes_is_not_stalled() -> None:
    paused, failed, deleted = updating(), updating(max_start_failures=1), updating()
    for each in (paused, failed, deleted):
        each.wait(100.0)
        assert each.state.stalled_since is not None
    paused.change(partition=2)
    failed.start_fails(newcomer(failed))
    deleted.delete()
    for each in (paused, failed, deleted):
        assert each.state.stalled_since is None
        each.wait(1000.0)
        assert each.state.stalled_since is None
    assert failed.status is DeploymentStatus.DEPLOY_FAILED


def test_an_update_that_is_over_in_the_step_of_its_deadline_was_not_stalled() -> None:
    d = updating()
    d.delete(at=100.0)
    assert not d.noted(NoteKind.STALLED)


def test_a_drained_rank_that_has_one_place_alone_is_said_to_be_what_an_update_waits_for() -> None:
    placement = StaticPlacement(bundles={0: (0,), 1: (1,)}, bundle_count=2, group="pg")
    d = Deployment(2, placement=placement, max_unavailable=1, progress_deadline_s=100.0)
    d.bundle_nodes = {0: "n0", 1: "n1"}
    d.settle()
    d.drain("n0")
    d.change(version="2")
    d.settle()
    d.wait(101.0)
    because = "no room elsewhere for what is to be replaced: rank 0 has no successor"
    assert d.noted(NoteKind.STALLED)[0].because == f"no progress for 100 s: {because}"
    assert progress_of(d.state).because == because


def test_a_full_cluster_is_what_an_update_waits_for_where_ranks_are_packed() -> None:
    d = Deployment(2, placement="pack_ranks", max_unavailable=1, progress_deadline_s=100.0)
    d.node("n0", 1)
    d.node("n1", 1)
    d.settle()
    d.drain("n0")
    d.change(restart_token="a")
    d.settle()
    d.wait(101.0)
    because = "no room elsewhere for what is to be replaced: rank 0 has no successor"
    assert d.noted(NoteKind.STALLED)[0].because == f"no progress for 100 s: {because}"


@pytest.mark.parametrize("rollback", [False, True])
def test_with_rollback_it_goes_back_to_what_was_healthy_last(rollback: bool) -> None:
    d = updating(rollback=rollback)
    d.wait(100.0)
    assert (d.state.spec.version == "1") is rollback
    assert len(d.noted(NoteKind.ROLLED_BACK)) == rollback
    if rollback:
        assert d.state.stalled_since is None, "the clock begins anew"
        assert sum(stop.replica_id == d.sent(StartReplica)[0].replica_id for stop in d.sent(StopReplica)) == 1
        d.settle()
        assert d.status is DeploymentStatus.HEALTHY


def test_an_update_that_all_run_is_over_though_one_waits_for_room_to_be_replaced_elsewhere() -> None:
    d = Deployment.running(2, max_unavailable=1, progress_deadline_s=100.0, rollback=True)
    d.change(version="2")
    d.stopped("llm#1.0")
    d.place("llm#1.2")
    d.ready("llm#1.2")
    d.stopped("llm#1.1")
    d.place("llm#1.3")
    d.drain("n0")
    assert progress_of(d.state).phase is RolloutPhase.ROLLING
    d.ready("llm#1.3")
    d.wait(1000.0)
    assert (d.status, d.state.spec.version) == (DeploymentStatus.UPDATING, "2")
    assert not d.noted(NoteKind.STALLED)
    assert str(progress_of(d.state)).startswith("2 of 2 available, draining n0: 2 to be replaced elsewhere, waits: no room yet")


def test_a_build_that_all_run_for_whom_there_is_room_is_not_rolled_back() -> None:
    d = Deployment.running(3, nodes=("n0", "n1", "n2"), max_unavailable=2, progress_deadline_s=100.0, rollback=True)
    d.lose("n2")
    d.nodes = ("n0", "n1")
    d.change(version="2")
    for _ in range(20):
        fits = sum(each.node_id is not None for each in d.state.replicas.values()) < 2
        for each in [each for each, what in d.outstanding.items() if fits or not isinstance(what, StartReplica)][:1]:
            d.answer(each)
    d.wait(1000.0)
    assert d.state.spec.version == "2"
    assert len(d.noted(NoteKind.STALLED)) == 1
    assert str(progress_of(d.state)).startswith(
        "stalled for 900 s: 2 of 3 updated, 2 of 3 available, waits: no place yet, 2 of 3"
    )


@pytest.mark.parametrize("last", ["has no place, and nobody has run the build", "does not come up", "has failed"])
def test_a_build_that_not_all_run_for_whom_there_is_room_is_rolled_back_though_nobody_older_is_left(last: str) -> None:
    d = Deployment.running(1 if "no place" in last else 2, max_unavailable=1, progress_deadline_s=100.0, rollback=True)
    d.change(version="2")
    d.stopped("llm#1.0")
    if "no place" not in last:
        d.place("llm#1.2")
        d.ready("llm#1.2")
        d.stopped("llm#1.1")
        d.place("llm#1.3")
        if last == "has failed":
            d.start_fails("llm#1.3")
    d.wait(101.0)
    assert d.state.spec.version == "1"


def test_a_restart_that_stalls_is_not_rolled_back_by_another_restart() -> None:
    d = Deployment.running(2, max_unavailable=1, progress_deadline_s=100.0, rollback=True)
    d.change(restart_token="a")
    d.wait(101.0)
    assert d.state.stalled_since is not None
    assert not d.noted(NoteKind.ROLLED_BACK)


def test_the_clock_begins_anew_after_a_controller_crash() -> None:
    d = updating()
    d.wait(60.0)
    d.restart()
    d.settle(except_for=[newcomer(d)])
    d.wait(99.0)
    assert d.state.stalled_since is None


def test_a_recovery_of_which_reports_are_outstanding_for_too_long_is_stalled_too() -> None:
    d = Deployment.running(2, progress_deadline_s=10.0)
    d.restart()
    d.wait(10.0)
    assert progress_of(d.state).phase is RolloutPhase.STALLED
    assert progress_of(d.state).because == "reports are outstanding of llm#1.0, llm#1.1"


def test_a_recovery_that_stalls_in_the_middle_of_an_update_is_rolled_back() -> None:
    d = updating(rollback=True)
    d.restart()
    d.wait(100.0)
    assert d.status is DeploymentStatus.RECOVERING
    assert d.state.spec.version == "1"
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY


def test_the_invariants_find_a_clock_that_is_wrong() -> None:
    d = updating()
    state, replicas = d.state, list(d.state.replicas.values())
    wrong = replace(state, tables=replace(state.tables, progress_at=None))
    assert list(check_stall(wrong, replicas))
    wrong = replace(state, tables=replace(state.tables, stalled_since=0.0))
    assert list(check_stall(wrong, replicas))
    assert list(check_stall(replace(wrong, clock=100.0), replicas)), "it was said before the deadline"
    wrong = replace(state, clock=150.0, tables=replace(state.tables, stalled_since=10.0))
    assert list(check_stall(wrong, replicas)), "it was said too early"
    late = replace(state, clock=50.0, tables=replace(state.tables, progress_at=50.0))
    assert list(check_progress(state, late)), "and nothing has happened"
    ended = replace(late, clock=60.0, tables=replace(late.tables, replicas=late.replicas.delete("llm#1.1")))
    assert list(check_progress(state, ended)), "and the old one has ended"
    healthy = Deployment.running(1)
    wrong = replace(healthy.state, tables=replace(healthy.state.tables, stalled_since=0.0))
    assert list(check_stall(wrong, []))


def test_who_is_ready_again_and_has_to_go_in_that_step_was_available_for_a_moment() -> None:
    """That is progress as any other; every step is checked."""
    d = Deployment(2)
    d.place("llm#1.0")
    d.ready("llm#1.0")
    d.unready("llm#1.0")
    d.replace("llm#1.0", deadline_at=50.0)
    d.ready("llm#1.0", at=50.0)
    assert d.draining == ["llm#1.0"]
    assert d.state.tables.progress_at == 50.0


def test_who_is_found_prepared_with_another_user_config_has_not_come_forward() -> None:
    """It is prepared anew in that step, so that nobody could go for it."""
    d = Deployment.running(2, hand_over="prepared", max_surge=1)
    d.change(version="2")
    successor = newcomer(d)
    d.place(successor)
    d.processes[successor].prepared = True  # while the controller was away
    d.restart()
    d.wait(1.0)
    for replica_id in sorted(set(d.state.replicas) - {successor}):
        d.report(replica_id)
    d.report(successor, config_id="older")
    assert d.sent(PrepareReplica)[-1].replica_id == successor
    assert d.state.tables.progress_at == 0.0
