"""The one error that reading a scenario raises, and how it names a place."""

import re
from typing import TypeAlias

from executors.simulator.fields import printable, shown

KeyPath: TypeAlias = tuple[str | int, ...]
"""From the scenario to a value in it: names of keys and indices of lists."""

_WORD = re.compile(r"[A-Za-z0-9_-]{1,60}")


class ScenarioError(ValueError):
    """A scenario cannot be used: one line that names file, line and key path, what was found and what is allowed.

    Attributes:
        path: Of the key, where the data is no file's; else None.
    """

    path: str | None = None

    def __init__(self, text: str) -> None:
        super().__init__(printable(text))  # the path of a file may have line breaks

    @classmethod
    def of(cls, problem: str, path: str) -> "ScenarioError":
        """The error of a key path in data that is no file's."""
        error = cls(f"{path}: {problem}")
        error.path = printable(path)
        return error

    @classmethod
    def at(cls, problem: str, source: str, line: int, path: KeyPath | None = None) -> "ScenarioError":
        """The error of a place in a file; without a key path where the problem is the text itself."""
        key = "" if path is None else f"{path_text(path)}: "
        return cls(f"{key}{problem} ({source}:{line})")


def path_text(path: KeyPath) -> str:
    """A key path as people write it: `deployments[0].name`; a key that is no plain word stands in brackets."""
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        elif _WORD.fullmatch(key):
            text += f".{key}" if text else key
        else:
            text += f"[{shown(key)}]"
    return text or "the scenario"
