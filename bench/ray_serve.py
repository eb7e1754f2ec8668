"""`make bench-ray`, or `python -m bench.ray_serve`: recovery, scaling and calls on a local cluster, beside Ray Serve.

Each system runs in a process of its own with a fresh cluster, taking turns, so that whatever else the machine does hits all
of them alike. Both are looked at in the same way: from outside, by calling replicas through the handle, which answer with
the rank that they believe, their world size and their process.
"""

import argparse
import asyncio
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from bench.measure import save
from bench.turns import show, take_turns, tell

SYSTEMS = (
    "rankcore",
    "rankcore, spares=1",
    "Ray Serve",
    "Ray Serve, 1 s health checks",
    "Ray Serve, throughput",
    "bare actors",
)
IN_FLIGHT = 64
PATIENCE_S = 120.0
STEADY = 8
"""So many answers in a row have to agree before a world counts as contiguous; the time is that of the first of them."""

ROWS = {
    "start of 1, s": "start 1",
    "start of 8, s": "start 8",
    "start of 16, s": "start 16",
    "kill to replacement, same rank, s": "replacement",
    "downscale 4 -> 2 to contiguous ranks, s": "downscale",
    "controller kill to ranks known, s": "recovery",
    "delete of 2, s": "delete",
    "memory per idle replica, RSS MiB": "rss",
    "memory per idle replica, private MiB": "private",
    "calls a second, 64 in flight": "calls",
    "call p50, ms": "p50",
    "call p99, ms": "p99",
}


# -- the systems, each behind the same few questions


class Ours:
    """rankcore on Ray."""

    def __init__(self, spares: int) -> None:
        from executors import ray_gpu

        self.serve = ray_gpu

        @ray_gpu.deployment(name="Bench", ray_actor_options={"num_cpus": 0}, spares=spares, max_ongoing_requests=2 * IN_FLIGHT)
        class Bench:
            def __call__(self):
                context = ray_gpu.get_replica_context()
                return context.rank.rank, context.world_size, os.getpid()

            async def echo(self, value):
                return value

        self.spares = spares
        self.app = Bench
        # What every first deployment pays: the controller.
        ray_gpu.start(proxy_location="Disabled")

    def start(self, replicas: int) -> Any:
        return self.serve.run(self.app.options(num_replicas=replicas).bind(), timeout_s=PATIENCE_S, route_prefix=None)

    def scale(self, replicas: int) -> None:
        by_rank = self.serve.status().deployments["Bench"].ranks
        # The hard case: those stay whose ranks have to change.
        self.serve.scale("Bench", replicas, stop_first=[by_rank[rank] for rank in range(len(by_rank) - replicas)])

    def settle(self) -> None:
        wait_for(lambda: self.serve.status().deployments["Bench"].spares == self.spares)

    def kill_controller(self) -> None:
        os.kill(self.serve.status().controller_pid, signal.SIGKILL)

    def ranks_known(self) -> list[int]:
        info = self.serve.status().deployments.get("Bench")
        return sorted(info.ranks) if info is not None and info.status == "HEALTHY" else []

    def delete(self) -> None:
        self.serve.delete("Bench")

    def shutdown(self) -> None:
        self.serve.shutdown()


class Serve:
    """Ray Serve."""

    def __init__(self, period_s: float | None) -> None:
        from ray import serve

        self.serve = serve
        options = {} if period_s is None else {"health_check_period_s": period_s}

        @serve.deployment(name="Bench", ray_actor_options={"num_cpus": 0}, max_ongoing_requests=2 * IN_FLIGHT, **options)
        class Bench:
            def __call__(self):
                context = serve.get_replica_context()
                return context.rank.rank, context.world_size, os.getpid()

            async def echo(self, value):
                return value

        self.app = Bench
        serve.start(proxy_location="Disabled")

    def start(self, replicas: int) -> Any:
        return self.serve.run(self.app.options(num_replicas=replicas).bind(), name="bench", route_prefix=None)

    def scale(self, replicas: int) -> None:
        threading.Thread(target=self.start, args=(replicas,), daemon=True).start()

    def settle(self) -> None:
        """It has no spares."""

    def _controller(self) -> Any:
        import ray

        return ray.get_actor("SERVE_CONTROLLER_ACTOR", namespace="serve")

    def kill_controller(self) -> None:
        import ray

        os.kill(ray.get(self._controller().get_pid.remote()), signal.SIGKILL)

    def ranks_known(self) -> list[int]:
        import ray
        from ray.serve._private.common import DeploymentID

        mapping = ray.get(self._controller()._get_replica_ranks_mapping.remote(DeploymentID("Bench", "bench")))
        return sorted(getattr(rank, "rank", rank) for rank in mapping.values())

    def delete(self) -> None:
        self.serve.delete("bench")

    def shutdown(self) -> None:
        self.serve.shutdown()


