"""YAML to plain data, with the line of every key, and nothing that YAML can do besides.

YAML 1.2 scalars (`1e-4` is a number, `no` is a text), no tags, no duplicate keys, one document. Anchors, aliases and merge
keys (`<<`) are read, since scenarios repeat themselves; what they expand to is counted before it is built, so that a few
lines cannot become gigabytes.
"""

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import yaml

from executors.simulator.fields import shown
from executors.simulator.scenario.errors import KeyPath, ScenarioError
from executors.simulator.scenario.textfile import check_letters, line_at
from executors.simulator.scenario.yamlscalars import ScalarProblem, scalar

VALUES_MAX = 200_000
DEPTH_MAX = 40
MERGE = "<<"

# The parser in C, where PyYAML has it, is ten times as fast. Both tell the same events.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@attrs.frozen
class _Node:
    """A value, and where it stands.

    Attributes:
        data: The plain value; aliases share it.
        at: Index of its first character in the text.
        size: How many values it is, itself included, aliases expanded.
        height: How deep it nests; 1 for a scalar.
        items: Of a list.
        entries: Of a mapping: where the key stands, and its value.
    """

    data: Any
    at: int
    size: int = 1
    height: int = 1
    items: tuple["_Node", ...] = ()
    entries: dict[str, tuple[int, "_Node"]] = attrs.Factory(dict)


@attrs.frozen
class Lines:
    """Where the values of a document stand."""

    text: str
    root: _Node

    def line_of(self, path: KeyPath) -> int:
        """The line of a key path, or of the nearest thing around it that is in the file."""
        node, at = self.root, self.root.at
        for key in path:
            if isinstance(key, str) and key in node.entries:
                at, node = node.entries[key]
            elif isinstance(key, int) and key < len(node.items):
                node = node.items[key]
                at = node.at
            else:
                break
        return line_at(self.text, at)


def parse(text: str, source: str, what: str = "scenario") -> tuple[Any, Lines]:
    """The data, which is the caller's to change, and the lines of its key paths.

    Args:
        what: What one document is, for errors.

    Raises:
        ScenarioError: It is no YAML of the kind that scenarios are written in.
    """
    check_letters(text, source)
    root = _Composer(text, source, what).compose()
    return _unshared(root.data), Lines(text, root)


def line_of(path: KeyPath, lines: Lines) -> int:
    """The line of a key path, or of the nearest thing around it that is in the file."""
    return lines.line_of(path)


@attrs.define
class _Open:
    """A list or mapping whose end has not come yet."""

    at: int
    anchor: str | None
    is_mapping: bool
    items: list[_Node] = attrs.Factory(list)
    entries: dict[str, tuple[int, _Node]] = attrs.Factory(dict)
    merges: list[_Node] = attrs.Factory(list)
    key: tuple[str, int] | None = None
    merging: bool = False

    @property
    def awaits_key(self) -> bool:
        """Whether what comes next is a key."""
        return self.is_mapping and self.key is None and not self.merging

    @property
    def step(self) -> str | int:
        """The key or the index that comes next."""
        if not self.is_mapping:
            return len(self.items)
        return MERGE if self.merging else self.key[0] if self.key is not None else ""


