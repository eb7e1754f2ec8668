"""Notes of controllers, one after the other, for as long as somebody wants to see more of them: the same for every executor."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from executors.engine.recent_notes import Notes

LOOK_EVERY_S = 0.5

Asking = Callable[[int], Notes]
"""What a controller answers to whoever has seen the note of this number."""


def followed(controllers: Callable[[], Mapping[str, Asking]], follow: bool) -> Iterator[dict[str, Any]]:
    """Notes as JSON-like data, each with `time`, in seconds since 1970, and `deployment` where it concerns one.

    Args:
        controllers: Those that there are now, by a name of each.
        follow: Whether to wait for more; else those that are kept come, and no others.
    """
    seen: dict[str, tuple[int, int]] = {}  # epoch and number
    while True:
        some = False
        for name, ask in controllers().items():
            epoch, number = seen.get(name, (0, 0))
            found = ask(number)
            if epoch not in (0, found.epoch) and number:  # another controller, which counts anew
                found = ask(0)
            seen[name] = found.epoch, found.last
            some = some or bool(found.notes)
            clock = time.time() - found.now
            if found.missed and epoch:
                yield {"time": time.time(), "missed": found.missed}
            yield from ({"time": clock + each["at"], **each} for each in found.notes)
        if not some:
            if not follow:
                return
            time.sleep(LOOK_EVERY_S)
