"""Stored texts and messages of other releases: which change of a class is legal, and what becomes of old texts."""

import copy
import errno
import json
import os
import pickle
from contextlib import suppress
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.cli.app import app
from executors.ray_gpu import checkpoint, messages, names
from executors.ray_gpu.checkpoint import Checkpoint
from executors.ray_gpu.extras import RayExtras, extras_of
from executors.ray_gpu.messages import Report
from executors.ray_gpu.overview import Status
from executors.ray_gpu.requests.handle import CallOptions
from executors.run.checkpoint import read_record
from executors.run.files import DamagedFileError
from rankcore import DeploymentSpec, deploy, recover, step
from rankcore.autoscaling import AutoscalingSpec
from rankcore.cluster.records import Record
from rankcore.codec import FORMAT, from_json, from_plain, read_object, since, to_json, to_plain
from rankcore.commands import KillReplica, QueryReplica, StartReplica, StopReplica
from rankcore.errors import CodecError
from rankcore.events import ReplicaReported
from rankcore.routing import RoutingSpec
from rankcore.upgrade import UPGRADES, upgraded
from rankcore.values import DeploymentStatus, ReplicaRank
from tests.stored_schema import GOLDEN, LEGAL, REGENERATE, STORED, schema, verdict

pytestmark = pytest.mark.traced

KINDS = {cls.__name__: cls for cls in STORED}
NEXT, UPGRADE = f"({FORMAT[0] + 1}, 0)", f"upgrade_{FORMAT[0]}_to_{FORMAT[0] + 1}"
PAIRS = sorted(GOLDEN.glob("*_to_*/*.json"))
OLD = [
    *(path for path in PAIRS if path.stem.endswith(f".{path.parent.name[0]}")),
    *sorted(GOLDEN.glob("4_without_minor/*.json")),
]

# ---------------------------------------------------------------------------------------------------------------------
# which change is legal


def test_classes_and_messages_are_as_the_schema_has_them():
    """A failure says what is legal, and what is to be done then."""
    kept = json.loads((GOLDEN / "schema.json").read_text())
    assert verdict(kept, schema()) == ""
    assert kept == json.loads(json.dumps(schema())), REGENERATE


def changed(path, value=None, **others):
    """The schema of code in which one thing is otherwise; value None: it is gone."""
    now = {**json.loads(json.dumps(schema())), **others}
    *way, last = path
    place = now
    for each in way:
        place = place[each]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return now


SPEC_FIELDS = ("stored", "DeploymentSpec")
RED = {"type": "str", "default": "'red'"}
NEXT_MINOR, NEXT_MAJOR = [FORMAT[0], FORMAT[1] + 1], [FORMAT[0] + 1, 0]


@pytest.mark.parametrize(
    ("now", "what", "legal"),
    [
        (changed((*SPEC_FIELDS, "rollback")), "DeploymentSpec.rollback is gone", f"FORMAT = {NEXT}"),
        (
            changed((*SPEC_FIELDS, "rollback")),
            "stored texts would not be read",
            f"`{UPGRADE}` in rankcore/upgrade.py",
        ),
        (
            changed((*SPEC_FIELDS, "version", "default"), "'2'"),
            "DeploymentSpec.version was str = '1' and is str = '2'",
            NEXT,
        ),
        (
            changed((*SPEC_FIELDS, "rollback", "type"), "int"),
            "rollback was bool = False and is int = False",
            NEXT,
        ),
        (
            changed((*SPEC_FIELDS, "colour"), {"type": "str"}),
            "DeploymentSpec.colour is new and has no default",
            NEXT,
        ),
        (changed(("stored", "Record")), "Record is gone", NEXT),
        (changed((*SPEC_FIELDS, "rollback"), format=NEXT_MINOR), "DeploymentSpec.rollback is gone", NEXT),
        (
            changed((*SPEC_FIELDS, "rollback"), format=NEXT_MAJOR),
            f"a new major, with {UPGRADE}",
            LEGAL,
        ),
        (
            changed((*SPEC_FIELDS, "colour"), RED),
            "DeploymentSpec.colour: added, with a default",
            f"({FORMAT[0]}, {FORMAT[1] + 1})",
        ),
        (changed((*SPEC_FIELDS, "colour"), RED, format=NEXT_MINOR), "added, with a default", f"`metadata=since({FORMAT[0]}, "),
        (changed((*SPEC_FIELDS, "colour"), {**RED, "since": NEXT_MINOR}, format=NEXT_MINOR), "as it should be", LEGAL),
        (changed(("protocol",), names.PROTOCOL, format=NEXT_MINOR), "nothing has changed since", "FORMAT is"),
        (changed(("messages", "Report", "epoch")), "Report.epoch is gone", "PROTOCOL one more in executors/ray_gpu/names.py"),
        (changed(("frames", "GRANT"), 99), "frames have other numbers", "PROTOCOL one more"),
        (changed(("frames", "LATER"), 18), "messages have changed", LEGAL),
        (changed(("messages", "Report", "colour"), RED), "messages have changed: Report.colour", LEGAL),
        (
            changed(("scenarios", "Deployment", "drain_s")),
            "Deployment.drain_s is gone",
            "where scenario files that say it otherwise",
        ),
        (changed(("scenarios", "Deployment", "colour"), RED), "Deployment.colour: added to scenarios", LEGAL),
    ],
)
def test_the_schema_names_the_one_legal_choice(now, what, legal):
    found = verdict(json.loads(json.dumps(schema())), now)
    assert what in found
    assert legal in found
    assert found.startswith(LEGAL[:-2]) == (legal == LEGAL or "where scenario" in legal), "else it cannot be written"


