"""V11 and V12: in which order an update goes, and how far: ranks below the partition keep what they run."""

from collections.abc import Iterable

import attrs
import pytest

from rankcore import DeploymentSpec, DeploymentStatus, ReplicaState, StaticPlacement
from rankcore.commands import ReconfigureReplica, StartReplica, StopReplica
from rankcore.errors import InvalidSpecError
from tests.scripted import Deployment

PAUSED = 10_000_000


def stopped_ranks(d: Deployment) -> list[int]:
    return [int(stop.replica_id.partition(".")[2]) for stop in d.sent(StopReplica)]


def versions(d: Deployment) -> list[str]:
    """By rank."""
    return [d.state.replicas[replica_id].version for replica_id in sorted(d.ranks, key=d.ranks.__getitem__)]


def held_by(d: Deployment, rank: int) -> str:
    holder = d.state.holder_of(rank)
    assert holder is not None
    return holder


def canary(target: int = 4, partition: int = 3, **spec: object) -> Deployment:
    """Version 2 runs on the ranks from the partition on, version 1 below it."""
    d = Deployment.running(target, **spec)
    d.change(version="2", partition=partition)
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert versions(d) == ["1"] * min(target, partition) + ["2"] * max(0, target - partition)
    return d


@pytest.mark.parametrize(
    ("order", "surge", "expected"),
    [
        ("lowest_rank", 0, [0, 1, 2, 3]),
        ("highest_rank", 0, [3, 2, 1, 0]),
        ("lowest_rank", 4, [0, 1, 2, 3]),
        ("highest_rank", 4, [3, 2, 1, 0]),
    ],
)
def test_an_update_goes_in_its_order(order: str, surge: int, expected: list[int]) -> None:
    """V11: with a surge those whose successor is placed go in that order too."""
    d = Deployment.running(4, max_unavailable=1, max_surge=surge, update_order=order)
    d.forget()
    d.change(version="2")
    assert [start.rank for start in d.sent(StartReplica)] == expected[:surge]
    d.settle()
    assert stopped_ranks(d) == expected
    assert versions(d) == ["2"] * 4


@pytest.mark.parametrize(("order", "first", "second"), [("lowest_rank", [0], [0, 1]), ("highest_rank", [3], [3, 2])])
def test_the_order_holds_over_several_versions(order: str, first: list[int], second: list[int]) -> None:
    """V11: who runs which of the older versions does not matter."""
    d = Deployment.running(4, max_unavailable=1, update_order=order)
    d.change(version="0")
    d.stopped(held_by(d, first[0]))
    d.place(held_by(d, first[0]))
    d.ready(held_by(d, first[0]))
    assert [d.state.rank_of(each).rank for each in d.draining] == second[1:]  # type: ignore[union-attr]
    d.forget()
    d.change(version="2")
    d.stopped(d.draining[0])
    d.place(held_by(d, second[1]))
    d.ready(held_by(d, second[1]))
    assert [d.state.rank_of(each).rank for each in d.draining] == first  # type: ignore[union-attr]


@pytest.mark.parametrize("partition", [0, 1, 3, 4, 5, PAUSED])
@pytest.mark.parametrize("surge", [0, 2])
def test_only_ranks_from_the_partition_on_are_updated(partition: int, surge: int) -> None:
    """V12: the invariants of each step say that nobody below is stopped or sent a user_config."""
    d = Deployment.running(4, max_surge=surge)
    d.forget()
    d.change(version="2", user_config={"a": 1}, partition=partition)
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert versions(d) == ["1"] * min(partition, 4) + ["2"] * max(0, 4 - partition)
    assert not d.sent(ReconfigureReplica)
    assert len(d.sent(StartReplica)) == max(0, 4 - partition)


def test_a_lower_partition_promotes_and_none_promotes_all() -> None:
    d = canary(4, 3)
    d.change(partition=1)
    assert d.status is DeploymentStatus.UPDATING
    d.settle()
    assert versions(d) == ["1", "2", "2", "2"]
    d.change(partition=0)
    d.settle()
    assert versions(d) == ["2"] * 4
    assert d.state.previous == d.state.spec


def test_a_user_config_reaches_only_ranks_from_the_partition_on() -> None:
    """V12."""
    d = Deployment.running(3)
    d.forget()
    d.change(user_config={"a": 1}, partition=2)
    d.settle()
    assert [sent.replica_id for sent in d.sent(ReconfigureReplica)] == ["llm#1.2"]
    assert d.status is DeploymentStatus.HEALTHY
    d.change(partition=0)
    d.settle()
    assert {d.state.replicas[each].config_id for each in d.ranks} == {d.state.spec.config_id}


