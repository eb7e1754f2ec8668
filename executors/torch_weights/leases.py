"""Files that live as long as a process holds them, for what processes of one node share.

A holder has a shared `flock` on the file. The kernel takes it back when the process ends, however it ends, so that nothing is
counted that has no holder: the last one to let go removes the file, and where the last one was killed, the next process that
looks does. Who looks, takes or lets go has the lock of the folder meanwhile, so that nobody takes what another removes. A child
that is forked and loads no program of its own holds what its parent held, until it ends too.
"""

import contextlib
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from executors.torch_weights.errors import InvalidMemoryError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")
OWN = ".lock"
"""The lock of the folder. It stays when all else is gone."""
HELD = ".lease"
"""Ending of the files that are held. No other file is touched, whatever else somebody keeps in the folder."""
_FILLING = ".filling"
"""Ending of a file beside it that says who fills it."""


class Lease:
    """One holder's share in a file.

    Attributes:
        name: Of the file in its folder, without its ending.
        descriptor: Open for reading and writing, until released.
        new: Whether this holder made it.
    """

    def __init__(self, folder: "LeaseFolder", name: str, descriptor: int, new: bool) -> None:
        self._folder, self.name, self.descriptor, self.new = folder, name, descriptor, new

    def release(self) -> bool:
        """Let go; True: nobody else held it, and it is removed. A second time nothing happens."""
        if self.descriptor < 0:
            return False
        with self._folder.locked():
            descriptor, self.descriptor = self.descriptor, -1
            try:
                return self._folder.remove_unheld(self.name, descriptor)
            finally:
                os.close(descriptor)


class LeaseFolder:
    """A folder of such files, which belongs to one user.

    Args:
        path: Made where there is none. One that belongs to another user, or that others can write to, is refused.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        allowed = "a folder that only its owner, this user, can write to"
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = path.lstat()
        except OSError as error:
            raise InvalidMemoryError("the folder for shared memory", str(error), allowed) from error
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise InvalidMemoryError("the folder for shared memory", str(path), allowed)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else takes, lets go or removes meanwhile. Not to be nested."""
        descriptor = os.open(self.path / OWN, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def take(self, name: str, nbytes: int) -> Lease:
        """Hold a file, which has that size and nothing in it where it is new. To be called while `locked`.

        Raises:
            InvalidMemoryError: It is there in another size, or its name is none.
        """
        if not _NAME.fullmatch(name):
            raise InvalidMemoryError("name of a shared file", name, "letters, digits, '.', '_' and '-'")
        path = self.path / (name + HELD)
        new = not path.exists()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # Nobody has it exclusively without the folder's lock, so this does not wait.
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            if new:
                os.truncate(descriptor, nbytes)
            # Who maps a file that others make shorter is ended by the system.
            if os.fstat(descriptor).st_size != nbytes:
                raise InvalidMemoryError(f"size of {path}", os.fstat(descriptor).st_size, f"{nbytes}, as whoever made it said")
        except BaseException:
            self.remove_unheld(name, descriptor)
            os.close(descriptor)
            raise
        return Lease(self, name, descriptor, new)

    def held(self) -> dict[str, os.stat_result]:
        """Each file that somebody holds, by name; the others are removed. To be called while `locked`."""
        found: dict[str, os.stat_result] = {}
        for entry in sorted(os.scandir(self.path), key=lambda each: each.name):
            name = entry.name.removesuffix(HELD)
            if name == entry.name or not _NAME.fullmatch(name):
                continue
            descriptor = os.open(entry.path, os.O_RDWR | os.O_CLOEXEC)
            try:
                if not self.remove_unheld(name, descriptor):
                    found[name] = os.fstat(descriptor)
            finally:
                os.close(descriptor)
        return found

    def remove_unheld(self, name: str, descriptor: int) -> bool:
        """Remove a file if nobody but this descriptor holds it. To be called while `locked`."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        for each in (name + HELD, name + _FILLING):
            (self.path / each).unlink(missing_ok=True)
        return True

    @contextlib.contextmanager
    def filling(self, lease: Lease) -> Iterator[bool]:
        """Whether this holder is the one to fill a file: one at a time is, until it ends or its process does."""
        descriptor = os.open(self.path / (lease.name + _FILLING), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(descriptor)
