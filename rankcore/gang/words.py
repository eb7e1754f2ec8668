"""What is told to a gang, and what it says to do."""

from typing import TypeAlias

from msgspec import Struct

from rankcore.gang.state import Believed
from rankcore.values import NodeId


class Joined(Struct, frozen=True):
    """An agent asks for the next round. Its id is never used by another process."""

    member: str
    node_id: NodeId
    believed: Believed | None = None


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
    """Send an agent away."""

    member: str
    reason: str


Event: TypeAlias = Joined | Left | LeaseLapsed | CloseRequested | ClockAdvanced
Command: TypeAlias = Admit | Park | Restart | Refuse
