"""Every reachable state of a small deployment: what the exhaustive checker explores for R1 to R12 and S1 to S8.

A model world holds a deployment's state, its replicas with their beliefs, and every message under way; the moves of an
adversary lead from one to the next. `RankSystem` says so to `rankcore.testing.explore`, which explores all worlds within some
bounds, breadth first, and checks the promises in each: on the book, on each step, and on what the replicas believe. From each
it also demands that, without another fault, everything becomes healthy again. `rankcore check` is its command,
`docs/verification.md` says what it shows.

    >>> search = explored(RankSystem(Bounds(replicas=1, crashes=1)))
    >>> search.done, search.broken
    (True, None)
"""

from rankcore.testing.model.bounds import Bounds, InvalidBoundsError
from rankcore.testing.model.coverage import Coverage
from rankcore.testing.model.moves import make, moves
from rankcore.testing.model.system import RankSystem, replay, root
from rankcore.testing.model.words import describe
from rankcore.testing.model.world import RankWorld
from rankcore.testing.renamed import renamed

__all__ = [
    "Bounds",
    "Coverage",
    "InvalidBoundsError",
    "RankSystem",
    "RankWorld",
    "describe",
    "make",
    "moves",
    "replay",
    "root",
]

__getattr__ = renamed(globals(), {"World": "RankWorld"})
