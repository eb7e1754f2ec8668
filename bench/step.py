"""The whole step: life cycle, ranks, commands and notes. Microseconds per event, and what a state weighs."""

import gc
import random
import statistics
import sys
import time
from array import array
from collections import defaultdict
from collections.abc import Iterable
from math import log2
from types import FunctionType, ModuleType

import attrs
from msgspec import Struct
from msgspec.structs import astuple

from bench.measure import print_table, save
from rankcore import DeploymentSpec, DeploymentState, deploy, step
from rankcore.commands import Command, InitializeReplica, ReconfigureReplica, StartReplica, StopReplica
from rankcore.events import (
    Event,
    ReplicaDied,
    ReplicaPlaced,
    ReplicaReady,
    ReplicaReconfigured,
    ReplicaStopped,
    SpecChanged,
)

PER_NODE = 8
CRASHES = 3_000
RESCALES = 200
RESCALE_BY = 3
ACKNOWLEDGED = 20_000
SIZES = (1_000, 100_000, 1_000_000)
QUICK_SIZES = (1_000, 30_000)
CRASH = ("ReplicaDied", "ReplicaPlaced, replacement", "ReplicaReady, replacement")
STEADY = (
    *CRASH,
    "ReplicaReconfigured",
    "SpecChanged, few less",
    "ReplicaStopped",
    "SpecChanged, few more",
    "ReplicaPlaced, newcomer",
    "ReplicaReady, newcomer",
)


class Player:
    """Plays the executor, one event at a time, and times each step."""

    def __init__(self, spec: DeploymentSpec) -> None:
        begin = time.process_time()
        first = deploy(spec)
        self.deploy_s = time.process_time() - begin
        self.state: DeploymentState = first.state
        self.first = first
        self.now = 0.0
        self.placed = 0
        self.each_s: dict[str, array[float]] = defaultdict(lambda: array("d"))

    def feed(self, kind: str, event: Event) -> tuple[Command, ...]:
        clock = time.process_time
        begin = clock()
        result = step(self.state, event)
        self.each_s[kind].append(clock() - begin)
        self.state = result.state
        return result.commands

    def answer(self, commands: Iterable[Command], who: str) -> None:
        """Carry commands out, and all that follows from them, in order."""
        for command in commands:
            match command:
                case StartReplica():
                    node_id = f"node-{self.placed // PER_NODE}"
                    self.placed += 1
                    event: Event = ReplicaPlaced(replica_id=command.replica_id, node_id=node_id, at=self.now)
                    self.answer(self.feed(f"ReplicaPlaced, {who}", event), who)
                case InitializeReplica():
                    self.answer(
                        self.feed(f"ReplicaReady, {who}", ReplicaReady(replica_id=command.replica_id, at=self.now)), who
                    )
                case ReconfigureReplica():
                    self.acknowledge(command, who)
                case StopReplica():
                    self.answer(self.feed("ReplicaStopped", ReplicaStopped(replica_id=command.replica_id, at=self.now)), who)

    def acknowledge(self, command: ReconfigureReplica, who: str) -> None:
        event = ReplicaReconfigured(replica_id=command.replica_id, revision=command.revision, at=self.now)
        self.answer(self.feed("ReplicaReconfigured", event), who)

    def change(self, kind: str, who: str, **fields: object) -> None:
        self.now += 0.001
        event = SpecChanged(spec=attrs.evolve(self.state.spec, **fields), at=self.now)
        self.answer(self.feed(kind, event), who)


