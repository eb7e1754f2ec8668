"""Displacement over many nodes: where the search may end early it has found the best, or says that it was cut short (T5)."""

from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankcore.residency import ModelSpec, Wanted, displacement, open_residency, plan_residency, residency_step
from rankcore.residency.events import DeployRequested, NodeJoined, ReplicaUsed
from tests.property.naive_residency import NOW, POLICY, feed, naive_displacement

pytestmark = pytest.mark.traced

GPU_BYTES = 40
SEEDS = st.integers(0, 2**32)


class Drawn:
    """Nodes of one shelf without room for a newcomer, each with its own residents: few sums of their sizes differ.

    Sets often cost the same then, and a node often has some who may be displaced, and not enough.
    """

    def __init__(self, seed, fewest, most):
        self.chance = Random(seed)
        self.plain, self.stays = self.chance.random() < 0.5, self.chance.choice((0.1, 0.5))
        self.gpus = 1 if most > 9 else self.chance.choice((1, 1, 2))
        self.size = self.chance.choice((25, 30, 35, 40))
        self.state, self.residents = open_residency(POLICY), 0
        nodes = [f"n{number:03}" for number in range(self.chance.randint(fewest, most))]
        for node_id in nodes:
            self.join(node_id, [GPU_BYTES] * self.gpus)
            self.fill(node_id)
            self.join(node_id, [GPU_BYTES - free for free in self.free(node_id)])  # those of other nodes find no room here
        for node_id in nodes:
            self.join(node_id, [GPU_BYTES] * self.gpus)

    def join(self, node_id, gpu_bytes):
        self.state = feed(self.state, NodeJoined(node_id=node_id, gpu_bytes=tuple(gpu_bytes), at=0.0))

    def free(self, node_id):
        return [gpu.free_bytes for gpu in self.state.nodes[node_id].gpus]

    def fill(self, node_id):
        there = 0
        while max(self.free(node_id)) >= self.size or (there < 6 and self.chance.random() < 0.3):
            there += 1
            weight_bytes = self.chance.choice((5, 5, 10, 10, 15, 20))
            if weight_bytes <= max(self.free(node_id)):
                self.deploy(weight_bytes)

    def deploy(self, weight_bytes):
        priority = 0 if self.plain else self.chance.choice((0, 0, 1))
        spec = ModelSpec(
            model=f"m{self.residents}",
            weight_bytes=weight_bytes,
            priority=priority,
            dedicated=self.chance.random() < self.stays,
            gpus=1,
            min_hot_s=1.0,
        )
        self.state = feed(self.state, DeployRequested(wanted=(Wanted(spec=spec),), at=0.0))
        if not self.plain:
            used_at, in_flight = self.chance.choice((0.0, 0.0, 60.0, 77.7, NOW)), self.chance.choice((0, 0, 0, 1))
            used = ReplicaUsed(replica_id=f"{spec.model}#{self.residents}", in_flight=in_flight, at=used_at)
            self.state = feed(self.state, used)
        self.residents += 1


def compared(drawn):
    """Whether the planner found the best that there is, and whether it says that it was cut short; None: there is none."""
    state, spec = drawn.state, ModelSpec(model="new", weight_bytes=drawn.size, gpus=1, priority=1)
    plan = plan_residency(state, DeployRequested(wanted=(Wanted(spec=spec),), at=NOW))
    best = naive_displacement(residency_step(state, DeployRequested(wanted=(), at=NOW)).state, spec)
    if best is None:
        assert plan.placed == ()
        return None
    (placed,) = plan.placed
    found = (placed.cost_bytes, len(placed.displaces), placed.node_id, placed.gpus, placed.displaces)
    assert found >= best
    says_so = any("cut short" in note.because for note in plan.notes)
    assert says_so or found == best
    return found == best, says_so


@given(SEEDS)
def test_a_search_that_ends_at_its_limits_says_so(seed):
    with patch.multiple(displacement, NODES_MAX=1, NODES_SEEN_MAX=2):
        compared(Drawn(seed, 3, 9))


@given(SEEDS)
def test_of_as_many_nodes_as_are_searched_and_one_more_the_best_is_found(seed):
    """However many of them were looked at before there was any set."""
    with patch.multiple(displacement, NODES_MAX=2, NODES_SEEN_MAX=2):
        assert compared(Drawn(seed, 2, 3)) in (None, (True, False))


@given(SEEDS)
@settings(max_examples=10)
def test_of_more_nodes_than_are_searched_the_best_is_found_or_it_is_said(seed):
    compared(Drawn(seed, 66, 72))
