"""The loop around the executor: one deployment on this machine, from its start, or from what a crash has left, to its end.

Its replicas outlive it if it crashes, for ten minutes (`replica.ORPHAN_S`), and whoever runs the same application again takes
them over. An orderly end ends them too.
"""

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs
import msgspec

from executors.deployment_ids import split, unescaped
from executors.engine.deployments import Deployed, Recovered
from executors.engine.journal import Journal
from executors.engine.loop import Driver, Keeping
from executors.engine.store import FencedJournal, FileStore
from executors.local.checkpoint import RECORD, read_checkpoint
from executors.local.executor import LocalExecutor, now
from executors.local.fence import FenceError
from executors.local.folders import lock
from executors.local.places import LOG, STAYS, DamagedFileError, newest_epoch
from executors.ray_gpu.overview import DeploymentInfo, ReplicaStatus, Status
from executors.whole_files import write_whole
from rankcore import DeploymentSpec, DeploymentState, DeploymentStatus, NoteKind, Step
from rankcore.events import DeleteRequested, SpecChanged
from rankcore.values import age_key

LOGGER = logging.getLogger(__name__)
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TROUBLE = (NoteKind.START_FAILED, NoteKind.DEPLOY_FAILED, NoteKind.ROLLED_BACK, NoteKind.KILL_CHOSEN)
STATUS = "status.json"
GOING = (DeploymentStatus.DELETING, DeploymentStatus.DELETED)


