"""What another user may have planted under a name that we are about to write to, such as that of a journal in /tmp.

Where others can write to a folder, one of them may know the name before we use it, and put there: a link, so that we write over
a file of ours elsewhere; a second name of such a file; a file of his own, which he reads and changes as we write; or a pipe, at
which we wait for ever. In a folder that nobody else can write to, whatever is there is what its owner wants, links too, and
nothing is asked. The system refuses some of this in sticky folders, if its administrator says so (`fs.protected_*`). In one
that is not sticky, as Ray's /tmp/ray, a file may also be replaced while we write to it: what is lost then is the file.
"""

import os
import stat

from executors.private_folder import PlaceError, is_trusted


def refuse_planted(path: str | os.PathLike[str]) -> None:
    """Raise if another user may have put there what has this name.

    Raises:
        PlaceError: He may have; the text says what it is.
    """
    if not _lets_others_in(path):
        return
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    _refuse(path, found)


def unplanted(path: str, flags: int) -> int:
    """Open a file to write to, as `FileIO(..., opener=unplanted)` wants it, unless another user may have put it there.

    Raises:
        PlaceError: He may have; the text says what it is. Nothing is changed.
        OSError: It cannot be opened.
    """
    if not _lets_others_in(path):
        return os.open(path, flags, 0o666)
    refuse_planted(path)
    if os.path.islink(path):  # one of ours
        path = os.path.realpath(path)
    # What is put there only now: a link is not followed, a pipe not waited at, and a file looked at before it is emptied.
    descriptor = os.open(path, (flags & ~os.O_TRUNC) | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    try:
        found = os.fstat(descriptor)
        _refuse(path, found)
        if flags & os.O_TRUNC and stat.S_ISREG(found.st_mode):
            os.ftruncate(descriptor, 0)
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _lets_others_in(path: str | os.PathLike[str]) -> bool:
    try:
        return bool(os.stat(os.path.dirname(os.path.abspath(path))).st_mode & 0o022)
    except OSError:  # there is no such folder: who opens the file is told so
        return False


def _refuse(path: str | os.PathLike[str], found: os.stat_result) -> None:
    what = None
    if not is_trusted(found.st_uid):
        what = f"{'a link' if stat.S_ISLNK(found.st_mode) else 'something'} that belongs to user {found.st_uid}"
    elif stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
        what = "a file that has another name too"
    if what is not None:
        shown = os.fspath(path)
        raise PlaceError(
            f"{shown} is {what}, in a folder that all users can write to: remove it, or choose a folder of your own"
        )
