"""Who is tried again where room appears: those who may fit are found by an index, and none of them is left out (T7)."""

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from rankcore.events import ClockAdvanced
from rankcore.residency import ModelSpec, Phase, Wanted, open_residency, residency_step
from rankcore.residency import step as steps
from rankcore.residency.commands import LoadToGpu, WakeAt
from rankcore.residency.events import (
    DeployRequested,
    EvictRequested,
    LoadFailed,
    LoadFinished,
    MemoryMeasured,
    NodeJoined,
    NodeLost,
    OffloadFinished,
    UsageReported,
)
from rankcore.residency.invariants import check
from rankcore.residency.ledger import Ledger
from rankcore.residency.placing import place
from rankcore.residency.roster import Group
from rankcore.residency.turns import in_line, turn_in_line
from rankcore.testing.model_residency.driving import DrivenPlanner, driven
from tests.property.naive_residency import uneven


def every_one_is_tried(ledger):
    """The same the slow way: all that wait, in turn, on all nodes where something has become possible."""
    while ledger.roomier:
        nodes, ledger.roomier = sorted(ledger.roomier), {}
        turns = []
        for model in ledger.queue.lacks:
            waiting = ledger.records(model, Group.WAITING)
            aged = int((ledger.clock - waiting[0].since) // ledger.policy.aging_s)
            turns.append((-ledger.models[model].priority - aged, waiting[0].since, model, waiting))
        for _, _, model, waiting in sorted(turns):
            failed = set()
            for record in waiting:
                size = max(ledger.models[model].total_bytes, record.size_bytes)
                if size in failed:
                    continue
                if not place(ledger, record, among=nodes):
                    failed.add(size)


def same_step(state, event):
    """One step, which is what it is the slow way too; and the line that is kept is the one that is made by sorting."""
    step = residency_step(state, event)
    ledger = Ledger(step.state, step.state.clock)
    assert list(in_line(ledger)) == sorted(ledger.queue.lacks, key=lambda each: turn_in_line(ledger, each))
    with patch.object(steps, "retry", every_one_is_tried):
        assert residency_step(state, event) == step
    assert check(step.state) == []
    return step


specs = st.fixed_dictionaries(
    {
        "weight_bytes": st.sampled_from([4, 9, 12, 17, 25, 33, 41, 60]),
        "gpus": st.sampled_from([None, None, 1, 2]),
        "priority": st.sampled_from([0, 0, 1]),
        "dedicated": st.sampled_from([False, False, True]),
        "min_hot_s": st.sampled_from([0.0, 30.0]),
        "spread": st.sampled_from([False, False, True]),
        "node_labels": st.sampled_from([{}, {}, {"zone": "a"}]),
    }
)
specs = st.builds(uneven, specs, st.sampled_from([(), (), (), ((1, 100), (2, 70)), ((2, 60), (3, 50))]))
requests = st.lists(st.lists(st.tuples(specs, st.integers(1, 3)), min_size=1, max_size=4), min_size=1, max_size=4)
what_happens = st.lists(
    st.tuples(
        st.sampled_from(
            ["answer", "answer", "answer", "fail", "evict", "scale", "pass", "join", "lose", "measure", "report", "again"]
        ),
        st.integers(0, 1000),
    ),
    min_size=5,
    max_size=25,
)
GPU_BYTES = ((40, 40), (64,), (30, 41, 41), (40, 40))


@given(requests, what_happens)
def test_no_replica_that_fits_is_left_out_and_all_have_their_turn(requests, what_happens):
    planner, sent, now, known = DrivenPlanner(open_residency()), [], 0.0, []

    state = planner.state

    def feed(event):
        nonlocal planner, state
        planner, told = driven(planner, event)
        state = planner.state
        for before, each, step in told:
            assert same_step(before, each) == step
            sent.extend(command for command in step.commands if not isinstance(command, WakeAt))

    def join(number, at):
        feed(NodeJoined(node_id=f"n{number}", gpu_bytes=GPU_BYTES[number], labels={"zone": "ab"[number % 2]}, at=at))

    join(0, 0.0)
    join(1, 0.0)
    for request in requests:
        wanted = []
        for fields, replicas in request:
            known.append(ModelSpec(model=f"m{len(known)}", **fields))
            wanted.append(Wanted(spec=known[-1], replicas=replicas))
        feed(DeployRequested(wanted=tuple(wanted), at=now))
    for what, number in what_happens:
        model, node_id = known[number % len(known)].model, f"n{number % len(GPU_BYTES)}"
        served = [each for each in sorted(state.replicas) if state.replicas[each].phase is Phase.SERVING]
        if what in ("answer", "fail") and sent:
            command = sent.pop(number % len(sent))
            about = {"replica_id": command.replica_id, "move": command.move, "at": now}
            loads = isinstance(command, LoadToGpu)
            feed((LoadFailed if what == "fail" else LoadFinished)(**about) if loads else OffloadFinished(**about))
        elif what == "evict" and model in state.models:
            feed(EvictRequested(model=model, at=now))
        elif what == "scale":
            feed(DeployRequested(wanted=(Wanted(spec=planner.called_for[model].spec, replicas=number % 5),), at=now))
        elif what == "pass":
            now += 4.0 + number % 40
            feed(ClockAdvanced(at=now))
        elif what == "join":
            join(number % len(GPU_BYTES), now)
        elif what == "lose":
            feed(NodeLost(node_id=node_id, at=now))
        elif what == "measure":
            feed(
                MemoryMeasured(
                    node_id=node_id, gpu_bytes=tuple(size - number % 9 for size in GPU_BYTES[int(node_id[1])]), at=now
                )
            )
        elif what == "report" and served:
            record = state.replicas[served[number % len(served)]]
            feed(UsageReported(replica_id=record.replica_id, gpu_bytes=tuple(each + 13 for each in record.gpu_bytes), at=now))
        elif what == "again":
            spec = known[number % len(known)]
            other = ModelSpec(model=spec.model, weight_bytes=9 + number % 30, gpus=spec.gpus, priority=number % 2)
            feed(DeployRequested(wanted=(Wanted(spec=other, replicas=2),), at=now))
