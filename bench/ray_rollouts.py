"""`python -m bench.ray_rollouts`: who serves while four replicas are updated, beside Ray Serve.

Five changes are made under a steady load: a good version, one whose `__init__` raises, a user_config that `reconfigure`
refuses, a version that dies a second after it was ready, and a node that is drained. On four places one replica of four may be
out of service (`max_unavailable=1`; `rolling_update_percentage=0.25`). Where there is a fifth place nobody has to be
(`hand_over="overlap"`, `max_surge=1`, `max_unavailable=0`). All are looked at from outside alone: by which processes answer. A
process serves at a moment if it answered within half a second of it; the load is some 60 calls a second, so that each of four
is asked ten times in that.
"""

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, TypeAlias

from bench.measure import save
from bench.turns import show, take_turns, tell

SYSTEMS = ("rankcore", "rankcore, overlap", "Ray Serve")
PLACES = 4
LEFT_AT_LEAST = 3
START_S = 1.0
DIES_AFTER_S = 1.0
DEADLINE_S = 30
CALLERS = 4
PAUSE_S = 0.05
WINDOW_S = 1.0
WATCHED_S = 60.0
"""So long a change that cannot succeed is looked at, and so long at most one that can."""
GOOD, BROKEN, DYING = "good", "broken", "dying"
CHANGES = ("good version", "bad version", "bad config", "crash loop", "drained node")

ROWS = {
    f"{change}: {title}": f"{change} {key}"
    for change in CHANGES
    for title, key in (
        (f"fewer than {LEFT_AT_LEAST} serve, s at a stretch", "below"),
        ("fewest that serve", "least"),
        ("calls, failed", "failed"),
        ("calls, answered", "answered"),
        ("change to its end, s", "took"),
        ("serve at the end", "end"),
    )
}


class Model:
    """Answers with its process and version; breaks as its version and user_config say."""

    def __init__(self, version: str) -> None:
        time.sleep(START_S)
        if version == BROKEN:
            raise RuntimeError("this version is broken")
        if version == DYING:
            threading.Timer(DIES_AFTER_S, os._exit, (1,)).start()
        self.version = version

    def reconfigure(self, config: dict[str, Any]) -> None:
        """Take a user_config, if it is a good one."""
        if config["bad"]:
            raise RuntimeError("this user_config is bad")

    def __call__(self) -> tuple[int, str]:
        return os.getpid(), self.version


class Ours:
    """rankcore on Ray."""

    places = PLACES
    options: ClassVar[dict[str, Any]] = {"max_unavailable": 1}

    def __init__(self) -> None:
        from executors import ray_gpu

        self.serve = ray_gpu
        options = {"num_replicas": PLACES, "ray_actor_options": {"num_cpus": 1}, **self.options}
        self.app = ray_gpu.deployment(name="Bench", health_check_period_s=1.0, **options)(Model)

    def run(self, version: str, *, bad: bool = False, wait: bool = True) -> Any:
        return self.serve.run(self.app.options(user_config={"bad": bad}).bind(version), wait=wait, route_prefix=None)

    def is_settled(self) -> bool:
        return self.serve.status().deployments["Bench"].status == "HEALTHY"

    def end(self) -> None:
        self.serve.shutdown()


class Overlapping(Ours):
    """The same with a place more, so that nobody has to be out of service: successors serve before they have their ranks."""

    places = PLACES + 1
    options: ClassVar[dict[str, Any]] = {
        "max_unavailable": 0,
        "max_surge": 1,
        "hand_over": "overlap",
        "min_ready_s": 2 * DIES_AFTER_S,
    }


class Serve:
    """Ray Serve."""

    places = PLACES

    def __init__(self) -> None:
        from ray import serve

        self.serve = serve
        options = {"num_replicas": PLACES, "rolling_update_percentage": 0.25, "ray_actor_options": {"num_cpus": 1}}
        self.app = serve.deployment(name="Bench", health_check_period_s=1.0, **options)(Model)

    def run(self, version: str, *, bad: bool = False, wait: bool = True) -> Any:
        application = self.app.options(user_config={"bad": bad}).bind(version)
        if wait:
            return self.serve.run(application, name="bench", route_prefix=None)
        return self.serve._run(application, name="bench", route_prefix=None, _blocking=False)

    def is_settled(self) -> bool:
        return all(each.status == "HEALTHY" for each in self.serve.status().applications["bench"].deployments.values())

    def end(self) -> None:
        self.serve.shutdown()


KINDS: dict[str, type[Any]] = dict(zip(SYSTEMS, (Ours, Overlapping, Serve), strict=True))


class Load:
    """A steady load, and what came of it: when which process of which version answered, and when a call failed."""

    def __init__(self, handle: Any) -> None:
        self.answers: list[tuple[float, int, str]] = []
        self.failures: list[tuple[float, str]] = []
        self._ended = threading.Event()
        self._callers = [threading.Thread(target=self._call, args=(handle,), daemon=True) for _ in range(CALLERS)]
        for caller in self._callers:
            caller.start()

    def _call(self, handle: Any) -> None:
        while not self._ended.wait(PAUSE_S):
            try:
                pid, version = handle.remote().result(timeout_s=10.0)
                self.answers.append((time.monotonic(), pid, version))
            except Exception as error:
                self.failures.append((time.monotonic(), repr(error)))

    def end(self) -> None:
        self._ended.set()
        for caller in self._callers:
            caller.join(20.0)

    def serving(self, at: float) -> dict[int, str]:
        """Who serves at a moment, and which version."""
        near = [each for each in self.answers if abs(each[0] - at) <= WINDOW_S / 2]
        return {pid: version for _, pid, version in near}


