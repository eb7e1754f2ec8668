"""The journal: written whole, read back as it was, run again; and whatever is broken is said with file and line."""

import io
import json
import pickle

import pytest
import typer
from typer.testing import CliRunner

import rankcore
from executors.cli.commands.replay import replay as replay_command
from executors.engine.deployments import DEPLOYMENTS, Deployed, Recovered, Resumed
from executors.engine.journal import JournalWriter
from executors.engine.reading import JournalError, JournalReader
from executors.engine.replay import PROGRESS_EVERY, replay
from rankcore import DeploymentSpec
from rankcore.events import ReplicaDied, ReplicaPlaced
from tests.journals import sealed, unsealed, without_chain

SPEC = DeploymentSpec(name="llm", target_replicas=3, user_config={"temperature": 0.5})
OTHER = DeploymentSpec(name="embedder", target_replicas=1)


def write(journal, how, events=()):
    """One deployment's part of a run; returns its last state."""
    first = how.step()
    journal.begin(how, first)
    state = first.state
    for event in events:
        result = rankcore.step(state, event)
        journal.append(event, result)
        state = result.state
    return state


def placements(spec=SPEC, epoch=1, count=3):
    return [
        ReplicaPlaced(replica_id=f"{spec.name}#{epoch}.{index % spec.target_replicas}", node_id="n1", at=1.0 + index)
        for index in range(count)
    ]


@pytest.fixture
def path(tmp_path):
    """A journal of two deployments, one of which sees its controller restart."""
    path = tmp_path / "run.jsonl"
    with JournalWriter.create(path, about={"seed": 7}, fingerprint_every=2) as journal:
        write(journal, Deployed(spec=SPEC), placements())
        write(journal, Deployed(spec=OTHER, at=4.0), placements(OTHER, count=1))
        recovered = Recovered(spec=SPEC, replica_ids=("llm#1.0", "llm#1.1"), at=1.0, epoch=2)
        write(journal, recovered, [ReplicaDied(replica_id="llm#1.0", reason="out of memory", at=2.0)])
    return path


def lines_of(path):
    return path.read_bytes().splitlines(keepends=True)


def edited(path, number, **changes):
    """Change keys of one line (1-based); None removes a key."""
    lines = unsealed(path)
    line = lines[number - 1] | changes
    lines[number - 1] = {key: value for key, value in line.items() if value is not None}
    path.write_bytes(sealed(lines))
    return path


# ---------------------------------------------------------------------------------------------------------------------
# writing and reading


def test_what_was_written_is_read_back_in_order(path):
    reader = JournalReader(path)
    entries = list(reader)
    assert reader.about == {"seed": 7}
    assert reader.warning is None
    assert reader.position == path.stat().st_size
    assert [entry.line for entry in entries] == list(range(2, 10))
    assert [entry.deployment for entry in entries] == ["llm"] * 4 + ["embedder"] * 2 + ["llm"] * 2
    assert [entry.cause for entry in entries[1:4]] == placements()
    first = rankcore.deploy(SPEC)
    assert (entries[0].commands, entries[0].notes) == (first.commands, first.notes)


def test_a_fingerprint_stands_at_each_beginning_and_at_every_so_manyth_step_of_a_deployment(path):
    with_print = [entry.line for entry in JournalReader(path) if entry.fingerprint is not None]
    assert with_print == [2, 4, 6, 8]


def test_fingerprints_are_a_hundred_steps_apart_unless_told_otherwise(tmp_path):
    path = tmp_path / "run.jsonl"
    with JournalWriter.create(path) as journal:
        write(journal, Deployed(spec=SPEC), placements(count=2100))
    with_print = [entry.line for entry in JournalReader(path) if entry.fingerprint is not None]
    assert with_print == list(range(2, 2103, 100))


def test_the_same_run_gives_the_same_bytes():
    files = [io.BytesIO(), io.BytesIO()]
    for file in files:
        write(JournalWriter(file, about={"seed": 7}), Deployed(spec=SPEC), placements())
    assert files[0].getvalue() == files[1].getvalue() != b""


