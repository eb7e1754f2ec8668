"""Notes as server-sent events, from the journal as it is written: why ranks move, what is waited for, what has failed.

The id of an event is the place behind its line, so a client that comes back with `Last-Event-ID` misses nothing. Of a line
with several notes the last one alone has an id: who has not seen all of them sees them again. A client that is so late that its
place is gone gets an event `gap` first.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import attrs

from executors.ray_gpu.rest import journal_file
from executors.ray_gpu.rest.journal_file import JournalPlace, LostPlaceError

LOOK_S = 0.2
ALIVE_S = 15.0
"""So often a comment goes out where nothing else does, so that proxies between keep the connection."""
LINES = 500
RETRY_MS = 1000
"""So long a client waits before it comes back."""


@attrs.frozen
class NoteFilter:
    """Which notes a client wants: of a deployment, of an application, of a kind; None: of any."""

    deployment: str | None = None
    kind: str | None = None

    def takes(self, note: dict[str, Any]) -> bool:
        """Whether it is one of them."""
        whose = str(note.get("deployment", ""))
        is_theirs = self.deployment is None or self.deployment in (whose, whose.partition("/")[0], whose.partition("/")[2])
        kinds = (note.get("kind"), (note.get("of") or {}).get("kind"))
        return is_theirs and (self.kind is None or self.kind in kinds)


def notes_in(line: bytes) -> list[dict[str, Any]]:
    """The notes of one line of a journal."""
    data = json.loads(line)
    cause = data.get("event") or data.get("began") or {}
    return [{"at": cause.get("at"), "cause": cause.get("type"), **each} for each in data.get("notes", ())]


def events_in(line: bytes, place: JournalPlace, wanted: NoteFilter) -> bytes:
    """The events of one line of a journal."""
    notes = [each for each in notes_in(line) if wanted.takes(each)]
    events = [f"event: note\ndata: {json.dumps(each)}\n" for each in notes]
    return "\n".join([*events[:-1], f"id: {place}\n{events[-1]}\n"]).encode() if events else b""


async def stream(path: str, place: JournalPlace | None, wanted: NoteFilter) -> AsyncIterator[bytes]:
    """For as long as the client stays.

    Args:
        path: Of the journal.
        place: From where on; None: from now on.
    """
    place = place or await asyncio.to_thread(journal_file.end, path) or JournalPlace(0, 0)
    yield f"retry: {RETRY_MS}\n\n".encode()
    loop = asyncio.get_running_loop()
    said_at = loop.time()
    while True:
        try:
            lines, after = await asyncio.to_thread(journal_file.lines_after, path, place, LINES)
        except LostPlaceError as error:
            found = await asyncio.to_thread(journal_file.beginning, path)
            lines, after = [], found or place
            if found is not None and place.file:
                yield f"event: gap\nid: {after}\ndata: {json.dumps({'error': str(error)})}\n\n".encode()
        made = b"".join([events_in(line, behind, wanted) for line, behind in lines])
        if made:
            said_at = loop.time()
            yield made
        elif loop.time() - said_at > ALIVE_S:
            said_at = loop.time()
            yield b": alive\n\n"
        if after == place:
            await asyncio.sleep(LOOK_S)
        place = after
