"""What a long benchmark has measured is shown as it comes, and is kept when it is broken off or when a system fails."""

import argparse
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from bench import turns
from bench.ray_requests import PARTS, ROWS, parts_of

ROOT = Path(__file__).parents[2]

CHILD = """
import sys, time
from bench.turns import tell
name = sys.argv[sys.argv.index("--child") + 1]
tell({"calls": 1000 if name == "a" else 100})
tell({"p50": 2.0})
if name == "b":
    {ending}
"""
PARENT = """
from bench.turns import show, take_turns
titles = {"calls a second": "calls", "p50, ms": "p50", "not measured": "other"}
found, broken_off = take_turns("child", ["a", "b"], 2, titles)
show(found, titles)
print(found, broken_off)
"""


def begun(folder, ending):
    """A benchmark of two systems, of which the second ends its rounds in this way; in a session of its own."""
    (folder / "child.py").write_text(CHILD.replace("{ending}", textwrap.indent(ending, "    ").strip()))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)])}
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", PARENT]
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def test_figures_are_shown_as_they_come_and_systems_take_turns(tmp_path):
    out, shown = begun(tmp_path, "pass").communicate()
    told = ["  calls a second: 1,000", "  p50, ms: 2"], ["  calls a second: 100", "  p50, ms: 2"]
    assert shown.splitlines() == [
        *("round 1 of 2: a ...", *told[0], "round 1 of 2: b ...", *told[1]),
        *("round 2 of 2: b ...", *told[1], "round 2 of 2: a ...", *told[0]),
    ]
    assert "not measured" not in out
    assert [line.split() for line in out.splitlines()[2:4]] == [
        ["calls", "a", "second", "1,000", "(1,000-1,000)", "100", "(100-100)"],
        ["p50,", "ms", "2", "(2-2)", "2", "(2-2)"],
    ]


def test_broken_off_there_is_the_table_of_what_was_measured_and_no_child_is_left(tmp_path):
    ended = tmp_path / "ended"
    ending = f"try: time.sleep(3600)\nfinally: open({str(ended)!r}, 'w').close()"
    bench = begun(tmp_path, ending)
    for line in bench.stderr:
        if "100" in line and "1,000" not in line:  # the second system's first figure
            break
    bench.send_signal(signal.SIGINT)
    out, shown = bench.communicate()
    assert bench.returncode == 0
    assert "broken off" in shown
    assert out.splitlines()[-1] == "{'a': [{'calls': 1000, 'p50': 2.0}], 'b': [{'calls': 100, 'p50': 2.0}]} True"
    assert ended.exists(), "the child was ended without being told to"


def test_a_system_that_fails_leaves_the_table_of_what_was_measured_before(tmp_path):
    bench = begun(tmp_path, "print('what it said'); sys.exit('a reason')")
    out, shown = bench.communicate()
    assert bench.returncode == 1
    assert "RuntimeError: b failed:\nwhat it said\n\na reason" in shown
    assert out.splitlines()[2].split() == ["calls", "a", "second", "1,000", "100"]


def test_the_parts_of_the_comparison_of_requests_are_taken_by_name():
    assert parts_of("streams, grpc") == ("grpc", "streams")
    assert parts_of(",".join(PARTS)) == PARTS
    with pytest.raises(argparse.ArgumentTypeError, match="'htp' is no part; there are: handle, http, grpc, streams"):
        parts_of("handle,htp")
    assert len(set(ROWS.values())) == len(ROWS), "no figure has two titles"


@pytest.mark.parametrize(("values", "shown"), [([], ""), ([2.0], "2"), ([1234.5, 1000, 3000], "1,234 (1,000-3,000)")])
def test_a_cell_has_the_median_and_the_range_of_several_rounds(values, shown):
    assert turns.cell(values) == shown
