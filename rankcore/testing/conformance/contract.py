"""The contract line by line (section 2.4 of the design), and the seat from which a case tries one of its lines."""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, TypeAlias, TypeVar

import attrs

from rankcore.commands import (
    AnnounceWorldSize,
    Command,
    InitializeReplica,
    KillReplica,
    PrepareReplica,
    QueryReplica,
    ReconfigureReplica,
    StartReplica,
    StopReplica,
)
from rankcore.events import FINAL, Event, NodeChanged, NodeLost, ReplicaPlaced, ReplicaReady
from rankcore.frozen import FrozenDict
from rankcore.replica.messages import ReplicaChange
from rankcore.spec import config_id_of
from rankcore.testing.conformance.bench import Bench, Executor, complete
from rankcore.testing.conformance.running import NAME, NonconformityError, NotTriedError
from rankcore.testing.conformance.system import SelfReport
from rankcore.values import NodeId, ReplicaId, ReplicaRank

E = TypeVar("E", bound=Event)
Addressed: TypeAlias = StartReplica | ReplicaChange | QueryReplica | StopReplica | KillReplica
"""Commands to one replica."""

USER_CONFIG = FrozenDict({"temperature": 0.1})
RESTART_TOKEN = "1st"
FIRST_EPOCH = 2
REPEAT_S = 1.0
"""Where the bench repeats, what is not answered is said again, as the core does: an executor may lose all but final news."""
LONG_S = 600.0
"""For user code that does not end while a case looks at it."""
NEWS_SHOWN = 6


class Line(Enum):
    """Who keeps what."""

    FENCE = "an executor refuses every command of an epoch older than the newest it has seen"
    DISCOVERY = "an executor discovers replicas only after its fence is up, and then all of them"
    FINAL = "an executor never loses final news"
    TRUE = "an executor never reports final news unless it is true"
    UNKNOWN = "an executor answers Stop and Kill of something unknown with ReplicaStopped, a Query of it with ReplicaMissing"
    START = "an executor starts a replica once: a repeated Start is answered with ReplicaPlaced, or with its end"
    PLACE = "an executor starts a replica on the node that its StartReplica names, or tells that the start has failed"
    CAPACITY = "an executor tells with NodeChanged how many replicas a node can hold in all, those that are there included"
    STOP = "an executor ends a stopping replica when its time-out is over"
    WORLD_SIZE = "an executor keeps the newest AnnounceWorldSize and delivers it to every replica that exists or comes to exist"
    CLOCK = "an executor sends ClockAdvanced when the newest WakeAt is due"
    EXECUTE = "an executor begins to carry out a command, waits for nothing, and does not raise because of the world"
    HEALTH = "an executor tells of a replica that does not answer that it is suspected, and tells its end when it has ended"
    LEASE = "an executor tells the end of who is on a node that it cannot reach when that has ended by itself, and not before"
    BUNDLES = "an executor starts a replica on the bundles that its StartReplica names, and tells what becomes of bundles"
    READINESS = "an executor tells that a replica takes no requests, and when it does again, and ends nobody for it"
    REPLICA_EPOCH = "a replica adopts a new epoch before it answers a query, and refuses commands of an older one"
    REPLICA_ORDER = "a replica never goes back to an older (epoch, revision)"
    REPLICA_BELIEF = "a replica changes its belief when it accepts a command, before user code runs"
    REPLICA_ONCE = "a replica carries out a repeated command once, and acknowledges it again"
    REPLICA_CONFIG = "a replica keeps the user_config that it has if a change names it without bringing it"
    REPLICA_PREPARED = "a replica comes up without a rank if told to, adopts its first one without a new start, and keeps it"
    REPLICA_QUERY = "a replica answers a query when no rank change is running, with what it believes, draining or not"


class BrokenLineError(NonconformityError):
    """A line of the contract is broken.

    Attributes:
        line: Which one.
        expected, seen: What should have come of it, and what did.
    """

    def __init__(self, line: Line, expected: str, seen: str) -> None:
        super().__init__(f"section 2.4: {line.value}\n  expected: {expected}\n  seen: {seen}")
        self.line, self.expected, self.seen = line, expected, seen


