"""Actors that all replicas of a deployment share: `deployment_actors`, as in Ray Serve.

Each version of a deployment has its own. Whichever of its replicas begins first creates them, before its user's `__init__`:
in the environment of the replicas, and not in the controller, which never runs anybody's code. Ray starts an actor again that
has ended, and who asks for one that was killed gets another (`get_deployment_actor`): no controller is needed for it, and the
next one finds all of them. The controller ends those of a version that nobody will start again, and of which no replica is
left; what it has left behind as it ended, the next one does (`sweep`).

Their names say whose they are, and read back to a deployment, a version and a name.
"""

import inspect
import json
import os
import pickle
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import attrs
import ray
from ray import cloudpickle

from executors.ray_gpu.context import DeploymentID
from executors.ray_gpu.deployment_actor_config import DeploymentActorConfig, class_of
from executors.ray_gpu.errors import InvalidDeploymentError, NotInReplicaError

PREFIX = "rankcore-deployment-actor:"
VARIABLE = "RANKCORE_DEPLOYMENT_ACTOR"
"""In the environment of such an actor: who it is."""
NOT_OPTIONS = ("name", "namespace", "lifetime", "get_if_exists", "max_restarts")
"""Options of actors that are ours to say."""


def packed(actors: tuple[DeploymentActorConfig, ...]) -> bytes:
    """What replicas create them from; b"": there are none.

    Raises:
        InvalidDeploymentError: One of them cannot be imported or pickled.
    """
    return cloudpickle.dumps([_pickled(each) for each in actors]) if actors else b""


def _pickled(actor: DeploymentActorConfig) -> "Packed":
    from executors.loading import LoadError, load_object

    target = actor.actor_class
    try:
        if isinstance(target, str):
            target = load_object(target, "module:Class")
    except LoadError as error:
        raise InvalidDeploymentError(f"deployment_actors: actor_class of {actor.name}: {error}") from None
    what = (target, actor.init_args, dict(actor.init_kwargs))
    try:
        blob = _by_value(what, inspect.getmodule(class_of(target))) or bytes(cloudpickle.dumps(what))
    except Exception as error:
        raise InvalidDeploymentError(f"deployment_actors: {actor.name} cannot be pickled: {error}") from error
    options = {key: value for key, value in actor.actor_options.items() if key not in NOT_OPTIONS}
    return Packed(actor.name, blob, options)


def _by_value(what: object, module: Any) -> bytes | None:
    """Pickled with the code of a module, which its process need not find then; None: that has something that cannot be."""
    if module is None or module.__name__ == "__main__":
        return None
    cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(cloudpickle.dumps(what))
    except Exception:
        return None
    finally:
        cloudpickle.unregister_pickle_by_value(module)


class Packed(NamedTuple):
    """One of them, as it is kept with the code of its version.

    Attributes:
        blob: Pickled (class, args, kwargs).
        options: For Ray.
    """

    name: str
    blob: bytes
    options: dict[str, Any]


# -- in a replica


@attrs.frozen
class Shared:
    """Those of the replica that this process is."""

    namespace: str
    deployment: str
    version: str
    app_name: str
    own_name: str
    actors: Mapping[str, Packed]
    python_path: str

    def start(self) -> None:
        """Have all of them, and wait until they are up.

        Raises:
            RuntimeError: One of them does not come up, and why.
        """
        handles = {name: self.get(name) for name in self.actors}
        for name, handle in handles.items():
            try:
                ray.get(handle.__ray_ready__.remote())
            except Exception as error:  # whatever its `__init__` raised
                raise RuntimeError(f"the deployment actor {name!r} does not come up: {error}") from error

    def get(self, name: str) -> Any:
        """The handle of one, which is created where there is none."""
        with suppress(ValueError):
            return ray.get_actor(name_of(self.deployment, self.version, name), namespace=self.namespace)
        packed = self.actors[name]
        target, args, kwargs = pickle.loads(packed.blob)
        remote: Any = target if hasattr(target, "remote") else ray.remote(target)
        options = dict(packed.options)
        who = json.dumps([self.app_name, self.own_name, name, self.version])
        environment = dict(options.pop("runtime_env", None) or {})
        own = {VARIABLE: who, **({"PYTHONPATH": self.python_path} if self.python_path else {})}
        environment["env_vars"] = {**own, **(environment.get("env_vars") or {})}
        return remote.options(
            **{"scheduling_strategy": "DEFAULT", **options},  # in no placement group of one replica
            name=name_of(self.deployment, self.version, name),
            namespace=self.namespace,
            lifetime="detached",
            get_if_exists=True,
            max_restarts=-1,
            runtime_env=environment,
        ).remote(*args, **kwargs)


