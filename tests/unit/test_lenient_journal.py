"""The controllers' journal: it has a limit, stops nobody, and can be replayed."""

import os
import subprocess

import pytest

from executors.engine.clusters import CLUSTER
from executors.engine.deployments import DEPLOYMENTS, Deployed
from executors.engine.journal import JournalWriter, LenientJournal, lenient_journal
from executors.engine.reading import JournalError
from executors.engine.replay import replay
from rankcore import DeploymentSpec, DeploymentStatus, step
from rankcore.events import DeleteRequested, SpecChanged

LIMIT_BYTES = 20_000


def grow(journal, names, changes):
    """Deployments without replicas, whose specs change and change."""
    states = {}
    for name in names:
        how = Deployed(spec=DeploymentSpec(name=name, target_replicas=0))
        first = how.step()
        journal.begin(how, first)
        states[name] = first.state
    for number in range(changes):
        for name in names:
            spec = DeploymentSpec(name=name, target_replicas=0, user_config={"text": "x" * 200, "number": number})
            event = SpecChanged(spec=spec, at=float(number + 1))
            result = step(states[name], event)
            journal.append(event, result)
            states[name] = result.state
    return states


def test_a_journal_with_a_limit_stays_below_twice_it_and_both_files_replay(tmp_path):
    path = tmp_path / "run.jsonl"
    with LenientJournal.resume(path, bytes_max=LIMIT_BYTES) as journal:
        states = grow(journal, ["a", "b"], 200)
        assert journal.path == str(path)
    files = sorted(each.name for each in tmp_path.iterdir())
    assert files == ["run.jsonl", "run.jsonl.1"]
    for name in files:
        assert (tmp_path / name).stat().st_size < 1.5 * LIMIT_BYTES
        assert replay(tmp_path / name).difference is None
    assert replay(path).states == states


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
    assert (replayed.difference, replayed.warning) == (None, None)  # whole lines to the end
    assert replayed.steps > 20
    with LenientJournal.resume(path) as journal:  # the next controller finds it full, and lives too
        grow(journal, ["a"], 3)
        assert journal.broken
    assert replay(path).difference is None


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
    older = path.read_bytes().replace(b'"release":"', b'"release":"7.')
    path.write_bytes(older)
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