# -- what is measured


def measure(name: str, quick: bool) -> dict[str, float]:
    """Everything about one system, on a fresh cluster of this process."""
    from tests.ray_local import start_ray

    start_ray()
    import ray

    try:
        if name == "bare actors":
            return bare(quick)
        if name == "Ray Serve, throughput":
            return {**memory_of(serve := Serve(None), 1), **asyncio.run(throughput_of(serve, quick))}
        system = Ours(int(name.endswith("spares=1"))) if name.startswith("rankcore") else Serve(1.0 if "1 s" in name else None)
        return lifecycle(system, name, quick)
    finally:
        ray.shutdown()


def lifecycle(system: Any, name: str, quick: bool) -> dict[str, float]:
    """Start, kill, downscale, crash of the controller, deletion, calls."""
    found: dict[str, float] = {}
    if name in ("rankcore", "Ray Serve"):
        for replicas in (1, 8) if quick else (1, 8, 16):
            begin = time.monotonic()
            handle = system.start(replicas)
            ask(handle)
            found[f"start {replicas}"] = time.monotonic() - begin
            if replicas == 8:
                found |= memory(ranks_by_calls(handle, 8))
            system.delete()
    handle = system.start(4)
    pids = ranks_by_calls(handle, 4)
    system.settle()
    found["replacement"] = replacement(handle, pids, 1)
    if name not in ("rankcore", "Ray Serve"):
        return found
    ranks_by_calls(handle, 4)
    system.settle()
    begin = time.monotonic()
    system.scale(2)
    found["downscale"] = contiguous(handle, 2) - begin
    wait_for(lambda: system.ranks_known() == [0, 1])
    system.kill_controller()
    begin = time.monotonic()
    wait_for(lambda: system.ranks_known() == [0, 1])
    found["recovery"] = time.monotonic() - begin
    found |= asyncio.run(calls_of(handle, quick))
    begin = time.monotonic()
    system.delete()
    found["delete"] = time.monotonic() - begin
    system.shutdown()
    return found


def ask(handle: Any) -> tuple[int, int, int]:
    """Rank, world size and process of whichever replica answers; asks again while replicas die."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return handle.remote().result(timeout_s=PATIENCE_S)
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.005)


def ranks_by_calls(handle: Any, replicas: int) -> dict[int, int]:
    """Who has which rank, found by calling until all have answered."""
    pids: dict[int, int] = {}
    wait_for(lambda: pids.update([(answer[0], answer[2])] if (answer := ask(handle)) else []) or len(pids) == replicas)
    return pids


def replacement(handle: Any, pids: dict[int, int], rank: int) -> float:
    """Seconds from the death of a rank's process to the first answer of another one with that rank."""
    os.kill(pids[rank], signal.SIGKILL)
    begin = time.monotonic()
    wait_for(lambda: (answer := ask(handle))[0] == rank and answer[2] != pids[rank])
    return time.monotonic() - begin


def contiguous(handle: Any, replicas: int) -> float:
    """When all that answered had ranks below the world size, each rank had one process, and the world size was right."""
    since, seen = 0.0, []
    while len(seen) < STEADY or len({rank for rank, _, _ in seen}) < replicas:
        rank, world_size, pid = ask(handle)
        if world_size != replicas or rank >= replicas or any(other == rank and one != pid for other, _, one in seen):
            seen = []
            continue
        if not seen:
            since = time.monotonic()
        seen.append((rank, world_size, pid))
    return since


