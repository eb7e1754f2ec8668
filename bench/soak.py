"""`make soak`, or `python -m bench.soak`: a steady load while replicas, proxies and the controller are killed.

Each request has to get exactly one answer, its own. Of those whose deployment is idempotent none may fail; of the others only
those that a killed replica had under way, and none of them may be run twice. HTTP requests may break off when their proxy is
killed. Nothing may leak: files, threads and memory of the callers' process, which outlives all others, are looked at, and no
process may be left in the end. Exits with 1 if any of it does not hold, and says what.
"""

import argparse
import http.client
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import ray

from executors import ray_gpu as serve
from executors.ray_gpu.api import wait_until_healthy
from executors.ray_gpu.errors import ReplicaGoneError

CALLERS, CLIENTS = 4, 2
KILL_EVERY_S = 3.0
SETTLE_S = 60.0
FILES_MORE, MEMORY_MORE = 40, 1.35
"""What a process may have gained since it was first looked at: sockets to present replicas; caches that fill up."""
WARM_UP_S = 5.0


@serve.deployment(num_replicas=3, max_ongoing_requests=16, ray_actor_options={"num_cpus": 0})
class Worker:
    """Answers with what it is asked, and writes down what it has run."""

    def __init__(self, folder):
        self.log = open(Path(folder) / f"{os.getpid()}.ids", "a", buffering=1)  # noqa: SIM115

    async def __call__(self, asked):
        value = asked if isinstance(asked, str) else (await asked.body()).decode()
        print(value, file=self.log)
        return value


