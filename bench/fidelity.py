"""Five runs on a local Ray cluster, recorded twice each, for docs/fidelity.md: `make fidelity`, some five minutes.

Each deploys the same replicas, which take as long as each call says, calls them at the same times, and does one thing to them.
The second recording of each says how much a run differs from itself.
"""

import argparse
import gzip
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs

FOLDER = Path(__file__).resolve().parents[1] / "data" / "fidelity"
AGAIN = "-again"
NAMESPACE = "fidelity"
DEPLOYMENT = "fidelity/Sleeper"
MEDIAN_S, SIGMA = 0.12, 0.6
BEGIN_S = 8.0
"""When the one thing is done."""


@attrs.frozen
class Planned:
    """One run.

    Attributes:
        replicas: To begin with.
        rates: (from when on, calls per second), the last until the end.
        for_s: How long calls come.
        act: What is done at `BEGIN_S`; None: nothing.
    """

    replicas: int
    rates: tuple[tuple[float, float], ...]
    for_s: float = 20.0
    act: Callable[[], object] | None = None

    def calls(self) -> Iterator[tuple[float, float]]:
        """When each comes, and how long it takes: the same every time."""
        stream = random.Random(1)
        for (begin, rate), end in zip(self.rates, [*(since for since, _ in self.rates[1:]), self.for_s], strict=True):
            at = begin
            while (at := at + stream.expovariate(rate)) < end:
                yield at, MEDIAN_S * stream.lognormvariate(0.0, SIGMA)


def _holder(rank: int) -> Any:
    from executors import ray_gpu as serve

    found = serve.status(namespace=NAMESPACE).deployments[DEPLOYMENT]
    return next(each for each in found.replicas if each.rank is not None and each.rank.rank == rank)


def _crash() -> None:
    os.kill(_holder(1).pid, signal.SIGKILL)


def _downscale() -> None:
    from executors import ray_gpu as serve

    serve.scale(DEPLOYMENT, 2, stop_first=[_holder(0).replica_id], namespace=NAMESPACE)


def _update() -> None:
    from executors import ray_gpu as serve

    serve.restart(DEPLOYMENT, namespace=NAMESPACE)


RUNS = {
    "steady": Planned(3, ((0.0, 20.0),)),
    "burst": Planned(3, ((0.0, 10.0), (5.0, 60.0), (9.0, 10.0))),
    "crash-under-load": Planned(3, ((0.0, 20.0),), act=_crash),
    "downscale-with-compaction": Planned(4, ((0.0, 12.0),), act=_downscale),
    "rolling-update": Planned(3, ((0.0, 15.0),), act=_update),
}


def record(name: str, planned: Planned, folder: Path, suffix: str) -> None:
    """Make one recording, and pack it."""
    from bench.fidelity_app import Sleeper
    from executors.engine.request_reading import request_file_of
    from executors.ray_gpu.recorded_run import RecordedRun

    calls = list(planned.calls())
    with TemporaryDirectory() as made:
        journal = Path(made) / f"{name}{suffix}.jsonl"
        application = Sleeper.options(num_replicas=planned.replicas).bind()
        with RecordedRun(application, "fidelity", journal, namespace=NAMESPACE) as run:
            actions = [(BEGIN_S, planned.act)] if planned.act is not None else []
            run.play([at for at, _ in calls], [{"service_s": service_s} for _, service_s in calls], actions)
        print(f"{name}{suffix}: {run.found}", flush=True)
        for file in (journal, request_file_of(journal)):
            with gzip.GzipFile(folder / f"{file.name}.gz", "wb", mtime=0) as packed:
                packed.write(file.read_bytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, default=FOLDER, help="Where the recordings go.")
    parser.add_argument("names", nargs="*", help="Which runs. [default: all]")
    asked = parser.parse_args()
    asked.to.mkdir(parents=True, exist_ok=True)
    for suffix in ("", AGAIN):
        for name, planned in RUNS.items():
            if not asked.names or name in asked.names:
                record(name, planned, asked.to, suffix)


if __name__ == "__main__":
    main()
