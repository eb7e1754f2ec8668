"""A driver's way to the controller: find Ray, find or start the controller, ask it, and say clearly what is wrong."""

import atexit
import os
import socket
from typing import Any

import ray
from ray._raylet import AuthenticationTokenLoader, Config
from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError

from executors.ray_gpu import detached, names
from executors.ray_gpu.errors import NotRunningError, VersionMismatchError
from executors.ray_gpu.versions import versions

START_RAY = "start it with `ray start --head`, or call ray.init() first"
LOOPBACK_VARIABLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Set to 0, Ray listens on 127.0.0.1 alone, which is its default on desktops only."""
LOG_LEVEL = "warning"
CONNECT_S = 3.0
FIND_CONTROLLER_S = 30.0


def default_namespace() -> str:
    """The namespace that is meant where none is named."""
    return os.environ.get("RANKCORE_NAMESPACE") or names.DEFAULT_NAMESPACE


def connect(*, start: bool) -> None:
    """Be connected to a cluster.

    Args:
        start: Whether to start a cluster on this machine, reachable from it alone, where none runs.

    Raises:
        NotRunningError: There is none, or it cannot be reached.
    """
    if ray.is_initialized():
        return
    wanted = os.environ.get("RAY_ADDRESS", "")
    address = wanted if wanted not in ("", "auto", "local") else ray._private.utils.read_ray_address()
    if wanted == "local" and start:
        _start_local()
    elif address and _answers(address):
        join(address)
    elif wanted not in ("", "auto", "local"):
        raise NotRunningError(f"no Ray cluster can be reached at RAY_ADDRESS={wanted}: {START_RAY}")
    elif start:
        _start_local()
    else:
        raise NotRunningError(f"Ray is not running: {START_RAY}")


def join(address: str, **options: Any) -> None:
    """Be connected to the cluster at an address, with further options of `ray.init`.

    Raises:
        NotRunningError: It cannot be joined.
    """
    if address.startswith("127.0.0.1:"):
        _loopback_only()  # else Ray would look for it at this machine's public address
    if AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True):
        _show_token()
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


def _start_local() -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault(LOOPBACK_VARIABLE, "0")
    if os.environ[LOOPBACK_VARIABLE] in ("0", "false", "False"):
        _loopback_only()
    _show_token()
    ray.init(address="local", include_dashboard=False, logging_level=LOG_LEVEL)
    # `ray start` leaves its address where others look for it; ray.init alone does not.
    address = ray.get_runtime_context().gcs_address
    ray._private.utils.write_ray_address(address)
    atexit.register(_forget_address, address)


def _forget_address(address: str) -> None:
    if ray._private.utils.read_ray_address() == address:
        os.unlink(ray._private.utils.get_ray_address_file(None))


def _show_token() -> None:
    """Speak to Ray with this user's token (~/.ray/auth_token), which is made where there is none, unless told otherwise.

    Ray does it by itself for a cluster that it starts, with a warning, but not where it joins one.
    """
    if "RAY_AUTH_MODE" not in os.environ:
        os.environ["RAY_AUTH_MODE"] = "token"
        Config.initialize("")  # it was read when ray was imported


def _loopback_only() -> None:
    # Ray reads the variable when it is imported, which has happened by now.
    from ray._private import ray_constants

    ray_constants.ENABLE_RAY_CLUSTER = False


def find_controller(namespace: str) -> Any:
    """The controller's handle.

    Raises:
        NotRunningError: There is none.
        VersionMismatchError: It is of another version.
    """
    try:
        controller = ray.get_actor(names.CONTROLLER, namespace=namespace)
    except ValueError:
        raise NotRunningError(
            f"nothing runs in namespace {namespace!r} of this cluster: `rankcore run module:app` or run() deploys something; "
            "models of a fleet are shown by `rankcore where`"
        ) from None
    return _checked(controller)


def start_controller(namespace: str, journal: str | None) -> Any:
    """The controller's handle; it is started where there is none.

    Args:
        journal: Where it is to write its journal, if it is started; "": with Ray's logs; None: nowhere.
    """
    kind, options = "executors.ray_gpu.controller:Controller", {"max_task_retries": -1}
    return _checked(detached.started(kind, names.CONTROLLER, namespace, options, namespace, journal))


def ask(controller: Any, method: str, *args: object, timeout_s: float | None = None) -> Any:
    """Call the controller and wait; a call that meets a crash is repeated by Ray once it is back.

    Raises:
        TimeoutError: No answer in time.
        NotRunningError: The controller is gone for good.
        Exception: What the method raised, as itself.
    """
    try:
        return ray.get(getattr(controller, method).remote(*args), timeout=timeout_s)
    except GetTimeoutError:
        raise TimeoutError(f"the controller has not answered {method} within {timeout_s:g} s") from None
    except RayTaskError as error:
        cause = error.cause
        raise (cause if isinstance(cause, Exception) else error) from None
    except RayActorError as error:
        raise NotRunningError(f"the controller is gone: {error}") from None
    except RayError as error:
        raise NotRunningError(f"the cluster does not answer: {error}") from error


_known: dict[tuple[str, Any], None] = {}


def _checked(controller: Any) -> Any:
    key = (ray.get_runtime_context().get_job_id(), controller._actor_id)
    if key in _known:
        return controller
    theirs = ask(controller, "hello", timeout_s=FIND_CONTROLLER_S)
    ours = versions()
    for what, version in ours.items():
        if theirs.get(what) != version:
            raise VersionMismatchError(
                f"this process has {what} {version}, the controller {what} {theirs.get(what)}: use the same here and there, "
                "or shutdown() with the version that it was started with"
            )
    _known[key] = None
    return controller
