"""What the coordinator of a gang knows."""

from msgspec import Struct

from rankcore.frozen import EMPTY, PMap
from rankcore.ranks import RankTable
from rankcore.values import NodeId


class Believed(Struct, frozen=True):
    """What an agent says of the last round that admitted it, to a coordinator that may have been restarted."""

    rank: int
    round: int


class Waiting(Struct, frozen=True):
    """An agent without a rank, in the order of arrival."""

    member: str
    node_id: NodeId
    believed: Believed | None


class Gang(Struct, frozen=True):
    """A gang between two events.

    Attributes:
        last_call_s: How long an open round that has `min_size` waits for more.
        recover_s: How long the first round waits for survivors of a restart: longer than a lease and its grace.
        join_timeout_s: After so long an open round refuses those who wait for it.
        table: Who holds which rank; also the lost, until the round closes.
        lost: Members of the table that are gone.
        arrived: Seated members that are in the open round.
        waiting: Agents without a rank, the longest first.
        opened_s: When the open round was opened; None: the round runs.
    """

    min_size: int
    max_size: int
    last_call_s: float = 15.0
    recover_s: float = 20.0
    join_timeout_s: float = 600.0
    table: RankTable = RankTable()
    lost: PMap[str, None] = EMPTY
    arrived: PMap[str, None] = EMPTY
    waiting: tuple[Waiting, ...] = ()
    round: int = 0
    now_s: float = 0.0
    opened_s: float | None = 0.0
    closed: bool = False

    @property
    def living(self) -> tuple[str, ...]:
        """Seated members that are not lost, by rank."""
        return tuple(member for member in self.table.ranks if member not in self.lost)
