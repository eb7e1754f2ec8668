"""How a deployment stood at a moment, in a few lines."""

from collections.abc import Iterator

from executors.explain.memory import Life, Memory
from executors.explain.wording import listed
from executors.simulator.times import TENTHS, moment
from rankcore.values import ReplicaId

SHOWN = 40


def picture(memory: Memory, at: float, replica_id: ReplicaId | None, rank: int | None) -> Iterator[str]:
    """Status, world size and who has which rank; only the replica or rank that is asked about, where one is."""
    size = memory.spec.target_replicas if memory.spec is not None else 0
    status = f"{memory.status or 'not there'} since {moment(memory.status_since, TENTHS)}"
    yield f"At {moment(at, TENTHS)}, {memory.name} has been {status}, with world size {size}."
    ranks = {who: life.global_rank for who, life in memory.lives.items()}
    holders = sorted((held, who) for who, held in ranks.items() if held is not None)
    asked = [(held, who) for held, who in holders if replica_id in (None, who) and rank in (None, held)]
    for held, who in asked[:SHOWN]:
        yield f"  rank {held}: {who}{_how(memory.lives[who])}"
    if len(asked) > SHOWN:
        yield f"  and {len(asked) - SHOWN} more"
    taken = {held for held, _ in holders}
    vacant = [each for each in range(size) if each not in taken and rank in (None, each)]
    if vacant and replica_id is None:
        kept = [each for each in vacant if each in memory.kept]
        yield f"  nobody has: {listed(map(str, vacant), SHOWN)}" + (f" (kept: {listed(map(str, kept), SHOWN)})" if kept else "")


def _how(life: Life) -> str:
    where = f" on {life.node_id}" if life.node_id is not None else ""
    if life.leaving is not None:
        return f"{where}, told to stop"
    if life.moving is not None:
        return f"{where}, told to move there"
    return where if life.rank is not None else f"{where}, on its way"
