"""`rankcore check`, as a user runs it."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import attrs
import pytest
from typer.testing import CliRunner

from executors.cli.app import app
from executors.cli.commands.check import BOUNDS
from rankcore import core
from rankcore.rules import endings
from rankcore.testing.model.bounds import Bounds
from rankcore.testing.model.systems import SMALL
from tests.extent import WHOLE, at_most

ROOT = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "executors.cli", "check")


def run(*arguments: str):
    return CliRunner().invoke(app, ["check", *arguments])


def test_all_promises_hold_in_the_small_series_and_the_page_says_how_much_that_is():
    """In a process of its own, as a user runs it: the whole series takes two minutes; in `make test` only so far."""
    done = subprocess.run(
        (*COMMAND, "--small", "--json", *at_most(150)), cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["holds"]
    assert found["broken"] is None
    assert [system["name"] for system in found["systems"]] == list(SMALL)
    whole = [each for each in found["systems"] if each["explored"] == each["states"]]
    assert whole == found["systems"] or not WHOLE
    rows = [f"| {each['name']} | {each['states']:,} | {each['moves']:,} | {each['depth']} |" for each in whole]
    page = (ROOT / "docs" / "verification.md").read_text()
    assert [row for row in rows if row not in page] == [], "docs/verification.md is old: these rows are new"
    idle = [name for counts in found["exercised"].values() for name, count in counts.items() if not count]
    assert not WHOLE or [name for name in idle if f"`{name}`" not in page] == [], "not exercised, and the page does not say why"


def test_every_bound_is_an_option():
    assert sorted(BOUNDS) == sorted(attrs.fields_dict(Bounds))


OVERLAP = ("--updates=1", "--max-surge=1", "--max-unavailable=0", "--hand-over=overlap", "--config-rollout=at_once")


@pytest.mark.parametrize("arguments", [OVERLAP, ("--changes=1", "--compaction=immediate", "--victims=newest")])
def test_choices_of_the_spec_are_bounds_too(arguments):
    done = run("--healthy", "--json", *arguments)
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["holds"]


def test_bounds_of_ones_own_are_explored_whole(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    done = run("--replicas", "1", "--crashes", "1", "--delays", "1")
    assert done.exit_code == 0, done.stderr
    assert re.search(r"^yours +[\d,]+ +[\d,]+ .* replicas=1, nodes=1, crashes=1, delays=1", done.stdout, re.MULTILINE)
    assert "All promises hold" in done.stdout
    assert "REQUESTED --NodeLost--> STOPPED" in done.stdout, "what was not exercised is named"


def test_a_broken_promise_is_printed_as_a_test_that_fails(monkeypatch):
    def replaced_too_early(draft, event, replica):
        endings.ended(draft, replica, "unhealthy")

    monkeypatch.setitem(core._HANDLERS, core.ReplicaUnhealthy, core._about_live(replaced_too_early))
    bounds = ("--replicas", "1", "--healthy", "--suspicions", "1")
    done = run(*bounds)
    assert done.exit_code == 1
    assert "BROKEN after 5 moves: R3: llm#1.0 and llm#1.1 both believe to have rank 0" in done.stdout
    printed = done.stdout[done.stdout.index('"""') :]
    found = json.loads(run(*bounds, "--json").stdout)
    assert not found["holds"]
    assert found["broken"]["test"].strip() == printed.strip()
    test = {}
    exec(printed, test)
    with pytest.raises(AssertionError, match="both believe"):
        test["test_a_path_found_by_the_checker"]()


def test_an_exploration_that_stops_early_says_what_it_left_open_and_goes_on_from_there(tmp_path: Path):
    bounds = ("--replicas", "2", "--crashes", "1", "--quiet")
    whole = json.loads(run(*bounds, "--json").stdout)["systems"][0]
    kept = (*bounds, "--keep", str(tmp_path))
    early = run(*kept, "--states", "100")
    assert early.exit_code == 0, early.stderr
    assert re.search(r"100 of \d+\+", early.stdout)
    assert re.search(r"yours: \d+ states found and not explored; \d+ of them were followed to rest", early.stdout)
    rest = json.loads(run(*kept, "--json").stdout)["systems"][0]
    assert {**rest, "time_s": 0} == {**whole, "time_s": 0}
    again = json.loads(run(*kept, "--json").stdout)["systems"][0]
    assert again["moves"] == whole["moves"], "what is done is not done again"
    fresh = json.loads(run(*kept, "--fresh", "--json").stdout)["systems"][0]
    assert {**fresh, "time_s": 0} == {**whole, "time_s": 0}


def test_after_ctrl_c_the_same_command_goes_on(tmp_path: Path):
    deep = (*COMMAND, "--deep", "--only", "everything", "--keep", str(tmp_path))
    with subprocess.Popen(deep, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        head = tmp_path / "everything" / "search.json"
        deadline = time.monotonic() + 600
        while not head.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert head.exists()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=600)
    assert process.returncode == 130, errors
    assert errors.strip() == f"rankcore: interrupted; the same command goes on with what is kept in {tmp_path}"
    kept = json.loads(head.read_text())
    assert len({kept[name] for name in ("parents", "moves", "fingerprints")}) == 1
    wanted = str(kept["fair"] + 20)
    done = subprocess.run(
        (*deep, "--states", wanted, "--json"), cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["systems"][0]["explored"] == kept["fair"] + 20


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--small", "--deep"), "expected --small or --deep, found both"),
        (("--small", "--crashes", "1"), "expected a series (--small, --deep, --only) or bounds of your own, found both"),
        (("--only", "nonsense"), "--only: expected one of crashes, "),
        (("--replicas", "2", "--start", "3"), "Bounds.start must be an integer from 0 to 2, got 3"),
        (("--mappings", "1"), "Bounds.mappings must be 0 without bundles, for which it would do nothing, got 1"),
        (("--replicas", "6"), "'--replicas'"),
    ],
)
def test_bad_input_is_told_in_one_line(arguments, told):
    done = run(*arguments)
    assert done.exit_code == 2
    assert told in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_folder_with_something_else_is_refused(tmp_path: Path):
    bounds = ("--replicas", "1", "--keep", str(tmp_path), "--quiet")
    assert run(*bounds, "--crashes", "1").exit_code == 0
    other = run(*bounds)
    assert other.exit_code == 2
    assert "expected the bounds Bounds(replicas=1, nodes=1), found others" in other.stderr
    head, parents = tmp_path / "yours" / "search.json", tmp_path / "yours" / "parents.bin"
    parents.write_bytes(parents.read_bytes()[:-4])
    assert "parents.bin: expected" in run(*bounds, "--crashes", "1").stderr
    assert run(*bounds, "--crashes", "1", "--fresh").exit_code == 0
    fingerprints = tmp_path / "yours" / "fingerprints.bin"
    fingerprints.write_bytes(fingerprints.read_bytes()[:-8] + bytes(8))
    assert "decides otherwise" in run(*bounds, "--crashes", "1").stderr
    head.write_text("{}")
    assert "expected what an exploration has kept" in run(*bounds, "--crashes", "1").stderr
