"""A replica on Ray believes what a simulated one believes, whatever arrives in whatever order."""

from hypothesis import given
from hypothesis import strategies as st

from executors.ray_gpu.beliefs import Beliefs, Verdict
from executors.ray_gpu.messages import Change
from executors.simulator.replicas.replica import RunUserCode, SimulatedReplica
from rankcore import ReplicaRank
from rankcore.commands import AnnounceWorldSize, InitializeReplica, QueryReplica, ReconfigureReplica, StartReplica

NUMBERS = st.integers(0, 3)
CHANGES = st.tuples(
    st.sampled_from([InitializeReplica, ReconfigureReplica]), NUMBERS, NUMBERS, NUMBERS, st.sampled_from([None, "a", "b"])
)
ANNOUNCEMENTS = st.tuples(st.just(AnnounceWorldSize), NUMBERS, NUMBERS, NUMBERS, st.none())
QUERIES = st.tuples(st.just(QueryReplica), NUMBERS, st.just(0), st.just(0), st.none())


def hear(ours, theirs, message):
    kind, epoch, revision, number, config_id = message
    if kind is AnnounceWorldSize:
        theirs.receive(AnnounceWorldSize(number, revision, epoch), 0.0)
        ours.announce(epoch, revision, number)
        return
    if kind is QueryReplica:
        refused = theirs.refused
        theirs.receive(QueryReplica("m#0.0", epoch), 0.0)
        assert ours.admit(epoch) is (theirs.refused == refused)
        return
    before = theirs.rank, theirs.config_id, theirs.refused
    rank = ReplicaRank(number, number, number)
    reactions = theirs.receive(kind("m#0.0", rank, number + 1, None, config_id, revision, epoch), 0.0)
    verdict = ours.accept(Change(epoch, revision, kind is InitializeReplica, (number, number, number), number + 1, config_id))
    if any(isinstance(each, RunUserCode) for each in reactions):
        assert verdict is Verdict.CARRY_OUT
    if verdict is not Verdict.CARRY_OUT:
        assert (theirs.rank, theirs.config_id) == before[:2]
    assert (verdict is Verdict.REFUSED) is (theirs.refused > before[2])


@given(st.lists(st.one_of(CHANGES, ANNOUNCEMENTS, QUERIES), max_size=30))
def test_both_replicas_believe_the_same(messages):
    ours, theirs = Beliefs(1), SimulatedReplica(StartReplica("m#0.0", 0, "1", None, (), 1), "n")
    for message in messages:
        hear(ours, theirs, message)
        ranks = (theirs.rank.rank, theirs.rank.node_rank, theirs.rank.local_rank) if theirs.rank is not None else None
        assert (ours.ranks, ours.world_size, ours.config_id, ours.epoch) == (
            ranks,
            theirs.world_size,
            theirs.config_id,
            theirs.epoch,
        )
