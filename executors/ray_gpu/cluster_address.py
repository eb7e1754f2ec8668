"""Where the cluster of this machine is, and whether the one who says so can be believed.

Ray writes the address of the cluster that was started last to a file, `/tmp/ray/ray_current_cluster`, in a folder that it opens
to all users. Whoever joins a cluster sends it this user's token, with which anybody can run code as this user in the clusters
that the token opens; and what such a cluster answers is unpickled. So another user of the machine need only write an address of
his own there, and wait.

An address on this machine is believed if, as the kernel says, a connection to it reaches only this user's processes or root's,
which another user cannot bring about, whoever wrote the file. Who listens on the same port of another address, such as
127.0.0.2, is not asked for: everybody can. A connection goes to who listens on its very address, and only where nobody does to
who listens on all. One on another machine cannot be checked in this way: it is
believed if nobody else could have written the file, and has to be given by hand else. A cluster that we start is written to our
private folder as well, for users who overwrite each other's addresses in Ray's.
"""

import ipaddress
import logging
import os
import socket
import stat
import sys
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import ray

from executors.private_folder import PlaceError, check_stays, home, is_trusted
from executors.ray_gpu.errors import UntrustedAddressError

LOG = logging.getLogger(__name__)

ADDRESS_BYTES_MAX = 300
ASK_FOR_IT = "Say where your cluster is: --address or RAY_ADDRESS; `rankcore run --address local` starts one"
LISTENING = "0A"
"""In the kernel's tables of connections."""


def address_file() -> Path:
    """Where Ray writes the address of the cluster that was started last."""
    return Path(ray._private.utils.get_ray_address_file(None))


def found_address() -> str | None:
    """The address of the cluster that was started last on this machine; None: there is none.

    Raises:
        UntrustedAddressError: Another user may have written it, and what listens there is not ours.
    """
    problem = None
    for path in _files():
        try:
            address = _believed(path)
        except UntrustedAddressError as error:
            problem = problem or error
        else:
            if address is not None:
                return address
    if problem is not None:
        raise problem
    return None


def leave_address(address: str) -> None:
    """Let this user's other processes find a cluster, as `ray start` does. What has the file's name already is replaced and not
    written to: it may be another user's link to a file of ours.
    """
    for path in _files():
        pending = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            pending.unlink(missing_ok=True)
            with open(os.open(pending, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644), "w") as file:
                file.write(address)
            pending.replace(path)
        except OSError as error:
            LOG.warning("%s cannot be written (%s): RAY_ADDRESS=%s finds this cluster", path, error.strerror, address)


def forget_address(address: str) -> None:
    """Nobody is to find this cluster any more."""
    for path in _files():
        with suppress(OSError, UntrustedAddressError):
            if _written_in(path) == address:
                path.unlink()


def _files() -> list[Path]:
    """Where addresses are: Ray's file, and ours, if there can be one; ours of another RAY_TMPDIR is another."""
    path = address_file()
    with suppress(PlaceError):
        return [path, home() / f".cluster-{quote(str(path.parent), safe='')}"]
    return [path]


def _believed(path: Path) -> str | None:
    """The address in a file; None: there is none, or nothing listens there any more."""
    address = _written_in(path)
    users = _listeners_at(address) if address is not None else set()
    if users == set():
        return None
    open_to_others = _who_else_could_write(path)
    if users is None:
        if open_to_others is None:
            return address
        raise UntrustedAddressError(f"{path} names {address!r}, which is not on this machine: {open_to_others}. {ASK_FOR_IT}")
    strangers = sorted(user for user in users if not is_trusted(user))
    if strangers:
        why = open_to_others or "the cluster that was there has ended"
        raise UntrustedAddressError(f"{path} names {address!r}, which belongs to user {strangers[0]}: {why}. {ASK_FOR_IT}")
    return address


def _written_in(path: Path) -> str | None:
    """What stands in the file; a link is not followed, and a pipe not waited at."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UntrustedAddressError(f"{path} cannot be read, or is a link ({error.strerror}). {ASK_FOR_IT}") from None
    try:
        return os.read(descriptor, ADDRESS_BYTES_MAX).decode(errors="replace").strip() or None
    except BlockingIOError:  # a pipe
        return None
    finally:
        os.close(descriptor)


def _who_else_could_write(path: Path) -> str | None:
    """Which file or folder lets other users say where the cluster is; None: none does."""
    real = Path(os.path.realpath(path.parent), path.name)
    try:
        for folder in reversed(real.parents):
            check_stays(folder, real)
        found = os.lstat(real)
    except (PlaceError, FileNotFoundError) as error:
        return str(error)
    if not is_trusted(found.st_uid):
        return f"{real} belongs to user {found.st_uid}"
    if found.st_mode & 0o022:
        return f"other users can write to {real}, which has mode {stat.S_IMODE(found.st_mode):04o}"
    return None


def _listeners_at(address: str) -> set[int] | None:
    """The users whose processes listen on a port of this machine; None: it is another machine, or this one does not say."""
    host, _, port = address.rpartition(":")
    try:
        here = ipaddress.ip_address(host.strip("[]"))
        number = int(port)
        with socket.socket(socket.AF_INET if here.version == 4 else socket.AF_INET6) as probe:
            probe.bind((str(here), 0))
        tables = [Path(f"/proc/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6") if _has_table(name)]
    except (OSError, ValueError):
        return None
    rows = [line.split() for table in tables for line in table]
    at_port = [(row[1][:-5], int(row[7])) for row in rows if row[3] == LISTENING and row[1].endswith(f":{number:04X}")]
    if here.is_unspecified:  # which address that comes to is the system's affair
        return {user for _, user in at_port} if rows else None
    for reached in _reached_by(here):
        if users := {user for place, user in at_port if place == reached}:
            return users
    return set() if rows else None


def _reached_by(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> list[str]:
    """Which addresses listeners may have that are reached there, as the kernel's tables have them, the one that wins first."""
    order = [address.packed, bytes(16)]
    if address.version == 4:
        mapped = bytes(10) + b"\xff\xff"
        order = [address.packed, mapped + address.packed, bytes(4), mapped + bytes(4), bytes(16)]
    words = [[each[at : at + 4] for at in range(0, len(each), 4)] for each in order]
    return ["".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in each) for each in words]


def _has_table(name: str) -> bool:
    return os.path.exists(f"/proc/net/{name}")
