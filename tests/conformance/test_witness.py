"""What the witness finds is certain, and it finds all that is certain."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankcore import ReplicaRank
from rankcore.testing.conformance import Belief, SelfReport, Witness

pytestmark = pytest.mark.traced

TICKS = 12


def report(replica_id, node_id, at, beliefs):
    return SelfReport(
        replica_id=replica_id,
        node_id=node_id,
        at=float(at),
        beliefs=tuple(Belief(float(since), ReplicaRank(*rank)) for since, rank in beliefs),
        world_size=4,
        version="1",
        user_config=None,
        ready=True,
        draining=False,
    )


ranks = st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 1))


@st.composite
def lives(draw):
    """A few replicas, each with times at which its belief changed, and a time at which it was heard last."""
    found = []
    for index in range(draw(st.integers(1, 4))):
        times = sorted(draw(st.sets(st.integers(0, TICKS), min_size=0, max_size=3)))
        last = draw(st.integers(times[-1], TICKS + 1)) if times else TICKS
        beliefs = [(since, draw(ranks)) for since in times]
        found.append(report(f"d#1.{index}", draw(st.sampled_from(["a", "b"])), last, beliefs))
    return found


def believed(report, tick):
    """What it believed throughout a tick, if it is known to have been alive then."""
    if tick + 1 > report.at:
        return None
    before = [belief.rank for belief in report.beliefs if belief.since <= tick]
    return before[-1] if before else None


def naive(reports):
    """Which levels ever conflict, found by looking at every tick."""
    found = set()
    for tick in range(TICKS + 1):
        known = [(each, rank) for each in reports if (rank := believed(each, tick)) is not None]
        for index, (one, rank) in enumerate(known):
            for other, its in known[index + 1 :]:
                if rank.rank == its.rank:
                    found.add("rank")
                if one.node_id == other.node_id and rank.local_rank == its.local_rank:
                    found.add("local rank")
                if one.node_id != other.node_id and rank.node_rank == its.node_rank:
                    found.add("node rank")
    return found


@given(lives())
def test_it_finds_what_a_look_at_every_moment_finds(reports):
    witness = Witness()
    witness.hear(reports)
    levels = {
        level for level in ("rank", "local rank", "node rank") for text in witness.conflicts() if text.startswith(f"{level} ")
    }
    assert levels == naive(reports)


def test_a_rank_may_pass_from_one_to_another_at_one_instant():
    witness = Witness()
    witness.hear([report("d#1.0", "a", 5, [(0, (0, 0, 0))]), report("d#1.1", "a", 9, [(5, (0, 0, 0))])])
    assert witness.conflicts() == []


def test_a_conflict_names_both_replicas_their_nodes_and_the_time():
    witness = Witness()
    witness.hear([report("d#1.0", "a", 5, [(0, (0, 0, 0))]), report("d#1.1", "b", 9, [(4, (0, 1, 0))])])
    assert witness.conflicts() == [
        "rank 0: d#1.0 on a believed it from 0.000000 to 5.000000, d#1.1 on b from 4.000000",
    ]


def test_an_older_report_does_not_replace_a_newer_one():
    witness = Witness()
    newer = report("d#1.0", "a", 9, [(0, (0, 0, 0)), (6, (1, 0, 0))])
    witness.hear([newer])
    witness.hear([report("d#1.0", "a", 5, [(0, (0, 0, 0))])])
    assert witness.last["d#1.0"] is newer
