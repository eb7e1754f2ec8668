"""Run a journal again through the core, and find the first line where it does something else than it did then."""

import math
import os
from collections.abc import Callable

import attrs

import rankcore
from executors.journal import Deployed, Entry, JournalError, JournalReader, Recovered, Resumed, located
from rankcore import DeploymentState, Step
from rankcore.codec import fingerprint, to_json
from rankcore.errors import RankcoreError

PROGRESS_EVERY = 256


@attrs.frozen(kw_only=True)
class Difference:
    """The first line of a journal that the core answers differently now.

    Attributes:
        path: Of the journal.
        line: Its number in the file, from 1.
        what: Which part of the answer differs, such as `commands[2]`.
        expected: What the journal has, as text.
        found: What the core did now, as text.
    """

    path: str
    line: int
    what: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what} differs: expected {self.expected}, found {self.found}"


@attrs.frozen(kw_only=True)
class ReplayResult:
    """How far a journal and the core agree.

    Attributes:
        states: The last state of each deployment, up to the difference.
        steps: Lines that were run and agreed.
        fingerprints: How many of these had a fingerprint that was compared.
        warning: What was left out of the journal; None: nothing.
        difference: The first line that differs; None: all agree.
    """

    states: dict[str, DeploymentState]
    steps: int
    fingerprints: int
    warning: str | None
    difference: Difference | None


Look = Callable[[Entry, DeploymentState | None, Step], None]
"""Shown each line that agrees, the state that it found (None: the deployment had not begun) and what came of it."""


def replay(
    path: str | os.PathLike[str],
    *,
    until: float = math.inf,
    look: Look | None = None,
    progress: Callable[[int], None] | None = None,
) -> ReplayResult:
    """Run a journal again, up to its end or the first line that differs.

    Args:
        path: The journal.
        until: Go no further than the first line that is about a later time.
        look: Is shown each line that agrees.
        progress: Told now and then how many bytes have been read.

    Raises:
        JournalError: The file is not a journal, or a line before the last is broken.
        OSError: It cannot be read.
    """
    reader = JournalReader(path)
    states: dict[str, DeploymentState] = {}
    steps = fingerprints = 0
    difference = None
    for entry in reader:
        if entry.at > until:
            break
        with located(reader.path, entry.line):
            outcome = _run(reader.path, entry, states)
            difference = outcome if isinstance(outcome, Difference) else _compare(reader.path, entry, outcome)
            if difference is not None:
                break
            assert not isinstance(outcome, Difference)
            if look is not None:
                look(entry, states.get(entry.deployment), outcome)
        states[entry.deployment] = outcome.state
        steps += 1
        fingerprints += entry.fingerprint is not None
        if progress is not None and steps % PROGRESS_EVERY == 0:
            progress(reader.position)
    return ReplayResult(states=states, steps=steps, fingerprints=fingerprints, warning=reader.warning, difference=difference)


def _run(path: str, entry: Entry, states: dict[str, DeploymentState]) -> Step | Difference:
    cause = entry.cause
    if not isinstance(cause, (Deployed, Recovered, Resumed)) and entry.deployment not in states:
        raise JournalError(path, entry.line, f"deployment {entry.deployment!r} has an event before it began")
    try:
        if isinstance(cause, (Deployed, Recovered, Resumed)):
            return cause.step()
        return rankcore.step(states[entry.deployment], cause)
    except RankcoreError as error:
        return Difference(
            path=path, line=entry.line, what="the answer", expected="a step", found=f"{type(error).__name__}: {error}"
        )


def _compare(path: str, entry: Entry, now: Step) -> Difference | None:
    def difference(what: str, expected: str, found: str) -> Difference:
        return Difference(path=path, line=entry.line, what=what, expected=expected, found=found)

    if now.state.spec.name != entry.deployment:
        return difference("deployment", entry.deployment, now.state.spec.name)
    for what, expected, found in (("commands", entry.commands, now.commands), ("notes", entry.notes, now.notes)):
        if expected != found:
            return difference(*_first_difference(what, expected, found))
    if entry.fingerprint is not None:
        print_now = fingerprint(now.state)
        if print_now != entry.fingerprint:
            return difference("fingerprint", entry.fingerprint, print_now)
    return None


def _first_difference(what: str, expected: tuple[object, ...], found: tuple[object, ...]) -> tuple[str, str, str]:
    """Of two tuples that differ: where, and what stands there in each."""
    index = next(
        (index for index, (old, new) in enumerate(zip(expected, found, strict=False)) if old != new),
        min(len(expected), len(found)),
    )
    texts = [to_json(items[index]) if index < len(items) else "none" for items in (expected, found)]
    return f"{what}[{index}]", texts[0], texts[1]
