"""The coordinator of a gang: how long it computes until all of N agents have their ranks again, when one is lost to a spare.

Agents are messages here, without sockets: what is measured is all that the one thread of the coordinator does for them.
"""

import time

from bench.measure import print_table, save
from executors.torchrun.coordinator import Coordinator, Sent
from executors.torchrun.messages import VERSION, AgentPhase, AskToJoin, Hello, Leave, Standing, from_agent, line_of
from rankcore.gang import Gang

SIZES = ((100, 5), (1_000, 5), (10_000, 5))
QUICK_SIZES = ((100, 3), (1_000, 3))
LEASE_S = 15.0
LIMIT_S = 1.0


class Agents:
    """A gang of N agents and spares, as the coordinator hears them."""

    def __init__(self, size: int, spares: int) -> None:
        self.coordinator = Coordinator(Gang(size - spares, size), LEASE_S)
        self.ranks: dict[str, int] = {}
        self.restarted: list[str] = []
        self.members = [f"n{index}" for index in range(size + spares)]
        self.number = 1
        for member in self.members:
            self.says(member, line_of(Hello(VERSION, "job", member, member, "", 1, 1)))
            self.says(member, self.asks(size))

    def asks(self, size: int) -> bytes:
        return line_of(AskToJoin(self.number, None, None, 8, size))

    def says(self, member: str, line: bytes) -> None:
        self.hears(self.coordinator.hear(member, from_agent(line), 0.0))

    def hears(self, sent: Sent) -> None:
        for member, message in sent:
            line_of(message)
            if isinstance(message, Standing) and message.phase is AgentPhase.ADMITTED:
                self.ranks[member] = message.rank
            elif isinstance(message, Standing) and message.phase is AgentPhase.RESTART:
                self.restarted.append(member)


def reseated(agents: Agents, size: int, lost: str) -> tuple[float, int]:
    """Seconds from the loss of an agent to the ranks of all others, and how many of them have another than before."""
    before = dict(agents.ranks)
    agents.number += 1
    agents.restarted.clear()
    last, asks = line_of(Leave()), agents.asks(size)
    began_s = time.perf_counter()
    agents.says(lost, last)
    for member in tuple(agents.restarted):
        agents.says(member, asks)
    took_s = time.perf_counter() - began_s
    del agents.ranks[lost]
    assert sorted(agents.ranks.values()) == list(range(size))
    return took_s, sum(before.get(member, rank) != rank for member, rank in agents.ranks.items())


def run(quick: bool) -> None:
    """Measure, print and save."""
    print("A gang that loses one agent to a spare: computing time of its coordinator until all have their ranks again")
    table, saved = [], []
    for size, repeats in QUICK_SIZES if quick else SIZES:
        agents = Agents(size, repeats)
        results = [reseated(agents, size, agents.members[index * 7]) for index in range(repeats)]
        times = sorted(took_s for took_s, _ in results)
        moved = sum(count for _, count in results)
        middle = times[len(times) // 2]
        table.append([f"{size:,}", f"{middle * 1e3:.1f} ms", f"{times[0] * 1e3:.1f} to {times[-1] * 1e3:.1f} ms", str(moved)])
        saved.append({"agents": size, "each_s": times, "moved": moved})
    print_table(["agents", "median", "of all", "moved"], table)
    print(f"saved: {save('gang', {'limit_s': LIMIT_S, 'rows': saved})}")
