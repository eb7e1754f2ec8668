"""`rankcore gang serve`: the coordinator with sockets, a clock, the TCPStore, and an eye on the agents of its own host.

One thread does all of it. What has been received is read before leases are looked at, also when this process stood still:
asyncio runs what sockets have before timers that are due.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from datetime import timedelta

import msgspec

from executors.torchrun.coordinator import Coordinator, Sent
from executors.torchrun.ending import kill_processes_of, machine, started_ticks
from executors.torchrun.lease import now_s
from executors.torchrun.messages import Hello, Lines, from_agent, line_of
from rankcore.gang import RefusalReason

TICK_S = 0.1
SHOWN_RANKS = 16


class AgentConnection(asyncio.Protocol):
    """The connection of an agent."""

    def __init__(self, server: "GangServer") -> None:
        self._server, self._lines = server, Lines()
        self.member = ""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Take what it says; who says something else is cut off."""
        try:
            for line in self._lines.feed(data):
                message = from_agent(line)
                if isinstance(message, Hello):
                    self.member = message.member
                    self._server.greeted(self, message)
                self._server.say(self._server.coordinator.hear(self.member, message, self._server.now_s()))
        except msgspec.DecodeError:
            assert self.transport is not None
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended."""
        self._server.disconnected(self)


class GangServer:
    """The connections of a coordinator, and what it knows of processes of its host."""

    def __init__(self, coordinator: Coordinator, log: Callable[[str], None]) -> None:
        self.coordinator = coordinator
        self._log = log
        self._began_s: float | None = None
        self._connections: dict[str, AgentConnection] = {}
        self._machine = machine()
        self._pidfds: dict[str, int] = {}
        self._seen = 0, 0
        self._ranks: dict[str, int] = {}

    def now_s(self) -> float:
        """Seconds since the first agent came: those who come with it are not late, however long this has waited for them."""
        return 0.0 if self._began_s is None else now_s() - self._began_s

    async def serve(self, host: str, port: int, told: Callable[[int], None] = lambda port: None) -> int:
        """Until the job is over and all agents know: exit status 0, or 1 if too few have come."""
        loop = asyncio.get_running_loop()
        listening = await loop.create_server(lambda: AgentConnection(self), host, port, backlog=4096)
        told(listening.sockets[0].getsockname()[1])
        async with listening:
            while not self.coordinator.is_over:
                await asyncio.sleep(TICK_S)
                self.say(self.coordinator.tick(self.now_s()))
        return 1 if self.coordinator.gang.closed is RefusalReason.TIMED_OUT else 0

    def say(self, sent: Sent) -> None:
        """Say what the coordinator says, to those who are connected."""
        for member, message in sent:
            connection = self._connections.get(member)
            if connection is not None and connection.transport is not None:
                connection.transport.write(line_of(message))
        self._log_news()

    def greeted(self, connection: AgentConnection, hello: Hello) -> None:
        """An agent has connected, perhaps again."""
        self._began_s = now_s() if self._began_s is None else self._began_s
        former = self._connections.get(hello.member)
        self._connections[hello.member] = connection
        if former is not None and former is not connection and former.transport is not None:
            former.transport.abort()
        self._watch(hello)

    def disconnected(self, connection: AgentConnection) -> None:
        """A connection has ended."""
        if self._connections.get(connection.member) is connection:
            del self._connections[connection.member]
            self.coordinator.disconnected(connection.member)

    def _watch(self, hello: Hello) -> None:
        """Learn of the end of an agent on this host when it happens: the number names it, if it was started when it says."""
        if hello.member in self._pidfds or not hello.machine or hello.machine != self._machine:
            return
        try:
            pidfd = os.pidfd_open(hello.pid)
        except OSError:
            return
        if started_ticks(hello.pid) != hello.started_ticks:
            os.close(pidfd)
            return
        self._pidfds[hello.member] = pidfd
        asyncio.get_running_loop().add_reader(pidfd, self._ended, hello)

    def _ended(self, hello: Hello) -> None:
        """An agent of this host has ended. Its workers may have outlived it: they are killed, and only then has it left."""
        loop, pidfd = asyncio.get_running_loop(), self._pidfds.pop(hello.member, None)
        if pidfd is not None:
            loop.remove_reader(pidfd)
            os.close(pidfd)
        if kill_processes_of(hello.member, hello.pid):
            loop.call_later(TICK_S, self._ended, hello)
            return
        self.say(self.coordinator.left(hello.member, self.now_s()))

    def _log_news(self) -> None:
        gang = self.coordinator.gang
        seen = gang.round, len(gang.waiting)
        if seen == self._seen or gang.opened_s is not None:
            return
        is_round, self._seen = gang.round != self._seen[0], seen
        ranks = {str(gang.table.node_of(member)): rank.rank for member, rank in gang.table.ranks.items()}
        changed = [f"{rank} {node}" for node, rank in ranks.items() if self._ranks.get(node) != rank]
        self._ranks = ranks
        more = f", and {len(changed) - SHOWN_RANKS} more" if len(changed) > SHOWN_RANKS else ""
        text = f"rank {', '.join(changed[:SHOWN_RANKS])}{more}" if changed else "ranks as before"
        begin = f"round {gang.round}: {text}; " if is_round else ""
        self._log(f"{self.now_s():.1f} s: {begin}{len(ranks)} agents, {len(gang.waiting)} parked")


def check_address(host: str) -> None:
    """Look whether this machine can listen there: torch's store would try for minutes to connect to it.

    Raises:
        OSError: It cannot.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(address)
    except OSError as error:
        raise OSError(f"--host must be an address of this machine, got {host}: {error.strerror or error}") from error


def open_store(host: str, port: int) -> tuple[object, int]:
    """The TCPStore of agents, and its port.

    Raises:
        OSError: The port is taken.
    """
    from torch.distributed import DistError, TCPStore

    try:
        store = TCPStore(host, port, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60))
    except DistError as error:
        raise OSError(f"the store's port {port}: {str(error).splitlines()[0]}") from error
    return store, store.port
