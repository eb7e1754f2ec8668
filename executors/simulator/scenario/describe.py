"""What a scenario file may say, asked of the classes that read it: the keys of each, what they take, and what they mean.

The JSON Schema and the reference are written from this, so that neither can say anything else than the code.
"""

import inspect
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import attrs

from executors.simulator.fields import Check, Choice
from executors.simulator.load.distributions import Constant, Distribution
from executors.simulator.scenario.autoscaling import AUTOSCALING_ATTRIBUTES, AUTOSCALING_CHECKS
from executors.simulator.scenario.faults import FAULTS, Fault
from executors.simulator.scenario.model import CHANGEABLE, Change, Deployment
from executors.simulator.scenario.moments import Moment
from executors.simulator.scenario.requests import Requests
from executors.simulator.scenario.spec_fields import SPEC_ATTRIBUTES, SPEC_CHECKS
from rankcore import DeploymentSpec
from rankcore.autoscaling import AutoscalingSpec

Annotation: TypeAlias = Any

COMMON_MEANINGS = {
    "at": "When it happens.",
    "deployment": "Name of the deployment.",
    "node": "Name of the node, such as `node-3`.",
    "name": "What it is called.",
    "rank": "The replica that believes that it has this rank.",
    "replica_id": "The replica with this id.",
    "rate_per_s": "Requests per second.",
    "begin_s": "When the first may come.",
    "for_s": "For how long.",
}
"""Of keys that mean the same in every class, and are not described in each."""

TARGET = "target_replicas"
"""Required, but for a static placement, which says how many ranks there are, and for autoscaling, which follows the load."""

_ENTRY = re.compile(r"^ {4}(\w+(?:, \w+)*): (.*)$")
_SECTIONS = ("Attributes:", "Args:", "Raises:", "Returns:")


@attrs.frozen
class Key:
    """One key of a mapping in a scenario file.

    Attributes:
        annotation: Its type in the class.
        check: What its value must pass; None: its type says it all.
        required: Whether it must be there.
        default: What stands for it when it is left out, as plain data.
        meaning: One or two sentences.
    """

    name: str
    annotation: Annotation
    check: Check | None
    required: bool
    default: Any
    meaning: str


def keys_of(cls: type) -> tuple[Key, ...]:
    """The keys of the mapping that a class is read from, in the order of the class; required ones come first."""
    if cls is Deployment:
        found = [*_spec_keys(tuple(SPEC_CHECKS)), *_own_keys(cls, without=("spec",))]
    elif cls is Change:
        changes = [attrs.evolve(key, required=False, default=attrs.NOTHING) for key in _spec_keys(CHANGEABLE)]
        found = [*_own_keys(cls, without=("fields",)), *changes]
    elif cls is AutoscalingSpec:
        meanings = _meanings(cls)
        found = [_key(AUTOSCALING_ATTRIBUTES[name], check, meanings[name]) for name, check in AUTOSCALING_CHECKS.items()]
    elif cls in FAULTS.values():
        kind: str = cls.kind  # type: ignore[attr-defined]
        found = [Key("kind", str, Choice((kind,)), True, attrs.NOTHING, "What happens."), *_own_keys(cls)]
    else:
        found = _own_keys(cls)
    return tuple(sorted(found, key=lambda key: not key.required))


def summary_of(cls: type) -> str:
    """What a class is, in the words of its docstring, without the lists of names and errors."""
    lines: list[str] = []
    for line in inspect.cleandoc(cls.__doc__ or "").splitlines():
        if line in _SECTIONS:
            break
        lines.append(line)
    paragraphs = "\n".join(lines).strip().split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _own_keys(cls: type, without: tuple[str, ...] = ()) -> list[Key]:
    meanings = _meanings(cls)
    return [
        _key(field, field.validator, meanings.get(field.name) or COMMON_MEANINGS.get(field.name, ""))
        for field in attrs.fields(cls)
        if field.name not in without and field.metadata.get("in_file", True)
    ]


def _spec_keys(names: tuple[str, ...]) -> list[Key]:
    meanings = _meanings(DeploymentSpec)
    keys = [_key(SPEC_ATTRIBUTES[name], SPEC_CHECKS[name], meanings.get(name, "")) for name in names]
    return [attrs.evolve(key, required=True, default=attrs.NOTHING) if key.name == TARGET else key for key in keys]


def _key(field: "attrs.Attribute[Any]", check: Any, meaning: str) -> Key:
    if check is not None and not isinstance(check, Check):
        raise TypeError(f"{field.name}: its validator cannot be asked what it allows: make it a Check of simulator.fields")
    default = field.default
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        default = getattr(default, "factory")()  # noqa: B009 (typed as a function, but a class)
    return Key(field.name, field.type, check, field.default is attrs.NOTHING, _as_data(default), meaning)


def _as_data(value: Any) -> Any:
    """A default as it would be written in a file."""
    if isinstance(value, Constant):
        return value.value
    if isinstance(value, tuple):
        return [_as_data(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _as_data(item) for key, item in value.items()}
    return {} if value is not attrs.NOTHING and attrs.has(type(value)) else value


def _meanings(cls: type) -> dict[str, str]:
    """The `Attributes:` of a docstring; names that share an entry share its text."""
    found = _meanings(cls.__bases__[0]) if attrs.has(cls.__bases__[0]) else {}
    names: list[str] = []
    inside = False
    for line in inspect.cleandoc(cls.__doc__ or "").splitlines():
        if line in _SECTIONS:
            inside = line == "Attributes:"
        elif inside and (entry := _ENTRY.match(line)):
            names = entry[1].split(", ")
            found.update(dict.fromkeys(names, entry[2]))
        elif inside and line.strip():
            found.update({name: f"{found[name]} {line.strip()}" for name in names})
    return {name: re.sub(r"\bNone\b", "null", text.replace("None:", "left out:")) for name, text in found.items()}


UNIONS: tuple[Annotation, ...] = (Distribution, Fault, Requests, Moment)
"""Types that are written in a file in a way of their own."""


def without_none(annotation: Annotation) -> tuple[Annotation, bool]:
    """A type without its `| None`, and whether it had one."""
    arguments = getattr(annotation, "__args__", ())
    if type(None) not in arguments:
        return annotation, False
    for union in UNIONS:
        if annotation == union | None:
            return union, True
    (only,) = (argument for argument in arguments if argument is not type(None))
    return only, True
