"""What one replica believes, and what it still listens to: the first lines of its half of the contract (section 2.4).

Pure, and free of the core, since every replica process may import it; `replica_half` builds the whole half on it.
"""

from enum import Enum
from typing import Generic, TypeAlias, TypeVar

Stamp: TypeAlias = tuple[int, int]
"""(epoch, revision): what a replica never goes back in."""

RankT = TypeVar("RankT")
"""How three ranks are written: a `ReplicaRank`, or plain numbers where the core is not to be imported."""


class Verdict(Enum):
    """What is to be done with a change that has arrived."""

    CARRY_OUT = "carry out"
    REPEATED = "repeated"
    """It is being, or was, carried out: the same answer again."""
    OVERTAKEN = "overtaken"
    REFUSED = "refused"


class Beliefs(Generic[RankT]):
    """What one replica believes.

    Promises: it adopts a new epoch before anything else and refuses what is of an older one; it never goes back to an
    older (epoch, revision), counted separately for ranks and for the world size; a belief changes when its command is
    accepted, before user code runs.

    Attributes:
        epoch: The newest seen.
        rank: All three; None: never initialised.
        world_size: None: never told.
        config_id: Of the user_config that it has, or is applying.
    """

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.rank: RankT | None = None
        self.world_size: int | None = None
        self.config_id: str | None = None
        self._stamp: Stamp = (-1, -1)
        self._world_stamp: Stamp = (-1, -1)

    def admit(self, epoch: int) -> bool:
        """Whether a command of this epoch is to be obeyed; a new epoch is adopted."""
        if epoch < self.epoch:
            return False
        self.epoch = epoch
        return True

    def accept(self, stamp: Stamp, rank: RankT, world_size: int, config_id: str | None, *, initialize: bool) -> Verdict:
        """Adopt what a change says, unless it is late, repeated, or of a replaced controller."""
        if not self.admit(stamp[0]):
            return Verdict.REFUSED
        self._learn_world_size(world_size, stamp)
        if stamp < self._stamp or (self.rank is None and not initialize):
            return Verdict.OVERTAKEN
        if stamp == self._stamp:
            return Verdict.REPEATED
        self._stamp, self.rank, self.config_id = stamp, rank, config_id
        return Verdict.CARRY_OUT

    def announce(self, epoch: int, revision: int, world_size: int) -> bool:
        """Learn a world size; False: it came from a replaced controller."""
        if not self.admit(epoch):
            return False
        self._learn_world_size(world_size, (epoch, revision))
        return True

    def _learn_world_size(self, world_size: int, stamp: Stamp) -> None:
        if stamp > self._world_stamp:
            self._world_stamp, self.world_size = stamp, world_size
