"""Whatever comes in whatever order, user code runs for one change at a time and once for each, and the newest has an answer."""

from hypothesis import given
from hypothesis import strategies as st

from rankcore.commands import InitializeReplica, ReconfigureReplica
from rankcore.replica.replica import (
    Done,
    Overtaken,
    ReplicaHalf,
    ReportBeliefs,
    RunUserCode,
    StartFailed,
    change,
    ended,
    query,
    stop,
)
from rankcore.values import ReplicaRank

KINDS = {"initialize": InitializeReplica, "reconfigure": ReconfigureReplica}
STAMPS = st.tuples(st.integers(1, 2), st.integers(1, 4))
CHANGES = st.tuples(st.sampled_from(sorted(KINDS)), STAMPS)
ENDS = st.tuples(st.just("ends"), st.sampled_from((None, None, "boom")))
ASKS = st.tuples(st.sampled_from(("query", "stop")), st.tuples(st.integers(1, 2), st.just(0)))


class Owner:
    """Lets user code run as it is told to, and remembers what was said."""

    def __init__(self):
        self.replica = ReplicaHalf(epoch=1, replica_id="a#1.0", version="1", node_id="n")
        self.runs, self.ran, self.answers, self.reports, self.asked = None, [], {}, 0, False

    def takes(self, kind, about):
        if kind == "ends":
            if self.runs is not None:
                self.runs = None
                self.reacts(ended(self.replica, about))
        elif kind == "query":
            self.asked = about[0] >= self.replica.epoch or self.asked
            self.reacts(query(self.replica, about[0]))
        elif kind == "stop":
            self.reacts(stop(self.replica, about[0], 1.0))
        else:
            epoch, revision = about
            rank = ReplicaRank(revision, epoch, 0)
            self.reacts(change(self.replica, KINDS[kind]("a#1.0", rank, 4, None, None, revision, epoch)))

    def reacts(self, reply):
        self.replica, reactions = reply
        for each in reactions:
            if isinstance(each, RunUserCode):
                assert self.runs is None, "two run at once"
                assert each.starting is not self.replica.ready
                self.runs = each.command
                self.ran.append((each.command.epoch, each.command.revision))
            elif isinstance(each, Done):
                stamp = each.command.epoch, each.command.revision
                known = self.answers.setdefault(stamp, each.failure)
                assert known == each.failure or each.command.initialize, "another outcome the second time"
            elif isinstance(each, StartFailed):
                self.answers[self.replica.stamp] = each.reason
            elif isinstance(each, ReportBeliefs):
                assert self.asked
                assert not self.replica.changing
                self.asked = False


@given(st.lists(CHANGES | ENDS | ASKS, max_size=30))
def test_user_code_runs_once_for_a_change_and_the_newest_is_answered(happens):
    owner = Owner()
    for kind, about in happens:
        owner.takes(kind, about)
        replica = owner.replica
        assert (owner.runs is not None) is (replica.running is not None)
        assert owner.ran == sorted(set(owner.ran))
        if replica.rank is not None:
            assert (replica.rank.node_rank, replica.rank.rank) == replica.stamp
    while owner.runs is not None:
        owner.takes("ends", None)
    assert not owner.asked or owner.replica.failed_to_start
    if owner.replica.rank is not None:
        assert owner.replica.stamp in owner.answers


@given(st.lists(CHANGES | ENDS, max_size=30), CHANGES)
def test_a_change_is_answered_run_or_overtaken(happens, last):
    """None is forgotten but while an equal or a newer one is under way."""
    owner = Owner()
    for each in happens:
        owner.takes(*each)
    kind, (epoch, revision) = last
    before = owner.replica
    _, reactions = change(before, KINDS[kind]("a#1.0", ReplicaRank(revision, epoch, 0), 4, None, None, revision, epoch))
    assert reactions or before.running is not None
    assert sum(isinstance(each, (Done, Overtaken, RunUserCode)) for each in reactions) <= 1
