"""Where all randomness of a run comes from: one seed, and a stream of its own for each purpose."""

import random


class Streams:
    """Independent random streams. A new purpose, or another draw in one, shifts no other stream."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._streams: dict[str, random.Random] = {}

    def of(self, *purpose: str) -> random.Random:
        """The stream of a purpose, such as `of("latency", "llm")`: the same object for the same words."""
        key = "/".join(purpose)
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = self.once(*purpose)
        return stream

    def once(self, *purpose: str) -> random.Random:
        """A stream that the caller keeps, or throws away, such as the one of a single replica."""
        # A text is hashed with SHA-512 here, whatever PYTHONHASHSEED is.
        return random.Random("/".join((str(self.seed), *purpose)))
