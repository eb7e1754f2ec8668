"""Settings: single values of a scenario that are given on the command line, `deployments[0].target_replicas=8`."""

import difflib
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

import attrs

from executors.simulator.scenario.errors import ScenarioError
from executors.simulator.scenario.model import CHANGEABLE, Deployment, Scenario
from executors.simulator.scenario.textfile import read_text
from executors.simulator.scenario.weights import ScenarioResidency
from executors.simulator.scenario.yamlfile import parse

KeyPath: TypeAlias = tuple[str | int, ...]

DEPLOYMENT_KEYS = (*CHANGEABLE, *(field.name for field in attrs.fields(Deployment) if field.name != "spec"))
"""What a key without a path may be: the field of every deployment."""

RESIDENCY_KEYS = tuple(field.name for field in attrs.fields(ScenarioResidency))
"""... or of the residency of each, ..."""

SCENARIO_KEYS = tuple(
    field.name for field in attrs.fields(Scenario) if field.name not in ("seed", "name") and field.metadata.get("in_file", True)
)
"""... or one of these, of the scenario itself; and with what every path begins."""

_PART = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)((?:\[[^][]*\])*)")
_INDEX = re.compile(r"\[([^][]*)\]")
_RANGE = re.compile(r"(-?\d+(?:\.\d+)?)\.\.(-?\d+(?:\.\d+)?)(?::(\d+(?:\.\d+)?))?")
SETTINGS = "file of settings"
VALUES_MAX = 10_000
"""Of one range."""


@attrs.frozen
class Setting:
    """One value, as it was written.

    Attributes:
        key: A path such as `deployments[0].init_s`, `deployments[llm].victims`, `network.latency_s`; without a path, the
            field of every deployment.
        text: The value, in YAML.
    """

    key: str
    text: str

    def __str__(self) -> str:
        return f"{self.key}={self.text}"

    @property
    def value(self) -> Any:
        """The value, read as YAML."""
        return parse(self.text, str(self))[0] if self.text.strip() else None


def parse_setting(option: str, text: str) -> Setting:
    """Read `key=value`; `option` is what errors call the place where it stands.

    Raises:
        ScenarioError: It has no key or no value, or the value is no YAML.
    """
    key, equals, value = text.partition("=")
    key, value = key.strip(), value.strip()
    if not equals or not key or not value:
        raise ScenarioError(f"{option}: expected KEY=VALUE such as target_replicas=8, found {text!r}")
    setting = Setting(key, value)
    setting.value  # noqa: B018 (read now, so that what is wrong is told before anything runs)
    return setting


def read_settings(path: Path) -> tuple[Setting, ...]:
    """Read a file of settings: a YAML mapping of keys, such as stand before the `=`, to values.

    Raises:
        ScenarioError: It cannot be read, or is no such mapping.
    """
    data, _ = parse(read_text(path, SETTINGS), str(path), SETTINGS)
    if not isinstance(data, dict) or not data or not all(isinstance(key, str) for key in data):
        raise ScenarioError(f"{path}: expected a mapping of settings such as min_hot_s: 60, found {json.dumps(data)[:80]}")
    return tuple(Setting(key, json.dumps(value)) for key, value in data.items())


def parse_variation(option: str, text: str) -> tuple[Setting, ...]:
    """Read `key=value,value,...`; a comma inside brackets, braces or quotes separates nothing, and 2..8:3 is 2, 5, 8.

    Raises:
        ScenarioError: It has no key or no values, one of them is no YAML, or one stands there twice.
    """
    key, equals, values = text.partition("=")
    if not equals or not key.strip() or not values.strip():
        raise ScenarioError(f"{option}: expected KEY=VALUE,VALUE,... such as target_replicas=8,12, found {text!r}")
    each = [value for part in _split(values) for value in _in_range(option, part.strip())]
    settings = tuple(parse_setting(option, f"{key}={value}") for value in each)
    if len({setting.text for setting in settings}) < len(settings):
        raise ScenarioError(f"{option}: expected each value of {key.strip()} once, found {values!r}")
    return settings


def _in_range(option: str, text: str) -> list[str]:
    """The values of `FIRST..LAST` or `FIRST..LAST:STEP`; anything else is one value."""
    match = _RANGE.fullmatch(text)
    if match is None:
        return [text]
    first, last, step = Decimal(match[1]), Decimal(match[2]), Decimal(match[3] or 1)
    if last < first or step <= 0:
        raise ScenarioError(
            f"{option}: expected FIRST..LAST or FIRST..LAST:STEP such as 1..64 or 2..8:3, upwards, found {text!r}"
        )
    count = int((last - first) / step) + 1
    if count > VALUES_MAX:
        raise ScenarioError(f"{option}: expected at most {VALUES_MAX:,} values, found {count:,} in {text!r}")
    return [f"{first + place * step:f}" for place in range(count)]


