"""The folder of a deployment on Slurm: where controllers, jobs and their replicas meet, on a file system that all nodes share.

epoch            of the newest controller: the fence, as `executors.run.fence` has it
start/<serial>   what a replica is started with, the token of its job, and the secret that both ends of a connection know
born/<serial>    a life has begun, or never will: made once, by replica or controller (`claim`), and touched as a lease
ended/<serial>   an order to end, for a replica that nothing else reaches
at/<serial>      where a replica listens
identity         what the comments of its jobs name it by: a deployment of the same name may be in another folder

**The races.** What Slurm says of a job is not what there is. Measured with Slurm 22.05: a job that was acknowledged is unknown
after a crash of its controller, and its number belongs to another; one with `--no-requeue` is run a second time; one is in
NODE_FAIL and its process lives. So the identity of a job is its token, never its number, and an end is told only

1. where Slurm says that the job is over, on a node that answers: `standing`. Then its processes are gone.
2. where no process can ever be: the controller has made `born/<serial>` itself, and who finds it there ends (`claim`). A job
   that is still pending exits with status 0 before any user code; and so does one that comes back from the dead, see below.
3. where the lease has run out. A replica touches `born/<serial>` whenever it has read the fence, and ends itself when it could
   not for `lease_s` on its own monotonic clock, also when the read hangs. The controller sees the file's time change, on its
   own clock, and waits for `lease_s` and `MARGIN_S` more: no two clocks are compared.

Once an end is told all files of a replica go (`forget`): `start/<serial>` first and `born/<serial>` last. A job that comes back
from the dead takes its life first, and only then reads what it is started with. So where it can take a life a second time,
there is nothing that it could start with, or it is for a job with another token; then it gives that life back, and exits.

All users of a cluster see the names and comments of jobs, and may give theirs the same. So jobs of others are not listed, and a
token opens nothing: who connects says a secret, which is in this folder alone, and the folder is this user's.

A controller that was replaced starts and ends nobody: `sbatch` and `scancel` run inside `Fence.upheld`. A job that it had
submitted before the fence rose reads the epoch at its birth, and exits. What is not covered: a whole process that is stopped
(SIGSTOP) does not end itself, and may run for a moment when it goes on.
"""

import json
import os
import secrets
from collections.abc import Container, Iterator
from contextlib import suppress
from pathlib import Path

from executors.whole_files import write_whole
from rankcore.values import ReplicaId

MARGIN_S = 5.0
NOTICE = "notice"
"""A line that is neither command nor event: Slurm has sent SIGTERM, and will end this job."""
START, BORN, ENDED, AT, IDENTITY = "start", "born", "ended", "at", "identity"


def prepare(folder: Path) -> None:
    """Make what is not there, and remove what is left of replicas that were forgotten. Behind the fence."""
    for name in (START, BORN, ENDED, AT):
        (folder / name).mkdir(mode=0o700, exist_ok=True)
        for path in (folder / name).glob("*[0-9]"):
            if not (folder / START / path.name).exists():
                path.unlink(missing_ok=True)


def identity(folder: Path) -> str:
    """What tells it from all other folders; made once, by whoever has the fence."""
    if not (folder / IDENTITY).exists():
        write_whole(folder / IDENTITY, secrets.token_hex(8))
    return (folder / IDENTITY).read_text()


def serial_of(replica_id: ReplicaId) -> str:
    """What files of a replica are named by; the deployment's name is not repeated."""
    return replica_id.rpartition("#")[2]


def claim(folder: Path, serial: str) -> bool:
    """Take the one life of a replica id; False: it was taken before."""
    try:
        os.close(os.open(folder / BORN / serial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    return True


def listens_at(folder: Path, serial: str) -> tuple[tuple[str, int], str] | None:
    """Address and port of a replica, and its secret; None: it has not said them yet."""
    try:
        host, port, _ = (folder / AT / serial).read_text().split()
        return (host, int(port)), str(json.loads((folder / START / serial).read_bytes())["secret"])
    except (OSError, ValueError, KeyError):
        return None


def unlisted(folder: Path, deployment: str, listed: Container[str]) -> Iterator[tuple[ReplicaId, str]]:
    """Replica and token of each that was born and not forgotten though Slurm, which may have lost its state, lists no such job.

    It is a survivor: nobody may say that it is missing before its lease is over.
    """
    for path in (folder / START).glob("*[0-9]"):
        with suppress(OSError, ValueError, KeyError):
            token = json.loads(path.read_bytes())["token"]
            if token not in listed and renewed_at_ns(folder, path.name) is not None:
                yield f"{deployment}#{path.name}", token


def forget(folder: Path, serial: str) -> None:
    """Remove what there is of a replica that has ended, in this order: there is no second life."""
    for name in (START, AT, ENDED, BORN):
        with suppress(OSError):
            (folder / name / serial).unlink()


def renewed_at_ns(folder: Path, serial: str) -> int | None:
    """When a replica last renewed its lease, by the file system's clock; None: it was never born."""
    try:
        return (folder / BORN / serial).stat().st_mtime_ns
    except FileNotFoundError:
        return None
