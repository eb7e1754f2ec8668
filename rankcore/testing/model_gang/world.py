"""A gang as one value, with what its agents really are, and the moves that lead to others.

An agent that hears that it has to ask for another round does so in the same move, and that it is parked changes nothing.

Time: the clock moves from one deadline of an open round to the next, at any moment. An agent that a coordinator which has
started again has not heard of by `recover_s` has ended itself before (TR9): so the model ends it when the clock gets there.
"""

from collections.abc import Iterator
from typing import TypeAlias

import attrs

from rankcore.gang import Admit, Believed, ClockAdvanced, Command, Event, Gang, Joined, LeaseLapsed, Park, Restart, step
from rankcore.gang.invariants import check, check_step
from rankcore.kernel import Violation
from rankcore.testing.model_gang.bounds import GangBounds

Move: TypeAlias = tuple[str, int]
"""What, and of which agent."""

FAIR = ("hears", "joins", "lapses", "time passes")
"""Moves that have to happen at some time: they lead to rest."""
BUDGETS = ("crashes", "returns", "failures", "restarts")


@attrs.frozen
class Agent:
    """A process that is to be of the gang.

    Attributes:
        node: Of which node it is; also its name, with the number of the process there.
        lives: Whether it does.
        is_known: Whether the coordinator has it in its books.
        asks: Whether it is about to ask for a round.
        believed: The rank that it was given last.
        size: Of how many.
        inbox: What it has not heard yet, the oldest first.
        is_sent_away: Whether it was refused.
    """

    node: int
    process: int = 0
    lives: bool = True
    is_known: bool = True
    asks: bool = False
    believed: Believed | None = None
    size: int = 0
    inbox: tuple[Command, ...] = ()
    is_sent_away: bool = False

    @property
    def member(self) -> str:
        """Its id."""
        return f"m{self.node}.{self.process}"


@attrs.frozen
class GangWorld:
    """All there is: what the coordinator knows, all agents, and how often each budget was used, in the order of `BUDGETS`."""

    bounds: GangBounds
    gang: Gang
    agents: tuple[Agent, ...]
    spent: tuple[int, ...] = (0,) * len(BUDGETS)


class GangDraft:
    """A world that is being changed by one move, with the promises that it breaks."""

    def __init__(self, world: GangWorld) -> None:
        self.world = world
        self.gang = world.gang
        self.agents = list(world.agents)
        self.broken: list[Violation] = []

    def change(self, number: int, **changes: object) -> None:
        """Change one agent."""
        self.agents[number] = attrs.evolve(self.agents[number], **changes)  # type: ignore[arg-type]

    def tell(self, event: Event) -> None:
        """Tell the coordinator, check the promises, and put what it says into the inboxes of those who live."""
        before = self.gang
        self.gang, commands = step(before, event)
        self.broken += [*check(self.gang), *check_step(before, event, self.gang, commands)]
        numbers = {agent.member: number for number, agent in enumerate(self.agents)}
        for command in commands:
            agent = self.agents[numbers[command.member]]
            if agent.lives and not isinstance(command, Park):
                self.change(numbers[command.member], inbox=(*agent.inbox, command))

    def close(self, budget: str | None) -> GangWorld:
        """As a value, with one of a budget used."""
        spent = tuple(count + (name == budget) for name, count in zip(BUDGETS, self.world.spent, strict=True))
        return GangWorld(self.world.bounds, self.gang, tuple(self.agents), spent)


def root(bounds: GangBounds) -> GangWorld:
    """The first round runs, and the spares are parked."""
    gang = Gang(bounds.low, bounds.members)
    count = bounds.members + bounds.spares
    draft = GangDraft(GangWorld(bounds, gang, tuple(Agent(number) for number in range(count))))
    for number in range(count):
        draft.tell(Joined(draft.agents[number].member, f"n{number}"))
    for number in range(count):
        while draft.agents[number].inbox:
            _hears(draft, number)
    assert not draft.broken, draft.broken
    return draft.close(None)


def deadline_s(gang: Gang) -> float | None:
    """When the next thing falls due that only the clock brings."""
    if gang.opened_s is None or gang.closed is not None:
        return None
    dues = (gang.last_call_s, gang.recover_s, gang.join_timeout_s)
    return next((gang.opened_s + due_s for due_s in dues if gang.opened_s + due_s > gang.now_s), None)


