"""A whole update, step by step: does any step take much longer than the others? Each at its least of several runs.

The step in which the new version comes stops and starts as many as the budget and `max_surge` let it: hundreds. So a step is
measured by what it decides: its time over the number of its commands (one, where it gives none).
"""

import gc
import statistics
import time
from collections import deque
from collections.abc import Iterable

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
SURGE = 100
PER_NODE = 8
RUNS, QUICK_RUNS = 5, 3


class Player:
    """Carries out what is asked in the order in which it is asked, and sleeps when nothing is left to do."""

    def __init__(self, spec: DeploymentSpec) -> None:
        first = deploy(spec)
        self.state: DeploymentState = first.state
        self.steps: list[tuple[str, float]] = []
        self.now, self.placed, self.wake_at = 0.0, 0, 0.0
        self._commands: deque[Command] = deque(first.commands)

    def tell(self, event: Event) -> None:
        """One step, timed."""
        begin = time.process_time_ns()
        result = step(self.state, event)
        took_us = (time.process_time_ns() - begin) / 1000
        self.steps.append((type(event).__name__, took_us / max(1, len(result.commands))))
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


def update(size: int, hand_over: str) -> list[tuple[str, float]]:
    """The steps of an update of so many, and what each took, in microseconds a command."""
    player = Player(DeploymentSpec(name="llm", target_replicas=size, max_surge=SURGE, hand_over=hand_over))
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


def measure(size: int, hand_over: str, runs: int) -> dict[str, object]:
    """The same steps several times: what a step took is the least of them."""
    all_runs = [update(size, hand_over) for _ in range(runs)]
    least = [(kinds[0][0], min(took for _, took in kinds)) for kinds in zip(*all_runs, strict=True)]
    longest = sorted(least, key=lambda each: -each[1])[:3]
    times = sorted(took for _, took in least)
    return {
        "size": size,
        "hand_over": hand_over,
        "steps": len(least),
        "median_us": statistics.median(times),
        "p999_us": times[len(times) * 999 // 1000],
        "longest": longest,
    }


def run(quick: bool) -> None:
    """Measure, print and save."""
    found = [
        measure(size, hand_over, QUICK_RUNS if quick else RUNS)
        for hand_over in ("none", "prepared")
        for size in (QUICK_SIZES if quick else SIZES)
    ]
    print(f"An update with max_surge={SURGE}: microseconds a command, each step at its least of several runs")
    rows = []
    for each in found:
        longest = ", ".join(f"{took:.0f} ({kind})" for kind, took in each["longest"])  # type: ignore[attr-defined]
        few = next(one for one in found if one["hand_over"] == each["hand_over"])
        ratio = each["longest"][0][1] / few["median_us"]  # type: ignore[index, operator]
        rows.append(
            [
                f"N={each['size']:,}, hand_over={each['hand_over']!r}",
                f"{each['steps']:,}",
                f"{each['median_us']:.1f}",
                f"{each['p999_us']:.1f}",
                longest,
                f"{ratio:.1f}",
            ]
        )
    print_table(["", "steps", "median", "99.9 %", "longest", f"longest / median at {found[0]['size']}"], rows)
    print(f"saved: {save('update', {'updates': found})}")
