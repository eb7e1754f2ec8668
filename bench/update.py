"""A whole update, step by step: does any step take much longer than the others?

The step in which the new version comes stops and starts as many as the budget and `max_surge` let it: hundreds. So a step is
measured by what it decides: its time over the number of its commands (one, where it gives none). It is taken three times on the
same state, which a step leaves as it is: the first time it finds in the caches of the processor what happens to be there, as in
earnest, and at its least of the three, nearly all that it needs, which is the work that it has to do.
"""

import gc
import statistics
import time
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

import attrs

from bench.measure import print_table, save
from rankcore import DeploymentSpec, DeploymentState, deploy, step
from rankcore.commands import Command, InitializeReplica, PrepareReplica, StartReplica, StopReplica, WakeAt
from rankcore.events import (
    ClockAdvanced,
    Event,
    ReplicaPlaced,
    ReplicaPrepared,
    ReplicaReady,
    ReplicaStopped,
    SpecChanged,
)

SIZES = (100, 10_000)
QUICK_SIZES = (100, 2_000)
UPDATES: dict[str, dict[str, Any]] = {
    "hand_over='none'": {"max_surge": 100},
    "hand_over='prepared'": {"max_surge": 100, "hand_over": "prepared"},
    "1 % at a time": {"max_surge": 100, "max_unavailable": "1%"},
    "one at a time": {"max_surge": 0, "max_unavailable": 1},
}
"""What the spec says of each, beside its size."""
PER_NODE = 8
RUNS, QUICK_RUNS = 5, 3
TAKES = 3
FIRST, LEAST = 0, 1


class Taken(NamedTuple):
    """One step: how many commands it gave, and how long it took the first time and at its least, in microseconds."""

    kind: str
    commands: int
    us: tuple[float, float]

    def each_us(self, which: int) -> float:
        """A command."""
        return self.us[which] / max(1, self.commands)


class Player:
    """Carries out what is asked in the order in which it is asked, and sleeps when nothing is left to do."""

    def __init__(self, spec: DeploymentSpec) -> None:
        first = deploy(spec)
        self.state: DeploymentState = first.state
        self.steps: list[Taken] = []
        self.now, self.placed, self.wake_at = 0.0, 0, 0.0
        self._commands: deque[Command] = deque(first.commands)

    def tell(self, event: Event) -> None:
        """One step, timed."""
        takes_us = []
        for _ in range(TAKES):
            begin = time.process_time_ns()
            result = step(self.state, event)
            takes_us.append((time.process_time_ns() - begin) / 1000)
        self.steps.append(Taken(type(event).__name__, len(result.commands), (takes_us[0], min(takes_us))))
        self.state = result.state
        self._commands.extend(result.commands)

    def play(self) -> None:
        """Until it is healthy."""
        while self._commands or self.state.status != "HEALTHY":
            if not self._commands:
                self.now = max(self.now, self.wake_at)
                self.tell(ClockAdvanced(at=self.now))
                continue
            for event in self._answers(self._commands.popleft()):
                self.tell(event)

    def _answers(self, command: Command) -> Iterable[Event]:
        match command:
            case StartReplica():
                self.placed += 1
                yield ReplicaPlaced(replica_id=command.replica_id, node_id=f"node-{self.placed // PER_NODE}", at=self.now)
            case PrepareReplica():
                yield ReplicaPrepared(replica_id=command.replica_id, revision=command.revision, at=self.now)
            case InitializeReplica():
                yield ReplicaReady(replica_id=command.replica_id, at=self.now)
            case StopReplica():
                yield ReplicaStopped(replica_id=command.replica_id, at=self.now)
            case WakeAt():
                self.wake_at = command.at


def update(size: int, name: str) -> list[Taken]:
    """The steps of an update of so many."""
    player = Player(DeploymentSpec(name="llm", target_replicas=size, **UPDATES[name]))
    player.play()
    player.steps.clear()
    gc.collect()
    gc.disable()
    try:
        player.tell(SpecChanged(spec=attrs.evolve(player.state.spec, version="2"), at=player.now))
        player.play()
    finally:
        gc.enable()
    assert all(each.version == "2" for each in player.state.replicas.values())
    return player.steps


def measure(size: int, name: str, runs: int) -> dict[str, Any]:
    """The same steps several times: what a step took is the least of them, and so is what it took the first time."""
    all_runs = [update(size, name) for _ in range(runs)]
    steps = [
        each[0]._replace(us=(min(one.us[FIRST] for one in each), min(one.us[LEAST] for one in each)))
        for each in zip(*all_runs, strict=True)
    ]
    return {
        "size": size,
        "update": name,
        "steps": len(steps),
        "first": _figures(steps, FIRST),
        "least": _figures(steps, LEAST),
        "longest_whole": [tuple(each) for each in sorted(steps, key=lambda each: -each.us[LEAST])[:3]],
        "median_whole_us": statistics.median(each.us[LEAST] for each in steps),
    }


def _figures(steps: list[Taken], which: int) -> dict[str, Any]:
    longest = sorted(steps, key=lambda each: -each.each_us(which))[:3]
    times = sorted(each.each_us(which) for each in steps)
    return {
        "median_us": statistics.median(times),
        "p999_us": times[len(times) * 999 // 1000],
        "longest": [(each.kind, each.each_us(which)) for each in longest],
        "ratio": times[-1] / statistics.median(times),
    }


def run(quick: bool) -> None:
    """Measure, print and save."""
    found = [
        measure(size, name, QUICK_RUNS if quick else RUNS) for name in UPDATES for size in (QUICK_SIZES if quick else SIZES)
    ]
    print("Updates, step by step: microseconds a command, the first time and at its least, of several runs")
    rows = []
    for each in found:
        few = next(one for one in found if one["update"] == each["update"])
        for which in ("first", "least"):
            figures = each[which]
            longest = ", ".join(f"{took:.0f} ({kind})" for kind, took in figures["longest"])
            rows.append(
                [
                    f"N={each['size']:,}, {each['update']}, {which}",
                    f"{each['steps']:,}",
                    f"{figures['median_us']:.1f}",
                    f"{figures['p999_us']:.1f}",
                    longest,
                    f"{figures['ratio']:.1f}",
                    f"{figures['longest'][0][1] / few[which]['median_us']:.1f}",
                ]
            )
    print_table(["", "steps", "median", "99.9 %", "longest", "longest / median", f"of {found[0]['size']}"], rows)
    for each in found:
        whole = ", ".join(f"{us[LEAST]:,.0f} ({kind}, {commands:,} commands)" for kind, commands, us in each["longest_whole"])
        median_us = each["median_whole_us"]
        times = each["longest_whole"][0][2][LEAST] / median_us
        print(f"whole steps at their least, N={each['size']:,}, {each['update']}:", end=" ")
        print(f"median {median_us:.1f}, the longest {whole} us: {times:.1f} times the median")
    print(f"saved: {save('update', {'updates': found})}")
