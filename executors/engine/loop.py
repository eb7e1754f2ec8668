"""The loop: owns a machine's state, feeds events to it one at a time, and hands its commands to an executor, in order.

Each step goes through four stages, and none is entered before the one before it is through:

    1. step       the machine decides: pure, and whatever it refuses has changed nothing
    2. journal    what was decided is written down; a journal that cannot be written stops the step here
    3. adopt      the state is this one from now on
    4. give out   the commands of the step are carried out

What each crash loses, by the stage before which it comes:

    2        an event, which the world tells again (a report, a death that is found) or its user repeats
    3, 4     the commands: the successor works them out again, from what is stored and from what the replicas report
    in 4     those not given out yet, likewise

What is stored, and that it is stored before anything is done that follows from it, is the machine's own affair: that of a
cluster gives out `SaveRecord`, and holds back what waits for it (`rankcore.cluster.outbox`). The ranks of one deployment alone
know of no store: who embeds them keeps their record, as docs/embedding.md says.
"""

from collections import deque
from collections.abc import Callable, Iterable
from inspect import iscoroutinefunction
from threading import get_ident
from time import perf_counter
from typing import Any, Generic, Protocol, Self, TypeAlias, TypeVar, cast

from executors.base import Executor
from executors.engine.deployments import DEPLOYMENTS, Beginning, Deployed, Recovered
from executors.engine.journal import Journal
from executors.engine.kinds import AnyStep, MachineKind
from rankcore import DeploymentSpec, DeploymentState, Step
from rankcore.cluster import ClusterState, ClusterStep
from rankcore.cluster.events import ClusterEvent
from rankcore.events import Event
from rankcore.values import ReplicaId

S = TypeVar("S")
E = TypeVar("E")
T = TypeVar("T", bound=AnyStep)


class Backend(Protocol):
    """What a loop needs of an executor: `executors.base.Executor` says the rest."""

    def execute(self, command: Any) -> None:
        """Begin to carry out a command."""

    def poll(self) -> Any:
        """The next thing that happened; None: nothing has."""


class Loop(Generic[S, E, T]):
    """Runs one machine, whose states, events and steps are S, E and T.

    One thread owns it, and in asyncio one task; all others `post`. Two steps at once, of which one would be lost, are refused.
    The constructor goes on from a state that exists, such as the fork of another run; `start` begins in a way that is given
    as a value.

    Attributes:
        state: After the last step. Only the loop sets it.
        journal: Where steps are written; None: nowhere. May be exchanged between two steps.
        observer: Called after each step that was adopted, with its event, what it came to, and how many seconds the first two
            stages took; it raises nothing. None: nobody watches.
    """

    def __init__(self, kind: MachineKind, executor: Backend, state: S, *, journal: Journal | None = None) -> None:
        _check(executor, journal)
        self.state = state
        self.journal = journal
        self.observer: Callable[[E, T, float], None] | None = None
        self._kind = kind
        self._executor = executor
        self._free: deque[None] = deque([None])  # taken by who takes a step; `pop` is atomic, and a deque can be copied
        self._taken_by = 0
        self._undelivered: deque[E] = deque()
        if journal is not None:
            how = kind.resume(state)
            journal.begin(how, kind.begin(how))

    @classmethod
    def begun(cls, kind: MachineKind, executor: Backend, how: Any, *, journal: Journal | None = None) -> Self:
        """Begin in a way that is given as a value, with its first commands journalled and handed over."""
        first = kind.begin(how)
        loop = cls(kind, executor, first.state)
        loop.start(how, cast(T, first), journal)
        return loop

    def start(self, how: Any, first: T, journal: Journal | None) -> None:
        """Write down how it began, and follow its first step."""
        _check(self._executor, journal)
        if journal is not None:
            journal.begin(how, first)
        self.journal = journal
        self._follow(first)

    def deliver(self, event: E) -> T:
        """Take a step for what happened, and give its commands out.

        Raises:
            RankcoreError: The event is malformed, or has no text that the journal could keep. Nothing has changed.
            OSError: The journal cannot be written. Nothing has changed.
            RuntimeError: An executor called this from its `execute`, which would put commands out of order, or another thread
                is taking a step. Nothing has changed.
        """
        self._take_turn(f"deliver({type(event).__name__})")
        try:
            return self._deliver(event)
        finally:
            self._free.append(None)

    def _deliver(self, event: E) -> T:
        began = perf_counter()
        result: T = self._kind.step(self.state, event)
        if self.journal is not None:
            self.journal.append(event, result)
        took_s = perf_counter() - began
        self._follow(result)
        if self.observer is not None:
            self.observer(event, result, took_s)
        return result

    def check(self, event: E) -> None:
        """Whether the machine would take an event; nothing changes.

        Raises:
            RankcoreError: It would not.
        """
        self._kind.step(self.state, event)

    def post(self, event: E) -> None:
        """Have an event delivered by the next `deliver_all`, before what the executor has to tell."""
        self._undelivered.append(event)

    def deliver_all(self) -> int:
        """Deliver what was posted and what the executor has to tell, until there is nothing more; returns how many events.

        An error leaves the events behind it with the executor, and the one that a journal did not take with this loop: it is
        the first of the next call.
        """
        delivered = 0
        while True:
            self._take_turn("deliver_all()")
            try:
                event = self._undelivered.popleft() if self._undelivered else self._executor.poll()
                if event is None:
                    return delivered
                before = self.state
                try:
                    self._deliver(event)
                except OSError:
                    if self.state is before:
                        self._undelivered.appendleft(event)
                    raise
            finally:
                self._free.append(None)
            delivered += 1

    def _take_turn(self, what: str) -> None:
        """One step at a time: the second would begin with the state before the first, and undo it."""
        try:
            self._free.pop()
        except IndexError:
            if self._taken_by == get_ident():
                raise RuntimeError(f"{what} was called while commands are handed over: use poll()") from None
            raise RuntimeError(f"{what} was called while another thread takes a step: others than its own post()") from None
        self._taken_by = get_ident()

    def _follow(self, result: AnyStep) -> None:
        self.state = result.state
        commands = iter(result.commands)
        try:
            for command in commands:
                self._executor.execute(command)
        except Exception as error:
            left = len(tuple(commands))
            error.add_note(
                f"{command} was not carried out, nor {left} commands after it: tell what fails as an event, by poll()"
            )
            raise


