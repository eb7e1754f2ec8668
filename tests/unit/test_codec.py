"""The codec: every value comes back exactly, its text is always the same, and whatever else is read is refused."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar, get_args

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from rankcore import StaticPlacement, commands, deploy, events, step
from rankcore import __version__ as RELEASE
from rankcore.codec import (
    FORMAT,
    fingerprint,
    from_json,
    from_plain,
    read_object,
    since,
    to_json,
    to_plain,
    write_object,
)
from rankcore.commands import (
    AnnounceWorldSize,
    Command,
    InitializeReplica,
    KillReplica,
    StartReplica,
    StopReplica,
    WakeAt,
)
from rankcore.errors import CodecError, InvalidEventError, InvalidSpecError
from rankcore.events import (
    BundleLost,
    BundleRestored,
    ClockAdvanced,
    Event,
    NodeChanged,
    ReplicaDied,
    ReplicaReady,
    ReplicaReported,
    SpecChanged,
    StopRequested,
)
from rankcore.frozen import FrozenDict, PMap, freeze_json
from rankcore.notes import Note, NoteKind
from rankcore.rankset import RankCounts, RankSet
from rankcore.spec import DeploymentSpec
from rankcore.state import DeploymentState, Node, Replica, Rollout, Slot, Tables
from rankcore.timers import Queue, Sent
from rankcore.values import DeploymentStatus, ReplicaRank, ReplicaState

READY = ReplicaReady(replica_id="llm#1.0", at=3.0)
SPEC = DeploymentSpec(name="llm", target_replicas=4, user_config={"b": [1, {"c": 2.5}], "a": None})

# ---------------------------------------------------------------------------------------------------------------------
# every value comes back

ids = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=12)
counts = st.integers(0, 10_000_000)
revisions = st.integers(0, 2**63 - 1)
moments = st.floats(0, 1e12) | st.integers(0, 10**12)
spans = st.floats(1e-9, 1e12)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ranks = st.builds(ReplicaRank, counts, counts, counts)
configs = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
).map(freeze_json)
specs = st.builds(
    DeploymentSpec,
    name=ids.filter(lambda name: "#" not in name),
    target_replicas=counts,
    user_config=configs,
    version=ids,
    compaction=st.sampled_from(["when_healthy", "immediate"]),
    victims=st.sampled_from(["any", "highest_rank", "newest"]),
    placement=st.sampled_from([None, "pack_ranks"]),
    start_timeout_s=spans,
    max_unavailable=st.none() | st.integers(1, 9),
    rollback=st.booleans(),
    restart_token=st.just("") | ids,
)
placements = st.builds(
    lambda bundles, width, group, group_id: StaticPlacement(
        [bundles[begin : begin + width] for begin in range(0, len(bundles), width)], 51, group=group, group_id=group_id
    ),
    st.lists(st.integers(0, 50), min_size=1, max_size=9, unique=True),
    st.integers(1, 3),
    st.none() | ids,
    st.none() | ids,
)
specs |= st.builds(DeploymentSpec, name=ids.filter(lambda name: "#" not in name), placement=placements, user_config=configs)
BY_FIELD: dict[str, st.SearchStrategy[Any]] = {
    "spec": specs,
    "stop_first": st.lists(ids, max_size=3).map(tuple),
    "replica_ids": st.lists(ids, max_size=3).map(tuple),
    "added": st.lists(ids, max_size=3).map(tuple),
    "removed": st.lists(ids, max_size=3).map(tuple),
    "bundles": st.lists(counts, max_size=3).map(tuple),
    "ranks": st.lists(counts, max_size=3).map(tuple),
    "replica_id": ids,
    "node_id": ids,
    "group_id": st.none() | ids,
    "restart_token": st.just("") | ids,
    "reason": texts,
    "final": st.booleans(),
    "version": ids,
    "revision": revisions,
    "epoch": revisions,
    "rank": ranks,
    "world_size": counts,
    "capacity": counts,
    "user_config": configs,
    "config_id": st.none() | ids,
    "ready": st.booleans(),
    "unready": st.none() | texts,
    "draining": st.booleans(),
    "prepared": st.booleans(),
    "no_room": st.booleans(),
    "accepted": st.booleans(),
    "ready_for_s": st.none() | spans,
    "timeout_s": spans,
    "at": moments,
    "deadline_at": st.none() | moments,
}
BY_CLASS: dict[tuple[type, str], st.SearchStrategy[Any]] = {
    (StartReplica, "rank"): counts,
    (StartReplica, "node_id"): st.none() | ids,
    (ReplicaReported, "rank"): st.none() | ranks,
    (WakeAt, "at"): moments | st.just(float("inf")),
}


def instances(cls: type[Any]) -> st.SearchStrategy[Any]:
    names = [field.name for field in attrs.fields(cls)]
    return st.builds(cls, **{name: BY_CLASS.get((cls, name), BY_FIELD[name]) for name in names})


notes = st.builds(
    Note,
    st.sampled_from(NoteKind),
    texts,
    st.none() | ids,
    st.none() | ranks,
    st.none() | ranks,
    st.none() | counts,
    because=texts,
)


@given(st.one_of([instances(cls) for cls in get_args(Event)]))
def test_every_event_comes_back_exactly(event):
    text = to_json(event)
    again = from_json(text, Event)
    assert again == event
    assert type(again) is type(event)
    assert to_json(again) == text
    assert from_json(text, type(event)) == event
    if isinstance(event, SpecChanged):
        assert again.spec.user_config == event.spec.user_config


@given(st.one_of([instances(cls) for cls in get_args(Command)]))
def test_every_command_comes_back_exactly(command):
    text = to_json(command)
    again = from_json(text, Command)
    assert again == command
    assert type(again) is type(command)
    assert to_json(again) == text


@given(specs)
def test_every_spec_comes_back_with_its_user_config_and_config_id(spec):
    again = from_json(to_json(spec), DeploymentSpec)
    assert again == spec
    assert again.user_config == spec.user_config
    assert again.config_id == spec.config_id


@given(notes)
def test_every_note_comes_back_exactly(note):
    assert from_json(to_json(note), Note) == note


@given(st.sets(st.integers(0, 5_000), max_size=50))
def test_every_rank_set_comes_back_exactly(members):
    assert from_json(to_json(RankSet.of(members)), RankSet) == RankSet.of(members)


def state_of(replica_ids, *, spec=SPEC):
    """A state with something in every kind of table; it need not make sense."""
    placed = ReplicaRank(0, 0, 0)
    pending = InitializeReplica(replica_ids[0], placed, 4, SPEC.user_config, SPEC.config_id, 2**32 + 7, 1)
    replicas = {
        replica_id: Replica(
            replica_id, birth, ReplicaState.RUNNING, "1", birth, "n1", placed, placed, (placed,), pending=pending
        )
        for birth, replica_id in enumerate(replica_ids)
    }
    tables = Tables(
        replicas=PMap(replicas),
        node_of_rank=PMap(dict(enumerate(replica_ids))),
        slots=PMap({birth: Slot(name, failed_build=("1", "x")) for birth, name in enumerate(replica_ids)}),
        taken=RankCounts(RankSet.of([0, 1, 70_000]), PMap({0: 2})),
        rollout=Rollout(running=RankSet.below(1500)),
        nodes=PMap({"n1": Node(0, members=PMap({"llm#1.3": 3}))}),
        unacknowledged=Queue().push(Sent(replica_ids[0], 1.5)),
        configs=PMap({SPEC.config_id: SPEC.user_config}),
        proven=SPEC,
        wake_at=float("inf"),
        spec_at=float("-inf"),
        named=tuple(replica_ids),
    )
    return DeploymentState(spec, DeploymentStatus.HEALTHY, 1, 2.0, tables)


REPLICA_IDS = [f"llm#1.{serial}" for serial in range(40)]


def test_a_state_with_lost_bundles_comes_back_and_goes_on_as_before():
    state = deploy(DeploymentSpec(name="llm", placement=StaticPlacement([[0, 1], [2]], 3, group="pg"))).state
    lost = step(state, BundleLost(bundles=[1, 2], reason="the node is down", at=3.0)).state
    lost = step(lost, ReplicaDied(replica_id="llm#1.0", at=4.0)).state
    again = from_json(to_json(lost), DeploymentState)
    assert again == lost
    assert again.message == lost.message
    back = BundleRestored(bundles=[1], at=5.0)
    assert step(again, back) == step(lost, back)


def test_a_state_comes_back_with_all_its_tables():
    state = state_of(REPLICA_IDS)
    again = from_json(to_json(state), DeploymentState)
    assert again == state
    assert to_json(again) == to_json(state)
    assert type(again.tables.replicas) is PMap
    assert type(again.tables.configs[SPEC.config_id]) is FrozenDict
    assert again.replicas["llm#1.7"].pending == state.replicas["llm#1.7"].pending


def test_a_mapping_comes_back_frozen_and_anything_else_is_refused():
    class Labelled(Struct, frozen=True):
        weights_by_label: Mapping[str, tuple[float, ...]]  # a type that nothing else here has: what is made of one is kept

    made = Labelled(FrozenDict({"b": (2.0,), "a": (1.0, 0.5)}))
    again = from_plain(to_plain(made), Labelled)
    assert again == made
    assert type(again.weights_by_label) is FrozenDict
    with pytest.raises(CodecError, match="weights_by_label"):
        from_plain({**to_plain(made), "weights_by_label": ["a"]}, Labelled)


def test_equal_states_built_in_another_order_have_the_same_text_and_fingerprint():
    forwards = state_of(REPLICA_IDS)
    tables = forwards.tables
    backwards = attrs.evolve(
        forwards,
        spec=attrs.evolve(SPEC, user_config={"a": None, "b": [1, {"c": 2.5}]}),
        tables=Tables(
            **{name: getattr(tables, name) for name in tables.__struct_fields__}
            | {"replicas": PMap(reversed([(name, tables.replicas[name]) for name in REPLICA_IDS]))}
        ),
    )
    assert to_json(backwards) == to_json(forwards)
    assert fingerprint(backwards) == fingerprint(forwards)
    assert fingerprint(backwards) != fingerprint(attrs.evolve(forwards, clock=3.0))


@pytest.mark.parametrize("seed", ["0", "1", "4711"])
def test_a_text_does_not_depend_on_the_hash_seed(seed):
    program = """
