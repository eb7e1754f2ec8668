"""Opens files that can be read again, and from whose end one does not wait: regular ones."""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def open_regular(path: Path) -> BufferedReader:
    """Open a file to read its bytes. A run is made again from its files, so that a pipe, which can be read once, is none.

    Raises:
        OSError: It cannot be opened, or is no regular file.
    """
    try:
        # Without O_NONBLOCK, a named pipe would be waited for until somebody writes to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # a NUL in the path
        raise OSError(errno.EINVAL, str(error)) from None
    mode = os.fstat(descriptor).st_mode
    kind = next((kind for is_one, kind in KINDS if is_one(mode)), None)
    if kind is not None:
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"expected a regular file, found {kind}")
    return open(descriptor, "rb")
