"""What the coordinator of a gang says to agents that may say everything twice, late, or again: no socket, no clock."""

import msgspec
import pytest

from executors.torchrun.coordinator import Coordinator
from executors.torchrun.lease import GRACE_S
from executors.torchrun.messages import (
    LINE_BYTES_MAX,
    VERSION,
    AgentPhase,
    AskToJoin,
    Close,
    Hello,
    Leave,
    Lines,
    Renew,
    Renewed,
    Standing,
    Welcome,
    from_agent,
    from_coordinator,
    line_of,
)
from rankcore.gang import Gang

LEASE_S = 15.0


def hello(member, node=None, run_id="job", version=VERSION):
    return Hello(version, run_id, member, node or f"node-{member}", "", 1, 1)


def asks(number, rank=None, round_=None, nproc=None, max_size=3):
    return AskToJoin(number, rank, round_, nproc, max_size)


class Talk:
    """A coordinator, and the newest that each agent has heard of how it stands."""

    def __init__(self, low=2, high=3, **settings):
        self.coordinator = Coordinator(Gang(low, high, last_call_s=5, **settings), LEASE_S)
        self.now_s = 0.0
        self.stands = {}

    def took(self, sent):
        self.stands |= {member: message for member, message in sent if isinstance(message, Standing)}
        return sent

    def says(self, member, message):
        return self.took(self.coordinator.hear(member, message, self.now_s))

    def joins(self, *members, number=1, **said):
        for member in members:
            self.says(member, hello(member))
            self.says(member, asks(number, **said))

    def passes(self, seconds, *renewing):
        for _ in range(round(seconds)):
            self.now_s += 1
            for member in renewing:
                self.says(member, Renew(1))
            self.took(self.coordinator.tick(self.now_s))

    def ranks(self):
        admitted = {member: said for member, said in self.stands.items() if said.phase is AgentPhase.ADMITTED}
        return {member: said.rank for member, said in admitted.items() if member in self.coordinator.agents}


def test_who_asks_again_for_the_round_that_it_has_restarts_nobody():
    talk = Talk()
    talk.joins("a", "b", "c")
    assert talk.ranks() == {"a": 0, "b": 1, "c": 2}
    before = dict(talk.stands)
    assert talk.says("a", asks(1)) == [("a", before["a"])]
    assert talk.says("b", hello("b")) == [("b", Welcome(True, LEASE_S, 0)), ("b", before["b"])]
    assert talk.stands == before
    talk.says("a", asks(2))
    talk.says("a", asks(2))
    assert [talk.stands[member].phase for member in "bc"] == [AgentPhase.RESTART] * 2
    talk.joins("b", "c", number=2)
    assert (talk.ranks(), talk.stands["a"].round, talk.stands["a"].number) == ({"a": 0, "b": 1, "c": 2}, 2, 2)


def test_a_spare_is_parked_and_takes_the_rank_of_one_whose_lease_has_lapsed_and_who_wakes_is_refused():
    talk = Talk()
    talk.joins("a", "b", "c", "s")
    assert talk.stands["s"] == Standing(AgentPhase.PARKED, 1)
    talk.passes(LEASE_S + GRACE_S, *"bcs")
    assert talk.stands["b"].phase is AgentPhase.ADMITTED  # the lease is not over by then
    talk.passes(1, *"bcs")
    talk.joins("b", "c", number=2)
    assert talk.ranks() == {"s": 0, "b": 1, "c": 2}
    assert talk.says("a", Renew(7)) == []
    assert talk.says("a", hello("a"))[0][1].reason == "lapsed"
    assert talk.coordinator.agents.keys() == {"b", "c", "s"}


def test_who_leaves_is_replaced_at_once_and_after_the_end_everybody_is_told_so():
    talk = Talk()
    talk.joins("a", "b", "c", "s")
    talk.says("b", Leave())
    talk.joins("a", "c", number=2)
    assert talk.ranks() == {"a": 0, "s": 1, "c": 2}
    talk.says("a", Close())
    assert {said.reason for member, said in talk.stands.items() if member != "b"} == {"done"}
    assert not talk.coordinator.is_over
    for member in "acs":
        talk.coordinator.disconnected(member)
    assert talk.coordinator.is_over
    assert talk.says("s", hello("s")) == [("s", Welcome(False, LEASE_S, 0))]
    talk.says("s", asks(1))
    assert talk.stands["s"].reason == "done"