from rankcore.codec import to_json
from rankcore.frozen import PMap
from rankcore.state import Tables
names = {f"version-{n}" for n in range(50)}
print(to_json(Tables(configs=PMap({name: None for name in names}))))
"""
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == to_json(Tables(configs=PMap({f"version-{n}": None for n in range(50)})))


def test_user_config_comes_back_frozen_with_tuples_for_lists():
    again = from_json(to_json(SPEC), DeploymentSpec)
    assert type(again.user_config) is FrozenDict
    assert again.user_config["b"] == (1, {"c": 2.5})
    assert hash(again.user_config) == hash(SPEC.user_config)


def test_derived_fields_are_not_written():
    assert "config_id" not in json.loads(to_json(SPEC))


def test_a_text_names_its_release_or_format_and_its_type_and_then_the_fields_in_order():
    assert to_json(READY) == f'{{"release":"{RELEASE}","type":"ReplicaReady","replica_id":"llm#1.0","at":3.0}}'
    assert to_json(SPEC).startswith(
        f'{{"format":[{FORMAT[0]},{FORMAT[1]}],"type":"DeploymentSpec","name":"llm","target_replicas":4,'
    )


def test_spaces_and_the_order_of_fields_do_not_matter_when_reading():
    text = f'{{ "at": 3.00, "replica_id": "llm#1.0",\n"type": "ReplicaReady", "release": "{RELEASE}" }}'
    assert from_json(text, Event) == READY


def test_plain_data_fits_into_a_bigger_object_and_comes_back():
    plain = to_plain(StopRequested(replica_ids=("a", "b"), at=1))
    assert plain == {"type": "StopRequested", "replica_ids": ("a", "b"), "at": 1}
    assert from_plain(plain, Event) == StopRequested(replica_ids=("a", "b"), at=1)
    line = read_object(write_object({"event": plain}))
    assert from_plain(line["event"], Event) == StopRequested(replica_ids=("a", "b"), at=1)
    assert line["event"]["type"] == "StopRequested"


T = TypeVar("T")


class Box(Struct, Generic[T], frozen=True):
    item: T


class Blob(NamedTuple):
    data: bytes | None = None


def test_bytes_come_back():
    for data in (b"", b"\x00\xff", None):
        assert from_json(to_json(Blob(data)), Blob) == Blob(data)
    for wrong in ("?", "A", 7):
        with pytest.raises(CodecError, match="data must be bytes"):
            from_plain({"type": "Blob", "data": wrong}, Blob)


class Pair(NamedTuple):
    command: Command | None
    limit: float | None
    corner: tuple[int, float]
    by_rank: PMap[int, ReplicaRank]
    box: Box[str] = Box("")


class Single(Struct, frozen=True):
    label: str | int


def test_named_tuples_and_mixed_unions_come_back():
    pair = Pair(StopReplica("a", 1.0, 2), float("-inf"), (1, float("inf")), PMap({7: ReplicaRank(1, 2, 3)}), Box("x"))
    assert from_json(to_json(pair), Pair) == pair
    assert from_json(to_json(Pair(None, None, (0, 0.5), PMap())), Pair) == Pair(None, None, (0, 0.5), PMap())
    for label in ("x", 4):
        assert from_json(to_json(Single(label)), Single) == Single(label)


# ---------------------------------------------------------------------------------------------------------------------
# whatever else is read is refused

READY_TEXT = to_json(READY)
REPORTED_TEXT = to_json(
    ReplicaReported(replica_id="a", node_id="n", rank=ReplicaRank(0, 1, 2), version="1", ready=True, epoch=1, at=0.0)
)
SPEC_TEXT = to_json(SpecChanged(spec=SPEC, stop_first=("a",), at=1.0))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "the text must be JSON: Input data was truncated"),
        ('{"format":5,', "the text must be JSON: "),
        ("[" * 100_000, "the text must be JSON that is less deeply nested"),
        ('"\ud800"', "the text must be JSON: "),
        ("NaN", "the text must be JSON: "),
        ('{"format":5,"at":1e999}', "the text must be JSON: Number out of range"),
        (b"{}", "the text must be a string, got b'{}'"),
        ("[1]", "the text must be a JSON object, got [1]"),
        ("{}", "format is missing: rankcore writes [5, "),
        (
            '{"format":1}',
            f"the text has format 1.0, rankcore {RELEASE} reads and writes 5.{FORMAT[1]}: `rankcore upgrade FILE` or",
        ),
        (
            '{"format":[6,0]}',
            f"the text has format 6.0, rankcore {RELEASE} reads and writes 5.{FORMAT[1]}: install the rankcore",
        ),
        ('{"format":[5,999]}', f"the text has format 5.999, rankcore {RELEASE} reads and writes 5.{FORMAT[1]}: install the ra"),
        ('{"format":true}', "format must be [major, minor], got True"),
        ('{"format":[5]}', "format must be [major, minor], got [5]"),
        ('{"format":[5,"0"]}', "format must be [major, minor], got [5, '0']"),
        ('{"release":"0.0.1"}', f"release must be {RELEASE!r}, got '0.0.1': only the release that wrote this text reads it"),
        (
            '{"format":[5,0],"type":"ReplicaReady","replica_id":"a","at":1}',
            "release is missing: a text of a ReplicaReady names it",
        ),
        ('{"format":5}', "type is missing: BundleLost or "),
        ('{"format":5,"type":"Unheard"}', "type must be BundleLost or "),
        ('{"format":5,"type":["ReplicaReady"]}', "got ['ReplicaReady']"),
        ('{"format":5,"type":"ReplicaReady","at":1}', "ReplicaReady.replica_id is missing"),
        (
            READY_TEXT.replace("}", ',"colour\\n":1}'),
            "ReplicaReady['colour\\n'] is unknown: the fields of ReplicaReady are replica_id, at",
        ),
        (READY_TEXT.replace("}", ',"at":4}'), "'at' occurs twice in one object"),
        (SPEC_TEXT.replace('"c":2.5', '"c":2.5,"c":2.5'), "'c' occurs twice in one object"),
        (READY_TEXT.replace("3.0", '"3"'), "ReplicaReady.at must be a number, 'inf' or '-inf', got '3'"),
        (READY_TEXT.replace("3.0", "true"), "ReplicaReady.at must be a number, 'inf' or '-inf', got True"),
        (READY_TEXT.replace('"llm#1.0"', "null"), "ReplicaReady.replica_id must be a string, got None"),
        (REPORTED_TEXT.replace('"rank":0', '"rank":true'), "ReplicaReported.rank.rank must be an integer, got True"),
        (REPORTED_TEXT.replace('"rank":0', '"rank":0.0'), "ReplicaReported.rank.rank must be an integer, got 0.0"),
        (REPORTED_TEXT.replace('"ready":true', '"ready":1'), "ReplicaReported.ready must be true or false, got 1"),
        (
            REPORTED_TEXT.replace('{"rank":0,"node_rank":1,"local_rank":2}', "7"),
            "ReplicaReported.rank must be ReplicaRank or null, got 7",
        ),
        (SPEC_TEXT.replace('["a"]', "[5]"), "SpecChanged.stop_first[0] must be a string, got 5"),
        (SPEC_TEXT.replace('["a"]', "{}"), "SpecChanged.stop_first must be a list, got {}"),
        (
            SPEC_TEXT.replace('"newest"', '"any"').replace('"any"', '"oldest"'),
            "SpecChanged.spec.victims must be one of",
        ),
        (
            '{"format":5,"type":"SpecChanged","spec":7,"stop_first":[],"at":1}',
            "SpecChanged.spec must be an object with the fields of DeploymentSpec, got 7",
        ),
    ],
)
def test_a_text_that_is_no_event_is_refused_and_the_error_says_where_and_why(text, complaint):
    with pytest.raises(CodecError) as caught:
        from_json(text, Event)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_value_that_its_class_refuses_is_refused_with_the_classs_own_error_as_the_cause():
    with pytest.raises(CodecError) as caught:
        from_json(READY_TEXT.replace("3.0", "-1"), Event)
    assert str(caught.value).startswith("ReplicaReady.at must be a finite number of seconds")
    assert isinstance(caught.value.__cause__, InvalidEventError)
    with pytest.raises(CodecError) as caught:
        from_json(SPEC_TEXT.replace('"target_replicas":4', '"target_replicas":-4'), Event)
    assert str(caught.value).startswith("SpecChanged.spec: DeploymentSpec.target_replicas must be an integer from 0")
    assert isinstance(caught.value.__cause__, InvalidSpecError)


def test_a_text_of_another_class_is_refused():
    with pytest.raises(CodecError, match="type must be ReplicaDied, got 'ReplicaReady'"):
        from_json(READY_TEXT, ReplicaDied)
    with pytest.raises(CodecError, match=r"type must be AnnounceWorldSize or .* got 'ReplicaReady'"):
        from_json(READY_TEXT, Command)


STATE_TEXT = to_json(state_of(["llm#1.0", "llm#1.1"]))


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('"birth":1', '"birth":"1"', "DeploymentState.tables.replicas['llm#1.1'].birth must be an integer, got '1'"),
        ('"failures":0', '"failed":0', "DeploymentState.tables.slots[0][1]['failed'] is unknown: the fields of Slot are ho"),
        ('[1,"llm#1.1"]', '[0,"llm#1.1"]', "tables.node_of_rank must be in the order of its keys, each of them"),
        ('[1,"llm#1.1"]', '[1,"llm#1.1",2]', "DeploymentState.tables.node_of_rank[1] must be a list of 2, got"),
        (
            '"node_of_rank":[[0,"llm#1.0"],[1,"llm#1.1"]]',
            '"node_of_rank":{}',
            "node_of_rank must be a list of [key, value] pairs, got {}",
        ),
        ('"touched":{}', '"touched":[]', "DeploymentState.tables.touched must be an object, got []"),
        (
            '"type":"InitializeReplica"',
            '"type":"Init"',
            "tables.replicas['llm#1.0'].pending.type must be AnnounceWorld",
        ),
        ('"type":"InitializeReplica",', "", "tables.replicas['llm#1.0'].pending.type is missing: AnnounceWorldSize or"),
        ('"wake_at":"inf"', '"wake_at":"never"', "DeploymentState.tables.wake_at must be a number, 'inf' or '-inf'"),
        ('"status":"HEALTHY"', '"status":"FINE"', "DeploymentState.status must be one of 'UPDATING', 'UPSCALING', "),
        ('"status":"HEALTHY"', '"status":[]', "DeploymentState.status must be one of 'UPDATING', 'UPSCALING', "),
    ],
)
def test_a_broken_state_is_refused_with_the_path_to_what_is_wrong(old, new, complaint):
    assert old in STATE_TEXT
    with pytest.raises(CodecError) as caught:
        from_json(STATE_TEXT.replace(old, new), DeploymentState)
    assert complaint in str(caught.value)


def nested(depth):
    value: object = 0
    for _ in range(depth):
        value = [value]
    return value


def test_data_that_is_nested_too_deeply_is_refused_in_both_directions():
    plain = {**to_plain(SPEC), "user_config": nested(50_000)}
    with pytest.raises(CodecError, match="'DeploymentSpec' holds data that is nested too deeply"):
        from_plain(plain, DeploymentSpec)
    command = InitializeReplica("a", ReplicaRank(0, 0, 0), 1, nested(50_000), None, 1, 1)
    with pytest.raises(CodecError, match="InitializeReplica holds data that is nested too deeply"):
        to_json(command)


def test_plain_data_that_json_does_not_know_is_refused():
    with pytest.raises(CodecError, match=r"DeploymentSpec.user_config must be JSON-like data \(the value is a set"):
        from_plain({**to_plain(SPEC), "user_config": set()}, DeploymentSpec)
    with pytest.raises(CodecError, match="the value must be an object, got 7"):
        from_plain(7, Event)
    with pytest.raises(CodecError, match="this cannot be written as JSON: "):
        write_object({"event": object()})


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (7, "int is no record class: rankcore has no text for it"),
        (WakeAt(float("nan"), 1), "NaN cannot be written"),
        (InitializeReplica("a", ReplicaRank(0, 0, 0), 1, (float("inf"),), None, 1, 1), "inf cannot be written: JSON"),
        (KillReplica("\ud800", 1), "this cannot be written as JSON: 'utf-8' codec"),
        (Pair(READY, None, (0, 0.0), PMap()), "cannot be written: StartReplica or "),
    ],
)
def test_a_value_without_an_exact_text_is_not_written(value, complaint):
    with pytest.raises(CodecError) as caught:
        to_json(value)
    assert complaint in str(caught.value)


class Ambiguous(Struct):
    value: tuple[int, ...] | PMap[int, int]


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (Ambiguous, r"rankcore cannot tell apart: tuple.* or .*Map"),
        (Queue, r"T is no record class"),
        (int, "int is no record class"),
        (list[int], "list is no record class"),
    ],
)
def test_a_type_that_has_no_text_is_refused(kind, complaint):
    with pytest.raises(CodecError, match=complaint):
        from_json(READY_TEXT, kind)


def test_every_event_and_command_class_is_in_its_union():
    """What is missing there could be made but not read back."""
    for module, union in ((events, Event), (commands, Command)):
        classes = {cls for cls in vars(module).values() if attrs.has(cls) and cls.__module__ == module.__name__}
        assert classes == set(get_args(union))


class Early(Struct, frozen=True):
    name: str
    size: int = 3


@attrs.frozen
class Late:
    name: str
    size: int = 3
    colour: str = attrs.field(default="red", metadata=since(4, 7))
    key: bytes | None = attrs.field(default=None, metadata=since(4, 8))


@pytest.mark.parametrize("kind", [Early, Late, NamedTuple("Named", [("name", str), ("size", int)])])
def test_a_field_that_is_missing_reads_as_its_default_and_one_without_a_default_is_missed(kind):
    plain = {"type": kind.__name__, "name": "a", "size": 3}
    assert from_plain(plain, kind) == kind("a", 3)
    short = {"type": kind.__name__, "name": "a"}
    if kind.__name__ == "Named":
        with pytest.raises(CodecError, match="size is missing"):
            from_plain(short, kind)
    else:
        assert from_plain(short, kind) == kind("a")
    with pytest.raises(CodecError, match="name is missing"):
        from_plain({"type": kind.__name__, "size": 3}, kind)


def test_a_field_that_came_later_is_not_written_while_it_is_at_its_default():
    assert to_plain(Late("a")) == {"type": "Late", "name": "a", "size": 3}
    for late in (Late("a", colour="blue"), Late("a", key=b"k"), Late("a")):
        assert from_plain(to_plain(late), Late) == late
    assert to_plain(Late("a", colour="blue"))["colour"] == "blue"


def test_a_format_that_gains_a_minor_changes_no_fingerprint(monkeypatch):
    before = fingerprint(SPEC)
    monkeypatch.setattr("rankcore.codec.FORMAT", (FORMAT[0], FORMAT[1] + 1))
    assert fingerprint(SPEC) == before


def test_a_field_of_another_version_names_both_formats():
    with pytest.raises(CodecError) as caught:
        from_json(to_json(SPEC).replace('"rollback"', '"colour"'), DeploymentSpec)
    assert "DeploymentSpec['colour'] is unknown: the fields of DeploymentSpec are name, " in str(caught.value)
    both = f"(the text has format 5.{FORMAT[1]}, rankcore {RELEASE} reads and writes 5.{FORMAT[1]}: install the rankcore that"
    assert both in str(caught.value)


def test_a_text_of_a_state_is_for_its_release_and_one_of_a_spec_for_its_format():
    state = deploy(SPEC).state
    with pytest.raises(CodecError, match="release is missing: a text of a DeploymentState names it"):
        from_json(to_json(state).replace(f'"release":"{RELEASE}"', '"format":[5,0]'), DeploymentState)
    with pytest.raises(CodecError, match="format is missing: a text of a DeploymentSpec names it"):
        from_json(to_json(SPEC).replace(f'"format":[5,{FORMAT[1]}]', f'"release":"{RELEASE}"'), DeploymentSpec)


def test_reading_leaves_the_plain_data_as_it_was():
    plain = to_plain(NodeChanged(node_id="n", capacity=3, at=0.0))
    before = dict(plain)
    from_plain(plain, Event)
    assert plain == before


def test_repeated_writing_gives_the_same_text():
    announcement = AnnounceWorldSize(4, 5, 1)
    assert to_json(announcement) == to_json(announcement)


def test_an_integer_that_no_float_holds_is_refused_where_a_float_may_stand():
    with pytest.raises(CodecError, match="at must be a number"):
        from_json(to_json(ClockAdvanced(at=1)).replace('"at":1', '"at":1' + "0" * 400), ClockAdvanced)
    with pytest.raises(CodecError, match="an integer of 1329 bits cannot be written where a float may stand"):
        to_json(WakeAt(at=10**400, epoch=1))
    assert from_json(to_json(WakeAt(at=2**1022, epoch=1)), WakeAt).at == 2**1022
