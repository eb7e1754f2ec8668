"""A file of applications, in the schema of Ray Serve's config, and `residency`: read and checked, nothing is built.

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
"""

import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from executors.deployment_ids import DEFAULT_APPLICATION
from executors.simulator.scenario.errors import KeyPath, ScenarioError
from executors.simulator.scenario.textfile import read_text
from executors.simulator.scenario.yamlfile import parse

FILES = (".yaml", ".yml", ".json")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


class ApplicationConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One application; each deployment has a `name`, and options of `@deployment`."""

    import_path: str
    name: str = DEFAULT_APPLICATION
    route_prefix: str | None = None
    args: dict[str, Any] = {}
    runtime_env: dict[str, Any] = {}
    deployments: list[dict[str, Any]] = []


class AppsConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole file."""

    applications: list[ApplicationConfig]
    http_options: dict[str, Any] | None = None
    proxy_location: str | None = None

    @property
    def http(self) -> dict[str, Any] | None:
        """How proxies serve HTTP; None: as they do."""
        where = {} if self.proxy_location is None else {"location": self.proxy_location}
        return {**(self.http_options or {}), **where} or None


class AppsFile:
    """A file that was read.

    Attributes:
        config: What it says.
    """

    def __init__(self, path: Path) -> None:
        self._source = str(path)
        data, self._lines = parse(read_text(path), self._source)
        try:
            self.config = msgspec.convert(data, AppsConfig, strict=True)
        except msgspec.ValidationError as error:
            raise self._found_wrong(str(error)) from None

    def problem(self, keys: KeyPath, text: str) -> ScenarioError:
        """What is wrong at a place of the file, in one line."""
        return ScenarioError.at(text, self._source, self._lines.line_of(keys), keys or None)

    def _found_wrong(self, text: str) -> ScenarioError:
        problem, _, where = text.partition(" - at `$")
        keys = _keys_of(where.removesuffix("`"))
        unknown = re.fullmatch(r"Object contains unknown field `(.*)`", problem)
        if unknown is not None:
            kind = ApplicationConfig if keys else AppsConfig
            return self.unknown_key((*keys, unknown[1]), kind.__struct_fields__)
        return self.problem(keys, f"{problem[:1].lower()}{problem[1:]}".replace("`", ""))

    def unknown_key(self, keys: KeyPath, known: Iterable[str]) -> ScenarioError:
        """A key that there is not, with one that is like it."""
        known = sorted(known)
        near = difflib.get_close_matches(str(keys[-1]), known, n=1, cutoff=0.6)
        meant = f"a known key such as {near[0]!r}" if near else f"one of the keys {', '.join(known)}"
        return self.problem(keys, f"expected {meant}, found {keys[-1]!r}")


def read_apps(path: Path, options: Iterable[str]) -> AppsFile:
    """Read and check a file.

    Args:
        options: What it may say of a deployment beside its name.

    Raises:
        ScenarioError: Names file, line and key, what was found and what is allowed.
    """
    file, options = AppsFile(path), tuple(options)
    names: list[str] = []
    for index, application in enumerate(file.config.applications):
        place: KeyPath = ("applications", index)
        if application.name in names:
            raise file.problem((*place, "name"), f"expected a name that occurs once, found {application.name!r} again")
        names.append(application.name)
        _check_deployments(file, place, application.deployments, options)
    return file


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
        if not isinstance(deployment.get("residency"), (dict, type(None))):
            raise file.problem((*here, "residency"), f"expected a mapping, found {deployment['residency']!r:.80}")


def _keys_of(path: str) -> KeyPath:
    """The keys in a path such as `.applications[0].name`."""
    return tuple(int(index) if index else name for name, index in _STEP.findall(path))
