"""Starts and ends the REST server of a namespace, from any process that can reach the cluster."""

import time
from collections.abc import Mapping
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError

from executors.ray_gpu import connection, detached, names
from executors.ray_gpu.errors import InvalidDeploymentError, NotRunningError
from executors.ray_gpu.rest.options import RestOptions

UP_S = 60.0
GONE_S = 10.0
LOOK_S = 0.05


def start_rest(options: RestOptions | Mapping[str, Any] | None = None, *, namespace: str | None = None) -> RestOptions:
    """Have a REST server on the head node, as chosen; one that is otherwise is ended first. It outlives this process.

    The live page is at `/dashboard` of it: http://127.0.0.1:8280/dashboard by default.

    Args:
        options: `RestOptions`, or a dict of its fields; None: on this machine alone, without a token.
        namespace: Whose controller it asks, which need not run yet.

    Returns:
        What is served.

    Raises:
        InvalidDeploymentError: An option is not what it may be, or the port is another's.
        NotRunningError: Ray does not run, or the server has not come up.
    """
    wanted = options if isinstance(options, RestOptions) else RestOptions.of(options or {})
    _check_importable()
    connection.connect(start=False)
    namespace = namespace or connection.default_namespace()
    found = _described(namespace)
    if found is not None and RestOptions.of_json(found) != wanted:
        end_rest(namespace)
    kind = "executors.ray_gpu.rest.server:RestServer"
    try:
        actor = detached.started(kind, names.REST, namespace, {}, namespace, wanted.to_json())
        ray.get(actor.hello.remote(), timeout=UP_S)
    except RayActorError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise InvalidDeploymentError(f"no REST server at {wanted.host}:{wanted.port}: {lines[-1]}") from None
    except RayError as error:
        raise NotRunningError(f"the REST server has not come up within {UP_S:g} s: {error}") from None
    return wanted


def stop_rest(*, namespace: str | None = None) -> bool:
    """End the REST server, and return once it is gone; whether there was one. What runs goes on.

    Raises:
        NotRunningError: Ray does not run.
    """
    connection.connect(start=False)
    return end_rest(namespace or connection.default_namespace())


def end_rest(namespace: str) -> bool:
    """The same; the process is connected."""
    try:
        actor = ray.get_actor(names.REST, namespace=namespace)
    except ValueError:
        return False
    ray.kill(actor)
    deadline = time.monotonic() + GONE_S
    while time.monotonic() < deadline:
        try:
            ray.get(actor.describe.remote(), timeout=GONE_S)
        except RayError:
            return True
        time.sleep(LOOK_S)
    return True


def rest_there(namespace: str | None = None) -> RestOptions | None:
    """How the REST server that there is was started; None: there is none.

    Raises:
        NotRunningError: Ray does not run.
    """
    connection.connect(start=False)
    found = _described(namespace or connection.default_namespace())
    return RestOptions.of_json(found) if found is not None else None


def _described(namespace: str) -> str | None:
    """What the one that there is serves; None: there is none."""
    try:
        actor = ray.get_actor(names.REST, namespace=namespace)
        described: tuple[int, str] = ray.get(actor.describe.remote(), timeout=UP_S)
    except (ValueError, RayError):
        return None
    return described[1]


def _check_importable() -> None:
    try:
        from executors.ray_gpu.rest import server  # noqa: F401
    except ImportError as error:
        raise InvalidDeploymentError(f"the REST server needs more packages: pip install 'rankcore[http]' ({error})") from None
