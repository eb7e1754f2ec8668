"""What one replica believes, and which messages may still change it: the fence and the stamps of section 2.4.

**Epochs** are fences. Each controller has a higher one than its predecessor. A replica adopts the highest that it has seen
before it does anything else with the message that brought it, and refuses what is of a lower one: from the first message of
a new controller on, no message of an old one, however late, can change what the new one has been told.

**Stamps**, (epoch, revision), order what one controller says. Messages come late, twice and in any order; a replica never
goes back to a lower stamp, so the last word is the newest, not the last to arrive. Ranks and the world size have a stamp each:
a newer announcement does not hide ranks that were sent before it and arrive after it, nor the reverse.
"""

from enum import Enum
from typing import Protocol, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from rankcore.values import ReplicaRank

Stamp: TypeAlias = tuple[int, int]
"""(epoch, revision): what a replica never goes back in."""
NEVER: Stamp = (-1, -1)

B = TypeVar("B", bound="Beliefs")


class RankChange(Protocol):
    """`PrepareReplica`, `InitializeReplica`, `ReconfigureReplica`, or the same as it travels.

    Attributes:
        initialize: Whether it lets user code start; else the replica has to be initialised already.
        rank: None: user code is to start without one, which is a preparation.
    """

    @property
    def initialize(self) -> bool: ...  # noqa: D102
    @property
    def epoch(self) -> int: ...  # noqa: D102
    @property
    def revision(self) -> int: ...  # noqa: D102
    @property
    def rank(self) -> ReplicaRank | None: ...  # noqa: D102
    @property
    def world_size(self) -> int: ...  # noqa: D102
    @property
    def config_id(self) -> str | None: ...  # noqa: D102


class ChangeVerdict(Enum):
    """What is to be done with a change that has arrived."""

    CARRY_OUT = "carry out"
    REPEATED = "repeated"
    """It is being, or was, carried out: the same answer again."""
    OVERTAKEN = "overtaken"
    """A newer one has come before it; or it has come before the initialization that it follows, and its sender repeats it; or
    it is a preparation, and the replica has a rank."""
    REFUSED = "refused"


CARRY_OUT, REPEATED, OVERTAKEN, REFUSED = ChangeVerdict
"""For code that runs at every message: reading a member of an enum costs ten times as much as reading a name."""


class Beliefs(Struct, frozen=True, gc=False, kw_only=True):
    """What one replica believes.

    Attributes:
        epoch: The newest seen.
        rank: All three; None: never initialised.
        world_size: None: never received.
        config_id: Of the user_config that it has, or is applying.
        stamp: Of the change that was accepted last.
        world_stamp: Of the message that brought the world size.
    """

    epoch: int
    rank: ReplicaRank | None = None
    world_size: int | None = None
    config_id: str | None = None
    stamp: Stamp = NEVER
    world_stamp: Stamp = NEVER


def admit(beliefs: B, epoch: int) -> B | None:
    """The beliefs once a message of this epoch has come, which is adopted; None: the message is refused."""
    if epoch < beliefs.epoch:
        return None
    return beliefs if epoch == beliefs.epoch else replace(beliefs, epoch=epoch)


def verdict_on(beliefs: Beliefs, change: RankChange) -> ChangeVerdict:
    """What is to be done with a change: whether it is late, repeated, or of a replaced controller."""
    epoch, stamp = change.epoch, beliefs.stamp
    if epoch < beliefs.epoch:
        return REFUSED
    arrived = epoch, change.revision
    if arrived == stamp:
        return REPEATED
    if arrived < stamp or (beliefs.rank is None and not change.initialize):
        return OVERTAKEN
    return OVERTAKEN if change.rank is None and beliefs.rank is not None else CARRY_OUT


def adopt(beliefs: B, change: RankChange) -> B:
    """The beliefs once a change is accepted: they change here, at once."""
    epoch, rank, config_id = change.epoch, change.rank, change.config_id
    stamp = epoch, change.revision
    if stamp > beliefs.world_stamp:
        size = change.world_size
        return replace(beliefs, epoch=epoch, rank=rank, config_id=config_id, stamp=stamp, world_size=size, world_stamp=stamp)
    return replace(beliefs, epoch=epoch, rank=rank, config_id=config_id, stamp=stamp)


def announce(beliefs: B, epoch: int, revision: int, world_size: int) -> B | None:
    """Learn a world size, unless it is late; None: it came from a replaced controller."""
    admitted = admit(beliefs, epoch)
    if admitted is None or (epoch, revision) <= admitted.world_stamp:
        return admitted
    return replace(admitted, world_size=world_size, world_stamp=(epoch, revision))
