"""Another user of this machine, who attacks: a process with a user id of its own and no privileges.

Only root can start one. Elsewhere such tests are skipped, and say so.
"""

import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NOBODY = 65534
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of a second user")
PATIENCE_S = 60


def as_another_user(act: Callable[..., Any], *args: Any) -> Any:
    """What a function returns, as JSON has it, when another user's process runs it."""
    reading, writing = os.pipe()
    child = _another_user(lambda say: say(act(*args)), reading, writing)
    with open(reading, encoding="utf-8") as answers:
        text = answers.read()
    os.waitpid(child, 0)
    found = json.loads(text)
    if "raised" in found:
        raise AssertionError(f"the other user's process failed: {found['raised']}")
    return found["said"]


@contextmanager
def another_user_who(acts: Callable[..., None], *args: Any) -> Iterator[Callable[[], Any]]:
    """A process of another user that goes on until the end of the block. It runs `acts(say, *args)`; what it says comes line
    by line, as JSON, from the function that this yields.
    """
    reading, writing = os.pipe()
    child = _another_user(lambda say: acts(say, *args), reading, writing)
    try:
        with open(reading, encoding="utf-8") as said:
            yield lambda: json.loads(said.readline())["said"]
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _another_user(body: Callable[[Callable[[Any], None]], None], reading: int, writing: int) -> int:
    sys.stdout.flush()
    child = os.fork()
    if child:
        os.close(writing)
        return child
    try:
        os.close(reading)
        signal.alarm(PATIENCE_S)  # whatever hangs ends
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        os.chdir("/")
        body(lambda said: _write(writing, {"said": said}))
    except BaseException:
        _write(writing, {"raised": traceback.format_exc()})
    finally:
        os._exit(0)


def _write(writing: int, said: dict[str, Any]) -> None:
    os.write(writing, json.dumps(said).encode() + b"\n")


@pytest.fixture
def shared_tmp(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder as /tmp is, which all users can write to, in its place."""
    tmp_path_factory.getbasetemp()  # which is to be where it always is
    with tempfile.TemporaryDirectory(dir="/tmp") as short:  # sockets have short paths
        os.chmod(short, 0o1777)
        monkeypatch.setenv("TMPDIR", short)
        monkeypatch.setattr("executors.private_folder.SHORT_BASE", short)
        yield Path(short)
