"""Section 2: what is emitted is sorted, and one history gives one output, whatever order things were stored in."""

import os
import subprocess
import sys
from pathlib import Path

import attrs

from rankcore import DeploymentSpec, deploy, recover, step
from rankcore.commands import ReconfigureReplica, StartReplica, StopReplica
from rankcore.events import ReplicaPlaced, SpecChanged
from rankcore.values import age_key
from tests.scripted import Deployment

ROOT = Path(__file__).parents[2]


def life() -> Deployment:
    """A history with something of everything."""
    d = Deployment(12, nodes="abcd", max_unavailable=3, name="llm")
    d.settle()
    d.lose("b", at=1.0)
    d.resize(15)
    d.die("llm#1.0")
    d.settle()
    d.resize(6, stop_first=["llm#1.5", "llm#1.1"])
    d.settle()
    d.change(version="2", user_config={"b": 1, "a": [1, 2]})
    d.settle()
    d.restart()
    d.settle()
    d.delete()
    d.settle()
    return d


def test_one_history_gives_one_output() -> None:
    one, other = life(), life()
    assert one.commands == other.commands
    assert one.notes == other.notes
    assert one.state == other.state


def test_the_output_does_not_depend_on_the_hash_seed() -> None:
    """Three interpreters with three hash seeds print the same commands and notes."""
    program = "from tests.unit.test_determinism import life\nd = life()\nprint(*d.commands, *d.notes, sep='\\n')\n"
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(printed) == 1
    assert len(printed.pop().splitlines()) > 200


def test_starts_come_in_the_order_of_their_ranks() -> None:
    d = Deployment(20)
    starts = [start.rank for start in d.sent(StartReplica)]
    assert starts == sorted(starts)


def test_moves_come_in_the_order_of_age() -> None:
    d = Deployment.running(12)
    d.forget()
    d.resize(6, stop_first=[f"llm#1.{number}" for number in range(6)])
    d.settle()
    moved = [move.replica_id for move in d.sent(ReconfigureReplica)]
    assert moved == sorted(moved, key=age_key)
    assert len(moved) == 6


def test_a_deletion_stops_replicas_in_the_order_of_age() -> None:
    d = Deployment.running(12, nodes="abc")
    d.forget()
    d.delete()
    stopped = [stop.replica_id for stop in d.sent(StopReplica)]
    assert stopped == sorted(stopped, key=age_key)


def test_ids_come_from_the_state_and_are_never_used_again() -> None:
    """Section 2: "<deployment>#<epoch>.<serial>"."""
    d = Deployment(3, name="chat", repeat_period_s=100.0, max_start_failures=9)
    for _ in range(3):
        d.die(d.state.holder_of(0))
        d.wait(4.0)
    started = [start.replica_id for start in d.sent(StartReplica)]
    assert started == [f"chat#1.{serial}" for serial in range(6)]


def test_a_state_can_be_hashed_and_compared() -> None:
    """Section 2: compare them, hash small ones."""
    spec = DeploymentSpec(name="llm", target_replicas=2)
    one, other = deploy(spec).state, deploy(spec).state
    assert one == other
    assert hash(one) == hash(other)
    assert {one, other} == {one}
    later = step(one, ReplicaPlaced(replica_id="llm#1.0", node_id="a", at=0.0)).state
    assert later != one


def test_two_orders_of_independent_news_lead_to_the_same_ranks() -> None:
    """The order decides about nothing but what it has to: who is placed first has the lowest rank (V18)."""
    ranks = []
    for order in ((0, 1, 2), (2, 1, 0)):
        d = Deployment(3)
        for number in range(3):
            d.place(f"llm#1.{number}", f"node{number}")
        for number in order:
            d.ready(f"llm#1.{number}")
        ranks.append(d.ranks)
    assert ranks[0] == ranks[1]
    other = Deployment(3)
    for number in (2, 1, 0):
        other.place(f"llm#1.{number}", f"node{number}")
        other.ready(f"llm#1.{number}")
    assert other.ranks == {"llm#1.2": 0, "llm#1.1": 1, "llm#1.0": 2}


def test_an_equal_spec_with_its_keys_in_another_order_makes_no_difference() -> None:
    """Section 2: nothing depends on the order in which a dict was filled."""
    one = DeploymentSpec(name="llm", target_replicas=1, user_config={"a": 1, "b": 2})
    other = DeploymentSpec(name="llm", target_replicas=1, user_config={"b": 2, "a": 1})
    assert deploy(one) == deploy(other)
    state = deploy(one).state
    bigger = attrs.evolve(other, target_replicas=2)
    assert step(state, SpecChanged(spec=bigger, at=0.0)).state.world_size == 2
    assert recover(one, [], at=0.0, epoch=2) == recover(other, [], at=0.0, epoch=2)
