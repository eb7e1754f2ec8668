"""What another user may have planted under a name that we are about to write to, such as that of a journal in /tmp.

Where others can write to a folder, one of them may know the name before we use it, and put there: a link, so that we write over
a file of ours elsewhere; a second name of such a file; a file of his own, which he reads and changes as we write; or a pipe, at
which we wait for ever. In a folder that nobody else can write to, whatever is there is what its owner wants, links too, and
nothing is asked. The system refuses some of this in sticky folders, if its administrator says so (`fs.protected_*`). In one
that is not sticky, as Ray's /tmp/ray, or that is his own, he may also replace a file while we write to it: what is lost then is
that file, and no other.

He may plant and remove it a hundred thousand times a second, and win whenever two of our looks see different things. So each
thing is looked at once: a name by `lstat`, and only a link that this has shown to be ours is followed, where nobody else can
replace it; then the file itself, once it is open.
"""

import os
import stat

from executors.private_folder import PlaceError, is_trusted


def unplanted_path(path: str | os.PathLike[str]) -> str:
    """What to write to under this name: itself, or what a link leads to, if it is none that another user may have put there.

    Raises:
        PlaceError: He may have put there what has this name; the text says what it is.
    """
    folder = _open_to_others(path)
    real = os.path.join(os.path.realpath(os.path.dirname(path) or "."), os.path.basename(path))
    if folder is None:
        return os.path.realpath(path)
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return real
    _refuse(path, found, folder)
    return os.path.realpath(path) if stat.S_ISLNK(found.st_mode) else real


def unplanted(path: str, flags: int) -> int:
    """Open a file to write to, as `open(..., opener=unplanted)` wants it, unless another user may have put it there.

    Raises:
        PlaceError: He may have; the text says what it is. Nothing is changed.
        OSError: It cannot be opened.
    """
    folder = _open_to_others(path)
    if folder is None:
        return os.open(path, flags, 0o666)
    # What is put there only now: a link is not followed, a pipe not waited at, and a file looked at before it is emptied.
    descriptor = os.open(unplanted_path(path), (flags & ~os.O_TRUNC) | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    try:
        found = os.fstat(descriptor)
        _refuse(path, found, folder)
        if flags & os.O_TRUNC and stat.S_ISREG(found.st_mode):
            os.ftruncate(descriptor, 0)
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _open_to_others(path: str | os.PathLike[str]) -> os.stat_result | None:
    """The folder of a file, if others can write to it; None: they cannot."""
    try:
        found = os.stat(os.path.dirname(path) or ".")
    except OSError:  # there is no such folder: who opens the file is told so
        return None
    return found if found.st_mode & 0o022 or not is_trusted(found.st_uid) else None


def _refuse(path: str | os.PathLike[str], found: os.stat_result, folder: os.stat_result) -> None:
    is_link = stat.S_ISLNK(found.st_mode)
    what = None
    if not is_trusted(found.st_uid):
        what = f"{'a link' if is_link else 'something'} that belongs to user {found.st_uid}"
    elif is_link and not (folder.st_mode & stat.S_ISVTX and is_trusted(folder.st_uid)):
        what = "a link that others can replace"
    elif stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
        what = "a file that has another name too"
    if what is not None:
        shown = os.fspath(path)
        raise PlaceError(
            f"{shown} is {what}, in a folder that other users can write to: remove it, or choose a folder of your own"
        )