class _Composer:
    """Builds the nodes of one document from the events of the parser, without recursion and within the limits."""

    def __init__(self, text: str, source: str, what: str) -> None:
        self._text = text
        self._source = source
        self._what = what
        self._open: list[_Open] = []
        self._anchors: dict[str, _Node] = {}
        self._root: _Node | None = None
        self._documents = 0
        self._values = 0
        self._on: dict[type, Callable[[Any], None]] = {
            yaml.DocumentStartEvent: self._on_document,
            yaml.AliasEvent: self._on_alias,
            yaml.ScalarEvent: self._on_scalar,
            yaml.SequenceStartEvent: self._on_start,
            yaml.MappingStartEvent: self._on_start,
            yaml.SequenceEndEvent: self._on_end,
            yaml.MappingEndEvent: self._on_end,
        }

    def compose(self) -> _Node:
        """Read the whole text."""
        for event in self._events():
            handler = self._on.get(type(event))
            if handler is not None:
                handler(event)
        if self._root is None:
            raise self._error(f"expected a {self._what}, found an empty file", 0)
        return self._root

    def _events(self) -> Iterator[Any]:
        try:
            yield from yaml.parse(self._text, Loader=_LOADER)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            problem = error.problem or error.context or "it cannot be read"
            context = f" {error.context}" if error.problem and error.context else ""
            raise self._error(f"expected YAML, but {problem}{context}", mark.index if mark is not None else 0) from None
        except yaml.YAMLError as error:
            raise self._error(f"expected YAML, but {str(error).splitlines()[0]}", 0) from None

    def _on_document(self, event: Any) -> None:
        self._documents += 1
        if self._documents > 1:
            raise self._error(f"expected one {self._what} in a file, found a second document", event.start_mark.index)

    def _on_start(self, event: Any) -> None:
        at = event.start_mark.index
        self._refuse_tag(event)
        self._refuse_as_key(at)
        self._count(at)
        self._open.append(_Open(at, event.anchor, isinstance(event, yaml.MappingStartEvent)))

    def _on_end(self, _: Any) -> None:
        done = self._open.pop()
        if done.is_mapping:
            node = _mapping_node(done.at, {**_merged(done.merges), **done.entries})
        else:
            node = _list_node(done.at, tuple(done.items))
        self._add(node, done.anchor)

    def _on_scalar(self, event: Any) -> None:
        self._refuse_tag(event)
        at = event.start_mark.index
        plain = event.implicit[0] and not event.style
        if self._open and self._open[-1].awaits_key:
            self._on_key(self._open[-1], event.value, at, plain)
            return
        self._count(at)
        self._add(_Node(self._scalar(event.value, at) if plain else event.value, at), event.anchor)

    def _on_key(self, top: _Open, key: str, at: int, plain: bool) -> None:
        if plain and key == MERGE:
            top.merging = True
            return
        if key in top.entries:
            first = line_at(self._text, top.entries[key][0])
            problem = f"expected each key once, found {shown(key)} again (first in line {first})"
            raise self._error(problem, at, (*self._path[:-1], key))
        top.key = (key, at)

    def _on_alias(self, event: Any) -> None:
        at, name = event.start_mark.index, event.anchor
        self._refuse_as_key(at)
        node = self._anchors.get(name)
        if any(waiting.anchor == name for waiting in self._open):
            raise self._error(f"expected values that end, found *{name}, which is inside itself", at, self._path)
        if node is None:
            known = ", ".join(f"&{anchor}" for anchor in sorted(self._anchors)[:8]) or "none before it"
            raise self._error(f"expected the name of an anchor ({known}), found {shown('*' + name)}", at, self._path)
        self._count(at, node.size, node.height)
        self._add(node, None)

    def _add(self, node: _Node, anchor: str | None) -> None:
        if anchor is not None:
            self._anchors[anchor] = node
        if not self._open:
            self._root = node
            return
        top = self._open[-1]
        if not top.is_mapping:
            top.items.append(node)
        elif top.merging:
            self._check_merge(node)
            top.merges.append(node)
            top.merging = False
        elif top.key is not None:
            key, at = top.key
            top.entries[key] = (at, node)
            top.key = None

    def _check_merge(self, node: _Node) -> None:
        sources = node.items if isinstance(node.data, list) else (node,)
        if not sources or not all(isinstance(each.data, dict) for each in sources):
            problem = f"expected a mapping to merge, or a list of mappings, found {shown(node.data)}"
            raise self._error(problem, node.at, self._path)

    def _scalar(self, text: str, at: int) -> Any:
        try:
            return scalar(text)
        except ScalarProblem as problem:
            raise self._error(str(problem), at, self._path) from None

    def _refuse_as_key(self, at: int) -> None:
        if self._open and self._open[-1].awaits_key:
            raise self._error("expected keys that are words", at, self._path[:-1])

    def _refuse_tag(self, event: Any) -> None:
        if event.tag is not None:
            tag = str(event.tag).replace("tag:yaml.org,2002:", "!!")
            raise self._error(f"expected plain YAML, found the tag {shown(tag)}", event.start_mark.index, self._path)

    def _count(self, at: int, size: int = 1, height: int = 1) -> None:
        # An alias counts with all that it stands for, before anything is made of it.
        self._values += size
        if self._values > VALUES_MAX:
            raise self._error(f"expected at most {VALUES_MAX} values, found more", at)
        if len(self._open) + height > DEPTH_MAX:
            raise self._error(f"expected values nested at most {DEPTH_MAX} deep, found more", at)

    @property
    def _path(self) -> KeyPath:
        return tuple(each.step for each in self._open)

    def _error(self, problem: str, at: int, path: KeyPath | None = None) -> ScenarioError:
        return ScenarioError.at(problem, self._source, line_at(self._text, at), path)


def _unshared(data: Any) -> Any:
    """A copy in which each value stands once, so that a change in one place changes no other."""
    if isinstance(data, dict):
        return {key: _unshared(value) for key, value in data.items()}
    return [_unshared(item) for item in data] if isinstance(data, list) else data


def _merged(merges: list[_Node]) -> dict[str, tuple[int, _Node]]:
    """The keys of what is merged: the first that has a key wins."""
    found: dict[str, tuple[int, _Node]] = {}
    for node in merges:
        for source in node.items or (node,):
            found = {**source.entries, **found}
    return found


def _mapping_node(at: int, entries: dict[str, tuple[int, _Node]]) -> _Node:
    nodes = [node for _, node in entries.values()]
    return _Node(
        data={key: node.data for key, (_, node) in entries.items()},
        at=at,
        size=1 + sum(node.size for node in nodes),
        height=1 + max((node.height for node in nodes), default=0),
        entries=entries,
    )


def _list_node(at: int, items: tuple[_Node, ...]) -> _Node:
    return _Node(
        data=[item.data for item in items],
        at=at,
        size=1 + sum(item.size for item in items),
        height=1 + max((item.height for item in items), default=0),
        items=items,
    )