def test_a_step_of_a_deployment_that_has_not_begun_is_not_written():
    file = io.BytesIO()
    journal = JournalWriter(file)
    before = file.getvalue()
    event = placements()[0]
    with pytest.raises(ValueError, match="'llm' has not begun in this journal"):
        journal.append(event, rankcore.step(rankcore.deploy(SPEC).state, event))
    assert file.getvalue() == before


def test_fingerprints_more_often_than_every_step_are_refused():
    with pytest.raises(ValueError, match="fingerprint_every must be at least 1, got 0"):
        JournalWriter(io.BytesIO(), fingerprint_every=0)


def test_a_line_that_the_disk_takes_only_in_part_is_taken_back():
    class FullDisk(io.BytesIO):
        full = False

        def write(self, text):
            return super().write(text[:10] if self.full else text)

    file = FullDisk()
    journal = JournalWriter(file)
    before = file.getvalue()
    file.full = True
    with pytest.raises(OSError, match="the disk took only a part of a journal line"):
        journal.begin(Deployed(spec=SPEC), rankcore.deploy(SPEC))
    assert file.getvalue() == before


def test_a_journal_can_be_closed_twice(tmp_path):
    journal = JournalWriter.create(tmp_path / "run.jsonl")
    journal.close()
    journal.close()
    assert list(JournalReader(tmp_path / "run.jsonl")) == []


# ---------------------------------------------------------------------------------------------------------------------
# cut off, resumed, broken


def test_a_journal_cut_off_anywhere_in_its_last_line_is_read_up_to_there_with_a_warning(path):
    *lines, _ = lines_of(path)  # as a writer that was killed leaves it, without an end marker
    whole = b"".join(lines)
    start = len(whole) - len(lines[-1])
    for end in range(start + 1, len(whole) - 1, 7):
        path.write_bytes(whole[:end])
        reader = JournalReader(path)
        assert len(list(reader)) == 7
        assert reader.warning == f"{path}:9: the journal ends in the middle of this line, which was left out"


def test_a_last_line_that_lacks_only_its_newline_is_whole(path):
    path.write_bytes(path.read_bytes()[:-1])
    reader = JournalReader(path)
    assert len(list(reader)) == 8
    assert reader.warning is None


def test_a_journal_cut_off_in_the_middle_of_a_letter_is_read_up_to_there(tmp_path):
    path = tmp_path / "run.jsonl"
    with JournalWriter.create(path) as journal:
        write(journal, Deployed(spec=SPEC), [ReplicaDied(replica_id="llm#1.0", reason="größer", at=2.0)])
    data = path.read_bytes()
    path.write_bytes(data[: data.rfind("ö".encode()) + 1])
    reader = JournalReader(path)
    assert len(list(reader)) == 1
    assert reader.warning is not None


def test_a_journal_that_was_cut_off_can_be_gone_on_with(path):
    whole = lines_of(path)[:-1]
    path.write_bytes(b"".join(whole)[:-20])
    with JournalWriter.resume(path) as journal:
        write(journal, Recovered(spec=SPEC, replica_ids=("llm#1.1",), at=9.0, epoch=3))
    assert lines_of(path)[:8] == whole[:8]
    assert unsealed(path)[8] == {"resumed": True, "torn_bytes": len(whole[8]) - 20}
    result = replay(path)
    assert (result.difference, result.warning, result.steps) == (None, None, 8)
    assert result.states["llm"].epoch == 3


def test_a_cut_off_line_longer_than_one_read_is_removed_whole(path):
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"deployment":"' + b"x" * 200_000)
    JournalWriter.resume(path).close()
    assert path.read_bytes().startswith(whole)
    assert unsealed(path)[-2:] == [{"resumed": True, "torn_bytes": 200_015}, {"end": "closed"}]


def test_resuming_starts_a_journal_where_there_is_none(tmp_path):
    for path in (tmp_path / "new.jsonl", tmp_path / "empty.jsonl"):
        (tmp_path / "empty.jsonl").touch()
        JournalWriter.resume(path, about={"seed": 1}).close()
        header = {"journal": 3, "machine": "deployments", "release": rankcore.__version__}
        assert unsealed(path) == [header | {"about": {"seed": 1}}, {"end": "closed"}]