def test_a_new_coordinator_whose_job_is_done_at_once_tells_so_whoever_may_still_come():
    """Else a spare would look for it until its lease has lapsed, and end as one that has failed (TR6)."""
    talk = Talk(restarted=True, recover_s=LEASE_S + GRACE_S + 1)
    talk.joins("a", number=4, rank=0, round_=9)
    talk.says("a", Close())
    talk.coordinator.disconnected("a")
    talk.passes(3)
    assert not talk.coordinator.is_over
    talk.joins("s")
    assert talk.stands["s"].reason == "done"
    talk.coordinator.disconnected("s")
    assert not talk.coordinator.is_over
    talk.passes(LEASE_S + GRACE_S + 1)
    assert talk.coordinator.is_over


def test_a_connection_that_ends_says_nothing_of_its_agent():
    talk = Talk()
    talk.joins("a", "b", "c")
    talk.coordinator.disconnected("a")
    talk.coordinator.disconnected("nobody")
    assert talk.ranks() == {"a": 0, "b": 1, "c": 2}


def test_a_new_coordinator_is_told_the_ranks_and_newcomers_wait():
    talk = Talk(restarted=True, recover_s=LEASE_S + GRACE_S + 1)
    talk.joins("n")
    talk.joins("c", number=5, rank=2, round_=9)
    talk.joins("b", number=3, rank=1, round_=9)
    assert talk.ranks() == {}
    talk.joins("a", number=4, rank=0, round_=9)
    assert talk.ranks() == {"a": 0, "b": 1, "c": 2}
    assert (talk.stands["a"].round, talk.stands["n"].phase) == (10, AgentPhase.PARKED)


@pytest.mark.parametrize(
    ("said", "detail"),
    [
        ({"max_size": 4}, "MAX is 4, expected 3"),
        ({"nproc": 4}, "nproc is 4, expected 8"),
        ({"node": "node-a"}, "node node-a has 1 already, expected no more"),
        ({"run_id": "other"}, "--rdzv-id is other, expected job"),
        ({"version": 0}, f"the agent speaks version 0, expected {VERSION}"),
    ],
)
def test_an_agent_that_cannot_be_of_the_gang_is_told_what_was_found_and_what_is_expected(said, detail):
    talk = Talk()
    talk.joins("a", "b", nproc=8)
    talk.says("x", hello("x", **{key: said[key] for key in said.keys() & {"node", "run_id", "version"}}))
    talk.says("x", asks(1, **{key: said[key] for key in said.keys() & {"max_size", "nproc"}}))
    assert (talk.stands["x"].phase, talk.stands["x"].detail) == (AgentPhase.REFUSED, detail)


def test_a_second_agent_of_a_node_is_welcome_when_the_first_is_gone():
    talk = Talk()
    talk.joins("a", "b", "c")
    talk.says("x", hello("x", "node-a"))
    talk.says("x", asks(1))
    assert talk.stands["x"].reason == "same_node"
    talk.took(talk.coordinator.left("a", talk.now_s))
    talk.says("x", asks(1))
    talk.joins("b", "c", number=2)
    assert talk.ranks() == {"x": 0, "b": 1, "c": 2}


def test_too_few_are_sent_away():
    talk = Talk(join_timeout_s=30)
    talk.joins("a")
    talk.passes(31, "a")
    assert (talk.stands["a"].reason, talk.stands["a"].detail) == ("timed_out", "1 agents are there after 30 s, expected 2")


def test_messages_come_back_as_they_were_and_others_are_no_messages():
    for message in (hello("a"), asks(2, 1, 3, 8), Renew(4), Leave(), Close()):
        assert from_agent(line_of(message)) == message
    for message in (Welcome(True, 15.0, 29401), Renewed(4), Standing(AgentPhase.ADMITTED, 1, 0, 3, 2)):
        assert from_coordinator(line_of(message)) == message
    for wrong in (b"", b"{}", b'{"type":"Renewed","number":1}', b"GET / HTTP/1.1"):
        with pytest.raises(msgspec.DecodeError):
            from_agent(wrong)


def test_lines_are_complete_or_wait_and_none_is_endless():
    lines = Lines()
    assert lines.feed(b"ab") == []
    assert lines.feed(b"c\nde\nf") == [b"abc", b"de"]
    with pytest.raises(msgspec.DecodeError, match="more than"):
        lines.feed(b"x" * LINE_BYTES_MAX)
