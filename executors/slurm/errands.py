"""Calls that may take long, made by a thread of their own, in the order in which they were asked for: `execute` never waits.

**What it must not get wrong.** `sbatch` that is cut off leaves open whether there is a job. A second one at once could start a
replica twice (its birth record would end one of them, a node's room would be gone for a while). So:

1. A submission has a token from the first try on, and every try has the same one.
2. After a try whose outcome is unknown, Slurm is listed. A job with the token is the one.
3. Only after `LISTED_WITHOUT` lists that do not have it is it tried again.

**Why it ends.** Each errand is done, refused, or put back when Slurm is away; nothing is put back more than once per list, so
that a Slurm that is away costs one call in `poll_s`. Whoever was replaced finds out at the fence, and does nothing more.

**What it costs.** Of each kind at most one errand of a replica waits, the newest: to ask never waits, however long Slurm is
away. A list is due after `poll_s` whatever else is to be done, so that a thousand submissions hide no end for half a minute;
who has not been submitted yet is not missed in it.
"""

import json
import queue
import secrets
import socket
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import attrs

from executors.run.fence import Fence, FenceError, ReplacedError
from executors.slurm import scheduler
from executors.slurm.folder import ENDED, START, identity, renewed_at_ns, serial_of
from executors.slurm.options import SlurmError, SlurmOptions
from executors.slurm.scheduler import Comment, Job, NodeSeen, SlurmAwayError
from executors.slurm.standing import JobStanding, standing
from executors.whole_files import write_whole
from rankcore.codec import to_json
from rankcore.commands import StartReplica
from rankcore.values import ReplicaId

LISTED_WITHOUT = 2


@attrs.frozen
class Submit:
    """Have a replica's job run."""

    start: StartReplica
    token: str
    without: tuple[str, ...]

    @property
    def replica_id(self) -> ReplicaId:
        """Whose job it is."""
        return self.start.replica_id


@attrs.frozen
class EndJob:
    """End a replica's job and its processes."""

    replica_id: ReplicaId
    token: str


@attrs.frozen
class Exclude:
    """Have a job that waits come to none of these nodes."""

    replica_id: ReplicaId
    token: str
    nodes: tuple[str, ...]


@attrs.frozen
class Refused:
    """There is no job, and will be none."""

    replica_id: ReplicaId
    reason: str


@attrs.frozen
class Listed:
    """What Slurm has listed, and of those who are not plainly well: when they last renewed their lease.

    Attributes:
        unsure: Tokens that are not submitted yet, as far as is known: of those a list says nothing.
        renewed: By replica; None: never born.
    """

    jobs: Mapping[str, Job]
    nodes: Mapping[str, NodeSeen]
    unsure: frozenset[str]
    renewed: Mapping[ReplicaId, int | None]


Errand: TypeAlias = Submit | EndJob | Exclude
Outcome: TypeAlias = Refused | Listed


