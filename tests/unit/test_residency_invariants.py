"""Broken promises of residency are seen: states and steps that no planner makes, one fault each."""

from dataclasses import dataclass

import attrs
import pytest
from msgspec.structs import replace

from rankcore.events import ClockAdvanced
from rankcore.residency import Level, Phase, ResidencyNoteKind, residency_step
from rankcore.residency.commands import LoadToGpu, UnloadFromGpu
from rankcore.residency.events import DeployRequested, EvictRequested, LoadFailed, NodeLost, OffloadFinished
from rankcore.residency.invariants import check, check_step
from rankcore.residency.invariants.line import check_promise, check_successor, overdue
from rankcore.residency.notes import ResidencyNote
from rankcore.residency.spec import Wanted
from rankcore.residency.state import Gpu
from tests.residents import Cluster, model


def busy():
    """A serves, w is WARM, b leaves for m, m reserves; x waits."""
    cluster = Cluster((80,), cpu=30).deploy(model("w", 20)).settle().evict(model="w").settle()
    cluster.deploy(model("b", 50)).settle().deploy(model("a", 10, priority=9, min_hot_s=0.0)).settle()
    return cluster.deploy(model("m", 60), model("x", 500)).state


STATE = busy()
FIELDS = [field.name for field in attrs.fields(type(STATE)) if field.init]


def broken(state, **fields):
    """A state with other books, and the index that it had."""
    return type(state).of(state.index, **{name: getattr(state, name) for name in FIELDS} | fields)


def rules(state):
    return {violation.rule for violation in check(state)}


def with_record(which, **fields):
    return broken(STATE, replicas=STATE.replicas.set(which, replace(STATE.replicas[which], **fields)))


def with_node(**fields):
    return broken(STATE, nodes=STATE.nodes.set("n1", replace(STATE.nodes["n1"], **fields)))


def test_the_state_that_is_broken_below_is_whole():
    phases = {replica_id: record.phase.value for replica_id, record in sorted(STATE.replicas.items())}
    assert (
        phases == {"a#2": "serving", "b#1": "leaving", "m#4": "reserving", "w#0": "dropping", "x#3": "waiting"} or phases["w#0"]
    )
    assert check(STATE) == []


@pytest.mark.parametrize(
    ("rule", "state"),
    [
        ("T1", with_node(gpus=(Gpu(80, 1),))),
        ("T1", with_node(gpus=(Gpu(79, -1),))),
        ("T1", with_node(cpu_free_bytes=31)),
        ("T1", with_node(cpu_excess_bytes=-1)),
        (
            "T1",
            attrs.evolve(STATE, nodes=STATE.nodes.set("n0", replace(STATE.nodes["n1"], node_id="n0", gpus=(Gpu(8, 8, 3),)))),
        ),
        ("T1", with_record("a#2", node_id="n7")),
        ("T1", with_record("x#3", copy_node_id="n7", cpu_bytes=3, level=Level.WARM, node_id="n7")),
        ("T2", with_record("a#2", phase=Phase.RESTING)),
        ("T2", with_record("a#2", need_bytes=())),
        ("T2", with_record("m#4", gpus=(0, 0), gpu_bytes=(10, 10), need_bytes=(60, 60))),
        ("T2", with_record("a#2", need_bytes=(11,))),
        ("T2", with_record("a#2", level=Level.COLD)),
        ("T2", with_record("x#3", level=Level.HOT)),
        ("T2", with_record("a#2", hot_since=None)),
        ("T2", with_record("x#3", level=Level.WARM)),
        ("T2", with_record("a#2", copy_node_id="n1")),
        ("T2", with_record("x#3", node_id="n1")),
        ("T2", with_record("x#3", phase=Phase.DROPPING)),
        ("T2", with_record("x#3", cpu_bytes=1)),
        ("T2", with_record("m#4", waits_for=())),
        ("T2", with_record("x#3", waits_for=("b#1",))),
        ("T2", with_record("x#3", because="")),
        ("T2", with_record("x#3", replica_id="z#3")),
        ("T8", with_record("a#2", used_bytes=(11,))),
        ("T9", with_record("m#4", waits_for=("a#2",))),
        ("T9", with_record("m#4", waits_for=("z#9",))),
        ("T9", with_record("b#1", waits_for=("x#3",))),
        ("T9", with_record("b#1", makes_room_for="x#3")),
        ("index", with_record("a#2", in_flight=5)),
    ],
)
def test_a_broken_state_is_seen(rule, state):
    assert rule in rules(state)


