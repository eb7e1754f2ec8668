"""`python -m bench.crash_files [--ray]`: how many files of ours the crash of a replica passes through.

Whoever wants to understand, or mend, what happens after a crash reads these files. Of the pure core: the step that is told of
the crash, and all steps until the replacement runs, in a cluster with weights that may be COLD and in one without. With
`--ray`, in a real cluster: a replica's process is killed with SIGKILL, and a caller asks the rank that it had until it answers.
Each file of `executors` and `rankcore` counts of which a function was called meanwhile, in the controller, in the replicas and
in the caller. What of them runs anyway, while nothing happens, is said too.
"""

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import executors
import rankcore
from bench.measure import save
from rankcore.cluster import cluster_step
from rankcore.cluster.events import WorkerLost
from rankcore.events import ReplicaDied
from rankcore.testing.model_cluster.bounds import SYSTEMS, ClusterBounds
from rankcore.testing.model_cluster.world import FAIR, ClusterWorld, make, moves, root

ROOT = Path(rankcore.__file__).parents[1]
OURS = tuple(str(Path(each.__file__).parent) + os.sep for each in (rankcore, executors))
TESTING = str(Path(rankcore.__file__).parent / "testing") + os.sep
AIMS = {"pinned, the step": 24, "with residency, the step": 40, "on Ray, from SIGKILL to an answer": 45}
IDLE_S, POLL_S, ASK_S = 3.0, 0.005, 60.0
FOLDER = "RANKCORE_BENCH_FILES"


class Passed:
    """Collects the files of ours of which a function is called, on every thread that begins while it is on."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.is_on = False

    def __call__(self, frame: Any, event: str, _argument: Any) -> None:
        if self.is_on and event == "call":
            self.files.add(frame.f_code.co_filename)

    def while_running(self, work: Callable[[], Any]) -> set[str]:
        """The files that this thread passes through while it works."""
        self.files, self.is_on = set(), True
        sys.setprofile(self)
        try:
            work()
        finally:
            sys.setprofile(None)
            self.is_on = False
        return ours(self.files)


def ours(files: Iterable[str]) -> set[str]:
    """Those of the product, as paths from its folder."""
    return {str(Path(each).relative_to(ROOT)) for each in files if each.startswith(OURS) and not each.startswith(TESTING)}


def settled(world: ClusterWorld) -> ClusterWorld:
    """After all that has to happen has happened."""
    while (move := next(moves(world), None)) is not None and move[0] in FAIR:
        world, broken = make(world, move)
        assert not broken, broken
    return world


def pure() -> dict[str, set[str]]:
    """Of the core alone."""
    pinned = root(ClusterBounds(replicas=2, deaths=1))
    cold, _ = make(root(ClusterBounds(**_residency())), ("is wished", 0))
    cold = settled(cold)
    assert pinned.state is not None, "nothing has crashed"
    assert cold.state is not None, "nothing has crashed"
    dies = ReplicaDied(replica_id="a/x#1.1", reason="SIGKILL", at=pinned.now)
    lost = WorkerLost(worker_id=cold.workers[0].worker.worker_id, node_id="n0", reason="SIGKILL", at=cold.now)
    return {
        "pinned, the step": Passed().while_running(lambda: cluster_step(pinned.state, dies)),
        "pinned, until the replacement runs": Passed().while_running(lambda: settled(make(pinned, ("dies", 1))[0])),
        "with residency, the step": Passed().while_running(lambda: cluster_step(cold.state, lost)),
        "with residency, until the replacement runs": Passed().while_running(lambda: settled(make(cold, ("dies", 0))[0])),
    }


def _residency() -> dict[str, Any]:
    like = SYSTEMS["cluster-crash-loading"]
    return {"deployments": like.deployments, "weights": like.weights, "nodes": like.nodes, "wishes": like.wishes, "deaths": 1}


# -- on Ray


def follow(folder: str) -> None:
    """In each process: collect while the file `on` is there, and write down what was found once it has gone."""
    passed = Passed()

    def look() -> None:
        while True:
            wanted = os.path.exists(os.path.join(folder, "on"))
            if passed.is_on and not wanted:
                passed.is_on = False
                with open(os.path.join(folder, f"{os.getpid()}-{time.time_ns()}"), "w", encoding="utf-8") as file:
                    file.write("\n".join(ours(passed.files)))
                passed.files = set()
            passed.is_on = wanted
            time.sleep(POLL_S)

    threading.setprofile(passed)
    sys.setprofile(passed)
    threading.Thread(target=look, daemon=True).start()


def window(folder: Path, work: Callable[[], Any]) -> set[str]:
    """The files that all processes pass through while this works."""
    for each in folder.iterdir():
        each.unlink()
    (folder / "on").touch()
    time.sleep(20 * POLL_S)
    work()
    (folder / "on").unlink()
    time.sleep(1.0)
    return {line for each in folder.iterdir() for line in each.read_text().splitlines()}


def on_ray() -> dict[str, set[str]]:
    """Of a real cluster."""
    with tempfile.TemporaryDirectory() as found, tempfile.TemporaryDirectory() as path:
        site = "import os\nif os.environ.get('%s'):\n    from bench.crash_files import follow\n    follow(os.environ['%s'])\n"
        (Path(path) / "sitecustomize.py").write_text(site % (FOLDER, FOLDER))
        os.environ[FOLDER] = found
        os.environ["PYTHONPATH"] = os.pathsep.join([path, str(ROOT), os.environ.get("PYTHONPATH", "")])
        follow(found)
        from tests.ray_local import start_ray

        start_ray()
        import ray

        from executors import ray_gpu as serve

        @serve.deployment(num_replicas=2)
        class Echo:
            def pid(self) -> int:
                return os.getpid()

        try:
            handle = serve.run(Echo.bind(), name="shop", route_prefix=None)
            by_rank = handle.options(rank=1)
            victim = by_rank.pid.remote().result(timeout_s=ASK_S)

            def crash() -> None:
                os.kill(victim, signal.SIGKILL)
                until = time.monotonic() + ASK_S
                while time.monotonic() < until:
                    try:
                        if by_rank.pid.remote().result(timeout_s=ASK_S) != victim:
                            return
                    except Exception:  # the attempt was lost with the replica
                        time.sleep(POLL_S)
                raise TimeoutError("the rank never answered again")

            idle = window(Path(found), lambda: time.sleep(IDLE_S))
            files = window(Path(found), crash)
        finally:
            serve.shutdown()
            ray.shutdown()
    return {"on Ray, from SIGKILL to an answer": files, "on Ray, of these while nothing happens": files & idle}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.crash_files", description="Files that a crash passes through.")
    parser.add_argument("--ray", action="store_true", help="in a real cluster too, which is started for it")
    parser.add_argument("--list", action="store_true", help="name the files")
    chosen = parser.parse_args()
    found = pure() | (on_ray() if chosen.ray else {})
    for what, files in found.items():
        core = sum(each.startswith("rankcore") for each in files)
        aim = f", wanted: at most {AIMS[what]}" if what in AIMS else ""
        print(f"{what:45} {len(files):3} files, {core} of them in rankcore{aim}")
        if chosen.list:
            print("\n".join(f"    {each}" for each in sorted(files)))
    save("crash_files", {what: sorted(files) for what, files in found.items()})


if __name__ == "__main__":
    main()
