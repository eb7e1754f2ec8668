"""`make soak`, or `python -m bench.soak`: a steady load while replicas, proxies and the controller are killed and stopped.

Each request has to get exactly one answer, its own. Of those whose deployment is idempotent none may fail; of the others only
those that a killed replica had under way, and none of them may be run twice. HTTP requests may break off when their proxy is
killed, and a new proxy whose controller is stopped before it has told the routes may turn them away (503). Proxies and
controllers that are stopped (SIGSTOP) for a moment have to live on, those that are stopped for longer to be replaced, and a
controller that goes on while it is replaced has to end. Nothing may leak: files, threads and memory of every process are
followed from the tenth second of its life to its end. One replica of each deployment, and a second proxy, are spared, so that
there are some that live long; so are the callers. The number of processes may not grow, and in the end no process and no socket
may be left. Exits with 1 if any of it does not hold, and says what.
"""

import argparse
import http.client
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import ray

from bench.soak_faults import SILENCE, do_something
from bench.soak_watch import Watch, descendants
from executors import ray_gpu as serve
from executors.ray_gpu import socket_files
from executors.ray_gpu.deploying import wait_until_healthy
from executors.ray_gpu.errors import ReplicaGoneError
from executors.ray_gpu.http.options import HttpOptions
from executors.ray_gpu.http.proxy_app import UNKNOWN_YET
from executors.ray_gpu.names import DEFAULT_NAMESPACE
from executors.ray_gpu.overview import Status
from executors.ray_gpu.proxies.options import ProxyOptions
from executors.ray_gpu.proxies.proxy import Proxy
from executors.ray_gpu.socket_files import PREFIX, owner_of

CALLERS, CLIENTS = 4, 2
FAULT_EVERY_S = 3.0
SETTLE_S = 60.0
PROCESSES_MORE = 6
"""So many more processes than at first there may be: workers that Ray keeps for what comes next."""
WARM_UP_S = 5.0
SPARED = "spared proxy"


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

    def turned_away(self) -> None:
        with self.lock:
            self.counts["routes not known yet"] += 1

    def failed(self, asked: str, error: BaseException, allowed: bool) -> None:
        with self.lock:
            self.counts[type(error).__name__] += 1
            if not allowed:
                self.wrong.append(f"{asked} failed: {type(error).__name__}: {error}"[:300])


class Load:
    """Callers and clients that go on until they are told to stop."""

    def __init__(self, ports: dict[str, int], handles: dict[str, Any]) -> None:
        self.stop = threading.Event()
        self.tallies = {name: Tally() for name in (*handles, *ports)}
        jobs = [(self._call, name, handle, number) for name, handle in handles.items() for number in range(CALLERS)]
        jobs += [(self._ask, name, port, number) for name, port in ports.items() for number in range(CLIENTS)]
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
                elif name != SPARED and (response.status, body) == (UNKNOWN_YET.status, UNKNOWN_YET.text):
                    tally.turned_away()
                else:
                    tally.failed(asked, RuntimeError(f"{response.status} {body}"), allowed=False)
            except (OSError, http.client.HTTPException) as error:  # the proxy was killed, or is not up again
                tally.failed(asked, error, allowed=name != SPARED)
                connection.close()
                time.sleep(0.1)
            time.sleep(0.005)

    @property
    def answered(self) -> int:
        """How many requests were answered, of all kinds."""
        return sum(tally.counts["answered"] for tally in self.tallies.values())


def pids_of(status: Status) -> dict[str, list[int]]:
    """The processes of a cluster, by kind."""
    return {
        "replica": [each.pid for info in status.deployments.values() for each in info.replicas if each.pid is not None],
        "proxy": [each.pid for each in status.proxy_infos if each.pid],
        "controller": [status.controller_pid],
    }


def spared_proxy(port: int) -> tuple[Any, int]:
    """A proxy beside those that the controller keeps, which nobody kills; and its process."""
    actor: Any = (
        ray.remote(Proxy)
        .options(num_cpus=0, max_concurrency=1000)
        .remote(DEFAULT_NAMESPACE, ProxyOptions(http=HttpOptions(port=port)))
    )
    return actor, ray.get(actor.describe.remote())[0]


class Follower:
    """Looks at all processes, now and then."""

    def __init__(self, load: Load, folder: Path, proxy_pid: int, spared: set[int]) -> None:
        self.watch = Watch()
        self._load = load
        self._folder = folder
        self._proxy_pid = proxy_pid
        self._spared = spared

    def look(self, pids: dict[str, list[int]]) -> None:
        """Look at those that there are now."""
        tallies = self._load.tallies
        self.watch.look("callers", os.getpid(), self._load.answered)
        self.watch.look(SPARED, self._proxy_pid, tallies[SPARED].counts["answered"])
        for pid in pids["proxy"]:
            self.watch.look("proxy", pid, tallies["http"].counts["answered"])
        for pid in pids["replica"]:
            self.watch.look("spared replica" if pid in self._spared else "replica", pid, self._run_by(pid))
        for pid in pids["controller"]:
            self.watch.look("controller", pid, 0)

    def _run_by(self, pid: int) -> int:
        log = self._folder / f"{pid}.ids"
        return log.read_bytes().count(b"\n") if log.exists() else 0