class Errands:
    """The thread.

    Args:
        folder: See `folder`.
        application: MODULE:APP.
        name: Of all jobs of this deployment.
        fence: The right to act.
        options: Of the user.

    Attributes:
        watched: Which token each replica has that is of interest; replaced whole by the executor.
    """

    def __init__(self, folder: Path, application: str, name: str, fence: Fence, options: SlurmOptions) -> None:
        self._folder, self._application, self._name = folder, application, name
        self._fence, self._options = fence, options
        self._identity = identity(folder)
        self.watched: Mapping[ReplicaId, str] = {}
        self._todo: dict[tuple[type, ReplicaId], Errand] = {}
        self._put_back: dict[tuple[type, ReplicaId], Errand] = {}
        self._asked = threading.Condition()
        self._unsure: dict[str, int] = {}
        self._job_ids: dict[str, str] = {}
        self._done: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._bell, self._ringer = socket.socketpair()
        self._bell.setblocking(False)
        self._ringer.setblocking(False)
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="slurm", daemon=True)

    def begin(self, jobs: Mapping[str, Job], forgotten: Iterable[str]) -> None:
        """Go to work, with what a first list has shown, and the tokens of those that it lacked."""
        self._job_ids.update(dict.fromkeys(forgotten, ""))
        self._job_ids.update((token, job.job_id) for token, job in jobs.items())
        self._thread.start()

    def ask(self, errand: Errand) -> None:
        """Have something done."""
        with self._asked:
            self._todo[type(errand), errand.replica_id] = errand
            self._asked.notify()

    def outcomes(self) -> list[Outcome]:
        """What has come of errands since."""
        with suppress(BlockingIOError):
            while self._bell.recv(4096):
                pass
        found = []
        with suppress(queue.Empty):
            while True:
                found.append(self._done.get_nowait())
        return found

    def fileno(self) -> int:
        """What becomes readable when there are outcomes."""
        return self._bell.fileno()

    def close(self) -> None:
        """Make no more calls. One that is under way is not waited for."""
        with self._asked:
            self._is_closed = True
            self._asked.notify()
        self._bell.close()

    # -- in the thread

    def _run(self) -> None:
        list_at = time.monotonic()
        while not self._is_closed:
            if time.monotonic() >= list_at:
                self._list()
                list_at = time.monotonic() + self._options.poll_s
            elif (errand := self._next(list_at)) is not None:
                self._do(errand)
        self._ringer.close()

    def _next(self, list_at: float) -> Errand | None:
        with self._asked:
            self._asked.wait_for(lambda: self._todo or self._is_closed, max(0.0, list_at - time.monotonic()))
            return self._todo.pop(next(iter(self._todo))) if self._todo else None

    def _do(self, errand: Errand) -> None:
        try:
            match errand:
                case Submit():
                    self._submit(errand)
                case EndJob():
                    self._end(errand)
                case Exclude():
                    if job_id := self._job_ids.get(errand.token):
                        with self._fence.upheld():
                            scheduler.exclude(job_id, errand.nodes)
        except ReplacedError:
            with self._asked:
                self._asked.wait_for(lambda: self._is_closed)
        except (FenceError, SlurmAwayError, OSError):
            self._later(errand)

    def _later(self, errand: Errand) -> None:
        self._put_back[type(errand), errand.replica_id] = errand

    def _submit(self, errand: Submit) -> None:
        serial = serial_of(errand.replica_id)
        if errand.token in self._job_ids:
            return
        if errand.token in self._unsure:  # 3
            if self._unsure[errand.token] < LISTED_WITHOUT:
                self._later(errand)
                return
            del self._unsure[errand.token]
        said = {
            "start": to_json(errand.start),
            "application": self._application,
            "token": errand.token,
            "secret": new_token(),
            "host": socket.gethostname(),
            "lease_s": self._options.lease_s,
        }
        comment = Comment(errand.replica_id, errand.start.epoch, errand.token, self._identity)
        # -P: a folder `executors` where this is run is not taken for ours.
        where = scheduler.Where(errand.start.node_id, errand.without)
        command = (sys.executable, "-P", "-m", "executors.slurm.replica", str(self._folder), serial, errand.token)
        log = str(self._folder / "log")
        try:
            with self._fence.upheld():
                write_whole(self._folder / START / serial, json.dumps(said))
                job_id = scheduler.submit(self._options, self._name, comment, command, log, where)
        except SlurmAwayError:
            self._unsure[errand.token] = 0  # 2
            raise
        except SlurmError as error:
            self._tell(Refused(errand.replica_id, str(error)))
        else:
            self._job_ids[errand.token] = job_id

    def _end(self, errand: EndJob) -> None:
        with self._fence.upheld():
            if (self._folder / START / (serial := serial_of(errand.replica_id))).exists():  # else its end has been told
                (self._folder / ENDED / serial).touch()
            if job_id := self._job_ids.get(errand.token):
                scheduler.end(job_id)
        if errand.token not in self._job_ids and errand.token in self.watched.values():  # its submission is to come
            self._later(errand)

    def _list(self) -> None:
        try:
            jobs, nodes = scheduler.jobs(self._name), scheduler.nodes(self._options.partition)
            watched = dict(self.watched)
            doubtful = [each for each, token in watched.items() if standing(jobs.get(token), nodes) in _TO_LOOK_AT]
            renewed = {each: renewed_at_ns(self._folder, serial_of(each)) for each in doubtful}
        except (SlurmError, OSError):
            return  # nothing is told while it is away
        self._job_ids.update((token, job.job_id) for token, job in jobs.items())
        for token in tuple(self._unsure):
            if token in jobs:
                del self._unsure[token]
            else:
                self._unsure[token] += 1
        self._tell(Listed(jobs, nodes, frozenset(watched.values()) - self._job_ids.keys(), renewed))
        with self._asked:
            self._todo, self._put_back = self._put_back | self._todo, {}

    def _tell(self, outcome: Outcome) -> None:
        self._done.put(outcome)
        with suppress(BlockingIOError, OSError):  # it rings already
            self._ringer.send(b"!")


_TO_LOOK_AT = (JobStanding.OVER, JobStanding.DOUBTFUL, JobStanding.UNKNOWN)


def new_token() -> str:
    """What tells a submission from all others, of whatever number."""
    return secrets.token_hex(8)
