"""A scenario file's text: of a regular file of bounded size, in UTF-8, or one line of what is wrong with it."""

import os
import re
from pathlib import Path

from executors.simulator.regularfile import KINDS
from executors.simulator.scenario.errors import ScenarioError

SIZE_MAX_BYTES = 4_000_000

_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LINE_END = re.compile("\r\n|\r|\n")


def read_text(path: Path, what: str = "scenario file") -> str:
    """Read a file. Whatever the path leads to, this neither waits nor takes more than some megabytes.

    Args:
        what: It is to be, for errors.

    Raises:
        ScenarioError: It is no such file.
    """
    raw = _read_bytes(path, what)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8", "replace")
        problem = f"expected text in UTF-8, found the byte 0x{raw[error.start]:02x}, which is none"
        raise ScenarioError.at(problem, str(path), line_at(before, len(before))) from None


def _read_bytes(path: Path, what: str) -> bytes:
    try:
        # Without O_NONBLOCK, a named pipe would be waited for until somebody writes to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            mode = os.fstat(descriptor).st_mode
            for is_one, kind in KINDS:
                if is_one(mode):
                    raise ScenarioError(f"{path}: expected a {what}, found {kind}")
            raw = file.read(SIZE_MAX_BYTES + 1)
    except IsADirectoryError:
        raise ScenarioError(f"{path}: expected a {what}, found a directory") from None
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ScenarioError:
        raise
    except ValueError as error:  # a NUL in the path
        raise ScenarioError(f"{path}: cannot be read: {error}") from None
    if len(raw) > SIZE_MAX_BYTES:
        raise ScenarioError(f"{path}: expected a {what} of at most {SIZE_MAX_BYTES} bytes, found more")
    return raw


def check_letters(text: str, source: str) -> None:
    """Refuse what YAML does not allow in a file: NUL and most other control characters, lone surrogates."""
    found = _UNPRINTABLE.search(text)
    if found is not None:
        problem = f"expected a text file, found the control character U+{ord(found.group()):04X}"
        raise ScenarioError.at(problem, source, line_at(text, found.start()))


def line_at(text: str, index: int) -> int:
    """The line, from 1, in which a character stands; what stands behind the last one counts as in the last line."""
    ends = [end.end() for end in _LINE_END.finditer(text, 0, min(index, len(text)))]
    line = 1 + len(ends)
    return line - 1 if ends and ends[-1] == len(text) else line
