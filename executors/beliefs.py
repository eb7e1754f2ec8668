"""Deprecated, for one release: `rankcore.replica.replica` does with a message what this left to its owner."""

import warnings
from typing import Any, Generic, TypeVar

import attrs

from rankcore.replica import beliefs
from rankcore.replica.beliefs import ChangeVerdict as Verdict
from rankcore.replica.beliefs import Stamp

__all__ = ["Beliefs", "Stamp", "Verdict"]

warnings.warn(f"{__name__} goes in the next release: use rankcore.replica.replica", DeprecationWarning, stacklevel=2)

RankT = TypeVar("RankT")


@attrs.frozen
class _Change:
    epoch: int
    revision: int
    initialize: bool
    rank: Any
    world_size: int
    config_id: str | None


class Beliefs(Generic[RankT]):
    """What one replica believes by now: `epoch`, `rank`, `world_size` and `config_id`."""

    def __init__(self, epoch: int) -> None:
        self._value = beliefs.Beliefs(epoch=epoch)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._value, name)

    def admit(self, epoch: int) -> bool:
        """Whether a command of this epoch is to be obeyed; a new epoch is adopted."""
        return self._becomes(beliefs.admit(self._value, epoch))

    def announce(self, epoch: int, revision: int, world_size: int) -> bool:
        """Learn a world size; False: it came from a replaced controller."""
        return self._becomes(beliefs.announce(self._value, epoch, revision, world_size))

    def accept(self, stamp: Stamp, rank: RankT, world_size: int, config_id: str | None, *, initialize: bool) -> Verdict:
        """Adopt what a change says, unless it is late, repeated, or of a replaced controller."""
        change = _Change(*stamp, initialize, rank, world_size, config_id)
        verdict = beliefs.verdict_on(self._value, change)
        if verdict is Verdict.CARRY_OUT:
            self._value = beliefs.adopt(self._value, change)
        else:
            self.announce(*stamp, world_size)
        return verdict

    def _becomes(self, value: beliefs.Beliefs | None) -> bool:
        self._value = self._value if value is None else value
        return value is not None