def test_resuming_starts_over_where_not_even_the_first_line_was_ended(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_bytes(b'{"journal":1,"about":{}}')
    JournalWriter.resume(path).close()
    assert path.read_bytes().startswith(b'{"journal":3,"machine":"deployments",')
    assert [line.get("end") for line in unsealed(path)] == [None, "closed"]


def test_resuming_leaves_a_file_that_is_no_journal_alone(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_bytes(b"buy milk")
    with pytest.raises(JournalError, match="not a line of a journal"):
        JournalWriter.resume(path)
    assert path.read_bytes() == b"buy milk"


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", ":1: the file is empty: a journal begins with a line about itself"),
        (b"\x89PNG\r\n\x1a\n", ":1: not a line of a journal: not UTF-8"),
        (b"\x00" * 100, ":1: not a line of a journal: the text must be JSON"),
        (b"[]\n", ":1: not a line of a journal: the text must be a JSON object, got []"),
        (b"{}\n", ":1: this is not a journal: its first line has no key 'journal'"),
        (b'{"journal":4,"about":{}}\n', ":1: journal must be 1, 2 or 3, got 4: another version of rankcore wrote this"),
        (b'{"journal":true,"about":{}}\n', ":1: journal must be 1, 2 or 3, got True: another version"),
        (b'{"journal":1}\n', ":1: the first line must be an object with 'journal' and 'about'"),
        (b'{"journal":1,"about":7}\n', ":1: the first line must be an object with 'journal' and 'about'"),
    ],
)
def test_a_file_that_is_no_journal_is_refused_with_its_name_and_line(tmp_path, data, complaint):
    path = tmp_path / "run.jsonl"
    path.write_bytes(data)
    with pytest.raises(JournalError) as caught:
        replay(path)
    assert str(caught.value).startswith(f"{path}{complaint}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"commands": None}, "commands is missing"),
        ({"event": None}, "event is missing"),
        ({"remark\n": 1}, r"'remark\n' is unknown"),
        ({"deployment": 7}, "deployment must be a string, got 7"),
        ({"commands": {}}, "commands must be a list, got {}"),
        ({"event": []}, "event must be an object, got []"),
        ({"fingerprint": 7}, "fingerprint must be a string, got 7"),
        ({"event": {"type": "ReplicaVanished"}}, "event: type must be BundleLost or "),
        ({"commands": [{"type": "KillReplica", "epoch": 1}]}, "commands: KillReplica.replica_id is missing"),
        ({"notes": [7]}, "notes: the value must be an object, got 7"),
        ({"deployment": "embedder"}, "deployment 'embedder' has an event before it began"),
    ],
)
def test_a_broken_line_before_the_last_is_an_error_with_file_and_line(path, changes, complaint):
    with pytest.raises(JournalError) as caught:
        replay(edited(path, 3, **changes))
    assert str(caught.value).startswith(f"{path}:3: {complaint}")
    assert (caught.value.line, caught.value.source) == (3, str(path))


def test_a_line_cut_off_before_the_last_is_an_error(path):
    lines = lines_of(path)
    lines[4] = lines[4][:30] + b"\n"
    path.write_bytes(b"".join(lines))
    with pytest.raises(JournalError, match=":5: not a line of a journal: the text must be JSON") as caught:
        list(JournalReader(path))
    assert str(caught.value).endswith(f"; the line begins with {lines[4][:30].decode()!r}")


def test_of_garbage_no_more_than_the_beginning_is_shown(path):
    lines = lines_of(path)
    lines[4] = b"\xff<html>" + b"x" * 10**6 + b"\n"
    path.write_bytes(b"".join(lines))
    with pytest.raises(JournalError) as caught:
        list(JournalReader(path))
    shown = r"\\xff<html>" + "x" * 53
    assert str(caught.value) == f"{path}:5: not a line of a journal: not UTF-8; the line begins with '{shown}'"


# ---------------------------------------------------------------------------------------------------------------------
# replay


def test_a_journal_that_the_core_answers_as_it_did_then_agrees(path):
    result = replay(path)
    assert result.difference is None
    assert (result.steps, result.fingerprints, result.warning) == (8, 4, None)
    assert sorted(result.states) == ["embedder", "llm"]
    assert result.states["llm"].epoch == 2


