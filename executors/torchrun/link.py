"""An agent's side of its connection: it connects again whenever that ends, renews the lease, and keeps how the agent stands.

One thread speaks and listens, so that a main thread that waits for workers to end renews the lease all the same. Others look
at what it keeps, and wait for it to change.

Rounds have numbers of this agent's own: `_wanted` is that of its newest request, `_taken` of the round that torchrun was last
given. `_wanted` is the larger one while it is out of a round. A coordinator that does not know the agent was restarted: then
the link asks for a round by itself, with the rank that it has, before anybody else may be given it; torchrun is told to
restart its workers, and is given that round when it asks for one. If it is refused (the new coordinator has another MAX, say),
its rank may be another's: it ends at once. A coordinator of another job, or of another version, says nothing about the rank:
the lease goes on, and is not renewed.
"""

import os
import select
import socket
import threading
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from executors.torchrun.lease import RENEWALS_PER_LEASE, LeaseGuard, now_s
from executors.torchrun.messages import (
    AgentPhase,
    AskToJoin,
    Close,
    FromAgent,
    Hello,
    Leave,
    Lines,
    Renew,
    Renewed,
    Standing,
    Welcome,
    from_coordinator,
    line_of,
)
from rankcore.gang import RefusalReason

CONNECT_S = 1.0
AGAIN_AFTER_S = 0.2
CHUNK_BYTES = 65_536
OVER = (RefusalReason.DONE, RefusalReason.TIMED_OUT)
MAY_HAVE_GIVEN_AWAY = (RefusalReason.SAME_NODE, RefusalReason.OTHER_NPROC, RefusalReason.OTHER_MAX)
"""With which a coordinator that was restarted refuses an agent that has a rank."""


