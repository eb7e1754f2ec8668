"""The backend of a cluster: takes a cluster's commands apart, hands each to the one whose work it is, and collects their news.

| command | goes to | answered by |
|---|---|---|
| `SaveRecord` | the store | `RecordSaved`, once the record survives a crash; nothing where it could not be stored |
| `CarryOut` | the executor of that deployment, which is made for the first of them | its news |
| `GiveTenure`, `MoveWeights`, `KillWorker`, `QueryWorker`, `PublishAvailability` | what has the workers | their news |
| `AskPolicy` | what runs users' scaling policies | `PolicyAnswered` |
| `WakeAt` | `Backend.wake_at` | `ClockAdvanced`, from the first `poll` after that time |
| what is about weights | nobody yet: no spec here has any | |

It decides nothing and repeats nothing: which commands wait for a record, and when a save is tried again, the machine says
(`rankcore.cluster.outbox`). So a store may answer within `save`, or minutes later, or never.

News is collected in rounds. In a round every executor has its turn, and the one that had something to tell goes to the end of
the line: of many that have much to tell each is polled as often, and one that never falls silent holds up nobody. An executor
with nothing to tell leaves the round, and nothing more is known to be told after a round in which all were silent: events cost
a call each, and a round a call for each deployment. Answers of the store and of policies come first; they are few.

Not thread-safe: answers are given on the thread, or in the event loop, that polls.

An executor that fails to carry out a command has a bug, which concerns its deployment only: the log has it, and all else goes
on. The machine repeats the command, as it does where the message was lost.
"""

import logging
import math
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeAlias, assert_never

from executors.base import Executor
from rankcore.cluster.commands import (
    AskPolicy,
    CarryOut,
    ClusterCommand,
    GiveTenure,
    KillWorker,
    MoveWeights,
    PublishAvailability,
    QueryWorker,
    SaveRecord,
)
from rankcore.cluster.events import ClusterEvent, PolicyAnswered, RecordSaved
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.records import Record
from rankcore.commands import WakeAt
from rankcore.events import ClockAdvanced, DeleteRequested, NodeChanged, RetryRequested, SpecChanged, TrialRequested

LOG = logging.getLogger(__name__)

ForWorkers: TypeAlias = GiveTenure | MoveWeights | KillWorker | QueryWorker | PublishAvailability
NOT_NEWS = (SpecChanged, RetryRequested, TrialRequested, DeleteRequested, NodeChanged)
"""Events of ranks that come from other parts of a cluster: it is told `NodeJoined` where its ranks are told `NodeChanged`."""


class Store(Protocol):
    """Keeps records for the controllers to come."""

    def save(self, record: Record, answer: Callable[[str], None]) -> None:
        """Store a record, now or soon, and never in place of one of its deployment with a greater number.

        It may be called again before it has answered, with the same record or a newer one.

        Args:
            answer: To be called with "" once the record survives a crash, or with why it could not be stored.

        Raises:
            RankcoreError: This process may not act any more, since another one has taken its place.
        """


class Policies(Protocol):
    """Runs scaling policies, which are users' code."""

    def ask(self, question: AskPolicy, answer: Callable[[PolicyAnswered], None]) -> None:
        """Ask a policy, now or soon; it may take its time. An answer that comes too late is dropped by the machine."""


class WeightsExecutor(Protocol):
    """Carries out what concerns weights that may be COLD, and who waits for them."""

    def execute(self, command: ForWorkers) -> None:
        """Begin to carry out a command."""


