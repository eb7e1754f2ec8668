"""The controller of any executor that a plugin opens: one deployment, from its start, or what a crash has left, to its end.

It has the lock, the record, recovery, signals, the door for users' requests and the status; an executor has none of these. What
users ask it, and what they see of it, is in a folder of this machine; what outlives it is behind the executor's fence.

Its replicas outlive it if it crashes, for as long as the executor lets them (ten minutes where they are processes of this
machine), and whoever runs the same application again takes them over. An orderly end ends them too.
"""

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

import attrs
import msgspec

from executors.deployment_ids import split, unescaped
from executors.engine.backend import ClusterBackend
from executors.engine.clusters import CLUSTER, ClusterRecovered
from executors.engine.journal import Journal, JournalWriter, LenientJournal
from executors.engine.loop import ClusterLoop
from executors.engine.recent_notes import RecentNotes
from executors.engine.store import FencedJournal, TextStore
from executors.maintenance import Maintenance
from executors.plugin import ControllerFence, OpenExecutor
from executors.private_folder import PlaceError
from executors.ray_gpu.errors import InvalidDeploymentError, refused
from executors.ray_gpu.overview import DeploymentInfo, ReplicaStatus, Status
from executors.run.answers import Answers, report_of
from executors.run.checkpoint import RECORD, record_in
from executors.run.door import Door
from executors.run.fence import FenceError
from executors.run.files import LOG, SAID, STAYS, DamagedFileError
from executors.run.folders import lock
from executors.run.maintenance_file import MaintenanceFile
from executors.whole_files import write_whole
from rankcore import DeploymentSpec, DeploymentStatus
from rankcore.cluster import ApplicationSpec, ClusterState, Entry, EntrySpec
from rankcore.cluster.events import ApplyRequested, ClusterEvent, DeletionRequested, NodeJoined
from rankcore.cluster.names import application_of
from rankcore.commands import KillReplica
from rankcore.errors import InvalidEventError
from rankcore.events import NodeLost
from rankcore.progress import progress_of
from rankcore.values import NodeId, age_key
from rankcore.waits import replica_in_words

LOGGER = logging.getLogger(__name__)
Begin: TypeAlias = Callable[[str, Callable[[], DeploymentSpec], int, ControllerFence], OpenExecutor]
"""Makes the executor: of MODULE:APP, for what is wanted now, with an epoch and the fence that is up."""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STATUS, EXECUTOR = "status.json", "executor"
FIRST_EXECUTOR = "local"
"""Of folders that do not say who has begun: there was no other."""