def younger(cls):
    """The class as a later release may have it: with a defaulted field more."""
    colour = attrs.field(default="red", metadata=since(FORMAT[0], 1))
    made = attrs.make_class(cls.__name__, {"colour": colour}, bases=(cls,), frozen=True, kw_only=True)
    made.__annotations__["colour"] = str
    return made


@pytest.mark.parametrize("path", [path for path in PAIRS if path.stem.endswith(f".{FORMAT[0]}")], ids=lambda path: path.stem)
def test_a_defaulted_field_more_breaks_no_stored_text_and_changes_none(path):
    plain = read_object(path.read_text())
    del plain["format"]
    kind = KINDS[plain["type"]]
    later = younger(kind)
    read = from_plain(plain, later)
    assert read.colour == "red"
    assert to_plain(read) == to_plain(from_plain(plain, kind)), "so a fingerprint of before holds"
    blue = attrs.evolve(read, colour="blue")
    assert from_json(to_json(blue), later) == blue
    with pytest.raises(CodecError, match=r"\['colour'\] is unknown: the fields of "):
        from_json(to_json(blue), kind)


# ---------------------------------------------------------------------------------------------------------------------
# texts of older formats


@pytest.mark.parametrize("path", OLD, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_what_an_older_release_stored_is_read(path):
    text = upgraded(path.read_text())
    value = from_json(text, KINDS[read_object(text)["type"]])
    assert value == from_json(to_json(value), type(value))
    assert upgraded(text) == text, "once is enough"


@pytest.mark.parametrize("path", [path for path in OLD if path in PAIRS], ids=lambda path: path.stem)
def test_each_upgrade_makes_what_its_pair_of_texts_has(path):
    major = int(path.parent.name[0])
    plain = read_object(path.read_text())
    plain.setdefault("type", "Record")
    expected = read_object(path.with_name(path.name.replace(f".{major}.", f".{major + 1}.")).read_text())
    done = json.loads(json.dumps(UPGRADES[major](plain)))
    assert {**done, "format": 0} == {**expected, "format": 0}


def test_every_step_of_the_way_has_an_upgrade_and_texts():
    assert sorted(UPGRADES) == list(range(3, FORMAT[0]))
    assert {path.parent.name for path in PAIRS} == {f"{major}_to_{major + 1}" for major in UPGRADES}


def test_the_next_major_upgrades_texts_of_any_minor_of_this_one(monkeypatch):
    monkeypatch.setattr("rankcore.upgrade.FORMAT", tuple(NEXT_MAJOR))
    monkeypatch.setitem(UPGRADES, FORMAT[0], lambda data: {**data, "version": data["version"] + "!"})
    for old in (to_json(DeploymentSpec(name="m", target_replicas=1)), (GOLDEN / "3_to_4" / "spec.3.json").read_text()):
        done = read_object(upgraded(old))
        assert done["format"] == NEXT_MAJOR
        assert done["version"].endswith("!")


def test_a_record_of_ray_comes_over_whole():
    record = from_json(upgraded((GOLDEN / "3_to_4" / "ray_record.3.json").read_text()), Record)
    applied, extras = record.applied, extras_of(record.applied)
    assert (record.deployment, record.spec.name, record.previous.name, record.number) == (*["chat/llm"] * 3, 0)
    assert record.spec.user_config == {"layers": (1, {"c": 2.5}), "model": "b", "none": None}
    assert (record.spec.version, record.previous.version) == ("v2", "v1")
    assert (record.deleting, record.failed, record.trouble, record.deleted) == (True, True, "", False)
    assert (record.route_prefix, record.is_ingress) == ("/llm", True)
    assert applied.ranks == record.spec, "what the user applied last was not stored"
    assert applied.routing == RoutingSpec(
        name="chat/llm", max_ongoing_requests=5, policy="affinity", request_timeout_s=1.5, by_credits=True
    )
    assert applied.autoscaling == AutoscalingSpec(min_replicas=1, max_replicas=9, target_ongoing_requests=3)
    assert (applied.policy, extras.policy.name, extras.policy.pickled) == (*["policies:by_queue"] * 2, b"\x80\x05pickled")
    assert (extras.class_name, extras.spares, extras.id_on_ray) == ("models.Llm", 2, "llm"), "its replicas are called so"


@pytest.mark.parametrize(
    ("application", "name", "deployment", "id_on_ray"),
    [
        ("chat", "chat/llm", "chat/llm", None),
        ("chat", "llm", "chat/llm", "llm"),
        ("", "llm", "default/llm", "llm"),
        ("examples/app.py:app", "app", "examples.app.py:app/app", "app"),
        ("x", "a/c", "x/a.c", "a/c"),
    ],
)
def test_a_record_of_ray_gets_a_full_name_and_knows_what_its_replicas_are_called(application, name, deployment, id_on_ray):
    spec = to_plain(DeploymentSpec(name=name, target_replicas=1))
    del spec["type"]
    old = {"format": [4, 0], "type": "Record", "spec": spec, "previous": None, "class_name": "m.M", "app_name": application}
    record = from_json(upgraded(json.dumps(old)), Record)
    assert (record.deployment, record.previous, record.applied.routing) == (deployment, None, None)
    assert extras_of(record.applied) == RayExtras(class_name="m.M", id_on_ray=id_on_ray)


def test_a_previous_spec_of_another_name_stays_one_and_is_refused_by_whoever_recovers_it():
    specs = [to_plain(DeploymentSpec(name=name, target_replicas=1)) for name in ("a/m", "a/other")]
    spec, other = ({field: value for field, value in each.items() if field != "type"} for each in specs)
    old = {"format": [4, 0], "type": "Record", "spec": spec, "previous": other, "class_name": "m.M", "app_name": "a"}
    assert from_json(upgraded(json.dumps(old)), Record).previous.name == "a/other"


def ray_text(**fields):
    return json.dumps({**json.loads((GOLDEN / "3_to_4" / "ray_record.3.json").read_text()), **fields})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"format":2,"type":"DeploymentSpec"}', "the text has format 2.0, rankcore .* reads and writes 5"),
        ('{"format":9,"type":"DeploymentSpec"}', "the text has format 9.0, rankcore .* install the rankcore that wrote it"),
        ('{"format":[6,0],"type":"DeploymentSpec"}', "the text has format 6.0"),
        ('{"format":3,"type":"DeploymentState"}', "'DeploymentState' of format 3 cannot be upgraded: only DeploymentSpec, Rec"),
        ('{"format":4,"type":"ReplicaReady"}', "'ReplicaReady' of format 4 cannot be upgraded"),
        ('{"format":3}', "None of format 3 cannot be upgraded"),
        ('{"format":[4,0],"type":"Record","spec":{"name":7},"app_name":"a"}', "a record with a spec and the name of an app"),
        (to_json(deploy(DeploymentSpec(name="m", target_replicas=1)).state), "is for the release of rankcore that wrote it"),
        ("{}", "format is missing"),
        ('{"format":[[],0],"type":"Record"}', r"format must be \[major, minor\], got \[\[\], 0\]"),
        ('{"format":[3.0,0],"type":"Record"}', r"format must be \[major, minor\], got \[3.0, 0\]"),
        ('{"format":[3,"0"],"type":"Record"}', r"format must be \[major, minor\], got \[3, '0'\]"),
        ('{"format":3,"type":"Record"}', "the text must be a string, got None"),
        (ray_text(spec=7), "the text must be a string, got 7"),
        (ray_text(spec="{}"), "DeploymentSpec.name is missing"),
        (ray_text(routing=[]), r"an object with the fields of RoutingSpec is expected, got \[\]"),
        (ray_text(routing={"type": 1, "name": ""}), "RoutingSpec.name must be"),
        (ray_text(autoscaling={"min_replicas": -1}), "AutoscalingSpec.min_replicas must be"),
    ],
)
def test_what_cannot_be_upgraded_is_refused(text, complaint):
    with pytest.raises(CodecError, match=complaint):
        upgraded(text)


