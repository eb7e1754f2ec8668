"""Schedules drawn from a seed: which moves an adversary makes, and how often each."""

from itertools import compress

from executors.swarm.drawing import chance_of, some_of, swarm_weights
from rankcore.testing.schedules import TIMINGS, Schedule

CALM_WEIGHTS = {
    "command arrives": 3.0,
    "news arrives": 5.0,
    "first of each arrives": 4.0,
    "replica works": 3.0,
    "replica is placed": 2.0,
    "calm moment": 3.0,
}
"""What goes on in any world; without it nothing comes of any fault."""

FAULT_WEIGHTS = {
    "command arrives and stays": 2.0,
    "news arrives and stays": 3.0,
    "time passes": 1.0,
    "message is lost": 1.0,
    "replica crashes": 0.6,
    "replica fails": 0.5,
    "replica is suspected": 0.4,
    "node is lost": 0.2,
    "node has other room": 0.4,
    "bundle is lost": 0.3,
    "bundle is back": 0.3,
    "controller restarts": 0.25,
    "replicas disagree": 0.3,
    "target changes": 0.5,
    "target changes with victims": 0.4,
    "version changes": 0.3,
    "user_config changes": 0.3,
    "restart token changes": 0.2,
    "partition changes": 0.25,
    "placement changes": 0.2,
    "replica is stopped by name": 0.3,
    "replica is to be replaced": 0.3,
    "node is cordoned": 0.15,
    "node is drained": 0.2,
    "node is uncordoned": 0.3,
    "what was given up is tried again": 0.3,
    "replica is ready or not": 0.3,
    "deployment is deleted": 0.01,
}
"""How often each comes beside the others, where it is neither off nor overdone."""

INTENSITIES = (0.15, 0.4, 1.0)
"""Where faults never cease nothing is ever healthy, and what begins only then, such as compaction, is never disturbed."""
LENGTHS = (60, 300, 1000, 1000)
DELAYED = ("command arrives", "news arrives")
DELAYED_SHARE, NEWEST, NEWEST_SHARE = 0.3, -1, 0.9
"""In some seeds it is nearly always the newest message that arrives, so that the older ones are very late."""
STATIC = 0.25
BAD = 0.2


def draw_schedule(seed: int) -> Schedule:
    """What this seed does to the core: policies, time-outs, and a list of moves. The same seed gives the same schedule."""
    chance = chance_of("schedule", seed)
    static = chance.random() < STATIC
    intensity = chance.choice(INTENSITIES)
    faults = {name: weight for name, weight in FAULT_WEIGHTS.items() if static or not name.startswith("bundle ")}
    weights = CALM_WEIGHTS | {name: weight * intensity for name, weight in swarm_weights(chance, faults).items()}
    count = chance.choice(LENGTHS)
    names = chance.choices(list(weights), list(weights.values()), k=count)
    arguments = list(chance.randbytes(count))
    for name in some_of(chance, DELAYED, DELAYED_SHARE):
        for index in compress(range(count), map(name.__eq__, names)):
            if chance.random() < NEWEST_SHARE:
                arguments[index] = NEWEST
    return Schedule(
        number=chance.randrange(1024),
        timing=chance.randrange(len(TIMINGS)) if chance.random() < 0.5 else 0,
        static=static,
        bad=chance.random() < BAD,
        moves=tuple(zip(names, arguments, strict=True)),
    )
