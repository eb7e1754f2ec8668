"""What goes into and comes out of a planner: fields that are checked, texts that come back, sorted sets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rankcore.residency
from rankcore import ordered as sets
from rankcore.codec import from_json, to_json
from rankcore.errors import CodecError, InvalidEventError, InvalidSpecError
from rankcore.events import ClockAdvanced
from rankcore.ordered import Ordered, ordered
from rankcore.residency import (
    Level,
    ModelSpec,
    ResidencyPlan,
    ResidencyPolicy,
    ResidencyState,
    Wanted,
    open_residency,
    plan_residency,
    residency_step,
)
from rankcore.residency.commands import Command
from rankcore.residency.events import (
    DeployRequested,
    Event,
    EvictRequested,
    LoadFailed,
    LoadFinished,
    MemoryMeasured,
    NodeJoined,
    NodeLost,
    OffloadFailed,
    OffloadFinished,
    ReplicaLost,
    ReplicaUsed,
    UsageReported,
)
from rankcore.residency.notes import ResidencyNote
from tests.residents import Cluster, model

SPEC = ModelSpec(model="m", weight_bytes=40, node_labels={"zone": "a"})


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("model", "", "1 to 253 printable"),
        ("model", "a#1", "without '#'"),
        ("weight_bytes", 0, "an integer from 1 to 9007199254740992"),
        ("weight_bytes", 1e30, "an integer from 1 to"),
        ("weight_bytes", 10**30, "an integer from 1 to"),
        ("weight_bytes", True, "an integer from 1 to"),
        ("working_bytes", -1, "an integer from 0"),
        ("gpus", 0, "an integer from 1 to 1024"),
        ("shard_bytes", {1: 40}, "pairs of a number of GPUs and its bytes, the fewest GPUs first, each once"),
        ("shard_bytes", ((1, 40), 2), "pairs of a number of GPUs"),
        ("shard_bytes", ((2, 20), (1, 40)), "the fewest GPUs first"),
        ("shard_bytes", ((2, 20), (2, 20)), "each once"),
        ("shard_bytes", ((0, 20),), "an integer from 1 to 1024"),
        ("shard_bytes", ((2, 0),), "an integer from 1 to 9007199254740992"),
        ("priority", 101, "an integer from 0 to 100"),
        ("dedicated", 1, "true or false"),
        ("min_hot_s", -1.0, "at least 0"),
        ("spread", None, "true or false"),
        ("node_labels", [("zone", "a")], "a mapping"),
        ("node_labels", {"zone": 1}, "a string"),
        ("node_labels", {" ": "a"}, "printable"),
        ("idle_to_warm_s", 0, "above 0"),
        ("idle_to_cold_s", float("nan"), "above 0"),
    ],
)
def test_a_model_that_cannot_be_is_refused_by_field(field, value, allowed):
    with pytest.raises(InvalidSpecError, match=allowed) as caught:
        ModelSpec(**{"model": "m", "weight_bytes": 1, field: value})
    assert caught.value.field.startswith(f"ModelSpec.{field}")


def test_uneven_parts_are_there_to_choose_from():
    assert ModelSpec(model="m", weight_bytes=1, shard_bytes=((1, 1), (2, 1))).shard_bytes == ((1, 1), (2, 1))
    with pytest.raises(InvalidSpecError, match="empty where gpus is given: it is 2"):
        ModelSpec(model="m", weight_bytes=1, gpus=2, shard_bytes=((2, 1),))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("in_flight_cost_bytes", -1),
        ("recent_cost_bytes", 1.5),
        ("recent_use_s", 0.0),
        ("drain_timeout_s", -1),
    ],
)
def test_a_policy_that_cannot_be_is_refused_by_field(field, value):
    with pytest.raises(InvalidSpecError) as caught:
        ResidencyPolicy(**{field: value})
    assert caught.value.field == f"ResidencyPolicy.{field}"


def test_so_many_of_a_model_is_checked():
    with pytest.raises(InvalidSpecError, match="a ModelSpec"):
        Wanted(spec="m")
    with pytest.raises(InvalidSpecError, match="from 0 to 100000"):
        Wanted(spec=SPEC, replicas=100_001)


def test_a_planner_is_opened_with_a_policy_at_a_time():
    assert open_residency().policy == ResidencyPolicy()
    assert open_residency(at=3.0).clock == 3.0
    with pytest.raises(InvalidSpecError, match="a ResidencyPolicy"):
        open_residency("strict")
    with pytest.raises(InvalidSpecError, match="seconds"):
        open_residency(at=-1.0)


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda: NodeJoined(node_id="", gpu_bytes=(1,), at=0.0), "NodeJoined.node_id"),
        (lambda: NodeJoined(node_id="n", gpu_bytes=[1], at=0.0), "NodeJoined.gpu_bytes"),
        (lambda: NodeJoined(node_id="n", gpu_bytes=(1, -1), at=0.0), "NodeJoined.gpu_bytes[1]"),
        (lambda: NodeJoined(node_id="n", gpu_bytes=(1,) * 1025, at=0.0), "NodeJoined.gpu_bytes"),
        (lambda: NodeJoined(node_id="n", gpu_bytes=(), cpu_bytes=-1, at=0.0), "NodeJoined.cpu_bytes"),
        (lambda: NodeJoined(node_id="n", gpu_bytes=(), labels=3, at=0.0), "NodeJoined.labels"),
        (lambda: NodeLost(node_id="n", at=float("inf")), "NodeLost.at"),
        (lambda: MemoryMeasured(node_id="n", gpu_bytes=("1",), at=0.0), "MemoryMeasured.gpu_bytes[0]"),
        (lambda: DeployRequested(wanted=[], at=0.0), "DeployRequested.wanted"),
        (lambda: DeployRequested(wanted=(SPEC,), at=0.0), "DeployRequested.wanted[0]"),
        (lambda: DeployRequested(wanted=(Wanted(spec=SPEC),) * 2, at=0.0), "DeployRequested.wanted[1].spec.model"),
        (lambda: EvictRequested(at=0.0), "EvictRequested.model"),
        (lambda: EvictRequested(model="m", replica_id="m#0", at=0.0), "EvictRequested.model"),
        (lambda: EvictRequested(model="m", keep=Level.HOT, at=0.0), "EvictRequested.keep"),
        (lambda: EvictRequested(replica_id=" ", at=0.0), "EvictRequested.replica_id"),
        (lambda: ReplicaUsed(replica_id="m#0", in_flight=-1, at=0.0), "ReplicaUsed.in_flight"),
        (lambda: UsageReported(replica_id="m#0", gpu_bytes=(1.0,), at=0.0), "UsageReported.gpu_bytes[0]"),
        (lambda: LoadFinished(replica_id="m#0", move=-1, at=0.0), "LoadFinished.move"),
        (lambda: LoadFailed(replica_id="m#0", move=1, reason=3, at=0.0), "LoadFailed.reason"),
        (lambda: OffloadFinished(replica_id="", move=1, at=0.0), "OffloadFinished.replica_id"),
        (lambda: OffloadFailed(replica_id="m#0", move=1, reason=None, at=0.0), "OffloadFailed.reason"),
        (lambda: ReplicaLost(replica_id="m#0", reason=b"", at=0.0), "ReplicaLost.reason"),
    ],
)
def test_an_event_that_cannot_be_is_refused_by_field(build, field):
    with pytest.raises(InvalidEventError) as caught:
        build()
    assert caught.value.field == field


EVENTS = [
    NodeJoined(node_id="n", gpu_bytes=(80, 80), cpu_bytes=40, labels={"zone": "a"}, at=0.0),
    NodeLost(node_id="n", at=1.0),
    MemoryMeasured(node_id="n", gpu_bytes=(79, 80), at=1.0),
    DeployRequested(wanted=(Wanted(spec=SPEC, replicas=2),), at=1.0),
    EvictRequested(replica_id="m#0", keep=Level.COLD, at=1.0),
    ReplicaUsed(replica_id="m#0", in_flight=2, at=1.0),
    UsageReported(replica_id="m#0", gpu_bytes=(41,), at=1.0),
    LoadFinished(replica_id="m#0", move=1, at=1.0),
    LoadFailed(replica_id="m#0", move=1, reason="x", at=1.0),
    OffloadFinished(replica_id="m#0", move=1, at=1.0),
    OffloadFailed(replica_id="m#0", move=1, reason="x", at=1.0),
    ReplicaLost(replica_id="m#0", reason="x", at=1.0),
    ClockAdvanced(at=1.0),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_every_event_comes_back_exactly(event):
    again = from_json(to_json(event), Event)
    assert again == event
    assert type(again) is type(event)


def busy():
    """A state with something in every table."""
    cluster = Cluster((80,), (80, 80), cpu=60).join("a1", 80, zone="a")
    cluster.deploy(model("a", 50), (model("b", 30, min_hot_s=9.0, idle_to_warm_s=5.0), 2)).settle().evict(model="a").settle()
    return cluster.deploy(model("x", 75), model("z", 500), SPEC)


def test_commands_notes_plans_and_states_come_back_exactly():
    cluster = busy()
    for command in cluster.commands:
        assert from_json(to_json(command), Command) == command
    for note in cluster.notes:
        assert from_json(to_json(note), ResidencyNote) == note
    plan = plan_residency(cluster.state, DeployRequested(wanted=(Wanted(spec=model("y", 70)),), at=0.0))
    assert from_json(to_json(plan), ResidencyPlan) == plan
    again = from_json(to_json(cluster.state), ResidencyState)
    assert again == cluster.state
    assert hash(again) == hash(cluster.state)
    assert again.models["m"].node_labels == {"zone": "a"}
    event = NodeLost(node_id="n1", at=0.0)
    assert residency_step(again, event) == residency_step(cluster.state, event)


def test_labels_that_cannot_be_are_refused_in_a_text():
    text = to_json(EVENTS[0]).replace('{"zone":"a"}', '{"zone":1}')
    with pytest.raises(CodecError, match=r"NodeJoined\.labels\['zone'\] must be a string, got 1"):
        from_json(text, Event)


def test_every_public_name_is_there_and_no_other():
    for name in rankcore.residency.__all__:
        assert getattr(rankcore.residency, name).__name__ == {"ResidencyStep": "Step"}.get(name, name)
    with pytest.raises(AttributeError, match=r"module 'rankcore\.residency' has no attribute 'nothing'"):
        _ = rankcore.residency.nothing


def test_a_plan_says_who_goes_where_and_whom_it_costs():
    cluster = Cluster((80,), cpu=50).deploy(model("c", 20)).settle().evict(model="c").settle()
    cluster.deploy(model("a", 40), model("b", 35)).settle()
    event = DeployRequested(wanted=(Wanted(spec=model("x", 45)), Wanted(spec=model("z", 90))), at=0.0)
    plan = plan_residency(cluster.state, event)
    (placed,) = plan.placed
    assert (placed.node_id, placed.gpus, placed.gpu_bytes, placed.source) == ("n1", (0,), (45,), "COLD")
    assert (placed.displaces, placed.cost_bytes) == (("a#1",), 40)
    (leaving,) = plan.leaving
    assert (leaving.replica_id, leaving.becomes, plan.dropped) == ("a#1", "WARM", ("c#0",))
    assert [cant.model for cant in plan.cant] == ["z"]
    assert residency_step(cluster.state, event).commands == plan.commands


def test_a_plan_of_an_eviction_says_what_is_left():
    cluster = Cluster((80,)).deploy(model("a", 40)).settle()
    (leaving,) = plan_residency(cluster.state, EvictRequested(model="a", at=0.0)).leaving
    assert (leaving.replica_id, leaving.node_id, leaving.becomes) == ("a#0", "n1", "COLD")


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30))), st.integers(-1, 32))
def test_a_sorted_set_is_a_sorted_set(changes, bound):
    limit, sets.CHUNK_MAX = sets.CHUNK_MAX, 4
    try:
        members, plain = Ordered(), set()
        for adds, member in changes:
            before = members
            members = members.add(member) if adds else members.discard(member)
            assert (members is before) is ((member in plain) is adds)
            plain = plain | {member} if adds else plain - {member}
        assert list(members) == list(ordered(plain)) == sorted(plain)
        assert len(members) == len(plain)
        assert list(members.since(bound)) == [member for member in sorted(plain) if member >= bound]
        assert all(members.chunks)
        if plain:
            assert members.first() == min(plain)
    finally:
        sets.CHUNK_MAX = limit


class Sneaky:
    """Equal to whatever it is compared with, as arrays of numbers are in their own way."""

    __hash__ = None

    def __eq__(self, other):
        raise ValueError("the truth value of an array is ambiguous")


class Text(str):
    """What derives from a string, as numpy's do, cannot be written."""


@pytest.mark.parametrize("keep", [Sneaky(), Text("WARM"), Level.HOT, "warm", None, 1, [], ("WARM",)])
def test_what_an_eviction_may_keep_is_a_level_and_nothing_that_looks_like_one(keep):
    with pytest.raises(InvalidEventError, match=r"EvictRequested\.keep must be Level\.WARM or Level\.COLD"):
        EvictRequested(model="m", keep=keep, at=0.0)


@pytest.mark.parametrize("keep", ["WARM", "COLD"])
def test_the_name_of_a_level_is_that_level(keep):
    assert EvictRequested(model="m", keep=keep, at=0.0).keep is Level(keep)
