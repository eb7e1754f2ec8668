"""The cases: what is begun and disturbed, and what has to come of it. Each is played again with a crash of the controller."""

from collections.abc import Callable
from typing import Any

from rankcore.testing.conformance.running import NAME, Case, NonconformityError, Trial
from rankcore.values import DeploymentStatus, ReplicaId

Ranks = dict[ReplicaId, int]
HANDING_OVER: dict[str, Any] = {"max_surge": 1, "max_unavailable": 1, "hand_over": "prepared", "min_ready_s": 0.0}
OVERLAPPING: dict[str, Any] = {**HANDING_OVER, "max_unavailable": 0, "hand_over": "overlap"}


def deploy(trial: Trial) -> None:
    """R1: ranks are 0..N-1."""
    trial.deploy(4)
    trial.disturbed()
    trial.settle()


def upscale(trial: Trial) -> None:
    """R5: nobody who runs gets another rank."""
    trial.deploy(2)
    before = trial.settle()
    trial.change(target_replicas=4)
    trial.disturbed()
    _kept(before, trial.settle())


def downscale_with_compaction(trial: Trial) -> None:
    """R8: of those who stay, only who had a rank beyond the world size gets another one."""
    trial.deploy(4)
    before = trial.settle()
    trial.change(target_replicas=2)
    trial.disturbed()
    after = trial.settle()
    _same({each: rank for each, rank in before.items() if each in after and rank < 2}, after)


def downscale_of_the_highest_ranks(trial: Trial) -> None:
    """R11: a downscale that stops the highest ranks moves nobody."""
    trial.deploy(4, victims="highest_rank")
    before = trial.settle()
    trial.change(target_replicas=2)
    trial.disturbed()
    _same({each: rank for each, rank in before.items() if rank < 2}, trial.settle())


def crash_of_one(trial: Trial) -> None:
    """R6: the replacement has the rank, and R5: nobody else's changes."""
    trial.deploy(3)
    before = trial.settle()
    (gone,) = (each for each, rank in before.items() if rank == 1)
    trial.system.kill_replica(gone)
    trial.disturbed()
    _replaced({gone}, before, trial.settle())


def crash_of_two_during_an_upscale(trial: Trial) -> None:
    """R6, whatever starts in between."""
    trial.deploy(3)
    before = trial.settle()
    gone = {each for each, rank in before.items() if rank in (0, 2)}
    trial.change(target_replicas=5)
    for each in sorted(gone):
        trial.system.kill_replica(each)
    trial.disturbed()
    _replaced(gone, before, trial.settle())


def rolling_update(trial: Trial) -> None:
    """2.3: each newcomer inherits its slot's rank; in the end all run the new version."""
    trial.deploy(3, max_unavailable=1)
    before = trial.settle()
    trial.change(version="2")
    trial.until(lambda: any(each.version == "2" for each in trial.observe()), "a replica of version 2")
    trial.disturbed()
    _all_updated(before, trial.settle())


def update_by_successors_that_are_prepared(trial: Trial) -> None:
    """V4: each of the old version is succeeded by one whose user code is up."""
    trial.deploy(3, **HANDING_OVER)
    before = trial.settle()
    trial.change(version="2")
    trial.until(lambda: any(each.version == "2" for each in trial.observe()), "a replica of version 2")
    trial.disturbed()
    _all_updated(before, trial.settle())


def update_by_successors_that_overlap(trial: Trial) -> None:
    """V3: each takes requests before it has its rank; nobody else ever has that meanwhile."""
    trial.deploy(3, **OVERLAPPING)
    before = trial.settle()
    trial.change(version="2")
    trial.until(lambda: any(each.version == "2" for each in trial.observe()), "a replica of version 2")
    trial.disturbed()
    _all_updated(before, trial.settle())


def version_that_cannot_be_prepared(trial: Trial) -> None:
    """V4: it is given up, and all of the old version have served meanwhile, with their ranks."""
    trial.deploy(2, **HANDING_OVER)
    before = trial.settle()
    trial.system.fail_starts(NAME, 1)
    trial.change(version="2", max_start_failures=1)
    trial.until(lambda: trial.system.status(NAME) is DeploymentStatus.DEPLOY_FAILED, "DEPLOY_FAILED")
    trial.disturbed()
    trial.until(lambda: trial.system.status(NAME) is not None, "a controller")
    _same(before, trial.ranks())
    trial.change(version="3", max_start_failures=5)
    trial.settle()


def new_user_config(trial: Trial) -> None:
    """R12 and 2.3: sent in place; nobody is replaced, and no rank changes."""
    trial.deploy(3, user_config={"temperature": 0.1})
    before = trial.settle()
    trial.change(user_config={"temperature": 0.9})
    trial.disturbed()
    _same(before, trial.settle())


def new_user_config_and_then_fewer(trial: Trial) -> None:
    """R12: one by one, and who then gets another rank keeps it, though that change does not bring it again."""
    trial.deploy(4, user_config={"temperature": 0.1}, config_rollout="rolling", max_unavailable=1)
    trial.settle()
    trial.change(user_config={"temperature": 0.9})
    trial.disturbed()
    before = trial.settle()
    trial.change(target_replicas=2)
    after = trial.settle()
    _same({each: rank for each, rank in before.items() if each in after and rank < 2}, after)


