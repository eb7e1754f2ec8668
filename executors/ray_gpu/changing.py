"""How a user changes what runs: scale, restart, pause, promote, resume, rollback, retry, evict, update, cordon, drain, replace.

`executors.operations` says which fields of a spec follow, and is the same for local processes. None of these waits for what it
sets going.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from executors import operations
from executors.ray_gpu import connection
from executors.ray_gpu.connection import ask
from executors.ray_gpu.declaration import option_of
from executors.ray_gpu.errors import InvalidCallError, InvalidDeploymentError
from executors.ray_gpu.inspecting import running_status
from executors.ray_gpu.overview import CordonedNode
from executors.ray_gpu.packing import without_any_number
from rankcore.errors import InvalidSpecError
from rankcore.values import ReplicaId


def scale(name: str, num_replicas: int, *, stop_first: Iterable[ReplicaId] = (), namespace: str | None = None) -> None:
    """Want another number of replicas. Returns when that is checkpointed and announced, not when it is reached.

    Args:
        name: Of the deployment, `application/deployment` or bare.
        num_replicas: The new world size.
        stop_first: Replicas that a downscale should stop before any other.
    """
    _change(name, {"target_replicas": num_replicas}, tuple(stop_first), namespace)


def restart(name: str, *, token: str | None = None, namespace: str | None = None) -> None:
    """Replace every replica of a deployment once, a few at a time, by one of the same version: no outage (V10).

    As an update does: within `max_unavailable` and `max_surge`, each with its rank. Returns when that is stored.

    Args:
        name: Of the deployment, `application/deployment` or bare.
        token: Another `restart_token` than the present one, with which nothing happens; None: the time.

    Raises:
        InvalidDeploymentError: It has `residency`: evict it.
    """
    _change(name, operations.restarted(token), (), namespace)


def pause(name: str, *, namespace: str | None = None) -> None:
    """Let an update reach no further rank: `partition` is above every rank (V13). What starts already goes on.

    Crashes are repaired and newcomers come, each with what was healthy last. Another `run` says anew how far it reaches.
    """
    _change(name, operations.paused(), (), namespace)


def promote(name: str, replicas: int | str = "100%", *, namespace: str | None = None) -> None:
    """Let an update reach so many replicas in all, those with the highest ranks: a number, or a share such as "25%".

    Raises:
        InvalidCallError: It is neither.
    """
    reach = operations.checked_reach(replicas)
    wanted = running_status(namespace).deployments
    target = wanted[name].world_size if name in wanted else 0  # who has no such name is told so by `_change`
    _change(name, operations.promoted(reach, target), (), namespace)


def resume(name: str, *, namespace: str | None = None) -> None:
    """Let an update that was paused, or held back by a partition, reach all ranks."""
    _change(name, operations.resumed(), (), namespace)


def rollback(name: str, *, namespace: str | None = None) -> None:
    """Go back to what was healthy last: its code, its `user_config`, in all ranks. Returns when that is stored.

    Other options stay as they are. An update that has become healthy is what was healthy last: deploy the older code then.

    Raises:
        InvalidDeploymentError: It was never healthy, or with nothing else than what is wanted now.
    """
    ask(connection.running(namespace), "rollback", name)


def retry(name: str, *, ranks: Iterable[int] = (), namespace: str | None = None) -> None:
    """Try again now what failed: ends the back-off, and rolls out again what was given up (V19). Returns when that is stored.

    Args:
        name: Of the deployment, `application/deployment` or bare.
        ranks: Whose back-off ends; none: of all.

    Raises:
        InvalidCallError: `ranks` is not what it may be.
        InvalidDeploymentError: Nothing waits for a back-off, and it was not given up.
    """
    named = operations.checked_ranks(ranks)
    ask(connection.running(namespace), "retry", name, named)


def evict(name: str, *, keep: Literal["WARM", "COLD"] = "WARM", namespace: str | None = None) -> None:
    """Take weights that may be COLD off the GPUs, once the calls that are under way there are finished. Does not wait for that.

    The number of replicas that are wanted falls with it; a call that waits asks for one again.

    Args:
        name: Of a deployment with `residency`, or of one of its replicas.
        keep: "WARM": a copy stays in the node's memory if there is room; "COLD": none does.

    Raises:
        UnknownNameError: There is no such deployment or replica, or there are several of that name.
        InvalidDeploymentError: It has no `residency`.
    """
    if keep not in ("WARM", "COLD"):
        raise InvalidCallError(f"keep must be 'WARM' or 'COLD', got {keep!r:.80}", field="keep")
    ask(connection.running(namespace), "evict", name, str(keep))


def update(name: str, *, namespace: str | None = None, **options: Any) -> None:
    """Change options of a deployment in place: `user_config`, `num_replicas`, time-outs, `max_ongoing_requests`, ...

    Raises:
        InvalidDeploymentError: There is no such option, or it needs other code: that takes a new `run`.
    """
    update_options(name, options, namespace=namespace)


def update_options(name: str, options: Mapping[str, Any], *, namespace: str | None = None) -> None:
    """As `update`, of options whose names are not known to be any.

    Raises:
        InvalidDeploymentError: As `update`.
    """
    from executors.ray_gpu.declaration import ROUTING_OPTIONS, SPEC_OPTIONS
    from executors.ray_gpu.serve_options import in_our_words

    options = in_our_words(options)
    changeable = {option: field for option, field in (*SPEC_OPTIONS.items(), *ROUTING_OPTIONS.items()) if option != "version"}
    for option in options:
        if option not in changeable:
            there_is = ", ".join(sorted(changeable))
            refusal = f"update cannot change {option!r}: run() deploys new code; it can change: {there_is}"
            raise InvalidDeploymentError(refusal, field=option)
    fields = {changeable[option]: value for option, value in options.items() if option in SPEC_OPTIONS}
    routing = {changeable[option]: value for option, value in options.items() if option in ROUTING_OPTIONS}
    _change(name, fields, (), namespace, without_any_number(routing))


def stop_replicas(replica_ids: Iterable[ReplicaId], *, namespace: str | None = None) -> None:
    """Stop these replicas; each is replaced, and its replacement has its rank.

    Raises:
        UnknownNameError: One of them does not exist, or several have that name. None is stopped.
    """
    named = operations.checked_ids("stop_replicas", replica_ids)
    ask(connection.running(namespace), "stop_replicas", named)


def replace_replicas(
    replica_ids: Iterable[ReplicaId], *, deadline_s: float | None = None, namespace: str | None = None
) -> None:
    """Replace these replicas within the budget, each by a successor with its rank that has a place before it goes (V14).

    Args:
        deadline_s: After so many seconds none of them is there any more, whether its successor is or not (V15); None: there is
            time.

    Raises:
        UnknownNameError: One of them does not exist, or several have that name. None is replaced.
        InvalidDeploymentError: The weights of one of them may be COLD: evict it.
    """
    named, for_s = operations.checked_ids("replace_replicas", replica_ids), operations.checked_deadline(deadline_s)
    ask(connection.running(namespace), "replace_replicas", named, for_s)


def cordon(node: str, *, namespace: str | None = None) -> CordonedNode:
    """Let nothing new come to a node, of whichever deployment; nobody there is touched (V14). It outlives the controller.

    Args:
        node: Its id, the beginning of its id, or its address.

    Returns:
        How it stands with the node, and what becomes of each replica there.

    Raises:
        UnknownNameError: No node that is alive is called so, or several are; says which there are.
    """
    found: CordonedNode = ask(connection.running(namespace), "cordon", node)
    return found


def uncordon(node: str, *, namespace: str | None = None) -> CordonedNode:
    """Cordon and drain of a node are over; who was told to stop by then still stops. As `cordon`.

    Raises:
        InvalidCallError: Ray itself drains the node, which has no way back.
    """
    found: CordonedNode = ask(connection.running(namespace), "uncordon", node)
    return found


def drain(node: str, *, deadline_s: float | None = None, reason: str = "drain", namespace: str | None = None) -> CordonedNode:
    """Have all replicas leave a node, each once its successor has a place elsewhere, within `max_unavailable` (V14).

    Where Ray itself drains a node (`ray drain-node`, a preemption notice, its autoscaler), that is done unasked.

    Args:
        deadline_s: After so many seconds nobody is there any more, whether there is room elsewhere or not; they are stopped
            `graceful_shutdown_timeout_s` before (V15). None: there is time.
        reason: Shown while it lasts.
    """
    for_s, why = operations.checked_deadline(deadline_s), operations.checked_reason(reason)
    found: CordonedNode = ask(connection.running(namespace), "drain", node, for_s, why)
    return found


def _change(
    name: str,
    fields: dict[str, Any],
    stop_first: tuple[ReplicaId, ...],
    namespace: str | None,
    routing: dict[str, Any] | None = None,
) -> None:
    try:
        ask(connection.running(namespace), "change", name, fields, stop_first, routing)
    except InvalidSpecError as error:
        raise option_of(error) from None
