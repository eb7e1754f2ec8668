"""Another version of a model takes the place of the one before, which leaves nothing in memory (T10)."""

import pytest

from rankcore.errors import InvalidSpecError
from rankcore.residency import Level
from rankcore.residency.commands import DropFromCpu, LoadToGpu, UnloadFromGpu
from tests.residents import Cluster, model


def old(**fields):
    return model("m", 30, version="1", **fields)


def new(**fields):
    return model("m", 30, version="2", **fields)


def memory_of(cluster):
    return {(record.level, bool(record.gpus), record.copy_node_id) for record in cluster.state.replicas.values()}


def test_what_serves_leaves_without_a_copy_and_is_loaded_from_disk_in_the_new_version():
    cluster = Cluster((80,), cpu=100).deploy((old(), 2)).settle().deploy((new(), 2))
    unloads = [each for each in cluster.commands if isinstance(each, UnloadFromGpu)]
    assert [(each.replica_id, each.keep_copy) for each in unloads] == [("m#0", False), ("m#1", False)]
    assert not any(isinstance(each, LoadToGpu) for each in cluster.pending)
    cluster.settle()
    assert len(cluster.state.hot_replicas("m")) == 2
    assert cluster.state.models["m"].version == "2"
    assert {record.copy_node_id for record in cluster.state.replicas.values()} == {None}


def test_the_same_version_leaves_everything_where_it_is():
    cluster = Cluster((80,), cpu=100).deploy(old()).settle().deploy(old(priority=3))
    assert cluster.sent() == []
    assert cluster.state.hot_replicas("m") == ("m#0",)


def test_copies_in_memory_are_dropped_and_a_new_replica_never_comes_from_one():
    cluster = Cluster((80,), cpu=100).deploy(old()).settle().evict(model="m").settle()
    assert cluster["m#0"].level is Level.WARM
    cluster.deploy(new())
    assert any(isinstance(each, DropFromCpu) for each in cluster.commands)
    sources = []
    while cluster.pending:
        sources += [each.source for each in cluster.pending if isinstance(each, LoadToGpu)]
        cluster.answer()
    assert set(sources) == {Level.COLD}
    assert len(cluster.state.hot_replicas("m")) == 1


def test_a_load_of_the_version_before_is_broken_off_and_its_copy_goes_too():
    cluster = Cluster((80,), cpu=100).deploy(old()).settle().evict(model="m").settle().deploy(old())
    (load,) = cluster.pending
    assert load.source is Level.WARM
    cluster.deploy((new(), 0))
    (unload,) = cluster.commands
    assert (type(unload), unload.keep_copy) == (UnloadFromGpu, True)
    cluster.settle()
    assert memory_of(cluster) == {(Level.COLD, False, None)}


def test_what_leaves_with_a_copy_when_the_new_version_comes_keeps_none():
    cluster = Cluster((80,), cpu=100).deploy(old()).settle().evict(model="m").deploy((new(), 0)).settle()
    assert memory_of(cluster) == {(Level.COLD, False, None)}


def test_who_is_retired_is_said_and_why():
    cluster = Cluster((80,), cpu=100).deploy(old()).settle().deploy(new())
    assert ("evicted", "m#0", "another version is deployed") in [
        (note.kind.value, note.replica_id, note.because) for note in cluster.notes
    ]


def test_a_version_is_text():
    with pytest.raises(InvalidSpecError, match=r"ModelSpec\.version"):
        model("m", 30, version=1)


def test_a_load_from_disk_that_is_broken_off_has_no_copy_to_keep():
    cluster = Cluster((80,), cpu=100).deploy(old()).evict(model="m")
    (unload,) = cluster.commands
    assert unload.keep_copy is False


def test_a_load_from_memory_that_is_broken_off_keeps_its_copy():
    cluster = Cluster((80,), cpu=100).deploy(old()).settle().evict(model="m").settle().deploy(old()).evict(model="m")
    (unload,) = cluster.commands
    assert unload.keep_copy is True
    cluster.settle()
    assert cluster["m#0"].level is Level.WARM
