"""Ranks of a fleet's HOT replicas, case by case (D12)."""

from typing import Any

import attrs
import pytest

from rankcore.codec import from_json, to_json
from rankcore.commands import InitializeReplica, KillReplica, QueryReplica, ReconfigureReplica, StartReplica
from rankcore.dispatching import (
    ControllerTookOver,
    FleetImage,
    FleetNoteKind,
    FleetStep,
    RankSpec,
    ReplicaSaid,
    ServingChanged,
    ServingSpec,
    TellReplica,
    fleet_of,
    image_of,
    outstanding,
)
from rankcore.dispatching.commands import RankCommand
from rankcore.dispatching.invariants import check, check_step
from rankcore.errors import InvalidEventError, InvalidSpecError
from rankcore.events import (
    ClockAdvanced,
    ReplicaMissing,
    ReplicaReady,
    ReplicaReconfigured,
    ReplicaReconfigureFailed,
    ReplicaReported,
    ReplicaStartFailed,
)
from rankcore.residency import ResidencyPolicy
from rankcore.residency.events import EvictRequested, LoadFinished, ReplicaLost, ScaleRequested
from rankcore.routing import RoutingSpec
from rankcore.routing.commands import Dispatch, Fail
from rankcore.values import ReplicaRank
from tests.fleets import Fleet, decided

RANKS = RankSpec(user_config={"lr": 1}, start_timeout_s=50.0, health_check_timeout_s=8.0)


class Ranked(Fleet):
    """Model a has ranks; each replica on a GPU of its own."""

    def __init__(self, replicas: int = 0, ranks: RankSpec | None = RANKS, **options: Any) -> None:
        super().__init__(gpus=(80, 80, 80), a=50, plain=50, **options)
        if ranks is not None:
            self.rank(ranks)
        if replicas:
            self.scale(replicas)
            self.load_all()
            for replica_id in sorted(self.seats):
                self.ready(replica_id)

    def rank(self, ranks: RankSpec) -> FleetStep:
        return self.tell(ServingChanged(spec=ServingSpec(routing=RoutingSpec(name="a"), ranks=ranks), at=self.now))

    @property
    def seats(self) -> dict[str, str]:
        ranking = self.state.models["a"].ranking
        assert ranking is not None
        return dict(ranking.seats)

    @property
    def numbers(self) -> dict[str, int]:
        return {each: rank.rank for each, rank in self.state.ranks_of("a").items()}

    def scale(self, replicas: int) -> FleetStep:
        return self.tell(ScaleRequested(model="a", replicas=replicas, at=self.now))

    def load_all(self) -> FleetStep:
        for move in sorted((each.command for each in self.state.moves.values()), key=lambda each: each.move):
            step = self.tell(LoadFinished(replica_id=move.replica_id, move=move.move, at=self.now))
        return step

    def say(self, replica_id: str, kind: type[Any], **fields: Any) -> FleetStep:
        news = kind(replica_id=self.seats[replica_id], at=self.now, **fields)
        return self.tell(ReplicaSaid(replica_id=replica_id, news=news, at=self.now))

    def ready(self, replica_id: str) -> FleetStep:
        return self.say(replica_id, ReplicaReady)

    def report(self, replica_id: str, rank: int | None, **fields: Any) -> FleetStep:
        said: dict[str, Any] = {
            "ready": True,
            "epoch": self.state.epoch,
            "version": "1",
            "node_id": "n1",
            "config_id": RANKS.config_id,
        }
        three = None if rank is None else ReplicaRank(rank, 0, rank)
        return self.say(replica_id, ReplicaReported, **{**said, "rank": three, **fields})

    def evict(self, replica_id: str) -> FleetStep:
        return self.tell(EvictRequested(replica_id=replica_id, at=self.now))


def told(step: FleetStep, kind: type[RankCommand] | None = None) -> list[tuple[str, RankCommand]]:
    found = [(each.replica_id, each.command) for each in step.commands if isinstance(each, TellReplica)]
    return [each for each in found if kind is None or isinstance(each[1], kind)]


