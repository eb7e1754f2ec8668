"""W18: a line that is missing, repeated, moved, changed or another journal's is found where it stands, a cut too."""

import re

import pytest
from typer.testing import CliRunner

from executors.cli.app import app
from executors.engine.deployments import Deployed
from executors.engine.journal import JournalWriter
from executors.engine.reading import NO_END, JournalError, JournalReader
from executors.engine.replay import replay
from rankcore import DeploymentSpec, step
from rankcore.events import SpecChanged

STEPS = 60


def written(path, changes=STEPS, number=0):
    how = Deployed(spec=DeploymentSpec(name="llm", target_replicas=0))
    with JournalWriter.create(path) as journal:
        first = how.step()
        journal.begin(how, first)
        state = first.state
        for at in range(1, changes):
            # Every second one changes nothing, so that a core that runs the journal again would not miss it.
            spec = DeploymentSpec(name="llm", target_replicas=0, user_config={"number": at // 2 + number})
            event = SpecChanged(spec=spec, at=float(at))
            result = step(state, event)
            journal.append(event, result)
            state = result.state
    return path.read_bytes().splitlines(keepends=True)


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    return written(tmp_path_factory.mktemp("whole") / "run.jsonl")


def problem_of(path, lines):
    """Which line an error names, and what it says; the warning, where there is none."""
    path.write_bytes(b"".join(lines))
    try:
        return None, replay(path).warning
    except JournalError as error:
        return error.line, error.problem


def test_a_line_that_is_missing_is_found_wherever_it_was(lines, tmp_path):
    for gone in range(1, len(lines) - 1):
        found = problem_of(tmp_path / "run.jsonl", [*lines[:gone], *lines[gone + 1 :]])
        assert found == (gone + 1, f"line n={gone} is missing: n={gone + 1} stands here")


def test_several_that_are_missing_are_told(lines, tmp_path):
    found = problem_of(tmp_path / "run.jsonl", [*lines[:7], *lines[20:]])
    assert found == (8, "lines n=7 to n=19 are missing: n=20 stands here")


def test_two_that_have_changed_places_are_found(lines, tmp_path):
    for first in range(1, len(lines) - 1):
        line, problem = problem_of(
            tmp_path / "run.jsonl", [*lines[:first], lines[first + 1], lines[first], *lines[first + 2 :]]
        )
        assert (line, problem) == (first + 1, f"line n={first} is missing: n={first + 1} stands here")


def test_one_that_stands_twice_is_found(lines, tmp_path):
    for twice in range(1, len(lines)):
        line, problem = problem_of(tmp_path / "run.jsonl", [*lines[: twice + 1], lines[twice], *lines[twice + 1 :]])
        assert line == twice + 2
        assert f"n={twice} stands here, where n={twice + 1} should" in problem


def test_a_letter_that_is_another_is_found(lines, tmp_path):
    for place in range(len(lines)):
        changed = lines[place].replace(b"l", b"m", 1)
        assert changed != lines[place]
        line, _ = problem_of(tmp_path / "run.jsonl", [*lines[:place], changed, *lines[place + 1 :]])
        assert line == place + 1


def test_a_line_of_another_run_is_found(lines, tmp_path):
    others = written(tmp_path / "other.jsonl", number=1000)
    for place in range(3, len(lines) - 1):  # the first that differs follows from what both have
        line, problem = problem_of(tmp_path / "run.jsonl", [*lines[:place], others[place], *lines[place + 1 :]])
        assert (line, "another journal's" in problem) == (place + 1, True)
    half = len(lines) // 2
    assert problem_of(tmp_path / "run.jsonl", [*lines[:half], *others[half:]])[0] == half + 1


def test_a_cut_is_told_by_the_end_marker_that_is_not_there(lines, tmp_path):
    path = tmp_path / "run.jsonl"
    for kept in range(1, len(lines)):
        assert problem_of(path, lines[:kept]) == (None, f"{path}:{kept}: {NO_END}")
    assert problem_of(path, lines) == (None, None)


def test_a_line_behind_the_end_is_refused(lines, tmp_path):
    path = tmp_path / "run.jsonl"
    written(path)
    chain = JournalReader(path)
    list(chain)
    behind, _ = chain._chain.seal({"deployment": "llm", "event": {}, "commands": [], "notes": []})
    assert problem_of(path, [*lines, behind]) == (len(lines) + 1, "this line stands behind the end of the journal")


@pytest.mark.parametrize("how", ["closed", "crashed"])
def test_the_end_says_how_the_writer_ended(tmp_path, how):
    path = tmp_path / "run.jsonl"

    def write():
        with JournalWriter.create(path):
            if how == "crashed":
                raise RuntimeError

    if how == "crashed":
        with pytest.raises(RuntimeError):
            write()
    else:
        write()
    assert f'{{"end":"{how}",' in path.read_text()


def test_a_journal_that_is_still_written_lacks_no_end(tmp_path):
    path = tmp_path / "run.jsonl"
    with JournalWriter.create(path):
        assert replay(path).warning is None
    with pytest.raises(JournalError, match="another process"), JournalWriter.create(path):
        JournalWriter.create(path)


def test_one_that_goes_on_after_its_end_is_one_journal(tmp_path):
    path = tmp_path / "run.jsonl"
    with JournalWriter.create(path) as journal:
        journal.end()
        journal.end()
        how = Deployed(spec=DeploymentSpec(name="llm", target_replicas=0))
        journal.begin(how, how.step())
    text = path.read_text()
    assert re.findall(r'"(end|resumed)":', text) == ["end", "resumed", "end"]
    assert (replay(path).warning, replay(path).steps) == (None, 1)


def test_who_goes_on_reads_the_last_line_and_refuses_one_that_was_damaged(lines, tmp_path):
    path = tmp_path / "run.jsonl"
    for last in (b'{"end":"closed"}\n', b"{}\n", b"\xff\n", b'{"n":1,"h":"12"}\n'):
        path.write_bytes(b"".join([*lines[:-1], last]))
        with pytest.raises(JournalError, match="the last line was damaged: this line has no number n and hash h to go on from"):
            JournalWriter.resume(path)


@pytest.mark.parametrize(
    ("mark", "problem"),
    [
        ({"end": "somehow"}, "end must be one of closed, crashed, continued, and stand alone, got {'end': 'somehow'}"),
        ({"end": "closed", "x": 1}, "end must be one of closed, crashed, continued"),
        ({"resumed": True}, "torn_bytes must be an integer, got None"),
    ],
)
def test_a_mark_that_says_something_else_is_refused(tmp_path, mark, problem):
    path = tmp_path / "run.jsonl"
    with JournalWriter.create(path) as journal:
        journal._write(mark)
    with pytest.raises(JournalError, match=re.escape(problem)):
        replay(path)


def test_the_command_can_demand_the_end(lines, tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(lines[:-1]))
    assert CliRunner().invoke(app, ["replay", str(path)]).exit_code == 0
    done = CliRunner().invoke(app, ["replay", str(path), "--complete"])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert f"rankcore: error: {path}:{len(lines) - 1}: {NO_END}" in done.stderr
    path.write_bytes(b"".join(lines))
    assert CliRunner().invoke(app, ["replay", str(path), "--complete"]).exit_code == 0
