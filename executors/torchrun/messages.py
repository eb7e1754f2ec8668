"""What agents and coordinator say to each other: a JSON object per line, over one connection per agent.

Each may be said again, since a connection may end at any moment with the last message on its way. So a request to join has a
number, that of the agent's round-to-be, and its answer has it too; and what the coordinator says of an agent is not what
happened but how it stands, of which the newest is all that counts.
"""

from enum import StrEnum
from typing import TypeAlias

import msgspec
from msgspec import Struct

from rankcore.gang import RefusalReason

VERSION = 1
LINE_BYTES_MAX = 65_536


class Hello(Struct, frozen=True, tag=True):
    """The first message of a connection; renews the lease.

    Attributes:
        version: Of these messages.
        run_id: Of the job: torchrun's --rdzv-id.
        member: This agent process, and never another one.
        node_id: Where it is, which a successor of it may have again.
        machine: Boot and namespace of process numbers: where they are the same, `pid` means the same process.
        started_ticks: When `pid` was started, since numbers are used again.
    """

    version: int
    run_id: str
    member: str
    node_id: str
    machine: str
    pid: int
    started_ticks: int


class AskToJoin(Struct, frozen=True, tag=True):
    """Ask for the next round.

    Attributes:
        number: One more than that of the round which the agent was last in.
        rank: The one that it had, with `round`; None: none.
    """

    number: int
    rank: int | None
    round: int | None
    nproc: int | None
    max_size: int


class Renew(Struct, frozen=True, tag=True):
    """I live."""

    number: int


class Leave(Struct, frozen=True, tag=True):
    """I end, and none of my processes is left."""


class Close(Struct, frozen=True, tag=True):
    """The job is done."""


class Welcome(Struct, frozen=True, tag=True):
    """The answer to `Hello`.

    Attributes:
        is_known: Whether this agent has asked this coordinator for a round; False also after a restart of the coordinator.
        store_port: Of the TCPStore, on the coordinator's host.
    """

    is_known: bool
    lease_s: float
    store_port: int


class Renewed(Struct, frozen=True, tag=True):
    """The answer to `Renew`."""

    number: int


class AgentPhase(StrEnum):
    """How an agent stands."""

    PARKED = "parked"
    ADMITTED = "admitted"
    RESTART = "restart"
    REFUSED = "refused"


class Standing(Struct, frozen=True, tag=True):
    """How an agent stands; the newest replaces those before.

    Attributes:
        number: Of the request to join that this answers.
        reason: Why it is refused: a `RefusalReason`, or "other_run", "other_version".
    """

    phase: AgentPhase
    number: int
    rank: int = -1
    world_size: int = 0
    round: int = 0
    reason: str = ""
    detail: str = ""


FromAgent: TypeAlias = Hello | AskToJoin | Renew | Leave | Close
FromCoordinator: TypeAlias = Welcome | Renewed | Standing

MAY_ASK_AGAIN = RefusalReason.SAME_NODE
"""Of an agent that has crashed on this node the lease may not have lapsed yet."""

_FROM_AGENT: msgspec.json.Decoder[FromAgent] = msgspec.json.Decoder(FromAgent)
_FROM_COORDINATOR: msgspec.json.Decoder[FromCoordinator] = msgspec.json.Decoder(FromCoordinator)
_ENCODER = msgspec.json.Encoder()


def line_of(message: FromAgent | FromCoordinator) -> bytes:
    """A message as it is sent."""
    return _ENCODER.encode(message) + b"\n"


def from_agent(line: bytes) -> FromAgent:
    """What an agent says.

    Raises:
        msgspec.DecodeError: It is no message of an agent.
    """
    return _FROM_AGENT.decode(line)


def from_coordinator(line: bytes) -> FromCoordinator:
    """What the coordinator says.

    Raises:
        msgspec.DecodeError: It is no message of a coordinator.
    """
    return _FROM_COORDINATOR.decode(line)


class Lines:
    """Bytes as they arrive, cut into lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are complete now.

        Raises:
            msgspec.DecodeError: A line is longer than any message.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LINE_BYTES_MAX:
            raise msgspec.DecodeError(f"a line has more than {LINE_BYTES_MAX} bytes")
        return lines