def test_a_seat_and_a_rank_come_with_the_weights_and_requests_after_them():
    f = Ranked()
    f.request(1, "a")
    assert f.state.ranks_of("a") == {}
    step = f.load("a")
    assert [type(command) for _, command in told(step)] == [StartReplica, InitializeReplica]
    assert f.sent == {}
    assert f.told[1][-1].because == "a#0 is HOT, and waits for its rank"
    f.ready("a#0")
    assert f.sent == {1: "a#0"}
    assert f.state.world_size_of("a") == 1


def test_a_model_without_ranks_has_none():
    f = Ranked(ranks=None)
    assert f.state.ranks_of("a") == {}
    assert f.state.world_size_of("a") is None
    assert f.state.world_size_of("nobody") is None


def test_who_is_lost_has_its_rank_again_when_it_is_back():
    f = Ranked(3)
    assert f.numbers == {"a#0": 0, "a#1": 1, "a#2": 2}
    f.tell(ReplicaLost(replica_id="a#1", at=f.now))
    f.tell(ReplicaLost(replica_id="a#0", at=f.now))
    assert f.numbers == {"a#2": 2}
    f.load_all()
    assert f.numbers == {"a#0": 0, "a#1": 1, "a#2": 2}


def test_a_rank_is_free_only_when_its_holder_is_off_the_gpu():
    f = Ranked(3)
    step = f.evict("a#1")
    assert {command.world_size for _, command in told(step)} == {2}
    assert f.numbers == {"a#0": 0, "a#1": 1, "a#2": 2}
    step = f.leave("a")
    [(mover, command)] = told(step, ReconfigureReplica)
    assert (mover, command.rank.rank) == ("a#2", 1)
    f.say("a#2", ReplicaReconfigured, revision=command.revision)
    assert f.numbers == {"a#0": 0, "a#2": 1}


def test_who_leaves_because_of_its_rank_is_lost_and_comes_back():
    f = Ranked(2)
    step = f.rank(attrs.evolve(RANKS, user_config={"lr": 2}))
    commands = dict(told(step, ReconfigureReplica))
    step = f.say("a#1", ReplicaReconfigureFailed, revision=commands["a#1"].revision, reason="no")
    assert [command.replica_id for _, command in told(step, KillReplica)] == [f.seats["a#1"]]
    f.request(1, "a")
    assert f.sent == {1: "a#0"}
    f.tell(ReplicaLost(replica_id="a#1", reason="killed", at=f.now))
    f.load("a")
    f.wait(2.0)
    assert f.numbers == {"a#0": 0, "a#1": 1}


def test_whoever_has_requests_and_is_to_be_ended_loses_them():
    f = Ranked(1)
    f.request(1, "a")
    [(_, command)] = told(f.rank(attrs.evolve(RANKS, user_config={"lr": 2})), ReconfigureReplica)
    f.say("a#0", ReplicaReconfigureFailed, revision=command.revision, reason="no")
    assert isinstance(f.answers[1], Fail)
    assert "its process is to be ended" in f.answers[1].reason


def test_starts_that_fail_again_and_again_are_an_answer():
    f = Ranked(planner=ResidencyPolicy(max_load_failures=2))
    f.request(1, "a")
    for number in range(2):
        f.load("a")
        f.wait(2.0 * number)
        f.say("a#0", ReplicaStartFailed, reason=f"no shard {number}")
    assert f.answers[1].reason == "replicas of model 'a' do not start: 2 in a row failed: no shard 1"
    f.request(2, "a")
    assert f.answers[2].reason == f.answers[1].reason, "who asks within a while is told at once"
    f.load("a")
    f.wait(40.0)
    f.ready("a#0")
    f.request(3, "a")
    assert f.sent == {3: "a#0"}


