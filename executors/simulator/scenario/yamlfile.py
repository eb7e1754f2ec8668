"""YAML to plain data, with the line of every key, and nothing that YAML can do besides.

YAML 1.2 scalars (`1e-4` is a number, `no` is a text), no tags, no duplicate keys, bounded size and depth.
"""

import re
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from executors.simulator.fields import shown
from executors.simulator.scenario.errors import ScenarioError

KeyPath: TypeAlias = tuple[str | int, ...]
Lines: TypeAlias = dict[KeyPath, int]

SIZE_MAX_BYTES = 4_000_000
VALUES_MAX = 200_000
DEPTH_MAX = 40

_SCALARS: tuple[tuple[str, str, str], ...] = (
    ("null", r"^(?:~|null|Null|NULL|)$", "~nN\0"),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("int", r"^[-+]?[0-9]+$", "-+0123456789"),
    (
        "float",
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
        "-+0123456789.",
    ),
)


class _Loader(yaml.SafeLoader):
    """Scalars of YAML 1.2 only: no dates, no sexagesimal numbers, no yes and no."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, "re.Pattern[str]"]]] = {}  # noqa: RUF012 (yaml reads it so)


for _name, _pattern, _first in _SCALARS:
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_name}", re.compile(_pattern), ["" if letter == "\0" else letter for letter in _first]
    )

_PLAIN = tuple(f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "map", "seq"))


def read_text(path: Path) -> str:
    """A scenario file's text, or one line of what is wrong with the file."""
    try:
        with path.open("rb") as file:
            raw = file.read(SIZE_MAX_BYTES + 1)
    except IsADirectoryError:
        raise ScenarioError(f"{path}: expected a scenario file, found a directory") from None
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # a NUL in the path
        raise ScenarioError(f"{shown(str(path))}: cannot be read: {error}") from None
    if len(raw) > SIZE_MAX_BYTES:
        raise ScenarioError(f"{path}: expected a scenario file of at most {SIZE_MAX_BYTES} bytes, found more")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ScenarioError(f"{path}: expected a YAML file in UTF-8, found bytes that are none") from None


def parse(text: str, source: str) -> tuple[Any, Lines]:
    """The data, and the line of each key path.

    Raises:
        ScenarioError: It is no YAML of the kind that scenarios are written in.
    """
    try:
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
            if root is None:
                raise ScenarioError(f"{source}: expected a scenario, found an empty file")
            return _Reader(loader, source).read(root)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" ({source}:{mark.line + 1})" if mark is not None else ""
        raise ScenarioError(f"expected YAML, but {error.problem or error.context}{where}") from None
    except yaml.YAMLError as error:
        raise ScenarioError(f"{source}: expected a YAML file, but {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise ScenarioError(f"{source}: expected values nested at most {DEPTH_MAX} deep, found more") from None


class _Reader:
    """Walks the nodes of a document; anchors are expanded, within the limits."""

    def __init__(self, loader: _Loader, source: str) -> None:
        self._loader = loader
        self._source = source
        self._lines: Lines = {}
        self._values = 0

    def read(self, root: yaml.Node) -> tuple[Any, Lines]:
        """The whole document."""
        return self._read(root, ()), self._lines

    def _read(self, node: yaml.Node, path: KeyPath) -> Any:
        self._values += 1
        line = node.start_mark.line + 1
        self._lines.setdefault(path, line)
        if self._values > VALUES_MAX or len(path) > DEPTH_MAX:
            limits = f"at most {VALUES_MAX} values, nested at most {DEPTH_MAX} deep"
            raise ScenarioError(f"expected {limits}, found more ({self._source}:{line})")
        if node.tag not in _PLAIN:
            tag = node.tag.replace("tag:yaml.org,2002:", "!!")
            raise ScenarioError(f"{path_text(path)}: expected plain YAML, found the tag {shown(tag)} ({self._source}:{line})")
        if isinstance(node, yaml.MappingNode):
            return self._read_mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self._read(item, (*path, index)) for index, item in enumerate(node.value)]
        return self._read_scalar(node, path, line)

    def _read_mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = key_node.value
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag not in _PLAIN or not isinstance(key, str):
                raise ScenarioError(f"{path_text(path)}: expected keys that are words ({self._source}:{line})")
            if key in found:
                first = self._lines[(*path, key)]
                text = f"expected each key once, found {shown(key)} again (first in line {first})"
                raise ScenarioError(f"{path_text((*path, key))}: {text} ({self._source}:{line})")
            self._lines[(*path, key)] = line
            found[key] = self._read(value_node, (*path, key))
        return found

    def _read_scalar(self, node: yaml.Node, path: KeyPath, line: int) -> Any:
        text = node.value
        try:
            if node.tag.endswith(":int"):
                return int(text)  # not the loader's, to which 010 is eight
            return self._loader.construct_object(node)
        except ValueError:
            raise ScenarioError(
                f"{path_text(path)}: expected a plain value, found {shown(text)} ({self._source}:{line})"
            ) from None


def path_text(path: KeyPath) -> str:
    """A key path as people write it: `deployments[0].name`."""
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else str(key)
    return text or "the scenario"


def line_of(path: KeyPath, lines: Lines) -> int:
    """The line of a key path, or of the nearest thing around it that is in the file."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)
