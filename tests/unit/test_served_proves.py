"""V7: what proves a build where nobody stays for `min_ready_s`: ready times in one slot, of those that were told to go."""

import pytest

from rankcore import DeploymentStatus, NoteKind, StaticPlacement
from rankcore.events import NodeLost, ReplicasLeave
from tests.scripted import Deployment


def on_trial(target: int = 1, **spec: object) -> Deployment:
    """Up, on a build that is not proven yet."""
    d = Deployment(target, **{"min_ready_s": 10.0, "start_backoff_s": 1.0, **spec})
    d.settle()
    assert d.state.proven is None
    return d


def serve(d: Deployment, served_s: float, target: int = 1) -> None:
    """Be ready for so long, be scaled to nothing, and come back."""
    d.settle()
    d.wait(served_s)
    d.resize(0)
    d.settle()
    d.resize(target)
    d.settle()


def sum_of(d: Deployment, rank: int = 0) -> float:
    slot = d.state.tables.slots.get(rank) or d.state.tables.former.get(rank)
    return slot.served_s if slot is not None else 0.0


def test_a_rank_without_room_that_was_served_for_a_while_does_not_roll_a_proven_build_back() -> None:
    d = Deployment.running(2, max_unavailable=2, progress_deadline_s=100.0, rollback=True, min_ready_s=10.0)
    d.wait(20.0)
    d.change(version="2")
    d.settle()
    d.wait(6.0)
    d.resize(1)
    d.settle()
    d.resize(2)
    assert sum_of(d, 1) == 6.0
    d.wait(200.0)
    assert len(d.noted(NoteKind.STALLED)) == 1
    assert d.state.spec.version == "2", "what is missing is room"


def test_what_was_served_before_another_placement_is_of_nobody() -> None:
    d = Deployment(None, placement=StaticPlacement({0: [0]}, 8, group="g"), start_backoff_s=1.0)
    d.settle()
    d.die(str(d.state.holder_of(0)))
    d.wait(1.0)
    d.settle()
    d.wait(1.0)
    d.change(version="2")
    assert sum_of(d) == 1.0
    d.change(placement=None)
    assert sum_of(d) == 0.0


def test_those_who_are_scaled_away_after_five_seconds_prove_a_build_of_ten() -> None:
    d = on_trial()
    serve(d, 5.0)
    assert d.state.proven is None
    d.wait(5.0)
    d.resize(0)
    assert d.state.proven is None, "the second is told to go, and is not gone"
    d.settle()
    assert d.state.proven is not None
    assert d.state.previous is d.state.spec


def test_a_model_that_has_served_for_days_is_not_ended_by_three_failed_loads() -> None:
    d = on_trial(max_start_failures=3)
    for _ in range(3):
        serve(d, 5.0)
    for _ in range(5):
        d.start_fails(d.state.holder_of(0))
        d.wait(64.0)
    assert d.status is not DeploymentStatus.DEPLOY_FAILED


@pytest.mark.parametrize("how", ["replace", "leave", "restart"])
def test_it_does_not_matter_why_they_were_told_to_go(how: str) -> None:
    d = on_trial()
    for turn in range(2):
        d.settle()
        d.wait(5.0)
        holder = d.state.holder_of(0)
        assert holder is not None
        if how == "replace":
            d.replace(holder)
        elif how == "restart":
            d.change(restart_token=f"again {turn}")
        else:
            d.send(ReplicasLeave(replica_ids=(holder,), at=d.now))
            d.settle()
            d.resize(1)
        d.settle()
    assert d.state.proven is not None


def test_a_version_that_dies_a_second_after_it_was_ready_is_never_proven_however_often_it_is_told_to_go_before() -> None:
    d = on_trial(max_start_failures=1_000)
    for _ in range(20):
        serve(d, 0.9)
        serve(d, 0.9)
        d.wait(1.0)
        d.die(d.state.holder_of(0))
        assert sum_of(d) == 0.0
        d.wait(64.0)
        d.settle()
    assert d.state.proven is None


def test_who_is_killed_for_being_unhealthy_adds_nothing_and_takes_the_sum_along() -> None:
    d = on_trial(max_start_failures=1_000)
    serve(d, 9.0)
    d.wait(9.0)
    d.unhealthy(d.state.holder_of(0))
    d.settle()
    assert sum_of(d) == 0.0
    assert d.state.proven is None