def test_a_resumed_run_is_replayed_from_its_state(tmp_path):
    path = tmp_path / "fork.jsonl"
    state = rankcore.deploy(SPEC).state
    with JournalWriter.create(path) as journal:
        last = write(journal, Resumed(state=state), placements())
    result = replay(path)
    assert result.difference is None
    assert result.states["llm"] == last


def test_a_cut_off_journal_is_replayed_up_to_there_and_the_result_carries_the_warning(path):
    path.write_bytes(b"".join(lines_of(path)[:-1])[:-20])
    result = replay(path)
    assert (result.steps, result.difference) == (7, None)
    assert result.warning is not None


def answer(path, number):
    return json.loads(lines_of(path)[number - 1])


def test_a_command_that_differs_is_named_with_line_expected_and_found(path):
    commands = answer(path, 2)["commands"]
    changed = [commands[0], commands[1] | {"epoch": 77}, *commands[2:]]
    difference = replay(edited(path, 2, commands=changed)).difference
    assert (difference.line, difference.what) == (2, "commands[1]")
    assert '"epoch":77' in difference.expected
    assert '"epoch":1' in difference.found
    assert str(difference).startswith(f"{path}:2: commands[1] differs: expected {{")


def test_commands_that_are_missing_or_too_many_are_differences(path):
    commands = answer(path, 2)["commands"]
    extra = {"type": "KillReplica", "replica_id": "llm#1.9", "epoch": 1}
    difference = replay(edited(path, 2, commands=[*commands, extra])).difference
    assert (difference.what, difference.found) == (f"commands[{len(commands)}]", "none")
    difference = replay(edited(path, 2, commands=[])).difference
    assert (difference.what, difference.expected) == ("commands[0]", "none")


def test_a_note_that_differs_is_found(path):
    note = {"type": "RankNote", "kind": "late", "rule": "R0", "replica_id": None, "before": None, "after": None}
    difference = replay(edited(path, 4, notes=[note | {"rank": None, "because": ""}])).difference
    assert (difference.line, difference.what) == (4, "notes[0]")


def test_a_fingerprint_that_differs_is_found(path):
    difference = replay(edited(path, 4, fingerprint="0" * 16)).difference
    assert (difference.line, difference.what, difference.expected) == (4, "fingerprint", "0" * 16)


def test_a_line_about_another_deployment_than_it_says_differs(path):
    difference = replay(edited(path, 2, deployment="embedder")).difference
    assert (difference.what, difference.expected, difference.found) == ("deployment", "embedder", "llm")


def test_an_event_that_the_core_refuses_now_differs(path):
    spec = answer(path, 6)["began"]["spec"]
    event = {"type": "SpecChanged", "spec": spec, "stop_first": [], "at": 2.0}
    difference = replay(edited(path, 4, event=event)).difference
    assert (difference.line, difference.what) == (4, "the answer")
    assert difference.found.startswith("UnknownDeploymentError: ")


def test_replay_stops_at_the_first_line_that_differs(path):
    edited(path, 7, commands=[{"type": "KillReplica", "replica_id": "a", "epoch": 1}])
    result = replay(edited(path, 4, fingerprint="0" * 16))
    assert (result.difference.line, result.steps) == (4, 2)


def test_progress_is_told_in_bytes(tmp_path):
    path = tmp_path / "run.jsonl"
    with JournalWriter.create(path) as journal:
        write(journal, Deployed(spec=SPEC), placements(count=2 * PROGRESS_EVERY))
    told: list[int] = []
    replay(path, progress=told.append)
    assert len(told) == 2
    assert 0 < told[0] < told[1] <= path.stat().st_size


# ---------------------------------------------------------------------------------------------------------------------
# the command


def run_command(path):
    app = typer.Typer()
    app.command()(replay_command)
    return CliRunner().invoke(app, [str(path)])


def test_the_command_ends_with_0_when_all_lines_agree(path):
    outcome = run_command(path)
    assert outcome.exit_code == 0
    assert "8 steps of 2 deployment(s) (embedder, llm) agree, with 4 fingerprint(s)" in outcome.output


def test_the_command_warns_about_a_cut_off_line_and_ends_with_0(path):
    path.write_bytes(b"".join(lines_of(path)[:-1])[:-20])
    outcome = run_command(path)
    assert outcome.exit_code == 0
    assert f"rankcore: warning: {path}:9: the journal ends in the middle of this line" in outcome.stderr


