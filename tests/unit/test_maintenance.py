"""What operators have asked of nodes and replicas: kept across controllers by a file, and by the store of a cluster on Ray."""

import json
from contextlib import nullcontext

import attrs
import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.maintenance import Maintenance
from executors.ray_gpu import checkpoint
from executors.run import maintenance_file
from executors.run.maintenance_file import MaintenanceFile
from rankcore import codec
from rankcore.codec import to_json
from rankcore.events import NodeCordoned, NodeDrainRequested, NodeUncordoned, ReplaceRequested

CORDON, DRAIN = NodeCordoned(node_id="a", at=1.0), NodeDrainRequested(node_id="b", deadline_at=9.5, reason="new driver", at=3.0)
ASKED = [ReplaceRequested(replica_ids=(f"a/m#1.{each}",), deadline_at=9.5, at=3.0) for each in range(2)]


class OnRay:
    """The keys and values of a cluster's store, of which another namespace has some too."""

    def __init__(self, monkeypatch):
        self.kept = kept = {b"other/cordon/z": to_json(CORDON).encode()}
        for name, function in {
            "_put": lambda key, value, *, overwrite: kept.update({key: value}),
            "_get": kept.get,
            "_list": lambda prefix: sorted(key for key in kept if key.startswith(prefix)),
            "_delete": lambda key: kept.pop(key, None),
        }.items():
            monkeypatch.setattr(checkpoint, name, function)
        self.store = checkpoint.Checkpoint("ns")

    def damage(self, text, damaged):
        (key,) = (each for each, value in self.kept.items() if value == text and each.startswith(b"ns/"))
        self.kept[key] = damaged


class InAFile:
    def __init__(self, path):
        self.path = path
        self.store = MaintenanceFile(path, nullcontext)

    def damage(self, text, damaged):
        self.path.write_bytes(self.path.read_bytes().replace(text, damaged))


@pytest.fixture(params=["Ray", "file"])
def place(request, tmp_path, monkeypatch):
    return OnRay(monkeypatch) if request.param == "Ray" else InAFile(tmp_path / "said")


def read(place):
    found = Maintenance(place.store)
    found.read()
    return found


def test_what_was_asked_last_of_each_node_and_replica_is_what_the_next_controller_finds(place):
    kept = read(place)
    assert kept.requests == {}
    both = attrs.evolve(ASKED[0], replica_ids=("a/m#1.0", "a/m#1.1"))
    for each in (CORDON, NodeCordoned(node_id="b", at=2.0), DRAIN, ReplaceRequested(replica_ids=("a/m#1.0",), at=1.0), both):
        kept.ask(each)
    for found in (kept, read(place)):
        assert found.cordons == {"a": CORDON, "b": DRAIN}
        assert found.replacements == {"a/m#1.0": ASKED[0], "a/m#1.1": ASKED[1]}
    kept.forget(nodes=("a", "c"), replicas=("a/m#1.1", "nobody"))
    for found in (kept, read(place)):
        assert (found.cordons, found.replacements) == ({"b": DRAIN}, {"a/m#1.0": ASKED[0]})
    kept.forget(nodes=("b",), replicas=("a/m#1.0",))
    assert read(place).requests == {}


DAMAGE = {
    "replica_ids must be of one replica, got ()": {"replica_ids": []},
    "replica_ids must be of one replica, got ('a/m#1.0', 'a/m#1.1')": {"replica_ids": ["a/m#1.0", "a/m#1.1"]},
    "deadline_at": {"deadline_at": "soon"},
    "replica_ids": {"replica_ids": None},
    "format": {"format": [99, 0]},
    "type": {"type": "NodeUncordoned"},
}


@pytest.mark.parametrize("problem", DAMAGE)
def test_a_request_that_is_damaged_is_said_to_be_with_its_field_and_the_others_hold(place, caplog, problem):
    for each in (CORDON, *ASKED):
        read(place).ask(each)
    text = to_json(ASKED[0])
    place.damage(text.encode(), json.dumps({**json.loads(text), **DAMAGE[problem]}).encode())
    assert list(read(place).requests.values()) == [CORDON, ASKED[1]]
    (message,) = caplog.messages
    assert message.startswith(("what is stored as ns/replacement/a/m#1.0 cannot be read", "a line of /"))
    assert problem in message
    assert message.endswith("cordon, drain or replace that again")


@pytest.mark.parametrize("damaged", [b"{", b"\xff", b"", to_json(NodeUncordoned(node_id="a", at=1.0)).encode()])
def test_what_is_no_request_at_all_is_left_out(place, damaged):
    for each in (CORDON, DRAIN):
        read(place).ask(each)
    place.damage(to_json(CORDON).encode(), damaged)
    assert list(read(place).requests.values()) == [DRAIN]


def test_a_request_under_the_key_of_another_is_left_out(monkeypatch, caplog):
    place = OnRay(monkeypatch)
    read(place).ask(ASKED[0])
    place.damage(to_json(ASKED[0]).encode(), to_json(ASKED[1]).encode())
    assert read(place).requests == {}
    assert "its key must be 'replacement/a/m#1.1', got 'replacement/a/m#1.0'" in caplog.text


def test_what_is_dropped_while_it_is_read_is_no_damage(monkeypatch, caplog):
    place = OnRay(monkeypatch)
    read(place).ask(CORDON)
    monkeypatch.setattr(checkpoint, "_get", lambda key: None)
    assert (read(place).requests, caplog.messages) == ({}, [])


def test_all_is_forgotten_of_one_namespace_and_of_no_other(monkeypatch):
    place = OnRay(monkeypatch)
    for each in (CORDON, DRAIN, *ASKED):
        read(place).ask(each)
    place.store.forget_maintenance()
    assert list(place.kept) == [b"other/cordon/z"]


def test_what_cannot_be_stored_does_not_count(place, monkeypatch):
    kept = read(place)
    kept.ask(CORDON)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(maintenance_file, "write_whole", full)
        disk.setattr(checkpoint, "_put", full)
        with pytest.raises(OSError, match="No space left"):
            kept.ask(DRAIN)
    for found in (kept, read(place)):
        assert found.requests == {"cordon/a": CORDON}


def test_what_has_changed_alone_is_put_into_the_store_of_a_cluster(monkeypatch):
    place, put = OnRay(monkeypatch), []
    kept = read(place)
    kept.ask(CORDON)
    monkeypatch.setattr(checkpoint, "_put", lambda key, value, *, overwrite: put.append(key))
    kept.ask(CORDON)
    kept.ask(DRAIN)
    assert put == [b"ns/cordon/b"]


@pytest.mark.traced
@pytest.mark.parametrize("release", ["0.1.0", "9.9"])
def test_what_an_older_release_stored_is_found_by_the_next_one(place, monkeypatch, release):
    """Texts of before requests had a format name the release; those of now have a format, which a release does not change."""
    for each in (CORDON, DRAIN, *ASKED):
        read(place).ask(each)
        plain = json.loads(to_json(each))
        assert "release" not in plain
        if release == "0.1.0":
            plain.pop("format")
            place.damage(to_json(each).encode(), json.dumps({"release": release, **plain}).encode())
    monkeypatch.setattr(codec, "RELEASE", "10.0")
    assert list(read(place).requests.values()) == [CORDON, DRAIN, *ASKED]
