"""A driver's way to the controller: find Ray, find or start the controller, ask it, and say clearly what is wrong."""

import atexit
import logging
import math
import os
import socket
import time
from collections.abc import Mapping
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError

from executors.ray_gpu import detached, names
from executors.ray_gpu.cluster_address import forget_address, found_address, leave_address
from executors.ray_gpu.errors import NoAnswerError, NotRunningError, VersionMismatchError
from executors.ray_gpu.token import show_token
from executors.ray_gpu.versions import versions

START_RAY = "start it with `ray start --head`, or call ray.init() first"
LOOPBACK_VARIABLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Set to 0, Ray listens on 127.0.0.1 alone, which is its default on desktops only."""
LOG = logging.getLogger(__name__)

LOG_LEVEL = "warning"
CONNECT_S = 3.0
ANSWER_S = 60.0
"""So long a controller may be silent: its watchdog ends a hung one within 30 s, and then another one comes up and recovers."""
LOOK_S = 10.0
"""So often one that takes long for something is asked whether it is there."""


def default_namespace() -> str:
    """The namespace that is meant where none is named."""
    return os.environ.get("RANKCORE_NAMESPACE") or names.DEFAULT_NAMESPACE


def connect(*, start: bool, runtime_env: Mapping[str, Any] | None = None, shows_logs: bool = True) -> None:
    """Be connected to a cluster.

    Args:
        start: Whether to start a cluster on this machine, reachable from it alone, where none runs.
        runtime_env: Of this process's job, and so of what it deploys; None: none.
        shows_logs: Whether Ray prints here what processes of this job print.

    Raises:
        NotRunningError: There is none, or it cannot be reached; an UntrustedAddressError where another user may have named it.
    """
    if ray.is_initialized():
        return
    wanted = os.environ.get("RAY_ADDRESS", "")
    options: dict[str, Any] = {} if shows_logs else {"log_to_driver": False}
    if runtime_env is not None:
        options["runtime_env"] = dict(runtime_env)
    if wanted == "local" and start:
        return _start_local(**options)
    address = wanted if wanted not in ("", "auto", "local") else found_address()
    if address and _answers(address):
        join(address, **options)
    elif wanted not in ("", "auto", "local"):
        raise NotRunningError(f"no Ray cluster can be reached at RAY_ADDRESS={wanted}: {START_RAY}")
    elif start:
        _start_local(**options)
    else:
        raise NotRunningError(f"Ray is not running: {START_RAY}")


def join(address: str, **options: Any) -> None:
    """Be connected to the cluster at an address, with further options of `ray.init`.

    Raises:
        NotRunningError: It cannot be joined.
    """
    if address.startswith("127.0.0.1:"):
        _loopback_only()  # else Ray would look for it at this machine's public address
    show_token(make=False)
    try:
        ray.init(address=address, logging_level=LOG_LEVEL, **options)
    except (ConnectionError, ValueError, RuntimeError) as error:
        text = " ".join(str(error).split())
        if "ersion mismatch" in text:
            raise VersionMismatchError(f"this process and the cluster at {address} differ: {text}") from None
        raise NotRunningError(f"the Ray cluster at {address} cannot be joined: {text}") from None


def _answers(address: str) -> bool:
    """Whether anything listens there; Ray itself would try for long."""
    if "://" in address:
        return True  # Ray Client, which has its own ways
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), CONNECT_S).close()
    except (OSError, ValueError):
        return False
    return True


def _start_local(**options: Any) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault(LOOPBACK_VARIABLE, "0")
    if os.environ[LOOPBACK_VARIABLE] in ("0", "false", "False"):
        _loopback_only()
    show_token(make=True)
    ray.init(address="local", include_dashboard=False, logging_level=LOG_LEVEL, **options)
    # `ray start` leaves its address where others look for it; ray.init alone does not.
    address = ray.get_runtime_context().gcs_address
    leave_address(address)
    atexit.register(forget_address, address)


def _loopback_only() -> None:
    # Ray reads the variable when it is imported, which has happened by now.
    from ray._private import ray_constants

    ray_constants.ENABLE_RAY_CLUSTER = False


def find_controller(namespace: str, timeout_s: float = ANSWER_S) -> Any:
    """The controller's handle.

    Args:
        timeout_s: How long it may take to say its version, where that is not known.

    Raises:
        NotRunningError: There is none.
        NoAnswerError: It does not say its version.
        VersionMismatchError: It is of another version.
    """
    try:
        controller = ray.get_actor(names.CONTROLLER, namespace=namespace)
    except ValueError:
        raise NotRunningError(
            f"nothing runs in namespace {namespace!r} of this cluster: `rankcore run module:app` or run() deploys something"
        ) from None
    return _checked(controller, timeout_s)


def start_controller(namespace: str, journal: str | None, env_vars: Mapping[str, str] | None = None) -> Any:
    """The controller's handle; it is started where there is none.

    Args:
        journal: Where it is to write its journal, if it is started; "": in this user's private folder; None: nowhere.
        env_vars: Variables of its environment, if it is started; who is started by it has them too.
    """
    kind, options = "executors.ray_gpu.controller:Controller", dict[str, Any](max_task_retries=-1)
    if env_vars:
        if is_there(namespace):
            LOG.warning("controller_options have no effect: the controller of namespace %r runs already", namespace)
        options["runtime_env"] = {"env_vars": dict(env_vars)}
    return _checked(detached.started(kind, names.CONTROLLER, namespace, options, namespace, journal))


def is_there(namespace: str) -> bool:
    """Whether a controller runs, of whatever version."""
    try:
        ray.get_actor(names.CONTROLLER, namespace=namespace)
    except ValueError:
        return False
    return True


def running(namespace: str | None, timeout_s: float = ANSWER_S) -> Any:
    """The controller of a namespace, in the cluster that is meant; None: of the namespace that is meant where none is named.

    Raises:
        NotRunningError: Neither of them runs.
        NoAnswerError: As `find_controller`.
    """
    connect(start=False)
    return find_controller(namespace or default_namespace(), timeout_s)


def has(controller: Any, method: str) -> bool:
    """Whether a controller that runs has a method that came later than others.

    Ray takes the methods of a controller from the code that is installed here, whatever code the controller runs. One that
    began before that was installed, and is called by a method that it lacks, ends with an error of Ray's own, and so does each
    that Ray starts in its place: so it is asked. What is sent is no function of a module, which it would look up in its own.
    """
    if not hasattr(controller, "__ray_call__"):
        return hasattr(controller, method)
    answer = controller.__ray_call__.remote(lambda self: hasattr(self, method))
    try:
        return bool(ray.get(answer, timeout=ANSWER_S))
    except GetTimeoutError:
        raise NoAnswerError(_no_answer("hasattr", ANSWER_S, ANSWER_S)) from None
    except RayError as error:
        raise NotRunningError(f"the controller is gone: {error}") from None


def ask(controller: Any, method: str, *args: object, timeout_s: float = ANSWER_S) -> Any:
    """Call the controller and wait; a call that meets a crash is repeated by Ray once it is back.

    Raises:
        NoAnswerError: No answer in time.
        NotRunningError: The controller is gone for good.
        Exception: What the method raised, as itself.
    """
    return _answer(controller, method, args, timeout_s, timeout_s)


def ask_at_length(controller: Any, method: str, *args: object, timeout_s: float | None = None) -> Any:
    """Call the controller and wait for as long as it takes, and as the controller lives: it is asked so in between.

    Args:
        timeout_s: It may take no longer; None: it may.

    Raises:
        NoAnswerError: It has taken longer, or the controller has answered nothing for `ANSWER_S`.
        NotRunningError, Exception: As `ask`.
    """
    return _answer(controller, method, args, math.inf if timeout_s is None else timeout_s, ANSWER_S)


def _answer(controller: Any, method: str, args: tuple[object, ...], timeout_s: float, silence_s: float) -> Any:
    began = heard = time.monotonic()
    if not hasattr(controller, method):  # Ray gives it the methods that it was created with, whatever code it runs now
        raise VersionMismatchError(
            f"the controller is from before {method!r} was there: shutdown(), and deploy again, to have it"
        )
    try:
        answer, alive = getattr(controller, method).remote(*args), None
        while True:
            now = time.monotonic()
            left_s = min(began + timeout_s, heard + silence_s) - now
            asked = [answer] if alive is None else [answer, alive]
            ready, _ = ray.wait(asked, timeout=max(0.0, min(left_s, LOOK_S)), fetch_local=False)
            if answer in ready:
                return ray.get(answer)
            if alive is not None and ready:
                alive, heard = None, time.monotonic()
            elif left_s <= 0:
                raise NoAnswerError(_no_answer(method, now - began, now - heard))
            elif alive is None and silence_s < timeout_s:
                alive = controller.hello.remote()
    except RayTaskError as error:
        cause = error.cause
        raise (cause if isinstance(cause, Exception) else error) from None
    except RayActorError as error:
        raise NotRunningError(f"the controller is gone: {error}") from None
    except RayError as error:
        raise NotRunningError(f"the cluster does not answer: {error}") from error


def _no_answer(method: str, waited_s: float, silent_s: float) -> str:
    quiet = f", and nothing else for the last {silent_s:.0f} s" if silent_s < waited_s else ""
    return (
        f"the controller has not answered {method!r} within {waited_s:.1f} s{quiet}: it is busy, or it hangs and its watchdog "
        "ends it, or Ray does not start another; ask again, see its log (`ray logs actor`), or end it with shutdown()"
    )


_known: dict[tuple[str, Any], None] = {}


def _checked(controller: Any, timeout_s: float = ANSWER_S) -> Any:
    key = (ray.get_runtime_context().get_job_id(), controller._actor_id)
    if key in _known:
        return controller
    theirs = ask(controller, "hello", timeout_s=timeout_s)
    ours = versions()
    for what, version in ours.items():
        if theirs.get(what) != version:
            raise VersionMismatchError(
                f"this process has {what} {version}, the controller {what} {theirs.get(what)}: use the same here and there, "
                "shutdown() with the version that it was started with, or upgrade the cluster in place (docs/ray.md)"
            )
    _known[key] = None
    return controller