OF_ANY_KIND = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(0, 5)
    | st.floats(allow_nan=False)
    | st.sampled_from(["Record", "DeploymentSpec", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["format", "name"]), inner, max_size=2),
    max_leaves=6,
)


@given(
    st.dictionaries(
        st.sampled_from(["format", "type", "spec", "previous", "class_name", "app_name", "routing", "autoscaling"]), OF_ANY_KIND
    )
)
def test_nothing_but_a_codec_error_is_raised_because_of_what_an_old_text_holds(data):
    """A controller that meets such a record leaves that one alone; of anything else it would take the store for unreachable."""
    with suppress(CodecError):
        upgraded(json.dumps(data))


def test_a_record_of_before_routing_options_has_none():
    data = json.loads(ray_text())
    del data["routing"], data["autoscaling"]
    applied = from_json(upgraded(json.dumps(data)), Record).applied
    assert (applied.routing, applied.autoscaling) == (None, None)


def test_a_local_controller_reads_the_record_that_an_older_release_left(tmp_path):
    for text in (GOLDEN / "3_to_4" / "local_record.3.json", GOLDEN / "4_without_minor" / "local_record.json"):
        (tmp_path / "record.json").write_text(text.read_text())
        record = read_record(tmp_path, "default/llm")
        assert (record.deployment, record.applied.ranks) == ("default/llm", record.spec)
        assert (record.spec.version, record.previous.version, record.failed) == ("v2", "v1", True)
    (tmp_path / "record.json").write_text('{"format":[6,0],"type":"Recovered"}')
    with pytest.raises(DamagedFileError, match=r"the text has format 6\.0, rankcore .* install the rankcore that wrote it"):
        read_record(tmp_path, "default/llm")


