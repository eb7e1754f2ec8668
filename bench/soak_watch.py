"""What processes hold while they live: files, threads and memory, looked at again and again; and what is left in the end."""

import os
import time
from collections import defaultdict
from pathlib import Path

import attrs

YOUNG_S = 10.0
"""Before that a process is still loading what it needs."""
FILES_MORE = 40
"""A process may have so many more open files than when it was young: sockets to replicas that there are now."""
MEMORY_MORE, MEMORY_MORE_MIB = 1.25, 30.0
"""And so much more memory: caches and pools that fill up."""


@attrs.frozen
class Look:
    """A process at one moment.

    Attributes:
        at: When, in seconds of the monotonic clock.
        memory_mib: Its own, without what it shares.
        served: Requests until then.
    """

    at: float
    files: int
    threads: int
    memory_mib: float
    served: int


@attrs.define
class Life:
    """A process, since it was not young any more.

    Attributes:
        kind: Such as "replica".
        first: At the end of its youth; None: it has not come to that.
        middle: When it had half of its present age.
        looks: All of them.
    """

    kind: str
    pid: int
    seen_at: float
    looks: list[Look] = attrs.field(factory=list)

    @property
    def length_s(self) -> float:
        """How long it is looked at."""
        return self.looks[-1].at - self.looks[0].at if self.looks else 0.0

    @property
    def half_time(self) -> Look:
        """In the middle between the first look and the last."""
        return self.looks[len(self.looks) // 2]

    def leaks(self) -> list[str]:
        """What it has more of than it may, at its end than at its beginning."""
        if not self.looks:
            return []
        first, last = self.looks[0], self.looks[-1]
        found = []
        if last.files > first.files + FILES_MORE:
            found.append(f"{self.kind} {self.pid} had {first.files} open files, and has {last.files}")
        if last.memory_mib > first.memory_mib * MEMORY_MORE + MEMORY_MORE_MIB:
            found.append(f"{self.kind} {self.pid} had {first.memory_mib:.0f} MiB, and has {last.memory_mib:.0f}")
        return found

    def __str__(self) -> str:
        first, middle, last = self.looks[0], self.half_time, self.looks[-1]
        memory = " -> ".join(f"{each.memory_mib:.1f}" for each in (first, middle, last))
        return (
            f"{self.length_s:.0f} s, {last.served - first.served:,} requests: {memory} MiB, "
            f"files {first.files} -> {last.files}, threads {first.threads} -> {last.threads}"
        )


class Watch:
    """Looks at processes of several kinds."""

    def __init__(self) -> None:
        self.lives: dict[int, Life] = {}

    def look(self, kind: str, pid: int, served: int) -> None:
        """Look at one, if it is there and not young."""
        life = self.lives.setdefault(pid, Life(kind, pid, time.monotonic()))
        now = time.monotonic()
        if now - life.seen_at < YOUNG_S:
            return
        try:
            life.looks.append(Look(now, *held_by(pid), served))
        except OSError:
            return  # gone meanwhile

    def leaks(self) -> list[str]:
        """What any of them has too much of."""
        return [leak for life in self.lives.values() for leak in life.leaks()]

    def table(self) -> list[str]:
        """One line a kind: the one that lived longest."""
        kinds: dict[str, list[Life]] = defaultdict(list)
        for life in self.lives.values():
            kinds[life.kind].append(life)
        lines = []
        for kind, lives in kinds.items():
            longest = max(lives, key=lambda life: life.length_s)
            shown = str(longest) if longest.looks else f"none lived for {YOUNG_S:g} s"
            lines.append(f"  {kind:15} {len(lives):3} seen; the oldest: {shown}")
        return lines


def held_by(pid: int) -> tuple[int, int, float]:
    """Open files, threads and memory in MiB of a process.

    Raises:
        OSError: There is none.
    """
    files = len(os.listdir(f"/proc/{pid}/fd"))
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    if "RssAnon" not in status:
        raise ProcessLookupError(f"{pid} has ended, and nobody has asked how")
    return files, int(status["Threads"]), int(status["RssAnon"].split()[0]) / 1024


def descendants(pid: int) -> set[int]:
    """The processes that one has begun, and those that these have."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                children[int(fields[1])].append(int(entry))
    found: set[int] = set()
    unseen = [pid]
    while unseen:
        more = [each for each in children[unseen.pop()] if each not in found]
        found.update(more)
        unseen += more
    return found
