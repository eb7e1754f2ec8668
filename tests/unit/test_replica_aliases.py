"""What was public goes on for one release, and says where it has gone."""

import importlib
import sys

import pytest

from rankcore.commands import InitializeReplica, QueryReplica, StartReplica
from rankcore.events import ReplicaReady
from rankcore.replica.replica import RunUserCode
from rankcore.values import ReplicaRank

START = StartReplica("a#1.0", 0, "1", None, (), 1)
FIRST = InitializeReplica("a#1.0", ReplicaRank(0, 0, 0), 4, None, None, (1 << 32) + 5, 1)


def imported(name, instead):
    sys.modules.pop(name, None)
    with pytest.warns(DeprecationWarning, match=instead):
        return importlib.import_module(name)


def test_a_replica_half_holds_a_replica():
    replica = imported("executors.replica_half", r"use rankcore\.replica\.messages").ReplicaHalf(START, "n")
    assert replica.receive(FIRST, 1.0) == (RunUserCode(True, FIRST),)
    assert replica.user_code_ended(2.0) == (ReplicaReady(replica_id="a#1.0", at=2.0),)
    assert replica.receive(QueryReplica("a#1.0", 0), 3.0) == ()
    assert (replica.rank, replica.world_size, replica.ready, replica.refused) == (FIRST.rank, 4, True, 1)
    with pytest.raises(AttributeError):
        _ = replica.nothing


def test_beliefs_hold_beliefs():
    module = imported("executors.beliefs", r"use rankcore\.replica\.replica")
    held = module.Beliefs(1)
    assert held.accept((1, 5), (0, 0, 0), 4, "c", initialize=False) is module.Verdict.OVERTAKEN
    assert (held.rank, held.world_size) == (None, 4)
    assert held.accept((1, 6), (0, 0, 0), 3, "c", initialize=True) is module.Verdict.CARRY_OUT
    assert held.accept((1, 6), (0, 0, 0), 3, "c", initialize=True) is module.Verdict.REPEATED
    assert held.announce(2, 1, 8)
    assert held.admit(2)
    assert not held.admit(1)
    assert held.accept((1, 9), (1, 1, 1), 9, "d", initialize=False) is module.Verdict.REFUSED
    assert (held.epoch, held.rank, held.world_size, held.config_id) == (2, (0, 0, 0), 8, "c")
    with pytest.raises(AttributeError):
        _ = held.nothing


@pytest.mark.parametrize(
    ("name", "module", "now"),
    [
        ("WeightsNode", "executors.inproc", "WeightsNode"),
        ("RequestError", "executors.ray_gpu.errors", "CallError"),
        ("begin_again", "executors.inproc", "begin_again"),
    ],
)
def test_what_a_fleet_in_one_process_had_is_a_cluster_s(name, module, now):
    fleet = imported("executors.fleet", r"executors\.fleet goes in the next release: use executors\.inproc$")
    with pytest.warns(DeprecationWarning, match=f"use {module}.{now}"):
        assert getattr(fleet, name) is getattr(importlib.import_module(module), now)
    with pytest.raises(AttributeError, match=r"use executors\.inproc"):
        _ = fleet.FleetRunner


def test_a_torch_node_of_a_fleet_is_that_of_a_cluster():
    pytest.importorskip("torch")
    imported("executors.fleet", r"use executors\.inproc$")
    before = imported("executors.fleet.torch_node", r"use executors\.inproc\.torch_node")
    assert before.TorchNode is importlib.import_module("executors.inproc.torch_node").TorchNode
