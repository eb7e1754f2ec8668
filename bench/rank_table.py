"""The rank table alone, against the rank manager of Ray Serve: the same replicas on the same nodes, the same work."""

import random
from collections.abc import Iterator
from typing import Any

from bench.measure import Candidate, Timing, duration, interleave, print_table, save
from rankcore.ranks import RankTable
from rankcore.values import ReplicaRank

PER_NODE = 8
SIZES = ((1_000, 15), (10_000, 9), (100_000, 5))
QUICK_SIZES = ((1_000, 5), (10_000, 3))
PAIRS = 2_000
RAY, TABLE = "ray", "table"

try:
    from ray import __version__ as ray_version
    from ray.serve._private.deployment_state import DeploymentRankManager
    from ray.serve.schema import ReplicaRank as RayRank
except ImportError as error:
    PEER_MISSING = f"{type(error).__name__}: {error}"
else:
    PEER_MISSING = ""


class Stub:
    """What Ray's check looks at in a replica: `replica_id.unique_id`."""

    __slots__ = ("replica_id", "unique_id")

    def __init__(self, replica_id: str) -> None:
        self.unique_id = replica_id
        self.replica_id = self


class World:
    """N replicas, eight to a node, and a tenth of them chosen at random with a fixed seed."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.places = [(f"llm#1.{index}", f"node-{index // PER_NODE}") for index in range(size)]
        self.ranks = [(index, index // PER_NODE, index % PER_NODE) for index in range(size)]
        chosen = random.Random(size).sample(range(size), size // 10)
        self.tenth = [self.places[index] for index in chosen]
        stay = set(range(size)).difference(chosen)
        self.after_downscale = [Stub(self.places[index][0]) for index in sorted(stay)]
        self.all = [Stub(replica_id) for replica_id, _ in self.places]
        pairs = random.Random(size + 1).choices(range(size), k=PAIRS)
        # The slot of a crashed replica is refilled on its node; a slot may crash several times.
        self.crashes: list[tuple[str, str, str]] = []
        holder = [replica_id for replica_id, _ in self.places]
        for serial, index in enumerate(pairs):
            new = f"llm#1.{size + serial}"
            self.crashes.append((holder[index], new, self.places[index][1]))
            holder[index] = new
        nodes = sorted({node for _, node in self.places})
        others = random.Random(size + 2).choices(nodes, k=PAIRS)
        self.moves = [(old, new, node) for (old, new, _), node in zip(self.crashes, others, strict=True)]
        self.reports = [(*place, ReplicaRank(*rank)) for place, rank in zip(self.places, self.ranks, strict=True)]
        self.table = RankTable.recover(self.reports)[0]
        if not PEER_MISSING:
            self.ray_reports = [
                (*place, RayRank(rank=rank[0], node_rank=rank[1], local_rank=rank[2]))
                for place, rank in zip(self.places, self.ranks, strict=True)
            ]

    def ray(self) -> Any:
        manager = DeploymentRankManager()
        for replica_id, node_id, rank in self.ray_reports:
            manager.recover_rank(replica_id, node_id, rank)
        return manager

    def ray_after_downscale(self) -> Any:
        manager = self.ray()
        for replica_id, _ in self.tenth:
            manager.release_rank(replica_id)
        return manager

    def table_after_downscale(self) -> RankTable:
        ranks = self.table
        for replica_id, _ in self.tenth:
            ranks = ranks.release(replica_id)
        return ranks


def start_up(world: World) -> list[Candidate]:
    def ray(manager: Any) -> int:
        for replica_id, node_id in world.places:
            manager.assign_rank(replica_id, node_id)
        return world.size

    def table(ranks: RankTable) -> int:
        for replica_id, node_id in world.places:
            ranks, _ = ranks.assign(replica_id, node_id)
        return world.size

    return [
        Candidate(RAY, lambda: DeploymentRankManager(), ray),
        Candidate(TABLE, RankTable, table),
    ]


def crash_and_replace(world: World, crashes: list[tuple[str, str, str]]) -> list[Candidate]:
    def ray(manager: Any) -> int:
        for old_id, new_id, node_id in crashes:
            manager.release_rank(old_id)
            manager.assign_rank(new_id, node_id)
        return len(crashes)

    def table(ranks: RankTable) -> int:
        for old_id, new_id, node_id in crashes:
            ranks, _ = ranks.replace(old_id, new_id, node_id)
        return len(crashes)

    return [
        Candidate(RAY, world.ray, ray),
        Candidate(TABLE, lambda: world.table, table),
    ]


def mass_failure(world: World) -> list[Candidate]:
    def ray(manager: Any) -> int:
        for replica_id, _ in world.tenth:
            manager.release_rank(replica_id)
        for replica_id, node_id in world.tenth:
            manager.assign_rank(replica_id + "+", node_id)
        return len(world.tenth)

    def table(ranks: RankTable) -> int:
        for replica_id, _ in world.tenth:
            ranks = ranks.release(replica_id)
        for replica_id, node_id in world.tenth:
            ranks, _ = ranks.assign(replica_id + "+", node_id)
        return len(world.tenth)

    return [
        Candidate(RAY, world.ray, ray),
        Candidate(TABLE, lambda: world.table, table),
    ]


def check(world: World) -> list[Candidate]:
    def ray(manager: Any) -> int:
        assert manager.check_rank_consistency_and_reassign_minimally(world.all) == []
        return 1

    def ours(ranks: RankTable) -> int:
        for _ in range(1_000):
            ranks.compact()
        return 1_000

    return [
        Candidate(RAY, world.ray, ray),
        Candidate(TABLE, lambda: world.table, ours),
    ]


def compaction(world: World) -> list[Candidate]:
    moved: list[int] = []

    def ray(manager: Any) -> int:
        moved.append(len(manager.check_rank_consistency_and_reassign_minimally(world.after_downscale)))
        return 1

    def table(ranks: RankTable) -> int:
        moved.append(len(ranks.compact()[1]))
        assert len(set(moved)) == 1, "the candidates moved different numbers of replicas"
        return 1

    return [
        Candidate(RAY, world.ray_after_downscale, ray),
        Candidate(TABLE, world.table_after_downscale, table),
    ]


def recovery(world: World) -> list[Candidate]:
    def ray(_: None) -> int:
        world.ray()
        return world.size

    def table(_: None) -> int:
        RankTable.recover(world.reports)
        return world.size

    return [Candidate(name, lambda: None, work) for name, work in ((RAY, ray), (TABLE, table))]


def rows_of(world: World) -> Iterator[tuple[str, list[Candidate]]]:
    yield "assign, from empty", start_up(world)
    yield "crash and replace, same node", crash_and_replace(world, world.crashes)
    yield "crash and replace, another node", crash_and_replace(world, world.moves)
    yield "10 % fail, then are replaced; each", mass_failure(world)
    yield "check, nothing to do", check(world)
    yield "check and compact after -10 %", compaction(world)
    yield "recover, per replica", recovery(world)


def _cells(timings: dict[str, Timing], name: str) -> list[str]:
    if name not in timings:
        return ["-", "-"] if name == RAY else ["-", "-", "-"]
    cells = [duration(timings[name].median_us), f"±{timings[name].spread:.0%}"]
    if name != RAY:
        cells.append(f"{timings[name].times_faster_than(timings[RAY]):.3g}x" if RAY in timings else "-")
    return cells


def run(quick: bool) -> None:
    """Measure, print and save."""
    print("Rank table alone: time per operation (median, half the range), and how many times faster than Ray Serve")
    if PEER_MISSING:
        print(f"Ray Serve is missing, so there is nothing to compare with ({PEER_MISSING}).")
        print("Install it: pip install -c constraints.txt 'ray[serve]'")
    table, saved = [], []
    for size, repeats in QUICK_SIZES if quick else SIZES:
        world = World(size)
        for name, candidates in rows_of(world):
            present = [each for each in candidates if each.name != RAY or not PEER_MISSING]
            timings = {timing.name: timing for timing in interleave(present, repeats)}
            cells = [cell for column in (RAY, TABLE) for cell in _cells(timings, column)]
            table.append([name, f"{size:,}", *cells])
            saved.append({"row": name, "replicas": size, "each_us": {key: each.each_us for key, each in timings.items()}})
    print_table(["", "N", "Ray", "", "table", "", "ratio"], table)
    version = None if PEER_MISSING else ray_version
    print(f"saved: {save('rank_table', {'peer': version, 'peer_missing': PEER_MISSING, 'rows': saved})}")
