"""Hosts of a job of torchrun that are namespaces of this machine: each has a network with one cable, and processes of its own.

What differs from hosts: one clock, one disk, one kernel. What does not: no process of one is seen from another, so that the
coordinator learns of an end by the lease alone; and a cable that is pulled breaks no connection, but nothing comes through.
"""

import os
import shutil
import subprocess
from pathlib import Path

from tests.torchrun_runs import TorchrunJob

HOSTS = ("coordinator", "a", "b", "c", "s")
NETWORK = "10.213.77"
WORKER = """
import json, os, sys, time
from pathlib import Path

folder, node = Path(sys.argv[1]), os.environ["GANG_NODE"]
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
line = {"kind": "began", "node": node, "rank": rank, "world": world, "pid": -1, "at_s": time.time()}
with (folder / "said.jsonl").open("a") as file:
    file.write(json.dumps(line) + "\\n")
while not (folder / "stop").exists():
    with (folder / f"alive-{node}").open("a") as file:
        file.write(f"{time.time()}\\n")
    time.sleep(0.02)
"""
"""It waits in no collective, so nothing but its agent ends it; and says until when it has lived."""


def missing() -> str | None:
    """Why this machine cannot have such hosts; None: it can."""
    if os.getuid() or not shutil.which("ip") or not shutil.which("unshare"):
        return "namespaces of networks need root, ip and unshare"
    made = subprocess.run(["unshare", "--net", "--pid", "--fork", "--mount-proc", "true"], capture_output=True)
    return None if made.returncode == 0 else "namespaces are not to be had here"


class JobOnHosts(TorchrunJob):
    """A coordinator and agents, each on a host of its own."""

    def __init__(self, folder: Path, nnodes: str) -> None:
        super().__init__(folder, nnodes, WORKER)
        self.prefix = f"rc{os.getpid()}"

    def __enter__(self) -> "JobOnHosts":
        hub = f"{self.prefix}-hub"
        _ip("netns", "add", hub)
        _ip("-n", hub, "link", "add", "hub", "type", "bridge")
        _ip("-n", hub, "link", "set", "hub", "up")
        for number, host in enumerate(HOSTS, 1):
            name = f"{self.prefix}-{host}"
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", hub, "link", "add", f"to{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("-n", hub, "link", "set", f"to{number}", "master", "hub", "up")
            _ip("-n", name, "address", "add", f"{NETWORK}.{number}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
        return self

    def __exit__(self, *why: object) -> None:
        try:
            super().__exit__(*why)
        finally:
            for host in (*HOSTS, "hub"):
                subprocess.run(["ip", "netns", "delete", f"{self.prefix}-{host}"], capture_output=True)

    def address_of(self, node: str) -> str:
        return f"{NETWORK}.{HOSTS.index(node) + 1}"

    def within(self, node: str) -> list[str]:
        return ["ip", "netns", "exec", f"{self.prefix}-{node}", "unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]

    def cable(self, node: str, how: str) -> None:
        """Pull a host's cable (`down`), or plug it in again (`up`)."""
        _ip("-n", f"{self.prefix}-hub", "link", "set", f"to{HOSTS.index(node) + 1}", how)

    def alive_until(self, node: str) -> float:
        """When its worker was seen to live last."""
        return float((self.folder / f"alive-{node}").read_text().split("\n")[-2])

    def began_at(self, node: str) -> float:
        """When the newest worker there began."""
        return max(line["at_s"] for line in self.said() if line["node"] == node)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=30)
