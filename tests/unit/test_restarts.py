"""V10: another restart token replaces every replica exactly once, within the budget; it proves and blames nothing."""

import attrs
import pytest

from rankcore import DeploymentStatus, NoteKind, plan
from rankcore.commands import QueryReplica, StartReplica, StopReplica
from rankcore.errors import InvalidSpecError
from rankcore.events import TrialRequested
from tests.scripted import Deployment

A, B, C = "llm#1.0", "llm#1.1", "llm#1.2"


def stops(d: Deployment) -> list[str]:
    return [stop.replica_id for stop in d.sent(StopReplica)]


def tokens(d: Deployment) -> list[str]:
    return [d.state.replicas[replica_id].restart_token for replica_id in d.ranks]


@pytest.mark.parametrize(("budget", "surge"), [(1, 0), (2, 0), (1, 2), (5, 0)])
def test_every_replica_is_replaced_once_and_never_more_than_the_budget_at_a_time(budget: int, surge: int) -> None:
    """V10: each with its rank, and by one of the same version that has the token."""
    d = Deployment.running(5, max_unavailable=budget, max_surge=surge)
    d.forget()
    d.change(restart_token="monday")
    assert d.status is DeploymentStatus.UPDATING
    while d.outstanding:
        d.answer(min(d.outstanding))
        assert d.serving >= 5 - budget
    assert d.status is DeploymentStatus.HEALTHY
    assert sorted(stops(d)) == [f"llm#1.{serial}" for serial in range(5)]
    assert [(each.version, each.restart_token) for each in d.sent(StartReplica)] == [("1", "monday")] * 5
    assert sorted(d.ranks.values()) == [0, 1, 2, 3, 4]
    assert tokens(d) == ["monday"] * 5


def test_the_reason_is_noted() -> None:
    """V10: and the next spec without another token restarts nothing."""
    d = Deployment.running(1)
    d.change(restart_token="monday")
    d.settle()
    assert [note.because for note in d.noted(NoteKind.STOP_CHOSEN)] == ["to be restarted with token 'monday'"]
    d.forget()
    d.change(max_surge=1)
    assert not d.sent(StopReplica)


def test_a_second_token_replaces_once_more_what_has_the_first_and_what_has_none() -> None:
    """V10: what does not run yet is replaced without budget, as in any update."""
    d = Deployment.running(3, max_unavailable=1)
    d.change(restart_token="monday")
    d.stopped(A)
    d.place("llm#1.3", "n0")
    d.forget()
    d.change(restart_token="tuesday")
    assert stops(d) == ["llm#1.3"], "it starts with the older token"
    d.settle()
    assert tokens(d) == ["tuesday"] * 3
    assert sorted(stops(d)) == [B, C, "llm#1.3"]


@pytest.mark.parametrize("answered", range(8))
def test_a_crash_of_the_controller_in_the_middle_replaces_nobody_twice(answered: int) -> None:
    """V10: the replicas report with which token they were started."""
    d = Deployment.running(3, max_unavailable=1)
    d.forget()
    d.change(restart_token="monday")
    for _ in range(answered):
        d.answer(min(d.outstanding))
    d.restart()
    assert d.sent(QueryReplica)
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert tokens(d) == ["monday"] * 3
    assert list(dict.fromkeys(stops(d))) == [A, B, C], "and none of those that have the token already"


def test_a_restart_proves_nothing_and_blames_nothing() -> None:
    """V10: a version that was given up stays so, and a failing slot keeps its count and its back-off."""
    d = Deployment.running(2, max_unavailable=1, max_start_failures=2)
    d.change(version="2")
    d.stopped(A)
    d.place("llm#1.2", "n0")
    d.start_fails("llm#1.2")
    slot = d.state.tables.slots[0]
    d.forget()
    d.change(restart_token="monday")
    assert d.state.tables.slots[0] == slot
    assert not d.sent(StartReplica), "the slot rests"
    d.wait(1.0)
    d.place("llm#1.3", "n0")
    d.start_fails("llm#1.3")
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    d.forget()
    d.change(restart_token="tuesday")
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    d.settle()
    assert not d.sent(StopReplica)
    assert [(each.version, each.restart_token) for each in d.sent(StartReplica)] == [], "the proven one was started before"


def test_what_waits_for_a_place_with_an_older_token_while_nothing_works_is_started_again() -> None:
    """V10: it would be initialised never, and wait for ever."""
    d = Deployment(1, max_start_failures=1)
    d.place(A)
    d.start_fails(A)
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    d.wait(60.0)
    d.send(TrialRequested(at=d.now))
    (again,) = d.sent(StartReplica)[1:]
    d.change(restart_token="monday")
    assert stops(d) == [again.replica_id]


def test_a_plan_of_a_restart_names_who_is_replaced() -> None:
    """V10: as any plan does."""
    d = Deployment.running(2)
    found = plan(d.state, attrs.evolve(d.state.spec, restart_token="monday"))
    assert [(each.rank, each.version) for each in found.starts] == [(0, "1"), (1, "1")]
    assert [each.replica_id for each in found.stops] == [A, B]


@pytest.mark.parametrize("token", [None, 1, " ", " a", "a\n", "x" * 254])
def test_a_token_is_a_name_or_nothing(token: object) -> None:
    with pytest.raises(InvalidSpecError, match=r"DeploymentSpec\.restart_token"):
        Deployment.running(1, restart_token=token)