def test_a_controller_that_takes_over_asks_and_requests_go_on():
    f = Ranked(2)
    f.request(1, "a")
    step = f.tell(ControllerTookOver(epoch=4, at=f.now))
    assert [command.epoch for _, command in told(step, QueryReplica)] == [4, 4]
    assert f.answers == {}
    f.request(2, "a")
    assert f.sent == {1: "a#0", 2: "a#1"}
    f.report("a#0", 1)
    f.report("a#1", 0)
    assert f.numbers == {"a#0": 1, "a#1": 0}
    assert decided(f.tell(ControllerTookOver(epoch=4, at=f.now)), FleetNoteKind.LATE)


def test_who_knows_no_rank_when_it_is_asked_gets_one_without_being_loaded_again():
    f = Ranked(2)
    f.tell(ControllerTookOver(epoch=2, at=f.now))
    f.say("a#0", ReplicaMissing)
    assert "a#0" not in f.state.models["a"].routed
    step = f.report("a#1", None)
    assert not f.state.moves
    assert len(told(step, InitializeReplica)) == 2
    f.ready("a#0")
    f.ready("a#1")
    assert f.numbers == {"a#0": 0, "a#1": 1}


def test_a_report_for_an_older_controller_is_late():
    f = Ranked(1)
    f.tell(ControllerTookOver(epoch=2, at=f.now))
    f.report("a#0", None, epoch=1)
    assert f.seats == {"a#0": "a#1.0"}


def test_who_says_that_it_drains_and_was_not_asked_to_is_ended():
    f = Ranked(1)
    f.tell(ControllerTookOver(epoch=2, at=f.now))
    step = f.report("a#0", 0, draining=True)
    assert [type(command) for _, command in told(step)] == [KillReplica]


def test_who_leaves_while_a_controller_takes_over_is_not_asked_to_end():
    f = Ranked(2)
    f.evict("a#1")
    f.tell(ControllerTookOver(epoch=2, at=f.now))
    f.wait(9.0)
    kills = [each for each in outstanding(f.state) if isinstance(each, TellReplica) and isinstance(each.command, KillReplica)]
    assert [each.replica_id for each in kills] == ["a#0"], "it has not answered in time; the other one leaves anyway"
    f.leave("a")
    assert f.seats == {"a#0": "a#1.0"}


def test_ranks_may_come_while_a_model_serves_and_do_not_go():
    f = Ranked(ranks=None)
    f.request(1, "a")
    f.load("a")
    f.rank(RANKS)
    f.request(2, "a")
    assert f.sent == {1: "a#0", 2: "a#0"}, "it goes on while it is told its first rank"
    f.ready("a#0")
    f.tell(ReplicaLost(replica_id="a#0", at=f.now))
    f.request(3, "a")
    f.load("a")
    assert 3 not in f.sent
    with pytest.raises(
        InvalidEventError, match=r"ServingChanged\.spec\.ranks must be a RankSpec: the replicas of 'a' have ranks"
    ):
        f.serve("a")


def test_a_replica_without_a_free_seat_waits_for_one():
    """Its rank is still believed by one that leaves (R7)."""
    f = Ranked(1)
    f.evict("a#0")
    f.request(1, "a")
    moves = f.state.moves
    f.tell(LoadFinished(replica_id="a#1", move=moves["a#1"].command.move, at=f.now))
    assert f.hot("a") == ("a#1",)
    assert f.numbers == {"a#0": 0}
    f.leave("a")
    f.ready("a#1")
    assert f.numbers == {"a#1": 0}
    assert f.sent == {1: "a#1"}


def test_news_of_a_seat_that_is_another_ones_is_late():
    f = Ranked(1)
    step = f.tell(ReplicaSaid(replica_id="a#0", news=ReplicaReady(replica_id="a#1.9", at=f.now), at=f.now))
    assert decided(step, FleetNoteKind.LATE)
    step = f.tell(ReplicaSaid(replica_id="nobody#0", news=ReplicaReady(replica_id="a#1.9", at=f.now), at=f.now))
    assert decided(step, FleetNoteKind.LATE)