class Controller:
    """Runs one deployment. Nothing happens but in `run_for` and `stop`.

    Every method raises `FenceError` once a newer controller has taken the deployment over; then `leave` it.

    Args:
        folder: Of the deployment; see `places`.
        application: MODULE:APP, for the replicas.
        spec: What is wanted. Where a crashed controller has left replicas, they are taken over and changed to this; a deletion
            that it had begun is finished before.
        open_journal: Gives what steps are written to. Called once nobody else runs this deployment.

    Raises:
        PlaceError: Another controller runs this deployment.
        RankcoreError: What the crashed one has left cannot be read, or the journal cannot be used.
        OSError: The folder or the journal cannot be written to.
    """

    def __init__(
        self, folder: Path, application: str, spec: DeploymentSpec, open_journal: Callable[[], Journal] | None = None
    ) -> None:
        self._folder, self._application = folder, application
        self._wanted = self._spec = spec
        self._trouble = self._complaint = ""
        self._shown: tuple[DeploymentState | None, str] = None, ""
        self._has_begun = False
        self._lock = lock(folder)
        try:
            journal = open_journal() if open_journal is not None else None
            self._begin(journal)
            while self.state.status in GOING:
                self._finish_deletion()
                self._begin(journal)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and self._has_begun:
                with suppress(FenceError):
                    self.kill()
            self.leave()
            raise

    def _begin(self, journal: Journal | None) -> None:
        """Raise the fence, then look: at the survivors, and at what an earlier controller wanted."""
        folder, epoch = self._folder, newest_epoch(self._folder) + 1
        with undisturbed():
            self.executor = LocalExecutor(folder, self._application, lambda: self._spec, epoch)
            self._has_begun = True
            upheld = self.executor.fence.upheld
            kept = read_checkpoint(folder)
            if kept is None:
                with upheld():
                    (folder / LOG).unlink(missing_ok=True)
                how: Deployed | Recovered = Deployed(spec=self._wanted, at=now(), epoch=epoch)
            else:
                how = attrs.evolve(kept, replica_ids=tuple(self.executor.processes), at=now(), epoch=epoch)
            keeping = Keeping(FileStore(folder / RECORD, upheld).save, self._record_of)
            self._driver = Driver.begin(self.executor, how, journal=FencedJournal(journal, upheld), keeping=keeping)
            if isinstance(how, Recovered) and not how.deleting:
                self._driver.deliver(SpecChanged(spec=self._wanted, at=now()))
            if self._driver.unsaved:
                raise OSError(self._driver.unsaved)
            self._look()

    def _finish_deletion(self) -> None:
        """End what an earlier controller had begun to delete; what is wanted now begins anew, under an epoch of its own."""
        while not self._is_deleted:
            self.run_for(0.1)
        self._forget()
        self.executor.close()

    @property
    def _is_deleted(self) -> bool:
        return self.state.status is DeploymentStatus.DELETED and self._driver.is_saved

    @property
    def state(self) -> DeploymentState:
        """As the core has it."""
        return self._driver.state

    def run_for(self, seconds: float) -> None:
        """Let the deployment go on for so long."""
        deadline = now() + seconds
        self.executor.fence.check()
        while True:
            with undisturbed():
                is_written = self._go_on()
                self._look()
            if now() >= deadline or self._is_deleted:
                return
            if is_written:
                self.executor.wait(deadline - now())
            else:
                time.sleep(max(0.0, deadline - now()))  # the disk may have room then

    def stop(self, timeout_s: float) -> None:
        """Let every replica finish what it does, end it, and forget the deployment.

        Raises:
            TimeoutError: Some replicas have not ended; `kill` ends them.
        """
        deadline = now() + timeout_s
        self._driver.post(DeleteRequested(at=now()))
        self.run_for(0.0)
        while not self._is_deleted:
            if now() > deadline:
                raise TimeoutError(f"{len(self.executor.processes)} replicas have not stopped within {timeout_s:g} s")
            self.run_for(0.1)
        self._forget()
        self.leave()

    def kill(self) -> None:
        """End every replica at once, and forget the deployment."""
        while self.executor.processes:
            self.executor.fence.check()
            for process in self.executor.processes.values():
                self.executor.kill(process)
            self.executor.poll()
            self.executor.wait(0.1)
        self._forget()
        self.leave()

    def leave(self) -> None:
        """Let go of everything: replicas live on, for whoever takes them over. Twice is fine."""
        if self._has_begun:
            self.executor.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def status(self) -> Status:
        """How it is, for people."""
        state = self.state
        rows = [
            ReplicaStatus(
                replica_id=replica_id,
                state=replica.state,
                rank=replica.rank,
                node_id=replica.node_id,
                pid=self.executor.processes[replica_id].address.pid if replica_id in self.executor.processes else None,
                version=replica.version,
            )
            for replica_id, replica in sorted(state.replicas.items(), key=lambda item: age_key(item[0]))
        ]
        info = DeploymentInfo(
            name=state.spec.name,
            status=state.status,
            message=self._driver.unsaved or state.message or self._trouble,
            world_size=state.world_size,
            version=state.spec.version,
            class_name="",
            app_name=split(state.spec.name)[0],
            replicas=tuple(sorted(rows, key=lambda row: row.rank.rank if row.rank is not None else 2**31)),
        )
        return Status(
            namespace=unescaped(self._folder.parent.name) or self._folder.parent.name,
            epoch=state.epoch,
            controller_pid=os.getpid(),
            journal=None,
            deployments={info.name: info},
        )

    # -- what happens

    def _go_on(self) -> bool:
        """Take a step for all that has happened; False: what was decided cannot be written down, so nothing follows from it."""
        try:
            self._driver.deliver_all()
            problem = self._driver.unsaved
        except OSError as error:
            problem = str(error)
        if problem:
            self._complain(f"nothing changes until this can be written: {problem}")
        return not problem

    def _record_of(self, step: Step) -> Recovered:
        for note in step.notes:
            if note.kind in TROUBLE:
                self._trouble = f"{note.replica_id}: {note.because}" if note.replica_id else f"{note.because}\n{self._trouble}"
        self._spec = step.state.spec
        return Recovered.of(step.state)

    def _look(self) -> None:
        state = self.state
        if state.status is DeploymentStatus.HEALTHY:
            self._trouble = ""
        if state is not self._shown[0] or self._driver.unsaved != self._shown[1]:
            text = msgspec.json.encode(self.status()).decode()
            try:
                write_whole(self._folder / STATUS, text, self.executor.fence.upheld())
                self._shown = state, self._driver.unsaved
            except OSError as error:
                self._complain(f"`rankcore status` shows what was before: {error}")

    def _complain(self, text: str) -> None:
        if text != self._complaint:
            self._complaint = text
            LOGGER.error("%s", text)

    def _forget(self) -> None:
        with self.executor.fence.upheld():
            for path in self._folder.iterdir():
                if path.name not in STAYS:
                    path.unlink()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Signals that ask for an end wait until this is over: no step is left half done, no new process is lost sight of."""
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in ENDING}
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
            "it is written anew with the next change, or when `rankcore run --executor local` takes the replicas over",
        ) from None
