"""What an adversary may do to one gang, and the small series that is explored whole."""

import attrs

from rankcore.testing.explorable import expression


@attrs.frozen(kw_only=True)
class GangBounds:
    """The gang, and how often something may happen on one path.

    Attributes:
        low: MIN.
        members: Agents that run at first, which is MAX; each on a node of its own.
        spares: Agents that are parked at first; each on a node of its own.
        crashes: Agents that end.
        returns: New agents on nodes whose agent has ended.
        failures: Agents that ask for another round, since a worker has failed.
        restarts: Coordinators that start again, without their memory.
    """

    low: int = 2
    members: int = 3
    spares: int = 2
    crashes: int = 0
    returns: int = 0
    failures: int = 0
    restarts: int = 0

    def __str__(self) -> str:
        """What differs from the defaults, ready to paste."""
        return expression(self)


SYSTEMS: dict[str, GangBounds] = {
    "gang-crashes": GangBounds(members=2, low=1, spares=1, crashes=2, returns=1),
    "gang-shrinks": GangBounds(members=3, spares=0, crashes=1, returns=1, failures=1),
    "gang-whole": GangBounds(crashes=2, restarts=1),
}
"""The series of `rankcore check --gang`."""
