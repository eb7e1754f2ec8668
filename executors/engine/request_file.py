"""The request file: what became of the calls of one process, as chained JSON lines beside a journal, which has none of them.

    {"requests":1,"release":"0.1.0","columns":["id","to","arrived",...],"about":{}}   what this file is, once;
                                                                    `about` has the id of the run (`executors.engine.run_id`)
    {"clock":{"ns":81000,"at_s":3.25,"error_s":0.0004,"wall_s":1790000000.5}}         what its clock showed when on that of the
                                                                    journal, how far off that may be, and the wall clock
    {"to":0,"deployment":"llm","replica_id":"llm#1.0","rank":0}     a replica with a rank, named once; -1, "" and null: none
    {"r":[17,0,81000,500,null,90500,"done"]}                        a call: `arrived` on its monotonic clock, in ns, and all
                                                                    later times since then
    {"t":[17,1500,28]}                                              tokens of a call's prompt and output, where its answer
                                                                    said them
    {"dropped":12}                                                  so many calls that had ended are not here
    {"end":"closed"}

**What is a time of what.** `arrived`: the router took it. `dispatched`: it was sent to the replica that answered it, or the
last that was to; between the two it waited. `first`: the first item of a stream came. `ended`: its caller had the answer, or
was told that there is none, of which `outcome` says why.

**Never in the way.** Calls are handed over from the thread that routes them, which has thousands a second to do. They go into a
queue of limited length, from which a thread of its own writes: nothing that routes waits for a disk. A call for which the queue
has no room is dropped and counted, and the count stands in the file: a file with a count of 0 has all of them.

**What it costs.** A tuple and an append where the call ends, and some 90 bytes. Lines are chained as those of a journal are
(`executors.engine.chain`), so what is missing, moved, repeated or changed is found.
"""

import os
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO, NamedTuple, Self

import rankcore
from executors.engine.chain import Chain
from executors.engine.journal import open_alone, write_whole_line

REQUEST_LAYOUT = 1
"""Version of the layout of lines."""
COLUMNS = ("id", "to", "arrived", "dispatched", "first", "ended", "outcome")
OUTCOMES = ("done", "raised", "lost", "rejected", "declined", "expired", "cancelled", "closed")
QUEUE_MAX = 100_000
"""So many calls may have ended and not be written yet."""
WRITE_EVERY_S = 0.05


class RecordedRequest(NamedTuple):
    """A call that has ended. Times are those of the process's monotonic clock, in ns; None: it did not come so far.

    Attributes:
        id: Of this process's.
        replica_id: Who had it last; "": nobody.
        rank: Of that replica then.
    """

    id: int
    deployment: str
    replica_id: str
    rank: int | None
    arrived: int
    dispatched: int | None
    first: int | None
    ended: int
    outcome: str


class CallTokens(NamedTuple):
    """What the answer to a call said of its size.

    Attributes:
        id: Of the call.
        prompt, output: In tokens.
    """

    id: int
    prompt: int
    output: int


class ClockReading(NamedTuple):
    """What the process's clock showed at a time of the journal's.

    Attributes:
        ns: The process's clock.
        at_s: The journal's.
        error_s: How far off `at_s` may be: half of what the question took.
        wall_s: Since 1970.
    """

    ns: int
    at_s: float
    error_s: float
    wall_s: float


