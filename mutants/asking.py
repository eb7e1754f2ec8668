"""One layer against one copy of the tree, in a process of its own that has everything but the core loaded already."""

import contextlib
import importlib
import os
import resource
import runpy
import signal
import sys
import tempfile
from enum import StrEnum
from pathlib import Path

import attrs

from mutants.layers import Layer

LOADED_BEFORE = ("pytest", "hypothesis.stateful", "attrs", "msgspec", "immutables", "transitions", "typer", "rich.progress")
"""What every layer needs and no bug is planted in: loaded once, and inherited."""
MEMORY_MAX_BYTES = 4 << 30
HONEST_SHARE = 2
"""Layers do the same each time, but not in the same CPU time: without a mutant they are followed twice as far."""
ELSEWHERE = 70
"""Exit status of a process that has loaded the core from anywhere but its copy."""


class Outcome(StrEnum):
    """What a layer says of a mutant."""

    CAUGHT = "caught"
    SURVIVED = "survived"
    OUT_OF_TIME = "not caught within the budget"
    NOT_RUN = "could not be run"


@attrs.frozen
class Answer:
    """What came of it.

    Attributes:
        outcome: What the layer says.
        by: Which test, or system, failed first; empty: none did, or it is not known.
        cpu_s: CPU time that it took, in seconds.
        output: The end of what it wrote.
    """

    outcome: Outcome
    by: str
    cpu_s: float
    output: str = ""


def load_what_layers_share() -> None:
    """Load it into this process, from which all others are forked. One that is not installed is done without."""
    for name in LOADED_BEFORE:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


class Asked:
    """A layer that is being run in a copy."""

    def __init__(self, layer: Layer, tree: Path, *, honest: bool, only: str = "") -> None:
        """Start it.

        Args:
            layer: What is run.
            tree: The copy, at whose top it is run.
            honest: Whether the copy has no bug: then compiled files are kept, and the budget is twice as large.
            only: This test of the layer alone; "": all of it.
        """
        self.layer, self.only = layer, only
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 -- open for as long as the process runs
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if not self._pid:
            _run_and_exit(layer, tree, self._output.fileno(), honest, only)

    def answer(self) -> Answer | None:
        """What came of it; None: it is still at it."""
        pid, status, usage = os.wait4(self._pid, os.WNOHANG)
        if not pid:
            return None
        self._pid = 0
        self._output.seek(0)
        text = self._output.read().decode(errors="replace")
        self._output.close()
        outcome = self._outcome(status)
        cpu_s = usage.ru_utime + usage.ru_stime
        return Answer(outcome, self._first_failure(text) if outcome is Outcome.CAUGHT else "", cpu_s, text[-4000:])

    def stop(self) -> None:
        """End it, if it is still at it."""
        if self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0
            self._output.close()

    def _outcome(self, status: int) -> Outcome:
        if os.WIFSIGNALED(status):
            return Outcome.OUT_OF_TIME if os.WTERMSIG(status) == signal.SIGXCPU else Outcome.NOT_RUN
        code = os.WEXITSTATUS(status)
        if code == 0:
            return Outcome.SURVIVED
        return Outcome.CAUGHT if code in self.layer.caught else Outcome.NOT_RUN

    def _first_failure(self, text: str) -> str:
        found = self.layer.found_by.search(text)
        return next((group for group in found.groups() if group), "") if found is not None else ""


def _run_and_exit(layer: Layer, tree: Path, output: int, honest: bool, only: str) -> None:
    """What the forked process does. It never returns."""
    code = ELSEWHERE
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for stream in (1, 2):
            os.dup2(output, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
        budget_s = layer.budget_s * HONEST_SHARE if honest else layer.budget_s
        resource.setrlimit(resource.RLIMIT_CPU, (budget_s, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX_BYTES, MEMORY_MAX_BYTES))
        os.chdir(tree)
        sys.path.insert(0, str(tree))
        sys.dont_write_bytecode = not honest
        os.environ.update(
            PYTHONPATH=str(tree),
            PYTHONDONTWRITEBYTECODE="" if honest else "1",
            HYPOTHESIS_PROFILE="mutants",
            PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",
            NO_COLOR="1",
            COLUMNS="200",
        )
        assert "rankcore" not in sys.modules, "the core is loaded before it is known which one"
        sys.argv = list(layer.again(only) if only and layer.again else layer.command)
        try:
            runpy.run_module(layer.command[0], run_name="__main__", alter_sys=True)
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        core = sys.modules.get("rankcore")
        if core is not None and tree not in Path(core.__file__ or "").parents:
            code = ELSEWHERE
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
