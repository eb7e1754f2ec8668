"""torchrun whose agent of rank 0 is killed: how long until all ranks train again, and who has which, here and with stock c10d.

    python -m bench.torchrun [--trials 20]

Three agents and a spare on this machine, one worker each, on gloo. When a trial is over, a new spare is started, and the agent
that has rank 0 by then is killed. What differs is the backend alone. c10d has its store in a process of its own, as one that is
killed with its agent ends the job. Its agents share one more store, rank 0's, whose port survivors keep (torch 2.13,
`dynamic_rendezvous.py`: `_bootstrap_store_info`), so it is tried without that too: TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1.
"""

import argparse
import os
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.measure import print_table, save
from tests.torchrun_runs import WITHOUT_PIDFD, TorchrunJob

PATIENCE_S = 120.0
STORE = "import sys, time; from torch.distributed import TCPStore; s = TCPStore('127.0.0.1', int(sys.argv[1]), is_master=True, "
STORE += "wait_for_workers=False); time.sleep(1e6)"
KINDS = ("rankcore", "rankcore, by the lease", "c10d", "c10d, no shared store")


def started(job: TorchrunJob, kind: str) -> None:
    """Three agents that train, and a spare."""
    job.max_restarts = 1_000
    if kind.startswith("c10d"):
        job.env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = str(int(kind != "c10d"))
        job.backend, job.conf = "c10d", "is_host=0"
        job.start("store", [sys.executable, "-c", STORE, str(job.port)])
    else:
        job.serve(program=("-m", "executors.cli") if kind == "rankcore" else ("-c", WITHOUT_PIDFD))
    for node in "abc":
        job.agent(node)
    job.until(lambda: len(job.ranks()) == 3)


def trials(kind: str, number: int) -> Iterator[tuple[float | None, int]]:
    """Of each, the seconds until all ranks train, None if they did not; and how many who lived have another rank."""
    with tempfile.TemporaryDirectory() as folder, TorchrunJob(Path(folder)) as job:
        started(job, kind)
        for serial in range(number):
            job.agent(f"s{serial}")
            job.until(lambda serial=serial: is_spare(job, kind, f"s{serial}"))
            before = job.ranks()
            lost = next(node for node, rank in before.items() if rank == 0)
            os.kill(job.agents.pop(lost).pid, signal.SIGKILL)
            try:
                took_s, after = whole_without(job, lost)
            except AssertionError:
                yield None, 0
                return
            print(kind, f"{took_s:.1f} s", f"rank 0 was on {lost}", before, after, flush=True)
            yield took_s, sum(after.get(node) != rank for node, rank in before.items() if node != lost)


def whole_without(job: TorchrunJob, lost: str) -> tuple[float, dict[str, int]]:
    """Wait for three ranks without a node; the seconds, and the ranks as they were then: another round may follow."""
    seen: list[dict[str, int]] = []

    def holds() -> bool:
        seen.append(job.ranks())
        return len(seen[-1]) == 3 and lost not in seen[-1]

    return job.until(holds, PATIENCE_S), seen[-1]


def is_spare(job: TorchrunJob, kind: str, node: str) -> bool:
    """Whether a spare waits."""
    if kind.startswith(
        "c10d"
    ):  # it says nothing: its rendezvous looks for a place when torch is there, and all train meanwhile
        return "rdzv" in job.text(node) or job.age_s(node) > 12
    return job.text("coordinator").rstrip().endswith("1 parked")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.torchrun", description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--kind", choices=KINDS, action="append")
    asked = parser.parse_args()
    table, saved = [], []
    for kind in asked.kind or KINDS:
        found: list[tuple[float | None, int]] = []
        while len(found) < asked.trials:
            found += trials(kind, asked.trials - len(found))
            print(kind, found[-1], f"{len(found)} of {asked.trials}", flush=True)
        times = sorted(took_s for took_s, _ in found if took_s is not None)
        middle = f"{statistics.median(times):.1f} s" if times else "-"
        spread = f"{times[0]:.1f} to {times[-1]:.1f} s" if times else "-"
        moved = [count for took_s, count in found if took_s is not None]
        table.append([kind, str(len(found)), str(len(times)), middle, spread, f"{sum(moved)} of {2 * len(moved)}"])
        saved.append({"kind": kind, "trials": found})
        print_table(["backend", "trials", "went on", "median", "of all", "survivors with another rank"], table)
    print(f"saved: {save('torchrun', {'rows': saved})}")


if __name__ == "__main__":
    main()
