"""What becomes of a placement group's bundles, as the controller on Ray tells it."""

import asyncio
from types import SimpleNamespace

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.ray_gpu import group_news
from executors.ray_gpu.group_news import GroupNews
from executors.ray_gpu.placement_groups import GroupInfo, GroupState
from rankcore import DeploymentSpec, StaticPlacement
from rankcore.events import BundleLost, BundleRestored

SPEC = DeploymentSpec(
    name="m", placement=StaticPlacement(bundles={0: [0, 1], 1: [2]}, bundle_count=3, group="pg", group_id="ab")
)
HERE = {0: "n1", 1: "n1", 2: "n2"}


def group(nodes, state=GroupState.CREATED):
    return GroupInfo(group_id="ab", name="pg", state=state, bundles={index: {"CPU": 1.0} for index in range(3)}, nodes=nodes)


def told(*looks, spec=SPEC, lost_node=None):
    """What is told of a group that looks like this, one look after the other; the last one after a node was lost."""
    found = []
    answers = list(looks)

    async def call(*_):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def scenario():
        news = GroupNews(SimpleNamespace(now=lambda: 7.0, call=call), found.append)
        news.follow(spec)
        news._task.cancel()  # the test looks when it wants to
        for left in range(len(looks), 0, -1):
            await news.look(lost_node if left == 1 else None)
        return news

    news = asyncio.run(scenario())
    return [(type(event), event.bundles, getattr(event, "reason", "")) for event in found], news


def test_nothing_is_told_of_a_group_that_is_well():
    assert told(group(HERE), group(HERE))[0] == []


def test_bundles_of_a_lost_node_are_lost_and_back_wherever_ray_puts_them():
    away, moved = {2: "n2"}, {0: "n3", 1: "n3", 2: "n2"}
    assert told(group(HERE), group(away, GroupState.RESCHEDULING), group(away, GroupState.RESCHEDULING), group(moved))[0] == [
        (BundleLost, (0, 1), "node n1 was lost"),
        (BundleRestored, (0, 1), ""),
    ]


def test_bundles_of_two_nodes_are_told_node_by_node():
    events = told(group(HERE), group({}, GroupState.RESCHEDULING))[0]
    assert [(bundles, reason) for _, bundles, reason in events] == [((0, 1), "node n1 was lost"), ((2,), "node n2 was lost")]


def test_a_bundle_that_moved_between_two_looks_was_lost_and_is_back():
    assert [(kind, bundles) for kind, bundles, _ in told(group(HERE), group({**HERE, 2: "n3"}))[0]] == [
        (BundleLost, (2,)),
        (BundleRestored, (2,)),
    ]


def test_a_node_loss_that_is_told_after_its_bundles_have_moved_leaves_none_of_them_lost():
    moved = group({0: "n3", 1: "n3", 2: "n2"})
    events = told(group(HERE), moved, moved, lost_node="n1")[0]
    assert [(kind, bundles) for kind, bundles, _ in events] == [
        (BundleLost, (0, 1)),
        (BundleRestored, (0, 1)),
        (BundleRestored, (0, 1, 2)),  # the core takes what was there for lost again, and no later look would tell otherwise
    ]
    assert told(group(HERE), group(HERE), lost_node="n1")[0] == [(BundleRestored, (2,), "")]  # Ray has not moved the others yet


@pytest.mark.parametrize("state", [GroupState.PENDING, GroupState.PREPARED])
def test_a_group_that_waits_for_room_has_lost_nothing(state):
    events, news = told(group({}, state))
    assert events == []
    assert news.obstacle == f"it waits for its bundle: Ray says {state} of placement group 'pg'"


@pytest.mark.parametrize("state", [GroupState.REMOVED, GroupState.UNKNOWN])
def test_a_removed_group_has_lost_all_for_good(state):
    events, _ = told(group(HERE), group(HERE, state), group(HERE, state))
    assert events == [(BundleLost, (0, 1, 2), "the group was removed")]


def test_what_is_lost_when_a_controller_first_looks_is_told():
    assert told(group({2: "n2"}, GroupState.RESCHEDULING))[0] == [(BundleLost, (0, 1), "its node was lost")]


def test_a_question_without_an_answer_says_nothing():
    assert told(group(HERE), ConnectionError("no"), group(HERE))[0] == []


def test_another_group_begins_anew_and_none_ends_it():
    _, news = told(group({}, GroupState.RESCHEDULING))

    async def follow(spec):
        news.follow(spec)
        return news._task

    other = StaticPlacement(bundles={0: [0]}, bundle_count=1, group="pg2", group_id="cd")
    assert asyncio.run(follow(DeploymentSpec(name="m", placement=other))) is not None
    assert news._lost == set()
    assert asyncio.run(follow(DeploymentSpec(name="m", target_replicas=1))) is None


def test_the_group_is_looked_at_now_and_then(monkeypatch):
    monkeypatch.setattr(group_news, "PERIOD_S", 0.0)
    looks = []

    async def call(*_):
        looks.append(None)
        return group(HERE)

    async def scenario():
        news = GroupNews(SimpleNamespace(now=lambda: 7.0, call=call), lambda _: None)
        news.follow(SPEC)
        async with asyncio.timeout(120):
            while len(looks) < 3:
                await asyncio.sleep(0)
        news.close()

    asyncio.run(scenario())
