"""The JSON Schema (2020-12) of files of applications, for editors: written from the classes that the options become.

It takes every file that can be deployed. What depends on code, on the cluster or on several keys only a deploy can tell.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import attrs
import msgspec

from executors.apps.file import ApplicationConfig, AppsConfig
from executors.ray_gpu.building import OPTIONS
from executors.ray_gpu.declaration import ACTOR_OPTIONS, ROUTING_OPTIONS, SPEC_OPTIONS, STATIC_PLACEMENT
from executors.ray_gpu.grpc_proxy.options import GrpcOptions
from executors.ray_gpu.http.options import LOCATIONS, HttpOptions
from executors.ray_gpu.routing_defaults import ROUTING_DEFAULTS
from executors.ray_gpu.traces import TracingConfig
from executors.ray_gpu.worker.declaration import Residency
from executors.simulator.scenario.describe import Key, keys_of, summary_of
from executors.simulator.scenario.model import Deployment
from executors.simulator.scenario.schema import DIALECT, of_check
from rankcore.autoscaling import AutoscalingSpec
from rankcore.routing import RoutingSpec

Schema: TypeAlias = dict[str, Any]

FREE: Schema = {"type": "object"}
COUNT: Schema = {"type": "integer", "minimum": 0}
FILLED_IN = ("sys_path", "runtime_env", "location")
"""Options of proxies that no file says, or says at another place."""
MEANINGS = {
    "applications": "What is to run. An application that is not here is deleted.",
    "http_options": "How proxies serve HTTP; left out: as they do.",
    "grpc_options": "How proxies serve gRPC; left out: as they do.",
    "proxy_location": "On which nodes proxies are.",
    "logging_config": "How what is logged is written; an application's, and a deployment's own, goes before that of the file.",
    "tracing_config": "Which spans of OpenTelemetry replicas and proxies leave that begin from now on.",
    "controller_options": "Of the controller, where this deploy starts it: runtime_env with env_vars.",
    "target_capacity": "So many percent of the replicas of all deployments, and of the bounds of those that scale themselves.",
    "external_scaler_enabled": "No deployment of it may scale itself.",
    "host": "Of http_options.",
    "port": "Of http_options.",
    "name": "What it is called; once in a file.",
    "route_prefix": "The path under which HTTP requests reach it; left out: /; null: no HTTP.",
    "import_path": "package.module:name of what bind() returned, or of a function that returns it and is called with args.",
    "args": "For the function: a dict, or the fields of the pydantic model that its argument is annotated with.",
    "runtime_env": "Ray's environment for the application's code.",
    "deployments": "Those whose options are others than in the code.",
}
STATIC: Schema = {
    "description": "Each rank on bundles of a placement group; there are as many replicas as ranks.",
    "type": "object",
    "properties": {
        "placement_group": {"type": "string", "description": "Its name; it is there before, and is never changed."},
        "replica_bundle_mapping": {
            "description": "Indices of bundles, by rank.",
            "type": "object",
            "patternProperties": {"^[0-9]+$": {"type": "array", "items": COUNT, "minItems": 1}},
            "additionalProperties": False,
        },
        "capture_child_tasks": {"type": "boolean", "default": True},
    },
    "required": ["placement_group", "replica_bundle_mapping"],
    "additionalProperties": False,
}


def apps_schema() -> Schema:
    """The schema of a whole file; equal in every process."""
    return {
        "$schema": DIALECT,
        "title": "Applications of rankcore",
        **_mapping(
            AppsConfig,
            {
                "applications": {"type": "array", "items": {"$ref": "#/$defs/Application"}},
                "http_options": _or_null(_of_class(HttpOptions)),
                "grpc_options": _or_null({**_of_class(GrpcOptions), "required": [], "additionalProperties": True}),
                "proxy_location": {"enum": [*LOCATIONS, None]},
                "logging_config": _or_null(FREE),
                "tracing_config": _or_null(_of_class(TracingConfig)),
                "controller_options": _or_null(FREE),
                "target_capacity": _or_null({"type": "number", "minimum": 0, "maximum": 100}),
            },
            ("applications",),
        ),
        "$defs": {
            "Application": _mapping(
                ApplicationConfig,
                {
                    "name": {"type": "string", "default": "default"},
                    "route_prefix": {**_or_null({"type": "string", "pattern": "^/"}), "default": "/"},
                    "import_path": {"type": "string"},
                    "args": FREE,
                    "runtime_env": FREE,
                    "logging_config": _or_null(FREE),
                    "external_scaler_enabled": {"type": "boolean", "default": False},
                    "host": {"type": "null"},
                    "port": {"type": "null"},
                    "deployments": {"type": "array", "items": {"$ref": "#/$defs/Deployment"}},
                },
                ("import_path",),
            ),
            "Deployment": {
                "description": "Options of one deployment, in place of those of the code.",
                "type": "object",
                "properties": {"name": {"type": "string", "description": "Which deployment."}, **_options()},
                "required": ["name"],
                "additionalProperties": False,
            },
        },
    }


def _mapping(cls: type, properties: dict[str, Schema], required: Iterable[str]) -> Schema:
    assert set(properties) == set(cls.__struct_fields__), "each key of the class has a schema"  # type: ignore[attr-defined]
    return {
        "description": summary_of(cls),
        "type": "object",
        "properties": {name: {**each, "description": MEANINGS[name]} for name, each in properties.items()},
        "required": list(required),
        "additionalProperties": False,
    }


def _options() -> dict[str, Schema]:
    """Of deployments, by name."""
    spec = {key.name: key for key in keys_of(Deployment)}
    routing = {key.name: key for key in keys_of(RoutingSpec)}
    found: dict[str, Schema] = {option: {} for option in OPTIONS}
    found |= {option: _of_key(spec[field]) for option, field in SPEC_OPTIONS.items() if field in spec}
    found |= {option: _of_key(routing[field], ROUTING_DEFAULTS) for option, field in ROUTING_OPTIONS.items()}
    autoscaling = _of_class(AutoscalingSpec)
    autoscaling["properties"]["policy"] = {"description": "package.module:function of a View.", "type": ["string", "object"]}
    found |= {
        "num_replicas": {"description": "How many; auto: as the load calls for.", "anyOf": [COUNT, {"enum": ["auto", None]}]},
        "max_queued_requests": {**found["max_queued_requests"], "minimum": -1},
        "autoscaling_config": _or_null(autoscaling),
        "residency": _or_null(_of_class(Residency)),
        STATIC_PLACEMENT: _or_null(STATIC),
        "ray_actor_options": {
            "description": "What each replica asks of Ray.",
            "type": "object",
            "properties": {option: {} for option in ACTOR_OPTIONS},
            "additionalProperties": False,
        },
        "deployment_actors": _or_null({"type": "array", "items": FREE, "description": "Actors that all replicas share."}),
        "rejected_with": {"enum": [503, 429], "description": "The status of HTTP of a call that is one too many."},
        "spares": {**COUNT, "description": "Started processes without a rank that stand by."},
        "sync_threads": {**COUNT, "minimum": 1, "description": "How many synchronous calls run at once in a replica."},
        "rolling_update_percentage": {"type": "number", "description": "As max_unavailable, in Ray Serve's words."},
        "max_surge_percent": {**COUNT, "maximum": 100, "description": "As max_surge, in Ray Serve's words."},
    }
    return dict(sorted(found.items()))


def _of_class(cls: type) -> Schema:
    keys = [key for key in keys_of(cls) if key.name not in FILLED_IN]
    return {
        "description": summary_of(cls),
        "type": "object",
        "properties": {key.name: _of_key(key) for key in keys},
        "required": [key.name for key in keys if key.required],
        "additionalProperties": False,
    }


def _of_key(key: Key, defaults: Mapping[str, Any] | None = None) -> Schema:
    schema = of_check(key.check) if key.check is not None else _of_type(key.annotation)
    about: Schema = {"description": key.meaning} if key.meaning else {}
    default = (defaults or {}).get(key.name, key.default)
    return {**schema, **about, **({"default": default} if default is not attrs.NOTHING else {})}


def _of_type(annotation: Any) -> Schema:
    try:
        return msgspec.json.schema(annotation)
    except (TypeError, NameError):  # a user_config may be anything
        return {}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}