def _split(values: str) -> list[str]:
    found, depth, quote = [""], 0, ""
    for letter in values:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        else:
            depth += (letter in "[{(") - (letter in "]})")
        if letter == "," and not quote and depth <= 0:
            found.append("")
        else:
            found[-1] += letter
    return found


def apply_settings(data: Any, settings: tuple[Setting, ...]) -> dict[KeyPath, Setting]:
    """Put values into the plain data of a scenario, in place.

    Returns:
        Which setting stands at which key path now.

    Raises:
        ScenarioError: A key names nothing that a scenario has; the nearest known one is suggested.
    """
    placed: dict[KeyPath, Setting] = {}
    for setting in settings:
        for path in _paths(data, setting):
            _put(data, path, setting)
            placed[path] = setting
    return placed


def _paths(data: Any, setting: Setting) -> list[KeyPath]:
    if setting.key == "seed":
        raise ScenarioError("seed: expected --seed N for it, which all runs are counted from")
    if "." not in setting.key and "[" not in setting.key:
        if setting.key in SCENARIO_KEYS:
            return [(setting.key,)]
        if setting.key in DEPLOYMENT_KEYS:
            return [(*where, setting.key) for where in _everyone(data)]
        if setting.key in RESIDENCY_KEYS and _has_residency(data):
            return [(*where, "residency", setting.key) for where in _everyone(data)]
        inner_keys = (*DEPLOYMENT_KEYS, *RESIDENCY_KEYS) if _has_residency(data) else DEPLOYMENT_KEYS
        raise _unknown(setting.key, (*inner_keys, *SCENARIO_KEYS))
    path: list[str | int] = []
    for part in setting.key.split("."):
        match = _PART.fullmatch(part)
        if match is None:
            raise ScenarioError(f"{setting.key}: expected a key such as deployments[0].target_replicas, found {part!r}")
        path.append(match[1])
        for index in _INDEX.findall(match[2]):
            path.append(_index(data, tuple(path), index, setting))
    if path[0] not in SCENARIO_KEYS:
        raise _unknown(str(path[0]), SCENARIO_KEYS)
    return [tuple(path)]


def _everyone(data: Any) -> list[KeyPath]:
    """Where each deployment stands, and what holds for those that are not written out."""
    data = data if isinstance(data, dict) else {}
    found: list[KeyPath] = [("every_deployment",)] if "weight_sizes" in data else []
    for around in [(), *(("applications", index) for index in range(len(_list(data, ("applications",)))))]:
        places = range(len(_list(data, (*around, "deployments"))))
        found += [(*around, "deployments", index) for index in places]
    return found


def _list(data: Any, path: KeyPath) -> list[Any]:
    found = _get(data, path)
    return found if isinstance(found, list) else []


def _has_residency(data: Any) -> bool:
    each = [_get(data, (*where, "residency")) for where in (("every_deployment",), *_everyone(data))]
    return isinstance(data, dict) and ("weight_sizes" in data or any(found is not None for found in each))


def _index(data: Any, path: KeyPath, index: str, setting: Setting) -> int:
    """A place in a list: its number, or the name of what stands there."""
    items = _get(data, path)
    if not isinstance(items, list):
        raise ScenarioError(f"{setting.key}: expected a key that is in the scenario, found no list {path[-1]!r} in it")
    if index.isdecimal() and int(index) < len(items):
        return int(index)
    names = [item.get("name") for item in items if isinstance(item, dict) and "name" in item]
    if index in names:
        return next(place for place, item in enumerate(items) if isinstance(item, dict) and item.get("name") == index)
    allowed = f"[0] to [{len(items) - 1}]" if items else "no place: the list is empty"
    named = f", or a name: {', '.join(str(name) for name in names[:8])}" if names else ""
    raise ScenarioError(f"{setting.key}: expected {allowed}{named}, found [{index}]")


def _get(data: Any, path: KeyPath) -> Any:
    for key in path:
        try:
            data = data[key]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def _put(root: Any, path: KeyPath, setting: Setting) -> None:
    *outer, last = path
    around: Any = root
    for key in outer:
        if isinstance(around, dict):
            around[key] = {} if around.get(key) is None else around[key]
        try:
            around = around[key]
        except (KeyError, IndexError, TypeError):
            around = None
    if not isinstance(around, (dict, list)):
        raise ScenarioError(f"{setting.key}: expected a mapping around the last key, found a plain value")
    _set(around, last, setting.value)


def _set(around: Any, key: str | int, value: Any) -> None:
    around[key] = value  # a name in a mapping, a place in a list: `_paths` saw to it


def _unknown(key: str, known: tuple[str, ...]) -> ScenarioError:
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    allowed = f'a known key such as "{near[0]}"' if near else f"one of {', '.join(known)}"
    return ScenarioError(f'{key}: expected {allowed}, found "{key}"')
