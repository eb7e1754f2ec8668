"""The planner of residency at scale: 10,000 nodes of 8 GPUs, 100,000 replicas. Milliseconds per step, by what it does.

`python -m bench.residency [--quick]`, or `python -m bench residency`.
"""

import argparse
import random
import time
from collections import defaultdict

from bench.measure import duration, print_table, save
from rankcore.residency import (
    ModelSpec,
    ResidencyPolicy,
    ResidencyState,
    Wanted,
    open_residency,
    plan_residency,
    residency_step,
)
from rankcore.residency.commands import Command, LoadToGpu, WakeAt
from rankcore.residency.events import (
    DeployRequested,
    Event,
    EvictRequested,
    LoadFinished,
    NodeJoined,
    OffloadFinished,
    ReplicaUsed,
)

GB = 10**9
GPUS = 8
SIZES = {"nodes": 10_000, "replicas": 100_000, "models": 400, "rounds": 300}
QUICK_SIZES = {"nodes": 500, "replicas": 5_000, "models": 60, "rounds": 60}
WAITING, QUICK_WAITING = 1_000, 200
DEGREES = (1, 1, 1, 1, 1, 2, 2, 4, 8)


class Player:
    """Plays the executor, and times each step."""

    def __init__(self, seed: int) -> None:
        self.state: ResidencyState = open_residency(ResidencyPolicy())
        self.random = random.Random(seed)
        self.now = 0.0
        self.each_s: dict[str, list[float]] = defaultdict(list)
        self.recording = False

    def feed(self, kind: str, event: Event) -> tuple[Command, ...]:
        begin = time.process_time()
        step = residency_step(self.state, event)
        elapsed = time.process_time() - begin
        if self.recording:
            self.each_s[kind].append(elapsed)
        self.state = step.state
        return step.commands

    def answer(self, commands: tuple[Command, ...]) -> None:
        queue = list(commands)
        while queue:
            command = queue.pop(0)
            if isinstance(command, WakeAt):
                continue
            finished = LoadFinished if isinstance(command, LoadToGpu) else OffloadFinished
            event = finished(replica_id=command.replica_id, move=command.move, at=self.now)
            queue += self.feed(finished.__name__, event)

    def one_more(self, spec: ModelSpec) -> DeployRequested:
        """The request for it."""
        wanted = Wanted(spec=spec, replicas=self.state.target(spec.model) + 1)
        return DeployRequested(wanted=(wanted,), at=self.now)

    def one_fewer(self, spec: ModelSpec) -> EvictRequested:
        """The request for it: the newest goes."""
        return EvictRequested(replica_id=self.state.wanted_replicas(spec.model)[-1], at=self.now)

    def request(self, event: DeployRequested) -> None:
        """One replica more: what it came to says in which row it belongs."""
        begin = time.process_time()
        step = residency_step(self.state, event)
        elapsed = time.process_time() - begin
        if self.recording:
            waits = sum(note.kind.value == "can't accommodate" for note in step.notes)
            displaces = sum(note.kind.value == "displaced" for note in step.notes)
            kind = "can't accommodate" if waits else "with displacement" if displaces else "without displacement"
            self.each_s[f"one replica more, {kind}"].append(elapsed)
        self.state = step.state
        self.answer(step.commands)


def specs_of(player: Player, models: int) -> list[ModelSpec]:
    chance = player.random
    specs = []
    for number in range(models):
        gpus = chance.choice(DEGREES)
        each = chance.choice((9, 18, 22, 26, 30, 34, 38, 42, 48, 52) if gpus == 1 else (20, 30, 40, 50))
        specs.append(
            ModelSpec(
                model=f"model-{number}",
                weight_bytes=each * gpus * GB,
                working_bytes=chance.randrange(1, 4) * GB,
                gpus=gpus,
                priority=chance.choice((0, 0, 0, 1, 2)),
                min_hot_s=60.0,  # so that those who fill the cluster displace nobody
                dedicated=chance.random() < 0.03,
            )
        )
    return specs


