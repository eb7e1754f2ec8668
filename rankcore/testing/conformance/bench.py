"""What the kit needs of an executor under test: to begin it, to break what it looks after, and to ask replicas directly."""

from collections.abc import Sequence
from typing import Any, Protocol

from rankcore.commands import Command
from rankcore.events import Event
from rankcore.testing.conformance.system import SelfReport
from rankcore.values import NodeId, ReplicaId


class Executor(Protocol):
    """The two methods of `executors.base.Executor`, which says what they promise."""

    def execute(self, command: Command) -> None:
        """Begin to carry out a command."""

    def poll(self) -> Event | None:
        """Hand over the next thing that happened; None: there is nothing to tell now."""


class Bench(Protocol):
    """A world that an executor under test acts on, fresh for each test. The kit takes the controller's place.

    Its replicas start within a second or so, unless told otherwise. It has two nodes at least, each with room for six
    replicas: an executor that knows one machine only divides that. Nothing here waits but `advance`.

    Attributes:
        patience_s: How long the kit waits for anything, on the bench's clock. Generous: only a failing test waits so long.
    """

    patience_s: float

    # What not every user may do, such as `lose_node`, raises `running.NotTriedError` with the reason: the case is skipped.
    # What not every executor has, a bench may leave out; the cases that need it are skipped too, and say so:
    # - `take_requests(yes: bool) -> None`: let user code take no requests from now on, wherever it is, or take them again.
    # - `room(node_id: NodeId) -> int`: how many replicas a node can hold in all. For executors that tell `NodeChanged`.
    # - `hang(replica_id: ReplicaId) -> None`: stop a replica's process where it is, as SIGSTOP does: it lives, and is silent.
    # - `partition(node_id: NodeId) -> None`: cut a node off from all controllers, for good. Its replicas live on for as long as
    #   the executor lets them, and the bench sees them meanwhile.
    # - `group() -> tuple[str, Sequence[NodeId]]`: a placement group for static placements: its id, and of each bundle its node;
    #   `lose_bundle(index: int) -> None` and `restore_bundle(index: int) -> None`: take one away, and give it back, empty.
    #
    # `repeats = True` is for an executor that may lose a command or its answer though nothing is broken: then the kit says
    # again what is not answered, as it does under faults.

    def open(self, epoch: int) -> Any:
        """A controller of this epoch begins: raise the fence, and return its `Executor`, which has taken over all survivors.

        The executors of earlier epochs are left alone: a controller need not know that it has been replaced.
        """

    def survivors(self) -> Sequence[ReplicaId]:
        """The replicas that a controller finds which has just begun; asked after `open` alone."""

    def crash(self, executor: Any) -> None:
        """End the controller that uses this executor without a word. Replicas live on."""

    def now(self) -> float:
        """In seconds on the executor's clock, which all its controllers share."""

    def advance(self) -> None:
        """Let the world go on: for some milliseconds, or to the next thing that happens. Always lets time pass in the end."""

    def nodes(self) -> Sequence[NodeId]:
        """The nodes there are, by the names that `StartReplica` has for them."""

    def replicas(self) -> Sequence[SelfReport]:
        """Ask every live replica that can answer, draining ones included, without the executor."""

    def kill(self, replica_id: ReplicaId) -> None:
        """End a replica's process without a word, as SIGKILL does."""

    def lose_node(self, node_id: NodeId) -> None:
        """Take a node away for good, with all that runs on it."""

    def fail_starts(self, count: int) -> None:
        """Let so many starts of user code fail from now on, wherever they are; then they work again."""

    def slow(self, by_s: float) -> None:
        """Let user code take so much longer from now on: to start, to reconfigure, and to end; 0: no longer."""


REQUIRED = tuple(name for name in vars(Bench) if not name.startswith("_"))


def complete(bench: object) -> None:
    """Look whether a bench has all that none may leave out.

    Raises:
        TypeError: It lacks some; the text names them all.
    """
    lacks = [name for name in ("patience_s", *REQUIRED) if not hasattr(bench, name)]
    if lacks:
        of = f"{Bench.__module__}.Bench says what each promises"
        raise TypeError(f"the bench {type(bench).__name__} has no {', '.join(lacks)}: {of}")
