"""What a user says of the actors that replicas of a deployment share: `DeploymentActorConfig`. It needs nothing of Ray."""

import inspect
import json
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from executors.ray_gpu.errors import InvalidDeploymentError


def _as_tuple(given: Iterable[Any] | None) -> tuple[Any, ...]:
    return tuple(given or ())


@attrs.frozen(kw_only=True)
class DeploymentActorConfig:
    """One actor that the replicas of a deployment share.

    Attributes:
        name: For `get_deployment_actor`; once in a deployment.
        actor_class: A class, which may be one of `ray.remote`, or where it is imported from: "module:Class".
        init_args, init_kwargs: For its `__init__`.
        actor_options: For Ray: `num_cpus` and the like; the environment is that of the replicas, and what is said here.

    Raises:
        InvalidDeploymentError: One of them is not what it may be.
    """

    name: str
    actor_class: Any
    init_args: tuple[Any, ...] = attrs.field(default=(), converter=_as_tuple)
    init_kwargs: Mapping[str, Any] = attrs.field(factory=dict)
    actor_options: Mapping[str, Any] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        if type(self.name) is not str or not self.name:
            raise _wrong("name", self.name, "a non-empty text")
        if not (isinstance(self.actor_class, str) or inspect.isclass(class_of(self.actor_class))):
            raise _wrong("actor_class", self.actor_class, "a class, or where it is imported from, such as 'my_module:Tree'")
        for field in ("init_kwargs", "actor_options"):
            if not isinstance(getattr(self, field), Mapping):
                raise _wrong(field, getattr(self, field), "a dict")


def actors_of(given: object) -> tuple[DeploymentActorConfig, ...]:
    """What a user gives: a list of `DeploymentActorConfig`s, ours or Ray Serve's, or of dicts of their fields; None: none.

    Raises:
        InvalidDeploymentError: It is something else, or two of them have one name.
    """
    if given is None:
        return ()
    if isinstance(given, (str, Mapping)) or not isinstance(given, Iterable):
        raise InvalidDeploymentError(f"deployment_actors must be a list of DeploymentActorConfigs, got {given!r:.80}")
    found = tuple(_actor_of(each) for each in given)
    names = [each.name for each in found]
    for name in names:
        if names.count(name) > 1:
            raise InvalidDeploymentError(f"deployment_actors must have names of their own, got {name!r} more than once")
    return found


def _actor_of(given: object) -> DeploymentActorConfig:
    if isinstance(given, DeploymentActorConfig):
        return given
    there_are = [field.name for field in attrs.fields(DeploymentActorConfig)]
    get_class = getattr(given, "get_actor_class", None)
    fields = given
    if callable(get_class):  # Ray Serve's, which has pickled the class
        fields = {name: getattr(given, name) for name in there_are}
        fields["actor_class"] = get_class() if getattr(given, "_serialized_actor_class", b"") else fields["actor_class"]
    if not isinstance(fields, Mapping) or not {"name", "actor_class"} <= fields.keys() <= set(there_are):
        raise InvalidDeploymentError(
            f"deployment_actors may have {', '.join(there_are)}, of which name and actor_class are needed; got {given!r:.80}"
        )
    return DeploymentActorConfig(**fields)


def said(actors: tuple[DeploymentActorConfig, ...]) -> list[dict[str, Any]] | None:
    """The same as a file says it; None: a file cannot."""
    plain = [
        {name: list(value) if type(value) is tuple else value for name, value in attrs.asdict(each).items() if value}
        for each in actors
    ]
    try:
        return json.loads(json.dumps(plain)) if all(isinstance(each.actor_class, str) for each in actors) else None
    except (TypeError, ValueError):
        return None


def class_of(given: Any) -> Any:
    """What a class of `ray.remote` was made of."""
    return getattr(given, "__ray_actor_class__", given)


def _wrong(field: str, found: object, allowed: str) -> InvalidDeploymentError:
    return InvalidDeploymentError(f"DeploymentActorConfig.{field} must be {allowed}, got {found!r:.80}")
