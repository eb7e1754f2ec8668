"""The incidents reported elsewhere: each file says where from, states what must not happen again, and is in the table."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scenarios.test_scenarios import Runner

pytestmark = pytest.mark.traced

ROOT = Path(__file__).parents[2]
MAKE = ROOT / "docs" / "make_incidents.py"
FILES = sorted((Path(__file__).parent / "incidents").glob("*.txt"))


def test_the_table_and_the_files_agree():
    checked = subprocess.run([sys.executable, MAKE, "--check"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_there_are_enough_of_them_and_no_report_is_told_twice():
    found = runpy.run_path(str(MAKE))["incidents"]()
    assert len(found) >= 25
    assert [each.path for each in sorted(found)] == FILES
    urls = [url for each in found for url in each.urls]
    assert len(set(urls)) == len(urls)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_incident_is_named_after_its_report_and_states_what_must_hold(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    url = next(line for line in lines if line.startswith("# https://"))
    assert f"_{url.rsplit('/', 1)[1]}_" in path.name
    stated = [line for line in lines if line.startswith("> expect")]
    assert [line for line in stated if not line.startswith("> expect status=HEALTHY")], "that it ends well is not enough"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("status=UPDATING", "found HEALTHY"),
        ("rank llm#1.0=1", "expected llm#1.0=1"),
        ("rank llm#1.9=0", "expected llm#1.9=0"),
        ("ranks llm#1.0=0/0/1", "expected llm#1.0=0/0/1"),
        ("version *=2", r"expected \*=2"),
        ("never ReplicaDied StopReplica llm#1.1", "expected never, and came: .*StopReplica"),
        ("once StopReplica llm#1.0", "came 0 times"),
        ("once StopReplica", "came 2 times"),
        ("serving_at_least=3", "found 1"),
        ("live_at_most=2", "found 3"),
        ("routes=llm#1.0,llm#1.1", "found"),
        ("never", "which command"),
        ("sometimes StopReplica", "expect what"),
        ("weather=fair", "Expecting value|no such expectation"),
        ("weather=1", "no such expectation: weather"),
    ],
)
def test_an_expectation_that_does_not_hold_is_an_error(line, found):
    text = "# Two stop.\n> running 3\n> SpecChanged target_replicas=1\n> settle\n> expect never StopReplica llm#1.0\n"
    Runner().run(text)
    with pytest.raises((AssertionError, ValueError), match=found):
        Runner().run(text + f"> expect {line}\n")


def test_what_came_before_is_forgotten_from_here_on():
    text = "# Two stop.\n> running 3\n> SpecChanged target_replicas=1\n> settle\n> from here\n"
    Runner().run(text + "> expect never StopReplica\n> expect live_at_most=1 serving_at_least=1\n")