def _check(executor: object, journal: object) -> None:
    """Refuse what only looks like an executor or a journal, before anything is decided or given out.

    Raises:
        TypeError: It is none.
    """
    methods = [getattr(executor, name, None) for name in ("execute", "poll")]
    if isinstance(executor, type) or not all(map(callable, methods)) or any(map(iscoroutinefunction, methods)):
        raise TypeError(
            f"executor must be an object with execute(command) and poll(), and neither is async, got {executor!r:.100}"
        )
    if journal is not None and not callable(getattr(journal, "append", None)):
        raise TypeError(f"journal must be what JournalWriter.create(path) or .resume(path) returns, got {journal!r:.100}")


ClusterLoop: TypeAlias = Loop[ClusterState, ClusterEvent, ClusterStep]


class Driver(Loop[DeploymentState, Event, Step]):
    """Runs the core for one deployment. Use `deploy` or `recover` to begin."""

    def __init__(self, executor: Executor, state: DeploymentState, *, journal: Journal | None = None) -> None:
        super().__init__(DEPLOYMENTS, executor, state, journal=journal)

    @classmethod
    def deploy(
        cls,
        executor: Executor,
        spec: DeploymentSpec,
        *,
        at: float = 0.0,
        epoch: int = 1,
        journal: Journal | None = None,
    ) -> Self:
        """Begin a new deployment: `rankcore.deploy`, with its first commands journalled and handed over."""
        return cls.begin(executor, Deployed(spec=spec, at=at, epoch=epoch), journal=journal)

    @classmethod
    def recover(
        cls,
        executor: Executor,
        spec: DeploymentSpec,
        replica_ids: Iterable[ReplicaId],
        *,
        at: float,
        epoch: int,
        previous: DeploymentSpec | None = None,
        deleting: bool = False,
        failed: bool = False,
        journal: Journal | None = None,
    ) -> Self:
        """Come back after a restart: `rankcore.recover`, with its queries journalled and handed over."""
        ids = tuple(replica_ids)
        how = Recovered(spec=spec, replica_ids=ids, at=at, epoch=epoch, previous=previous, deleting=deleting, failed=failed)
        return cls.begin(executor, how, journal=journal)

    @classmethod
    def begin(cls, executor: Executor, how: Beginning, *, journal: Journal | None = None) -> Self:
        """Begin in a way that is given as a value."""
        first = how.step()
        driver = cls(executor, first.state)
        driver.start(how, first, journal)
        return driver
