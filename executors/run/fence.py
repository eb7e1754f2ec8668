"""The fence: why a controller that was replaced can do nothing to what the newer one has, and which line is for which race.

A controller that was stopped (SIGSTOP, a machine that slept, a lost lease) does not know that time has passed. When it goes on,
it goes on in the middle of a line, and the next one may be a SIGKILL. To ask "am I still the newest?" before is not enough: the
answer may grow old between the question and the deed. So the two are one here, under a lock that whoever replaces it needs too:

    an older controller                             the newer one
    take the lock, shared                           take the lock, alone
    is the epoch still mine? if not: release, end   write its epoch
    signal, rename, or append                       release the lock
    release the lock                                only now look for survivors, and read what the older one has left

Either the deed comes before the new epoch: then it is done before the newer controller looks, and it looks at the outcome.
Or it comes after it: then the older one reads the new epoch, and does nothing. A controller that stops with the lock in its
hands, for which it has some microseconds, cannot be told from one that is about to act: the newer one waits for `PATIENCE_S`,
and refuses to begin until that process is ended, which releases the lock. It is never passed by.

What an older controller could do, and what stands against it:

- It signals a process that the newer one has taken over or started: a kill, a stop that takes too long, a failed start.
  `LocalExecutor.kill` is the only way to a signal, and goes through `upheld`.
- A process number belongs to another process by now. A pidfd names one process; `found` sees to it that it was opened in time.
- It starts a process after the newer one has looked. `LocalReplica.live`: the socket first, then the epoch, and then it ends.
- It sends commands to a replica. The replica itself refuses them, from the newer one's first command on: `Beliefs.admit`.
  Until that comes a stop is checked against the file `epoch`: `LocalReplica._hear`.
- It takes a step, and writes journal, record or status over the newer one's. `FencedJournal`, `FolderFence`, `write_whole`.
- It removes the sockets of replicas that it does not know, since the newer one has started them. `sweep` within `upheld`.
- It acts while the newer one looks, and escapes it. `LocalExecutor.__init__`, `Controller._begin`: raise the fence, then look.
- Its epoch comes a second time, once the deployment was deleted. The file `epoch` stays; `Fence` refuses what is not newer.

With etcd or a database the lock is a transaction: the deed is written in one that compares the epoch. What cannot be part of
one (a signal) needs a guard beside it that can, as the lock is here.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from executors.run.files import newest_epoch
from executors.whole_files import write_whole
from rankcore.errors import RankcoreError

PATIENCE_S = 10.0
LOOK_EVERY_S = 0.002


class FenceError(RankcoreError):
    """A controller may not act, since it has been replaced or cannot find out."""


class ReplacedError(FenceError):
    """A newer controller has this deployment.

    Attributes:
        epoch: Of the controller that may not act.
        newest: Of the one that has the deployment; 0: none, its folder was removed.
    """

    def __init__(self, folder: Path, epoch: int, newest: int) -> None:
        super().__init__(f"epoch {epoch} is over: {folder / 'epoch'} is at {newest}, so another controller has the replicas")
        self.folder = folder
        self.epoch = epoch
        self.newest = newest

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.folder, self.epoch, self.newest)


class Fence:
    """The right of one controller to act on a deployment, until a newer one has raised its own. To make one raises it.

    Args:
        folder: Of the deployment; see `places`.
        epoch: Of the controller.

    Raises:
        ReplacedError: The epoch is not newer than all before it.
        FenceError: A controller that does not go on holds the lock.
        DamagedFileError: The newest epoch cannot be read.
    """

    def __init__(self, folder: Path, epoch: int) -> None:
        self._folder, self._epoch = folder, epoch
        with _locked(folder, fcntl.LOCK_EX):
            if epoch <= (newest := newest_epoch(folder)):
                raise ReplacedError(folder, epoch, newest)
            write_whole(folder / "epoch", str(epoch))

    @contextmanager
    def upheld(self) -> Iterator[None]:
        """What is done inside is done before any newer controller begins, or not at all. Be quick, and do not wait inside.

        Raises:
            ReplacedError: One has begun.
            FenceError: One that does not go on is about to.
        """
        with _locked(self._folder, fcntl.LOCK_SH):
            if (newest := newest_epoch(self._folder)) != self._epoch:
                raise ReplacedError(self._folder, self._epoch, newest)
            yield

    def check(self) -> None:
        """Raise what `upheld` raises, and do nothing else."""
        with self.upheld():
            pass


@contextmanager
def _locked(folder: Path, how: int) -> Iterator[None]:
    """The lock is on the folder itself: on a file that is replaced whole, two could each hold one."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not _has_locked(file, how):
            if time.monotonic() > deadline:
                raise FenceError(
                    f"a controller holds {folder}, and has not let go within {PATIENCE_S:g} s: if it is stopped, end it "
                    f"(`fuser {folder}` names its process)"
                )
            time.sleep(LOOK_EVERY_S)
        yield
    finally:
        os.close(file)


def _has_locked(file: int, how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
