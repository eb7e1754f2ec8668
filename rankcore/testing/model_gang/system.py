"""Gangs, as `rankcore.testing.explore` explores them."""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from rankcore.gang import Admit, Command
from rankcore.kernel import Violation
from rankcore.testing.explorable import SelfChecked
from rankcore.testing.model_gang.bounds import GangBounds
from rankcore.testing.model_gang.world import FAIR, GangWorld, Move, make, moves, root
from rankcore.testing.paths import replayed

_encode = msgspec.msgpack.Encoder().encode


class GangSystem(SelfChecked[GangWorld, Move]):
    """A gang within some bounds: TR1 to TR8."""

    bounds: GangBounds
    imports = "from rankcore.testing.model_gang import GangBounds, replay"
    rest_rule = "TR7"
    fair = FAIR

    def start(self) -> GangWorld:
        """The first round runs."""
        return root(self.bounds)

    def moves(self, world: GangWorld) -> Iterator[Move]:
        """What may happen next; the fair ones first."""
        return moves(world)

    def make(self, world: GangWorld, move: Move) -> tuple[GangWorld, tuple[Violation, ...]]:
        """The world after a move, and what it has broken."""
        return make(world, move)

    def unsettled(self, world: GangWorld) -> Sequence[Violation]:
        """Who lives and was not sent away runs with the rank that it is said to have, or is parked; nobody else has one."""
        return list(at_rest(world))

    def key(self, world: GangWorld) -> bytes:
        """Everything but the numbers of rounds, and the time."""
        return canonical(world)


def replay(bounds: GangBounds, path: Sequence[str], *, settles: bool = False) -> GangWorld:
    """Go a path that the checker has printed, and check every promise at each move: `rankcore.testing.paths.replayed`."""
    return replayed(GangSystem(bounds), path, settles=settles)


def at_rest(world: GangWorld) -> Iterator[Violation]:
    """What is wrong with a world in which nothing is left to do but faults."""
    gang = world.gang
    for agent in world.agents:
        if not agent.lives and agent.member in gang.table and gang.closed is None:
            yield Violation("TR3", f"{agent.member} is gone and keeps its rank")
        if not agent.lives or agent.is_sent_away:
            continue
        if gang.closed is not None:
            yield Violation("TR7", f"{agent.member} was not told that there are no more rounds")
        elif agent.member in gang.table:
            rank, believed = gang.table.rank_of(agent.member).rank, agent.believed
            if gang.opened_s is not None or believed is None or (believed.rank, believed.round) != (rank, gang.round):
                yield Violation("TR7", f"{agent.member} has rank {rank} of round {gang.round} and believes {believed}")
            if agent.size != len(gang.table):
                yield Violation("TR4", f"{agent.member} believes that {agent.size} are there, not {len(gang.table)}")
        elif len(gang.table) < gang.max_size:
            yield Violation("TR6", f"{agent.member} is parked beside a free rank")


def canonical(world: GangWorld) -> bytes:
    """Everything that tells a world from others: rounds only by their order, and time only within an open round."""
    gang = world.gang
    said = {each.round for agent in world.agents for each in agent.inbox if isinstance(each, Admit)}
    held = (*(agent.believed for agent in world.agents), *(one.believed for one in gang.waiting))
    order = {
        number: place
        for place, number in enumerate(sorted(said | {gang.round} | {each.round for each in held if each is not None}))
    }

    def plain(command: Command) -> tuple[str, int, int, int]:
        if isinstance(command, Admit):
            return ("Admit", command.rank, command.world_size, order[command.round])
        return (type(command).__name__, 0, 0, 0)

    latest = {agent.node: agent for agent in world.agents if world.bounds.returns}
    agents = [
        (
            agent.member,
            agent.lives,
            agent.is_known,
            agent.asks,
            agent.is_sent_away,
            agent.size,
            agent.believed and (agent.believed.rank, order[agent.believed.round]),
            [plain(each) for each in agent.inbox],
        )
        for agent in world.agents
        if agent.lives or agent.is_known or agent is latest.get(agent.node)
    ]
    return _encode(
        (
            agents,
            [(each, rank.rank) for each, rank in gang.table.ranks.items()],
            sorted(gang.lost),
            sorted(gang.arrived),
            [
                replace(one, believed=one.believed and replace(one.believed, round=order[one.believed.round]))
                for one in gang.waiting
            ],
            order[gang.round],
            None if gang.opened_s is None else gang.now_s - gang.opened_s,
            gang.closed,
            gang.restarted,
            world.spent,
        )
    )
