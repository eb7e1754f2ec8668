"""The loop around the executor: one deployment on this machine, from its start, or from what a crash has left, to its end.

Its replicas outlive it if it crashes, for ten minutes (`replica.ORPHAN_S`), and whoever runs the same application again takes
them over. An orderly end ends them too.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

import attrs
import msgspec

from executors.driver import Driver
from executors.journal import Deployed, Journal, Recovered
from executors.local.executor import LocalExecutor, now
from executors.local.folders import lock
from executors.local.places import LOG, newest_epoch, write_whole
from executors.ray_gpu.overview import DeploymentInfo, ReplicaStatus, Status
from rankcore import DeploymentSpec, DeploymentState, DeploymentStatus, NoteKind, Step
from rankcore.codec import from_json, to_json
from rankcore.events import DeleteRequested, SpecChanged
from rankcore.values import age_key

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TROUBLE = (NoteKind.START_FAILED, NoteKind.DEPLOY_FAILED, NoteKind.ROLLED_BACK, NoteKind.KILL_CHOSEN)


class Controller:
    """Runs one deployment. Nothing happens but in `run_for` and `stop`.

    Args:
        folder: Of the deployment; see `places`.
        application: MODULE:APP, for the replicas.
        spec: What is wanted. Where a crashed controller has left replicas, they are taken over and changed to this.

    Raises:
        PlaceError: Another controller runs this deployment.
        RankcoreError: What the crashed one has left is of another version.
    """

    def __init__(self, folder: Path, application: str, spec: DeploymentSpec, journal: Journal | None = None) -> None:
        self._folder = folder
        self._lock = lock(folder)
        self._trouble = ""
        self._shown: DeploymentState | None = None
        kept = folder / "record.json"
        record = from_json(kept.read_text(), Recovered) if kept.exists() else None
        if record is None:
            (folder / LOG).unlink(missing_ok=True)
        epoch = newest_epoch(folder) + 1
        self._save(record.spec if record is not None else spec, None if record is None else record.previous)
        self.executor = LocalExecutor(folder, application, lambda: self._saved.spec, epoch)
        try:
            with undisturbed():
                self._begin(record, spec, epoch, journal)
        except KeyboardInterrupt:
            self.kill()
            raise

    def _begin(self, record: Recovered | None, spec: DeploymentSpec, epoch: int, journal: Journal | None) -> None:
        if record is None:
            self._driver = Driver.begin(self.executor, Deployed(spec=spec, at=now(), epoch=epoch), journal=journal)
        else:
            found = tuple(self.executor.processes)
            how = attrs.evolve(record, replica_ids=found, at=now(), epoch=epoch)
            self._driver = Driver.begin(self.executor, how, journal=journal)
            self._note(self._driver.deliver(SpecChanged(spec=spec, at=now())))
        self._look()

    @property
    def state(self) -> DeploymentState:
        """As the core has it."""
        return self._driver.state

    def run_for(self, seconds: float) -> None:
        """Let the deployment go on for so long."""
        deadline = now() + seconds
        while True:
            with undisturbed():
                while (event := self.executor.poll()) is not None:
                    self._note(self._driver.deliver(event))
                self._look()
            if now() >= deadline or self.state.status is DeploymentStatus.DELETED:
                return
            self.executor.wait(deadline - now())

    def stop(self, timeout_s: float) -> None:
        """Let every replica finish what it does, end it, and forget the deployment.

        Raises:
            TimeoutError: Some replicas have not ended; `kill` ends them.
        """
        deadline = now() + timeout_s
        with undisturbed():
            self._driver.deliver(DeleteRequested(at=now()))
        while self.state.status is not DeploymentStatus.DELETED:
            if now() > deadline:
                raise TimeoutError(f"{len(self.executor.processes)} replicas have not stopped within {timeout_s:g} s")
            self.run_for(0.1)
        self._forget()

    def kill(self) -> None:
        """End every replica at once, and forget the deployment."""
        while self.executor.processes:
            for process in self.executor.processes.values():
                process.kill()
            self.executor.poll()
            self.executor.wait(0.1)
        self._forget()

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
            message=state.message or self._trouble,
            world_size=state.world_size,
            version=state.spec.version,
            class_name="",
            app_name="default",
            replicas=tuple(sorted(rows, key=lambda row: row.rank.rank if row.rank is not None else 2**31)),
        )
        return Status(
            namespace=unquote(self._folder.parent.name),
            epoch=state.epoch,
            controller_pid=os.getpid(),
            journal=None,
            deployments={info.name: info},
        )

    # -- what outlives it

    def _look(self) -> None:
        state = self.state
        if state.status is DeploymentStatus.HEALTHY:
            self._trouble = ""
        if (state.spec, state.previous) != (self._saved.spec, self._saved.previous):
            self._save(state.spec, state.previous)
        if state is not self._shown:
            self._shown = state
            write_whole(self._folder / "status.json", msgspec.json.encode(self.status()).decode())

    def _save(self, spec: DeploymentSpec, previous: DeploymentSpec | None) -> None:
        self._saved = Recovered(spec=spec, replica_ids=(), at=0.0, epoch=0, previous=previous)
        write_whole(self._folder / "record.json", to_json(self._saved))

    def _forget(self) -> None:
        for path in self._folder.iterdir():
            if path.name != LOG:  # somebody may want to know why
                path.unlink()
        os.close(self._lock)

    def _note(self, step: Step) -> None:
        for note in step.notes:
            if note.kind in TROUBLE:
                self._trouble = f"{note.replica_id}: {note.because}" if note.replica_id else f"{note.because}\n{self._trouble}"


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