def test_a_restart_token_reaches_only_ranks_from_the_partition_on() -> None:
    """V12: a crash below comes back with the token of before."""
    d = Deployment.running(3)
    d.change(restart_token="monday", partition=1)
    d.settle()
    d.die(held_by(d, 0))
    d.settle()
    assert [d.state.replicas[held_by(d, rank)].restart_token for rank in range(3)] == ["", "monday", "monday"]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_crash_below_the_partition_comes_back_on_what_was_healthy_last(restarted: bool) -> None:
    """V12, also after a crash of the controller: the partition stands in the spec, and base in the checkpoint."""
    d = canary(4, 3, user_config={"a": 1})
    if restarted:
        d.restart()
        d.settle()
    d.forget()
    d.die(held_by(d, 1))
    d.die(held_by(d, 3))
    d.settle()
    assert sorted((start.rank, start.version) for start in d.sent(StartReplica)) == [(1, "1"), (3, "2")]
    assert versions(d) == ["1", "1", "1", "2"]
    assert d.status is DeploymentStatus.HEALTHY


def test_a_canary_never_becomes_what_was_healthy_last() -> None:
    """V12: what comes after it is compared with, and goes back to, what ran before it."""
    d = canary(4, 3)
    assert d.state.previous is not None
    assert d.state.previous.version == "1"
    d.change(version="3")
    d.settle()
    d.die(held_by(d, 0))
    d.settle()
    assert versions(d) == ["1", "1", "1", "3"]


def test_a_partition_in_a_first_deployment_leaves_nobody_out() -> None:
    """V12: nothing older exists; once it is healthy, that is what is kept."""
    d = Deployment.running(3, partition=2)
    assert versions(d) == ["1"] * 3
    d.change(version="2")
    d.settle()
    assert versions(d) == ["1", "1", "2"]
    d.die(held_by(d, 0))
    d.settle()
    assert versions(d) == ["1", "1", "2"]


def test_a_first_deployment_that_was_never_healthy_is_updated_as_a_whole() -> None:
    """V12: what is not known to work is not kept."""
    d = Deployment(2, partition=1)
    d.place("llm#1.0")
    d.change(version="2")
    d.settle()
    assert versions(d) == ["2", "2"]


@pytest.mark.parametrize(("state", "expected"), [(ReplicaState.REQUESTED, ["1", "1"]), (ReplicaState.STARTING, ["2", "1"])])
def test_a_pause_takes_back_what_was_not_initialised_and_lets_the_rest_start(state: ReplicaState, expected: list[str]) -> None:
    """V13: who is not initialised yet could never be; who starts already goes on."""
    d = Deployment.running(2, max_unavailable=1)
    d.change(version="2")
    d.stopped("llm#1.0")
    if state is ReplicaState.STARTING:
        d.place("llm#1.2")
    d.forget()
    d.change(partition=PAUSED)
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert versions(d) == expected


def test_a_pause_dismisses_successors_below_it() -> None:
    """V12: nobody is replaced by them any more."""
    d = Deployment.running(3, max_surge=2, max_unavailable=1)
    d.change(version="2")
    d.forget()
    d.change(partition=PAUSED)
    d.settle()
    assert versions(d) == ["1", "1", "1"]
    assert d.status is DeploymentStatus.HEALTHY
    assert len(d.state.replicas) == 3


def test_while_paused_a_new_version_stops_nobody_and_newcomers_run_what_was_healthy_last() -> None:
    """V13: 0 stops, configs and successors; upscales and crashes are base."""
    d = Deployment.running(2)
    d.change(partition=PAUSED)
    d.forget()
    d.change(version="2", restart_token="monday", user_config={"a": 1})
    d.resize(4)
    d.die(held_by(d, 0))
    d.settle()
    assert not d.sent(StopReplica)
    assert not d.sent(ReconfigureReplica)
    assert versions(d) == ["1"] * 4
    assert d.status is DeploymentStatus.HEALTHY


def test_a_downscale_moves_canaries_below_the_partition_and_leaves_them_their_build() -> None:
    """Section 5: compaction across the partition changes no build; if they crash there, they are base."""
    d = canary(4, 3, victims="any")
    d.resize(3, stop_first=[held_by(d, 0)])
    d.settle()
    assert versions(d) == ["2", "1", "1"]
    assert d.status is DeploymentStatus.HEALTHY
    d.die(held_by(d, 0))
    d.settle()
    assert versions(d) == ["1", "1", "1"]


def test_a_failed_canary_fails_alone() -> None:
    """V12: base is started below the partition and, once the canary is given up, above it."""
    d = Deployment.running(3, max_start_failures=1)
    d.change(version="2", partition=2)
    d.stopped("llm#1.2")
    d.place("llm#1.3")
    d.start_fails("llm#1.3")
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    d.wait(60.0)
    d.settle()
    assert versions(d) == ["1", "1", "1"]
    d.die(held_by(d, 0))
    d.settle()
    assert versions(d) == ["1", "1", "1"]