def test_the_command_ends_with_1_and_names_the_line_that_differs(path):
    outcome = run_command(edited(path, 4, fingerprint="0" * 16))
    assert outcome.exit_code == 1
    assert f"{path}:4: fingerprint differs: expected 0000000000000000, found " in outcome.stderr


def test_the_command_refuses_bad_input_in_one_line_and_ends_with_2(path, tmp_path):
    for bad, complaint in (
        (edited(path, 3, commands=None), "commands is missing"),
        (tmp_path / "missing.jsonl", "No such file or directory"),
        (tmp_path, "Is a directory"),
    ):
        outcome = run_command(bad)
        assert outcome.exit_code == 2
        assert outcome.stderr.startswith(f"rankcore: error: {bad}")
        assert complaint in outcome.stderr
        assert outcome.stderr.count("\n") == 1


def test_a_journal_error_survives_pickling():
    error = pickle.loads(pickle.dumps(JournalError("run.jsonl", 3, "notes is missing")))
    assert (str(error), error.line) == ("run.jsonl:3: notes is missing", 3)


# ---------------------------------------------------------------------------------------------------------------------
# other layouts, formats and releases


def headed(path, **changes):
    """With another first line."""
    return edited(path, 1, **changes)


def in_layout_1(path):
    """As journals were written before their first line named machine and release."""
    path.write_text(without_chain(path, {"journal": 1, "about": unsealed(path)[0]["about"]}))
    return path


def plainly_edited(path, number, **changes):
    """`edited`, of a journal without a chain."""
    lines = lines_of(path)
    lines[number - 1] = json.dumps(json.loads(lines[number - 1]) | changes).encode() + b"\n"
    path.write_bytes(b"".join(lines))
    return path


def test_a_journal_of_the_layout_before_replays(path):
    result = replay(in_layout_1(path))
    assert (result.difference, result.steps, result.fingerprints) == (None, 8, 4)
    assert result.warning == f"{path}:9: layout 1 has no integrity information: lines that are missing may go unseen"


def test_what_differs_or_cannot_be_read_in_an_older_journal_says_what_to_do(path):
    in_layout_1(path)
    hint = "; an older rankcore, which named no release, wrote this journal: replay it with that one"
    assert str(replay(plainly_edited(path, 4, fingerprint="0" * 16)).difference).endswith(hint)
    with pytest.raises(JournalError, match=rf":3: event: type must be BundleLost or .*{hint}"):
        replay(plainly_edited(path, 3, event={"type": "ReplicaVanished"}))


def test_a_journal_of_another_release_replays_as_far_as_it_agrees_and_names_that_release(path):
    headed(path, release="7.3.1")
    assert replay(path).difference is None
    difference = str(replay(edited(path, 4, fingerprint="0" * 16)).difference)
    assert difference.endswith(f"; rankcore 7.3.1 wrote this journal: replay it with that one (this is {rankcore.__version__})")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"machine": "moons"}, r"machine must be deployments or cluster, got 'moons'; rankcore 7\.3\.1 wrote this journal"),
        ({"journal": 4}, r"journal must be 1, 2 or 3, got 4: rankcore 7\.3\.1 wrote this"),
        ({"machine": None}, "the first line must be an object with 'journal', 'machine', 'release' and 'about'"),
        (
            {"machine": "fleet"},
            "this is a journal of a fleet, there are none any more .*: the build that wrote it reads it, rankcore 7.3.1",
        ),
    ],
)
def test_a_journal_that_cannot_be_run_here_is_refused_with_its_release(path, changes, complaint):
    headed(path, release="7.3.1", **changes)
    with pytest.raises(JournalError, match=f"{path}:1: {complaint}"):
        replay(path, DEPLOYMENTS)


def test_a_journal_of_another_release_is_not_gone_on_with(path):
    text = headed(path, release="7.3.1").read_bytes()
    with pytest.raises(JournalError, match=r"by the release that began it; rankcore 7\.3\.1 wrote .*, or give another file"):
        JournalWriter.resume(path)
    assert path.read_bytes() == text
