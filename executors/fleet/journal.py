"""The journal of a fleet: what happened and what came of it, as JSON lines that can be run again.

    {"fleet_journal":1,"about":{}}                                              what this file is, once
    {"began":{...},"fingerprint":"9f..."}                                       a state, with which all that follows begins
    {"event":{"type":"ModelRequested",...},"commands":[...],"notes":[...]}      one step; now and then with a fingerprint

Nothing in it depends on when, where or how fast it was written.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Self

import attrs

from executors.fleet.reading import FORMAT, FleetJournalReader
from executors.journal import located, open_alone, write_line
from rankcore.codec import fingerprint, read_object, to_plain, write_object
from rankcore.dispatching import FleetImage, FleetState, FleetStep, fleet_of, fleet_step, image_of
from rankcore.dispatching.events import Event
from rankcore.errors import RankcoreError

PROGRESS_EVERY = 256
FINGERPRINT_EVERY = 1_000
"""Steps from one fingerprint to the next, which costs as much as the fleet is big."""


class FleetJournal:
    """Writes a journal, each line whole and at once, so that a crash cuts no line but perhaps the last.

    Args:
        file: Unbuffered, opened for writing and empty.
        about: What else to say in the first line; JSON-like.
        fingerprint_every: Steps from one fingerprint to the next.
        continues: Whether the file has its first line already.
    """

    def __init__(
        self,
        file: BinaryIO,
        *,
        about: Mapping[str, Any] | None = None,
        fingerprint_every: int = FINGERPRINT_EVERY,
        continues: bool = False,
    ) -> None:
        self._file = file
        self._every = fingerprint_every
        self._steps = 0
        if not continues:
            write_line(file, {"fleet_journal": FORMAT, "about": dict(about or {})})

    @classmethod
    def create(cls, path: str | os.PathLike[str], **options: Any) -> Self:
        """Start a journal in a new file, or in place of an old one.

        Raises:
            JournalError: Another process writes it. It is left alone.
            PlaceError: Another user may have put it there. It is left alone.
        """
        return cls(open_alone(path, empty=True), **options)

    def begin(self, state: FleetState) -> None:
        """Write down the state that what follows begins with."""
        image = image_of(state)
        write_line(self._file, {"began": to_plain(image), "fingerprint": fingerprint(image)})

    def append(self, event: Event, step: FleetStep) -> None:
        """Write down an event and what came of it.

        Raises:
            OSError: It could not be written whole, and nothing of it is left in the file.
        """
        line: dict[str, Any] = {
            "event": to_plain(event),
            "commands": [to_plain(each) for each in step.commands],
            "notes": [to_plain(each) for each in step.notes],
        }
        self._steps += 1
        if self._steps % self._every == 0:
            line["fingerprint"] = fingerprint(image_of(step.state))
        write_line(self._file, line)

    def close(self) -> None:
        """Close the file. Closing twice is fine."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@attrs.frozen(kw_only=True)
class FleetReplay:
    """How far a journal and the core agree.

    Attributes:
        state: After the last line that agrees.
        steps: How many lines were run and agreed.
        fingerprints: How many of these had a fingerprint that was compared.
        difference: The first line that the core answers differently now, in words; None: all agree.
        warning: What was left out, since the journal ends in the middle of a line; None: nothing.
    """

    state: FleetState
    steps: int
    fingerprints: int
    difference: str | None = None
    warning: str | None = None


def replay_fleet(path: str | os.PathLike[str], progress: Callable[[int], None] | None = None) -> FleetReplay:
    """Run a journal again, up to its end or the first line that differs.

    Args:
        path: The journal.
        progress: Told now and then how many bytes have been read.

    Raises:
        JournalError: The file is no journal of a fleet, or a line before the last is broken.
        OSError: It cannot be read.
    """
    reader = FleetJournalReader(path)
    result: FleetReplay | None = None
    for line in reader.lines():
        with located(reader.path, reader.line):
            if "began" in line:
                result = _begun(reader, line, result)
                continue
            if result is None:
                reader.fail("a step before the state that it begins with")
            result = _gone_on(reader, line, result)
        if result.difference is not None:
            return result
        if progress is not None and result.steps % PROGRESS_EVERY == 0:
            progress(reader.position)
    if result is None:
        reader.fail("no state to begin with")
    return attrs.evolve(result, warning=reader.warning)


def _begun(reader: FleetJournalReader, line: dict[str, Any], before: FleetReplay | None) -> FleetReplay:
    """With the state of a line, which has to be the one that was written there."""
    image = reader.value(line["began"], FleetImage)
    if line.get("fingerprint") != fingerprint(image):
        reader.fail(f"fingerprint must be that of the state, {fingerprint(image)}, got {line.get('fingerprint')!r:.80}")
    steps, fingerprints = (0, 0) if before is None else (before.steps, before.fingerprints)
    return FleetReplay(state=fleet_of(image), steps=steps, fingerprints=fingerprints)


def _gone_on(reader: FleetJournalReader, line: dict[str, Any], before: FleetReplay) -> FleetReplay:
    """One step further, or as far as before and with the difference."""
    event = reader.value(line.get("event"), Event)
    try:
        step = fleet_step(before.state, event)
    except RankcoreError as error:
        return attrs.evolve(before, difference=f"{reader.place}: {type(error).__name__}: {error}")
    difference = _difference(line, step)
    if difference is not None:
        return attrs.evolve(before, difference=f"{reader.place}: {difference}")
    counted = before.fingerprints + ("fingerprint" in line)
    return attrs.evolve(before, state=step.state, steps=before.steps + 1, fingerprints=counted)


def _difference(line: dict[str, Any], step: FleetStep) -> str | None:
    for what, found in (("commands", step.commands), ("notes", step.notes)):
        now, then = [to_plain(each) for each in found], line.get(what)
        if then != _as_read(now):
            return f"{what} differ: expected {then!r:.300}, found {now!r:.300}"
    if "fingerprint" in line:
        now_print = fingerprint(image_of(step.state))
        if now_print != line["fingerprint"]:
            return f"fingerprint differs: expected {line['fingerprint']}, found {now_print}"
    return None


def _as_read(values: list[dict[str, Any]]) -> Any:
    """As they are when they have been written and read."""
    return read_object(write_object({"values": values}))["values"]