async def calls_of(handle: Any, quick: bool) -> dict[str, float]:
    """Calls a second and their times, as asyncio tasks that each make one call after the other."""
    taken: list[float] = []
    left = 1_000 if quick else 6_000

    async def caller(count: int) -> None:
        for _ in range(count):
            begin = time.perf_counter()
            await handle.echo.remote(1)
            taken.append(time.perf_counter() - begin)

    await asyncio.gather(*(caller(5) for _ in range(IN_FLIGHT)))
    taken.clear()
    begin = time.perf_counter()
    await asyncio.gather(*(caller(left // IN_FLIGHT) for _ in range(IN_FLIGHT)))
    return summary(taken, time.perf_counter() - begin)


def summary(taken: list[float], elapsed: float) -> dict[str, float]:
    """Calls a second, median and 99th percentile."""
    taken.sort()
    return {
        "calls": len(taken) / elapsed,
        "p50": taken[len(taken) // 2] * 1e3,
        "p99": taken[int(len(taken) * 0.99)] * 1e3,
    }


def memory_of(system: Any, replicas: int) -> dict[str, float]:
    """Deploys, for those of which nothing else is wanted."""
    system.start(replicas)
    return {}


async def throughput_of(system: Any, quick: bool) -> dict[str, float]:
    """Calls of two replicas; with its throughput settings Ray Serve's handles work within an event loop only."""
    await asyncio.to_thread(system.start, 2)
    return await calls_of(system.serve.get_deployment_handle("Bench", "bench"), quick)


def bare(quick: bool) -> dict[str, float]:
    """Actors of Ray Core without anything: what all others are built on."""
    import ray

    @ray.remote(num_cpus=0)
    class Bare:
        async def echo(self, value):
            return value

        async def pid(self):
            return os.getpid()

    actors = [Bare.remote() for _ in range(8)]
    pids = dict(enumerate(ray.get([actor.pid.remote() for actor in actors])))

    class Handle:
        turn = 0

        class echo:
            @staticmethod
            def remote(value):
                Handle.turn = 1 - Handle.turn
                return actors[Handle.turn].echo.remote(value)

    return {**memory(pids), **asyncio.run(calls_of(Handle, quick))}


def memory(pids: dict[int, int]) -> dict[str, float]:
    """Medians over processes: resident, and what of that no other process shares."""
    resident, private = [], []
    for pid in pids.values():
        with open(f"/proc/{pid}/smaps_rollup") as file:
            fields = {line.split(":")[0]: int(line.split()[1]) for line in file if line.endswith("kB\n")}
        resident.append(fields["Rss"] / 1024)
        private.append((fields["Private_Clean"] + fields["Private_Dirty"]) / 1024)
    return {"rss": statistics.median(resident), "private": statistics.median(private)}


def wait_for(condition: Callable[[], Any]) -> None:
    """Until a condition holds."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            if condition():
                return
        except Exception:
            if time.monotonic() > deadline:
                raise
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {PATIENCE_S:g} s")
        time.sleep(0.002)


# -- the whole


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ray_serve", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round, and fewer replicas and calls")
    parser.add_argument("--rounds", type=int, default=3, help="how often each system runs; the table shows medians")
    parser.add_argument("--systems", default=",".join(map(str, range(len(SYSTEMS)))), help=argparse.SUPPRESS)
    parser.add_argument("--child", choices=SYSTEMS, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        tell(measure(chosen.child, chosen.quick))
        return
    systems = [SYSTEMS[int(index)] for index in chosen.systems.split(",")]
    quick = ["--quick"] if chosen.quick else []
    found, broken_off = take_turns("bench.ray_serve", systems, 1 if chosen.quick else chosen.rounds, ROWS, quick)
    show(found, ROWS)
    print(f"\nall measurements: {save('ray_serve', {'systems': found})}")
    sys.exit(130 if broken_off else 0)


if __name__ == "__main__":
    main()
