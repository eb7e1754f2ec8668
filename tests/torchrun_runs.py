"""Real agents of torchrun on gloo, each with one worker, on this machine: who has which rank, as workers say it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.free_ports import free_ports

ROOT = Path(__file__).parents[1]
ENTRY_POINT = "[torchrun.handlers]\nrankcore = executors.torchrun.entry:rankcore\n"
PATIENCE_S = 40.0
WITHOUT_PIDFD = "import executors.torchrun.server as s; s.machine = lambda: ''; from executors.cli import main; main()"
"""A coordinator that takes every agent for one of another host, and so learns of its end by the lease."""

TRAIN = """
import json, os, sys, time
from datetime import timedelta
from pathlib import Path
import torch
import torch.distributed as dist

folder, steps, step_s, node = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), os.environ["GANG_NODE"]

def tell(kind, **said):
    line = {"kind": kind, "node": node, "at_s": time.time(), "agent": os.getppid(), "pid": os.getpid(), **said}
    with (folder / "said.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\\n")

dist.init_process_group("gloo", timeout=timedelta(seconds=120))
rank, world = dist.get_rank(), dist.get_world_size()
restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
saved = folder / "step"
step = torch.tensor(int(saved.read_text()) if rank == 0 and saved.exists() else 0)
dist.broadcast(step, 0)
tell("began", rank=rank, world=world, step=int(step), restarts=restarts)
while int(step) < steps:
    total = torch.ones(1)
    dist.all_reduce(total)
    assert int(total) == world
    step += 1
    if rank == 0:
        saved.with_suffix(".new").write_text(str(int(step)))
        saved.with_suffix(".new").rename(saved)
    time.sleep(step_s)
    # Together: one that stops alone is, for the others, one that has failed.
    stop = torch.tensor([int((folder / "stop").exists())])
    dist.all_reduce(stop)
    if int(stop):
        break
dist.destroy_process_group()
tell("ended", rank=rank, world=world)
"""

WITHOUT_TORCH = """
import json, os, sys, time
from pathlib import Path

folder, node = Path(sys.argv[1]), os.environ["GANG_NODE"]
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
line = {"kind": "began", "node": node, "rank": rank, "world": world, "agent": os.getppid(), "pid": os.getpid()}
with (folder / "said.jsonl").open("a") as file:
    file.write(json.dumps(line) + "\\n")
while not (folder / "stop").exists():
    time.sleep(0.02)