def test_an_index_of_who_is_where_that_was_not_kept_is_seen():
    other = Cluster((80,)).deploy(model("a", 10)).state
    state = type(STATE).of(other.index, **{name: getattr(STATE, name) for name in FIELDS})
    assert {violation.detail for violation in check(state)} >= {"roster.on_gpus", "room.shown"}


def test_somebody_who_waits_beside_room_is_seen():
    cluster = Cluster((80,), (80,)).join("z1", 80, zone="z").deploy(model("x", 81, gpus=1), model("a", 10)).settle()
    state = cluster.state
    for spec, seen in (
        (model("x", 30), True),
        (model("x", 30, node_labels={"zone": "y"}), False),
        (model("x", 30, gpus=2), False),
        (model("x", 75), True),
    ):
        changed = attrs.evolve(state, models=state.models.set("x", spec))
        assert ("T7" in rules(changed)) is seen


def test_a_replica_that_may_not_share_its_node_does_not_wait_beside_room():
    assert check(Cluster((80,)).deploy((model("m", 10, spread=True), 2)).settle().state) == []


# ---------------------------------------------------------------------------------------------------------------------
# steps


@dataclass
class Case:
    """A step, and what it was taken from; the step can be changed."""

    before: object
    event: object
    step: object

    def rules(self, **fields):
        return {each.rule for each in check_step(self.before, self.event, self.step._replace(**fields))}

    def with_records(self, **changes):
        """The state after it with other records, all else as it is."""
        state = self.step.state
        replicas = state.replicas
        for name, fields in changes.items():
            replica_id = next(each for each in sorted(replicas) if each.startswith(f"{name}#"))
            replicas = replicas.set(replica_id, replace(replicas[replica_id], **fields))
        return self.rules(state=attrs.evolve(state, replicas=replicas))

    def with_models(self, *specs):
        models = self.step.state.models
        for spec in specs:
            models = models.set(spec.model, spec)
        return self.rules(state=attrs.evolve(self.step.state, models=models))


def step_of(cluster, event):
    return Case(cluster.state, event, residency_step(cluster.state, event))


def deploying(*specs):
    return DeployRequested(wanted=tuple(Wanted(spec=spec) for spec in specs), at=1.0)


def a_displacement(cpu=30):
    """V and w are displaced for m, both needed; the copies c and d are dropped for one of them."""
    cluster = Cluster((80,), cpu=cpu, warm_eviction="smallest")
    for name, size in (("c", 5), ("d", 10)):
        cluster.deploy(model(name, size)).settle().evict(model=name).settle()
    cluster.deploy(model("v", 30)).settle().deploy(model("w", 30)).settle()
    return step_of(cluster, deploying(model("m", 75)))


def test_a_step_that_is_broken_below_is_whole():
    case = a_displacement()
    assert case.rules() == set()
    assert [type(command).__name__ for command in case.step.commands] == ["DropFromCpu", "DropFromCpu", "UnloadFromGpu"]


def test_what_comes_out_differently_the_second_time_is_seen():
    case = a_displacement()
    assert case.rules(notes=()) == {"pure"}
    assert "pure" in case.rules(state=attrs.evolve(case.step.state, clock=0.5))


def test_a_record_that_vanishes_or_moves_while_it_serves_is_seen():
    cluster = Cluster((80, 80)).deploy(model("a", 10)).settle()
    case = step_of(cluster, ClockAdvanced(at=2.0))
    state = case.step.state
    assert "T2" in case.rules(state=attrs.evolve(state, replicas=state.replicas.delete("a#0")))
    for other in (NodeLost(node_id="n2", at=2.0), LoadFailed(replica_id="b#0", move=1, at=2.0)):
        late = step_of(cluster, other)
        assert late.rules() == set()
        assert "T2" in late.rules(state=attrs.evolve(late.step.state, replicas=state.replicas.delete("a#0")))
    assert "T3" in case.with_records(a={"gpus": (1,)})


