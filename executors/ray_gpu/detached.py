"""How controllers are started: detached actors on the head node, without the runtime environment of the job that starts them.

An actor has at least the environment of the job that creates it, and a controller hands its own on to all that it creates. So a
job that has one lets another process, which joins the cluster as a job without, create the controller. Where that
cannot be had, such as where rankcore itself comes to the cluster in the job's environment, the job creates it; whatever another
job's environment does not name is then as in that job's.
"""

import importlib
import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import ray
from ray._common.constants import HEAD_NODE_RESOURCE_NAME
from ray.exceptions import GetTimeoutError
from ray.job_config import JobConfig
from ray.util.client import ray as ray_client

from executors.ray_gpu import environment

LOG = logging.getLogger(__name__)

HEAD_SHARE = 0.001
"""Controllers live on the head node, as Ray Serve's does: the loss of any other node does not cost them too."""
UP_S = 30.0
"""So long a controller may take to say that it is there; after that it is waited for by whoever needs it."""
START_S = 120.0
PROGRAM = "import json, sys; given = json.load(sys.stdin); sys.path[:] = given['sys_path']\n" + (
    "from executors.ray_gpu.detached import create_without_environment; create_without_environment(given)"
)
NO_ENVIRONMENT = {"RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
ENVIRONMENT_VARIABLES = ("RAY_JOB_CONFIG_JSON_ENV_VAR", "RAY_RUNTIME_ENV", "RAY_RUNTIME_ENV_HOOK")
"""Through which Ray gives a process that joins a cluster a runtime environment that it has not asked for."""


def started(kind: str, name: str, namespace: str, options: Mapping[str, Any], *args: Any) -> Any:
    """The handle of a detached actor, which is created where there is none.

    Args:
        kind: "module:Class".
        name: Of the actor.
        namespace: Likewise.
        options: Further ones, for Ray.
        args: For the class: strings, bytes or None.
    """
    if environment.of_job() and not ray_client.is_connected():
        try:
            return ray.get_actor(name, namespace=namespace)
        except ValueError:
            _ask_another_process(kind, name, namespace, options, args)
    return _create(kind, name, namespace, options, args)


def _create(kind: str, name: str, namespace: str, options: Mapping[str, Any], args: tuple[Any, ...]) -> Any:
    module, _, class_name = kind.partition(":")
    actor_class: Any = ray.remote(getattr(importlib.import_module(module), class_name))
    return actor_class.options(
        name=name,
        namespace=namespace,
        get_if_exists=True,
        lifetime="detached",
        max_restarts=-1,
        max_concurrency=10_000,
        num_cpus=0,
        resources={HEAD_NODE_RESOURCE_NAME: HEAD_SHARE},
        **options,
    ).remote(*args)


def _ask_another_process(kind: str, name: str, namespace: str, options: Mapping[str, Any], args: tuple[Any, ...]) -> None:
    given = {
        "address": ray.get_runtime_context().gcs_address,
        "sys_path": sys.path,
        "job_path": list(ray._private.worker.global_worker.core_worker.get_job_config().py_driver_sys_path),
        "actor": [kind, name, namespace, dict(options), [each.hex() if isinstance(each, bytes) else each for each in args]],
        "as_bytes": [isinstance(each, bytes) for each in args],
    }
    kept = {variable: value for variable, value in os.environ.items() if variable not in ENVIRONMENT_VARIABLES}
    command = [sys.executable, "-c", PROGRAM]
    try:
        subprocess.run(
            command,
            input=json.dumps(given),
            env={**kept, **NO_ENVIRONMENT},
            check=True,
            capture_output=True,
            text=True,
            timeout=START_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        why = (getattr(error, "stderr", None) or str(error)).strip().rpartition("\n")[2]
        LOG.warning("%s is started with the runtime environment of this job, since it cannot be without: %s", name, why)


def create_without_environment(given: Mapping[str, Any]) -> None:
    """The other process: join the cluster, create the actor, and leave when it is up.

    Raises:
        RayError: It cannot come up, and is ended.
    """
    from executors.ray_gpu import connection

    job = JobConfig(_py_driver_sys_path=list(given["job_path"]))
    connection.join(given["address"], job_config=job, log_to_driver=False)
    kind, name, namespace, options, sent = given["actor"]
    args = tuple(bytes.fromhex(each) if hexed else each for each, hexed in zip(sent, given["as_bytes"], strict=True))
    actor = _create(kind, name, namespace, options, args)
    try:
        ray.get(actor.hello.remote(), timeout=UP_S)
    except GetTimeoutError:
        return
    except Exception:
        ray.kill(actor, no_restart=True)
        raise