_own: Shared | None = None


def share(shared: Shared | None) -> None:
    """This process is a replica that shares these; None: it is none."""
    global _own
    _own = shared


def shared_here() -> Shared | None:
    """What `share` has said."""
    return _own


def get_deployment_actor(actor_name: str) -> Any:
    """The handle of an actor that the replicas of this deployment share; one that was killed is created anew.

    Raises:
        NotInReplicaError: This process is no replica.
        ValueError: The deployment has no such actor; says which it has.
    """
    if _own is None:
        raise NotInReplicaError("get_deployment_actor() was called outside a replica: call it in a method of a deployed class")
    if actor_name not in _own.actors:
        there_are = ", ".join(sorted(_own.actors)) or "none"
        raise ValueError(f"{_own.deployment} has no deployment actor {actor_name!r}; there are: {there_are}")
    return _own.get(actor_name)


# -- in such an actor


@attrs.frozen
class DeploymentActorContext:
    """Whose actor this process is.

    Attributes:
        deployment_id: Of the deployment that shares it.
        actor_name: As the deployment calls it.
        code_version: Of the replicas that share it.
    """

    deployment_id: DeploymentID
    actor_name: str
    code_version: str | None = None

    @property
    def app_name(self) -> str:
        """Of the deployment's application."""
        return self.deployment_id.app_name

    @property
    def deployment(self) -> str:
        """The deployment's name in it."""
        return self.deployment_id.name


def get_deployment_actor_context() -> DeploymentActorContext:
    """Whose actor this process is.

    Raises:
        NotInReplicaError: It is no actor that a deployment shares.
    """
    text = os.environ.get(VARIABLE)
    if text is None:
        raise NotInReplicaError("get_deployment_actor_context() was called outside of a deployment actor")
    app_name, deployment, name, version = json.loads(text)
    return DeploymentActorContext(DeploymentID(deployment, app_name), name, version)


# -- in the controller


def name_of(deployment: str, version: str, name: str) -> str:
    """What Ray calls it."""
    return PREFIX + "/".join(quote(each, safe="") for each in (deployment, version, name))


def whose(name: str) -> tuple[str, str] | None:
    """Deployment and version of an actor that is called so; None: it is none of these."""
    parts = name.removeprefix(PREFIX).split("/")
    if not name.startswith(PREFIX) or len(parts) != 3:
        return None
    return unquote(parts[0]), unquote(parts[1])


def end(namespace: str, deployment: str, version: str, names: Iterable[str]) -> None:
    """End those of a version. Blocks for two round trips for each."""
    for name in names:
        _kill(name_of(deployment, version, name), namespace)


def sweep(namespace: str, kept: Mapping[str, Iterable[str]], but: Iterable[str] = ()) -> None:
    """End all but those of these versions, by deployment. Blocks for some round trips.

    Args:
        but: Deployments of which nothing is known, that keep theirs.
    """
    there = {(deployment, version) for deployment, versions in kept.items() for version in versions}
    alone = set(but)
    for actor in ray.util.list_named_actors(all_namespaces=True):
        found = whose(actor["name"]) if actor["namespace"] == namespace else None
        if found is not None and found not in there and found[0] not in alone:
            _kill(actor["name"], namespace)


def _kill(name: str, namespace: str) -> None:
    with suppress(ValueError):  # it was never created, or is gone
        ray.kill(ray.get_actor(name, namespace=namespace))
