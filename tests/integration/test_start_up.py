"""What a command imports before it knows that it is needed. Modules are looked at, not times: those are noise."""

import subprocess
import sys

import pytest

HEAVY = ("attrs", "cattrs", "executors.simulator", "msgspec", "rankcore", "rich", "scipy", "yaml")
LOOK = """
import sys
from executors.cli.app import app
try:
    app(sys.argv[1:], prog_name="rankcore")
except SystemExit as ended:
    assert ended.code in (None, 0), ended.code
print("\\nLOADED", *sys.modules)
"""


def _loaded(*arguments: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", LOOK, *arguments], capture_output=True, text=True, check=True)
    return set(done.stdout.rpartition("LOADED ")[2].split())


def _commands() -> list[str]:
    from executors.cli.app import app

    return [str(command.name or command.callback.__name__) for command in app.registered_commands if command.callback]


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], *([name, "--help"] for name in _commands())])
def test_help_imports_nothing_that_only_the_work_needs(arguments):
    loaded = _loaded(*arguments)
    known = {"rankcore", "rankcore.homes"} if arguments == ["--version"] else set()  # of which only the package is loaded
    assert [name for name in HEAVY if name in loaded and name not in known] == []
    assert not any(name.startswith("rankcore.") and name not in known for name in loaded)


def test_what_is_looked_for_is_loaded_by_the_work_itself():
    """Else the test above would look for names that nobody has."""
    code = "import sys, executors.cli.bars, executors.cli.simulate; print('LOADED', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert [name for name in HEAVY if name not in loaded] == ["scipy"]
