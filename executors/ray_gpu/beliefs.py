"""A replica's half of the contract (section 2.4 of the design): what it believes, and what it still listens to.

Pure, and free of the core, since each replica process imports it.
"""

from enum import Enum
from typing import TypeAlias

from executors.ray_gpu.messages import Change, Ranks

Stamp: TypeAlias = tuple[int, int]
"""(epoch, revision): what a replica never goes back in."""


class Verdict(Enum):
    """What is to be done with a change that has arrived."""

    CARRY_OUT = "carry out"
    REPEATED = "repeated"
    """It is being, or was, carried out: the same answer again."""
    OVERTAKEN = "overtaken"
    REFUSED = "refused"


class Beliefs:
    """What one replica believes.

    Promises: it adopts a new epoch before anything else and refuses what is of an older one; it never goes back to an
    older (epoch, revision), counted separately for ranks and for the world size; a belief changes when its command is
    accepted, before user code runs.

    Attributes:
        epoch: The newest seen.
        ranks: None: never initialised.
        world_size: None: never told.
        config_id: Of the user_config that it has, or is applying.
    """

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.ranks: Ranks | None = None
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

    def accept(self, change: Change) -> Verdict:
        """Adopt what a change says, unless it is late, repeated, or of a replaced controller."""
        if not self.admit(change.epoch):
            return Verdict.REFUSED
        stamp = (change.epoch, change.revision)
        self._learn(change.world_size, stamp)
        if stamp < self._stamp or (self.ranks is None and not change.initialize):
            return Verdict.OVERTAKEN
        if stamp == self._stamp:
            return Verdict.REPEATED
        self._stamp, self.ranks, self.config_id = stamp, change.ranks, change.config_id
        return Verdict.CARRY_OUT

    def announce(self, epoch: int, revision: int, world_size: int) -> bool:
        """Learn a world size; False: it came from a replaced controller."""
        if not self.admit(epoch):
            return False
        self._learn(world_size, (epoch, revision))
        return True

    def _learn(self, world_size: int, stamp: Stamp) -> None:
        if stamp > self._world_stamp:
            self._world_stamp, self.world_size = stamp, world_size
