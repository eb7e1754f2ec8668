"""The bench of the executor on Slurm: replicas are jobs of a real Slurm on loopback, which do what files in a folder say."""

import itertools
import os
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path

import attrs

from executors.local.bench import APPLICATION, ask
from executors.slurm import SlurmExecutor, SlurmOptions
from executors.slurm.folder import AT, listens_at
from rankcore import DeploymentSpec

NUMBERS = itertools.count()


class SlurmBench:
    """Each controller is a `SlurmExecutor` of this process; a crash of one takes its thread and its connections away."""

    patience_s = float(os.environ.get("SLURM_PATIENCE_S", "120"))
    name = "conformance"

    def __init__(self, folder, slurm):
        self.slurm, self.namespace = slurm, f"bench{os.getpid()}.{next(NUMBERS)}"
        self.folder = folder / self.namespace / self.name
        self.folder.mkdir(mode=0o700, parents=True)
        self.orders = folder / "orders"
        self.orders.mkdir()
        self.application = folder / "obedient.py"
        self.application.write_text(APPLICATION.format(folder=str(self.orders)))
        self.there_are, self.executors, self.hanging = list(slurm.nodes), [], set()
        self.spec = DeploymentSpec(name=self.name, target_replicas=0, health_check_period_s=0.1)
        self.options = SlurmOptions(poll_s=0.2, lease_s=3.0, pending_timeout_s=60.0, allow_weak_proctrack=True)

    def open(self, epoch):
        executor = SlurmExecutor(self.folder, f"{self.application}:app", lambda: self.spec, epoch, self.options)
        self.executors.append(executor)
        self.found = executor.survivors()
        return executor

    def survivors(self):
        return self.found

    def crash(self, executor):
        self.executors.remove(executor)
        executor.close()

    def now(self):
        return time.monotonic()

    def advance(self):
        self.executors[-1].wait(0.02) if self.executors else time.sleep(0.02)

    def nodes(self):
        return tuple(self.there_are)

    def replicas(self):
        found = []
        for serial, *_ in self.addresses():
            if serial in self.hanging or (listens := listens_at(self.folder, serial)) is None:
                continue
            address, secret = listens
            try:
                connection = socket.create_connection(address, 10.0)
                connection.sendall(f"{secret}\n".encode())
            except OSError:
                continue
            if (report := ask(connection)) is not None:
                found.append(report)
        return found

    def kill(self, replica_id):
        os.kill(self.pid_of(replica_id), signal.SIGKILL)

    def hang(self, replica_id):
        self.hanging.add(replica_id.rpartition("#")[2])
        os.kill(self.pid_of(replica_id), signal.SIGSTOP)
        self.spec = attrs.evolve(self.spec, health_check_timeout_s=1.0)

    def pid_of(self, replica_id):
        (pid,) = [pid for serial, _, _, pid in self.addresses() if serial == replica_id.rpartition("#")[2]]
        return pid

    def lose_node(self, node_id):
        self.there_are.remove(node_id)
        self.slurm.lose_node(node_id)
        for pid in self.processes(node_id):
            kill_with_step(pid)

    def fail_starts(self, count):
        for number in range(count):
            (self.orders / f"fail.{number}").touch()

    def slow(self, by_s):
        (self.orders / "slow").write_text(str(by_s))

    def take_requests(self, yes):
        closed = self.orders / "closed"
        closed.unlink(missing_ok=True) if yes else closed.touch()

    def addresses(self):
        for path in (self.folder / AT).glob("*[0-9]"):
            with suppress(FileNotFoundError, ValueError):
                host, port, pid = path.read_text().split()
                yield path.name, host, int(port), int(pid)

    def processes(self, node_id=None):
        """The replicas of this bench, by what is in /proc, on one node or on all."""
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if str(self.folder).encode() in (path / "cmdline").read_bytes().split(b"\0"):
                    where = (path / "environ").read_bytes().split(b"\0")
                    if node_id is None or f"SLURMD_NODENAME={node_id}".encode() in where:
                        yield int(path.name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for executor in self.executors:
            executor.close()
        name = f"--name=rankcore/{self.namespace}/{self.name}"
        self.slurm.run("scancel", "--quiet", name)
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for node in set(self.slurm.nodes) - set(self.there_are):
            self.slurm.start_node(node)
        deadline = time.monotonic() + 60.0
        while self.slurm.run("squeue", "-h", name).strip() or not self.are_idle():
            assert time.monotonic() < deadline, self.slurm.run("squeue") + self.slurm.run("sinfo", "-N")
            time.sleep(0.1)

    def are_idle(self):
        return len(self.slurm.run("sinfo", "-h", "-N", "-t", "idle", "-o", "%N").split()) == len(self.slurm.nodes)


def kill_with_step(pid):
    """A job's process, and slurmstepd, its parent, which would tell of its end."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        parent = int(fields[1])
        if b"slurmstepd" in Path(f"/proc/{parent}/cmdline").read_bytes():
            os.kill(parent, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