"""
"""Workers that start in no time, where only ranks are looked at."""


def installed(folder: Path) -> str:
    """A folder for PYTHONPATH which has the entry point that `pip install` writes: there is none in a checkout alone."""
    info = folder / "entry" / "rankcore_checkout-0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rankcore-checkout\nVersion: 0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINT)
    return str(info.parent)


class TorchrunJob:
    """A coordinator and agents; all that it started is killed when it ends."""

    def __init__(self, folder: Path, nnodes: str = "2:3", train: str = TRAIN) -> None:
        self.folder, self.nnodes = folder, nnodes
        self.steps, self.step_s, self.max_restarts = 1_000_000, 0.05, 3
        self.started_s: dict[str, float] = {}
        self.backend, self.conf = "rankcore", "nproc=1"
        self.started: list[subprocess.Popen[str]] = []
        self.agents: dict[str, subprocess.Popen[str]] = {}
        self.coordinator: subprocess.Popen[str] | None = None
        self.port, self.store_port = free_ports(2)
        (folder / "train.py").write_text(train)
        self.env = {**os.environ, "PYTHONPATH": f"{ROOT}:{installed(folder)}", "OMP_NUM_THREADS": "1"}

    def __enter__(self) -> "TorchrunJob":
        return self

    def __exit__(self, *_: object) -> None:
        """Each was started as the leader of a session; workers have one of their own, and end with their agent's variable."""
        for process in self.started:
            if process.poll() is None:
                for pid in self._below(process.pid):
                    _kill(pid)
                _kill(process.pid)
            process.wait(PATIENCE_S)
        for line in self.said():
            if self.is_worker(line["pid"]):
                _kill(line["pid"])

    def address_of(self, node: str) -> str:
        """Where others reach it."""
        return "127.0.0.1"

    def within(self, node: str) -> list[str]:
        """What a command begins with that is run there."""
        return []

    def serve(self, *options: str, program: tuple[str, ...] = ("-m", "executors.cli")) -> None:
        """Start the coordinator; agents may come before it listens."""
        where = ("--host", self.address_of("coordinator"), "--port", str(self.port), "--store-port", str(self.store_port))
        command = [sys.executable, *program, "gang", "serve", "--nnodes", self.nnodes, *where, *options]
        self.coordinator = self.start("coordinator", [*self.within("coordinator"), *command])

    def agent(self, node: str, nnodes: str | None = None, conf: str | None = None) -> "subprocess.Popen[str]":
        """Start an agent."""
        conf = self.conf if conf is None else conf
        if self.backend == "rankcore":
            conf = f"node_id={node},{conf}"
        options = {
            "nnodes": nnodes or self.nnodes,
            "nproc-per-node": "1",
            "max-restarts": str(self.max_restarts),
            "local-addr": self.address_of(node),
            "rdzv-id": "job",
            "rdzv-backend": self.backend,
            "rdzv-endpoint": f"{self.address_of('coordinator')}:{self.port}",
            "rdzv-conf": conf,
        }
        said = [word for name, value in options.items() if value for word in (f"--{name}", value)]
        command = [*self.within(node), sys.executable, "-m", "torch.distributed.run", *said, str(self.folder / "train.py")]
        process = self.start(node, [*command, str(self.folder), str(self.steps), str(self.step_s)], GANG_NODE=node)
        self.agents[node] = process
        return process

    def start(self, name: str, command: list[str], **env: str) -> "subprocess.Popen[str]":
        """Start a process, with a log of its own."""
        self.started_s[name] = time.monotonic()
        with (self.folder / f"{name}.log").open("a") as log:
            process = subprocess.Popen(
                command, env={**self.env, **env}, stdout=log, stderr=log, text=True, start_new_session=True, cwd=self.folder
            )
        self.started.append(process)
        return process

    def age_s(self, name: str) -> float:
        """For how long a process has been there."""
        return time.monotonic() - self.started_s[name]

    def text(self, name: str) -> str:
        """What a process has printed."""
        return (self.folder / f"{name}.log").read_text()

    def said(self) -> list[dict[str, Any]]:
        """What workers have told."""
        path = self.folder / "said.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def ranks(self) -> dict[str, int]:
        """The rank of each node, of the newest world that has all its ranks."""
        began = [line for line in self.said() if line["kind"] == "began"]
        if not began:
            return {}
        newest = began[-began[-1]["world"] :]
        ranks = {line["node"]: line["rank"] for line in newest}
        whole = sorted(ranks.values()) == list(range(newest[-1]["world"]))
        return ranks if whole and len({line["world"] for line in newest}) == 1 else {}

    def until(self, holds: Callable[[], Any], patience_s: float = PATIENCE_S) -> float:
        """Wait until something is so; how long that took."""
        began_s = time.monotonic()
        while not holds():
            if time.monotonic() - began_s > patience_s:
                logs = "\n".join(f"== {path.name}\n{path.read_text()[-2_000:]}" for path in self.folder.glob("*.log"))
                raise AssertionError(f"not so after {patience_s} s; ranks {self.ranks()}\n{self.said()[-8:]}\n{logs}")
            time.sleep(0.05)
        return time.monotonic() - began_s

    def parked(self, number: int) -> None:
        """Wait until so many agents of the coordinator's job are there: a spare has said nothing yet."""
        self.until(lambda: f"{number} parked" in self.text("coordinator"))

    def stop(self) -> dict[str, int]:
        """Let the job end; with which status each agent that is left ends."""
        (self.folder / "stop").touch()
        return {node: process.wait(PATIENCE_S) for node, process in self.agents.items() if process.returncode is None}

    def _below(self, pid: int) -> list[int]:
        children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return [each for child in children for each in (*self._below(child), child)]

    def is_worker(self, pid: int) -> bool:
        """Whether a process is a worker of this job that has not ended."""
        try:
            return str(self.folder / "train.py").encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
