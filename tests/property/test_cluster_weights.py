"""Weights in a cluster under any order of calls, wishes, failing moves, lost nodes and controllers (P3 to P5, T1 to T11, D7).

After every step all promises hold; once the faults have ended whoever calls is served, or told that it cannot be had.
"""

from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rankcore.cluster.commands import MoveWeights, Standing
from rankcore.cluster.events import MoveFinished, MoveProgressed, NodeJoined
from rankcore.cluster.residency import ResidencySpec
from rankcore.errors import InvalidEventError
from rankcore.events import NodeLost
from rankcore.testing.model_cluster import ClusterBounds, ClusterWorld, make, moves, root
from rankcore.testing.model_cluster.system import at_rest
from rankcore.testing.model_cluster.world import FAIR, WorldDraft, _call, _hear
from rankcore.testing.model_residency.bounds import NodeBounds

DEPLOYMENTS = ("a/x", "b/x", "c/x")
PROCESSES = ("p", "q")
MOVES_MAX = 3000
QUIET_MOVES = 20
"""So often nothing but time passes where nothing happens any more. Who has no place is looked after for ever."""

residencies = st.builds(
    ResidencySpec,
    weight_bytes=st.integers(2, 8),
    working_bytes=st.integers(0, 2),
    gpus=st.sampled_from((None, 1, 2)),
    priority=st.sampled_from((0, 0, 0, 5)),
    dedicated=st.sampled_from((False, False, False, True)),
    min_hot_s=st.sampled_from((0.0, 5.0)),
    spread=st.booleans(),
    keep=st.sampled_from(("WARM", "WARM", "COLD")),
    idle_to_warm_s=st.sampled_from((None, None, 50.0)),
    idle_to_cold_s=st.sampled_from((None, 80.0)),
)
nodes = st.builds(
    NodeBounds,
    gpu_bytes=st.lists(st.sampled_from((4, 8, 10)), min_size=1, max_size=2).map(tuple),
    cpu_bytes=st.sampled_from((0, 6, 20)),
)


@st.composite
def clusters(draw: st.DrawFn) -> ClusterBounds:
    deployments = DEPLOYMENTS[: draw(st.integers(1, 3))]
    wishes: list[tuple[str, str, str]] = []
    for each in deployments:
        wishes += [("calls", each, f"{process}:{count}") for process in PROCESSES for count in (1, 1, 0)]
        wishes += [("scale", each, target) for target in ("0", "1", "2")]
        wishes += [("apply", each, version) for version in ("1", "2")]
        wishes += [("evict", each, level) for level in ("WARM", "COLD")]
    wishes.append(("delete", deployments[-1], ""))
    return ClusterBounds(
        deployments=deployments,
        wishes=tuple(wishes),
        asks=15,
        crashes=2,
        losses=2,
        deaths=3,
        failures=2,
        hangs=1,
        weights=tuple(draw(residencies) for _ in deployments),
        nodes=tuple(draw(st.lists(nodes, min_size=1, max_size=2))),
    )


def with_draft(world: ClusterWorld, change: Any) -> ClusterWorld:
    draft = WorldDraft(world)
    change(draft)
    assert draft.broken == []
    return draft.close()


def lose_a_node(draft: WorldDraft, number: int) -> None:
    """With all that is on it; it comes back empty."""
    number %= len(draft.bounds.nodes)
    node_id, memory = f"n{number}", draft.bounds.nodes[number]
    for worker_id in [each for each, held in draft.workers.held.items() if held.worker.node_id == node_id]:
        draft.workers.ends(worker_id, draft.now, "its node was lost")
    draft.workers.news.clear()
    # An executor sends nothing more to it, as little as to a replica that has ended.
    draft.given = [each for each in draft.given if not _is_for(each.command, node_id)]
    draft.tell(NodeLost(node_id=node_id, at=draft.now))
    draft.now += 1.0
    again = NodeJoined(node_id=node_id, resources={}, gpu_bytes=memory.gpu_bytes, cpu_bytes=memory.cpu_bytes, at=draft.now)
    draft.tell(again)


def _is_for(command: Any, node_id: str) -> bool:
    return isinstance(command, MoveWeights) and command.command.node_id == node_id


def say_it_again(draft: WorldDraft, number: int) -> None:
    """What a worker has answered arrives once more, and it is asked when it has nothing to say."""
    worker_id = sorted(draft.workers.held)[number % len(draft.workers.held)]
    held = draft.workers.held[worker_id]
    if held.moving is None:
        draft.tell(MoveFinished(worker_id=worker_id, move=held.move, at=draft.now))
        draft.workers._report(worker_id, draft.epoch, draft.now)
        _hear(draft)
    else:
        draft.tell(MoveProgressed(worker_id=worker_id, move=held.move, share=number % 100 / 100, at=draft.now))
        draft.tell(MoveFinished(worker_id=worker_id, move=held.move - 1, at=draft.now))


def walked(world: ClusterWorld, choices: list[int]) -> ClusterWorld:
    for choice in choices:
        if world.state is not None and choice % 16 == 0:
            world = with_draft(world, lambda draft, number=choice // 16: lose_a_node(draft, number))
        elif world.state is not None and choice % 16 == 1 and world.workers:
            world = with_draft(world, lambda draft, number=choice // 16: say_it_again(draft, number))
        else:
            possible = list(moves(world))
            if choice % 2:  # else an adversary does most of what is done
                possible = [each for each in possible if each[0] in FAIR] or possible
            with suppress(InvalidEventError):  # a wish about a deployment whose workers have not all reported is refused
                world, broken = make(world, possible[choice // 16 % len(possible)])
                assert broken == ()
    return world


def answered(draft: WorldDraft) -> None:
    """Who is told that a deployment is not to be had waits no longer; nor is one waited for that is deleted."""
    assert draft.state is not None
    for process, deployment in sorted(draft.calls):
        entry = draft.state.deployments.get(deployment)
        found = entry.residency.availability if entry is not None and entry.residency is not None else None
        if entry is None or entry.deleting or (found is not None and found.standing is Standing.UNAVAILABLE):
            draft.calls.discard((process, deployment))


def report_again(draft: WorldDraft) -> None:
    for process, deployment in sorted(draft.calls):
        _call(draft, process, deployment, 1)


def settled(world: ClusterWorld) -> ClusterWorld:
    """What has to happen happens, and who still waits says so now and then, until nothing does but that time passes."""
    quiet = 0
    for _ in range(MOVES_MAX):
        move = next((each for each in moves(world) if each[0] in FAIR), None)
        quiet = quiet + 1 if move in (None, ("time passes", 0)) and not world.calls else 0
        if quiet > QUIET_MOVES:
            return world
        if move is not None:
            world, broken = make(world, move)
            assert broken == ()
        if world.state is not None:
            world = with_draft(world, answered)
            if move is None or move[0] == "time passes":
                world = with_draft(with_draft(world, report_again), answered)
    raise AssertionError(f"it does not come to rest within {MOVES_MAX} moves: {world.calls} wait")


@given(clusters(), st.lists(st.integers(0, 16 * 60), max_size=60))
@settings(max_examples=60, deadline=None)
def test_all_promises_hold_after_every_step_and_whoever_calls_is_served_or_told_why_not(
    bounds: ClusterBounds, choices: list[int]
) -> None:
    world = settled(walked(root(bounds), choices))
    without_place = [each for each in world.state.weights.planner.replicas.values() if not each.gpus and not each.cpu_bytes]
    wrong = [each for each in at_rest(world) if each.rule == "T11" or not without_place]
    assert wrong == []