def moves(world: GangWorld) -> Iterator[Move]:
    """What may happen next: what has to at some time, then what an adversary may do."""
    agents = list(enumerate(world.agents))
    yield from (("hears", number) for number, agent in agents if agent.lives and agent.inbox)
    yield from (("joins", number) for number, agent in agents if agent.lives and agent.asks and not agent.inbox)
    yield from (("lapses", number) for number, agent in agents if not agent.lives and agent.is_known)
    if deadline_s(world.gang) is not None:
        yield "time passes", 0
    left = {name: getattr(world.bounds, name) > spent for name, spent in zip(BUDGETS, world.spent, strict=True)}
    if left["crashes"]:
        yield from (("crashes", number) for number, agent in agents if agent.lives and not agent.is_sent_away)
    if left["returns"]:
        latest = {agent.node: number for number, agent in agents}
        yield from (("returns", number) for number in latest.values() if not world.agents[number].lives)
    if left["failures"]:
        yield from (
            ("fails", number)
            for number, agent in agents
            if agent.lives and not agent.asks and not agent.inbox and agent.member in world.gang.table
            and world.gang.opened_s is None and world.gang.closed is None
        )  # fmt: skip
    if left["restarts"] and world.gang.closed is None:
        yield "starts again", 0


def make(world: GangWorld, move: Move) -> tuple[GangWorld, tuple[Violation, ...]]:
    """The world after a move, and the promises that it has broken."""
    draft = GangDraft(world)
    what, number = move
    act, budget = _MOVES[what]
    act(draft, number)
    return draft.close(budget), (*draft.broken, *_believed(draft.agents))


def _believed(agents: list[Agent]) -> Iterator[Violation]:
    """No two that live believe one rank of one round, whatever the coordinator thinks."""
    taken: dict[tuple[int, int], str] = {}
    for agent in agents:
        if agent.lives and agent.believed is not None and not agent.is_sent_away:
            key = (agent.believed.round, agent.believed.rank)
            if taken.setdefault(key, agent.member) != agent.member:
                yield Violation("TR8", f"{taken[key]} and {agent.member} both have rank {key[1]} of round {key[0]}")


def _hears(draft: GangDraft, number: int) -> None:
    agent = draft.agents[number]
    command, *rest = agent.inbox
    draft.change(number, inbox=tuple(rest))
    match command:
        case Admit():
            had = agent.believed
            if had is not None and command.rank != had.rank < command.world_size:
                draft.broken.append(Violation("TR1", f"{agent.member} had rank {had.rank}, is told {command.rank}"))
            draft.change(number, believed=Believed(command.rank, command.round), size=command.world_size, asks=False)
        case Restart():
            _joins(draft, number)
        case _:
            draft.change(number, is_sent_away=True, asks=False)


def _joins(draft: GangDraft, number: int) -> None:
    agent = draft.agents[number]
    draft.change(number, asks=False, is_known=True)
    draft.tell(Joined(agent.member, f"n{agent.node}", agent.believed))


def _lapses(draft: GangDraft, number: int) -> None:
    draft.change(number, is_known=False)
    draft.tell(LeaseLapsed(draft.agents[number].member))


def _time_passes(draft: GangDraft, _: int) -> None:
    due_s = deadline_s(draft.gang)
    assert due_s is not None
    if not len(draft.gang.table) and draft.gang.opened_s is not None and due_s >= draft.gang.opened_s + draft.gang.recover_s:
        for number, agent in enumerate(draft.agents):
            if agent.lives and not agent.is_known:
                draft.change(number, lives=False, inbox=())
    draft.tell(ClockAdvanced(due_s))


def _crashes(draft: GangDraft, number: int) -> None:
    draft.change(number, lives=False, inbox=())


def _returns(draft: GangDraft, number: int) -> None:
    agent = draft.agents[number]
    draft.agents.append(Agent(agent.node, agent.process + 1, is_known=False, asks=True))


def _starts_again(draft: GangDraft, _: int) -> None:
    """What was under way is lost; all that live ask again. Who is gone is in no book any more."""
    old = draft.gang
    draft.gang = Gang(old.min_size, old.max_size, now_s=old.now_s, opened_s=old.now_s, restarted=True)
    for number, agent in enumerate(draft.agents):
        draft.change(number, is_known=False, inbox=(), asks=agent.lives and not agent.is_sent_away)


_MOVES = {
    "hears": (_hears, None),
    "joins": (_joins, None),
    "lapses": (_lapses, None),
    "time passes": (_time_passes, None),
    "crashes": (_crashes, "crashes"),
    "returns": (_returns, "returns"),
    "fails": (_joins, "failures"),
    "starts again": (_starts_again, "restarts"),
}
