"""The controllers' journal: it has a limit, stops nobody, and can be replayed."""

import contextlib
import errno
import json
import os
import re
import subprocess

import pytest

from executors.engine import journal as journals
from executors.engine.clusters import CLUSTER
from executors.engine.deployments import DEPLOYMENTS, Deployed
from executors.engine.journal import JournalWriter, LenientJournal, lenient_journal
from executors.engine.reading import NO_END, JournalError
from executors.engine.replay import replay
from rankcore import DeploymentSpec, DeploymentStatus, step
from rankcore.events import DeleteRequested, SpecChanged
from tests.journals import changed

LIMIT_BYTES = 20_000


def grow(journal, names, changes):
    """Deployments without replicas, whose specs change and change."""
    states = {}
    for name in names:
        how = Deployed(spec=DeploymentSpec(name=name, target_replicas=0))
        first = how.step()
        journal.begin(how, first)
        states[name] = first.state
    change(journal, states, range(changes))
    return states


def change(journal, states, numbers):
    for number in numbers:
        for name in states:
            spec = DeploymentSpec(name=name, target_replicas=0, user_config={"text": "x" * 200, "number": number})
            event = SpecChanged(spec=spec, at=float(number + 1))
            result = step(states[name], event)
            journal.append(event, result)
            states[name] = result.state


def test_a_journal_with_a_limit_stays_below_twice_it_and_both_files_replay(tmp_path):
    path = tmp_path / "run.jsonl"
    with LenientJournal.resume(path, bytes_max=LIMIT_BYTES, about={"run": "a1"}) as journal:
        states = grow(journal, ["a", "b"], 200)
        assert journal.path == str(path)
    files = sorted(each.name for each in tmp_path.iterdir())
    assert files == ["run.jsonl", "run.jsonl.1"]
    for name in files:
        assert (tmp_path / name).stat().st_size < 1.5 * LIMIT_BYTES
        found = replay(tmp_path / name)
        assert (found.difference, found.about) == (None, {"run": "a1"})
    assert replay(path).states == states
    with LenientJournal.resume(path, bytes_max=LIMIT_BYTES, about={"run": "b2"}) as journal:
        grow(journal, ["c"], 200)
    for name in files:
        assert replay(tmp_path / name).about == {"run": "a1"}, "who goes on with a journal goes on with its run"


def test_a_journal_without_a_limit_is_one_file(tmp_path):
    path = tmp_path / "run.jsonl"
    with LenientJournal.resume(path) as journal:
        states = grow(journal, ["a"], 200)
    assert [each.name for each in tmp_path.iterdir()] == ["run.jsonl"]
    assert replay(path).states == states


def test_what_is_deleted_is_not_carried_over(tmp_path):
    path = tmp_path / "run.jsonl"
    with LenientJournal.resume(path, bytes_max=LIMIT_BYTES) as journal:
        event = DeleteRequested(at=9.0)
        result = step(grow(journal, ["gone"], 1)["gone"], event)
        assert result.state.status is DeploymentStatus.DELETED
        journal.append(event, result)
        grow(journal, ["here"], 200)
    assert sorted(replay(path).states) == ["here"]


def test_a_journal_that_cannot_go_on_ends_and_says_so(tmp_path, caplog):
    path = tmp_path / "run.jsonl"
    with LenientJournal.resume(path, bytes_max=LIMIT_BYTES) as journal:
        (tmp_path / "run.jsonl.1").mkdir()
        (tmp_path / "run.jsonl.1" / "in the way").touch()
        grow(journal, ["a"], 200)
        assert journal.broken
    assert f"the journal {path} ends here" in caplog.text
    assert replay(path).difference is None


def test_a_journal_whose_next_file_another_process_has_taken_ends_and_nothing_else(tmp_path, monkeypatch, caplog):
    path, others = tmp_path / "run.jsonl", []
    replace = os.replace

    def replace_and_lose_it(*names):
        replace(*names)
        others.append(JournalWriter.create(path))

    monkeypatch.setattr("executors.engine.journal.os.replace", replace_and_lose_it)
    with LenientJournal.resume(path, bytes_max=LIMIT_BYTES) as journal:
        states = grow(journal, ["a"], 200)
        assert journal.broken
    assert f"the journal {path} ends here" in caplog.text
    assert states["a"].spec.user_config["number"] == 199
    (other,) = others
    other.close()


@pytest.mark.parametrize("begin", [JournalWriter.create, JournalWriter.resume, LenientJournal.resume])
def test_a_pipe_is_no_journal_and_the_error_names_it(tmp_path, begin):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(JournalError, match="pipe:1: a journal is a regular file, and this is a pipe or a terminal"):
        begin(tmp_path / "pipe")


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of 64 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("only who may mount a file system can have one that is full")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_ends_the_journal_and_nothing_else(tiny_disk, caplog):
    path = tiny_disk / "run.jsonl"
    with LenientJournal.resume(path) as journal:
        states = grow(journal, ["a"], 300)
        assert journal.broken
    assert f"the journal {path} ends here, since it cannot be written: No space left on device" in caplog.text
    assert states["a"].spec.user_config["number"] == 299
    replayed = replay(path)
    assert (replayed.difference, replayed.warning) == (None, f"{path}:{replayed.steps + 1}: {NO_END}")  # whole lines to the end
    assert replayed.steps > 20
    with LenientJournal.resume(path) as journal:  # the next controller finds it full, and lives too
        grow(journal, ["a"], 3)
        assert journal.broken
    assert replay(path).difference is None


