"""The chain of a journal's lines: each has a number and a hash over itself and the hash of the line before.

    {...,"n":0,"h":"4be1..."}        the first line, of which there is nothing before
    {...,"n":1,"h":"09c2..."}        h = sha256(h of the line before + this line up to ,"h":) in 16 hexadecimal digits

**What.** A core that runs a journal again finds a line that says something else than it would have. It does not find that a
line is missing where what follows is the same without it: a repeated report, a note, a last event. The number tells that lines
are missing, repeated or not in their order; the hash, that one says something else, or is another journal's. Lines that are
missing at the end leave no trace in those before: the end marker does that (`executors.engine.journal`).

**What it is not.** A signature. Who can write the file can write a chain that fits. It is against disks, editors, `head`, `sed`
and copies that were cut.

**What it costs.** A hash and some 40 bytes a line. To go on with a journal its last line alone is read: a controller that comes
back must not read what may be gigabytes. Who reads all of it checks all of it.

**Why it needs no id of a run.** A line of another journal with the same number does not follow from the lines before it here,
but where all of these are the same in both; then it says the same. Which files belong together is another question, and has
`executors.engine.run_id`.
"""

import hashlib
from typing import Any, Final

import attrs

from rankcore.codec import read_object, write_object
from rankcore.errors import CodecError

NOTHING_BEFORE: Final = b""
HASH_DIGITS: Final = 16
_BEFORE: Final = b',"h":"'
_BEHIND: Final = b'"}'
_TAIL_BYTES: Final = len(_BEFORE) + HASH_DIGITS + len(_BEHIND)
KEYS: Final = frozenset({"n", "h"})


class ChainError(ValueError):
    """A line does not follow from those before it. The text says how."""


@attrs.frozen
class Chain:
    """How far a journal goes: what the next line is numbered, and what it follows from.

    Attributes:
        number: Of the next line.
        hash: Of the last one.
    """

    number: int = 0
    hash: bytes = NOTHING_BEFORE

    def seal(self, line: dict[str, Any]) -> tuple[bytes, "Chain"]:
        """The text of the next line, and the chain with it."""
        body = write_object({**line, "n": self.number}).encode()[: -len(b"}")]
        mark = _hash(self.hash, body)
        return b"".join((body, _BEFORE, mark, _BEHIND, b"\n")), Chain(self.number + 1, mark)

    def follow(self, raw: bytes, number: object) -> "Chain":
        """The chain with a line that was read.

        Args:
            raw: The line as it stands in the file.
            number: Its `n`.

        Raises:
            ChainError: It does not follow.
        """
        if type(number) is not int:
            raise ChainError(f"this line has no number n, where n={self.number} should stand")
        if number > self.number:
            there = f"line n={self.number} is" if number == self.number + 1 else f"lines n={self.number} to n={number - 1} are"
            raise ChainError(f"{there} missing: n={number} stands here")
        if number < self.number:
            where = f"line n={number} stands here, where n={self.number} should"
            raise ChainError(f"{where}: lines are repeated or not in their order")
        body, mark = _parts(raw)
        if mark != _hash(self.hash, body):
            what = f"line n={number} was changed, or is another journal's"
            raise ChainError(f"{what}: its hash does not follow from the lines before")
        return Chain(number + 1, mark)


def last_link(raw: bytes) -> Chain:
    """The chain up to a line that is trusted, such as the last one of a journal that is gone on with.

    Raises:
        ChainError: It has no number or hash.
    """
    try:
        number = read_object(raw.decode()).get("n")
    except (CodecError, UnicodeDecodeError):
        number = None
    _, mark = _parts(raw)
    if type(number) is not int or len(mark) != HASH_DIGITS:
        raise ChainError("this line has no number n and hash h to go on from")
    return Chain(number + 1, mark)


def _parts(raw: bytes) -> tuple[bytes, bytes]:
    """What stands before the hash of a line, and the hash; b"": it has none."""
    line = raw.rstrip(b"\n")
    tail = line[-_TAIL_BYTES:]
    if not (tail.startswith(_BEFORE) and tail.endswith(_BEHIND)):
        return line, b""
    return line[:-_TAIL_BYTES], tail[len(_BEFORE) : -len(_BEHIND)]


def _hash(before: bytes, body: bytes) -> bytes:
    return hashlib.sha256(before + body).hexdigest()[:HASH_DIGITS].encode()