# ---------------------------------------------------------------------------------------------------------------------
# a cluster that is upgraded in place, from what the older release left in it


def test_a_controller_takes_over_the_records_of_an_older_release_and_rolls_its_replicas_within_max_unavailable(monkeypatch):
    texts = [GOLDEN / "3_to_4" / "plain_ray_record.3.json", GOLDEN / "4_without_minor" / "ray_record.json"]
    stored = {names.older_record_key("ns", json.loads(json.loads(path.read_text())["spec"])["name"]): path for path in texts}
    later = names.older_record_key("ns", "later")
    newer = to_json(DeploymentSpec(name="later", target_replicas=1)).replace(f"[{FORMAT[0]},", f"[{FORMAT[0]},99").encode()
    monkeypatch.setattr(checkpoint, "_list", lambda prefix: sorted(key for key in [*stored, later] if key.startswith(prefix)))
    monkeypatch.setattr(checkpoint, "_get", lambda key: stored[key].read_bytes() if key in stored else newer)
    records = {found.id_on_ray: found for found in Checkpoint("ns").records(before_epoch=2)}
    one_of_a_newer_release = records.pop("later")
    assert (
        one_of_a_newer_release.record,
        f"the text has format {FORMAT[0]}.99{FORMAT[1]}" in one_of_a_newer_release.problem,
    ) == (
        None,
        True,
    )
    assert {name: found.record.spec.name for name, found in records.items()} == {"llm": "chat/llm", "rl": "default/rl"}

    spec = attrs.evolve(records["llm"].record.spec, max_surge=0, max_unavailable=2)
    ids = [f"chat/llm#1.{serial}" for serial in range(4)]
    state, commands, _ = recover(spec, ids, at=0.0, epoch=2, previous=records["llm"].record.previous)
    assert [type(each) for each in commands if isinstance(each, QueryReplica)] == [QueryReplica] * 4
    given = []
    for rank, replica_id in enumerate(ids):
        before = ReplicaReported(
            replica_id=replica_id,
            node_id="n",
            rank=ReplicaRank(rank, 0, rank),
            version=names.generation(spec.version, 1),
            ready=True,
            config_id=spec.config_id,
            epoch=2,  # it has heard of this controller by the query
            at=1.0,
        )
        state, commands, _ = step(state, before)
        given += commands
    assert state.status is DeploymentStatus.UPDATING
    assert len([each for each in given if isinstance(each, StopReplica)]) == 2, "max_unavailable"
    assert not [each for each in given if isinstance(each, (KillReplica, StartReplica))]
    assert len(state.replicas) == 4