class Tally:
    """What has become of the requests of one kind."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []

    def ok(self, asked: str, answered: str) -> None:
        with self.lock:
            self.counts["answered"] += 1
            if asked != answered:
                self.wrong.append(f"{asked} was answered with {answered}")

    def failed(self, asked: str, error: BaseException, allowed: bool) -> None:
        with self.lock:
            self.counts[type(error).__name__] += 1
            if not allowed:
                self.wrong.append(f"{asked} failed: {type(error).__name__}: {error}"[:300])


class Load:
    """Callers and clients that go on until they are told to stop."""

    def __init__(self, port: int, handles: dict[str, Any]) -> None:
        self.stop = threading.Event()
        self.tallies = {name: Tally() for name in (*handles, "http")}
        jobs = [(self._call, name, handle, number) for name, handle in handles.items() for number in range(CALLERS)]
        jobs += [(self._ask, "http", port, number) for number in range(CLIENTS)]
        self.threads = [threading.Thread(target=job[0], args=job[1:], daemon=True) for job in jobs]

    def _call(self, name: str, handle: Any, number: int) -> None:
        tally, serial = self.tallies[name], 0
        while not self.stop.is_set():
            serial += 1
            asked = f"{name}-{number}-{serial}"
            try:
                tally.ok(asked, handle.remote(asked).result(timeout_s=120))
            except ReplicaGoneError as error:
                tally.failed(asked, error, allowed=name == "once")
            except Exception as error:
                tally.failed(asked, error, allowed=False)
            time.sleep(0.002)

    def _ask(self, name: str, port: int, number: int) -> None:
        tally, serial = self.tallies[name], 0
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        while not self.stop.is_set():
            serial += 1
            asked = f"{name}-{number}-{serial}"
            try:
                connection.request("POST", "/", asked)
                response = connection.getresponse()
                body = response.read().decode()
                if response.status == 200:
                    tally.ok(asked, body)
                else:
                    tally.failed(asked, RuntimeError(f"{response.status} {body}"), allowed=False)
            except (OSError, http.client.HTTPException) as error:  # the proxy was killed, or is not up again
                tally.failed(asked, error, allowed=True)
                connection.close()
                time.sleep(0.1)
            time.sleep(0.005)


def kill_something(chance: random.Random) -> str:
    """Kill one process with SIGKILL; says which kind."""
    status = serve.status()
    kind = chance.choice(["replica", "replica", "replica", "proxy", "controller"])
    replicas = [each.pid for info in status.deployments.values() for each in info.replicas if each.pid is not None]
    pids = {
        "replica": replicas,
        "proxy": [each.pid for each in status.proxies if each.pid],
        "controller": [status.controller_pid],
    }
    if not pids[kind]:
        return "nothing"
    try:
        os.kill(chance.choice(pids[kind]), signal.SIGKILL)
    except ProcessLookupError:
        return "nothing"
    return kind


def look_at(pid: int) -> tuple[int, int, float]:
    """Open files, threads and resident memory in MiB of a process."""
    files = len(os.listdir(f"/proc/{pid}/fd"))
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return files, int(status["Threads"]), int(status["VmRSS"].split()[0]) / 1024


def run_twice(folder: Path, prefix: str) -> list[str]:
    """Requests of a kind that were run more than once."""
    ids = Counter(line for path in folder.glob("*.ids") for line in path.read_text().split() if line.startswith(prefix))
    return [each for each, times in ids.items() if times > 1]


def soak(seconds: float, seed: int, port: int, folder: Path) -> list[str]:
    """Load and kill for so long; returns what does not hold."""
    handles = {
        "again": serve.run(Worker.options(name="again", idempotent=True, max_retries=100).bind(str(folder)), name="again"),
        "once": serve.run(Worker.options(name="once").bind(str(folder)), name="once"),
    }
    serve.start(http_options={"port": port})
    serve.run(Worker.options(name="web", idempotent=True, max_retries=100).bind(str(folder)), name="web", route_prefix="/")
    load, chance, killed = Load(port, handles), random.Random(seed), Counter()
    for thread in load.threads:
        thread.start()
    time.sleep(min(WARM_UP_S, seconds / 3))
    before, began, shown = look_at(os.getpid()), time.monotonic(), 0.0
    while time.monotonic() - began < seconds:
        killed[kill_something(chance)] += 1
        time.sleep(KILL_EVERY_S * chance.random() * 2)
        if time.monotonic() - shown > 10:
            shown = time.monotonic()
            answered = sum(tally.counts["answered"] for tally in load.tallies.values())
            print(f"{shown - began:5.0f} s: {answered:,} answered, killed {dict(killed)}", file=sys.stderr, flush=True)
    for name in ("again", "once", "web"):
        wait_until_healthy(name, timeout_s=SETTLE_S)
    load.stop.set()
    for thread in load.threads:
        thread.join(SETTLE_S * 2)
    hanging = sum(thread.is_alive() for thread in load.threads)
    after = look_at(os.getpid())
    broken = [wrong for tally in load.tallies.values() for wrong in tally.wrong]
    broken += [f"{hanging} callers have no answer yet"] if hanging else []
    broken += [f"{each} was run twice, and must not be" for each in run_twice(folder, "once-")]
    if after[0] > before[0] + FILES_MORE or after[2] > before[2] * MEMORY_MORE + 30:
        broken.append(f"the callers' process had {before}, and has {after} files, threads, MiB")
    print(f"{seconds:.0f} s, killed {dict(killed)}; files, threads, MiB of the callers' process: {before} -> {after}")
    for name, tally in load.tallies.items():
        print(f"  {name:6} {dict(tally.counts)}")
    return broken


def left_behind(pids: set[int]) -> list[int]:
    """Processes of replicas, proxies and controller that are still there."""
    deadline = time.monotonic() + SETTLE_S
    while (left := [pid for pid in pids if Path(f"/proc/{pid}").exists()]) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="how long to go on (600)")
    parser.add_argument("--seed", type=int, default=0, help="of what is killed when")
    parser.add_argument("--port", type=int, default=8023, help="for HTTP")
    chosen = parser.parse_args()
    ray.init(address="local", num_cpus=4, include_dashboard=False, logging_level="error", log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder:
        try:
            broken = soak(chosen.seconds, chosen.seed, chosen.port, Path(folder))
            status = serve.status()
            pids = {each.pid for info in status.deployments.values() for each in info.replicas if each.pid}
            pids |= {each.pid for each in status.proxies if each.pid} | {status.controller_pid}
        finally:
            serve.shutdown(timeout_s=SETTLE_S)
    left = left_behind(pids)
    broken += [f"processes {left} are left behind"] if left else []
    for each in broken[:20]:
        print(f"BROKEN: {each}")
    print("all of it holds" if not broken else f"{len(broken)} things do not hold")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
