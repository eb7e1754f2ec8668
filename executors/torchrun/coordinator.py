"""The gang, and what is said to whom: `rankcore.gang` for agents that may say everything twice, with no socket or clock.

Three things are kept beside the gang, none of which decides about ranks: when an agent's message was last read (its lease),
the number of its newest request to join, and how it stands, which is said again whenever it connects.

A race: (1) a round closes and an agent is admitted; (2) its connection ends before it hears so; (3) it asks again for the round
that it has; (4) which the gang would take for a wish for another round, and restart everybody. So a request whose number
has been admitted is answered with how the agent stands, and not given to the gang.

Another: (1) an agent's lease lapses; (2) its rank is another's; (3) its machine wakes and it says Hello. Whoever has lapsed or
left is remembered by its id, which is never used again, and refused.
"""

from collections.abc import Iterator

import attrs

from executors.torchrun.lease import has_lapsed
from executors.torchrun.messages import (
    VERSION,
    AgentPhase,
    AskToJoin,
    Close,
    FromAgent,
    FromCoordinator,
    Hello,
    Leave,
    Renew,
    Renewed,
    Standing,
    Welcome,
)
from rankcore.gang import (
    Admit,
    Believed,
    ClockAdvanced,
    CloseRequested,
    Command,
    Event,
    Gang,
    Joined,
    LeaseLapsed,
    Left,
    Park,
    RefusalReason,
    Refuse,
    Restart,
    step,
)

Sent = list[tuple[str, FromCoordinator]]


@attrs.define
class KnownAgent:
    """What is kept of an agent beside the gang."""

    hello: Hello
    read_s: float
    number: int = 0
    standing: Standing | None = None


class Coordinator:
    """The gang of one job.

    Attributes:
        gang: As the core has it.
        agents: Those that are there, by id.
    """

    def __init__(self, gang: Gang, lease_s: float, run_id: str | None = None, store_port: int = 0) -> None:
        self.gang = gang
        self.agents: dict[str, KnownAgent] = {}
        self._lease_s, self._run_id, self._store_port = lease_s, run_id, store_port
        self._gone: set[str] = set()

    def hear(self, member: str, message: FromAgent, now_s: float) -> Sent:
        """What an agent says, which has said `Hello` before."""
        if isinstance(message, Hello):
            return self._greeted(message, now_s)
        agent = self.agents.get(member)
        if agent is None:
            return []
        agent.read_s = now_s
        match message:
            case Renew():
                return [(member, Renewed(message.number))]
            case Leave():
                return self.left(member, now_s)
            case Close():
                return self._told(CloseRequested(), now_s)
            case AskToJoin():
                return self._asked(member, agent, message, now_s)

    def left(self, member: str, now_s: float) -> Sent:
        """The processes of an agent are gone."""
        self._forget(member)
        return self._told(Left(member), now_s)

    def tick(self, now_s: float) -> Sent:
        """Time passes: leases lapse, and rounds close."""
        sent: Sent = []
        lapsed = [member for member, agent in self.agents.items() if has_lapsed(agent.read_s, self._lease_s, now_s)]
        for member in lapsed:
            self._forget(member)
            sent += self._told(LeaseLapsed(member), now_s)
        return sent + self._told(None, now_s)

    def disconnected(self, member: str) -> None:
        """A connection has ended, which says nothing of its agent, but that one who was refused knows it."""
        agent = self.agents.get(member)
        if agent is not None and agent.standing is not None and agent.standing.phase is AgentPhase.REFUSED:
            del self.agents[member]

    @property
    def is_over(self) -> bool:
        """Whether there will be no more rounds, and all agents know: also those who have not found this coordinator yet."""
        may_come = self.gang.restarted and self.gang.now_s < self.gang.recover_s
        return self.gang.closed is not None and not self.agents and not may_come

    def _forget(self, member: str) -> None:
        self._gone.add(member)
        self.agents.pop(member, None)

    def _greeted(self, hello: Hello, now_s: float) -> Sent:
        member, refusal = hello.member, None
        self._run_id = self._run_id if self._run_id is not None else hello.run_id
        if hello.version != VERSION:
            refusal = "other_version", f"the agent speaks version {hello.version}, expected {VERSION}"
        elif hello.run_id != self._run_id:
            refusal = "other_run", f"--rdzv-id is {hello.run_id}, expected {self._run_id}"
        elif member in self._gone:
            refusal = str(RefusalReason.LAPSED), "its lease has lapsed"
        if refusal is not None:
            return [(member, Standing(AgentPhase.REFUSED, 0, reason=refusal[0], detail=refusal[1]))]
        agent = self.agents.setdefault(member, KnownAgent(hello, now_s))
        agent.read_s = now_s
        welcome = Welcome(agent.number > 0, self._lease_s, self._store_port)
        return [(member, welcome), *([(member, agent.standing)] if agent.standing is not None else [])]

    def _asked(self, member: str, agent: KnownAgent, asked: AskToJoin, now_s: float) -> Sent:
        standing = agent.standing
        if standing is not None and standing.phase is AgentPhase.ADMITTED and standing.number >= asked.number:
            return [(member, standing)]
        agent.number = asked.number
        believed = None if asked.rank is None or asked.round is None else Believed(asked.rank, asked.round)
        return self._told(Joined(member, agent.hello.node_id, believed, asked.nproc, asked.max_size), now_s)

    def _told(self, event: Event | None, now_s: float) -> Sent:
        """Give the gang the time and an event, and say what it says."""
        sent: Sent = []
        for each in (ClockAdvanced(now_s), event):
            if each is not None:
                self.gang, commands = step(self.gang, each)
                sent += self._standings(commands)
        return sent

    def _standings(self, commands: tuple[Command, ...]) -> Iterator[tuple[str, Standing]]:
        for command in commands:
            agent = self.agents.get(command.member)
            if agent is not None:
                agent.standing = _standing(command, agent.number)
                yield command.member, agent.standing


def _standing(command: Command, number: int) -> Standing:
    match command:
        case Admit():
            return Standing(AgentPhase.ADMITTED, number, command.rank, command.world_size, command.round)
        case Park():
            return Standing(AgentPhase.PARKED, number)
        case Restart():
            return Standing(AgentPhase.RESTART, number)
        case Refuse():
            return Standing(AgentPhase.REFUSED, number, reason=str(command.reason), detail=command.detail)
