"""The OpenAPI description, made of the table of endpoints and of the kinds of their bodies and queries."""

import json
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import msgspec

import rankcore
from executors.ray_gpu.rest.endpoints import RestEndpoint

REFERENCE = "#/components/schemas/{name}"
PROBLEM = {
    "type": "object",
    "properties": {"error": {"type": "string"}, "field": {"type": "string"}},
    "required": ["error"],
}
PROBLEMS = {
    "401": "The token is wrong",
    "403": "A page of another site asks",
    "404": "There is none of that name",
    "422": "The field is not what it may be",
    "503": "The controller is away, or too many changes are under way",
    "504": "It is not done in time, and may go on",
}
OF_METHODS = {"PUT": {"409": "The name or the prefix is another's", "412": "Another writer came first"}}
OF_BODIES = {"408": "The body does not come in time", "413": "The body is too large", "415": "The body is no JSON"}
OF_PATHS = {
    "/api/v1/journal": {"410": "The place in the journal is gone"},
    "/api/v1/notes": {"429": "Too many streams are open"},
    "/api/v1/live": {"429": "Too many streams are open"},
    "/api/v1/whatif": {"429": "Another one is being answered"},
}


def description(endpoints: Iterable[RestEndpoint]) -> dict[str, Any]:
    """Of these."""
    endpoints = tuple(endpoints)
    kinds = {each.body for each in endpoints if each.body is not None and each.checks} | {each.query for each in endpoints}
    ordered = sorted(kinds, key=lambda kind: kind.__name__)
    schemas, components = msgspec.json.schema_components(ordered, ref_template=REFERENCE)
    found = dict(zip(ordered, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for each in endpoints:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, found, components)
    return {
        "openapi": "3.1.0",
        "info": {"title": "rankcore", "version": rankcore.__version__},
        "paths": paths,
        "components": {
            "schemas": {**components, "Problem": PROBLEM},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _operation(endpoint: RestEndpoint, schemas: dict[type[Any], Any], components: dict[str, Any]) -> dict[str, Any]:
    of_path = re.findall(r"{(\w+)}", endpoint.path)
    parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in of_path]
    query = components[endpoint.query.__name__].get("properties", {})
    parameters += [{"name": name, "in": "query", "schema": schema} for name, schema in query.items()]
    body = {} if endpoint.body is None else {"requestBody": _body(endpoint, schemas)}
    of_body = OF_BODIES if endpoint.body is not None else {}
    problems = {**PROBLEMS, **OF_METHODS.get(endpoint.method, {}), **of_body, **OF_PATHS.get(endpoint.path, {})}
    refused = {"application/json": {"schema": {"$ref": REFERENCE.format(name="Problem")}}}
    return {
        "summary": endpoint.what,
        "operationId": f"{endpoint.method.lower()}{re.sub(r'[^A-Za-z0-9]+', '_', endpoint.path)}".rstrip("_"),
        "parameters": parameters,
        **body,
        "responses": {
            str(endpoint.status): {"description": "Done" if endpoint.status == 200 else "It has begun, and goes on"},
            **{status: {"description": text, "content": refused} for status, text in problems.items()},
        },
    }


def _body(endpoint: RestEndpoint, schemas: dict[type[Any], Any]) -> dict[str, Any]:
    schema = schemas[endpoint.body] if endpoint.checks and endpoint.body is not None else {"type": "object"}
    return {"content": {"application/json": {"schema": schema}}}


@lru_cache(maxsize=1)
def as_bytes(endpoints: tuple[RestEndpoint, ...]) -> bytes:
    """As it is sent."""
    return json.dumps(description(endpoints)).encode()
