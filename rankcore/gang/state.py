"""What the coordinator of a gang knows."""

from enum import StrEnum

from msgspec import Struct

from rankcore.frozen import EMPTY, PMap
from rankcore.ranks import RankTable
from rankcore.values import NodeId


class RefusalReason(StrEnum):
    """Why an agent is sent away, which decides how it ends.

    Attributes:
        DONE: The job is done: it ends well (TR6).
        TIMED_OUT: Too few came for too long: `RendezvousTimeoutError` (TR7).
        LAPSED: Its lease has lapsed, so its rank may be another's (TR8).
        SAME_NODE: Its node has as many agents as it may. It may ask again: of one that has crashed the lease lapses.
        OTHER_NPROC: It runs another number of workers than the gang, so that the ranks of workers would move.
        OTHER_MAX: It was started with another MAX than the coordinator.
    """

    DONE = "done"
    TIMED_OUT = "timed_out"
    LAPSED = "lapsed"
    SAME_NODE = "same_node"
    OTHER_NPROC = "other_nproc"
    OTHER_MAX = "other_max"


class Believed(Struct, frozen=True):
    """What an agent says of the last round that admitted it, to a coordinator that may have been restarted."""

    rank: int
    round: int


class WaitingMember(Struct, frozen=True):
    """An agent without a rank, in the order of arrival."""

    member: str
    node_id: NodeId
    believed: Believed | None
    nproc: int | None = None


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
        agents_per_node: How many agents of one node may be there.
        restarted: Whether a coordinator was there before, so that agents may hold ranks that this one does not know.
        nproc: How many workers each agent runs, once a round has closed in which one said so.
        opened_s: When the open round was opened; None: the round runs.
        closed: Why there are no more rounds; None: there are.
    """

    min_size: int
    max_size: int
    last_call_s: float = 15.0
    recover_s: float = 20.0
    join_timeout_s: float = 600.0
    table: RankTable = RankTable()
    lost: PMap[str, None] = EMPTY
    arrived: PMap[str, None] = EMPTY
    waiting: tuple[WaitingMember, ...] = ()
    round: int = 0
    now_s: float = 0.0
    opened_s: float | None = 0.0
    closed: RefusalReason | None = None
    agents_per_node: int = 1
    restarted: bool = False
    nproc: int | None = None

    @property
    def living(self) -> tuple[str, ...]:
        """Seated members that are not lost, by rank."""
        return tuple(member for member in self.table.ranks if member not in self.lost)

    @property
    def said_nproc(self) -> int | None:
        """How many workers an agent has to run: as those say who are seated, else who survived, else who waits longest."""
        if self.nproc is not None:
            return self.nproc
        said = sorted(
            (one.believed is None, index, one.nproc) for index, one in enumerate(self.waiting) if one.nproc is not None
        )
        return said[0][2] if said else None

    def agents_on(self, node_id: NodeId) -> int:
        """How many agents of a node are there, seated or not."""
        seated = sum(self.table.node_of(member) == node_id for member in self.living)
        return seated + sum(one.node_id == node_id for one in self.waiting)
