"""`rankcore simulate --from`: make a recorded run again up to a moment, let something else happen, and compare."""

import json
import shlex
from collections.abc import Callable
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import attrs
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from executors.cli.bars import bytes_bar
from executors.cli.fork_kinds import DEPLOYMENTS, RESIDENCY, Forked, Kind, with_faults
from executors.cli.moments import began_of, seconds_of
from executors.cli.outputs import Outputs
from executors.cli.problems import Refusal, told_in_one_line, warn
from executors.cli.run_bar import RunBar
from executors.cli.simulate_asked import SimulateAsked
from executors.simulator.faults.words import FaultWordsError
from executors.simulator.from_journal.going_on import go_on
from executors.simulator.from_journal.history import read_history
from executors.simulator.questions.settings import parse_setting
from executors.simulator.record.recording import Fork, is_own, read_recording
from executors.simulator.residency.run import ResidencyResult, ResidencyRun
from executors.simulator.run import Run, RunResult
from executors.simulator.times import moment


@attrs.frozen
class Original:
    """A run that has come to the moment of the fork.

    Attributes:
        finish: Called when it has come to its end.
        about: What goes into the first line of the fork's journal.
        basis, said: As in `Forked`.
    """

    run: Run | ResidencyRun
    finish: Callable[[], None]
    about: dict[str, Any]
    basis: str
    said: tuple[str, ...]


def run(asked: SimulateAsked) -> None:
    """What `rankcore simulate --from` does, errors and exit status included."""
    recorded, outputs = asked.recorded, Outputs()
    assert recorded is not None, "--from is given"
    with told_in_one_line(outputs.interrupted), outputs:
        if asked.scenario is not None:
            raise Refusal("--from: expected no scenario with it: the journal says what was run")
        if asked.at is None or not asked.faults:
            raise Refusal("--from: expected --at TIME and --fault WORDS with it, such as --at 120s --fault 'node n2 lost'")
        fork = Fork(seconds_of("--at", asked.at, began_of(recorded, asked.traces)), tuple(asked.faults))
        files = asked.open_files(outputs, f"{recorded.stem}.fork", (recorded,))
        seed = () if asked.seed is None else (("--seed", str(asked.seed)),)
        given = (*seed, *(("--set", text) for text in asked.settings), *(("--fault", text) for text in asked.faults))
        rerun = shlex.join(["rankcore", "simulate", "--from", str(recorded), "--at", asked.at, *chain(*given)])
        kind = RESIDENCY if is_own(recorded) and read_recording(recorded, asked.traces).has_residency else DEPLOYMENTS
        _check(kind, fork)
        with ExitStack() as stack:
            if is_own(recorded) or kind is RESIDENCY:
                if asked.seed is not None or asked.settings:
                    raise Refusal("--from: expected no --seed or --set with it: the journal says what was run")
                original = _repeated(kind, recorded, asked.traces, fork, stack)
            else:
                original = _gone_on(recorded, fork, asked)
            found = _fork(kind, original, fork, files.journal_part, asked.quiet)
        figures = json.dumps(_as_json(kind, found, fork, rerun), indent=2, allow_nan=False) + "\n"
        files.keep(figures, lambda: kind.page(found, fork, rerun))
        asked.answer(figures, files, rerun, lambda console: _print(console, kind, found, fork))
        files.tell_of_page(kind.failure(found.forked))
    kind.end_with(found.forked)


