"""The environment that a program's code runs in: its job's `runtime_env`, and where its modules are found.

Ray gives an actor the environment of the process that creates it: what the actor's options do not name comes from there, field
by field and variable by variable, and nothing can be unnamed. One controller creates the actors of all programs, so two things
are needed for each program to get its own environment and nothing of another's. The controller has no environment (see
`detached`), and each actor is given the whole of its program's: the job's `runtime_env` travels with the package, merged with
the options of the deployment as Ray would have done, and counts as a part of the version. An uploaded folder is named by its
content there (`gcs://_ray_pkg_<hash>.zip`), so that an edited one is another version.

Ray deletes an uploaded folder as soon as no job and no actor refers to it. A detached actor refers to it while it runs, but its
replacement is created later, perhaps when the job has ended long ago. So the controller refers to the packages of all that may
be started again (`hold`): such a reference lapses by itself, and is renewed long before. Nothing has to be given back, and a
controller that is started again within that time finds the packages.

Modules: Ray puts folders of the job that an actor belongs to, here the first program's, in front of all others. They are moved
to the end, and those of the program that deploys come first, in its own order; before them only the uploaded ones.
"""

import asyncio
import json
import logging
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import ray
from ray._private.runtime_env.constants import RAY_RUNTIME_ENV_PLUGINS_ENV_VAR
from ray.experimental import internal_kv
from ray.runtime_env import RuntimeEnv as RuntimeEnvOfRay

LOG = logging.getLogger(__name__)

UPLOADED = "gcs://"
"""Packages that Ray keeps for as long as something refers to them; all others are fetched from where they are."""
UNPACKED = f"{os.sep}runtime_resources{os.sep}"
"""In the path of each folder that Ray has made of a package."""
HELD_S = 600
"""How long a reference to a package lasts: longer than any controller takes to come back."""
RENEW_S = 60.0
IGNORE_GITIGNORE = "RAY_RUNTIME_ENV_IGNORE_GITIGNORE"
"""As Ray reads it, when a job is started."""

RuntimeEnv = dict[str, Any]
"""As plain data, with URIs for what was uploaded; {}: none."""


_uploaded_anew: RuntimeEnv = {}
"""What this process has uploaded since its job was started, in the place of what its job has."""


def of_job() -> RuntimeEnv:
    """The environment of this process: in a driver, what its job was started with, but for what was uploaded anew."""
    found: RuntimeEnv = json.loads(ray.get_runtime_context().get_runtime_env_string() or "{}") if ray.is_initialized() else {}
    return {**found, **_uploaded_anew}


def upload_anew(environment: Mapping[str, Any]) -> None:
    """Upload the `working_dir` of the job's environment as it is now: what is deployed from now on runs in that copy."""
    from ray._private.runtime_env.working_dir import upload_working_dir_if_needed

    respects = os.environ.get(IGNORE_GITIGNORE, "0") != "1"
    found = upload_working_dir_if_needed({**environment}, include_gitignore=respects)
    _uploaded_anew["working_dir"] = found["working_dir"]


def merged(outer: Mapping[str, Any], inner: Mapping[str, Any] | None) -> RuntimeEnv:
    """An environment in another one, as Ray merges them: the inner one's fields hold, and variables are those of both.

    >>> merged({"working_dir": "gcs://a.zip", "env_vars": {"A": "1", "B": "1"}}, {"env_vars": {"B": "2"}})
    {'working_dir': 'gcs://a.zip', 'env_vars': {'A': '1', 'B': '2'}}
    """
    inner = inner or {}
    variables = {**(outer.get("env_vars") or {}), **(inner.get("env_vars") or {})}
    return {**outer, **inner, **({"env_vars": variables} if variables else {})}


def known_fields() -> frozenset[str] | None:
    """What Ray knows of a `runtime_env`; None: anything, since plugins are named where this process runs, and know more."""
    if os.environ.get(RAY_RUNTIME_ENV_PLUGINS_ENV_VAR):
        return None
    return frozenset(field for field in RuntimeEnvOfRay.known_fields if not field.startswith("_"))


def uploaded(environment: Mapping[str, Any] | None) -> frozenset[str]:
    """The packages of an environment that Ray deletes when nothing refers to them."""
    fields = environment or {}
    named = (fields.get("working_dir"), *(fields.get("py_modules") or ()), *(fields.get("java_jars") or ()))
    return frozenset(uri for uri in named if isinstance(uri, str) and uri.startswith(UPLOADED))


def refer_to(uris: Iterable[str]) -> None:
    """Keep packages for `HELD_S` from now on. Blocks for a round trip each."""
    for uri in sorted(uris):
        internal_kv._pin_runtime_env_uri(uri, expiration_s=HELD_S)


async def hold(needed: Callable[[], Iterable[str]]) -> None:
    """Keep the packages that are needed, whichever these are at the time; returns never."""
    while True:
        try:
            await asyncio.to_thread(partial(refer_to, frozenset(needed())))
        except Exception as error:  # whatever the connection to the cluster raises
            LOG.warning("the packages of the runtime environments are not held now; this is tried again: %s", error)
        await asyncio.sleep(RENEW_S)


def module_path() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Where this process finds modules: before the interpreter's own, and behind their beginning."""
    paths = tuple(os.path.abspath(path) for path in sys.path)
    library = os.path.dirname(os.__file__)
    archive = os.path.join(os.path.dirname(library), f"python{sys.version_info.major}{sys.version_info.minor}.zip")
    begins = next((index for index, path in enumerate(paths) if path in (library, archive)), 0)
    installed = tuple(f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "purelib", "platlib"))
    before = tuple(path for path in paths[:begins] if not f"{path}{os.sep}".startswith(installed))
    return before, tuple(path for path in paths if path not in before)


def find_modules(before: Iterable[str], behind: Iterable[str]) -> None:
    """Find modules as the program that deployed does (`module_path`): from now on, and what was uploaded first of all."""
    ours = [path for path in sys.path if path not in _of_the_controllers_job()]
    sys.path[:] = dict.fromkeys((*_given(), *before, *ours, *behind, *sys.path))


def _given() -> list[str]:
    """What the environment of this process itself says, which Ray puts before the node's own PYTHONPATH."""
    environment = of_job()
    in_place = str(environment.get("working_dir") or "").removeprefix("local://")
    said = (in_place, *str((environment.get("env_vars") or {}).get("PYTHONPATH", "")).split(os.pathsep))
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [path for path in paths if path and (UNPACKED in path or path in said)]


def _of_the_controllers_job() -> frozenset[str]:
    worker = ray._private.worker.global_worker
    if not worker.connected or worker.mode != ray.WORKER_MODE:
        return frozenset()
    return frozenset(worker.core_worker.get_job_config().py_driver_sys_path)
