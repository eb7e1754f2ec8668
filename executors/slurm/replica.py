"""What runs in a job: the local replica's process, found by its address in the folder, with one life and a lease.

`folder` says which race each of the following is for:

1. The birth record comes first. Who finds it there was never wanted, or has lived, and who finds nothing to start with by then,
   or what another job is to start with, is forgotten: it exits with status 0.
2. Then it listens, and only then reads the fence: a controller that has not found its address has raised the fence before.
3. From then on one thread renews the lease, and another ends this process when that has not worked for `lease_s`: two, since a
   read of a network file system may hang.
"""

import asyncio
import hmac
import json
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from executors.local.replica import LINE_BYTES_MAX, ORPHAN_S, LocalReplica
from executors.run.files import newest_epoch
from executors.slurm.folder import AT, BORN, ENDED, NOTICE, START, claim
from executors.whole_files import write_whole
from rankcore.codec import from_json
from rankcore.commands import StartReplica

PATIENCE_S = 10.0


class JobReplica(LocalReplica):
    """One replica in a job. Whoever knows its secret may give commands."""

    def __init__(self, folder: Path, application: str, start: StartReplica, secret: str, serial: str) -> None:
        super().__init__(folder, application, start, os.environ.get("SLURMD_NODENAME") or socket.gethostname())
        self._path = folder / AT / serial
        self._secret = secret.encode()

    async def listen(self, start: StartReplica, host: str) -> None:
        """Say where it listens, to whoever knows the secret; unless another controller has come already."""
        self._orphaned = asyncio.get_running_loop().call_later(ORPHAN_S, self._end_as_orphan)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._tell, NOTICE)
        server = await asyncio.start_server(self._accept_secret, own_address(host), 0, limit=LINE_BYTES_MAX)
        address, port = server.sockets[0].getsockname()[:2]
        write_whole(self._path, f"{address} {port} {os.getpid()}")
        if newest_epoch(self._folder) > start.epoch:
            return self._exit(0)
        await asyncio.Event().wait()

    async def _accept_secret(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            said = await asyncio.wait_for(reader.readline(), PATIENCE_S)
        except (OSError, ValueError, TimeoutError):
            said = b""
        if hmac.compare_digest(said.strip(), self._secret):
            await self._serve(reader, writer)
        else:
            writer.transport.abort()


def own_address(host: str) -> str:
    """The address by which another host reaches this one: that of the interface towards it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as towards:
        towards.connect((host, 9))  # sends nothing
        return str(towards.getsockname()[0])


def keep_lease(folder: Path, serial: str, lease_s: float) -> None:
    """Renew the lease from now on, and end this process when that does not work, or when it is ordered to end (3)."""
    good_until = time.monotonic() + lease_s

    def renew() -> None:
        nonlocal good_until
        while True:
            begun = time.monotonic()
            try:
                newest_epoch(folder)
                if (folder / ENDED / serial).exists():
                    os._exit(1)
                os.utime(folder / BORN / serial)
                good_until = begun + lease_s
            except OSError as error:
                sys.stderr.write(f"{serial}: the lease cannot be renewed: {error}\n")
            time.sleep(lease_s / 3)

    def watch() -> None:
        while time.monotonic() < good_until:
            time.sleep(min(1.0, lease_s / 10))
        os._exit(1)

    for task in (renew, watch):
        threading.Thread(target=task, daemon=True, name=f"lease-{task.__name__}").start()


def main() -> None:
    """Be the replica that the command line names."""
    folder, serial, token = Path(sys.argv[1]), *sys.argv[2:]
    if not claim(folder, serial):  # 1
        return
    said = {}
    with suppress(FileNotFoundError):
        said = json.loads((folder / START / serial).read_bytes())
    if said.get("token") != token:
        return (folder / BORN / serial).unlink(missing_ok=True)
    keep_lease(folder, serial, said["lease_s"])
    start = from_json(said["start"], StartReplica)
    replica = JobReplica(folder, said["application"], start, said["secret"], serial)
    asyncio.run(replica.listen(start, said["host"]))  # 2


if __name__ == "__main__":
    main()