def _repeated(kind: Kind, path: Path, traces: Path | None, fork: Fork, stack: ExitStack) -> Original:
    """A run of the simulator is made again from its beginning, and compared with its journal to the end."""
    recording = read_recording(path, traces)
    begun = recording.forks[-1].at if recording.forks else 0.0
    if fork.at < begun:
        raise Refusal(
            f"--at: expected a time from {moment(begun, None)} on, when the recorded fork began, found {moment(fork.at, None)}"
        )
    original = stack.enter_context(kind.repeat(path, recording))
    original.run.until(fork.at)
    if original.run.is_over and original.run.now < fork.at:
        end = f"{moment(original.run.now, None)}, when the recorded run ends"
        raise Refusal(f"--at: expected at most {end}, found {moment(fork.at, None)}")
    about = attrs.evolve(recording, forks=(*recording.forks, fork)).about()
    same = f"the same up to {moment(fork.at)}, checked line by line"
    if original.lines.cut_off:
        same = f"made again up to {moment(fork.at)}, and the same as far as the journal goes, which was cut off before"
    return Original(original.run, original.lines.finish, about, "as recorded", (same,))


def _gone_on(path: Path, fork: Fork, asked: SimulateAsked) -> Original:
    """What another executor recorded goes on in a simulated world that is made of what the journal says."""
    chosen = tuple(parse_setting("--set", text) for text in asked.settings)
    seed = asked.seed or 0
    with bytes_bar("reading", path.stat().st_size, asked.quiet) as bar:
        history = read_history(path, fork.at, bar.show)
    if history.warning is not None:
        warn(history.warning)
    going_on = go_on(path, history, fork.at, seed, chosen)
    same = f"as recorded up to {moment(fork.at)} of {moment(history.ends_at)}, from there on simulated"
    about = {"executor": "simulator, going on from a journal", "journal": str(path), "at": fork.at, "seed": seed}
    assumed = (f"not in the journal: {text}" for text in going_on.assumed)
    return Original(going_on.run, _nothing, about, "simulated on", (same, *assumed))


def _nothing() -> None:
    """There is nothing to compare with."""


def _check(kind: Kind, fork: Fork) -> None:
    """What says nothing is told before anything runs."""
    try:
        for text in fork.faults:
            kind.parse(text, fork.at)
    except FaultWordsError as error:
        raise Refusal(f"--fault {error}") from None


def _fork(kind: Kind, original: Original, fork: Fork, journal: Path | None, quiet: bool) -> Forked:
    with ExitStack() as stack:
        writer = None if journal is None else stack.enter_context(kind.journal(journal, original.about))
        other: Run | ResidencyRun = original.run.fork(writer)
        try:
            for text in fork.faults:
                kind.inject(other, text, fork.at)
        except FaultWordsError as error:
            raise Refusal(f"--fault {error}") from None
        forked = _go(other, "with the fault", quiet)
        without = _go(original.run, original.basis, quiet)
        original.finish()
    return Forked(original.basis, without, forked, original.said)


def _go(run: Run | ResidencyRun, what: str, quiet: bool) -> RunResult | ResidencyResult:
    with RunBar(what, quiet) as bar:
        return run.go(bar.show)


def _as_json(kind: Kind, found: Forked, fork: Fork, rerun: str) -> dict[str, Any]:
    original, forked = (kind.as_json(result, rerun) for result in (found.original, found.forked))
    for result in (original, forked):
        del result["rerun"]
    about = {"at": fork.at, "faults": list(fork.faults), "basis": found.basis, "said": list(found.said)}
    return {"rerun": rerun, **about, "recorded": original, "forked": forked}


def _print(console: Console, kind: Kind, found: Forked, fork: Fork) -> None:
    console.print(Text(found.forked.scenario, style="bold"))
    same, *others = found.said
    console.print(Text(f"{same}; then: {'; '.join(fork.faults)}"), soft_wrap=True)
    for text in others:
        console.print(Text(text, style="dim"), soft_wrap=True)
    for pair in kind.pairs(found.original, found.forked):
        table = Table(title=Text(pair.name), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("of the whole run", style="dim", no_wrap=True)
        table.add_column(found.basis)
        table.add_column(with_faults(fork))
        for label, (was, now) in pair.lines:
            table.add_row(Text(label), Text(was), Text(now, style="bold" if was != now else ""))
        console.print(table)