@pytest.mark.parametrize(
    "spec", [model("v", 30, dedicated=True), model("v", 30, priority=1), model("v", 30, min_hot_s=99.0)], ids=str
)
def test_a_victim_that_is_not_permitted_is_seen(spec):
    assert "T4" in a_displacement().with_models(spec)


def test_a_young_victim_is_permitted_for_a_dedicated_newcomer():
    case = a_displacement()
    assert "T4" not in case.with_models(model("v", 30, min_hot_s=99.0), model("m", 75, dedicated=True))


def test_a_victim_of_the_same_request_or_model_or_one_that_did_not_serve_is_seen():
    case = a_displacement()
    state = case.step.state
    assert "T4" in case.rules(state=attrs.evolve(state, asked=state.asked.set("v", state.asked["m"])))
    assert "T4" in case.with_records(v={"model": "m"})
    assert "T4" in case.with_records(v={"hot_since": None})


def test_too_few_victims_and_one_to_spare_are_seen():
    case = a_displacement()
    assert "T5" in case.with_records(m={"need_bytes": (81,)})
    assert "T5" in case.with_records(m={"need_bytes": (50,)})


def test_victims_whose_bytes_only_end_an_excess_are_seen():
    """60 of them and 20 that were free would do for 75; where 10 turn out not to be there they do not."""
    case = a_displacement()
    state = case.step.state
    nodes = state.nodes.set("n1", replace(state.nodes["n1"], gpus=(Gpu(80, 0, 10),)))
    assert "T5" in case.rules(state=attrs.evolve(state, nodes=nodes))


def test_one_that_becomes_cold_beside_free_cpu_memory_is_seen():
    case = a_displacement()
    state = case.step.state
    assert "T6" in case.rules(
        state=attrs.evolve(state, nodes=state.nodes.set("n1", replace(state.nodes["n1"], cpu_free_bytes=30)))
    )


def test_one_that_becomes_cold_where_copies_at_rest_or_the_rest_of_a_dropped_one_would_make_room_is_seen():
    """C, of 70, is dropped for v, and brings enough for w too, beside the 10 that are free."""
    cluster = Cluster((80,), cpu=80, warm_eviction="smallest")
    cluster.deploy(model("c", 70)).settle().evict(model="c").settle()
    cluster.deploy(model("v", 30)).settle().deploy(model("w", 30)).settle()
    case = step_of(cluster, deploying(model("m", 75)))
    assert case.rules() == set()
    assert [case.step.state.replicas[each].waits_for for each in ("v#1", "w#2")] == [("c#0",)] * 2
    assert "T6" in case.with_records(w={"copy_node_id": None, "waits_for": (), "cpu_need_bytes": 0})
    assert "T6" in case.with_records(
        c={"phase": Phase.RESTING, "dropping": False},
        v={"copy_node_id": None, "waits_for": (), "cpu_need_bytes": 0},
        w={"copy_node_id": None, "waits_for": (), "cpu_need_bytes": 0},
    )


def test_a_warm_replica_that_fits_and_is_passed_over_is_seen():
    cluster = Cluster((80,), (80,), cpu=50).deploy((model("m", 50), 2)).settle().evict(model="m").settle()
    cluster.deploy((model("d", 70, dedicated=True), 1)).settle()
    case = step_of(cluster, DeployRequested(wanted=(Wanted(spec=model("m", 50), replicas=1),), at=1.0))
    assert case.rules() == set()
    before, after = case.before.replicas, case.step.state.replicas
    waits = replace(before["m#0"], phase=Phase.WAITING, because="none")
    replicas = after.set("m#1", before["m#1"]).set("m#0", waits)
    nodes = case.before.nodes
    assert "T3" in case.rules(state=attrs.evolve(case.step.state, replicas=replicas, nodes=nodes))


