"""`plan`: a dry run of another spec. What it says is what then happens, and asking changes nothing."""

from collections import Counter
from typing import Any

import attrs
import pytest

from rankcore import (
    DeploymentSpec,
    DeploymentState,
    DeploymentStatus,
    Plan,
    Replica,
    ReplicaRank,
    ReplicaState,
    deploy,
    plan,
    step,
)
from rankcore.commands import InitializeReplica, ReconfigureReplica, StartReplica
from rankcore.errors import InvalidEventError, UnknownDeploymentError
from rankcore.events import ReplicaStartFailed
from rankcore.notes import NoteKind
from tests.scripted import Deployment

A, B, C, D = "llm#1.0", "llm#1.1", "llm#1.2", "llm#1.3"


def planned(d: Deployment, *stop_first: str, **changes: Any) -> Plan:
    """The plan for a changed spec. What follows it in a world where nothing fails is then compared with it."""
    before, spec = d.state, attrs.evolve(d.state.spec, **changes)
    found = plan(before, spec, stop_first=stop_first)
    assert plan(before, spec, stop_first=stop_first) == found
    assert d.state is before
    return found


def carried_out(d: Deployment, *stop_first: str, **changes: Any) -> Plan:
    """The plan, after it has been held against what really followed."""
    found, before = planned(d, *stop_first, **changes), d.state
    d.forget()
    if "target_replicas" in changes:
        d.resize(changes["target_replicas"], stop_first)
    if rest := {name: value for name, value in changes.items() if name != "target_replicas"}:
        d.change(**rest)
    d.settle()
    # Time passes until what backs off, or waits to be repeated, has had its turn.
    for _ in range(8):
        d.wait(10.0)
        d.settle()
    agree(found, before, d)
    return found


def agree(found: Plan, before: DeploymentState, d: Deployment) -> None:
    started = {each.replica_id: each for each in d.sent(StartReplica) if each.replica_id not in before.replicas}
    given = {each.replica_id: each.rank.rank for each in reversed(d.sent(InitializeReplica))}
    came_up = Counter((given.get(each.replica_id, each.rank), each.version) for each in started.values())
    assert Counter(starts(found)) == came_up
    stayed = {who: replica for who, replica in before.replicas.items() if replica.leaving is None}
    assert {each.replica_id for each in found.stops} == {who for who in stayed if who not in d.state.replicas}
    kept = [(who, rank_of(old), rank_of(d.state.replicas[who])) for who, old in stayed.items() if who in d.state.replicas]
    assert sorted(moves(found)) == sorted((who, was, now) for who, was, now in kept if was != now)
    assert found.status is d.status
    assert found.world_size_after == d.state.world_size


def rank_of(replica: Replica) -> int | None:
    """What it was told or, before that, what it will be told."""
    return replica.told.rank if replica.told is not None else replica.slot


def starts(found: Plan) -> list[tuple[int, str]]:
    return [(each.rank, each.version) for each in found.starts]


def stops(found: Plan) -> list[tuple[str, int | None]]:
    return [(each.replica_id, each.rank) for each in found.stops]


def moves(found: Plan) -> list[tuple[str, int, int]]:
    return [(each.replica_id, each.before, each.after) for each in found.moves]


# ---------------------------------------------------------------------------------------------------------------------
# from rest


def test_the_spec_that_is_in_force_brings_nothing() -> None:
    found = carried_out(Deployment.running(3))
    assert found == Plan(3, 3, (), (), (), (), DeploymentStatus.HEALTHY)


def test_an_upscale_starts_newcomers_with_the_lowest_available_ranks() -> None:
    """R4, R5."""
    found = carried_out(Deployment.running(2), target_replicas=4)
    assert starts(found) == [(2, "1"), (3, "1")]
    assert (found.stops, found.moves, found.reconfigured) == ((), (), ())
    assert (found.world_size_before, found.world_size_after) == (2, 4)


def test_a_downscale_stops_the_victims_of_the_policy_and_moves_those_above() -> None:
    """R8, R11: the emptiest node is freed first, here the one with ranks 0 and 1."""
    d = Deployment.running(5, nodes=["a", "a", "b", "b", "b"])
    found = carried_out(d, target_replicas=3)
    assert stops(found) == [(A, 0), (B, 1)]
    assert moves(found) == [(D, 3, 0), ("llm#1.4", 4, 1)]
    assert found.starts == ()


