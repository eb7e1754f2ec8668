"""A file of applications, in the schema of Ray Serve's config, and what is ours: read and checked, nothing is built.

applications:
  - name: shop
    route_prefix: /shop
    import_path: models:app
    args: {size: large}
    runtime_env: {env_vars: {LEVEL: info}}
    deployments:
      - name: Chat
        max_ongoing_requests: 8
        residency: {weights: /models/chat, priority: 3}
      - name: Sharded
        static_placement: {placement_group: gpus, replica_bundle_mapping: {0: [0, 1], 1: [2, 3]}}
"""

import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import msgspec
from msgspec import Struct

from executors.deployment_ids import DEFAULT_APPLICATION, DEFAULT_PREFIX
from executors.simulator.fields import shown
from executors.simulator.scenario.errors import KeyPath, ScenarioError, path_text
from executors.simulator.scenario.textfile import read_text
from executors.simulator.scenario.yamlfile import Lines, parse

GRPC_SERVICES = ("grpc_servicer_functions", "servicer_functions")
"""How Ray Serve, and how we call them."""
OF_PROXIES = ("host", "port")
"""Keys that Ray Serve's schema of an application has, and that its files may not say there."""
MAPPINGS = ("residency", "static_placement")
"""Options of deployments that a file has as mappings, and Python as objects."""
FILES = (".yaml", ".yml", ".json")
KINDS = {"object": "a mapping of names to values", "array": "a list", "str": "text", "null": "nothing"}
"""What msgspec calls a kind of value, and what people call it who write YAML."""
_WITHIN = re.compile(r"\w+(?:\['(?P<key>[^']+)'\]|\[(?P<index>\d+)\]|\.(?P<field>\w+)| has no '(?P<unknown>[^']+)')")
"""How errors name a key in the value that they are about."""
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")
_WRONG = re.compile(r"(?P<problem>.*?)(?: - at `\$(?P<keys>.*)`)?", re.DOTALL)


class ApplicationConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One application; each deployment has a `name`, and options of `@deployment`."""

    import_path: str
    name: str = DEFAULT_APPLICATION
    route_prefix: str | None = DEFAULT_PREFIX
    args: dict[str, Any] = {}
    runtime_env: dict[str, Any] = {}
    logging_config: dict[str, Any] | None = None
    external_scaler_enabled: bool = False
    host: str | None = None
    port: int | None = None
    deployments: list[dict[str, Any]] = []


class AppsConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole file."""

    applications: list[ApplicationConfig]
    http_options: dict[str, Any] | None = None
    grpc_options: dict[str, Any] | None = None
    logging_config: dict[str, Any] | None = None
    tracing_config: dict[str, Any] | None = None
    controller_options: dict[str, Any] | None = None
    target_capacity: float | None = None
    proxy_location: str | None = None

    @property
    def http(self) -> dict[str, Any] | None:
        """How proxies serve HTTP; None: as they do."""
        where = {} if self.proxy_location is None else {"location": self.proxy_location}
        return {**(self.http_options or {}), **where} or None

    @property
    def grpc(self) -> dict[str, Any] | None:
        """How proxies serve gRPC; None: as they do, also where no service is named: `serve build` writes such options."""
        said = self.grpc_options or {}
        return said if any(said.get(key) for key in GRPC_SERVICES) else None


