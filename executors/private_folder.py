"""This user's own folder on this machine, and the sockets in it: no other user can look into it or put anything in its place.

Who may attack: another user of the same host, with a process of his own and no privileges. He can write to /tmp, knows every
name that we will use, and may act between any two of our system calls. Root, and processes of our own user, can do whatever we
can, and nothing here stops them.

What he would do, and what closes it:

1. *Look into a socket's folder, or connect.* The folder has mode 0700. A socket in it is never open to him, not even between
   `bind` and `chmod`, so that nobody has to touch the umask, which all threads of a process share.
2. *Rename the folder or the socket, and put his own there*, so that a caller sends him what it has and unpickles what he
   answers. For that he needs write permission on the folder that holds the name, and there, where the folder is sticky as /tmp
   is, to own the name. So all folders above ours are looked at, from the root down: each belongs to root or to us (or to the
   owner of "/", who has everything anyway), and others cannot write to it unless it is sticky. A folder that has been looked
   at cannot be replaced by him, hence what is looked at next is what will be used later: by induction there is no time between
   check and use in which he can do anything. Ray's own /tmp/ray has mode 0777 and is not sticky: below it nothing is safe.
3. *Be there first*: he makes `/tmp/rankcore-<uid>`, or a link of that name, before we do. The last part of a path is not
   followed as a link, and its owner must be us. Else another name is taken, from a list that all our processes go through in
   one order, those first that are there already and ours: a name that he gives up later changes nothing. Where he has taken
   all, that is said in one line.
4. *Use a folder of ours that was left open*: one that others could only read is closed. If they could write to it, nobody
   knows what they have put there, and it is refused.
5. *What we have overlooked*: both ends of a connection ask the kernel who the other one is (SO_PEERCRED), before they send or
   read one byte, and talk to nobody but the very same user. Root is another user too: its own calls take other ways. Where
   the system does not say who it is (it is not Linux), the folder alone protects.

All of this costs some ten system calls for a connection, and nothing for a call.
"""

import errno
import os
import socket
import stat
import struct
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from rankcore.errors import RankcoreError

MODE = 0o700
SOCKET_MODE = 0o600
SOCKET_PATH_BYTES_MAX = 103
"""What systems allow: Linux 107, others 103."""
NAMES_MAX = 8
"""So many names are tried for our folder, where others have taken them."""
SHORT_BASE = "/tmp"
"""Where our folder is if $TMPDIR is not set, or none that can be used."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""What passes: to go elsewhere meanwhile would hide what runs from whoever looks for it later."""
_CREDENTIALS = struct.Struct("iII")
"""What SO_PEERCRED answers: number of the process, user, group."""


class PlaceError(RankcoreError, PermissionError):
    """A folder, file or socket cannot be used, since it is not ours alone; the text says why, and what to do."""


class HasDescriptor(Protocol):
    """A socket, whoever made the object."""

    def fileno(self) -> int:
        """Its number."""


def home(room_bytes: int = 0) -> Path:
    """This user's folder, made where there is none.

    Args:
        room_bytes: How much longer paths of sockets in it will be.

    Raises:
        PlaceError: There can be none.
    """
    problems = []
    for base in dict.fromkeys((temporary(), Path(SHORT_BASE))):
        try:
            return home_in(base, room_bytes)
        except OSError as error:
            problems.append(str(error))
            if error.errno in NO_ROOM:
                break
    raise PlaceError(f"{problems[0]}: set TMPDIR to a short path of a folder that only you can write to")


def temporary() -> Path:
    """The folder for temporary files; the same while it has no room, when `tempfile.gettempdir` names another one."""
    return Path(os.path.abspath(os.environ.get("TMPDIR") or SHORT_BASE))


def home_in(base: Path, room_bytes: int = 0) -> Path:
    """This user's folder in one that all users can write to, made where there is none; else as `home`."""
    name = f"rankcore-{os.geteuid()}"
    paths = [base / name, *(base / f"{name}.{number}" for number in range(1, NAMES_MAX))]
    if len(os.fsencode(paths[-1])) + room_bytes > SOCKET_PATH_BYTES_MAX:
        raise PlaceError(f"{paths[0]} is too long a path for sockets")
    for path in paths:
        with suppress(OSError):
            return checked(path)
    problems = []
    for path in paths:
        try:
            return made(path)
        except OSError as error:
            problems.append(error)
    raise problems[0]