def test_a_downscale_of_the_highest_ranks_moves_nobody() -> None:
    """R11."""
    found = carried_out(Deployment.running(4, victims="highest_rank"), target_replicas=2)
    assert stops(found) == [(C, 2), (D, 3)]
    assert found.moves == ()


def test_a_downscale_stops_those_whom_the_caller_names() -> None:
    """R11."""
    found = carried_out(Deployment.running(3), A, target_replicas=2)
    assert stops(found) == [(A, 0)]
    assert moves(found) == [(C, 2, 0)]


def test_to_nothing_everybody_is_stopped() -> None:
    found = carried_out(Deployment.running(2), target_replicas=0)
    assert stops(found) == [(A, 0), (B, 1)]
    assert found.status is DeploymentStatus.HEALTHY


def test_an_update_replaces_everybody_with_its_own_rank() -> None:
    """R6, section 2.3."""
    found = carried_out(Deployment.running(3), version="2")
    assert sorted(starts(found)) == [(0, "2"), (1, "2"), (2, "2")]
    assert stops(found) == [(A, 0), (B, 1), (C, 2)]
    assert found.moves == ()


@pytest.mark.parametrize("surge", [1, 3])
def test_an_update_with_surge_starts_and_stops_the_same_replicas(surge: int) -> None:
    found = carried_out(Deployment.running(3, max_surge=surge), version="2")
    assert sorted(starts(found)) == [(0, "2"), (1, "2"), (2, "2")]
    assert stops(found) == [(A, 0), (B, 1), (C, 2)]


def test_an_update_that_hands_over_starts_and_stops_the_same_replicas() -> None:
    found = carried_out(Deployment.running(3, max_surge=1, hand_over="prepared"), version="2")
    assert sorted(starts(found)) == [(0, "2"), (1, "2"), (2, "2")]
    assert stops(found) == [(A, 0), (B, 1), (C, 2)]


def test_another_user_config_reconfigures_everybody_in_place() -> None:
    """R12: nobody is started, stopped or moved."""
    d = Deployment.running(2, user_config={"a": 1})
    found = carried_out(d, user_config={"a": 2})
    assert found == Plan(2, 2, (), (), (), (A, B), DeploymentStatus.HEALTHY)
    assert {note.replica_id for note in d.noted(NoteKind.CONFIG_SENT)} == {A, B}


def test_those_who_start_with_the_new_user_config_are_not_reconfigured() -> None:
    """R12: a newcomer is initialised with it, and a victim never hears of it."""
    d = Deployment.running(2, user_config={"a": 1})
    assert planned(d, target_replicas=3, user_config={"a": 2}).reconfigured == (A, B)
    assert planned(d, A, target_replicas=1, user_config={"a": 2}).reconfigured == (B,)
    assert planned(d, version="2", user_config={"a": 2}).reconfigured == ()


def test_a_downscale_and_an_update_in_one_update_only_those_who_stay() -> None:
    d = Deployment.running(4, victims="highest_rank")
    found = planned(d, target_replicas=2, version="2")
    assert sorted(starts(found)) == [(0, "2"), (1, "2")]
    assert stops(found) == [(A, 0), (B, 1), (C, 2), (D, 3)]


def test_a_policy_alone_brings_nothing() -> None:
    found = carried_out(Deployment.running(3), victims="newest", max_unavailable=2)
    assert found == Plan(3, 3, (), (), (), (), DeploymentStatus.HEALTHY)


def test_stop_first_is_heeded_by_a_downscale_only() -> None:
    found = plan((d := Deployment.running(3)).state, attrs.evolve(d.state.spec, target_replicas=4), stop_first=(A,))
    assert found.stops == ()
    assert starts(found) == [(3, "1")]


# ---------------------------------------------------------------------------------------------------------------------
# with replicas under way


def test_what_was_asked_for_already_is_not_planned_again() -> None:
    """The replica that is starting is none of the plan's, and neither is the one that is draining."""
    d = Deployment.running(2)
    d.resize(3)
    assert carried_out(d) == Plan(3, 3, (), (), (), (), DeploymentStatus.HEALTHY)
    d = Deployment.running(3)
    d.resize(2, [C])
    assert d.draining == [C]
    assert carried_out(d) == Plan(2, 2, (), (), (), (), DeploymentStatus.HEALTHY)