class Seat:
    """A controller's seat at the executor of a bench: it gives commands by hand and looks at all news.

    Attributes:
        bench: The world.
        epoch: Of this controller.
        repeats: Whether commands are said again until they are answered. Else one that gets lost, or its answer, is found out.
        news: All that the executor has told, the latest last.
    """

    def __init__(self, bench: Bench, line: Line, epoch: int = FIRST_EPOCH) -> None:
        self.bench = bench
        self.epoch = epoch
        self.repeats: bool = getattr(bench, "repeats", False)
        self.news: list[Event] = []
        self._line = line
        self._executor: Executor = bench.open(epoch)
        self._revisions = epoch << 32

    def successor(self) -> "Seat":
        """The seat of a controller that comes after this one, which stays where it is and knows nothing of it."""
        return Seat(self.bench, self._line, self.epoch + 1)

    def bench_method(self, name: str) -> Callable[..., Any]:
        """What only some benches can do.

        Raises:
            NotTriedError: This one cannot.
        """
        method: Callable[..., Any] | None = getattr(self.bench, name, None)
        if method is None:
            raise NotTriedError(f"the bench has no `{name}`")
        return method

    # -- commands

    def do(self, command: Command) -> None:
        """Give a command."""
        try:
            self._executor.execute(command)
        except Exception as error:
            raise BrokenLineError(Line.EXECUTE, f"{command} raises nothing", repr(error)) from error

    def ask(self, command: Command, expected: str, condition: Callable[[], bool]) -> None:
        """Give a command, and wait until something is so."""
        self.ask_all((command,), expected, condition)

    def ask_all(self, commands: Sequence[Command], expected: str, condition: Callable[[], bool]) -> None:
        """Give commands, and wait until something is so; where the bench repeats, again and again."""
        for command in commands:
            self.do(command)
        said_at = self.bench.now()

        def repeat() -> bool:
            nonlocal said_at
            if self.repeats and self.bench.now() > said_at + REPEAT_S:
                for command in commands:
                    self.do(command)
                said_at = self.bench.now()
            return condition()

        self.expect(expected, repeat)

    def ask_for(self, kind: type[E], command: Addressed) -> list[E]:
        """Give a command until it is answered so; returns all such news of that replica."""
        whose = command.replica_id
        self.ask(command, f"{kind.__name__} of {whose}", lambda: bool(self.told(kind, whose)))
        return self.told(kind, whose)

    def ask_again(self, kind: type[E], command: Addressed) -> None:
        """Repeat a command until it is answered so once more."""
        whose, before = command.replica_id, len(self.told(kind, command.replica_id))
        self.ask(command, f"{kind.__name__} of {whose} once more", lambda: len(self.told(kind, whose)) > before)

    def next_revision(self) -> int:
        """Above all before it."""
        self._revisions += 1
        return self._revisions

    def start_of(self, serial: int, epoch: int | None = None, node_id: NodeId | None = None) -> StartReplica:
        """The command that starts a replica; its id is that of its number, whoever starts it."""
        epoch = epoch if epoch is not None else self.epoch
        return StartReplica(f"{NAME}#1.{serial}", serial, "1", node_id, (), epoch, restart_token=RESTART_TOKEN)

    def preparation(self, replica_id: ReplicaId) -> PrepareReplica:
        """The command that lets its user code come up without a rank."""
        config_id = config_id_of(USER_CONFIG)
        return PrepareReplica(replica_id, 1, USER_CONFIG, config_id, self.next_revision(), self.epoch)

    def initialization(self, replica_id: ReplicaId, rank: int) -> InitializeReplica:
        """The command that makes a replica ready."""
        config_id = config_id_of(USER_CONFIG)
        return InitializeReplica(replica_id, _ranks(rank), rank + 1, USER_CONFIG, config_id, self.next_revision(), self.epoch)

    def reconfiguration(self, replica_id: ReplicaId, rank: int) -> ReconfigureReplica:
        """The command that gives it another rank."""
        config_id = config_id_of(USER_CONFIG)
        return ReconfigureReplica(replica_id, _ranks(rank), rank + 1, USER_CONFIG, config_id, self.next_revision(), self.epoch)

    def announcement(self, world_size: int) -> AnnounceWorldSize:
        """The command that tells a world size."""
        return AnnounceWorldSize(world_size, self.next_revision(), self.epoch)

    # -- what is begun with

    def placed(self, serial: int) -> ReplicaId:
        """A replica that is up, and knows nothing."""
        (replica_id,) = self.placed_all((serial,))
        return replica_id

    def placed_all(self, serials: Sequence[int], node_id: NodeId | None = None) -> list[ReplicaId]:
        """Replicas that are up, and know nothing; on that node, if one is named."""
        starts = [self.start_of(serial, node_id=node_id) for serial in serials]
        ids = [start.replica_id for start in starts]
        self.ask_all(
            starts,
            f"ReplicaPlaced of {', '.join(ids)}, and all of them there",
            lambda: all(self.told(ReplicaPlaced, each) for each in ids) and self.alive().keys() >= set(ids),
        )
        return ids

    def running(self, serial: int) -> ReplicaId:
        """A replica that is ready; its rank is its number."""
        replica_id = self.placed(serial)
        self.ask_for(ReplicaReady, self.initialization(replica_id, serial))
        return replica_id

    def dismiss(self, replica_id: ReplicaId) -> None:
        """End a replica that a case has left at work."""
        self.ask(KillReplica(replica_id, self.epoch), f"an end of {replica_id}", lambda: bool(self.ends(replica_id)))

    # -- what is seen

    def told(self, kind: type[E], replica_id: ReplicaId) -> list[E]:
        """The news of this kind about a replica."""
        return [event for event in self._of(replica_id) if isinstance(event, kind)]

    def ends(self, replica_id: ReplicaId) -> list[Event]:
        """The final news about a replica."""
        return [event for event in self._of(replica_id) if isinstance(event, FINAL)]

    def has_lost(self, node_id: NodeId) -> bool:
        """Whether NodeLost was told of a node."""
        return any(isinstance(event, NodeLost) and event.node_id == node_id for event in self.news)

    def capacity_of(self, node_id: NodeId) -> int | None:
        """What the last NodeChanged says of a node; None: there was none."""
        told = [event.capacity for event in self.news if isinstance(event, NodeChanged) and event.node_id == node_id]
        return told[-1] if told else None

    def _of(self, replica_id: ReplicaId) -> list[Event]:
        return [event for event in self.news if getattr(event, "replica_id", None) == replica_id]

    def alive(self) -> dict[ReplicaId, SelfReport]:
        """What the live replicas say."""
        return {report.replica_id: report for report in self.bench.replicas()}

    def report_of(self, replica_id: ReplicaId) -> SelfReport:
        """What a replica says that must be alive."""
        heard: list[SelfReport] = []

        def there() -> bool:
            heard.extend(each for each in self.bench.replicas() if each.replica_id == replica_id)
            return bool(heard)

        self.expect(f"{replica_id} to be there", there)
        return heard[-1]

    def knows(self, replica_id: ReplicaId, world_size: int) -> bool:
        """Whether a replica is there and knows that world size."""
        return any(each.world_size == world_size for each in self.bench.replicas() if each.replica_id == replica_id)

    def believes(self, replica_id: ReplicaId, rank: int) -> bool:
        """Whether a replica is there and believes that rank."""
        report = self.alive().get(replica_id)
        return report is not None and report.rank is not None and report.rank.rank == rank

    def has_believed(self, replica_id: ReplicaId, rank: int) -> bool:
        """Whether a replica believes that rank, or ever has."""
        return any(belief.rank.rank == rank for belief in self.report_of(replica_id).beliefs)

    def expect(self, expected: str, condition: Callable[[], bool]) -> None:
        """Let the world go on until something is so.

        Raises:
            BrokenLineError: It does not come to that; or an end is told of a replica that lives.
        """
        deadline = self.bench.now() + self.bench.patience_s
        self.look()
        while not condition():
            if self.bench.now() > deadline:
                raise BrokenLineError(self._line, expected, self._seen())
            self.bench.advance()
            self.look()

    def deny(self, expected: str, broken: bool) -> None:
        """What is broken must not be so.

        Raises:
            BrokenLineError: It is.
        """
        if broken:
            raise BrokenLineError(self._line, expected, self._seen())

    def look(self) -> None:
        """Hear all that the executor has to tell now.

        Raises:
            BrokenLineError: An end is told of a replica that lives.
        """
        while (event := self._executor.poll()) is not None:
            self.news.append(event)
            if isinstance(event, FINAL):
                gone = event.node_id if isinstance(event, NodeLost) else event.replica_id
                if any(gone in (each.replica_id, each.node_id) for each in self.bench.replicas()):
                    raise BrokenLineError(Line.TRUE, f"{gone} to be gone when its end is told", self._seen())

    def _seen(self) -> str:
        news = "; ".join(str(event) for event in self.news[-NEWS_SHOWN:]) or "no news"
        there = "; ".join(
            f"{each.replica_id} with rank {each.rank}, world size {each.world_size}, "
            f"{'ready' if each.ready else 'not ready'}{', draining' if each.draining else ''}"
            for each in self.bench.replicas()
        )
        return f"{news}\n  replicas: {there or 'none'}"


def _ranks(rank: int) -> ReplicaRank:
    return ReplicaRank(rank, 0, rank)


@attrs.frozen
class ContractCase:
    """One thing that a line of the contract asks for.

    Attributes:
        line: Which line.
        play: Tries it.
    """

    line: Line
    play: Callable[[Seat], None]

    @property
    def name(self) -> str:
        """What happens, in words."""
        return self.play.__name__.replace("_", " ")

    def __str__(self) -> str:
        return f"{self.line.name.lower()}: {self.name}"


def check(case: ContractCase, bench: Bench) -> None:
    """Try one line of the contract on a fresh bench.

    Raises:
        BrokenLineError: It is broken; the text says which line, what was expected, and what was seen.
        NotTriedError: The bench cannot do what it needs.
        TypeError: It lacks what every bench has.
    """
    complete(bench)
    case.play(Seat(bench, case.line))
