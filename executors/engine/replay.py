"""Run a journal again through the core, and find the first line where it does something else than it did then."""

import math
import os
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from executors.engine.kinds import AnyStep, JournalLine, MachineKind
from executors.engine.reading import JournalError, JournalReader, located
from rankcore.codec import fingerprint, to_json
from rankcore.errors import RankcoreError

PROGRESS_EVERY = 256
FINGERPRINT = "fingerprint"
"""What of a step differs where only the texts of its states do."""


@attrs.frozen(kw_only=True)
class Difference:
    """The first line of a journal that the core answers differently now.

    Attributes:
        path: Of the journal.
        line: Its number in the file, from 1.
        what: Which part of the answer differs, such as `commands[2]`.
        expected: What the journal has, as text.
        found: What the core did now, as text.
        origin: Which release wrote the journal, where it was another one, and what to do; "": this one.
    """

    path: str
    line: int
    what: str
    expected: str
    found: str
    origin: str = ""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what} differs: expected {self.expected}, found {self.found}{self.origin}"


@attrs.frozen(kw_only=True)
class ReplayResult:
    """How far a journal and the core agree.

    Attributes:
        kind: The machine that was run.
        states: The last state of each deployment, up to the difference; by "" where there is one state only.
        steps: Lines that were run and agreed.
        fingerprints: How many of these had a fingerprint that was compared.
        warning: What was left out of the journal; None: nothing.
        difference: The first line that differs; None: all agree.
        about: What the journal's first line says besides.
    """

    kind: MachineKind
    states: dict[str, Any]
    steps: int
    fingerprints: int
    warning: str | None
    difference: Difference | None
    about: Mapping[str, Any] = attrs.Factory(dict)

    @property
    def state(self) -> Any:
        """The last state of a machine of which there is one; None: it has not begun."""
        return self.states.get("")


Look = Callable[[Any, Any, AnyStep], None]
"""Shown each line that agrees, the state that it found (None: nothing had begun) and the step that came of it."""


def replay(
    path: str | os.PathLike[str],
    kind: MachineKind | None = None,
    *,
    until: float = math.inf,
    look: Look | None = None,
    progress: Callable[[int], None] | None = None,
    exact: bool = True,
) -> ReplayResult:
    """Run a journal again, up to its end or the first line that differs.

    Args:
        path: The journal.
        kind: The machine that it has to be of; None: whichever it says.
        until: Go no further than the first line that is about a later time.
        look: Is shown each line that agrees.
        progress: Told now and then how many bytes have been read.
        exact: Whether notes and fingerprints are to be the same too, which another release may have otherwise, and not only
            what is commanded.

    Raises:
        JournalError: The file is not a journal, or a line before the last is broken.
        OSError: It cannot be read.
    """
    reader = JournalReader(path, kind)
    states: dict[str, Any] = {}
    steps = fingerprints = 0
    difference = None
    for entry in reader:
        if entry.at > until:
            break
        with located(reader.path, entry.line):
            outcome = _run(reader, entry, states)
            difference = outcome if isinstance(outcome, Difference) else _compare(reader, entry, outcome, exact)
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
    return ReplayResult(
        kind=reader.kind,
        states=states,
        steps=steps,
        fingerprints=fingerprints,
        warning=reader.warning,
        difference=difference,
        about=reader.about,
    )


def _run(reader: JournalReader, entry: JournalLine[Any, Any, Any], states: dict[str, Any]) -> AnyStep | Difference:
    """The step of a line, or the difference that there is none."""
    begins = isinstance(entry.cause, reader.kind.beginning)
    if not begins and entry.deployment not in states:
        who = f"deployment {entry.deployment!r} has" if entry.deployment else "there is"
        raise JournalError(reader.path, entry.line, f"{who} an event before it began")
    try:
        if begins:
            return reader.kind.begin(entry.cause)
        step: AnyStep = reader.kind.step(states[entry.deployment], entry.cause)
        return step
    except RankcoreError as error:
        return _difference(reader, entry, "the answer", "a step", f"{type(error).__name__}: {error}")


def _compare(reader: JournalReader, entry: JournalLine[Any, Any, Any], now: AnyStep, exact: bool) -> Difference | None:
    whose = reader.kind.key_of(now.state)
    if whose != entry.deployment:
        return _difference(reader, entry, "deployment", entry.deployment, whose)
    for what, expected, found in (("commands", entry.commands, now.commands), ("notes", entry.notes, now.notes)):
        if expected != found and (exact or what == "commands"):
            return _difference(reader, entry, *_first_difference(what, expected, found))
    if entry.fingerprint is not None and exact:
        print_now = fingerprint(reader.kind.image(now.state))
        if print_now != entry.fingerprint:
            return _difference(reader, entry, FINGERPRINT, entry.fingerprint, print_now)
    return None


def _difference(reader: JournalReader, entry: JournalLine[Any, Any, Any], what: str, expected: str, found: str) -> Difference:
    return Difference(path=reader.path, line=entry.line, what=what, expected=expected, found=found, origin=reader.origin)


def _first_difference(what: str, expected: tuple[object, ...], found: tuple[object, ...]) -> tuple[str, str, str]:
    """Of two tuples that differ: where, and what stands there in each."""
    index = next(
        (index for index, (old, new) in enumerate(zip(expected, found, strict=False)) if old != new),
        min(len(expected), len(found)),
    )
    texts = [to_json(items[index]) if index < len(items) else "none" for items in (expected, found)]
    return f"{what}[{index}]", texts[0], texts[1]
