"""V19: a user who has mended what made replicas fail waits for no back-off; `rankcore/rules/retry.py`."""

import pytest

from rankcore import DeploymentStatus, NoteKind
from rankcore.commands import ReconfigureReplica, StartReplica, StopReplica
from rankcore.errors import InvalidEventError
from rankcore.events import RetryRequested
from rankcore.progress import is_anything_to_retry
from tests.scripted import Deployment


def resting() -> Deployment:
    """Ranks 0 and 1 rest for 60 s after two failures each; rank 2 runs."""
    d = Deployment.running(3, start_backoff_s=30.0, start_backoff_max_s=600.0, max_start_failures=9)
    for replica_id in ("llm#1.0", "llm#1.1"):
        d.die(replica_id)
    for start in d.sent(StartReplica)[-2:]:
        d.start_fails(start.replica_id)
    assert d.state.kept_ranks == (0, 1)
    d.forget()
    return d


def retry(d: Deployment, *ranks: int) -> None:
    d.send(RetryRequested(ranks=ranks, at=d.now))


def starts(d: Deployment) -> list[int]:
    return [start.rank for start in d.sent(StartReplica)]


def given_up(**spec: object) -> Deployment:
    """Version "2" has failed in rank 0, and version "1" runs everywhere again."""
    d = Deployment.running(2, max_unavailable=1, max_start_failures=1, start_backoff_s=500.0, start_backoff_max_s=500.0, **spec)
    d.change(version="2")
    d.stopped("llm#1.0")
    d.start_fails(d.sent(StartReplica)[-1].replica_id)
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    d.settle()
    d.forget()
    return d


@pytest.mark.parametrize("ranks", [(-1,), ("0",), (True,), "0", 3])
def test_what_are_no_ranks_is_refused(ranks: object) -> None:
    with pytest.raises(InvalidEventError, match=r"RetryRequested\.ranks"):
        RetryRequested(ranks=ranks, at=0.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(("asked", "started"), [((), [0, 1]), ((1,), [1]), ([1, 0], [0, 1])])
def test_what_rests_is_started_in_that_step(asked: tuple[int, ...], started: list[int]) -> None:
    d = resting()
    retry(d, *asked)
    assert starts(d) == started
    assert sorted(note.rank for note in d.noted(NoteKind.RETRIED)) == started
    d.settle()
    d.wait(60.0)
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY


def test_whether_anything_is_there_to_be_tried_again_can_be_asked() -> None:
    d = resting()
    assert is_anything_to_retry(d.state, (), d.now)
    assert is_anything_to_retry(d.state, (2, 1), d.now)
    assert not is_anything_to_retry(d.state, (2, 7), d.now)
    assert not is_anything_to_retry(d.state, (), d.now + 1000.0)
    assert is_anything_to_retry(given_up().state, (), 0.0)


def test_what_was_counted_stays() -> None:
    d = resting()
    before = d.state.tables.slots[0].failures
    retry(d, 0)
    assert d.state.tables.slots[0].failures == before
    d.start_fails(d.sent(StartReplica)[-1].replica_id)
    assert d.state.tables.slots[0].failures == before + 1


@pytest.mark.parametrize("rank", [2, 7])
def test_a_rank_that_does_not_rest_is_a_note_and_no_error(rank: int) -> None:
    d = resting()
    retry(d, rank)
    assert starts(d) == []
    assert d.noted(NoteKind.LATE)[0].because == f"RetryRequested of rank {rank}, which does not rest"


def test_an_update_that_waits_for_a_back_off_goes_on() -> None:
    """The successor of a rank failed: what runs there is passed over until then."""
    d = Deployment.running(1, max_surge=1, max_start_failures=9, start_backoff_s=500.0, start_backoff_max_s=500.0)
    d.change(version="2")
    d.start_fails(d.sent(StartReplica)[-1].replica_id)
    d.forget()
    retry(d)
    assert starts(d) == [0]
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY


@pytest.mark.parametrize("ranks", [(), (1,)])
def test_what_was_given_up_is_rolled_out_again_with_counts_that_begin_anew(ranks: tuple[int, ...]) -> None:
    d = given_up()
    retry(d, *ranks)
    assert d.status is DeploymentStatus.UPDATING
    assert [stop.replica_id for stop in d.sent(StopReplica)] == [d.state.holder_of(0)]
    assert all(slot.failures == 0 for slot in d.state.tables.slots.values())
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert {each.version for each in d.state.replicas.values()} == {"2"}


def test_what_was_given_up_and_fails_again_is_given_up_again() -> None:
    d = given_up()
    retry(d)
    d.stopped(d.sent(StopReplica)[-1].replica_id)
    d.start_fails(d.sent(StartReplica)[-1].replica_id)
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    d.settle()
    assert {each.version for each in d.state.replicas.values()} == {"1"}


def test_a_first_deployment_that_was_given_up_is_started_again_in_all_ranks() -> None:
    d = Deployment(2, max_start_failures=1)
    d.start_fails("llm#1.0")
    d.stopped("llm#1.1")
    assert not d.state.replicas
    d.forget()
    retry(d)
    assert starts(d) == [0, 1]
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY


def test_a_user_config_that_was_given_up_is_sent_again() -> None:
    d = Deployment.running(1, max_start_failures=1)
    d.change(user_config={"a": 1})
    d.reconfigure_fails("llm#1.0")
    d.settle()
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    retry(d)
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert {each.config_id for each in d.state.replicas.values()} == {d.state.spec.config_id}


def test_what_is_being_deleted_is_not_tried_again() -> None:
    d = resting()
    d.delete()
    retry(d)
    assert starts(d) == []
    assert d.noted(NoteKind.LATE)[-1].because == "RetryRequested while DELETING"


@pytest.mark.parametrize("named", [False, True])
def test_a_rank_that_is_tried_again_may_be_starved_at_once(named: bool) -> None:
    """Every step is checked: since when it lacks a place is asked of the back-off that is, not of the one that was."""
    d = Deployment(2, scarcity_after_s=0.0, start_backoff_s=30.0, max_start_failures=9)
    d.start_fails("llm#1.0")
    d.place("llm#1.1")
    d.ready("llm#1.1")
    assert d.state.kept_ranks == (0,)
    retry(d, *((0,) if named else ()))
    d.find_no_room()
    assert [(told.replica_id, told.rank.rank) for told in d.sent(ReconfigureReplica)] == [("llm#1.1", 0)]
