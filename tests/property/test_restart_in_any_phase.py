"""V21: the controller is lost after any step of a change, and the change goes on as if it had not been."""

from collections.abc import Callable

import pytest

from rankcore import DeploymentStatus
from rankcore.commands import KillReplica, StopReplica
from rankcore.values import ReplicaState
from tests.scripted import Deployment

TARGET, UNAVAILABLE = 4, 1
STEPS_MAX = 400
UP_WITHOUT_RANK = (ReplicaState.PREPARED,)
WITH_RANK = (ReplicaState.STARTING, ReplicaState.RUNNING, ReplicaState.RECONFIGURING)

CHANGES: dict[str, Callable[[Deployment], object]] = {
    "version": lambda d: d.change(version="2"),
    "restart": lambda d: d.change(restart_token="again"),
    "user_config": lambda d: d.change(user_config={"t": 1}),
    "drain": lambda d: d.drain("n0"),
    "upscale": lambda d: d.resize(TARGET + 2),
    "downscale": lambda d: d.resize(TARGET - 2),
}
NODES = ("n0", "n1", "n2")


def deployment(hand_over: str, min_ready_s: float) -> Deployment:
    surge = 0 if hand_over == "no surge" else 1
    how = "none" if hand_over == "no surge" else hand_over
    budget = 0 if hand_over == "overlap" else UNAVAILABLE
    return Deployment.running(
        TARGET, nodes=NODES, max_unavailable=budget, max_surge=surge, hand_over=how, min_ready_s=min_ready_s
    )


def go_on(d: Deployment) -> bool:
    """The next thing happens: the oldest answer that is outstanding, else time passes. False: the change is over."""
    if d.outstanding:
        d.answer(next(iter(sorted(d.outstanding))))
    elif d.status is DeploymentStatus.HEALTHY or d.state.wake_at is None:
        return False
    else:
        d.wait(d.state.wake_at - d.now)
    return True


def is_over(d: Deployment) -> bool:
    return not d.outstanding and d.status is DeploymentStatus.HEALTHY


def ended(d: Deployment) -> set[str]:
    return {each.replica_id for each in (*d.sent(StopReplica), *d.sent(KillReplica))}


@pytest.mark.parametrize("min_ready_s", [0.0, 10.0])
@pytest.mark.parametrize("hand_over", ["no surge", "none", "prepared", "overlap"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_controller_lost_after_any_step_ends_nobody_who_is_up_and_breaks_no_budget(
    change: str, hand_over: str, min_ready_s: float
) -> None:
    steps = 0
    while True:
        d = deployment(hand_over, min_ready_s)
        d.forget()
        CHANGES[change](d)
        goes_on = True
        for _ in range(steps):
            goes_on = go_on(d)
        crash_and_go_on(d, change)
        if not goes_on:
            return
        steps += 1
        assert steps < STEPS_MAX, "the change never ends"


def crash_and_go_on(d: Deployment, change: str) -> None:
    told_before, before = ended(d), dict(d.state.replicas)
    wanted = {
        replica_id
        for replica_id, each in before.items()
        if each.state in (*UP_WITHOUT_RANK, *WITH_RANK) and each.generation == d.state.spec.generation
    }
    drained = {each.replica_id for each in before.values() if change == "drain" and each.node_id == "n0"}
    ranks = {replica_id: d.ranks[replica_id] for replica_id in wanted - told_before if replica_id in d.ranks}
    target = d.state.spec.target_replicas
    d.forget()
    d.restart()
    if change == "drain":
        d.drain("n0")
    for _ in range(STEPS_MAX):
        served = len(d.routes)
        if not go_on(d):
            break
        assert len(d.routes) >= min(served, min(TARGET, target) - d.state.spec.unavailable_max), "V1: beyond the budget"
    assert is_over(d), (d.status, d.state.message, d.outstanding)
    assert sorted(d.ranks.values()) == list(range(target))
    assert {each.generation for each in d.state.replicas.values()} == {d.state.spec.generation}
    if change != "downscale":
        assert ended(d) & (wanted - told_before) <= drained, "V21: it was up, and wanted"
        assert {each: d.ranks.get(each) for each in ranks if each not in drained} == {
            each: rank for each, rank in ranks.items() if each not in drained
        }