def test_a_version_that_a_canary_has_proven_is_not_started_below_the_partition_when_the_next_fails() -> None:
    """V12: base is what was healthy, not what was ready once."""
    d = canary(3, 2, max_start_failures=1)
    d.change(version="3")
    d.stopped(d.draining[0])
    d.place(held_by(d, 2))
    d.start_fails(held_by(d, 2))
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    d.wait(60.0)
    d.die(held_by(d, 0))
    d.settle()
    assert versions(d) == ["1", "1", "2"]


def test_a_partition_that_is_raised_while_a_user_config_is_given_up_sends_none_below_it() -> None:
    """V12: and a token or a partition alone proves nothing."""
    d = Deployment.running(2, max_start_failures=1, max_unavailable=1)
    d.change(user_config={"a": 1})
    d.reconfigure_fails("llm#1.0")
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    d.forget()
    d.change(partition=1)
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    d.settle()
    assert not d.sent(ReconfigureReplica)
    d.change(user_config={"a": 2}, partition=0)
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY


def test_a_rollback_of_a_canary_leaves_those_below_alone() -> None:
    d = Deployment.running(3, max_start_failures=1, rollback=True)
    d.change(restart_token="monday")
    d.settle()
    d.forget()
    d.change(version="2", restart_token="tuesday", partition=2)
    stopped = len(d.sent(StopReplica))
    d.stopped(d.draining[0])
    d.place(held_by(d, 2))
    d.start_fails(held_by(d, 2))
    d.wait(60.0)
    d.settle()
    assert (d.status, stopped, len(d.sent(StopReplica))) == (DeploymentStatus.HEALTHY, 1, 1)
    assert d.state.spec.generation == ("1", "monday")


def test_a_rank_below_the_partition_that_has_no_place_gets_that_of_a_successor() -> None:
    """Without rule 3 of `bind` a full cluster would stand still: no successor may fill it, and none may be stopped."""
    d = Deployment.running(2, max_surge=1, max_unavailable=1)
    d.change(version="2", partition=1)
    (early,) = [each for each in d.state.replicas if each not in d.ranks]
    d.die("llm#1.0")
    d.place(early)  # the place that has become free
    d.forget()
    d.wait(d.state.spec.surge_patience_s + 5.0)
    assert [stop.replica_id for stop in d.sent(StopReplica)][:1] == [early]
    assert not [start for start in d.sent(StartReplica) if start.rank == 1], "none before that rank has a place"
    d.settle()
    assert versions(d) == ["1", "2"]
    assert d.status is DeploymentStatus.HEALTHY


def _static(ranks: Iterable[int]) -> StaticPlacement:
    return StaticPlacement({rank: [bundle] for rank, bundle in enumerate(ranks)}, 9)


def test_other_bundles_move_ranks_below_the_partition_too() -> None:
    """S7: they run what they ran, elsewhere."""
    d = Deployment.running(None, placement=_static([0, 1]))
    d.change(version="2", partition=2, placement=_static([3, 4]))
    d.settle()
    assert versions(d) == ["1", "1"]
    assert [d.state.replicas[held_by(d, rank)].bundles for rank in range(2)] == [(3,), (4,)]


@pytest.mark.parametrize("value", [-1, True, 1.0, None, "1", 10_000_001])
def test_a_partition_is_a_count(value: object) -> None:
    with pytest.raises(InvalidSpecError, match=r"DeploymentSpec\.partition"):
        attrs.evolve(Deployment.running(1).state.spec, partition=value)


@pytest.mark.parametrize("value", ["oldest", None, 0])
def test_an_order_is_one_of_two(value: object) -> None:
    with pytest.raises(InvalidSpecError, match=r"DeploymentSpec\.update_order"):
        attrs.evolve(Deployment.running(1).state.spec, update_order=value)


def test_another_version_above_the_partition_ends_no_back_off_below_it() -> None:
    """Section 2.3: what failed there is what is started there next."""
    d = canary(2, 1)
    d.die(held_by(d, 0))
    d.start_fails(held_by(d, 0))
    d.forget()
    d.change(version="3")
    assert [start.rank for start in d.sent(StartReplica)] == []
    d.wait(5.0)
    assert [(start.rank, start.version) for start in d.sent(StartReplica)] == [(0, "1")]


