"""Calls that run, as their replicas know them, and calls that wait, as their callers do; and the end of one, of which its
caller is told.

The controller knows of no call. It says where the replicas are, and passes on what the processes that call are asked, or told
to do, and what they say to that: these follow it anyway (`watches`), and need not be found.
"""

import base64
import binascii
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

import attrs
import ray
from ray.exceptions import RayError, RayTaskError

from executors.ray_gpu import connection, names
from executors.ray_gpu.connection import ask
from executors.ray_gpu.errors import InvalidCallError, NoAnswerError, UnknownNameError, VersionMismatchError
from executors.ray_gpu.inspecting import running_status
from executors.ray_gpu.overview import DeploymentInfo, Status

ANSWER_S = 3.0
"""So long all replicas together may take: user code that holds up its loop holds up the answer too."""
SHOWN = {"(http)": "HTTP"}
"""What stands for a method where there is none."""
WAITS = "waits for "
"""Where there is the id of a replica otherwise, before the name of a deployment."""
CANCELLED = "an operator has cancelled this call"


@attrs.frozen(kw_only=True)
class CallUnderWay:
    """One call that a replica runs.

    Attributes:
        id: For `cancel_request`.
        deployment: Its full name.
        method: Of the user's class; "HTTP": a request from outside, or a websocket.
        request_id: For logs, as the client, the caller or the proxy has named it; "": nobody has.
        age_s: Since the replica began it.
    """

    id: str
    deployment: str
    replica_id: str
    method: str
    request_id: str
    model_id: str
    stream: bool
    age_s: float


@attrs.frozen(kw_only=True)
class CallWaiting:
    """One call that waits, in its caller's process.

    Attributes:
        id: For `cancel_request`.
        deployment: Its full name.
        method, request_id: As of a `CallUnderWay`.
        age_s: Since it came.
        position: Among those that wait for the deployment in the same process, from 1.
        status: How the deployment stands for it: "QUEUED", "PROVISIONING behind chat/M", "LOADING 40 %, 12 s".
    """

    id: str
    deployment: str
    method: str
    request_id: str
    model_id: str
    stream: bool
    age_s: float
    position: int
    status: str


@attrs.frozen
class CallsUnderWay:
    """All of them, the oldest first.

    Attributes:
        calls: Those that replicas run.
        silent: Replicas that have not answered.
        waiting: Those that wait.
        silent_callers: How many processes have not answered in which calls may wait: they have said so last, or have just
            begun to call.
    """

    calls: tuple[CallUnderWay, ...]
    silent: tuple[str, ...]
    waiting: tuple[CallWaiting, ...] = ()
    silent_callers: int = 0


def requests_under_way(name: str | None = None, *, namespace: str | None = None) -> CallsUnderWay:
    """Which calls replicas run now, and which wait. Waits for 5 s at most.

    Args:
        name: Of an application or a deployment; None: of all.

    Raises:
        NotRunningError: There is no controller.
        UnknownNameError: Nothing has the name.
    """
    found = running_status(namespace)
    return calls_in(found if name is None else found.only(name))


def calls_in(found: Status) -> CallsUnderWay:
    """Those of the deployments of a status. The process is connected."""
    asked, silent = {}, []
    for deployment, replica_id, actor_name in replica_actors(found.deployments.values()):
        try:
            asked[_actor(actor_name, found.namespace).requests.remote()] = deployment, replica_id
        except (ValueError, AttributeError):  # gone by now, or of an older release
            silent.append(replica_id)
    ready, late = ray.wait(list(asked), num_returns=len(asked), timeout=ANSWER_S) if asked else ([], [])
    calls: list[CallUnderWay] = []
    for each in ready:
        deployment, replica_id = asked[each]
        try:
            calls += [_call(deployment, replica_id, data) for data in ray.get(each)]
        except RayError:
            silent.append(replica_id)
    silent += [asked[each][1] for each in late]
    wait = _inquire(found, tuple(found.deployments))
    waiting = tuple(sorted(map(_waiting, wait["calls"]), key=lambda call: -call.age_s))
    return CallsUnderWay(tuple(sorted(calls, key=lambda call: -call.age_s)), tuple(sorted(silent)), waiting, wait["silent"])


def cancel_waiting(name: str, *, reason: str = CANCELLED, namespace: str | None = None) -> tuple[str, ...]:
    """End all calls that wait for an application or a deployment: their callers get `CallCancelledError` with the reason.

    Calls that replicas run go on. Whoever calls later waits again.

    Returns:
        The `request_id`s of those that have ended; "" for one that has none.

    Raises:
        NotRunningError: There is no controller.
        UnknownNameError: Nothing has the name.
        NoAnswerError: Not all processes in which calls may wait have answered; calls of the others have ended.
    """
    found = running_status(namespace).only(name)
    ended = _inquire(found, tuple(found.deployments), because=reason)
    if ended["silent"]:
        raise NoAnswerError(f"{ended['silent']} processes in which calls may wait for {name} have not answered: try again")
    return tuple(each["request_id"] for each in ended["calls"])


