"""Options as a file of applications says them, of the values that they became: what is as it is by default is left out."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

import attrs

from executors.ray_gpu.declaration import SPEC_OPTIONS
from rankcore import DeploymentSpec
from rankcore.frozen import FrozenDict, thaw_json
from rankcore.placement import StaticPlacement

APART = ("version", "num_replicas")
"""Options of the spec that follow from the code, or that others than the user change too."""


def spec_options(spec: DeploymentSpec) -> dict[str, Any]:
    """Those that are fields of a deployment's spec, but for `APART` and a static placement."""
    found = differing(spec, ("placement",) if isinstance(spec.placement, StaticPlacement) else ())
    return {option: found[field] for option, field in SPEC_OPTIONS.items() if field in found and option not in APART}


def differing(value: Any, left_out: tuple[str, ...] = (), defaults: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The fields of an attrs object that are not as they are by default.

    Args:
        left_out: Fields that are not looked at.
        defaults: Where they are others than those of the class.
    """
    found = {}
    for field in attrs.fields(type(value)):
        now = getattr(value, field.name)
        usual = field.default.factory() if isinstance(field.default, attrs.Factory) else field.default  # type: ignore[arg-type]
        if field.init and field.name not in left_out and now != (defaults or {}).get(field.name, usual):
            found[field.name] = _plain(now)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, FrozenDict):
        return thaw_json(value)
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value
