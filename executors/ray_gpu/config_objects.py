"""A config object as a user gives it: ours, Ray Serve's of the same fields, or a mapping of these."""

from collections.abc import Mapping
from typing import TypeVar

import attrs

from executors.ray_gpu.errors import InvalidDeploymentError

T = TypeVar("T", bound=attrs.AttrsInstance)


def config_of(kind: type[T], option: str, given: object) -> T | None:
    """It as ours; None stays None.

    Args:
        option: What it is called where it is given, for errors.

    Raises:
        InvalidDeploymentError: It is none of these, or has a field that there is not; says which there are.
    """
    if given is None or isinstance(given, kind):
        return given
    dump = getattr(given, "model_dump", None)  # Ray Serve's is a pydantic model
    fields = dump() if callable(dump) else given
    there_are = [field.name for field in attrs.fields(kind)]
    if not isinstance(fields, Mapping):
        raise InvalidDeploymentError(f"{option} must be a {kind.__name__} or a dict of its fields, got {given!r:.80}")
    if unknown := [name for name in fields if name not in there_are]:
        raise InvalidDeploymentError(f"{option} has no {unknown[0]!r:.80}; there are: {', '.join(there_are)}")
    return kind(**fields)