@pytest.mark.parametrize("stored", [b"", b"\x80", b"[]", b"{}", b'{"http":{"colour":"red"},"grpc":null}'])
def test_what_is_stored_and_cannot_be_read_is_no_store_that_does_not_answer(monkeypatch, stored):
    """The controller asks that one again, for ever, before it looks after anything."""
    monkeypatch.setattr(checkpoint, "_get", lambda key: stored)
    assert Checkpoint("ns").code("a/m", "v1") is None
    assert Checkpoint("ns").proxies() is None


def test_replicas_of_the_same_protocol_are_of_their_own_version():
    assert names.generation("v1", names.PROTOCOL) == "v1"
    assert names.generation("v1", 1) == "v1@protocol-1"


def test_messages_and_code_that_an_older_release_pickled_are_read():
    read = {path.stem: pickle.loads(path.read_bytes()) for path in sorted((GOLDEN / "protocol_1").glob("*.pickle"))}
    assert sorted(read) == ["change", "code", "report", "routes"]
    assert read["report"].endpoint.replica_id == "llm#1.0"
    assert (read["report"].history, read["report"].protocol) == (((1.0, (0, 0, 0)),), 2)
    assert (read["routes"].problem, read["routes"].retry_after_s) == ("", None)
    assert (read["change"].user_config, read["change"].keeps_config) == ({"a": [1]}, False)
    assert (read["code"].sys_path, read["code"].sys_path_behind) == (("/srv/app",), ())
    for value in read.values():
        assert pickle.loads(pickle.dumps(value)) == value


def test_what_a_newer_release_says_besides_is_left_out():
    report = pickle.loads((GOLDEN / "protocol_1" / "report.pickle").read_bytes())
    again = Report.__new__(Report)
    again.__setstate__({**report.__getstate__(), "colour": "red"})
    assert again == report


def test_the_status_of_a_controller_of_an_older_release_is_read():
    now = Status.of_nothing("n")
    older = Status.__new__(Status)
    older.__setstate__({name: each for name, each in now.__getstate__().items() if name not in ("journal_problem", "routes")})
    assert older == now
    assert older.routes is not now.routes


def test_a_handle_that_an_older_release_has_stored_with_a_deployment_is_read():
    """It stood in the arguments of what called another: after an upgrade in place no replica of that started again."""
    now = CallOptions(method_name="ask")
    older = CallOptions.__new__(CallOptions)
    newer = ("request_id", "request_serialization", "response_serialization")
    older.__setstate__({name: each for name, each in now.__getstate__().items() if name not in newer})
    assert older == now


def test_every_message_is_read_across_releases():
    for cls in vars(messages).values():
        if attrs.has(cls) and cls.__module__ == messages.__name__:
            assert cls.__setstate__.__name__ == "restore", cls


# ---------------------------------------------------------------------------------------------------------------------
# in the shell


def upgrade(*files):
    return CliRunner().invoke(app, ["upgrade", *map(str, files)])


@pytest.fixture
def old_files(tmp_path):
    files = []
    for name in ("spec", "static_spec", "local_record", "ray_record"):
        files.append(tmp_path / f"{name}.json")
        files[-1].write_text((GOLDEN / "3_to_4" / f"{name}.3.json").read_text())
    return files