def test_what_is_under_way_comes_to_its_end_before_any_time_passes() -> None:
    """Nothing fails in a plan: a start that is due before its command would be repeated is in time all the same."""
    d = Deployment(1, start_timeout_s=1.0, repeat_period_s=5.0)
    d.place(A)
    assert d.state.replicas[A].state is ReplicaState.STARTING
    assert carried_out(d) == Plan(1, 1, (), (), (), (), DeploymentStatus.HEALTHY)


def test_a_downscale_gives_up_first_what_does_not_run_yet() -> None:
    """Section 2.3: ranks 2 and 3 are on their way."""
    d = Deployment.running(2)
    d.resize(4)
    d.place(C)
    found = carried_out(d, target_replicas=2)
    assert stops(found) == [(C, 2), (D, 3)]


def test_a_downscale_gives_up_a_kept_rank_before_anybody_is_stopped() -> None:
    """Section 2.3."""
    d = Deployment.running(3)
    d.die(B)
    d.start_fails("llm#1.3")
    assert d.state.kept_ranks == (1,)
    found = carried_out(d, target_replicas=2)
    assert found.stops == ()
    assert moves(found) == [(C, 2, 1)]


def test_a_kept_rank_is_filled_once_its_back_off_is_over() -> None:
    """R6, section 2.3: the plan lets time pass."""
    d = Deployment.running(3)
    d.die(B)
    d.start_fails("llm#1.3")
    assert starts(carried_out(d)) == [(1, "1")]
    assert d.ranks == {A: 0, C: 2, "llm#1.4": 1}


def test_a_newcomer_waits_for_the_rank_of_one_that_drains() -> None:
    """R4, R7: the plan knows which rank will be free."""
    d = Deployment.running(3)
    d.resize(2, [B])
    found = carried_out(d, target_replicas=3)
    assert starts(found) == [(1, "1")]
    assert found.stops == ()


def test_a_replica_that_waits_beyond_the_world_size_moves_before_it_is_initialised() -> None:
    """R4: its rank is >= N, and the lower one is free once its holder has stopped."""
    d = Deployment.running(2)
    d.resize(3)
    d.resize(2, [A])
    d.place(C)
    assert d.state.replicas[C].state is ReplicaState.PLACED
    assert moves(carried_out(d)) == [(C, 2, 0)]


def test_a_move_that_is_not_acknowledged_counts_as_made() -> None:
    """R8: C was told to move to rank 0 and has not answered."""
    d = Deployment.running(3)
    d.resize(2, [A])
    d.stopped(A)
    assert d.state.rank_of(C) == ReplicaRank(0, 0, 0)
    assert [each.replica_id for each in d.sent(ReconfigureReplica)] == [C]
    assert carried_out(d) == Plan(2, 2, (), (), (), (), DeploymentStatus.HEALTHY)


def test_in_the_middle_of_an_update_only_the_rest_is_planned() -> None:
    """Section 2.3: A is draining for its replacement, which is still to be started; B and C are still to be stopped."""
    d = Deployment.running(3)
    d.change(version="2")
    assert d.draining == [A]
    found = carried_out(d)
    assert sorted(starts(found)) == [(0, "2"), (1, "2"), (2, "2")]
    assert stops(found) == [(B, 1), (C, 2)]


def test_going_back_in_the_middle_of_an_update_replaces_what_was_updated() -> None:
    d = Deployment.running(3)
    d.change(version="2")
    d.stopped(A)
    d.place(D)
    d.ready(D)
    assert d.draining == [B]
    found = carried_out(d, version="1")
    assert sorted(starts(found)) == [(0, "1"), (1, "1")]
    assert stops(found) == [(D, 0)]


def test_a_downscale_in_the_middle_of_an_update_releases_who_is_leaving_anyway() -> None:
    """Section 2.5: nobody else is stopped for it, apart from the update."""
    d = Deployment.running(3)
    d.change(version="2")
    found = carried_out(d, target_replicas=2)
    assert sorted(stops(found)) == [(B, 1), (C, 2)]
    assert len(found.starts) == 2
    assert {each.version for each in found.starts} == {"2"}


