"""Other code called `executors` that ours hides is found; another checkout of rankcore is not other code."""

import sys
from pathlib import Path

import pytest

from executors import shadowing


def folder(place: Path, *files: str) -> Path:
    made = place / "executors"
    made.mkdir()
    for each in ("__init__.py", *files):
        (made / each).touch()
    return made


@pytest.fixture
def first(tmp_path, monkeypatch):
    """A folder that modules are looked for in, before all others."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


def test_other_code_that_cannot_be_imported_is_found_and_named(first):
    found = folder(first, "pool.py")
    assert shadowing.hidden() == found
    assert shadowing.warning_of(found) == (
        f"{found} is hidden by rankcore's package of the same name ({shadowing.OURS}): give it another name"
    )


@pytest.mark.parametrize("file", ["shadowing.py", "driver.py"])
def test_another_checkout_of_rankcore_is_no_other_code(first, file):
    """Of this release, and of those that had no such file."""
    folder(first, file)
    assert shadowing.hidden() is None


def test_what_tells_rankcore_s_folder_is_in_it():
    assert (shadowing.OURS / shadowing.OF_RANKCORE[0]).is_file()
