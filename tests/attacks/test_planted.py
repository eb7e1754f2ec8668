"""What another user of the machine puts where we are about to write: a link, a file, a pipe. Nothing of ours is lost by it."""

import os
import stat

import pytest

from executors.cli.outputs import OutputError, Outputs
from executors.fleet.journal import FleetJournal
from executors.journal import JournalReader, JournalWriter
from executors.private_folder import PlaceError
from tests.second_user import NEEDS_ROOT, as_another_user

pytestmark = NEEDS_ROOT
PLANTED = {
    "link": lambda path, precious: os.symlink(precious, path),
    "link to nothing": lambda path, precious: os.symlink(f"{precious}.new", path),
    "file": lambda path, precious: os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o666)),
    "pipe": lambda path, precious: os.mkfifo(path, 0o666),
}


def write_journal(path):
    JournalWriter.create(path).close()


def resume_journal(path):
    JournalWriter.resume(path).close()


def write_fleet_journal(path):
    FleetJournal.create(path).close()


def write_output(path):
    with Outputs() as outputs:
        outputs.open("--html", path).write_text("whole")
        outputs.keep()


@pytest.fixture
def precious(tmp_path):
    """A file of ours, with nothing in it: a journal could begin there."""
    path = tmp_path / "precious"
    path.touch()
    return path


@pytest.mark.parametrize("write", [write_journal, resume_journal, write_fleet_journal, write_output])
@pytest.mark.parametrize("planted", PLANTED)
@pytest.mark.parametrize("mode", [0o1777, 0o777])
def test_what_another_user_has_planted_is_refused_and_left_alone(shared_tmp, precious, write, planted, mode):
    os.chmod(shared_tmp, mode)
    path = shared_tmp / "run.jsonl"
    as_another_user(PLANTED[planted], str(path), str(precious))
    with pytest.raises((PlaceError, OutputError), match=r"run\.jsonl"):
        write(path)
    assert precious.read_text() == ""
    assert not precious.with_name("precious.new").exists()
    assert os.lstat(path).st_uid != 0


def test_a_second_name_of_a_file_of_ours_is_not_written_to(shared_tmp, precious):
    path = shared_tmp / "run.jsonl"
    with open("/proc/sys/fs/protected_hardlinks") as file:
        protected = file.read().strip() != "0"
    if protected:  # the system lets only us make it
        os.link(precious, path)
    else:
        as_another_user(os.link, str(precious), str(path))
    with pytest.raises(PlaceError, match="a file that has another name too"):
        write_journal(path)


def test_links_of_our_own_and_those_in_folders_of_ours_are_followed(shared_tmp, precious, tmp_path):
    for path in (shared_tmp / "run.jsonl", tmp_path / "run.jsonl"):
        precious.write_text("")
        path.symlink_to(precious)
        write_journal(path)
        assert list(JournalReader(precious)) == []
        resume_journal(path)
        assert path.is_symlink()


def test_a_new_journal_may_be_written_where_all_can_write(shared_tmp):
    path = shared_tmp / "run.jsonl"
    write_journal(path)
    resume_journal(path)
    assert list(JournalReader(path)) == []
    assert stat.S_ISREG(os.lstat(path).st_mode)
