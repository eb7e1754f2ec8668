"""What another user of the machine puts where we are about to write: a link, a file, a pipe. Nothing of ours is lost by it."""

import os
import stat
from contextlib import suppress

import pytest

from executors.cli.kept_search import KeptSearch
from executors.cli.outputs import OutputError, Outputs
from executors.engine.clusters import CLUSTER
from executors.engine.journal import JournalWriter
from executors.engine.reading import JournalReader
from executors.private_folder import PlaceError
from executors.simulator.questions.cellfile import CellFile
from rankcore.testing.explore import Search
from rankcore.testing.model import Bounds, RankSystem
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


def write_cluster_journal(path):
    JournalWriter.create(path, kind=CLUSTER).close()


def write_output(path):
    with Outputs() as outputs:
        outputs.write(outputs.open("--html", path), "whole")
        outputs.keep()


def keep_cells(path):
    with CellFile(path):
        pass


WRITERS = [write_journal, resume_journal, write_cluster_journal, write_output, keep_cells]


@pytest.fixture
def precious(tmp_path):
    """A file of ours, with nothing in it: a journal could begin there."""
    path = tmp_path / "precious"
    path.touch()
    return path


@pytest.mark.parametrize("write", WRITERS)
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


@pytest.mark.parametrize("name", ["parents.bin", ".search.json.part"])
def test_an_exploration_is_not_kept_over_a_file_that_another_user_has_linked_to(shared_tmp, precious, name):
    precious.write_text("ours")
    as_another_user(os.symlink, str(precious), str(shared_tmp / name))
    with pytest.raises(PlaceError, match=f"{name} is a link that belongs to user 65534"):
        KeptSearch(shared_tmp, Search(RankSystem(Bounds(replicas=1))), fresh=True)
    assert precious.read_text() == "ours"


@pytest.mark.parametrize("write", WRITERS)
def test_a_link_in_a_folder_of_another_users_is_refused(shared_tmp, precious, write):
    his = shared_tmp / "his"
    as_another_user(make_folder_with_link, str(his), str(precious))
    with pytest.raises((PlaceError, OutputError), match=r"run\.jsonl is a link that belongs to user 65534"):
        write(his / "run.jsonl")
    assert precious.read_text() == ""


def make_folder_with_link(folder, precious):
    os.mkdir(folder, 0o755)
    os.symlink(precious, f"{folder}/run.jsonl")


@pytest.mark.parametrize("write", WRITERS)
def test_a_link_that_appears_between_two_looks_is_not_followed(shared_tmp, precious, write, monkeypatch):
    path, look, links = shared_tmp / "run.jsonl", os.lstat, [str(precious)]
    precious.write_text("ours")

    def look_then_plant(looked_at, **options):
        try:
            return look(looked_at, **options)
        finally:
            if os.fspath(looked_at) == str(path) and links:
                as_another_user(os.symlink, links.pop(), str(path))

    monkeypatch.setattr("executors.planted.os.lstat", look_then_plant)
    with suppress(OSError):
        write(path)  # an output takes the place of whatever is there
    assert not links
    assert precious.read_text() == "ours"


def test_an_output_is_not_written_through_a_link_that_another_user_has_put_in_its_place(shared_tmp, precious):
    os.chmod(shared_tmp, 0o777)
    with Outputs() as outputs:
        pending = outputs.open("--json", shared_tmp / "run.json")
        as_another_user(replace_by_link, str(pending), str(precious))
        with pytest.raises(PlaceError, match="is a link that belongs to user 65534"):
            outputs.write(pending, "figures")
    assert precious.read_text() == ""


def replace_by_link(path, target):
    os.unlink(path)
    os.symlink(target, path)


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


def test_a_link_of_our_own_that_others_could_replace_is_refused(shared_tmp, precious):
    os.chmod(shared_tmp, 0o777)
    (shared_tmp / "run.jsonl").symlink_to(precious)
    with pytest.raises(PlaceError, match="a link that others can replace"):
        write_journal(shared_tmp / "run.jsonl")


def test_a_new_journal_may_be_written_where_all_can_write(shared_tmp):
    path = shared_tmp / "run.jsonl"
    write_journal(path)
    resume_journal(path)
    assert list(JournalReader(path)) == []
    assert stat.S_ISREG(os.lstat(path).st_mode)
