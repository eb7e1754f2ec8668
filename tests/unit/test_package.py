"""What the package says of itself is true wherever it is installed."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

import rankcore
from executors.cli.app import REPOSITORY, app

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
COMMANDS = [str(command.callback.__name__).replace("_", "-") for command in app.registered_commands if command.callback]
NAMED = re.compile(r"(?:examples|docs)/[\w./-]*\w")


def test_the_version_stands_in_one_place_and_can_be_asked_for():
    assert "version" in PROJECT["dynamic"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", rankcore.__version__)
    assert CliRunner().invoke(app, ["--version"]).stdout == f"rankcore {rankcore.__version__}\n"
    assert version("rankcore") == rankcore.__version__


def test_the_package_names_its_repository_and_where_to_report_what_is_wrong():
    assert PROJECT["urls"]["Repository"] == REPOSITORY
    assert PROJECT["urls"]["Issues"] == f"{REPOSITORY}/issues"


@pytest.mark.parametrize("arguments", [["--help"], *([name, "--help"] for name in COMMANDS)], ids=" ".join)
def test_every_file_that_a_help_names_is_in_the_repository_which_it_names_too(arguments):
    text = CliRunner().invoke(app, arguments).stdout
    assert [name for name in NAMED.findall(text) if not (ROOT / name).exists()] == []
    assert REPOSITORY in text
