"""What is told to a gang, and what it says to do."""

from typing import TypeAlias

from msgspec import Struct

from rankcore.gang.state import Believed, RefusalReason
from rankcore.values import NodeId


class Joined(Struct, frozen=True):
    """An agent asks for the next round.

    Attributes:
        member: Its id, which is never used by another process.
        believed: The rank that a coordinator has given it; None: none has.
        nproc: How many workers it runs; None: it does not say.
        max_size: The MAX that it was started with; None: it does not say.
    """

    member: str
    node_id: NodeId
    believed: Believed | None = None
    nproc: int | None = None
    max_size: int | None = None


class Left(Struct, frozen=True):
    """The processes of an agent are known to be gone."""

    member: str


class LeaseLapsed(Struct, frozen=True):
    """An agent has not renewed its lease for so long that it has ended itself."""

    member: str


class CloseRequested(Struct, frozen=True):
    """The job is done."""


class ClockAdvanced(Struct, frozen=True):
    """It is `now_s`; a clock that goes back is not followed."""

    now_s: float


class Admit(Struct, frozen=True):
    """Let an agent run in this round with this rank."""

    member: str
    rank: int
    world_size: int
    round: int


class Park(Struct, frozen=True):
    """Let an agent wait as a spare."""

    member: str


class Restart(Struct, frozen=True):
    """Tell an agent that runs to ask for the next round."""

    member: str


class Refuse(Struct, frozen=True):
    """Send an agent away. One that runs is not stopped: it is told that there is no further round."""

    member: str
    reason: RefusalReason
    detail: str = ""


Event: TypeAlias = Joined | Left | LeaseLapsed | CloseRequested | ClockAdvanced
Command: TypeAlias = Admit | Park | Restart | Refuse
