"""The tutorial's commands run as they stand there and print what it says; its figures and pictures are theirs."""

import functools
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import attrs
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
PICTURES = ROOT / "docs" / "pictures"
PICTURE_MAX_BYTES, PICTURES_MAX_BYTES = 60_000, 400_000
SLOW_QUESTIONS = ("2", "5")
SLOW_PICTURES = ("sixty-days", "spare-or-replica", "spot")
COLUMNS = 120
"""How wide the tables of the tutorial are."""

NUMBER = re.compile(r"(?<![\w#.,-])\d+(?:,\d{3})*(?:\.\d+)?(?!\w)")


@attrs.frozen
class Typed:
    """A command, and what the tutorial shows of its output."""

    command: str
    shown: tuple[str, ...]


@functools.cache
def questions() -> dict[str, str]:
    """The text of each question, by its number."""
    parts = re.split(r"^## (?=\d\. |Your own)", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {part[0]: part for part in parts[1:] if part[0].isdigit()}


def typed(text: str) -> list[Typed]:
    found: list[Typed] = []
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            found.append(Typed(command, tuple(line.rstrip() for line in shown.splitlines())))
    return found


@functools.cache
def printed(number: str) -> tuple[str, ...]:
    """What each command of a question prints, typed one after the other in a copy of the examples."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "whatif"
        shutil.copytree(ROOT / "examples", work)
        command = Path(folder) / "rankcore"
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m executors.cli "$@"\n')
        command.chmod(command.stat().st_mode | stat.S_IXUSR)
        path = f"{folder}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": str(COLUMNS), "LC_ALL": "C.UTF-8"}
        found = []
        status = 0
        for each in typed(questions()[number]):
            text = each.command.replace("$?", str(status))
            done = subprocess.run(["bash", "-c", text], cwd=work, env=environment, capture_output=True, text=True, timeout=600)
            assert done.stderr == "", f"{each.command}: {done.stderr}"
            status = done.returncode
            found.append(done.stdout)
        return tuple(found)


def missing(shown: tuple[str, ...], printed_text: str) -> str | None:
    """The first line shown that was not printed there; `...` stands for any lines, and how wide columns are is all one."""
    lines = [" ".join(line.split()) for line in printed_text.splitlines()]
    at, may_skip = 0, False
    for line in shown:
        if line == "...":
            may_skip = True
            continue
        try:
            found = lines.index(" ".join(line.split()), at)
        except ValueError:
            return line
        if found > at and not may_skip:
            return line
        at, may_skip = found + 1, False
    return None if may_skip or at == len(lines) else f"nothing after {shown[-1] if shown else 'the command'}"


slow = pytest.mark.slow
EVERY = [pytest.param(number, marks=slow if number in SLOW_QUESTIONS else ()) for number in questions()]


@pytest.mark.parametrize("number", EVERY)
def test_commands_print_what_the_tutorial_says(number):
    for each, text in zip(typed(questions()[number]), printed(number), strict=True):
        assert missing(each.shown, text) is None, f"$ {each.command}\n{text}"


@pytest.mark.parametrize("number", EVERY)
def test_figures_in_the_words_are_printed_or_stand_in_the_scenarios(number):
    text = questions()[number]
    words = re.sub(r"```.*?```|\(pictures/[^)]*\)|`[^`]*`", " ", text, flags=re.DOTALL)
    scenarios = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "examples").glob("*.yaml")) if path.name in text]
    known = {figure for source in (*printed(number), *scenarios) for figure in NUMBER.findall(source)}
    quoted = [figure for figure in NUMBER.findall(words) if len(figure) > 1]
    assert [figure for figure in quoted if figure not in known] == []


def test_six_questions_use_every_command_that_answers_one():
    assert list(questions()) == ["1", "2", "3", "4", "5", "6"]
    commands = [each.command for text in questions().values() for each in typed(text)]
    for name in ("simulate", "simulate --from", "explain", "plan", "plan --from", "compare", "sweep"):
        assert any(command.startswith(f"rankcore {name} ") for command in commands), name
    for text in questions().values():
        assert "](pictures/" in text
        for part in ("**So:**", "**What the model leaves out:**"):
            assert part in text


def picture_names() -> list[str]:
    return sorted(path.stem for path in PICTURES.glob("*.svg"))


@pytest.mark.parametrize("name", [pytest.param(name, marks=slow if name in SLOW_PICTURES else ()) for name in picture_names()])
def test_a_picture_is_current(name):
    command = [sys.executable, "docs/make_pictures.py", "--check", name]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    checked = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_picture_is_shown_and_small():
    shown = re.findall(r"!\[[^\]]+\]\(pictures/([\w-]+)\.svg\)", PAGE.read_text(encoding="utf-8"))
    assert sorted(shown) == picture_names()
    sizes = [path.stat().st_size for path in PICTURES.glob("*.svg")]
    assert max(sizes) < PICTURE_MAX_BYTES
    assert sum(sizes) < PICTURES_MAX_BYTES