def test_a_failed_start_takes_the_sum_along() -> None:
    d = on_trial()
    d.wait(9.0)
    d.resize(0)
    d.settle()
    d.resize(1)
    assert sum_of(d) == 9.0
    d.start_fails(d.state.holder_of(0))
    assert sum_of(d) == 0.0


def test_two_at_the_same_time_prove_no_more_than_one() -> None:
    d = on_trial(2)
    serve(d, 9.0, target=2)
    assert (sum_of(d, 0), sum_of(d, 1), d.state.proven) == (9.0, 9.0, None)


def test_who_is_moved_into_a_rank_adds_nothing_to_what_another_served_there_meanwhile() -> None:
    d = on_trial(2)
    d.wait(6.0)
    holder = d.state.holder_of(0)
    d.resize(1, stop_first=(holder,))
    d.settle()
    assert d.state.holder_of(0) == "llm#1.1"
    d.wait(2.0)
    d.resize(0)
    d.settle()
    assert (sum_of(d, 0), sum_of(d, 1), d.state.proven) == (2.0, 6.0, None)


def test_who_is_unready_when_it_goes_adds_nothing() -> None:
    d = on_trial()
    d.wait(9.0)
    d.unready(d.state.holder_of(0))
    d.resize(0)
    d.settle()
    assert sum_of(d) == 0.0


def test_a_lost_node_adds_nothing_and_takes_nothing() -> None:
    d = on_trial()
    serve(d, 4.0)
    d.wait(7.0)
    d.send(NodeLost(node_id="n0", at=d.now))
    assert (sum_of(d), d.state.proven) == (4.0, None)


@pytest.mark.parametrize("other", [{"version": "2"}, {"user_config": {"a": 1}, "config_rollout": "at_once"}])
def test_another_build_begins_anew(other: dict[str, object]) -> None:
    d = on_trial()
    serve(d, 6.0)
    d.change(**other)
    serve(d, 0.0)  # who has not been ready for long is not available, and so not replaced
    serve(d, 6.0)
    assert (sum_of(d), d.state.proven) == (6.0, None)
    serve(d, 6.0)
    assert d.state.proven is not None


def test_what_mends_a_failure_takes_over_from_it_and_is_proven() -> None:
    d = on_trial(max_start_failures=3, start_backoff_s=30.0)
    d.die(d.state.holder_of(0))
    d.start_fails(d.state.holder_of(0))
    d.change(version="2")
    for _ in range(2):
        serve(d, 5.0)
    assert d.state.proven is not None
    assert d.state.proven.version == "2"


def test_what_was_given_up_in_one_rank_and_serves_in_another_is_proven_by_that() -> None:
    d = on_trial(2, max_start_failures=1)
    d.wait(6.0)
    d.replace("llm#1.0")
    d.settle()
    d.die("llm#1.1")
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    d.wait(6.0)
    d.resize(0)
    d.settle()
    assert d.state.proven is not None
    assert d.status is not DeploymentStatus.DEPLOY_FAILED


def test_a_restarted_controller_begins_the_sum_anew() -> None:
    d = on_trial()
    serve(d, 9.0)
    d.restart()
    d.settle()
    assert sum_of(d) == 0.0


def test_sixty_seconds_clear_what_failed_and_prove_no_build_that_has_to_be_ready_for_longer() -> None:
    d = on_trial(min_ready_s=100.0, start_backoff_s=1.0)
    d.die(d.state.holder_of(0))
    d.settle()
    d.wait(70.0)
    d.resize(0)
    d.settle()
    former = d.state.tables.former[0]
    assert (former.failures, former.served_s, d.state.proven) == (0, 70.0, None)
    d.resize(1)
    serve(d, 30.0)
    assert d.state.proven is not None


def test_nothing_is_added_up_of_a_build_that_is_proven() -> None:
    d = Deployment.running(1, min_ready_s=10.0)
    d.wait(10.0)
    serve(d, 5.0)
    assert sum_of(d) == 0.0
    assert not d.state.tables.former
    assert not d.noted(NoteKind.DEPLOY_FAILED)