def test_a_successor_that_is_no_longer_wanted_is_stopped() -> None:
    """Section 2.3, max_surge: it has started early, and its slot goes on as it is."""
    d = Deployment.running(2, max_surge=2)
    d.change(version="2")
    assert d.state.holder_of(0) == A
    found = carried_out(d, version="1")
    assert stops(found) == [(C, 0), (D, 1)]
    assert found.starts == ()


def test_a_deployment_that_is_deleted_is_not_changed_any_more() -> None:
    """Section 2.3: a SpecChanged is late then."""
    d = Deployment.running(2)
    d.delete()
    assert planned(d, target_replicas=5) == Plan(2, 2, (), (), (), (), DeploymentStatus.DELETED)


def test_a_plan_is_made_for_now_whatever_the_time_of_the_spec_in_force() -> None:
    """A SpecChanged older than the spec in force would be late."""
    d = Deployment.running(2)
    d.resize(3, at=50.0)
    d.settle()
    assert starts(planned(d, target_replicas=4)) == [(3, "1")]


# ---------------------------------------------------------------------------------------------------------------------
# what only the world can supply


def test_while_reports_are_outstanding_nothing_is_given_out() -> None:
    """R10: what is found decides, and the plan doesn't guess."""
    d = Deployment.recovered(3, {A: (0, 0, 0), B: (1, 0, 1)})
    d.report(A)
    assert planned(d, target_replicas=5) == Plan(3, 5, (), (), (), (), DeploymentStatus.RECOVERING)
    d.report(B)
    assert starts(carried_out(d, target_replicas=5)) == [(3, "1"), (4, "1")]


def test_a_recovered_replica_that_is_starting_counts_as_ready_in_time() -> None:
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (1, 0, 1)})
    d.report(A)
    d.report(B, ready=False)
    assert d.state.replicas[B].state is ReplicaState.STARTING
    assert planned(d) == Plan(2, 2, (), (), (), (), DeploymentStatus.HEALTHY)


def test_the_loser_of_a_duplicate_moves_nobody_else() -> None:
    """R10: it has no rank yet, so that nothing moves from one rank to another."""
    d = Deployment.recovered(2, {A: (0, 0, 0), B: (0, 0, 1)})
    d.report(A)
    d.report(B)
    assert d.state.rank_of(B) is None
    assert planned(d, target_replicas=3).moves == ()
    found = planned(d, B, target_replicas=1)
    assert [each.replica_id for each in found.stops] == [B]


def test_without_room_nothing_starts_and_the_plan_says_how_it_ends() -> None:
    """R11, pack_ranks: room is the world's to give."""
    d = Deployment(2, placement="pack_ranks", nodes=("n0", "n1"))
    assert planned(d, target_replicas=3) == Plan(2, 3, (), (), (), (), DeploymentStatus.UPDATING)
    d.node("n0", 2)
    d.settle()
    found = planned(d, target_replicas=4)
    assert (found.starts, found.status) == ((), DeploymentStatus.UPSCALING)
    d.node("n1", 1)
    found = carried_out(d, target_replicas=4)
    assert [(each.rank, each.node_id) for each in found.starts] == [(2, "n1")]


def test_packed_ranks_are_planned_on_the_nodes_that_the_core_would_name() -> None:
    """R11."""
    d = Deployment(1, placement="pack_ranks")
    d.node("n0", 2)
    d.node("n1", 3)
    d.settle()
    found = carried_out(d, target_replicas=4)
    assert [(each.rank, each.node_id) for each in found.starts] == [(each.rank, each.node_id) for each in d.sent(StartReplica)]
    assert [each.node_id for each in found.starts] == ["n0", "n1", "n1"]
    assert [each.node_id for each in planned(Deployment.running(1), target_replicas=2).starts] == [None]


def failed() -> Deployment:
    """Version 2 has failed with rank 0; rank 0 starts again with version 1, and B serves on."""
    d = Deployment.running(2)
    d.change(version="2", max_start_failures=1)
    d.stopped(A)
    d.start_fails(C)
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    return d