def test_a_warm_replica_that_does_not_fit_is_rightly_passed_over():
    cluster = Cluster((80,), (80,), cpu=50).deploy((model("m", 50), 2)).settle().evict(model="m").settle()
    cluster.deploy((model("d", 70, dedicated=True), 2)).settle()
    case = step_of(cluster, DeployRequested(wanted=(Wanted(spec=model("m", 50), replicas=1),), at=1.0))
    phases = [case.step.state.replicas[each].phase for each in ("m#0", "m#1")]
    assert sorted(phases) == [Phase.RESTING, Phase.WAITING]
    assert case.rules() == set()


def test_a_large_copy_that_is_dropped_while_a_small_one_stays_is_seen():
    case = a_displacement()
    assert "T6" in case.with_records(c={"phase": Phase.RESTING, "dropping": False})


def cannot():
    cluster = Cluster((80,)).deploy(model("a", 70, dedicated=True)).settle()
    return step_of(cluster, deploying(model("m", 20)))


def test_what_fits_nowhere_and_disturbs_somebody_is_seen():
    case = cannot()
    assert case.rules() == set()
    nodes = case.step.state.nodes
    changed = nodes.set("n1", replace(nodes["n1"], joined_at=9.0))
    assert "T7" in case.rules(state=attrs.evolve(case.step.state, nodes=changed))
    unload = UnloadFromGpu(replica_id="a#0", node_id="n1", timeout_s=1.0, move=1)
    assert case.rules(commands=(unload,)) >= {"T7", "T9"}


@pytest.mark.parametrize("from_memory", [True, False])
def test_who_is_told_to_keep_a_copy_that_it_has_not_or_to_keep_none_that_it_has_is_seen(from_memory):
    cluster = Cluster((80,), cpu=100).deploy(model("m", 30))
    if from_memory:
        cluster = cluster.settle().evict(model="m").settle().deploy(model("m", 30))
    case = step_of(cluster, EvictRequested(model="m", at=0.0))
    (unload,) = case.step.commands
    assert (case.rules(), unload.keep_copy) == (set(), from_memory)
    assert case.rules(commands=(replace(unload, keep_copy=not from_memory),)) >= {"T9"}


def test_what_fits_nowhere_without_a_reason_is_seen():
    case = cannot()
    notes = tuple(replace(note, cant=None) for note in case.step.notes)
    assert "T7" in case.rules(notes=notes)
    without = tuple(replace(note, cant=replace(note.cant, reasons=()) if note.cant else None) for note in case.step.notes)
    assert "T7" in case.rules(notes=without)
    assert any(note.kind is ResidencyNoteKind.CANT_ACCOMMODATE for note in notes)


def test_a_request_for_fewer_than_there_are_disturbs_nobody():
    cluster = Cluster((80,)).deploy((model("a", 30), 2)).settle()
    case = step_of(cluster, deploying(model("a", 30), model("m", 500)))
    assert (case.rules(), case.step.commands) == (set(), ())


def test_a_load_that_comes_too_early_or_belongs_to_no_record_is_seen():
    case = a_displacement()
    move = case.step.state.moves
    state = case.step.state
    newcomer = next(record for record in state.replicas.values() if record.model == "m")
    load = LoadToGpu(
        replica_id=newcomer.replica_id,
        model="m",
        node_id="n1",
        gpus=(0,),
        gpu_bytes=(75,),
        source=Level.COLD,
        move=newcomer.move,
    )
    assert case.rules(commands=(*case.step.commands, load)) == {"pure", "T9"}
    assert case.rules(commands=(*case.step.commands, replace(load, move=move))) == {"pure", "T9"}


def in_line():
    """A serves, and m is first in line for its place."""
    cluster = Cluster((80,), turn_factor=0.5).deploy(model("a", 50, min_hot_s=60.0)).settle()
    return cluster.deploy(model("m", 60))


def test_who_is_first_in_line_without_a_place_is_seen():
    state = in_line().state
    assert rules(state) == set()
    lost = broken(state, head=replace(state.head, replica_id="a#0"))
    assert "a#0 is first in line, and has no place" in [violation.detail for violation in check(lost)]


