"""One call as its caller's process sees it: what is asked, where it may go, and the answer that will come."""

from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import attrs
import ray

from executors.ray_gpu.messages import CallStatus, Version
from executors.ray_gpu.requests.frames import ERROR, VALUE
from executors.ray_gpu.requests.packing import NOTHING_SAID, About, Arguments, Reference, pack_call
from executors.ray_gpu.requests.pieces import Body
from executors.ray_gpu.requests.received import ReceivedStream
from executors.ray_gpu.requests.request_ids import ours, written


class Sink(Protocol):
    """What takes the items of a stream. Called on the routers' thread."""

    def begin(self, pull: Callable[[int], object]) -> None:
        """A replica has begun to answer; it is told with `pull`, from any thread, how many bytes were consumed."""

    def put(self, item: Body) -> None:
        """The next item has come."""

    def put_piece(self, piece: Body) -> None:
        """The next bytes of an HTTP response's body have come."""

    def end(self, error: Body | None = None) -> None:
        """There are no more items; the user's code raised if there is an error."""

    def fail(self, error: Exception) -> None:
        """There will be no more items, and no end."""


class Source(Protocol):
    """What has more input for a call. Called on the routers' thread."""

    def wanted(self, give: Callable[[Body], None]) -> None:
        """Give the next piece, on this thread, as soon as it is there."""


class StatusSink(Protocol):
    """Takes how the deployment of a call stands. Called on the routers' thread."""

    def put(self, version: Version, status: CallStatus) -> None:
        """It stands so."""

    def end(self) -> None:
        """There is no more to be said: the answer is there, or has begun."""


class Answer(NamedTuple):
    """How a call has ended.

    Attributes:
        kind: VALUE, ERROR, END (of a stream); LARGE: it came through Ray's object store; PARTS: it is a list of answers.
        payload: What was packed, what was `Fetched`, or the list.
    """

    kind: int
    payload: Any


class Fetched(NamedTuple):
    """A large result that is here.

    Attributes:
        reference: Where it lies in Ray's object store, for whoever passes it on.
        value: Itself; arrays are read in place.
    """

    reference: Any
    value: Any


@attrs.frozen
class Wishes:
    """Where a call may go, and by when.

    Attributes:
        rank: To the replica that has this rank; None: to any.
        broadcast: To all ranks.
        key: Calls with one key go to one replica, as long as it is not overloaded; None: no key.
        model_id: To the replica that has the calls of this model, with `routing_policy="affinity"`; "": no model.
        timeout_s: From now until it has to be answered; None: it may take for ever.
        keep_failures: Of a broadcast: a rank that fails has that for its answer, and the others are waited for; one that nobody
            has is left out.
        reserves: Whether it is to have a place at a replica, and to be sent later: see `reserving`.
        encoding: As what its arguments travel, of `encodings.ENCODINGS`; "": pickled.
    """

    rank: int | None = None
    broadcast: bool = False
    key: str | None = None
    model_id: str = ""
    timeout_s: float | None = None
    keep_failures: bool = False
    reserves: bool = False
    encoding: str = ""


ANYWHERE = Wishes()


class Submits(Protocol):
    """A router."""

    @property
    def has_replicas(self) -> bool:
        """Whether it knows one that takes calls."""

    def submit(self, call: "Call") -> None:
        """Begin a call."""