class RequestWriter:
    """Writes a request file, each line whole and at once.

    Args:
        file: Unbuffered, opened for writing and empty.
        about: What else to say in the first line; JSON-like.
    """

    def __init__(self, file: BinaryIO, about: Mapping[str, Any] | None = None) -> None:
        self._file = file
        self._chain = Chain()
        self._named: dict[tuple[str, str, int | None], int] = {}
        self._write(
            {
                "requests": REQUEST_LAYOUT,
                "release": rankcore.__version__,
                "columns": list(COLUMNS),
                "about": dict(about or {}),
            }
        )

    @classmethod
    def create(cls, path: str | os.PathLike[str], about: Mapping[str, Any] | None = None) -> Self:
        """Start one in a new file, or in place of an old one.

        Raises:
            JournalError: Another process writes it. It is left alone.
            PlaceError: Another user may have put it there. It is left alone.
        """
        return cls(open_alone(path, empty=True), about)

    def append(self, call: RecordedRequest) -> None:
        """Write a call down.

        Raises:
            OSError: It could not be written whole, and nothing of it is left in the file.
        """
        whom = (call.deployment, call.replica_id, call.rank)
        to = self._named.get(whom)
        if to is None:
            to = self._named[whom] = len(self._named)
            self._write({"to": to, "deployment": call.deployment, "replica_id": call.replica_id, "rank": call.rank})
        since = call.arrived
        later = [None if each is None else each - since for each in (call.dispatched, call.first, call.ended)]
        self._write({"r": [call.id, to, since, *later, call.outcome]})

    def count_tokens(self, tokens: CallTokens) -> None:
        """Write down how many tokens a call had."""
        self._write({"t": list(tokens)})

    def read_clock(self, reading: ClockReading) -> None:
        """Write down what the clocks show."""
        self._write({"clock": reading._asdict()})

    def drop(self, count: int) -> None:
        """Write down that calls are missing here."""
        self._write({"dropped": count})

    def close(self, how: str = "closed") -> None:
        """End the file, and close it. Closing twice is fine."""
        if not self._file.closed:
            try:
                self._write({"end": how})
            finally:
                self._file.close()

    def _write(self, line: dict[str, Any]) -> None:
        text, chain = self._chain.seal(line)
        write_whole_line(self._file, text)
        self._chain = chain


class RequestLog:
    """Has calls written by a thread of its own: whoever hands one over never waits.

    Args:
        writer: Where they are written. It belongs to the thread until `close` has returned.
        queue_max: So many may wait to be written; more are dropped, and counted.
    """

    def __init__(self, writer: RequestWriter, queue_max: int = QUEUE_MAX) -> None:
        self._writer = writer
        self._queue: deque[RecordedRequest | ClockReading] = deque()
        self._queue_max = queue_max
        self._dropped = 0
        self._counting = threading.Lock()
        self._told = 0
        self._tokens: Iterable[CallTokens] = ()
        self._is_over = threading.Event()
        self.problem: str | None = None
        self._thread = threading.Thread(target=self._run, name="request-log", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """How many calls are not in the file."""
        return self._dropped

    def put(self, call: RecordedRequest | ClockReading) -> None:
        """Have it written; from any thread."""
        if len(self._queue) >= self._queue_max:
            self._drop()
        else:
            self._queue.append(call)

    def close(self, tokens: Iterable[CallTokens] = ()) -> None:
        """Write what is left, and what answers said, and end the file."""
        self._tokens = tokens
        self._is_over.set()
        self._thread.join()

    def _drop(self) -> None:
        with self._counting:  # routers have threads of their own, and so has the writer
            self._dropped += 1

    def _run(self) -> None:
        while not self._is_over.wait(WRITE_EVERY_S):
            self._drain()
        self._drain()
        try:
            for each in self._tokens:
                self._writer.count_tokens(each)
        except OSError as error:
            self.problem = self.problem or str(error)
        try:
            self._writer.close()
        except OSError as error:
            self.problem = self.problem or str(error)

    def _drain(self) -> None:
        while self._queue:
            each = self._queue.popleft()
            try:
                if isinstance(each, ClockReading):
                    self._writer.read_clock(each)
                else:
                    self._writer.append(each)
            except OSError as error:  # such as a full disk: calls go on, and their count says so
                self.problem = self.problem or str(error)
                if isinstance(each, RecordedRequest):
                    self._drop()
        if self._dropped > self._told:
            dropped = self._dropped
            try:
                self._writer.drop(dropped - self._told)
                self._told = dropped
            except OSError as error:
                self.problem = self.problem or str(error)