def test_a_failed_update_stays_failed_until_version_or_config_change() -> None:
    """Section 2.3."""
    assert planned(failed()) == Plan(2, 2, (), (), (), (), DeploymentStatus.DEPLOY_FAILED)
    found = carried_out(failed(), target_replicas=3)
    assert starts(found) == [(2, "1")]
    assert found.status is DeploymentStatus.DEPLOY_FAILED


def test_a_failed_update_is_left_by_another_version() -> None:
    """Section 2.3: D is on its way with version 1, and is replaced without budget."""
    found = carried_out(failed(), version="3")
    assert sorted(starts(found)) == [(0, "3"), (1, "3")]
    assert stops(found) == [(B, 1), (D, 0)]
    assert found.status is DeploymentStatus.HEALTHY


def test_a_slot_that_backs_off_after_a_failed_update_is_started_again() -> None:
    """Section 2.3: with the last proven spec, once its time has come."""
    d = failed()
    d.start_fails(D)
    assert d.state.kept_ranks == (0,)
    found = carried_out(d)
    assert starts(found) == [(0, "1")]
    assert found.status is DeploymentStatus.DEPLOY_FAILED


def test_a_plan_waits_for_every_back_off_however_many_there_are() -> None:
    """Each of these slots may be started again at a time of its own."""
    many = 1_100
    spec = DeploymentSpec(name="llm", target_replicas=many, start_backoff_s=5_000.0, start_backoff_max_s=5_000.0)
    spec = attrs.evolve(spec, repeat_period_s=10_000.0)
    state = deploy(spec).state
    for index in range(many):
        state = step(state, ReplicaStartFailed(replica_id=f"llm#1.{index}", at=float(index))).state
    assert len(state.kept_ranks) == many
    found = plan(state, spec)
    assert len(found.starts) == many
    assert found.status is DeploymentStatus.HEALTHY


def test_a_version_that_never_worked_is_not_started_again() -> None:
    """Section 2.3: there is nothing proven to go back to."""
    d = Deployment(1, max_start_failures=1)
    d.start_fails(A)
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    assert planned(d) == Plan(1, 1, (), (), (), (), DeploymentStatus.DEPLOY_FAILED)
    assert starts(carried_out(d, version="2")) == [(0, "2")]


# ---------------------------------------------------------------------------------------------------------------------
# asking


def test_asking_leaves_the_state_as_it_was() -> None:
    d = Deployment.running(3)
    tables, replicas = d.state.tables, dict(d.state.replicas)
    plan(d.state, attrs.evolve(d.state.spec, target_replicas=1, version="2"))
    assert d.state.tables is tables
    assert dict(d.state.replicas) == replicas
    assert d.state.world_size == 3


def test_a_plan_is_a_value() -> None:
    d = Deployment.running(2)
    spec = attrs.evolve(d.state.spec, target_replicas=3)
    one, other = plan(d.state, spec), plan(d.state, spec)
    assert one == other
    assert hash(one) == hash(other)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        one.starts = ()  # type: ignore[misc]


@pytest.mark.parametrize("state", [None, 3, "state"])
def test_a_plan_of_what_is_no_state_is_refused(state: Any) -> None:
    with pytest.raises(InvalidEventError, match=r"plan\.state must be a DeploymentState"):
        plan(state, DeploymentSpec(name="llm", target_replicas=1))


def test_a_plan_for_what_is_no_spec_is_refused() -> None:
    with pytest.raises(InvalidEventError, match="must be a DeploymentSpec"):
        plan(Deployment.running(1).state, {"target_replicas": 2})  # type: ignore[arg-type]


def test_a_plan_for_another_deployment_is_refused() -> None:
    with pytest.raises(UnknownDeploymentError, match=r"SpecChanged\.spec\.name"):
        plan(Deployment.running(1).state, DeploymentSpec(name="other", target_replicas=1))


@pytest.mark.parametrize(
    ("stop_first", "error"),
    [("llm#1.0", InvalidEventError), ((3,), InvalidEventError), (("other#1.0",), UnknownDeploymentError)],
)
def test_victims_that_can_not_be_meant_are_refused(stop_first: Any, error: type[Exception]) -> None:
    d = Deployment.running(2)
    with pytest.raises(error, match="stop_first"):
        plan(d.state, attrs.evolve(d.state.spec, target_replicas=1), stop_first=stop_first)
