"""What runs in a replica's process: its half of the contract on one thread, the user's code on another.

Whichever process of this user connects may give commands, as lines of JSON; the controller is the one that gave the newest.
`observe` is answered with what the replica believes, and obeys nobody. Each connection ends alone: a controller that is killed
in the middle of a line, or says what is no command, costs its own connection and nothing else.
"""

import asyncio
import os
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from executors.lines import ASK_HEALTH, ASK_READY, WELL
from executors.local.places import Address
from executors.local.user import LocalUser
from executors.private_folder import bound, check_peer
from executors.ray_gpu.messages import Ranks
from executors.ray_gpu.user_code import FIRST_CHECK_S, traceback_of
from executors.run.files import newest_epoch
from rankcore.codec import from_json, to_json
from rankcore.commands import Command, KillReplica, StartReplica, StopReplica
from rankcore.errors import CodecError
from rankcore.events import ReplicaStartFailed, ReplicaUnhealthy
from rankcore.replica.messages import Reaction, readiness_checked, receive, started, user_code_ended
from rankcore.replica.replica import Drain, End, Refused, RunUserCode

OBSERVE = "observe"
ORPHAN_S = 600.0
"""How long a replica lives on that no controller is connected to."""
ORPHAN_DRAIN_S = 20.0
LINE_BYTES_MAX = 2**26