def made(path: Path) -> Path:
    """The real path of a folder of ours, which is made where there is none; the one above it is there.

    Raises:
        PlaceError: It is not ours alone, or could not be: nothing is made then.
        OSError: It cannot be made.
    """
    _safe_place(path)
    with suppress(FileExistsError):
        os.mkdir(path, MODE)
    return checked(path)


def checked(path: Path) -> Path:
    """The real path of a folder that nobody else can look into or replace.

    Raises:
        PlaceError: It is none; the text says which folder lets others in.
        OSError: It is not there.
    """
    real = _safe_place(path)
    found = os.lstat(real)
    if not stat.S_ISDIR(found.st_mode):
        raise PlaceError(f"{real} is no folder" + (", but a link" if stat.S_ISLNK(found.st_mode) else ""))
    if found.st_uid != os.geteuid():
        raise PlaceError(f"{real} belongs to user {found.st_uid}, and this is user {os.geteuid()}")
    if found.st_mode & 0o022:
        raise PlaceError(f"other users could write to {real}, which has mode {stat.S_IMODE(found.st_mode):04o}: remove it")
    if stat.S_IMODE(found.st_mode) != MODE:
        os.chmod(real, MODE)
    return real


def _safe_place(path: Path) -> Path:
    """The real path of what no other user can replace, if it is ours."""
    real = Path(os.path.realpath(path.parent), path.name)
    for parent in reversed(real.parents):
        check_stays(parent, real)
    return real


def check_stays(folder: Path, holds: Path) -> None:
    """Raise if another user could put something else in the place of what a folder holds. Those above it have been looked at.

    Raises:
        PlaceError: He could.
        OSError: It is not there.
    """
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        raise PlaceError(f"{folder} is no folder any more")
    if not is_trusted(found.st_uid):
        raise PlaceError(f"{folder} belongs to user {found.st_uid}, who could replace {holds}")
    if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
        mode = stat.S_IMODE(found.st_mode)
        raise PlaceError(f"other users can write to {folder}, which has mode {mode:04o}: they could replace {holds}")


def is_trusted(user: int) -> bool:
    """Whether a user is we, or can do what we can: root, and the owner of "/", whom a container may show as another."""
    return user in (os.geteuid(), 0, os.lstat("/").st_uid)


# -- sockets


def bound(path: Path) -> socket.socket:
    """A socket that has this name in a private folder, and does not listen yet. One that had the name before is gone.

    Raises:
        OSError: It cannot be; a PlaceError where the folder is not ours alone.
    """
    checked(path.parent)
    with suppress(FileNotFoundError):
        os.unlink(path)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        server.bind(str(path))
        os.chmod(path, SOCKET_MODE)
    except BaseException:
        server.close()
        raise
    return server


def connected(path: Path, timeout_s: float | None = None) -> socket.socket:
    """A connection to the process of this user that listens there, in a private folder.

    Args:
        timeout_s: How long to wait for room in its queue; None: for ever. It is the connection's time-out then.

    Raises:
        OSError: Nobody listens; a PlaceError where the folder is not ours alone, or another user listens.
    """
    checked(path.parent)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        connection.connect(str(path))
        check_peer(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def check_peer(connection: HasDescriptor) -> None:
    """Raise unless the other end of a Unix socket belongs to this very user.

    Raises:
        PlaceError: It does not, or the connection is closed.
    """
    if not hasattr(socket, "SO_PEERCRED"):
        return
    _, user = _peer(connection)
    if user != os.geteuid():
        raise PlaceError(f"the other end of a socket belongs to user {user}, and this is user {os.geteuid()}")


def peer_of(connection: HasDescriptor) -> int:
    """The process at the other end of a Unix socket, which listened there or has connected; 0: this system does not say."""
    return _peer(connection)[0] if hasattr(socket, "SO_PEERCRED") else 0


def _peer(connection: HasDescriptor) -> tuple[int, int]:
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        pid, user, _ = _CREDENTIALS.unpack(same.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, user