def play(size: int) -> tuple[Player, float]:
    """Start up, then crashes, rescales by a few, and acknowledgements of a new user_config."""
    # Crashes of one rank shortly after each other are replaced at once, and a user_config goes to all at once.
    spec = DeploymentSpec(name="llm", target_replicas=size, stable_after_s=0.5, config_rollout="at_once")
    player = Player(spec)
    player.answer(player.first.commands, "start-up")
    assert player.state.status == "HEALTHY", player.state.status
    chance = random.Random(size)
    for _ in range(min(CRASHES, size)):
        player.now += 1.0  # time-outs fall due meanwhile
        gone = player.state.holder_of(chance.randrange(size))
        assert gone is not None
        player.answer(player.feed("ReplicaDied", ReplicaDied(replica_id=gone, at=player.now)), "replacement")
    for _ in range(min(RESCALES, size // 10)):
        player.change("SpecChanged, few less", "newcomer", target_replicas=size - RESCALE_BY)
        player.change("SpecChanged, few more", "newcomer", target_replicas=size)
    assert player.state.status == "HEALTHY", player.state.status
    assert sorted(rank.rank for rank in player.state.ranks.values()) == list(range(size))
    fanned_out = _configure(player)
    return player, fanned_out


def _configure(player: Player) -> float:
    """A new user_config, sent to all and acknowledged by some; returns the seconds of the fan-out."""
    player.now += 0.001
    event = SpecChanged(spec=attrs.evolve(player.state.spec, user_config={"temperature": 0.5}), at=player.now)
    commands = player.feed("SpecChanged, user_config", event)
    sent = [command for command in commands if isinstance(command, ReconfigureReplica)]
    for command in sent[:ACKNOWLEDGED]:
        player.acknowledge(command, "newcomer")
    return player.each_s.pop("SpecChanged, user_config")[0]


def weigh(roots: Iterable[object], seen: set[int]) -> int:
    """Bytes of everything reachable that is not in `seen`, which grows."""
    total = 0
    stack = list(roots)
    while stack:
        value = stack.pop()
        if id(value) in seen or isinstance(value, (type, ModuleType, FunctionType)):
            continue
        seen.add(id(value))
        total += sys.getsizeof(value)
        # Structs that the collector does not track tell it nothing of what they hold.
        stack.extend(astuple(value) if isinstance(value, Struct) else gc.get_referents(value))
    return total


def weigh_state(state: DeploymentState) -> tuple[int, int]:
    """Bytes of a state, and bytes that its successor after one crash does not share with it."""
    seen: set[int] = set()
    whole = weigh([state], seen)
    gone = state.holder_of(0)
    assert gone is not None
    successor = step(state, ReplicaDied(replica_id=gone, at=state.clock)).state
    return whole, weigh([successor], seen)


def fork_ns(state: DeploymentState) -> float:
    """A fork is a second name for the same state: nothing is copied, whatever its size."""
    begin = time.perf_counter()
    for _ in range(100_000):
        fork = state
    elapsed = time.perf_counter() - begin
    assert fork is state
    return elapsed / 100_000 * 1e9


def measure(size: int) -> dict[str, object]:
    gc.collect()
    player, fanned_out = play(size)
    events = {}
    for kind, each in player.each_s.items():
        ordered = sorted(each)
        events[kind] = {
            "count": len(each),
            "mean_us": statistics.fmean(each) * 1e6,
            "median_us": ordered[len(ordered) // 2] * 1e6,
            "p99_us": ordered[len(ordered) * 99 // 100] * 1e6,
        }
    steady = [seconds for kind in STEADY for seconds in player.each_s.get(kind, ())]
    gc.collect()
    whole, successor = weigh_state(player.state)
    return {
        "replicas": size,
        "events": events,
        "start_up_mean_us": statistics.fmean(
            [*player.each_s["ReplicaPlaced, start-up"], *player.each_s["ReplicaReady, start-up"]]
        )
        * 1e6,
        "steady_mean_us": statistics.fmean(steady) * 1e6,
        "crash_mean_us": statistics.fmean(second for kind in CRASH for second in player.each_s[kind]) * 1e6,
        "longest_us": max(second for kind in CRASH for second in player.each_s[kind]) * 1e6,
        "deploy_us_per_replica": player.deploy_s / size * 1e6,
        "new_config_us_per_replica": fanned_out / size * 1e6,
        "bytes_per_replica": whole / size,
        "bytes_of_a_step": successor,
        "fork_ns": fork_ns(player.state),
    }


def run(quick: bool) -> None:
    """Measure, print and save."""
    print("The whole step: mean microseconds per event (median in brackets), by number of replicas")
    found = []
    for size in QUICK_SIZES if quick else SIZES:
        print(f"  {size:,} replicas ...", file=sys.stderr, flush=True)
        found.append(measure(size))
    _print(found)
    print(f"saved: {save('step', {'sizes': found})}")


def _print(found: list[dict[str, object]]) -> None:
    rows: list[list[str]] = []
    for kind in ("ReplicaPlaced, start-up", "ReplicaReady, start-up", *STEADY):
        cells = [each["events"].get(kind) for each in found]  # type: ignore[attr-defined]
        rows.append([kind, *(f"{c['mean_us']:.1f} ({c['median_us']:.1f})" if c else "-" for c in cells), _growth(cells)])
    for label, key in (
        ("all of the start-up", "start_up_mean_us"),
        ("all after it", "steady_mean_us"),
        ("a crash and its replacement", "crash_mean_us"),
    ):
        values = [float(each[key]) for each in found]  # type: ignore[arg-type]
        rows.append([label, *(f"{value:.1f}" for value in values), f"{values[-1] / values[0]:.2f}x"])
    for label, key, unit in (
        ("the longest of a crash and its replacement", "longest_us", "us"),
        ("deploy, per replica", "deploy_us_per_replica", "us"),
        ("a new user_config, per replica", "new_config_us_per_replica", "us"),
        ("memory, per replica", "bytes_per_replica", "B"),
        ("what a crash's step does not share", "bytes_of_a_step", "B"),
        ("a fork", "fork_ns", "ns"),
    ):
        rows.append([label, *(f"{float(each[key]):,.1f} {unit}" for each in found), ""])  # type: ignore[arg-type]
    sizes = [int(each["replicas"]) for each in found]  # type: ignore[call-overload]
    print_table(["", *(f"N={size:,}" for size in sizes), "growth"], rows)
    print(f"growth: last column over first; log N grows {log2(sizes[-1]) / log2(sizes[0]):.2f}x")


def _growth(cells: list[dict[str, float] | None]) -> str:
    first, last = cells[0], cells[-1]
    return f"{last['mean_us'] / first['mean_us']:.2f}x" if first and last else "-"
