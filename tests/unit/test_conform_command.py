"""`rankcore conform` runs the kit on an executor by its name, says what is broken, and what was not tried."""

import pytest

from tests.distributions import install
from tests.unit.test_executors_by_name import said, site

__all__ = ["site"]

MEMORY = """
from contextlib import nullcontext
import msgspec
from executors.plugin import API, ExecutorPlugin
from tests.conformance import broken
from tests.conformance.in_memory import World

class Options(msgspec.Struct):
    room: int = 6

PLUGIN = ExecutorPlugin(api=API, options=Options, check=lambda _: None, open=lambda *_: None, bench={bench})
"""
GOOD = "lambda folder, options: nullcontext(World())"


def bring(site, bench, name="memory"):
    install(site, "rankcore-memory", executors={name: "a_memory:PLUGIN"}, modules={"a_memory": MEMORY.format(bench=bench)})


def test_a_good_executor_keeps_every_line_and_what_was_not_tried_is_said(site):
    bring(site, GOOD)
    status, stdout, _ = said("conform", "memory", "-k", "readiness or delete or unknown and not faults")
    lines = stdout.splitlines()
    assert status == 0
    assert [line.split()[1] for line in lines[:-1]] == ["kept"] * (len(lines) - 1)
    assert lines[-1].startswith(f"memory: {len(lines) - 1} kept, 0 broken, 0 skipped, in ")
    assert {line.partition(" s  ")[2].partition(":")[0] for line in lines[:-1]} == {"contract", "deployment"}
    assert any("faults of seed 1" in line for line in lines)
    assert any("delete while the controller crashes" in line for line in lines)


def test_a_broken_line_is_told_with_what_was_seen_and_ends_with_1(site):
    bring(site, "lambda folder, options: nullcontext(World(broken.NeverSaysStopped))")
    status, stdout, _ = said("conform", "memory", "-k", "a stop is answered", "--seeds", "0")
    assert status == 1
    assert "BROKEN" in stdout
    assert "  section 2.4: an executor never loses final news\n    expected: ReplicaStopped of conformance#1.0" in stdout
    assert "memory: 0 kept, 1 broken, 0 skipped, in " in stdout


def test_what_a_bench_cannot_do_is_skipped_and_said_so_in_the_summary(site):
    bring(site, "lambda folder, options: nullcontext(type('Plain', (World,), {'room': None})())")
    status, stdout, _ = said("conform", "memory", "-k", "capacity and not faults")
    assert status == 0
    assert stdout.splitlines()[-1].startswith("memory: 0 kept, 0 broken, 1 skipped (the bench has no `room`: 1), in ")


def test_a_bench_that_fails_is_broken(site):
    bring(site, "lambda folder, options: 1 / 0")
    status, stdout, _ = said("conform", "memory", "-k", "a stop is answered and not faults")
    assert (status, "it has failed: ZeroDivisionError: division by zero" in stdout) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("nobody",), "no executor 'nobody': installed are local, memory, ray"),
        (("ray",), "executor 'ray' (rankcore 0.1.0) brings no bench"),
        (("memory", "-k", "no such case"), "-k: no case has 'no such case': `rankcore conform memory --list` shows them all"),
        (("memory", "-k", "a and"), "-k: expected words joined by and, or, not, and no brackets, found 'a and'"),
        (("memory", "-k", "(a or b) and c"), "and no brackets, found '(a or b) and c'"),
    ],
)
def test_what_cannot_be_tried_is_one_line(site, arguments, problem):
    bring(site, GOOD)
    status, stdout, stderr = said("conform", *arguments)
    assert (status, stdout, stderr.count("\n"), problem in stderr) == (2, "", 1, True)


def test_a_bench_has_the_options_and_one_that_cannot_be_made_ends_it_in_one_line(site):
    bring(site, "lambda folder, options: nullcontext(World()) if options.room == 6 else open(folder / 'none')")
    status, stdout, _ = said("conform", "memory", "-k", "a stop is answered and not faults", "--option", "room=6")
    assert (status, "1 kept" in stdout) == (0, True)
    for option, problem in (
        ("room=7", "executor 'memory' (rankcore-memory 0.3) cannot be tried here: [Errno 2] No such file"),
        ("rooms=7", "--option of executor 'memory': expected NAME=VALUE with one of room, found 'rooms=7'"),
    ):
        status, stdout, stderr = said("conform", "memory", "--option", option)
        assert (status, stdout, stderr.count("\n"), problem in stderr) == (2, "", 1, True), stderr


def test_the_cases_are_listed(site):
    bring(site, GOOD)
    status, stdout, _ = said("conform", "memory", "--list", "--seeds", "2")
    lines = stdout.splitlines()
    assert (status, len(lines), len(set(lines))) == (0, len(lines), len(lines))
    assert "contract: final: a stop is answered" in lines
    assert "deployment: node loss while the controller crashes, faults of seed 2" in lines
