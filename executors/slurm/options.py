"""What a user may say of jobs, and whether Slurm can be used with that from here."""

import shutil
import subprocess

from msgspec import Struct

from rankcore.errors import RankcoreError

WEAK_TRACKERS = ("proctrack/linuxproc", "proctrack/pgid")
LEASE_S_MIN = 3.0
ANSWER_S = 1.5


class SlurmError(RankcoreError):
    """Slurm cannot be used, or not so."""


class SlurmOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How jobs are submitted, and how long is waited for what.

    Attributes:
        folder: Where controllers, jobs and replicas meet, on a file system that all nodes share.
        partition, account, qos, gres, time: As of `sbatch`; "": its own default.
        cpus: Processors of a replica.
        poll_s: How often Slurm is asked for all jobs at once.
        lease_s: How long a replica lives on that cannot read the fence. A lost node's replicas are replaced 5 s later.
        pending_timeout_s: How long a job may wait for room before its start counts as failed.
        notice_s: How long after SIGTERM (preemption, time limit) Slurm ends a job: GraceTime or KillWait of the cluster.
        allow_weak_proctrack: Accept a cluster that may leave children of a job behind when it ends.
    """

    folder: str = "~/.rankcore-slurm"
    partition: str = ""
    account: str = ""
    qos: str = ""
    gres: str = ""
    time: str = ""
    cpus: int = 1
    poll_s: float = 1.0
    lease_s: float = 30.0
    pending_timeout_s: float = 600.0
    notice_s: float = 30.0
    allow_weak_proctrack: bool = False

    def __post_init__(self) -> None:
        if not self.folder.strip():
            raise SlurmError("option folder must be a path on a file system that login and compute nodes share, found nothing")
        for name, least in (("cpus", 1), ("poll_s", 0.05), ("lease_s", LEASE_S_MIN), ("pending_timeout_s", 1), ("notice_s", 0)):
            found = getattr(self, name)
            if not least <= found < float("inf"):
                raise SlurmError(f"option {name} must be a number of at least {least:g}, found {found}")

    def arguments(self) -> list[str]:
        """What `sbatch` and `srun` are given for them."""
        named = ("partition", "account", "qos", "gres", "time")
        return [f"--cpus-per-task={self.cpus}", *(f"--{each}={found}" for each in named if (found := getattr(self, each)))]


def problem_of(options: SlurmOptions) -> str | None:
    """Why replicas cannot be run so from here, and what to do, in one line; None: they can."""
    for program in ("sbatch", "squeue", "sinfo", "scancel", "scontrol", "srun"):
        if shutil.which(program) is None:
            return f"no {program} on PATH: run this on a login node, or install Slurm's client programs"
    tracker = _said("scontrol", "show", "config")
    if tracker is None:
        return "Slurm's controller does not answer: `scontrol ping` says more"
    kind = next((line.split("=")[1].strip() for line in tracker.splitlines() if line.startswith("ProctrackType")), "unknown")
    if kind in WEAK_TRACKERS and not options.allow_weak_proctrack:
        return (
            f"the cluster tracks processes by {kind}, which may leave children of a replica behind when it ends: "
            "use proctrack/cgroup, or say --option allow_weak_proctrack=true"
        )
    if options.partition and not _said("sinfo", "--noheader", f"--partition={options.partition}", "--format=%R"):
        there_are = ", ".join(sorted(set((_said("sinfo", "--noheader", "--format=%R") or "").split())))
        return f"no partition {options.partition!r}: there are {there_are}"
    return None


def _said(*call: str) -> str | None:
    try:
        done = subprocess.run(call, capture_output=True, text=True, timeout=ANSWER_S, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