def cancel_request(request: str, *, reason: str = CANCELLED, namespace: str | None = None) -> None:
    """End a call: its caller gets `CallCancelledError` with the reason. If a replica runs it, its task there is cancelled.

    A synchronous method cannot be cut off: it runs on, and nobody waits for it. One that waited when it was listed is ended
    also where a replica runs it by now.

    Args:
        request: The `id` of a `CallUnderWay` or a `CallWaiting`.

    Raises:
        InvalidCallError: It is no such id.
        UnknownNameError: There is no such call (any more).
        NoAnswerError: The replica does not answer.
    """
    replica_id, key, call_id = _parts(request)
    found = running_status(namespace)
    if replica_id.startswith(WAITS):
        ended = _inquire(found, (replica_id.removeprefix(WAITS),), key, call_id, reason)
        if not ended["calls"] and ended["silent"]:
            raise NoAnswerError("the process in which the call waits has not answered: try again")
        return None if ended["calls"] else _gone(request)
    there = {each: actor_name for _, each, actor_name in replica_actors(found.deployments.values())}
    try:
        actor = _actor(there.get(replica_id, ""), found.namespace)
        is_there = ray.get(actor.end_request.remote(key, call_id, reason), timeout=ANSWER_S)
    except TimeoutError:
        raise NoAnswerError(f"replica {replica_id} has not answered within {ANSWER_S:g} s") from None
    except RayTaskError:
        raise
    except (ValueError, AttributeError, RayError):
        is_there = False
    if not is_there:
        _gone(request)


def _gone(request: str) -> NoReturn:
    raise UnknownNameError(f"there is no request {request!r:.80} under way (any more)")


def _inquire(
    found: Status,
    deployments: tuple[str, ...],
    process: str | None = None,
    request: int | None = None,
    because: str | None = None,
) -> dict[str, Any]:
    """See `Watches.inquire`; nothing waits, as far as is known, where the controller is of an older release."""
    controller = connection.running(found.namespace)
    if not connection.has(controller, "inquire_waiting"):
        if because is not None:
            raise VersionMismatchError(
                "the controller is from before calls that wait could be ended: shutdown(), and deploy again, to have it"
            )
        return {"calls": [], "silent": 0}
    answer: dict[str, Any] = ask(controller, "inquire_waiting", deployments, process, request, because)
    return answer


def replica_actors(infos: Iterable[DeploymentInfo]) -> Iterator[tuple[str, str, str]]:
    """Deployment and id of each replica that is up, and the name of its actor."""
    for info in infos:
        workers = {each.replica_id: each.worker_id for each in info.workers}
        for replica in info.replicas:
            if replica.pid is None:
                continue
            each = replica.replica_id
            worker_id = workers.get(each)
            is_worker = info.has_residency and worker_id is not None
            name = names.worker_name(str(worker_id)) if is_worker else names.actor_name(each.partition("#")[0], each)
            yield info.name, each, name


def _actor(name: str, namespace: str) -> Any:
    return ray.get_actor(name, namespace=namespace)


def _call(deployment: str, replica_id: str, data: dict[str, Any]) -> CallUnderWay:
    return CallUnderWay(
        id=_id_of(replica_id, data["key"], data["call_id"]),
        deployment=deployment,
        replica_id=replica_id,
        method=SHOWN.get(data["method"], data["method"]),
        request_id=data["request_id"],
        model_id=data["model_id"],
        stream=data["stream"],
        age_s=data["age_s"],
    )


def _waiting(data: dict[str, Any]) -> CallWaiting:
    return CallWaiting(
        id=_id_of(WAITS + data["deployment"], data["process"], data["request"]),
        deployment=data["deployment"],
        method=SHOWN.get(data["method"], data["method"]),
        request_id=data["request_id"],
        model_id=data["model_id"],
        stream=data["stream"],
        age_s=data["age_s"],
        position=data["position"],
        status=data["status"],
    )


def _id_of(where: str, key: str, number: int) -> str:
    return base64.urlsafe_b64encode(f"{where}\n{key}\n{number}".encode()).decode().rstrip("=")


def _parts(request: str) -> tuple[str, str, int]:
    try:
        text = base64.b64decode(request.encode() + b"=" * (-len(request) % 4), b"-_", validate=True).decode()
        replica_id, key, call_id = text.split("\n")
        return replica_id, key, int(call_id)
    except (ValueError, binascii.Error):
        raise InvalidCallError(f"request must be an id that requests_under_way() gave, got {request!r:.80}") from None