class ClusterBackend:
    """What the loop of a cluster gives its commands to.

    Args:
        store: Keeps the records.
        make_executor: Of a deployment that had none, or whose executor was dropped.
        now: Seconds on the executors' clock.
        policies: Runs users' policies; None: no spec here has one.
        on_news: Called when something was told, perhaps within `execute`: it is time to poll.
        workers: None: no deployment here has residency.

    Attributes:
        executors: Of the deployments that were given something to do. Who sees that one is gone takes its executor out.
        wake_at: When to poll again at the latest, on the executors' clock; `math.inf`: there is no need to.
        unsaved: Why the last save of a deployment has failed, by its id; those whose records are stored are not in it.
    """

    def __init__(
        self,
        store: Store,
        make_executor: Callable[[DeploymentId], Executor],
        now: Callable[[], float],
        policies: Policies | None = None,
        on_news: Callable[[], None] = lambda: None,
        workers: WeightsExecutor | None = None,
    ) -> None:
        self.executors: dict[DeploymentId, Executor] = {}
        self.wake_at = math.inf
        self.unsaved: dict[DeploymentId, str] = {}
        self._store = store
        self._make_executor = make_executor
        self._now = now
        self._policies = policies
        self._workers = workers
        self._on_news = on_news
        self._told: deque[ClusterEvent] = deque()
        self._round: deque[DeploymentId] = deque()
        self._is_round_due = True

    def execute(self, command: ClusterCommand) -> None:
        """Begin to carry out a command.

        Raises:
            RankcoreError: The store's: this process may not act any more.
        """
        match command:
            case SaveRecord(record=record):
                self._store.save(record, lambda problem: self._on_saved(record, problem))
            case CarryOut():
                self._carry_out(command)
            case AskPolicy():
                self._ask(command)
            case GiveTenure() | MoveWeights() | KillWorker() | QueryWorker() | PublishAvailability():
                self._to_workers(command)
            case WakeAt(at=at):
                self.wake_at = at
            case _:
                assert_never(command)

    def poll(self) -> ClusterEvent | None:
        """The next thing that happened; None: all executors have been asked since, and there is nothing. Never blocks."""
        if self._told:
            return self._told.popleft()
        while self._round or self._is_round_due:
            if not self._round:
                self._round.extend(self.executors)
                self._is_round_due = False
            while self._round:
                deployment = self._round.popleft()
                executor = self.executors.get(deployment)
                event = executor.poll() if executor is not None else None
                if event is not None:
                    self._round.append(deployment)
                    self._is_round_due = True
                    assert not isinstance(event, NOT_NEWS), f"{event} of {deployment}: the machine gives these to ranks"
                    return event
        self._is_round_due = True
        if self._now() < self.wake_at:
            return None
        at, self.wake_at = self.wake_at, math.inf
        return ClockAdvanced(at=max(at, self._now()))

    def tell(self, event: ClusterEvent) -> None:
        """Something has happened that is no executor's news: a node came, a process reports its load."""
        self._told.append(event)
        self._on_news()

    def _on_saved(self, record: Record, problem: str) -> None:
        if problem:
            self.unsaved[record.deployment] = problem
        else:
            self.unsaved.pop(record.deployment, None)
            self.tell(RecordSaved(deployment=record.deployment, number=record.number, at=self._now()))

    def _carry_out(self, carry_out: CarryOut) -> None:
        deployment, command = carry_out.deployment, carry_out.command
        try:
            if deployment not in self.executors:
                self.executors[deployment] = self._make_executor(deployment)
            self.executors[deployment].execute(command)
        except Exception:  # an executor's bug: other commands of the step are others' business, and this one is repeated
            LOG.exception("%s of %s was not carried out", type(command).__name__, deployment)

    def _to_workers(self, command: ForWorkers) -> None:
        if self._workers is None:
            raise NotImplementedError(f"{type(command).__name__}: nobody here moves weights of a cluster")
        try:
            self._workers.execute(command)
        except Exception:  # as for `_carry_out`
            LOG.exception("%s was not carried out", type(command).__name__)

    def _ask(self, question: AskPolicy) -> None:
        if self._policies is not None:
            self._policies.ask(question, self.tell)
            return
        problem = f"there is nobody to ask {question.policy}"
        deployment, ask, target_number = question.deployment, question.ask, question.target_number
        answer = PolicyAnswered(
            deployment=deployment, ask=ask, target_number=target_number, wanted=None, problem=problem, at=self._now()
        )
        self.tell(answer)