class AppsFile:
    """What was read.

    Args:
        data: Plain data, as JSON has it.
        source: Where it is from, for errors.
        lines: Of its keys; None: it has none, and errors name keys alone.

    Attributes:
        data: The same.
        config: What it says.

    Raises:
        ScenarioError: It is of another form; says where, what was found and what is allowed.
    """

    def __init__(self, data: Any, source: str, lines: Lines | None = None) -> None:
        self.data, self._source, self._lines = data, source, lines
        try:
            self.config = msgspec.convert(data, AppsConfig, strict=True)
        except msgspec.ValidationError as error:
            raise self._found_wrong(str(error)) from None

    @classmethod
    def read(cls, path: Path) -> Self:
        """That of a path.

        Raises:
            ScenarioError: It cannot be read, or is of another form.
        """
        data, lines = parse(read_text(path, "file of applications"), str(path), "list of applications")
        return cls(data, str(path), lines)

    def problem(self, keys: KeyPath, text: str) -> ScenarioError:
        """What is wrong at a place of it, in one line."""
        if self._lines is None:
            return ScenarioError.of(text, path_text(keys) if keys else self._source)
        return ScenarioError.at(text, self._source, self._lines.line_of(keys), keys or None)

    def within(self, keys: KeyPath, text: str) -> KeyPath:
        """The key that an error speaks of in the value at a place, such as `min_replicas` of `option['min_replicas'] must be`,
        where that is there; else the place.
        """
        found, value = _WITHIN.match(text), self._value_at(keys)
        if found is None or value is None:
            return keys
        key = int(found["index"]) if found["index"] else found["key"] or found["field"] or found["unknown"]
        is_there = (
            key in value if isinstance(value, dict) else isinstance(value, list) and type(key) is int and key < len(value)
        )
        return (*keys, key) if is_there else keys

    def _found_wrong(self, text: str) -> ScenarioError:
        said = _WRONG.fullmatch(text)
        assert said is not None, "it matches any line"
        problem, keys = said["problem"], _keys_of(said["keys"] or "")
        if (unknown := re.fullmatch(r"Object contains unknown field `(.*)`", problem)) is not None:
            kind = ApplicationConfig if keys else AppsConfig
            return self.unknown_key((*keys, unknown[1]), kind.__struct_fields__)
        if (missing := re.fullmatch(r"Object missing required field `(.*)`", problem)) is not None:
            return self.problem(keys, f"expected the key {missing[1]!r}, found nothing")
        if (kinds := re.fullmatch(r"Expected `(.*)`, got `.*`", problem)) is not None:
            allowed = " or ".join(KINDS.get(each, each) for each in kinds[1].split(" | "))
            problem = f"expected {allowed}, found {shown(self._value_at(keys))}"
        return self.problem(keys, problem)

    def _value_at(self, keys: KeyPath) -> Any:
        value: Any = self.data
        for key in keys:
            if not (key in value if isinstance(value, dict) else isinstance(value, list) and key in range(len(value))):
                return None
            value = value[key]
        return value

    def unknown_key(self, keys: KeyPath, known: Iterable[str]) -> ScenarioError:
        """A key that there is not, with one that is like it."""
        known = sorted(known)
        near = difflib.get_close_matches(str(keys[-1]), known, n=1, cutoff=0.6)
        meant = f"a known key such as {near[0]!r}" if near else f"one of the keys {', '.join(known)}"
        return self.problem(keys, f"expected {meant}, found {keys[-1]!r}")


def read_apps(path: Path, options: Iterable[str], environment: Iterable[str] | None = None) -> AppsFile:
    """Read and check a file; `options` and `environment` as of `checked`.

    Raises:
        ScenarioError: Names file, line and key, what was found and what is allowed.
    """
    return checked(AppsFile.read(path), options, environment)


def checked(file: AppsFile, options: Iterable[str], environment: Iterable[str] | None = None) -> AppsFile:
    """The same, if what its classes do not say of it is right too.

    Args:
        options: What it may say of a deployment beside its name.
        environment: What it may say of a `runtime_env`; None: anything.

    Raises:
        ScenarioError: As `read_apps`.
    """
    options = tuple(options)
    names: list[str] = []
    share = file.config.target_capacity
    if share is not None and not 0.0 <= share <= 100.0:
        raise file.problem(("target_capacity",), f"expected a number of percent from 0 to 100, found {share:g}")
    for index, application in enumerate(file.config.applications):
        place: KeyPath = ("applications", index)
        if application.name in names:
            raise file.problem((*place, "name"), f"expected a name that occurs once, found {application.name!r} again")
        names.append(application.name)
        for key in OF_PROXIES:
            if getattr(application, key) is not None:
                raise file.problem((*place, key), f"expected {key} in http_options, of which all applications have one")
        _check_deployments(file, place, application.deployments, options)
        if environment is not None:
            _check_environments(file, place, application, frozenset(environment))
    return file


def _check_environments(file: AppsFile, place: KeyPath, application: ApplicationConfig, known: frozenset[str]) -> None:
    """Ray takes a key that it does not know for one of a plugin, and does nothing with it where there is none."""
    environments: list[tuple[KeyPath, Any]] = [((*place, "runtime_env"), application.runtime_env)]
    for index, deployment in enumerate(application.deployments):
        of_actors = deployment.get("ray_actor_options")
        if isinstance(of_actors, dict):
            here = (*place, "deployments", index, "ray_actor_options", "runtime_env")
            environments.append((here, of_actors.get("runtime_env")))
    for here, environment in environments:
        for key in environment if isinstance(environment, dict) else ():
            if key not in known:
                raise file.unknown_key((*here, key), known)


def _check_deployments(file: AppsFile, place: KeyPath, deployments: list[dict[str, Any]], options: tuple[str, ...]) -> None:
    names: list[str] = []
    for index, deployment in enumerate(deployments):
        here = (*place, "deployments", index)
        for key in deployment:
            if key not in (*options, "name"):
                raise file.unknown_key((*here, key), (*options, "name"))
        name = deployment.get("name")
        if not isinstance(name, str) or name in names:
            raise file.problem((*here, "name"), f"expected the name of a deployment, which occurs once, found {name!r:.80}")
        names.append(name)
        for key in MAPPINGS:
            if not isinstance(deployment.get(key), (dict, type(None))):
                raise file.problem((*here, key), f"expected a mapping, found {deployment[key]!r:.80}")


def _keys_of(path: str) -> KeyPath:
    """The keys in a path such as `.applications[0].name`."""
    return tuple(int(index) if index else name for name, index in _STEP.findall(path))
