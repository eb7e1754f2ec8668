"""V1: ['llm#1.3'] are ended, and 0 of 2 are left, at least 1 have to be"""

from rankcore.testing.schedules import Schedule, run

MOVES = (
    ("command arrives", 0),
    ("command arrives", 0),
    ("first of each arrives", 0),
    ("calm moment", 0),
    ("replica is to be replaced", 0),
    ("calm moment", 0),
    ("command arrives", 0),
    ("news arrives", 0),
    ("news arrives", 0),
    ("replica works", 0),
    ("calm moment", 0),
    ("replica is placed", 0),
    ("first of each arrives", 0),
    ("calm moment", 0),
    ("first of each arrives", 0),
    ("first of each arrives", 0),
    ("controller restarts", 0),
    ("calm moment", 0),
    ("placement changes", 1),
)


def test_a_schedule_found_by_the_swarm():
    run(Schedule(number=182, moves=MOVES))