class Controller:
    """Runs one deployment. Nothing happens but in `run_for` and `stop`.

    Every method raises `FenceError` once a newer controller has taken the deployment over; then `leave` it.

    Args:
        folder: Of the deployment; see `executors.run.files`.
        application: MODULE:APP, for the replicas.
        spec: What is wanted. Where a crashed controller has left replicas, they are taken over and changed to this; a deletion
            that it had begun is finished before.
        fence: What outlives this controller. Nobody has raised it yet.
        begin: Makes the executor, behind the fence.
        open_journal: Gives what steps are written to. Called once nobody else runs this deployment.
        executor_name: Of the executor. One that another has begun is refused while there may be replicas of it.
        version_now: Of the code that a replica would find which is started now; None: versions are the user's own affair.

    Attributes:
        maintenance: What users have asked of nodes and replicas.
        application: MODULE:APP.
        nodes: Those that the executor has told of and has still.
        notes: The newest of them.

    Raises:
        PlaceError: Another controller runs this deployment.
        RankcoreError: What the crashed one has left cannot be read, or the journal cannot be used.
        OSError: The folder or the journal cannot be written to.
    """

    maintenance: Maintenance
    notes: RecentNotes
    nodes: tuple[NodeId, ...] = ()

    def __init__(
        self,
        folder: Path,
        application: str,
        spec: DeploymentSpec,
        fence: ControllerFence,
        begin: Begin,
        open_journal: Callable[[], Journal] | None = None,
        version_now: Callable[[], str] | None = None,
        executor_name: str = FIRST_EXECUTOR,
    ) -> None:
        self.fence = fence
        self._make_executor = begin
        self._version_now = version_now
        self._executor_name = executor_name
        self._wanted = EntrySpec(ranks=spec)
        self._name = self._wanted.deployment
        self._folder, self.application = folder, application
        self._loop: ClusterLoop | None = None
        self._door: Door | None = None
        self._shown: tuple[Entry | None, object] | None = None
        self._complaint = ""
        self._status: DeploymentStatus | None = None
        self._status_since = now()
        self._has_begun = False
        self._lock = lock(folder)
        try:
            self._begin(open_journal() if open_journal is not None else None)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and self._has_begun:
                with suppress(FenceError):
                    self.kill()
            self.leave()
            raise

    def _begin(self, journal: Journal | None) -> None:
        """Raise the fence, then look: at the survivors, and at what an earlier controller wanted."""
        folder, fence, epoch = self._folder, self.fence, self.fence.newest() + 1
        self._journal = journal
        self._check_executor()
        with undisturbed():
            fence.raise_to(epoch)
            self.executor = self._make_executor(self.application, self._in_force, epoch, fence)
            self._epoch = epoch
            self._has_begun = True
            self.nodes = tuple(self.executor.nodes())
            upheld = fence.upheld
            write_whole(folder / EXECUTOR, self._executor_name, upheld())
            self.maintenance = Maintenance(MaintenanceFile(folder / SAID, upheld))
            self.maintenance.read()
            self.close_nodes()  # before the first command, which may be a start
            self._backend = ClusterBackend(TextStore(fence.write), lambda _: self.executor, now)
            self._backend.executors[self._name] = self.executor
            text = fence.read()
            records = () if text is None else (record_in(text, self._name, fence.where),)
            found = tuple(self.executor.survivors())
            how = ClusterRecovered(records=records, replica_ids=found, at=now(), epoch=epoch)
            self.notes = RecentNotes(FencedJournal(journal, upheld))
            self._loop = ClusterLoop.begun(CLUSTER, self._backend, how, journal=self.notes)
            self._look()
        while self.entry is not None and self.entry.deleting:
            self.run_for(0.1)
        with undisturbed():
            if self.entry is None:
                with upheld():
                    (folder / LOG).unlink(missing_ok=True)
            wanted = ApplicationSpec(name=application_of(self._name), deployments=(self._wanted,))
            for node in self.nodes:
                self._loop.deliver(NodeJoined(node_id=node, resources={}, at=now()))
            self.forget_gone()
            for request in self.maintenance.requests.values():
                self._loop.deliver(attrs.evolve(request, at=now()))
            self._loop.deliver(ApplyRequested(applications=(wanted,), at=now()))
            self._loop.deliver_all()
            if self._unsaved:
                raise OSError(self._unsaved)
            self._door, self._answers = Door(folder), Answers(self)
            self._look()

    def _check_executor(self) -> None:
        """Two executors know nothing of each other's replicas, nor of each other's records: a rank would be believed twice.

        So what counts is the file, which is there until a deployment has ended.
        """
        file = self._folder / EXECUTOR
        is_there = file.exists() or (self._folder / RECORD).exists()
        before = file.read_text() if file.exists() else FIRST_EXECUTOR
        if is_there and before != self._executor_name:
            raise PlaceError(
                f"{self._name} is of executor {before!r}, whose replicas may live, found --executor {self._executor_name}: "
                f"`rankcore run --executor {before}` takes them over, and Ctrl-C ends them"
            )

    @property
    def entry(self) -> Entry | None:
        """The deployment, as the machine has it; None: it is gone, or has not begun."""
        return self._loop.state.deployments.get(self._name) if self._loop is not None else None

    @property
    def state(self) -> ClusterState:
        """Of the machine."""
        return self._running.state

    @property
    def epoch(self) -> int:
        """Of this controller."""
        return self._running.state.epoch

    @property
    def _running(self) -> ClusterLoop:
        assert self._loop is not None, "a controller that was made has a loop"
        return self._loop

    @property
    def _unsaved(self) -> str:
        """Why the record could not be stored; "": it is, or an answer is to come."""
        return self._backend.unsaved.get(self._name, "")

    def _in_force(self) -> DeploymentSpec:
        entry = self.entry
        return entry.ranks.spec if entry is not None else self._wanted.ranks

    # -- what users ask for

    def now(self) -> float:
        """Seconds on the executor's clock."""
        return now()

    def check(self, event: ClusterEvent) -> None:
        """Raise what the machine would raise of a request; nothing changes."""
        self._running.check(event)

    def request(self, event: ClusterEvent) -> None:
        """Have the machine take what a user asks for; it is stored when this returns.

        Raises:
            InvalidDeploymentError: It is refused, or could not be stored yet; the text says which.
            RankcoreError: This process may not act any more.
            OSError: The journal cannot be written. Nothing has changed.
        """
        try:
            self._running.deliver(event)
        except InvalidEventError as error:
            raise refused(error) from None
        self._running.deliver_all()
        if self._unsaved:
            raise InvalidDeploymentError(f"it counts once it is stored, which is tried again: {self._unsaved}")

    def check_code(self, version: str) -> None:
        """Whether replicas of a version can be started by now: each imports the file anew.

        Raises:
            InvalidDeploymentError: The file has changed since.
        """
        now_is = version if self._version_now is None else self._version_now()
        if now_is != version:
            raise InvalidDeploymentError(
                f"{self._name} cannot be started as version {version}: the file of its class has changed, and is of version "
                f"{now_is} by now; put it back as it was, or end this run, and run the file of now"
            )

    def close_nodes(self) -> None:
        """Nothing new comes to nodes that are cordoned, from now on."""
        self.executor.close_nodes(frozenset(self.maintenance.cordons))

    def forget_gone(self) -> None:
        """What was asked of nodes and replicas that there are no more is over.

        Raises:
            OSError: It cannot be written. Nothing has changed.
        """
        kept = self.maintenance
        kept.forget(nodes=kept.cordons.keys() - set(self.nodes), replicas=kept.gone(self.state))

    # -- its life

    def run_for(self, seconds: float) -> None:
        """Let the deployment go on for so long, or until it is gone."""
        deadline = now() + seconds
        self._check_fence()
        while True:
            with undisturbed():
                is_written = self._go_on()
                self._look()
            if now() >= deadline or self.entry is None:
                return
            if is_written:
                self.executor.wait(min(deadline, self._backend.wake_at) - now(), self._door.files() if self._door else ())
            else:
                time.sleep(max(0.0, deadline - now()))  # the disk may have room then

    def stop(self, timeout_s: float) -> None:
        """Let every replica finish what it does, end it, and forget the deployment.

        Raises:
            TimeoutError: Some replicas have not ended; `kill` ends them.
        """
        deadline = now() + timeout_s
        if self.entry is not None:
            self._running.post(DeletionRequested(deployments=(self._name,), at=now()))
        self.run_for(0.0)
        while self.entry is not None:
            if now() > deadline:
                raise TimeoutError(f"{len(self.executor.survivors())} replicas have not stopped within {timeout_s:g} s")
            self.run_for(0.1)
        self._forget()
        self.leave()

    def kill(self) -> None:
        """End every replica at once, and forget the deployment."""
        while there_are := self.executor.survivors():
            self._check_fence()
            for replica_id in there_are:
                self.executor.execute(KillReplica(replica_id, self._epoch))
            while self.executor.poll() is not None:
                pass
            self.executor.wait(0.1)
        self._forget()
        self.leave()

    def leave(self) -> None:
        """Let go of everything: replicas live on, for whoever takes them over. Twice is fine."""
        if self._door is not None:
            self._door.close()
            self._door = None
        if self._has_begun:
            self.executor.close()
            if isinstance(self._journal, JournalWriter):
                with suppress(FenceError), self.fence.upheld():
                    self._journal.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def status(self) -> Status:
        """How it is, for people."""
        entry = self.entry
        deployments = {} if entry is None else {self._name: self._info(entry)}
        return Status(
            namespace=unescaped(self._folder.parent.name) or self._folder.parent.name,
            epoch=self.epoch,
            controller_pid=os.getpid(),
            journal=None,
            journal_problem=self._journal.problem if isinstance(self._journal, LenientJournal) else None,
            deployments=deployments,
            cordons=tuple(report_of(self, each) for each in sorted(self.maintenance.cordons)),
        )

    def _info(self, entry: Entry) -> DeploymentInfo:
        state = entry.ranks
        rows = [
            ReplicaStatus(
                replica_id=replica_id,
                state=replica.state,
                rank=replica.rank,
                node_id=replica.node_id,
                pid=self.executor.pid_of(replica_id),
                version=replica.version,
                message=replica_in_words(replica, now()),
            )
            for replica_id, replica in sorted(state.replicas.items(), key=lambda item: age_key(item[0]))
        ]
        return DeploymentInfo(
            name=self._name,
            status=state.status,
            message=self._unsaved or entry.message() or "; ".join(entry.conditions),
            world_size=state.world_size,
            version=state.spec.version,
            class_name="",
            app_name=split(self._name)[0],
            replicas=tuple(sorted(rows, key=lambda row: row.rank.rank if row.rank is not None else 2**31)),
            rollout=str(progress_of(state, now())),
            status_for_s=max(0.0, now() - self._status_since),
        )

    # -- what happens

    def _go_on(self) -> bool:
        """Take a step for all that has happened; False: a step cannot be written down, so nothing happens."""
        problem = ""
        try:
            self._look_at_nodes()
            self._running.deliver_all()
            if self._door is not None:
                self._door.serve(self._answers.line)
        except OSError as error:
            problem = str(error)
        if complaint := problem or self._unsaved:
            self._complain(f"nothing changes until this can be written: {complaint}")
        return not problem

    def _look_at_nodes(self) -> None:
        """Nodes may come and go; of those that are lost the executor tells too."""
        before, self.nodes = self.nodes, tuple(self.executor.nodes())
        if self.nodes != before:
            for node in sorted(set(self.nodes) - set(before)):
                self._running.deliver(NodeJoined(node_id=node, resources={}, at=now()))
            for node in sorted(set(before) - set(self.nodes)):
                self._running.deliver(NodeLost(node_id=node, at=now()))

    def _check_fence(self) -> None:
        with self.fence.upheld():
            pass

    def _look(self) -> None:
        status = self.entry.ranks.status if self.entry is not None else None
        if status is not self._status:
            self._status, self._status_since = status, now()
        shown = self.entry, (self._unsaved, tuple(self.maintenance.cordons.values()))
        if self._shown is None or shown[0] is not self._shown[0] or shown[1] != self._shown[1]:
            text = msgspec.json.encode(self.status()).decode()
            try:
                write_whole(self._folder / STATUS, text, self.fence.upheld())
                self._shown = shown
            except OSError as error:
                self._complain(f"`rankcore status` shows what was before: {error}")

    def _complain(self, text: str) -> None:
        if text != self._complaint:
            self._complaint = text
            LOGGER.error("%s", text)

    def _forget(self) -> None:
        with self.fence.upheld():
            for path in self._folder.iterdir():
                if path.name not in STAYS:
                    path.unlink()
        self.fence.write(None)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Signals that ask for an end wait until this is over: no step is left half done, no new process is lost sight of."""
    came: list[int] = []
    heard = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        for first in came[:1]:
            signal.raise_signal(first)


def read_status(path: Path) -> Status:
    """What a controller wrote down last.

    Raises:
        DamagedFileError: That cannot be read.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DamagedFileError(
            path,
            f"must hold what a controller wrote down last, and cannot be read: {error}; "
            "it is written anew with the next change, or when the same `rankcore run` takes the replicas over",
        ) from None


def now() -> float:
    """Seconds on the clock that all processes of this machine share."""
    return time.monotonic()
