"""Adversarial schedules: a deployment whose replicas believe, messages in any order, and faults as a list of moves.

A `World` keeps its half of the contract and nothing beyond it; `MOVES` are what an adversary can do to it, by name. Every
promise is checked as it goes, on the book and on what replicas believe, and in the end that, without another fault, all
heals. Worlds change in place and are fast. The property tests draw schedules from hypothesis, `rankcore swarm` from seeds;
where every order of a few events is wanted, see `rankcore.testing.model`.

    >>> world = run(Schedule(number=2, moves=(("calm moment", 0), ("replica crashes", 1), ("controller restarts", 0))))
    >>> str(world.state.status)
    'HEALTHY'
"""

from rankcore.testing.schedules.actor import Actor
from rankcore.testing.schedules.cluster import NODES
from rankcore.testing.schedules.healing import heal
from rankcore.testing.schedules.moves import CALM, MOVES, Move, decode, play
from rankcore.testing.schedules.promises import BrokenScheduleError
from rankcore.testing.schedules.schedule import Schedule, UnknownMoveError, as_test, run
from rankcore.testing.schedules.shrinking import shrink
from rankcore.testing.schedules.specs import BUNDLES, GROUPS, TIMINGS, changed, placement_from, spec_from, static_spec_from
from rankcore.testing.schedules.world import HAPPENINGS, World

__all__ = [
    "BUNDLES",
    "CALM",
    "GROUPS",
    "HAPPENINGS",
    "MOVES",
    "NODES",
    "TIMINGS",
    "Actor",
    "BrokenScheduleError",
    "Move",
    "Schedule",
    "UnknownMoveError",
    "World",
    "as_test",
    "changed",
    "decode",
    "heal",
    "placement_from",
    "play",
    "run",
    "shrink",
    "spec_from",
    "static_spec_from",
]