Serving: TypeAlias = dict[int, str]
"""Who serves: the processes, and which version each of them answers with."""
Change: TypeAlias = tuple[Callable[[Any, list[str]], object], Callable[[Serving, list[str]], bool]]
"""What is done, by a system and to nodes, and whether it is done with; one that cannot succeed never is."""

STEPS: dict[str, Change] = {
    "good version": (lambda system, _: system.run(GOOD, wait=False), lambda now, _: [*now.values()] == [GOOD] * PLACES),
    "bad version": (lambda system, _: system.run(BROKEN, wait=False), lambda *_: False),
    "bad config": (lambda system, _: system.run("first", bad=True, wait=False), lambda *_: False),
    "crash loop": (lambda system, _: system.run(DYING, wait=False), lambda *_: False),
    "drained node": (lambda _, nodes: drain(nodes[0]), lambda _, nodes: is_empty(nodes[0])),
}


def watch(system: Any, handle: Any, change: Change, nodes: list[str]) -> dict[str, float]:
    """Make a change under load, and see who serves until it is done."""
    load = Load(handle)
    time.sleep(2 * WINDOW_S)
    begin = time.monotonic()
    change[0](system, nodes)
    ended = None
    while time.monotonic() < begin + WATCHED_S:
        time.sleep(0.1)
        if change[1](load.serving(time.monotonic() - WINDOW_S / 2), nodes) and system.is_settled():
            ended = time.monotonic() - WINDOW_S / 2
            break
    time.sleep(2 * WINDOW_S)
    load.end()
    last = time.monotonic() - 2 * WINDOW_S
    counts = [len(load.serving(begin + step / 10)) for step in range(int((last - begin) * 10))]
    if load.failures:
        print(sorted({text for _, text in load.failures})[:3], file=sys.stderr)
    found = {
        "below": longest_below(counts) / 10,
        "least": min(counts),
        "failed": len(load.failures),
        "answered": len(load.answers),
        "end": len(load.serving(last)),
    }
    return found | ({} if ended is None else {"took": ended - begin})


def longest_below(counts: list[int]) -> int:
    """How many samples in a row were below what has to be left."""
    longest = current = 0
    for count in counts:
        current = current + 1 if count < LEFT_AT_LEAST else 0
        longest = max(longest, current)
    return longest


def measure(name: str, changes: list[str]) -> None:
    """Each change on a fresh deployment; what was found is handed on as it comes."""
    made = KINDS[name]
    for change in changes:
        with cluster(made.places, drains=change == "drained node") as nodes:
            system = made()
            handle = system.run("first")
            while not system.is_settled():
                time.sleep(0.1)
            found = watch(system, handle, STEPS[change], nodes)
            tell({f"{change} {key}": value for key, value in found.items()})
            system.end()


@contextmanager
def cluster(places: int, *, drains: bool) -> Iterator[list[str]]:
    """A cluster with so many places; where one node is to be drained, there is another with as many."""
    from tests.ray_local import add_node, several_nodes, start_ray

    if drains:
        with several_nodes() as nodes:
            yield [add_node(nodes, num_cpus=places).node_id, add_node(nodes, num_cpus=places).node_id]
        return
    start_ray(num_cpus=places)
    import ray

    try:
        yield []
    finally:
        ray.shutdown()


def drain(node_id: str) -> None:
    """Tell Ray that a node goes soon, as its autoscaler does of one that is preempted."""
    import ray

    address = ray.get_runtime_context().gcs_address
    reason = ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "spot"]
    command = ["ray", "drain-node", "--address", address, "--node-id", node_id, *reason]
    binary = os.path.join(os.path.dirname(sys.executable), command[0])
    subprocess.run([binary, *command[1:], "--deadline-remaining-seconds", str(DEADLINE_S)], check=True, capture_output=True)


def is_empty(node_id: str) -> bool:
    """Whether no process of a replica is on a node."""
    from ray._private.state import actors  # the state API asks a dashboard, which these clusters do not have

    alive = [each for each in actors().values() if each["State"] == "ALIVE" and each["Address"]["NodeID"] == node_id]
    return not any("Replica" in each["ActorClassName"] for each in alive)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ray_rollouts", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often each system runs; the table shows medians")
    parser.add_argument("--changes", default=",".join(CHANGES), help="which, with commas between them [default: all]")
    parser.add_argument("--child", choices=SYSTEMS, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        return measure(chosen.child, chosen.changes.split(","))
    found, broken_off = take_turns("bench.ray_rollouts", SYSTEMS, chosen.rounds, ROWS, ["--changes", chosen.changes])
    show(found, ROWS)
    print(f"\nall measurements: {save('ray_rollouts', {'systems': found})}")
    sys.exit(130 if broken_off else 0)


if __name__ == "__main__":
    main()
