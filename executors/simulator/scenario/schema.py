"""The JSON Schema (2020-12) of scenario files, for editors: written from the classes that read them, and their checks.

It takes every valid scenario. What depends on several keys at once (a fault of a node that does not exist) only reading
the scenario can tell.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, get_args, get_origin

import attrs

from executors.simulator.fields import (
    SECONDS_MAX,
    Amounts,
    Check,
    Choice,
    FileTime,
    Flag,
    Integer,
    Number,
    Optional,
    Text,
    TrueOr,
    integer,
)
from executors.simulator.load.distributions import BY_NAME, SAMPLES_MAX, ColumnOfFile, Distribution
from executors.simulator.scenario.describe import TARGET, Annotation, Key, keys_of, summary_of, without_none
from executors.simulator.scenario.faults import FAULTS, Fault
from executors.simulator.scenario.model import Deployment, Scenario
from executors.simulator.scenario.moments import Moment
from executors.simulator.scenario.placements import POLICY, Placement
from executors.simulator.scenario.requests import REQUEST_SOURCES, Requests
from rankcore.checks import COUNT_MAX

Schema: TypeAlias = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
SIZES = "weight_sizes"
SECONDS: Schema = {"type": "number", "minimum": 0, "maximum": SECONDS_MAX}
MOMENT_PATTERN = r"^busiest_minute( *[-+] *[0-9]+(\.[0-9]*)?)?$"


def scenario_schema() -> Schema:
    """The schema of a whole scenario; equal in every process."""
    schemas = _Schemas()
    return {
        "$schema": DIALECT,
        "title": "A rankcore scenario",
        **schemas.of_defined(Scenario),
        "allOf": [
            {"anyOf": [{"required": [key]} for key in ("nodes", "node_list")]},
            {"anyOf": [{"required": [key]} for key in ("deployments", "applications", SIZES)]},
            {"if": _written_out(), "then": {"properties": {"deployments": _with_targets()}}},
        ],
        "$defs": dict(sorted(schemas.definitions.items())),
    }


def _written_out() -> Schema:
    """Whether each deployment says all of itself."""
    return {"not": {"anyOf": [{"required": [key]} for key in ("every_deployment", SIZES)]}}


def _with_targets() -> Schema:
    """Something says of each deployment how many replicas it has."""
    words = {"placement": "On bundles.", "autoscaling": "Options.", "residency": "Weights."}
    others = [{"required": [key], "properties": {key: {"type": "object", "description": text}}} for key, text in words.items()]
    return {"description": "What runs on the nodes.", "items": {"anyOf": [{"required": [TARGET]}, *others]}}


class _Schemas:
    """Schemas of types; those of classes are kept under their names, and referred to."""

    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {}
        self._unions: tuple[tuple[Annotation, str, Callable[[], Schema]], ...] = (
            (Distribution, "Duration", self._distribution),
            (Requests, "Requests", self._requests),
            (Fault, "Fault", lambda: self._fault(FAULTS)),
            (Moment, "Moment", self._moment),
        )

    def of_defined(self, cls: type) -> Schema:
        """A reference to the schema of a class."""
        return self._of_plain_type(cls)

    def of_class(self, cls: type) -> Schema:
        """A mapping with the keys of a class, and no others."""
        keys = keys_of(cls)
        required = [key.name for key in keys if key.required]
        schema: Schema = {
            "description": summary_of(cls),
            "type": "object",
            "properties": {key.name: self._of_key(key) for key in keys},
            "required": required,
            "additionalProperties": False,
        }
        if cls is Deployment:
            schema["required"] = [name for name in required if name != TARGET]
        return schema

    def _of_key(self, key: Key) -> Schema:
        schema = of_check(key.check) if key.check is not None else self._of_type(key.annotation)
        about: Schema = {"description": key.meaning} if key.meaning else {}
        if key.default is not attrs.NOTHING:
            about["default"] = key.default
        return {**schema, **about}

    def _of_type(self, annotation: Annotation) -> Schema:
        only, optional = without_none(annotation)
        schema = self._of_plain_type(only)
        return {"anyOf": [schema, {"type": "null"}]} if optional else schema

    def _of_plain_type(self, annotation: Annotation) -> Schema:
        for union, name, make in self._unions:
            if annotation == union:
                return self._defined(name, make)
        origin: Any = get_origin(annotation)
        if origin is tuple:
            return {"type": "array", "items": self._of_type(get_args(annotation)[0])}
        if origin is Mapping:
            return {"type": "object"}
        if isinstance(annotation, type) and attrs.has(annotation):
            return self._defined(annotation.__name__, lambda: self.of_class(annotation))
        plain = {str: {"type": "string"}, int: {"type": "integer"}}
        return plain.get(annotation, {})  # a user_config may be anything

    def _told(self, cls: type) -> Schema:
        """A choice with what it is, since not every editor looks behind a reference for that."""
        return {**self._of_plain_type(cls), "description": summary_of(cls)}

    def _defined(self, name: str, make: Callable[[], Schema]) -> Schema:
        if name not in self.definitions:
            self.definitions[name] = {}  # taken, should it refer to itself
            self.definitions[name] = make()
        return {"$ref": f"#/$defs/{name}"}

    def _distribution(self) -> Schema:
        samples = {"type": "array", "items": SECONDS, "minItems": 1, "maxItems": SAMPLES_MAX}
        choices = {name: self._told(cls) for name, cls in BY_NAME.items()}
        about = "One of the measured values, equally likely: a list, or a column of a CSV file."
        choices["empirical"] = {"description": about, "anyOf": [samples, self._of_plain_type(ColumnOfFile)]}
        return {
            "description": "How long something takes: seconds, or a distribution to draw them from.",
            "anyOf": [SECONDS, _one_of_the_keys(choices)],
        }

    def _requests(self) -> Schema:
        choices = {name: self._told(cls) for name, cls in REQUEST_SOURCES.items()}
        return {"description": "Where requests come from.", **_one_of_the_keys(choices)}

    def _fault(self, classes: Mapping[str, type]) -> Schema:
        kinds = [self._of_plain_type(cls) for cls in classes.values()]
        return {
            "description": "Something goes wrong.",
            "type": "object",
            "properties": {"kind": {"enum": list(classes), "description": _kinds(classes)}},
            "required": ["kind"],
            "oneOf": kinds,
        }

    def _moment(self) -> Schema:
        text = "Seconds from the start of the run, or from the minute in which most requests arrive: busiest_minute + 15."
        return {"description": text, "anyOf": [SECONDS, {"type": "string", "pattern": MOMENT_PATTERN}]}


def of_check(check: Check) -> Schema:
    """What a check takes.

    Raises:
        TypeError: A kind of check that this module has not heard of.
    """
    match check:
        case Integer(least, most):
            return {"type": "integer", "minimum": least, "maximum": most}
        case Amounts(least):
            whole = "[1-9][0-9]?|100" if least else "0|[1-9][0-9]?|100"
            share = {"type": "string", "pattern": rf"^({whole}|(0|[1-9][0-9]?)\.[0-9]{{0,19}}[1-9])%$"}
            return {"anyOf": [of_check(integer(least, COUNT_MAX)), share]}
        case Number(least, above, most):
            floor = {"exclusiveMinimum": above} if above is not None else {"minimum": least or 0.0}
            return {"type": "number", **floor, "maximum": most}
        case Flag():
            return {"type": "boolean"}
        case TrueOr(word):
            return {"enum": [True, word]}
        case FileTime(words):
            return {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}], "examples": [*words, "2023-11-16T18:40Z"]}
        case Choice(options):
            return {"const": options[0]} if len(options) == 1 else {"enum": list(options)}
        case Text(_, without, most, least):
            letters = f"[^\\s{without}]"
            inner = f"[^{without}]" if without else "."
            return {
                "type": "string",
                "minLength": least,
                "maxLength": most,
                "pattern": f"^{letters}({inner}*{letters})?$" if least else f"^({letters}({inner}*{letters})?)?$",
            }
        case Placement():
            indices = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
            by_rank = {"type": "object", "patternProperties": {"^[0-9]+$": indices}, "additionalProperties": False}
            ranks = {"description": "The bundles of each rank.", "anyOf": [{"type": "array", "items": indices}, by_rank]}
            group = {"type": "string", "description": "Name of a placement group of the scenario."}
            on_bundles = {
                "description": "Each rank on bundles of a placement group; there are as many replicas as ranks.",
                "type": "object",
                "properties": {"group": group, "bundles": ranks},
                "required": ["group", "bundles"],
                "additionalProperties": False,
            }
            return {"anyOf": [{"const": POLICY}, {"type": "null"}, on_bundles]}
        case Optional(inner_check):
            return {"anyOf": [of_check(inner_check), {"type": "null"}]}
    raise TypeError(f"no schema for {type(check).__name__}: add it to scenario/schema.py")


def _kinds(classes: Mapping[str, type]) -> str:
    """What each kind of fault is, for an editor that shows one text for the key."""
    return "What happens. " + " ".join(f"{kind}: {summary_of(cls)}" for kind, cls in classes.items())


def _one_of_the_keys(choices: dict[str, Schema]) -> Schema:
    """A mapping with one of these keys. Editors complete this better than a list of alternatives."""
    return {
        "type": "object",
        "properties": choices,
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
    }
