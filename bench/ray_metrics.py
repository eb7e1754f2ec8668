"""`python -m bench.ray_metrics`: what metrics, and a line for each request, cost calls.

One cluster, and a process with a namespace, a replica and 64 calls in flight for each side. They take turns of a second or so,
in every other round the other way round, and each round compares neighbours; what is reported is the median of the rounds'
ratios, with the middle half: of calls a second, and of the processor time of caller and replica together for a call, which
others on the machine disturb less. `without` publishes nothing; with `--before FOLDER` it is the code of another tree, which
may have no metrics at all. `with, twice` is the same as `with`, in processes of its own: how far two of the same are apart.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.measure import print_table, save

IN_FLIGHT = 64
WARM_UP_S = 1.0
SIDES: dict[str, dict[str, str]] = {
    "without": {"RANKCORE_METRICS": "0"},
    "with": {},
    "with, twice": {},
    "with an access log": {},
}


async def measured_once(handle: Any, seconds: float) -> tuple[float, float]:
    """Calls a second with so many in flight, and microseconds of processor time for each."""
    end, done = time.perf_counter() + seconds, 0

    async def call_on() -> None:
        nonlocal done
        while time.perf_counter() < end:
            await handle.remote(1)
            done += 1

    used_s = await handle.used_s.remote()
    began, own_s = time.perf_counter(), time.process_time()
    await asyncio.gather(*(call_on() for _ in range(IN_FLIGHT)))
    took_s, own_s = time.perf_counter() - began, time.process_time() - own_s
    return done / took_s, (own_s + await handle.used_s.remote() - used_s) / done * 1e6


def be_side(name: str, address: str) -> None:
    """In a child: deploy, and measure as often as a line with seconds comes."""
    import ray

    from executors import ray_gpu as serve

    namespace = "bench-" + "".join(each for each in name if each.isalpha())
    ray.init(address=address, namespace=namespace, runtime_env={"env_vars": SIDES[name]}, logging_level="error")
    more: dict[str, Any] = {"logging_config": {}} if "access" in name else {}

    @serve.deployment(max_ongoing_requests=100, ray_actor_options={"num_cpus": 0}, **more)
    class Same:
        async def __call__(self, x: int) -> int:
            return x

        async def used_s(self) -> float:
            return time.process_time()

    handle = serve.run(Same.bind(), namespace=namespace, route_prefix=None)
    asyncio.run(measured_once(handle, WARM_UP_S))
    print("ready", flush=True)
    try:
        for line in sys.stdin:
            print(json.dumps(asyncio.run(measured_once(handle, float(line)))), flush=True)
    finally:
        serve.shutdown(namespace=namespace, timeout_s=10.0)


class Side:
    """One of them, in a process of its own."""

    def __init__(self, name: str, address: str, folder: Path) -> None:
        env = {**os.environ, **SIDES[name], "PYTHONPATH": str(folder), "RAY_USAGE_STATS_ENABLED": "0"}
        command = [sys.executable, __file__, "--child", name, "--address", address]
        self._process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder)
        self._until("ready")

    def _until(self, wanted: str | None = None) -> str:
        assert self._process.stdout is not None, "it is a pipe"
        for line in self._process.stdout:
            if (wanted is None and line[:1] == "[") or line.strip() == wanted:
                return line
        raise RuntimeError("a side has ended")

    def measure(self, seconds: float) -> tuple[float, float]:
        """As `measured_once`."""
        assert self._process.stdin is not None, "it is a pipe"
        print(seconds, file=self._process.stdin, flush=True)
        rate, used_us = json.loads(self._until())
        return rate, used_us

    def end(self) -> None:
        """With what it has deployed."""
        assert self._process.stdin is not None, "it is a pipe"
        self._process.stdin.close()
        self._process.wait(60.0)


def measured(rounds: int, seconds: float, before: Path | None) -> dict[str, list[tuple[float, float]]]:
    """Of each side, round by round, what `measured_once` says."""
    import ray

    here = Path(__file__).parents[1]
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in SIDES}
    address = ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False).address_info["gcs_address"]
    sides: dict[str, Side] = {}
    try:
        for name in SIDES:
            sides[name] = Side(name, address, before if before is not None and name == "without" else here)
        for turn in range(rounds):
            for name in SIDES if turn % 2 == 0 else reversed(SIDES):
                found[name].append(sides[name].measure(seconds))
            said = ", ".join(f"{each[-1][0]:,.0f} calls/s at {each[-1][1]:.1f} us" for each in found.values())
            print(f"round {turn + 1} of {rounds}: {said}", file=sys.stderr, flush=True)
    finally:
        for side in sides.values():
            side.end()
        ray.shutdown()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ray_metrics", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each side in each round")
    parser.add_argument("--before", type=Path, help="a folder with the code that `without` is to be")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        return be_side(chosen.child, chosen.address)
    found = measured(chosen.rounds, chosen.seconds, chosen.before)
    rows = []
    for name, values in found.items():
        row = [name]
        for which in (0, 1):
            ratios = [100.0 * (one[which] / other[which] - 1.0) for one, other in zip(values, found["without"], strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            row += [f"{statistics.median(each[which] for each in values):,.1f}", f"{middle:+.1f} % ({low:+.1f} to {high:+.1f})"]
        rows.append(row)
    print_table(["", "calls/s", "against without", "us of processor for a call", "against without"], rows)
    save("ray_metrics", {"rounds": chosen.rounds, "seconds": chosen.seconds, "measured": found})


if __name__ == "__main__":
    main()