def test_who_is_lost_in_the_step_in_which_something_is_due_is_not_told():
    f = Ranked()
    f.scale(1)
    f.load("a")
    f.now += 6.0
    step = f.tell(ReplicaLost(replica_id="a#0", at=f.now))
    assert told(step) == []


def test_what_is_not_acknowledged_is_repeated_with_its_seat():
    f = Ranked()
    f.request(1, "a")
    first = told(f.load("a"))
    assert told(f.wait(6.0)) == first


def test_an_image_has_the_ranks_and_a_takeover_is_told_what_is_outstanding():
    f = Ranked(1)
    f.scale(2)
    first = told(f.load_all())
    image = from_json(to_json(image_of(f.state)), FleetImage)
    after = fleet_of(image)
    assert after == f.state
    again = [each for each in outstanding(after) if isinstance(each, TellReplica)]
    assert [(each.replica_id, each.command) for each in again][-2:] == first[-2:]


def test_seats_that_nobody_has_are_given_up_first():
    f = Ranked(2)
    f.scale(3)
    f.scale(2)
    assert f.numbers == {"a#0": 0, "a#1": 1}
    assert f.state.world_size_of("a") == 2


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ServingSpec(routing=RoutingSpec(name="a"), ranks=3), "ServingSpec.ranks must be a RankSpec, or None"),
        (lambda: ServingSpec(routing=RoutingSpec(name="a#b"), ranks=RANKS), "ServingSpec.routing.name must be free of '#'"),
        (lambda: RankSpec(start_timeout_s=0.0), "start_timeout_s"),
    ],
)
def test_specs_that_say_nothing_are_refused(make: Any, said: str):
    with pytest.raises(InvalidSpecError, match=said):
        make()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ReplicaSaid(replica_id="a#0", news=ClockAdvanced(at=0.0), at=0.0), "ReplicaSaid.news must be"),
        (lambda: ControllerTookOver(epoch=0, at=0.0), "ControllerTookOver.epoch must be"),
    ],
)
def test_malformed_news_is_refused(make: Any, said: str):
    with pytest.raises(InvalidEventError, match=said):
        make()


# -- what the invariants find


def spoilt(f: Ranked, **changes: Any) -> set[str]:
    """The promises that a state breaks whose ranking is another one."""
    served = f.state.models["a"]
    ranking = attrs.evolve(served.ranking, **changes)
    state = attrs.evolve(f.state, models=f.state.models.set("a", attrs.evolve(served, ranking=ranking)))
    return {violation.rule for violation in check(state)}


def test_seats_and_replicas_that_do_not_agree_are_found():
    f, empty = Ranked(2), Ranked()
    ranking, none = f.state.models["a"].ranking, empty.state.models["a"].ranking
    assert ranking is not None
    assert none is not None
    assert spoilt(f) == set()
    assert "D12" in spoilt(f, deployment=none.deployment, seats=ranking.seats.delete("a#0").delete("a#1"))
    assert "D12" in spoilt(f, seats=ranking.seats.delete("a#0"))


def test_a_seat_of_who_is_not_hot_or_is_leaving_is_found():
    f = Ranked(2)
    served = f.state.models["a"]
    f.evict("a#0")
    assert "D12" in spoilt(f, deployment=served.ranking.deployment)
    f.leave("a")
    assert "D12" in spoilt(f, deployment=served.ranking.deployment, seats=served.ranking.seats)


def test_who_is_hot_beside_an_open_seat_is_found():
    f = Ranked()
    f.scale(1)
    ranking = f.state.models["a"].ranking
    f.load("a")
    assert "D12" in spoilt(f, deployment=ranking.deployment, seats=ranking.seats)


def test_a_request_to_who_has_no_rank_is_found():
    f = Ranked()
    f.scale(1)
    before = f.state
    f.load("a")
    event = ScaleRequested(model="a", replicas=1, at=f.now)
    step = FleetStep(f.state, (Dispatch(1, "a#0"),), ())
    assert "D12" in {violation.rule for violation in check_step(before, event, step)}