class Link:
    """What an agent has of its coordinator.

    Attributes:
        welcome: What it was greeted with; None: nobody has answered yet.
        standing: How it stands, as last heard; None: it has not joined.
        local_address: Of this host, as the coordinator sees it.
    """

    def __init__(
        self, host: str, port: int, hello: Hello, join: AskToJoin, guard: LeaseGuard, clock: Callable[[], float] = now_s
    ) -> None:
        self.welcome: Welcome | None = None
        self.standing: Standing | None = None
        self.local_address = ""
        self._where, self._hello, self._join, self._guard, self._clock = (host, port), hello, join, guard, clock
        self._changed = threading.Condition()
        self._wanted = self._taken = 0
        self._unsent: list[FromAgent] = []
        self._wakes, self._waker = socket.socketpair()
        self._is_stopped = self._is_closing = False
        self._sent_s: dict[int, float] = {}
        self._renewals = 0
        self._greeted_s = self._answered_s = 0.0
        self._thread = threading.Thread(target=self._run, name="rankcore-gang", daemon=True)

    def start(self) -> None:
        """Connect, and stay connected."""
        self._thread.start()

    def wait(self, timeout_s: float | None, until: Callable[[], bool]) -> bool:
        """Wait until something is so; whether it is."""
        with self._changed:
            return self._changed.wait_for(until, timeout_s)

    def ask(self) -> None:
        """Ask for a round, unless there is one that torchrun has not been given."""
        with self._changed:
            if self._wanted <= self._taken:
                self._wanted = self._taken + 1
            self._renewed()  # from now on there may be a rank to lose
            self._say(self._request())

    def has_answer(self) -> bool:
        """Whether the round that was asked for is there, or will never be."""
        standing = self.standing
        return standing is not None and (standing.phase is AgentPhase.REFUSED or self._is_wanted(standing))

    def _is_wanted(self, standing: Standing) -> bool:
        return standing.phase is AgentPhase.ADMITTED and standing.number >= self._wanted

    def take(self) -> Standing | None:
        """The round that was asked for, from now on the one that torchrun has; None: there is none."""
        with self._changed:
            standing = self.standing
            if standing is None or not self._is_wanted(standing):
                return None
            self._taken = standing.number
            self._join = replace(self._join, rank=standing.rank, round=standing.round)
            return standing

    @property
    def has_run(self) -> bool:
        """Whether torchrun was ever given a round."""
        return self._taken > 0

    @property
    def needs_round(self) -> bool:
        """Whether the round that torchrun has is over."""
        standing = self.standing
        if self._taken == 0 or standing is None or standing.phase is AgentPhase.REFUSED:
            return False
        return self._wanted > self._taken or standing.phase is AgentPhase.RESTART

    @property
    def is_closed(self) -> bool:
        """Whether there will be no round for this agent."""
        return self.standing is not None and self.standing.phase is AgentPhase.REFUSED

    @property
    def _is_over(self) -> bool:
        """Whether the job is. Who listens at this address after that is the coordinator of another one."""
        standing = self.standing
        return standing is not None and standing.phase is AgentPhase.REFUSED and standing.reason in OVER

    def close(self) -> None:
        """Say that the job is done; to the next coordinator, if this one does not hear it."""
        self._is_closing = True
        self._say(Close())

    def has_no_workers(self) -> None:
        """From now on nothing runs here that could believe a rank: the lease may lapse."""
        self._guard.stop()

    def stop(self, timeout_s: float) -> None:
        """Say that this agent has ended, and disconnect."""
        self._say(Leave())
        self._guard.stop()
        self._is_stopped = True
        self._wake()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _request(self) -> AskToJoin:
        return replace(self._join, number=self._wanted)

    def _say(self, message: FromAgent) -> None:
        with self._changed:
            self._unsent.append(message)
        self._wake()

    def _wake(self) -> None:
        self._waker.send(b"\0")

    def _run(self) -> None:
        while not (self._is_stopped or self._is_over):
            try:
                with socket.create_connection(self._where, CONNECT_S) as connection:
                    self._talk(connection)
            except (OSError, msgspec.DecodeError):
                self._pause()

    def _pause(self) -> None:
        if not self._is_stopped:
            select.select([], [], [], AGAIN_AFTER_S)

    def _talk(self, connection: socket.socket) -> None:
        """Until the connection ends, or this agent does."""
        lines = Lines()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.local_address = str(connection.getsockname()[0])
        self._sent_s.clear()
        with self._changed:
            self._unsent = [message for message in self._unsent if not isinstance(message, AskToJoin)]  # said on `Welcome`
        self._greeted_s = self._clock()
        connection.sendall(line_of(self._hello))
        is_greeted = False
        while True:
            is_last = self._is_stopped
            due_s = self._send(connection) if is_greeted else CONNECT_S
            if is_last:
                _end(connection)
                return
            ready, _, _ = select.select([connection, self._wakes], [], [], due_s)
            if self._wakes in ready:
                self._wakes.recv(CHUNK_BYTES)
            if connection in ready:
                data = connection.recv(CHUNK_BYTES)
                if not data:
                    raise ConnectionResetError
                for line in lines.feed(data):
                    is_greeted |= self._heard(line)
            elif not is_greeted and not ready:
                raise TimeoutError

    def _send(self, connection: socket.socket) -> float:
        """Say what there is to say, and when the next renewal is due."""
        assert self.welcome is not None
        every_s, now = self.welcome.lease_s / RENEWALS_PER_LEASE, self._clock()
        with self._changed:
            messages, self._unsent = self._unsent, []
        last_s = max(self._sent_s.values(), default=self._greeted_s)
        if now >= last_s + every_s:
            self._renewals += 1
            self._sent_s[self._renewals] = last_s = now
            messages.append(Renew(self._renewals))
        if messages:
            connection.sendall(b"".join(map(line_of, messages)))
        return max(0.0, last_s + every_s - now)

    def _heard(self, line: bytes) -> bool:
        """Take a message; whether the coordinator has greeted this agent."""
        message = from_coordinator(line)
        with self._changed:
            match message:
                case Welcome():
                    self._greeted(message)
                case Renewed():
                    self._answered_s = max(self._answered_s, self._sent_s.get(message.number, 0.0))
                    self._renewed()
                    self._sent_s = {number: at for number, at in self._sent_s.items() if number >= message.number}
                case Standing():
                    self._stands(message)
            self._changed.notify_all()
        return isinstance(message, Welcome)

    def _greeted(self, welcome: Welcome) -> None:
        self.welcome, self._answered_s = welcome, self._greeted_s
        self.standing = None if self.is_closed else self.standing  # what a coordinator of another job has said
        if not self._wanted:
            return
        self._renewed()
        if not welcome.is_known and self._wanted <= self._taken:
            self._wanted = self._taken + 1
        if self._wanted > self._taken:
            self._unsent.append(self._request())
        if self._is_closing:
            self._unsent.append(Close())

    def _renewed(self) -> None:
        if self._wanted and self.welcome is not None:
            self._guard.renewed(self._answered_s, self.welcome.lease_s)

    def _stands(self, standing: Standing) -> None:
        self.standing = standing
        if standing.phase is not AgentPhase.REFUSED:
            return
        if self._is_over:
            self._guard.stop()
        elif standing.reason == RefusalReason.LAPSED or (self.has_run and standing.reason in MAY_HAVE_GIVEN_AWAY):
            self._guard.lapse(f"the coordinator refuses it, {standing.detail or standing.reason}")


def _end(connection: socket.socket) -> None:
    """Close a connection when all is read: one that is closed with unread bytes takes the last message with it."""
    connection.shutdown(socket.SHUT_WR)
    connection.settimeout(CONNECT_S)
    while connection.recv(CHUNK_BYTES):
        pass


def member_of(node_id: str, random_text: str) -> str:
    """The id of this agent process."""
    return f"{node_id}/{os.getpid()}/{random_text}"