class Call:
    """A call under way.

    Attributes:
        method, about: What is asked.
        wishes: Where it may go.
        packed: As it travels; None: it goes through the object store.
        arguments: Where they lie there, until it is answered; None: they are packed.
        answer: Will have it. Cancelling it says that nobody waits any more.
        answers: Of the attempts that were answered last, by the part of a broadcast; None: of the whole.
        stream: Takes the items of a stream; None: a single answer is wanted.
        source: Has more input for the call, where it asks for it; None: there is none.
        statuses: Takes how the deployment stands meanwhile; None: nobody wants to know.
        number: By which this process names it, for logs; 0: `about` says its name, or it has none.
        request_id: Of the router that has it, and of no other.
        arrived_at: At that router, on the clock of its loop.
    """

    __slots__ = (
        "_on_given_up",
        "_on_shown",
        "about",
        "answer",
        "answers",
        "arguments",
        "arrived_at",
        "method",
        "number",
        "packed",
        "request_id",
        "source",
        "statuses",
        "stream",
        "wishes",
    )

    def __init__(self, method: str, about: About = NOTHING_SAID, wishes: Wishes = ANYWHERE) -> None:
        self.method = method
        self.about = about
        self.wishes = wishes
        self.packed: Body | None = None
        self.arguments: Any = None
        self.answer = _AnswerFuture(self)
        self.answers: dict[int | None, Answer] = {}
        self.number = 0
        self.request_id = -1
        self.arrived_at = 0.0
        self.stream: Sink | None = ReceivedStream() if about.stream else None
        self.source: Source | None = None
        self.statuses: StatusSink | None = None
        self._on_given_up: Callable[[Call], None] | None = None
        self._on_shown: Callable[[Call], None] | None = None

    def pack(self, arguments: Arguments) -> None:
        """Take the arguments, as they are now.

        Raises:
            Exception: They cannot be pickled.
        """
        if self.wishes.encoding:
            arguments = _encoded(arguments, self.wishes.encoding)
        self.packed = pack_call(self.method, arguments, self.about)
        if self.packed is None:  # without Ray, whom they go to is in this process
            self.arguments = ray.put(arguments) if ray.is_initialized() else Fetched(None, arguments)

    @property
    def name(self) -> str:
        """What logs call it; "": nothing."""
        return self.about.request_id or (written(ours(), self.number) if self.number else "")

    @property
    def given_up(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self.answer.cancelled()

    def when_given_up(self, tell: "Callable[[Call], None]") -> None:
        """Call this, from whatever thread, when nobody waits for the answer any more."""
        self._on_given_up = tell
        if self.given_up:
            tell(self)

    def when_shown(self, tell: "Callable[[Call], None]") -> None:
        """Call this, likewise, when somebody wants to know how its deployment stands."""
        self._on_shown = tell

    def show(self, statuses: StatusSink) -> None:
        """Say there how the deployment stands, until the answer is there."""
        self.statuses = statuses
        self.answer.add_done_callback(lambda _: statuses.end())
        if self._on_shown is not None:  # else its router looks when it takes it
            self._on_shown(self)

    def cancel(self) -> bool:
        """Give it up; False: it is answered already."""
        return self.answer.cancel()

    def finish(self, answer: Answer) -> None:
        """The answer has come; whoever waited may have given up at this very moment."""
        if self.stream is not None:
            if answer.kind == VALUE:
                self.stream.put(answer.payload)
            self.stream.end(answer.payload if answer.kind == ERROR else None)
        self._let_go()
        with suppress(InvalidStateError):
            self.answer.set_result(answer)

    def fail(self, error: Exception) -> None:
        """There will be no answer."""
        if self.stream is not None:
            self.stream.fail(error)
        self._let_go()
        with suppress(InvalidStateError):
            self.answer.set_exception(error)

    def _let_go(self) -> None:
        """Call and answer hold each other no more: the garbage collector, which stops the process, is to find nothing."""
        self.arguments = self.answer.call = None

    def tell_given_up(self) -> None:
        """The answer was cancelled."""
        if self._on_given_up is not None:
            self._on_given_up(self)


def _encoded(arguments: Arguments, encoding: str) -> Arguments:
    from executors.ray_gpu.requests.encodings import encoded  # only who asks for it needs it

    def each(value: Any) -> Any:
        return value if type(value) is Reference else encoded(value, encoding)

    args, kwargs = arguments
    return tuple(each(value) for value in args), {name: each(value) for name, value in kwargs.items()}


class _AnswerFuture(Future[Answer]):
    """It tells its call when it is cancelled, which a callback would do too; but that held the call for as long as it is held.

    Attributes:
        call: Whose it is; None: that has ended.
    """

    def __init__(self, call: Call) -> None:
        super().__init__()
        self.call: Call | None = call

    def cancel(self) -> bool:
        """Whether it is cancelled now."""
        if not super().cancel():
            return False
        call, self.call = self.call, None
        if call is not None:
            call.tell_given_up()
        return True
