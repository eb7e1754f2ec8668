"""The rank table alone, in a scheduler that has processes, restarts and downscales of its own.

    python examples/embed_rank_table.py

`Gang` is the scheduler: it starts workers, which are processes, notices that one has ended, and decides who replaces it. From
rankcore it takes `RankTable`, which says who gets which rank, and whom to tell. The table knows nothing of processes, so the
scheduler keeps its half:

1. A rank is given on only when the process that believed it is gone: `ended` waits for that, and only then asks the table.
2. What the table says is told to exactly those whom it names. All others keep their ranks, and hear nothing.
3. The table is not stored. A scheduler that comes back asks the workers, and tells those whose ranks do not fit.

Where acknowledgements, slow starts, updates and crashes in the middle of all that are to be decided too, embed `rankcore.step`
instead: docs/embedding.md begins with that.
"""

import json
import subprocess
import sys

from rankcore.ranks import RankTable
from rankcore.values import ReplicaRank

WORKER = """
import sys
rank = None
for line in sys.stdin:
    if line == "which\\n":
        print(rank, flush=True)
    else:
        rank = line.strip()
"""


class Worker:
    """A process that believes what it was told last, and says so."""

    def __init__(self, name: str, node: str) -> None:
        self.name, self.node = name, node
        command = [sys.executable, "-S", "-E", "-c", WORKER]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tell(self, rank: ReplicaRank) -> None:
        """Which ranks it has from now on."""
        self._say(json.dumps([rank.rank, rank.node_rank, rank.local_rank]))

    def believes(self) -> ReplicaRank:
        """Which ranks it has, as it says."""
        self._say("which")
        rank, node_rank, local_rank = json.loads(self.process.stdout.readline())
        return ReplicaRank(rank=rank, node_rank=node_rank, local_rank=local_rank)

    def end(self) -> None:
        """Kill it, and wait until it is gone."""
        self.process.kill()
        self.process.communicate()

    def _say(self, line: str) -> None:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()


class Gang:
    """The scheduler. `workers` outlives it, as processes do; `table` does not."""

    def __init__(self, workers: dict[str, Worker]) -> None:
        self.workers = workers
        reports = [(each.name, each.node, each.believes()) for each in workers.values()]
        self.table, moves = RankTable.recover(reports)
        self.tell(moves)

    def start(self, name: str, node: str) -> None:
        """One more: the lowest rank that is free."""
        self.workers[name] = Worker(name, node)
        self.table, rank = self.table.assign(name, node)
        self.workers[name].tell(rank)

    def ended(self, name: str, successor: str, node: str) -> None:
        """A worker has ended by itself: its successor gets its rank."""
        self.workers.pop(name).end()
        self.workers[successor] = Worker(successor, node)
        self.table, rank = self.table.replace(name, successor, node)
        self.workers[successor].tell(rank)

    def shrink(self, *names: str) -> list[str]:
        """Fewer: those end, and whoever has a rank beyond the new size takes a free one. Returns who was told."""
        for name in names:
            self.workers.pop(name).end()
            self.table = self.table.release(name)
        self.table, moves = self.table.compact()
        return self.tell(moves)

    def tell(self, moves) -> list[str]:
        """Tell each who has other ranks than before."""
        for move in moves:
            self.workers[move.replica_id].tell(move.after)
        return [move.replica_id for move in moves]


def show(what: str, gang: Gang) -> None:
    """What the workers believe, which is what the table says."""
    believed = {name: worker.believes() for name, worker in gang.workers.items()}
    assert believed == dict(gang.table.ranks)
    by_rank = sorted(believed, key=lambda name: believed[name].rank)
    print(f"{what:34}", "  ".join(f"{believed[name].rank}: {name} on {gang.workers[name].node}" for name in by_rank))


def main() -> None:
    """Start four, lose one, shrink, and come back from a crash."""
    workers: dict[str, Worker] = {}
    try:
        gang = Gang(workers)
        for name, node in (("ada", "n1"), ("bob", "n1"), ("cy", "n2"), ("dee", "n2")):
            gang.start(name, node)
        show("four are started", gang)
        workers["bob"].end()
        gang.ended("bob", successor="eve", node="n1")
        show("bob is killed, eve succeeds", gang)
        told = gang.shrink("cy")
        show(f"cy leaves, {' and '.join(told)} is told", gang)
        workers["eve"].end()
        del gang  # and the scheduler's memory with it
        del workers["eve"]
        gang = Gang(workers)
        show("eve and the scheduler are killed", gang)
        gang.start("fay", "n1")
        show("it is back, and starts fay", gang)
    finally:
        for worker in workers.values():
            worker.end()


if __name__ == "__main__":
    main()