def test_files_are_upgraded_and_then_left_as_they_are(old_files):
    done = upgrade(*old_files)
    assert (done.exit_code, done.stderr) == (0, "")
    now = ".".join(map(str, FORMAT))
    assert done.stdout.splitlines() == [f"{path}: is of format {now} now" for path in old_files]
    texts = {path: path.read_text() for path in old_files}
    for path, text in texts.items():
        expected = (GOLDEN / "4_to_5" / f"{path.stem}.5.json").read_text()
        assert read_object(text) == {**read_object(expected), "format": list(FORMAT)}
    again = upgrade(*old_files)
    assert again.stdout.splitlines() == [f"{path}: is of format {now} already, and left as it is" for path in old_files]
    assert {path: path.read_text() for path in old_files} == texts


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("bad.json", b'{"format":[9,0],"type":"DeploymentSpec"}', "the text has format 9.0, rankcore"),
        ("bad.json", b'{"format":4,"type":"DeploymentSpec","name":7}', "DeploymentSpec.name must be a string, got 7"),
        ("bad.json", b"\xff", "can't decode"),
        ("bad.json", b"[1]", "the text must be a JSON object"),
        (
            "run.jsonl",
            b'{"journal":1,"about":{}}\n{"deployment":"m"}\n',
            "is a journal, which only the release of rankcore that",
        ),
        ("peak.yaml", b"seed: 1\n", "nodes: expected at least one group of nodes, or node_list"),
        ("gone.json", None, "No such file or directory"),
        ("bad.json", b"", "the text must be JSON"),
        ("bad.json", b'{"format":[4,0],"type":"Deploy', "the text must be JSON"),
        (
            "bad.json",
            b'{"format":[4,0]}',
            "type must be one of DeploymentSpec, AutoscalingSpec, RoutingSpec, Recovered, Record, got",
        ),
        ("bad.json", b'{"format":[4,0],"type":[]}', "type must be one of DeploymentSpec, "),
        ("bad.json", b'{"format":[4,0],"type":"Nonsense"}', "got 'Nonsense'"),
    ],
)
def test_no_file_is_changed_where_one_cannot_be_upgraded(old_files, tmp_path, name, text, complaint):
    if text is not None:
        (tmp_path / name).write_bytes(text)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    done = upgrade(*old_files, tmp_path / name)
    assert (done.exit_code, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_what_may_not_be_written_is_left_as_it_is_and_all_others_too(old_files, monkeypatch):
    before = {path: path.read_bytes() for path in old_files}
    monkeypatch.setattr(
        "os.access", lambda path, mode: mode != os.W_OK or Path(path) != old_files[-1]
    )  # nothing is read-only for root
    done = upgrade(*old_files)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"rankcore: error: {old_files[-1]} is read-only: make it writable, or give a copy of it\n"
    assert {path: path.read_bytes() for path in old_files} == before


@pytest.mark.parametrize(("full", "changed"), [("fsync", 0), ("replace", 2)])
def test_on_a_full_disk_no_file_is_changed_and_what_fails_later_says_which_are(old_files, monkeypatch, full, changed):
    """All the new texts are on the disk before the first file is renamed."""
    works, calls = getattr(os, full), []

    def fails_the_third_time(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return works(*arguments)

    before = {path: path.read_bytes() for path in old_files}
    monkeypatch.setattr(os, full, fails_the_third_time)
    done = upgrade(*old_files)
    assert (done.exit_code, done.stdout) == (2, "")
    named = ", ".join(map(str, old_files[:changed]))
    so_far = f"upgraded: {named}; the others are as they were" if changed else "no file was changed"
    assert done.stderr == f"rankcore: error: {old_files[2]} cannot be written: No space left on device; {so_far}\n"
    assert [path for path in old_files if path.read_bytes() != before[path]] == old_files[:changed]
    assert sorted(old_files[0].parent.iterdir()) == sorted(old_files), "nothing is left beside them"


def test_a_link_stays_one_and_the_file_it_names_is_upgraded_and_read_by_nobody_more(old_files, tmp_path):
    old_files[0].chmod(0o600)
    link = tmp_path / "link.json"
    link.symlink_to(old_files[0])
    assert upgrade(link).exit_code == 0
    assert link.is_symlink()
    assert read_object(old_files[0].read_text())["format"] == list(FORMAT)
    assert old_files[0].stat().st_mode & 0o777 == 0o600


def test_the_help_says_what_needs_it_and_what_does_not():
    said = " ".join(upgrade("--help").stdout.split())
    for words in ('{"format":[4,0],"type":"DeploymentSpec"', "rankcore upgrade llm.json", "A journal, a state"):
        assert words in said


def test_a_schema_that_is_changed_by_hand_only_is_no_way_out():
    """The test of the schema is of both directions: what it has and the code has not is gone."""
    kept = json.loads((GOLDEN / "schema.json").read_text())
    more = copy.deepcopy(kept)
    more["stored"]["DeploymentSpec"]["colour"] = RED
    assert "DeploymentSpec.colour is gone" in verdict(more, kept)