def test_a_place_that_is_too_small_even_when_all_that_it_counts_on_are_gone_is_seen():
    state = in_line().state
    lacking = broken(state, replicas=state.replicas.set("m#1", replace(state.replicas["m#1"], waits_for=())))
    assert "m#1 needs 60 of GPU 0, of 80, and 50 stay" in [violation.detail for violation in check(lacking)]


def test_somebody_who_could_be_first_in_line_and_is_not_is_seen():
    state = in_line().state
    waiting = replace(
        state.replicas["m#1"],
        phase=Phase.WAITING,
        node_id=None,
        gpus=(),
        gpu_bytes=(),
        need_bytes=(),
        waits_for=(),
        due_at=None,
    )
    nodes = state.nodes.set(
        "n1", replace(state.nodes["n1"], gpus=tuple(replace(gpu, free_bytes=30) for gpu in state.nodes["n1"].gpus))
    )
    open_place = type(state)(
        policy=state.policy,
        nodes=nodes,
        replicas=state.replicas.set("m#1", waiting),
        models=state.models,
        asked=state.asked,
        clock=state.clock,
        serial=state.serial,
        moves=state.moves,
        requests=state.requests,
    )
    details = [violation.detail for violation in check(open_place)]
    assert "m#1 waits, could have a place, and nobody is first in line" in details


def test_a_promise_that_is_put_off_without_a_word_is_seen():
    before = in_line().state
    record = before.replicas["m#1"]
    for change in ({"due_at": record.due_at + 1.0}, {"due_at": None, "phase": Phase.WAITING}):
        after = broken(before, replicas=before.replicas.set("m#1", replace(record, **change)))
        assert [each.rule for each in check_promise(before, after, ())] == ["T13"]
        said = ResidencyNote(kind=ResidencyNoteKind.SLIPPED, rule="T13", replica_id="m#1", because="it says so")
        assert list(check_promise(before, after, (said,))) == []


def test_a_successor_of_a_successor_that_goes_ahead_of_the_first_in_line_is_seen():
    cluster = in_line().evict(replica_id="a#0", keep="COLD")
    cluster.answer(heir=model("a", 50)).evict(replica_id="a#2", keep="COLD")
    before, offload = cluster.state, cluster.pending[-1]
    event = OffloadFinished(replica_id="a#2", move=offload.move, heir=model("a", 50), at=cluster.now)
    assert list(check_successor(before, event, residency_step(before, event).state)) == []
    forgotten = broken(before, head=replace(before.head, heirs=()))
    after = residency_step(forgotten, event).state
    found = list(check_successor(before, event, after))
    assert [each.detail for each in found] == ["a#3 goes ahead of m#1, as a#2 has"]


def test_who_is_late_is_seen_where_all_keep_to_the_estimates():
    state = in_line().state
    assert list(overdue(state)) == []
    late = broken(state, clock=state.replicas["m#1"].due_at + 1.0)
    assert [each.rule for each in overdue(late)] == ["T13"]


def test_a_load_that_may_not_be_broken_off_and_is_so_is_seen():
    """T16: for one of the same priority, with more than half of it done, or twice in a row."""
    cluster = Cluster((80,), disk_bytes_per_s=10, reuse_horizon_s=100.0).deploy(model("a", 80))
    before, event = cluster.state, DeployRequested(wanted=(Wanted(spec=model("m", 80, priority=1)),), at=0.0)
    step = residency_step(before, event)
    assert step.state.replicas["a#0"].phase is Phase.LEAVING
    assert "T16" not in {each.rule for each in check_step(before, event, step)}
    equal = broken(step.state, models=step.state.models.set("m", model("m", 80)))
    late, late_event = broken(step.state, clock=4.5), replace(event, at=4.5)
    lost_one = broken(before, broken_off=before.broken_off.set("a", -99.0))
    lost_one_before = broken(before, broken_off=before.broken_off.set("a", -100.0))
    for was, what, after, seen in (
        (before, event, equal, True),
        (before, late_event, late, True),
        (lost_one, event, step.state, True),
        (lost_one_before, event, step.state, False),
    ):
        found = check_step(was, what, step._replace(state=after))
        assert ("T16" in {each.rule for each in found}) is seen
