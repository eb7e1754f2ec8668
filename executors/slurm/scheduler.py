"""The calls to Slurm: submit, list, cancel, and what nodes there are. Each waits for its answer."""

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import attrs
import msgspec

from executors.slurm.folder import AT
from executors.slurm.options import SlurmError, SlurmOptions

CALL_S = 30.0
UNSURE = ("Unable to contact", "timed out", "Zero Bytes", "Connection refused", "Transport endpoint", "error receiving")
"""What Slurm's programs say when they do not know whether a request was carried out."""

WAITS, HAS_RUN = "queued and waiting for resources", "task 0: "
"""What `srun` says of a job that it takes and has no room for, and of one that has run and failed."""


class SlurmAwayError(SlurmError):
    """Slurm's controller has not answered. Whether it did what it was asked for is unknown."""


class Comment(msgspec.Struct, frozen=True):
    """What a job says about itself, and of which folder (`folder.identity`) it is. Only this outlives Slurm's job numbers."""

    replica: str
    epoch: int
    token: str
    folder: str


@attrs.frozen
class Job:
    """One job as Slurm lists it."""

    job_id: str
    state: str
    node_id: str
    reason: str
    comment: Comment


@attrs.frozen
class NodeSeen:
    """One node as Slurm lists it: its state without and with what is appended to it, and its processors."""

    state: str
    is_responding: bool
    cpus: int
    reason: str


@attrs.frozen
class Where:
    """Which node a job is to come to, and which not."""

    node_id: str | None
    without: Sequence[str]

    def arguments(self) -> list[str]:
        """What `sbatch` is given for it; a node that is named is meant, whatever else was said of it."""
        if self.node_id is not None:
            return [f"--nodelist={self.node_id}"]
        return [f"--exclude={','.join(self.without)}"] if self.without else []


def probe(options: SlurmOptions, folder: Path) -> None:
    """Run a job of a moment: whether a node can write to the folder is not to be seen from here.

    None is run where a replica has written there, and Slurm would take such a job; one that it takes, and has no room for now,
    says nothing against the folder. So a cluster that is full, be it of our own replicas, keeps no controller from its ranks.

    Raises:
        SlurmError: No node can, or Slurm takes no such job; the text has Slurm's own words.
    """
    if any((folder / AT).glob("*")) and _would_be_taken(options):
        return
    file, said = folder / "probe", ""
    try:
        _call("srun", "--nodes=1", "--ntasks=1", "--immediate=10", *options.arguments(), "touch", str(file))
    except SlurmAwayError:
        raise
    except SlurmError as error:
        said = str(error)
    if WAITS in said:
        return
    if said and HAS_RUN not in said:
        raise SlurmError(f"Slurm takes no job with {' '.join(options.arguments())}: {said}")
    try:
        file.unlink()
    except FileNotFoundError:
        raise SlurmError(
            f"a job could not write to {folder}: use a folder on a file system that login and compute nodes share"
            f"{f' ({said})' if said else ''}"
        ) from None


def _would_be_taken(options: SlurmOptions) -> bool:
    """Whether a job could run at some time, on the nodes that are open now."""
    try:
        _call("sbatch", "--test-only", "--nodes=1", "--ntasks=1", *options.arguments(), given="#!/bin/sh\n")
    except SlurmAwayError:
        raise
    except SlurmError:
        return False
    return True


def submit(options: SlurmOptions, name: str, comment: Comment, command: Sequence[str], log: str, where: Where) -> str:
    """Submit a job; returns its number.

    Raises:
        SlurmAwayError: Whether there is a job now is unknown.
        SlurmError: There is none, and Slurm says why.
    """
    said = msgspec.json.encode(comment).decode()
    fixed = [
        "--parsable",
        "--no-requeue",
        "--nodes=1",
        "--ntasks=1",
        "--open-mode=append",
        f"--output={log.replace('%', '%%')}",
        "--export=ALL",
    ]
    script = "#!/bin/sh\nexec " + " ".join(_quoted(each) for each in command) + "\n"
    answer = _call(
        "sbatch", *fixed, f"--job-name={name}", f"--comment={said}", *options.arguments(), *where.arguments(), given=script
    )
    return answer.strip().partition(";")[0]


def jobs(name: str) -> dict[str, Job]:
    """All jobs of a name that Slurm remembers of this user, by token."""
    whose = (f"--user={os.getuid()}", f"--name={name}")
    answer = _call("squeue", "--noheader", *whose, "--states=all", "--format=%i|%T|%N|%r|%k")
    found = {}
    for line in answer.splitlines():
        job_id, state, node_id, reason, said = line.split("|", 4)
        try:
            comment = msgspec.json.decode(said, type=Comment)
        except msgspec.DecodeError:
            continue  # somebody else's, of the same name
        found[comment.token] = Job(job_id, state, node_id, reason, comment)
    return found


def nodes(partition: str) -> dict[str, NodeSeen]:
    """The nodes that jobs may come to, by name."""
    where = [f"--partition={partition}"] if partition else []
    answer = _call("sinfo", "--noheader", "--Node", *where, "--format=%N|%T|%c|%E")
    found = {}
    for line in answer.splitlines():
        name, state, cpus, reason = line.split("|", 3)
        bare = state.rstrip("*~#!%$@^-+")
        found[name] = NodeSeen(bare, "*" not in state and bare not in ("down", "unknown"), int(cpus), reason)
    return found


def exclude(job_id: str, nodes: Sequence[str]) -> None:
    """Have a job that waits come to none of these; one that has begun stays where it is."""
    try:
        _call("scontrol", "update", f"JobId={job_id}", f"ExcNodeList={','.join(nodes)}")
    except SlurmAwayError:
        raise
    except SlurmError:
        pass  # it has begun


def end(job_id: str) -> None:
    """End a job's processes at once, and the job with them; one that is over is none."""
    send(job_id, signal.SIGKILL)
    _cancel(job_id)  # one that has not begun is ended by this


def send(job_id: str, number: signal.Signals) -> None:
    """Send all processes of a job a signal; one that is over, or has not begun, has none."""
    _cancel(f"--signal={number.name.removeprefix('SIG')}", "--full", job_id)


def _cancel(*arguments: str) -> None:
    try:
        _call("scancel", "--quiet", *arguments)
    except SlurmAwayError:
        raise
    except SlurmError:
        pass  # there is nothing to be cancelled


def _call(*call: str, given: str = "") -> str:
    try:
        done = subprocess.run(call, input=given, capture_output=True, text=True, timeout=CALL_S)
    except subprocess.TimeoutExpired:
        raise SlurmAwayError(f"{call[0]} has not answered within {CALL_S:g} s") from None
    except OSError as error:
        raise SlurmAwayError(f"{call[0]} cannot be run: {error}") from None
    if done.returncode == 0:
        return done.stdout
    said = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
    raise (SlurmAwayError if any(each in said for each in UNSURE) else SlurmError)(said)


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"
