"""The loop: owns a machine's state, feeds events to it one at a time, and hands its commands to an executor, in order.

Each step goes through five stages, and none is entered before the one before it is through:

    1. step       the machine decides: pure, and whatever it refuses has changed nothing
    2. journal    what was decided is written down; a journal that cannot be written stops the step here
    3. adopt      the state is this one from now on
    4. save       what has to outlive this process (a record) is stored, if the step has changed it
    5. give out   the commands of the step are carried out

**The save barrier** is between 4 and 5: what a step decides is stored before its commands are given out.

Why before. A record says what is wanted, what was last healthy and whether that was given up: nothing else in the world knows
it. A step may change it by itself: a roll-back, a build that is given up, the first health of a spec. Were its commands given
out first, a crash in between would leave a world that follows a decision which the successor does not know: replicas of the
version that was rolled back to, and a record that wants the other one. The successor would stop them, start the failing build
again, and roll back again; or go on for ever with a build that was given up. Ranks are not in the record: the replicas know
them.

What each crash loses, by the stage before which it comes:

    2   an event, which the world tells again (a report, a death that is found) or its user repeats
    4   the decision, and no command of it was given out: the successor decides again, from the old record and the same world
    5   the commands: the successor has the record, and works them out again from it and from what the replicas report
    in 5, between two commands: those not given out yet, likewise; those given out were commands of the stored record
    after 5   nothing

So no crash loses a decision of which anything has been seen. That is all the proof there is: every command that was ever
given out is one of a record that is stored, since a step's commands wait for its own record *or a newer one* (6), and records
are stored in the order in which they were decided.

What it costs. One save for each step that changes the record, a handful in the life of a build, and nothing for all other
steps while no save is under way. Storing takes a write to the disk (a few ms) or a round trip to a cluster's store (more, or
minutes while that fails over), for which events do not wait: the machine goes on deciding, and commands are held. They may
wait: the machine repeats what is not acknowledged, and each is refused by whom it is late for (epochs, revisions). Of records
that come up meanwhile only the newest is stored (7), so that a slow store is asked once per round trip, however many steps
there were.

A save that fails is tried again for ever and shown (`SaveBarrier.problem`), and nobody is ended for it: the store that does
not answer may be the one that would have to restart this process. There is a barrier for each deployment, so a record that
cannot be stored holds back its own deployment's commands and no other's. A machine of several deployments has their barriers
in itself (`rankcore.cluster.outbox`, the same theory), and its loop needs none.

Which race each line is for: (6) A change of a user may be stored by whoever took it before it becomes an event (`stored`); a
roll-back that is on its way to the store is superseded by it, and must not be written over it: the store asks for `newest` at
the moment at which it writes. (7) A step may change the record while the one before is being stored: its commands wait for
the second save, those of the steps before it only for the first. (8) A command may fail to be carried out, by an exception:
those of the steps behind it are given out all the same, since nobody would come back for them.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar, cast

import attrs

from executors.base import Executor
from executors.engine.deployments import DEPLOYMENTS, Beginning, Deployed, Recovered
from executors.engine.journal import Journal
from executors.engine.kinds import AnyStep, MachineKind
from rankcore import DeploymentSpec, DeploymentState, Step
from rankcore.events import Event
from rankcore.values import ReplicaId

R = TypeVar("R")
S = TypeVar("S")
E = TypeVar("E")
T = TypeVar("T", bound=AnyStep)


class Backend(Protocol):
    """What a loop needs of an executor: `executors.base.Executor` says the rest."""

    def execute(self, command: Any) -> None:
        """Begin to carry out a command."""

    def poll(self) -> Any:
        """The next thing that happened; None: nothing has."""


class Save(NamedTuple, Generic[R]):
    """A record, and its number among those that were decided: 1, 2, ..."""

    number: int
    record: R


class SaveBarrier(Generic[R]):
    """Holds the commands of one deployment until what they follow from is stored.

    Args:
        save: Stores `newest` of this barrier, now or soon, and answers with `answer`. Not called again before an answer. It
            raises where this process may not act any more, since another one has taken its place.
        give_out: Carries out the commands of a step.
        stored: What is stored already; None: nothing.

    Attributes:
        newest: What was decided last.
        problem: Why it is not stored, after the last attempt; "": it is, or an answer is still to come.
    """

    def __init__(
        self,
        save: Callable[["SaveBarrier[R]"], None],
        give_out: Callable[[tuple[Any, ...]], None],
        stored: R | None = None,
    ) -> None:
        self.newest: Save[Any] = Save(0, stored)
        self.problem = ""
        self._save = save
        self._give_out = give_out
        self._stored = 0
        self._is_saving = False
        self._held: deque[tuple[int, tuple[Any, ...]]] = deque()

    @property
    def is_stored(self) -> bool:
        """Whether all that was decided is stored."""
        return self._stored == self.newest.number

    @property
    def is_open(self) -> bool:
        """Whether all that was decided is stored, and all commands have been given out."""
        return self.is_stored and not self._held

    def put(self, commands: tuple[Any, ...], record: R) -> None:
        """A step has decided on these commands, and on this record."""
        if record is not self.newest.record and record != self.newest.record:
            self.newest = Save(self.newest.number + 1, record)
        self._held.append((self.newest.number, commands))
        self.go_on()

    def stored(self, record: R) -> None:
        """This record was stored already, in place of all that was decided before it (6)."""
        self.newest = Save(self.newest.number + 1, record)
        self._stored = self.newest.number
        self.problem = ""

    def go_on(self) -> None:
        """Give out what waits for nothing, and begin a save that is due, again if the last one has failed.

        Raises:
            Exception: What the first command raised that could not be given out; all others were (8).
        """
        failure = None
        while self._held and self._held[0][0] <= self._stored:
            _, commands = self._held.popleft()
            try:
                self._give_out(commands)
            except Exception as error:
                failure = failure or error  # (8)
        if not self.is_stored and not self._is_saving:
            self._is_saving = True
            self._save(self)
        if failure is not None:
            raise failure

    def answer(self, number: int, problem: str = "") -> None:
        """What became of a save.

        Args:
            number: Of what was stored.
            problem: Why it was not; "": it was. The owner of the barrier calls `go_on` when it is time to try again.
        """
        self._is_saving = False
        if not problem:
            self._stored = max(self._stored, number)
        self.problem = "" if self.is_stored else problem
        if not problem:
            self.go_on()  # (7)


@attrs.frozen
class Keeping(Generic[R]):
    """What of a machine outlives its process.

    Attributes:
        save: Stores what a barrier has as `newest`; see there.
        record_of: What of a step has to; called once for each step, when it has been adopted.
        stored: What is stored already; None: nothing.
    """

    save: Callable[[SaveBarrier[R]], None]
    record_of: Callable[[Any], R]
    stored: R | None = None


class Loop(Generic[S, E, T]):
    """Runs one machine, whose states, events and steps are S, E and T.

    Not thread-safe; in asyncio, call it from one task. The constructor goes on from a state that exists, such as the fork of
    another run; `start` begins in a way that is given as a value.

    Attributes:
        state: After the last step. Only the loop sets it.
        journal: Where steps are written; None: nowhere. May be exchanged between two steps.
        barrier: Holds commands until what they follow from is stored; None: nothing but the journal outlives this process.
    """

    def __init__(
        self,
        kind: MachineKind,
        executor: Backend,
        state: S,
        *,
        journal: Journal | None = None,
        keeping: Keeping[Any] | None = None,
    ) -> None:
        self.state = state
        self.journal = journal
        self.barrier = SaveBarrier(keeping.save, self._give_out, keeping.stored) if keeping is not None else None
        self._kind = kind
        self._executor = executor
        self._executing = False
        self._keeping = keeping
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
        if journal is not None:
            journal.begin(how, first)
        self.journal = journal
        self._follow(first)

    def deliver(self, event: E) -> T:
        """Take a step for what happened, and give its commands out.

        Raises:
            RankcoreError: The event is malformed, or has no text that the journal could keep. Nothing has changed.
            OSError: The journal cannot be written. Nothing has changed.
            RuntimeError: An executor called this from its `execute`, which would put commands out of order.
        """
        if self._executing:
            raise RuntimeError(f"deliver({type(event).__name__}) was called while commands are handed over: use poll()")
        result: T = self._kind.step(self.state, event)
        if self.journal is not None:
            self.journal.append(event, result)
        self._follow(result)
        return result

    def post(self, event: E) -> None:
        """Have an event delivered by the next `deliver_all`, before what the executor has to tell."""
        self._undelivered.append(event)

    def deliver_all(self) -> int:
        """Deliver what was posted and what the executor has to tell, until there is nothing more; returns how many events.

        What could not be stored before is tried again. An error leaves the events behind it with the executor, and the one
        that a journal did not take with this loop: it is the first of the next call.
        """
        if self.barrier is not None:
            self.barrier.go_on()
        delivered = 0
        while True:
            event = self._undelivered.popleft() if self._undelivered else self._executor.poll()
            if event is None:
                return delivered
            before = self.state
            try:
                self.deliver(event)
            except OSError:
                if self.state is before:
                    self._undelivered.appendleft(event)
                raise
            delivered += 1

    @property
    def unsaved(self) -> str:
        """Why commands are held, if what they follow from could not be stored; ""."""
        return self.barrier.problem if self.barrier is not None else ""

    @property
    def is_saved(self) -> bool:
        """Whether all that was decided is stored, and all commands have been given out."""
        return self.barrier is None or self.barrier.is_open

    def _follow(self, result: AnyStep) -> None:
        self.state = result.state
        if self.barrier is None or self._keeping is None:
            self._give_out(result.commands)
        else:
            self.barrier.put(result.commands, self._keeping.record_of(result))

    def _give_out(self, commands: tuple[Any, ...]) -> None:
        self._executing = True
        try:
            for command in commands:
                self._executor.execute(command)
        finally:
            self._executing = False


class Driver(Loop[DeploymentState, Event, Step]):
    """Runs the core for one deployment. Use `deploy` or `recover` to begin."""

    def __init__(
        self,
        executor: Executor,
        state: DeploymentState,
        *,
        journal: Journal | None = None,
        keeping: Keeping[Any] | None = None,
    ) -> None:
        super().__init__(DEPLOYMENTS, executor, state, journal=journal, keeping=keeping)

    @classmethod
    def deploy(
        cls,
        executor: Executor,
        spec: DeploymentSpec,
        *,
        at: float = 0.0,
        epoch: int = 1,
        journal: Journal | None = None,
        keeping: Keeping[Any] | None = None,
    ) -> Self:
        """Begin a new deployment: `rankcore.deploy`, with its first commands journalled and handed over."""
        return cls.begin(executor, Deployed(spec=spec, at=at, epoch=epoch), journal=journal, keeping=keeping)

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
        keeping: Keeping[Any] | None = None,
    ) -> Self:
        """Come back after a restart: `rankcore.recover`, with its queries journalled and handed over."""
        ids = tuple(replica_ids)
        how = Recovered(spec=spec, replica_ids=ids, at=at, epoch=epoch, previous=previous, deleting=deleting, failed=failed)
        return cls.begin(executor, how, journal=journal, keeping=keeping)

    @classmethod
    def begin(
        cls,
        executor: Executor,
        how: Beginning,
        *,
        journal: Journal | None = None,
        keeping: Keeping[Any] | None = None,
    ) -> Self:
        """Begin in a way that is given as a value."""
        first = how.step()
        driver = cls(executor, first.state, keeping=keeping)
        driver.start(how, first, journal)
        return driver