class LocalReplica:
    """One replica."""

    def __init__(self, folder: Path, application: str, start: StartReplica, node_id: str) -> None:
        self._replica = started(start, node_id)
        self._folder = folder
        self._path = Address(start.replica_id, node_id, os.getpid()).path(folder)
        self._user = LocalUser(application, self._replica, str(folder))
        self._controller: asyncio.StreamWriter | None = None
        self._connections = 0
        self._orphaned: asyncio.TimerHandle | None = None
        self._history: list[tuple[float, Ranks]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._looks = False

    async def live(self, start: StartReplica, controller: socket.socket) -> None:
        """Listen to whoever started this, and to whoever comes later; unless another controller has come already."""
        await asyncio.start_unix_server(self._accept, sock=bound(self._path), limit=LINE_BYTES_MAX)
        # Only now: a controller that has not found the socket has raised the fence before.
        if newest_epoch(self._folder) > start.epoch:
            return self._exit(0)
        self._spawn(self._serve(*await asyncio.open_connection(sock=controller, limit=LINE_BYTES_MAX)))
        await asyncio.Event().wait()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            check_peer(writer.get_extra_info("socket"))
        except OSError:
            writer.transport.abort()
        else:
            await self._serve(reader, writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        if self._orphaned is not None:
            self._orphaned.cancel()
        try:
            async for line in reader:
                if not line.endswith(b"\n"):
                    break  # cut off: who was saying it is gone
                self._hear(line.decode().rstrip("\n"), writer)
        except OSError:
            pass  # it was reset
        except (CodecError, ValueError) as error:  # of which an over-long line and one that is not UTF-8 are two
            sys.stderr.write(f"{self._replica.replica_id}: a connection is closed that said what is no command: {error}\n")
        finally:
            if self._controller is writer:
                self._controller = None
            writer.close()
            self._connections -= 1
            if not self._connections:
                self._orphaned = asyncio.get_running_loop().call_later(ORPHAN_S, self._end_as_orphan)

    def _hear(self, line: str, writer: asyncio.StreamWriter) -> None:
        if line == OBSERVE:
            writer.write(msgspec.json.encode(self._observation()) + b"\n")
        elif line == ASK_HEALTH:
            self._spawn(self._check_health(writer))
        elif line.startswith(ASK_READY):
            self._spawn(self._check_readiness(float(line.removeprefix(ASK_READY))))
        else:
            command: Any = from_json(line, Command)
            if isinstance(command, StopReplica | KillReplica) and newest_epoch(self._folder) > command.epoch:
                return  # of a controller that was replaced, by one that has said nothing here yet
            if command.epoch >= self._replica.epoch:
                self._controller = writer
            self._replica, reactions = receive(self._replica, command, time.monotonic())
            self._react(reactions)
            self._show()

    def _react(self, reactions: tuple[Reaction, ...]) -> None:
        for reaction in reactions:
            match reaction:
                case RunUserCode():
                    self._spawn(self._run(reaction))
                case Drain(timeout_s=timeout_s):
                    self._spawn(self._drain(timeout_s))
                case End():
                    self._exit(0)
                case Refused():
                    pass  # who was replaced learns it from the fence
                case _:
                    self._tell(to_json(reaction))
                    if isinstance(reaction, ReplicaStartFailed):
                        self._spawn(self._exit_when_heard())

    def _tell(self, line: str) -> None:
        if self._controller is not None:  # who is away asks again when it is back
            self._controller.write(line.encode() + b"\n")

    # -- user code

    async def _run(self, work: RunUserCode) -> None:
        failure = await self._user.carry_out(work)
        self._show()
        first = failure is None and work.command.rank is not None and not self._replica.ready
        problem = await self._user.problem(FIRST_CHECK_S) if first else None
        now = time.monotonic()
        self._replica, reactions = user_code_ended(self._replica, now, failure)
        self._replica, unready = readiness_checked(self._replica, now, problem) if first else (self._replica, ())
        self._react((*unready, *reactions))  # in this order it is not routed for a moment

    async def _check_health(self, writer: asyncio.StreamWriter) -> None:
        answer = WELL
        try:
            if self._user.checks_health:  # else that this process answers is enough, whatever user code is doing
                await self._user.run(self._user.check_health())
        except Exception as error:
            reason = traceback_of(error)
            answer = to_json(ReplicaUnhealthy(replica_id=self._replica.replica_id, reason=reason, at=time.monotonic()))
        writer.write(answer.encode() + b"\n")

    async def _check_readiness(self, timeout_s: float) -> None:
        if self._looks or not self._user.checks_readiness or not self._replica.ready:
            return
        self._looks = True
        problem = await self._user.problem(timeout_s)
        self._looks = False
        self._replica, reactions = readiness_checked(self._replica, time.monotonic(), problem)
        self._react(reactions)

    async def _drain(self, timeout_s: float) -> None:
        if self._replica.constructed:
            with suppress(Exception):  # the time-out too
                async with asyncio.timeout(timeout_s):
                    await self._user.run(self._user.end())
        self._exit(0)

    def _show(self) -> None:
        """Let whoever looks see what is believed now."""
        rank = self._replica.rank
        ranks = (rank.rank, rank.node_rank, rank.local_rank) if rank is not None else None
        if ranks is not None and (not self._history or self._history[-1][1] != ranks):
            self._history.append((time.monotonic(), ranks))
        self._user.show(self._replica)

    # -- the rest

    def _observation(self) -> dict[str, Any]:
        """What it believes, and has believed since when; `applied`: how many changes its user code has been through."""
        own = ("replica_id", "node_id", "world_size", "version", "ready", "draining")
        return {name: getattr(self._replica, name) for name in own} | {
            "at": time.monotonic(),
            "history": self._history,
            "user_config": self._user.user_config,
            "applied": self._user.applied,
        }

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _exit_when_heard(self) -> None:
        with suppress(OSError):
            if self._controller is not None:
                await self._controller.drain()
        self._exit(1)

    def _end_as_orphan(self) -> None:
        self._spawn(self._drain(ORPHAN_DRAIN_S))

    def _exit(self, status: int) -> None:
        """Now, whatever user code is doing."""
        self._path.unlink(missing_ok=True)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def main() -> None:
    """Be the replica that the command line names."""
    folder, application, node_id, connection, start_text = sys.argv[1:]
    start = from_json(start_text, StartReplica)
    replica = LocalReplica(Path(folder), application, start, node_id)
    asyncio.run(replica.live(start, socket.socket(fileno=int(connection))))


if __name__ == "__main__":
    main()