def run_twice(folder: Path, prefix: str) -> list[str]:
    """Requests of a kind that were run more than once."""
    ids = Counter(line for path in folder.glob("*.ids") for line in path.read_text().split() if line.startswith(prefix))
    return [each for each, times in ids.items() if times > 1]


def soak(seconds: float, seed: int, port: int, folder: Path) -> tuple[list[str], set[int]]:
    """Load and faults for so long; returns what does not hold, and the processes that there were."""
    handles = {
        "again": serve.run(
            Worker.options(name="again", idempotent=True, max_retries=100).bind(str(folder)), name="again", route_prefix=None
        ),
        "once": serve.run(Worker.options(name="once").bind(str(folder)), name="once", route_prefix=None),
    }
    serve.start(http_options={"port": port}, proxy_location="HeadOnly")
    serve.run(Worker.options(name="web", idempotent=True, max_retries=100).bind(str(folder)), name="web", route_prefix="/")
    proxy, proxy_pid = spared_proxy(port + 1)
    spared = {info.replicas[0].pid for info in serve.status().deployments.values() if info.replicas[0].pid}
    load, chance, faults = Load({"http": port, SPARED: port + 1}, handles), random.Random(seed), Counter()
    for thread in load.threads:
        thread.start()
    time.sleep(min(WARM_UP_S, seconds / 3))
    follower = Follower(load, folder, proxy_pid, spared)
    broken: list[str] = []
    processes, began, shown = len(descendants(os.getpid())), time.monotonic(), 0.0
    while time.monotonic() - began < seconds:
        pids = pids_of(serve.status())
        follower.look(pids)
        fault, wrong = do_something(pids, chance, spared)
        faults[fault] += 1
        broken += wrong
        time.sleep(FAULT_EVERY_S * chance.random() * 2)
        if time.monotonic() - shown > 10:
            shown = time.monotonic()
            print(f"{shown - began:5.0f} s: {load.answered:,} answered, {dict(faults)}", file=sys.stderr, flush=True)
    for name in ("again", "once", "web"):
        wait_until_healthy(name, timeout_s=SETTLE_S)
    load.stop.set()
    for thread in load.threads:
        thread.join(SETTLE_S * 2)
    follower.look(pids_of(serve.status()))
    hanging = sum(thread.is_alive() for thread in load.threads)
    grown = len(descendants(os.getpid())) - processes
    ray.get(proxy.drain.remote())
    broken += [wrong for tally in load.tallies.values() for wrong in tally.wrong]
    broken += [f"{hanging} callers have no answer yet"] if hanging else []
    broken += [f"{each} was run twice, and must not be" for each in run_twice(folder, "once-")]
    broken += follower.watch.leaks()
    broken += [f"there are {grown} processes more than the {processes} of the beginning"] if grown > PROCESSES_MORE else []
    print(f"{seconds:.0f} s, {dict(faults)}; processes {processes} -> {processes + grown}")
    for name, tally in load.tallies.items():
        print(f"  {name:15} {dict(tally.counts)}")
    print("from the tenth second of a life, over its half time, to its end:")
    print("\n".join(follower.watch.table()))
    return broken, follower.watch.lives.keys() - {os.getpid(), proxy_pid}


def left_of(pids: set[int], sockets: Path) -> list[str]:
    """Processes and sockets that are still there, after a while."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        left = [f"process {pid} is left behind" for pid in pids if Path(f"/proc/{pid}").exists()]
        owners = {path: owner_of(path.name) for path in sockets.glob(f"{PREFIX}*")}  # those of other clusters too
        left += [f"{path} is left behind" for path, owner in owners.items() if owner is not None and owner[0] in pids]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.2)


def still_there(pids: set[int]) -> set[int]:
    """Those that have not ended after a while."""
    deadline = time.monotonic() + SETTLE_S
    while pids and time.monotonic() < deadline:
        time.sleep(0.2)
        pids = {pid for pid in pids if Path(f"/proc/{pid}").exists()}
    return pids


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="how long to go on (600)")
    parser.add_argument("--seed", type=int, default=0, help="of what is done when")
    parser.add_argument("--port", type=int, default=8023, help="for HTTP")
    chosen = parser.parse_args()
    for variable, seconds in SILENCE.items():
        os.environ.setdefault(variable, seconds)
    ray.init(address="local", num_cpus=4, include_dashboard=False, logging_level="error", log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder:
        try:
            broken, pids = soak(chosen.seconds, chosen.seed, chosen.port, Path(folder))
        finally:
            serve.shutdown(timeout_s=SETTLE_S)
    broken += left_of(pids, socket_files.folder())
    ray.shutdown()
    broken += [f"process {pid} is left behind by Ray" for pid in still_there(descendants(os.getpid()))]
    for each in broken[:20]:
        print(f"BROKEN: {each}")
    print("all of it holds" if not broken else f"{len(broken)} things do not hold")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