def packed_ranks_with_a_crash(trial: Trial) -> None:
    """R11: consecutive ranks are on one node, as many as it can hold, and a replacement is where its predecessor was."""
    room_on = trial.room()
    trial.deploy(8, placement="pack_ranks")
    before = trial.settle()
    places = trial.places()
    room = room_on(places[0])
    packed = [places[rank] for rank in range(min(room, 8))]
    if len(set(packed)) > 1:
        raise NonconformityError(f"R11: a node holds {room} replicas, and the first ranks are on {packed}")
    (gone,) = (each for each, rank in before.items() if rank == 1)
    trial.system.kill_replica(gone)
    trial.disturbed()
    _replaced({gone}, before, trial.settle())
    if (now := trial.places()) != places:
        raise NonconformityError(f"R11: rank 1 is replaced on its node, where there is room: before {places}, after {now}")


def node_loss(trial: Trial) -> None:
    """R6, for all that ran on a node."""
    trial.deploy(4)
    before = trial.settle()
    nodes = {report.replica_id: report.node_id for report in trial.observe()}
    lost = sorted(nodes.values())[0]
    trial.system.lose_node(lost)
    trial.disturbed()
    _replaced({each for each, node_id in nodes.items() if node_id == lost}, before, trial.settle())


def slow_start(trial: Trial) -> None:
    """R6 and R4: a replacement that takes long keeps its rank from a newcomer that is quick."""
    trial.deploy(2)
    before = trial.settle()
    (gone,) = (each for each, rank in before.items() if rank == 0)
    trial.system.slow_starts(NAME, 1.0)
    trial.system.kill_replica(gone)
    trial.until(lambda: any(not each.ready for each in trial.observe()), "a replacement that starts")
    trial.system.slow_starts(NAME, 0.0)
    trial.change(target_replicas=3)
    trial.disturbed()
    _replaced({gone}, before, trial.settle())


def failing_start(trial: Trial) -> None:
    """R6, however often the replacement itself fails: here, fewer times than a deployment is given up after."""
    trial.deploy(2)
    before = trial.settle()
    (gone,) = (each for each, rank in before.items() if rank == 0)
    trial.system.fail_starts(NAME, 2)
    trial.system.kill_replica(gone)
    trial.disturbed()
    _replaced({gone}, before, trial.settle())


def version_that_fails(trial: Trial) -> None:
    """2.3: it is given up, and not begun again by a controller that comes back; another version is."""
    trial.deploy(1)
    trial.settle()
    trial.system.fail_starts(NAME, 1)  # a second start would succeed
    trial.change(version="2", max_start_failures=1)
    trial.until(lambda: trial.system.status(NAME) is DeploymentStatus.DEPLOY_FAILED, "DEPLOY_FAILED")
    trial.disturbed()
    trial.until(lambda: trial.system.status(NAME) is not None, "a controller")
    if (status := trial.system.status(NAME)) is not DeploymentStatus.DEPLOY_FAILED:
        raise NonconformityError(f"version '2' was given up, and the status is {status} after a restart of the controller")
    trial.change(version="3", max_start_failures=5)
    trial.settle()


def delete(trial: Trial) -> None:
    """Nothing is left."""
    trial.deploy(3)
    trial.settle()
    trial.system.delete(NAME)
    trial.disturbed()
    trial.until(lambda: not trial.observe(), "no replica left")


def _same(expected: Ranks, found: Ranks) -> None:
    wrong = {each: (rank, found.get(each)) for each, rank in expected.items() if found.get(each) != rank}
    if wrong:
        raise NonconformityError(f"R5: ranks have changed without need: (before, after) are {dict(sorted(wrong.items()))}")


def _kept(before: Ranks, after: Ranks) -> None:
    _same({each: rank for each, rank in before.items() if each in after}, after)
    if not set(before) <= set(after):
        raise NonconformityError(f"{sorted(set(before) - set(after))} ran before, and do not any more")


def _all_updated(before: Ranks, after: Ranks) -> None:
    if set(before) & set(after):
        raise NonconformityError(f"{sorted(set(before) & set(after))} of the old version still run")


def _replaced(gone: set[ReplicaId], before: Ranks, after: Ranks) -> None:
    """Those who are gone are, nobody else is, and nobody else's rank is another: so theirs went to their replacements."""
    if gone & set(after):
        raise NonconformityError(f"{sorted(gone & set(after))} were killed, and are still there")
    _kept({each: rank for each, rank in before.items() if each not in gone}, after)


_PLAYS: tuple[Callable[[Trial], None], ...] = (
    deploy,
    upscale,
    downscale_with_compaction,
    downscale_of_the_highest_ranks,
    crash_of_one,
    crash_of_two_during_an_upscale,
    rolling_update,
    update_by_successors_that_are_prepared,
    update_by_successors_that_overlap,
    version_that_cannot_be_prepared,
    new_user_config,
    new_user_config_and_then_fewer,
    packed_ranks_with_a_crash,
    node_loss,
    slow_start,
    failing_start,
    version_that_fails,
    delete,
)

CASES: tuple[Case, ...] = tuple(
    Case(play.__name__.replace("_", " "), crash_controller, play) for play in _PLAYS for crash_controller in (False, True)
)
"""All of them, without and with a crash of the controller."""
