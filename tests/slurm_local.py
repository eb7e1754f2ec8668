"""A Slurm of this machine's own on loopback: munged, slurmctld, and one slurmd for each of some nodes, all below one folder."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "sinfo", "scancel")
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
MISSING = [each for each in PROGRAMS if shutil.which(each, path=PATH) is None]
REASON = f"needs Slurm: there is no {', no '.join(MISSING)} (apt-get install slurmctld slurmd slurm-client munge)"
UP_S, DOWN_S = 60.0, 15.0


class LocalSlurm:
    """What a test does to it."""

    def __init__(self, folder: Path, nodes: tuple[str, ...]) -> None:
        self.folder, self.nodes = folder, nodes

    def pid(self, daemon: str) -> int:
        """Of `slurmctld`, `munged`, or `slurmd-<node>`."""
        return int((self.folder / f"{daemon}.pid").read_text())

    def run(self, *call: str) -> str:
        """What a program says."""
        return subprocess.run(call, check=True, capture_output=True, text=True, timeout=60).stdout

    def start_node(self, node: str) -> None:
        """Begin, or begin again, a node's daemon."""
        self.run("slurmd", "-N", node)

    def start_controller(self) -> None:
        """Begin again, with what it had stored."""
        self.run("slurmctld")

    def lose_node(self, node: str) -> None:
        """End a node's daemon without a word."""
        os.kill(self.pid(f"slurmd-{node}"), signal.SIGKILL)


@contextmanager
def local_slurm(folder: Path, nodes: tuple[str, ...] = ("n0", "n1", "n2"), cpus: int = 8) -> Iterator[LocalSlurm]:
    """Bring it up, and down at the end."""
    before = {name: os.environ.get(name) for name in ("PATH", "SLURM_CONF")}
    os.environ |= {"PATH": PATH, "SLURM_CONF": str(folder / "slurm.conf")}
    (folder / "state").mkdir(parents=True)
    folder.chmod(0o755)
    slurm = LocalSlurm(folder, nodes)
    (folder / "slurm.conf").write_text(_configuration(folder, nodes, cpus))
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    try:
        files = {"key-file": key, "socket": folder / "munge.socket", "pid-file": folder / "munged.pid"}
        files |= {"log-file": folder / "munged.log", "seed-file": folder / "munged.seed"}
        slurm.run("munged", "--force", "--num-threads=2", *(f"--{name}={path}" for name, path in files.items()))
        slurm.run("slurmctld", "-c")
        for node in nodes:
            (folder / f"spool-{node}").mkdir()
            slurm.start_node(node)
        _until(lambda: len(slurm.run("sinfo", "-h", "-N", "-t", "idle", "-o", "%N").split()) == len(nodes), UP_S, folder)
        yield slurm
    finally:
        with suppress(subprocess.SubprocessError):
            for how in (("--signal=KILL", "--full"), ()):
                subprocess.run(["scancel", "--quiet", *how, f"--user={os.getuid()}"], timeout=30, capture_output=True)
            with suppress(AssertionError):
                _until(lambda: not slurm.run("squeue", "-h").strip(), DOWN_S, folder)
        for daemons in (("slurmctld", *(f"slurmd-{node}" for node in nodes)), ("munged",)):
            _end([folder / f"{daemon}.pid" for daemon in daemons])
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _end(files: list[Path]) -> None:
    pids = []
    for file in files:
        with suppress(OSError, ValueError):
            pids.append(int(file.read_text()))
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        with suppress(AssertionError):
            return _until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), DOWN_S, files[0].parent)


def _until(condition, timeout_s: float, folder: Path) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"see {folder}/*.log"
        time.sleep(0.05)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _configuration(folder: Path, nodes: tuple[str, ...], cpus: int) -> str:
    """What matters: no cgroups, several daemons on one host, short time-outs, and a node that is lost is noticed in seconds."""
    host, user = socket.gethostname().partition(".")[0], os.environ.get("USER") or _user()
    control, *ports = _free_ports(1 + len(nodes))
    fields = {
        "ClusterName": "rankcore", "SlurmctldHost": f"{host}(127.0.0.1)", "SlurmctldPort": control,
        "SlurmUser": user, "SlurmdUser": user, "AuthType": "auth/munge", "CredType": "cred/munge",
        "AuthInfo": f"socket={folder}/munge.socket", "StateSaveLocation": folder / "state",
        "SlurmdSpoolDir": folder / "spool-%n", "SlurmctldPidFile": folder / "slurmctld.pid",
        "SlurmdPidFile": folder / "slurmd-%n.pid", "SlurmctldLogFile": folder / "slurmctld.log",
        "SlurmdLogFile": folder / "slurmd-%n.log", "ProctrackType": "proctrack/linuxproc", "TaskPlugin": "task/none",
        "JobAcctGatherType": "jobacct_gather/none", "AccountingStorageType": "accounting_storage/none",
        "JobCompType": "jobcomp/none", "MpiDefault": "none", "SwitchType": "switch/none",
        "SelectType": "select/cons_tres", "SelectTypeParameters": "CR_Core", "SchedulerType": "sched/backfill",
        "SchedulerParameters": "batch_sched_delay=0,sched_interval=2,sched_min_interval=0,bf_interval=2",
        "ReturnToService": 2, "SlurmdParameters": "config_overrides", "SlurmctldTimeout": 10, "SlurmdTimeout": 10,
        "TCPTimeout": 2, "MessageTimeout": 5, "KillWait": 1, "BatchStartTimeout": 5, "CompleteWait": 0,
        "InactiveLimit": 0, "MinJobAge": 300,
    }  # fmt: skip
    lines = [f"{name}={value}" for name, value in fields.items()]
    lines.append(f"NodeName=DEFAULT CPUs={cpus} Sockets=1 CoresPerSocket={cpus} ThreadsPerCore=1 RealMemory=1024 State=UNKNOWN")
    lines += [
        f"NodeName={each} NodeHostname={host} NodeAddr=127.0.0.1 Port={port}" for each, port in zip(nodes, ports, strict=True)
    ]
    lines.append(f"PartitionName=main Nodes={','.join(nodes)} Default=YES MaxTime=INFINITE State=UP")
    return "\n".join(lines) + "\n"


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name