def filled(sizes: dict[str, int]) -> tuple[Player, list[ModelSpec], float]:
    """As many replicas as wanted, or as fit; some used lately, some busy."""
    player = Player(7)
    begin = time.process_time()
    for number in range(sizes["nodes"]):
        gpu_bytes = ((56 if number % 3 else 36) * GB,) * GPUS
        player.feed("join", NodeJoined(node_id=f"node-{number:05}", gpu_bytes=gpu_bytes, cpu_bytes=500 * GB, at=0.0))
    specs = specs_of(player, sizes["models"])
    each = sizes["replicas"] // len(specs)
    for spec in sorted(specs, key=lambda spec: (-(spec.gpus or 1), spec.model)):
        share = max(1, each // ((spec.gpus or 1) * 2))
        player.answer(player.feed("deploy", DeployRequested(wanted=(Wanted(spec=spec, replicas=share),), at=0.0)))
    small = [spec for spec in specs if spec.gpus == 1 and not spec.dedicated]
    while small:
        missing = sizes["replicas"] - sum(player.state.target(spec.model) for spec in specs)
        if missing <= 0:
            break
        spec = player.random.choice(small)
        target = player.state.target(spec.model)
        more = min(missing, sizes["replicas"] // 500)
        player.answer(player.feed("fill", DeployRequested(wanted=(Wanted(spec=spec, replicas=target + more),), at=0.0)))
        waiting = sorted({*player.state.wanted_replicas(spec.model)} - {*player.state.hot_replicas(spec.model)})
        if waiting:
            small.remove(spec)
        for replica_id in waiting:
            player.answer(player.feed("fill", EvictRequested(replica_id=replica_id, at=0.0)))
    replica_ids = sorted(player.state.replicas)
    player.now = 1000.0
    for _ in range(sizes["replicas"] // 2):
        replica_id = player.random.choice(replica_ids)
        at = player.random.uniform(600.0, 1000.0)
        player.feed("used", ReplicaUsed(replica_id=replica_id, in_flight=player.random.choice((0, 0, 1, 3)), at=at))
    return player, specs, time.process_time() - begin


def tight(player: Player, specs: list[ModelSpec]) -> ModelSpec:
    """A model that has to displace somebody, if twenty tries find one."""
    for spec in player.random.choices(specs, k=20):
        if any(place.displaces for place in plan_residency(player.state, player.one_more(spec)).placed):
            break
    return spec


def measure(sizes: dict[str, int]) -> tuple[Player, float]:
    player, specs, prepared_s = filled(sizes)
    # The first to look for so many GPUs waits for an index of all nodes, which is not what is measured.
    for spec in specs[:30]:
        player.request(player.one_more(spec))
    player.recording = True
    for turn in range(sizes["rounds"]):
        player.now += 1.0
        spec = tight(player, specs) if turn % 2 else player.random.choice(specs)
        player.request(player.one_more(spec))
        player.answer(player.feed("one replica fewer", player.one_fewer(spec)))
        serving = player.state.hot_replicas(player.random.choice(specs).model)
        if serving:
            player.feed("ReplicaUsed", ReplicaUsed(replica_id=player.random.choice(serving), in_flight=1, at=player.now))
    return player, prepared_s


def crowded(each_s: dict[str, list[float]], waiting: int, rounds: int) -> None:
    """One GPU becomes free after another while so many models wait for one, each asked for by itself."""
    for fits, waits_for_gb in (("none", 60), ("one", 20)):
        player = Player(11)
        nodes = (rounds + GPUS - 1) // GPUS
        for number in range(nodes):
            player.feed("join", NodeJoined(node_id=f"node-{number:03}", gpu_bytes=(80 * GB,) * GPUS, at=0.0))
        # 50 GB, of which nobody is displaced for any other.
        stays = [ModelSpec(model=f"stays-{number}", weight_bytes=50 * GB, dedicated=True) for number in range(nodes * GPUS)]
        for spec in stays:
            player.answer(player.feed("deploy", DeployRequested(wanted=(Wanted(spec=spec),), at=0.0)))
        for number in range(waiting):
            # Those that wait for 60 GB and more would need what 50 GB leave free beside 30 GB of others.
            spec = ModelSpec(model=f"waits-{number}", weight_bytes=(waits_for_gb + 11) * GB + number, dedicated=True)
            player.answer(player.feed("deploy", DeployRequested(wanted=(Wanted(spec=spec),), at=0.0)))
        for number in range(nodes):
            small = ModelSpec(model=f"small-{number}", weight_bytes=20 * GB, gpus=1, dedicated=True)
            player.answer(player.feed("deploy", DeployRequested(wanted=(Wanted(spec=small, replicas=GPUS),), at=0.0)))
        for spec in stays[:rounds]:
            player.now += 1.0
            (command,) = player.feed("evict", EvictRequested(model=spec.model, at=player.now))
            assert not isinstance(command, WakeAt)
            player.recording = True
            freed = OffloadFinished(replica_id=command.replica_id, move=command.move, at=player.now)
            commands = player.feed(f"room is freed, {waiting:,} models wait, {fits} of which goes in", freed)
            player.recording = False
            assert bool(commands) is (fits == "one")
            player.answer(commands)
        for kind, each in player.each_s.items():
            each_s[kind] += each


def lined_up(each_s: dict[str, list[float]], nodes: int, waiting: int, rounds: int) -> None:
    """One model more waits on a full cluster, where the first in line waits for somebody's turn to end; calls begin and end."""
    player = Player(13)
    for number in range(nodes):
        player.feed("join", NodeJoined(node_id=f"node-{number:05}", gpu_bytes=(80 * GB,) * GPUS, at=0.0))
    stays = ModelSpec(model="stays", weight_bytes=70 * GB, min_hot_s=3600.0)
    player.answer(player.feed("deploy", DeployRequested(wanted=(Wanted(spec=stays, replicas=nodes * GPUS),), at=0.0)))
    serving = player.state.hot_replicas(stays.model)
    for number in range(waiting + rounds):
        player.recording = number >= waiting
        player.now += 0.01
        spec = ModelSpec(model=f"waits-{number}", weight_bytes=(20 + number % 50) * GB + number)
        player.feed(f"one more waits, {waiting:,} do", DeployRequested(wanted=(Wanted(spec=spec),), at=player.now))
        for in_flight in (1, 0):
            used = ReplicaUsed(replica_id=player.random.choice(serving), in_flight=in_flight, at=player.now)
            player.feed(f"ReplicaUsed, {waiting:,} wait", used)
    for kind, each in player.each_s.items():
        each_s[kind] += each


def run(quick: bool) -> None:
    """Measure, print and save."""
    sizes = QUICK_SIZES if quick else SIZES
    player, prepared_s = measure(sizes)
    crowded(player.each_s, QUICK_WAITING if quick else WAITING, sizes["rounds"])
    lined_up(player.each_s, sizes["nodes"], QUICK_WAITING if quick else WAITING, sizes["rounds"])
    phases: dict[str, int] = defaultdict(int)
    for record in player.state.replicas.values():
        phases[record.phase.value] += 1
    gpus = [gpu for node in player.state.nodes.values() for gpu in node.gpus]
    free = sum(gpu.free_bytes for gpu in gpus) / sum(gpu.capacity_bytes for gpu in gpus)
    print(f"Residency: {sizes['nodes']:,} nodes of {GPUS} GPUs, {free:.0%} of their memory free; made in {prepared_s:.0f} s")
    print(f"replicas: {dict(sorted(phases.items()))}")
    rows, saved = [], {}
    for kind, each in sorted(player.each_s.items()):
        ordered = sorted(each)
        median, p99 = ordered[len(ordered) // 2] * 1e6, ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] * 1e6
        rows.append([kind, f"{len(each):,}", duration(median), duration(p99), duration(ordered[-1] * 1e6)])
        saved[kind] = {"count": len(each), "median_us": median, "p99_us": p99, "max_us": ordered[-1] * 1e6}
    print_table(["step", "times", "median", "p99", "max"], rows)
    print(f"saved: {save('residency', {'sizes': sizes, 'replicas': dict(phases), 'events': saved})}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.residency", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="500 nodes instead of 10,000")
    run(parser.parse_args().quick)
