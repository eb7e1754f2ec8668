"""Queues of timers against a plain dict, and the law that a deployment at rest waits for nothing."""

from hypothesis import given
from hypothesis import strategies as st

from rankcore import DeploymentSpec, DeploymentStatus, deploy, step
from rankcore.commands import InitializeReplica, StartReplica
from rankcore.events import ClockAdvanced, ReplicaDied, ReplicaPlaced, ReplicaReady
from rankcore.timers import Queue


@given(st.lists(st.one_of(st.just("push"), st.just("pop"), st.integers(0, 30))))
def test_a_queue_is_a_dict_by_ascending_numbers(moves):
    queue, plain, pushed = Queue(), {}, 0
    for move in moves:
        if move == "push":
            queue, plain[pushed], pushed = queue.push(f"entry {pushed}"), f"entry {pushed}", pushed + 1
        elif move == "pop" and plain:
            queue = queue.pop()
            del plain[min(plain)]
        elif move != "pop":
            queue = queue.discard(move)
            plain.pop(move, None)
        assert dict(queue.items) == plain
        assert (len(queue), queue.tail) == (len(plain), pushed)
        assert queue.head == min(plain, default=pushed)
        assert not plain or queue.first() == plain[min(plain)]


@given(st.lists(st.integers(0, 3), max_size=12))
def test_what_is_acknowledged_leaves_no_timer_behind(crashes):
    """A stale one would be discarded when the first of its queue falls due: all of them, in one step."""
    state, commands, _ = deploy(DeploymentSpec(name="llm", target_replicas=4, start_timeout_s=600.0))
    at, todo = 0.0, list(commands)
    for crash in (None, *crashes):
        if crash is not None:
            at += 1000.0  # longer than `stable_after_s`: no crash is the second in a row, which would back off
            state, todo, _ = step(state, ReplicaDied(replica_id=state.holder_of(crash), reason="", at=at))
            todo = list(todo)
        for command in todo:
            at += 1.0
            if isinstance(command, StartReplica):
                event = ReplicaPlaced(replica_id=command.replica_id, node_id="a", at=at)
            elif isinstance(command, InitializeReplica):
                event = ReplicaReady(replica_id=command.replica_id, at=at)
            else:
                continue
            state, more, _ = step(state, event)
            todo += more
    assert state.status is DeploymentStatus.HEALTHY
    assert (len(state.tables.unacknowledged), len(state.tables.starting)) == (0, 0)
    after = step(state, ClockAdvanced(at=at + 10_000.0)).state
    assert after.wake_at is None