@pytest.fixture
def disk_that_fills(tmp_path):
    """A file system of 512 KiB, and a file on it that takes what is left."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("only who may mount a file system can have one that is full")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk):
    with open(disk / "ballast", "ab", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 512):
            pass


@pytest.mark.parametrize("bytes_max", [None, LIMIT_BYTES])
def test_a_journal_whose_disk_was_full_is_taken_up_again_and_replays_on_both_sides_of_the_gap(
    disk_that_fills, monkeypatch, caplog, bytes_max
):
    monkeypatch.setattr(journals, "AGAIN_S", 0.0)
    path = disk_that_fills / "run.jsonl"
    with LenientJournal.resume(path, bytes_max=bytes_max) as journal:
        states = grow(journal, ["a", "b"], 10)
        fill(disk_that_fills)
        change(journal, states, range(10, 20 if bytes_max is None else 200))
        assert journal.broken
        assert f"{path} cannot be written: No space left on device; it is taken up again" in journal.problem
        assert replay(path if path.stat().st_size else f"{path}.1").difference is None
        (disk_that_fills / "ballast").unlink()
        change(journal, states, range(200, 203))
        assert (journal.broken, journal.problem) == (False, None)
    replayed = replay(path)
    assert (replayed.difference, replayed.states) == (None, states)
    warnings = [str(replay(each).warning) for each in disk_that_fills.glob("run.jsonl*")]  # a full file becomes the older one
    assert re.search(r"before this line \d+ steps were not written: No space left on device", " ".join(warnings))
    assert caplog.text.count("ends here") == 1, "it is said once, however often it is tried again"
    assert f"the journal {path} is written again" in caplog.text


def test_a_controller_that_starts_on_a_full_disk_writes_a_journal_once_there_is_room(disk_that_fills, tmp_path, monkeypatch):
    monkeypatch.setattr(journals, "AGAIN_S", 0.0)
    path = disk_that_fills / "run.jsonl"
    fill(disk_that_fills)
    with pytest.raises(OSError, match="No space left"):
        LenientJournal.resume(path)
    with lenient_journal(path) as journal:
        assert "No space left on device; it is taken up again" in journal.problem
        states = grow(journal, ["a"], 5)
        (disk_that_fills / "ballast").unlink()
        change(journal, states, range(5, 8))
        assert journal.problem is None
    replayed = replay(path)
    assert (replayed.difference, replayed.states) == (None, states)
    assert "before this line 7 steps were not written" in replayed.warning


def test_the_gap_says_how_many_steps_are_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(journals, "AGAIN_S", 0.0)
    path = tmp_path / "run.jsonl"
    with LenientJournal.resume(path) as journal:
        states = grow(journal, ["a"], 5)
        with monkeypatch.context() as full:
            full.setattr(journals, "write_whole_line", no_room)
            change(journal, states, range(5, 12))
        change(journal, states, range(12, 15))
    replayed = replay(path)
    assert (replayed.difference, replayed.states, replayed.steps) == (None, states, 9)
    assert replayed.warning == f"{path}:8: before this line 8 steps were not written: No space left on device"


def test_where_there_is_still_no_room_nothing_is_written_in_vain(tmp_path, monkeypatch):
    monkeypatch.setattr(journals, "AGAIN_S", 0.0)
    written = []
    with LenientJournal.resume(tmp_path / "run.jsonl") as journal:
        states = grow(journal, ["a"], 5)
        monkeypatch.setattr(journals, "write_whole_line", no_room)
        change(journal, states, range(5, 6))
        monkeypatch.setattr(journals, "write_whole_line", lambda *_: written.append(1))
        monkeypatch.setattr(journals, "ROOM_BYTES", 1 << 60)
        change(journal, states, range(6, 12))
        assert (journal.broken, written) == (True, [])


def test_it_is_not_tried_again_at_every_step(tmp_path, monkeypatch):
    tries = []
    monkeypatch.setattr(LenientJournal, "_take_up_again", lambda _: tries.append(1))
    with LenientJournal.resume(tmp_path / "run.jsonl") as journal:
        states = grow(journal, ["a"], 5)
        monkeypatch.setattr(journals, "write_whole_line", no_room)
        change(journal, states, range(5, 50))
    assert tries == []


@pytest.mark.parametrize("becomes", [None, "elsewhere.jsonl"])
def test_a_journal_that_was_removed_to_make_room_is_begun_anew_at_its_path(tmp_path, monkeypatch, becomes):
    monkeypatch.setattr(journals, "AGAIN_S", 0.0)
    path = tmp_path / "run.jsonl"
    with LenientJournal.resume(path) as journal:
        states = grow(journal, ["a"], 5)
        with monkeypatch.context() as full:
            full.setattr(journals, "write_whole_line", no_room)
            change(journal, states, range(5, 12))
        if becomes is None:
            path.unlink()
        else:
            path.rename(tmp_path / becomes)
        change(journal, states, range(12, 15))
        assert journal.path == str(path)
    replayed = replay(path)
    assert (replayed.difference, replayed.states) == (None, states)
    assert replayed.warning == f"{path}:2: before this line 8 steps were not written: No space left on device"


def test_the_room_of_a_journal_that_was_removed_is_given_back(disk_that_fills, monkeypatch):
    monkeypatch.setattr(journals, "AGAIN_S", 0.0)
    path = disk_that_fills / "run.jsonl"
    with LenientJournal.resume(path) as journal:
        states = grow(journal, ["a"], 5)
        while not journal.broken:
            change(journal, states, range(5, 50))
        path.unlink()
        change(journal, states, range(50, 53))
        assert journal.problem is None
    assert replay(path).states == states


def test_what_ended_in_the_gap_is_not_taken_up(tmp_path, monkeypatch):
    monkeypatch.setattr(journals, "AGAIN_S", 0.0)
    path = tmp_path / "run.jsonl"
    with LenientJournal.resume(path) as journal:
        states = grow(journal, ["gone", "here"], 2)
        with monkeypatch.context() as full:
            full.setattr(journals, "write_whole_line", no_room)
            event = DeleteRequested(at=9.0)
            journal.append(event, step(states.pop("gone"), event))
        change(journal, states, range(20, 22))
    assert [line["deployment"] for line in map(json.loads, path.read_text().splitlines()) if "gap" in line] == ["here"]


@pytest.mark.parametrize("gap", ['"x"', "{}", '{"steps":true,"why":"x"}', '{"steps":1,"why":2}'])
def test_a_gap_that_was_damaged_is_refused(tmp_path, gap):
    path = tmp_path / "run.jsonl"
    with JournalWriter.create(path) as journal:
        grow(journal, ["a"], 2)
    changed(path, '"began":', f'"gap":{gap},"began":')
    with pytest.raises(JournalError, match=r"run.jsonl:2: gap must"):
        replay(path)


def no_room(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("begin", [JournalWriter.create, JournalWriter.resume, LenientJournal.resume])
def test_a_journal_that_is_written_is_left_alone_by_all_others(tmp_path, begin):
    path = tmp_path / "run.jsonl"
    with JournalWriter.create(path) as journal:
        grow(journal, ["a"], 3)
        before = path.read_bytes()
        with pytest.raises(JournalError, match=f"{path}:1: another process writes this journal"):
            begin(path)
        assert path.read_bytes() == before
    begin(path).close()


def test_a_journal_of_another_machine_is_left_alone(tmp_path):
    path = tmp_path / "run.jsonl"
    JournalWriter.create(path, kind=CLUSTER).close()
    before = path.read_bytes()
    with pytest.raises(JournalError, match="this is a journal of a cluster, where one of deployments is needed"):
        LenientJournal.resume(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("kind", [DEPLOYMENTS, CLUSTER], ids=lambda kind: kind.name)
def test_a_journal_that_another_release_began_is_put_aside_whole(tmp_path, caplog, kind):
    path = tmp_path / "run.jsonl"
    with JournalWriter.create(path, kind=kind) as journal:
        if kind is DEPLOYMENTS:
            grow(journal, ["a"], 3)
    older = changed(path, '"release":"', '"release":"7.').read_bytes()
    with LenientJournal.resume(path) as journal:
        states = grow(journal, ["a"], 5)
    assert (tmp_path / "run.jsonl.1").read_bytes() == older
    assert replay(path).states == states
    assert "rankcore 7." in caplog.text


def test_a_journal_of_a_fleet_is_put_aside_for_who_reads_it(tmp_path, caplog):
    path = tmp_path / "run.jsonl"
    older = '{"journal":2,"machine":"fleet","release":"0.1.0","about":{}}\n'
    path.write_text(older)
    with LenientJournal.resume(path) as journal:
        states = grow(journal, ["a"], 5)
    assert (tmp_path / "run.jsonl.1").read_text() == older
    assert replay(path).states == states
    assert "the build that wrote it reads it, rankcore 0.1.0" in caplog.text


def test_a_journal_that_cannot_be_opened_is_none_and_the_log_says_why(tmp_path, caplog):
    path = tmp_path / "notes.txt"
    path.write_text("buy milk")
    assert lenient_journal(path) is None
    assert lenient_journal(tmp_path) is None
    assert f"there is no journal: {path}:1: not a line of a journal" in caplog.text