def test_a_start_that_is_repeated_in_the_step_in_which_the_partition_passes_its_rank_is_withdrawn() -> None:
    """V12: what is repeated was asked for before."""
    d = Deployment.running(2, max_unavailable=1, repeat_period_s=5.0)
    d.change(restart_token="monday")
    d.answer(d.draining[0])
    (newcomer,) = (start.replica_id for start in d.sent(StartReplica)[2:])
    d.forget()
    d.change(partition=2, at=d.now + 5.0)
    assert [start.replica_id for start in d.sent(StartReplica)] == [newcomer]
    assert d.draining == [newcomer]
    d.settle()
    assert (d.status, {each.restart_token for each in d.state.replicas.values()}) == (DeploymentStatus.HEALTHY, {""})


@pytest.mark.parametrize("hand_over", ["none", "prepared"])
def test_who_comes_below_the_partition_by_compaction_is_succeeded_by_nobody(hand_over: str) -> None:
    d = Deployment.running(2, max_surge=1, max_unavailable=1, compaction="immediate", hand_over=hand_over)
    d.change(version="2", partition=1)
    (successor,) = (each.replica_id for each in d.state.replicas.values() if each.version == "2")
    d.resize(1, ["llm#1.0"])
    d.settle(except_for=[successor])
    assert d.state.holder_of(0) == "llm#1.1"
    assert d.state.rank_of(successor) is None
    assert d.draining == [successor]
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert list(d.state.replicas) == ["llm#1.1"]


def test_who_comes_below_the_partition_for_a_starved_rank_is_succeeded_by_nobody() -> None:
    d = Deployment.running(2, max_surge=1, max_unavailable=1, scarcity_after_s=5.0)
    d.change(version="2", partition=1)
    (successor,) = (each.replica_id for each in d.state.replicas.values() if each.version == "2")
    d.die("llm#1.0")
    d.find_no_room()
    d.wait(5.0)
    assert d.state.holder_of(0) == "llm#1.1"
    assert d.state.replicas[successor].state is ReplicaState.DRAINING


def test_without_room_for_a_rank_below_the_partition_a_successor_above_gives_its_place() -> None:
    """Where the core knows the room of each node."""
    d = Deployment(2, placement="pack_ranks", max_surge=1, hand_over="prepared")
    d.node("n0", 3)
    d.settle()
    d.change(version="2", partition=1)
    successor = d.sent(StartReplica)[-1].replica_id
    d.place(successor)
    d.node("n0", 2)
    d.forget()
    d.die(held_by(d, 0))
    assert [stop.replica_id for stop in d.sent(StopReplica)] == [successor]
    d.stopped(successor)
    assert [(start.rank, start.version) for start in d.sent(StartReplica)] == [(0, "1")]


def test_the_loser_of_a_rank_below_the_partition_may_lack_the_user_config() -> None:
    """It is moved to a rank above, where another one is wanted."""
    kept = DeploymentSpec(name="llm", target_replicas=3, user_config={"c": 0})
    found = {"llm#1.0": (0, 1, 0), "llm#1.1": (0, 0, 0), "llm#1.2": (2, 1, 1)}
    d = Deployment.recovered(3, found, previous=kept, partition=1, user_config={"c": 2}, nodes=("b", "a"))
    d.report("llm#1.1", (0, 0, 0), node_id="a", config_id=kept.config_id)
    d.report("llm#1.0", (0, 1, 0), node_id="b", config_id=kept.config_id)
    d.report("llm#1.2", (2, 1, 1), node_id="b")
    d.settle()
    assert d.ranks["llm#1.1"] == 1
    assert d.processes["llm#1.1"].config_id == d.state.spec.config_id
    assert d.processes["llm#1.0"].config_id == kept.config_id
    assert d.status is DeploymentStatus.HEALTHY


@pytest.mark.parametrize("hand_over", ["none", "prepared"])
def test_what_was_started_beyond_a_lowered_target_is_given_up_where_only_kept_ranks_are_left(hand_over: str) -> None:
    d = Deployment.running(3, max_surge=1, hand_over=hand_over, partition=1)
    d.resize(1, stop_first=("llm#1.0", "llm#1.1"))
    d.change(version="2")
    d.settle()
    assert (d.status, list(d.ranks.values()), versions(d)) == (DeploymentStatus.HEALTHY, [0], ["1"])


def test_what_was_started_beyond_a_lowered_target_waits_for_a_rank_that_is_about_to_be_free() -> None:
    d = Deployment.running(3, max_surge=1)
    d.resize(1, stop_first=("llm#1.0", "llm#1.1"))
    d.change(version="2")
    d.settle(except_for=("llm#1.0", "llm#1.1"))
    waiting = d.state.replicas["llm#1.3"]
    assert (waiting.state, waiting.slot) == (ReplicaState.PLACED, 2)
    d.settle()
    assert (d.status, d.ranks, versions(d)) == (DeploymentStatus.HEALTHY, {"llm#1.3": 0}, ["2"])
