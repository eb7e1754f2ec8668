"""Whatever arrives in whatever order, a replica believes the newest of what it admitted; on Ray, and everywhere else."""

from hypothesis import given
from hypothesis import strategies as st

from rankcore.commands import InitializeReplica, ReconfigureReplica
from rankcore.replica.beliefs import ChangeVerdict
from rankcore.replica.replica import Done, Overtaken, Refused, ReplicaHalf, RunUserCode, announce, change, ended, query
from rankcore.values import ReplicaRank

NUMBERS = st.integers(0, 3)
STAMPS = st.tuples(NUMBERS, NUMBERS)
CHANGES = st.tuples(st.sampled_from(["initialize", "reconfigure"]), STAMPS)
MESSAGES = st.one_of(CHANGES, st.tuples(st.sampled_from(["announce", "query"]), STAMPS))


VERDICTS = {
    Refused: ChangeVerdict.REFUSED,
    Overtaken: ChangeVerdict.OVERTAKEN,
    Done: ChangeVerdict.REPEATED,
    RunUserCode: ChangeVerdict.CARRY_OUT,
}


def hear(replica, kind, stamp, content):
    epoch, revision = stamp
    if kind in ("announce", "query"):
        replica, reactions = announce(replica, *stamp, content) if kind == "announce" else query(replica, epoch)
        return replica, ChangeVerdict.REFUSED if Refused(replica.epoch) in reactions else ChangeVerdict.CARRY_OUT
    command = InitializeReplica if kind == "initialize" else ReconfigureReplica
    replica, (reaction,) = change(replica, command("a", rank_of(content), content, None, str(content), revision, epoch))
    if isinstance(reaction, RunUserCode):
        replica, _ = ended(replica)
    return replica, VERDICTS[type(reaction)]


def rank_of(content):
    return ReplicaRank(content, content, content)


@given(st.lists(MESSAGES, max_size=30))
def test_a_replica_believes_the_newest_that_it_did_not_refuse(messages):
    beliefs = ReplicaHalf(epoch=1, replica_id="a", version="1", node_id="n")
    newest, world, carried_out = (-1, -1), (-1, -1), set()
    for content, (kind, stamp) in enumerate(messages):
        epoch, initialized = beliefs.epoch, beliefs.rank is not None
        before = beliefs.rank, beliefs.world_size, beliefs.config_id
        beliefs, verdict = hear(beliefs, kind, stamp, content)
        assert (verdict is ChangeVerdict.REFUSED) is (stamp[0] < epoch)
        assert beliefs.epoch == max(epoch, stamp[0])
        if verdict is ChangeVerdict.REFUSED:
            assert (beliefs.rank, beliefs.world_size, beliefs.config_id) == before
            continue
        if kind in ("initialize", "reconfigure", "announce") and stamp > world:
            world = stamp
            assert beliefs.world_size == content
        else:
            assert beliefs.world_size == before[1]
        adopts = kind == "initialize" or (kind == "reconfigure" and initialized)
        if adopts and stamp > newest:
            newest = stamp
            assert verdict is ChangeVerdict.CARRY_OUT
            assert stamp not in carried_out
            carried_out.add(stamp)
            assert (beliefs.rank, beliefs.config_id) == (rank_of(content), str(content))
        else:
            assert (beliefs.rank, beliefs.config_id) == (before[0], before[2])
            if adopts:
                assert verdict is (ChangeVerdict.REPEATED if stamp == newest else ChangeVerdict.OVERTAKEN)
