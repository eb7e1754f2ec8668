"""What operators may ask of deployments and replicas, in the words of the machine: the same for every executor.

Who asks (an `api`) checks what it was given, and says which fields of the spec follow. Who is asked (a controller) makes of it
an event for what there is, or refuses it in words that say what to do.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import attrs

from executors.deployment_ids import meant_by
from executors.ray_gpu.errors import InvalidCallError, InvalidDeploymentError, UnknownNameError, not_one
from rankcore.amounts import is_share, rounded_up
from rankcore.checks import COUNT_MAX, SECONDS_MAX
from rankcore.cluster.events import ChangeRequested, DeploymentRetryRequested, ScaleRequested
from rankcore.cluster.state import Entry
from rankcore.progress import is_anything_to_retry
from rankcore.routing import RoutingSpec
from rankcore.values import ReplicaId

Fields = dict[str, Any]
"""Of a deployment's spec."""

# -- who asks


def paused() -> Fields:
    """An update is to reach nobody."""
    return {"partition": COUNT_MAX}


def resumed() -> Fields:
    """An update is to reach everybody."""
    return {"partition": 0}


def restarted(token: str | None) -> Fields:
    """Everybody is to be replaced once; None: with the time for a token."""
    return {"restart_token": token if token is not None else f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"}


def checked_reach(replicas: object) -> int | str:
    """How many replicas an update is to reach, as a number or a share.

    Raises:
        InvalidCallError: It is neither.
    """
    if is_share(replicas) or (type(replicas) is int and 0 <= replicas <= COUNT_MAX):
        assert isinstance(replicas, int | str)
        return replicas
    allowed = f'an integer from 0 to {COUNT_MAX}, or a share such as "25%"'
    raise InvalidCallError(f"replicas must be {allowed}, got {replicas!r:.80}", field="replicas")


def promoted(reach: int | str, world_size: int) -> Fields:
    """An update is to reach so many, those with the highest ranks."""
    return {"partition": max(0, world_size - rounded_up(reach, world_size))}


def checked_ranks(ranks: object) -> tuple[int, ...]:
    """Ranks that are named; none: all are meant.

    Raises:
        InvalidCallError: They are not what they may be.
    """
    named = tuple(ranks) if isinstance(ranks, Iterable) else (ranks,)
    for rank in named:
        if type(rank) is not int or not 0 <= rank <= COUNT_MAX:
            raise InvalidCallError(f"ranks must be integers from 0 to {COUNT_MAX}, got {rank!r:.80}", field="ranks")
    return named


def checked_ids(verb: str, replica_ids: object) -> tuple[ReplicaId, ...]:
    """Replicas that are named.

    Raises:
        InvalidDeploymentError: It is a text, of which each letter would be one.
    """
    if isinstance(replica_ids, str) or not isinstance(replica_ids, Iterable):
        found = f"{_kind(replica_ids)} {replica_ids!r:.80}"
        raise InvalidDeploymentError(f"{verb} takes a list of ids, got {found}", field="replica_ids")
    return tuple(replica_ids)


def _kind(value: object) -> str:
    return "the string" if isinstance(value, str) else f"a {type(value).__name__}"


def checked_deadline(deadline_s: object) -> float | None:
    """How long somebody has to go; None: there is time.

    Raises:
        InvalidCallError: It is no such time.
    """
    if deadline_s is None:
        return None
    if isinstance(deadline_s, bool) or not isinstance(deadline_s, int | float) or not 0 <= deadline_s <= SECONDS_MAX:
        raise InvalidCallError(
            f"deadline_s must be a number of seconds from 0 to {SECONDS_MAX:g}, or None, got {deadline_s!r:.80}",
            field="deadline_s",
        )
    return float(deadline_s)


def checked_reason(reason: object) -> str:
    """Why a node is to be left.

    Raises:
        InvalidCallError: It is no text.
    """
    if not isinstance(reason, str):
        raise InvalidCallError(f"reason must be a text, got {reason!r:.80}", field="reason")
    return reason


# -- who is asked


def changed(
    entry: Entry, fields: Fields, at: float, *, stop_first: tuple[ReplicaId, ...] = (), routing: RoutingSpec | None = None
) -> tuple[ScaleRequested | ChangeRequested, ...]:
    """Other fields of a spec, as what is to be requested one after the other.

    Args:
        stop_first: Whom a downscale should stop before any other, where nothing else is changed.
        routing: How calls are routed from now on; None: as before.

    Raises:
        InvalidDeploymentError: It asks for a number of replicas, which follows the load.
        InvalidSpecError: A field may not be so.
    """
    deployment = entry.spec.deployment
    if "target_replicas" in fields and entry.scaler is not None:
        raise InvalidDeploymentError(
            f"the number of replicas of {deployment} follows its load: "
            "its autoscaling_config has min_replicas and max_replicas",
            field="num_replicas",
        )
    ranks = attrs.evolve(entry.ranks.spec, **fields)
    scaled: tuple[ScaleRequested, ...] = ()
    if "target_replicas" in fields:
        number = ranks.target_replicas
        scaled = (ScaleRequested(deployment=deployment, target_replicas=number, stop_first=stop_first, at=at),)
    if set(fields) == {"target_replicas"} and routing is None:
        return scaled
    # The number that was applied stays there: the same file again is compared with it, and leaves what was scaled by hand.
    ranks = attrs.evolve(ranks, target_replicas=entry.spec.ranks.target_replicas)
    routing = routing if routing is not None else entry.spec.routing
    return (ChangeRequested(spec=attrs.evolve(entry.spec, ranks=ranks, routing=routing), at=at), *scaled)


def rolled_back(entry: Entry) -> Fields:
    """What was healthy last is wanted again: its code, user_config and restart token, in all ranks.

    Raises:
        InvalidDeploymentError: Nothing else was healthy.
    """
    deployment, spec, previous = entry.spec.deployment, entry.ranks.spec, entry.ranks.previous
    if previous is None:
        raise InvalidDeploymentError(
            f"{deployment} was never healthy, so there is nothing to go back to: deploy code that works, or delete it"
        )
    if (previous.build, previous.restart_token) == (spec.build, spec.restart_token):
        raise InvalidDeploymentError(
            f"{deployment} was healthy with what is wanted now, version {spec.version}: deploy the code to go back to"
        )
    return {
        "version": previous.version,
        "restart_token": previous.restart_token,
        "user_config": previous.user_config,
        "partition": 0,
    }


def retried(entry: Entry, ranks: tuple[int, ...], at: float) -> DeploymentRetryRequested:
    """Back-off ends now, and what was given up is tried again.

    Raises:
        InvalidDeploymentError: There is no such rank, or none that waits.
    """
    deployment, state = entry.spec.deployment, entry.ranks
    beyond = [rank for rank in ranks if rank >= state.world_size]
    if beyond:
        found = f"{deployment} has no rank {beyond[0]}: it has {state.world_size} replicas"
        raise InvalidDeploymentError(found, field="ranks")
    if not is_anything_to_retry(state, ranks, at):
        which = f"rank {', '.join(map(str, ranks))} of {deployment}" if ranks else deployment
        found = f"{which} waits for no back-off, and was not given up: see `rankcore status`"
        raise InvalidDeploymentError(found, field="ranks" if ranks else None)
    return DeploymentRetryRequested(deployment=deployment, ranks=ranks, at=at)


def replicas_meant(
    replica_ids: Iterable[ReplicaId], known: Mapping[str, ReplicaId], none: str = "there is no replica"
) -> tuple[ReplicaId, ...]:
    """The replicas with these names, of those by their names.

    Raises:
        UnknownNameError: There is no such replica, or there are several of that name.
    """
    meant: list[ReplicaId] = []
    for index, replica_id in enumerate(replica_ids):
        found, field = meant_by(replica_id, known), f"replica_ids[{index}]"
        if not found:
            raise UnknownNameError(f"{none} {replica_id!r}: status() shows those that there are", field=field)
        if len(found) > 1:
            raise UnknownNameError(not_one("replica", replica_id, found, known), field=field)
        meant.append(known[found[0]])
    return tuple(meant)
