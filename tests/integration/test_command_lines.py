"""What all commands have in common: help with an example, one line for what is wrong, completion."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from executors.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = [str(command.name) for command in app.registered_commands]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_teaches_with_an_example_and_says_how_it_ends(command):
    done = CliRunner().invoke(app, [command, "--help"])
    assert done.exit_code == 0
    assert f"\n    rankcore {command}" in done.stdout or f"\n  rankcore {command}" in done.stdout
    assert "Exit status: 0" in " ".join(done.stdout.split())
    for trace in ("[bold", "[/", "[dim", "\\b", "\x08"):
        assert trace not in done.stdout


def test_help_says_which_commands_there_are():
    done = CliRunner().invoke(app, ["--help"])
    for command in COMMANDS:
        assert f"  {command} " in done.stdout


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("simulate", "x", "--seed", "-1"), "invalid value for '--seed'"),
        (("simulate", "x", "--seed", "one"), "invalid value for '--seed'"),
        (("compare", "a", "b", "--runs"), "'--runs' requires an argument"),
        (("simulate", "x", "-z"), "no such option: -z"),
        (("scale", "x", "-1"), "invalid value for 'N': expected a whole number from 0 to 10,000,000, found '-1'"),
        (("scale", "x", "2.5"), "invalid value for 'N': expected a whole number from 0 to 10,000,000, found '2.5'"),
        (("scale", "x", "10000001"), "found '10000001'"),
        (("scale", "x", "2", "--now"), "--now"),
        (("simulat",), "no such command 'simulat'"),
        (("replay",), "missing argument"),
        (("replay", "a", "b"), "unexpected extra argument"),
        (("sweep", "x", "--on", "moon"), "invalid value for '--on': 'moon' is not one of 'processes', 'ray'"),
    ],
)
def test_a_wrong_command_line_is_one_line_that_says_where_its_help_is(arguments, problem):
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("rankcore: error: ")
    assert problem in done.stderr
    assert done.stderr.endswith(" --help)\n")
    assert done.stderr.count("\n") == 1


def test_ctrl_c_is_told_before_a_command_has_imported_what_it_needs(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("executors.cli.verbs.status", interrupted)
    done = CliRunner().invoke(app, ["status"])
    assert (done.exit_code, done.stdout, done.stderr) == (130, "", "rankcore: interrupted\n")


def complete(shell: str, *words: str) -> list[str]:
    arguments = {"COMP_WORDS": " ".join(("rankcore", *words)), "COMP_CWORD": str(len(words))}
    env = {**os.environ, "PYTHONPATH": str(ROOT), "_RANKCORE_COMPLETE": f"complete_{shell}", **arguments}
    done = subprocess.run([sys.executable, "-m", "executors.cli"], env=env, capture_output=True, text=True, timeout=600)
    return done.stdout.split()


def test_shells_complete_commands_and_options():
    assert {"simulate", "sweep"} <= set(complete("bash", "s"))
    assert "--runs" in complete("bash", "compare", "--r")
    assert complete("bash", "sweep", "--on", "") == ["processes", "ray"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_can_be_shown(shell):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    command = [sys.executable, "-m", "executors.cli", "--show-completion", shell]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "rankcore" in done.stdout
