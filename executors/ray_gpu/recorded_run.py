"""A run on Ray that is recorded: the controller's journal, and the calls of this process beside it.

The journal has the controller's clock and the request file this process's. How they stand to each other is asked of the
controller, several times over: what an answer says is true of some moment between the question and the answer, so the shortest
round trip is the best one, and half of it is how far off that may be.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import attrs

from executors.engine.journal import open_alone
from executors.engine.reading import JournalReader
from executors.engine.request_file import CallTokens, ClockReading, RequestLog, RequestWriter
from executors.engine.request_reading import request_file_of
from executors.engine.run_id import RUN, run_of
from executors.ray_gpu import connection, deploying, instance
from executors.ray_gpu.connection import ask
from executors.ray_gpu.declaration import Application
from executors.ray_gpu.errors import CallError, InvalidDeploymentError
from executors.ray_gpu.requests import recording
from executors.ray_gpu.requests.answered_tokens import tokens_in

ROUND_TRIPS = 20
CLOCK_EVERY_S = 60.0
LOOK_S = 0.25
WHOLE = 2**62
"""No note has this number: an answer has the controller's clock and nothing else."""


@attrs.frozen
class Recorded:
    """What was written.

    Attributes:
        calls: How many calls were made.
        failed: Of these, those that have raised.
        dropped: Of these, those that are not in the file.
        clock_error_s: How far the clocks of the two files may be apart.
        problem: Why something was not written; None: all was.
    """

    journal: Path
    requests: Path
    calls: int
    failed: int
    dropped: int
    clock_error_s: float
    problem: str | None


class RecordedRun:
    """Deploys an application in a namespace where nothing runs, records what happens there, and ends it.

    Args:
        name: Of the application.
        journal: Where the journal goes; the request file goes beside it.

    Raises:
        InvalidDeploymentError: When it is entered: something runs there already.
    """

    def __init__(self, application: Application, name: str, journal: Path, *, namespace: str) -> None:
        self._application = application
        self._name = name
        self._namespace = namespace
        self._journal = journal
        self._answers: list[Any] = []
        self._error_s = float("inf")
        self._log: RequestLog | None = None
        self._tokens: list[CallTokens] = []

    def __enter__(self) -> Self:
        connection.connect(start=True)
        if connection.is_there(self._namespace):
            problem = f"expected a namespace in which nothing runs, found that something runs in {self._namespace!r}"
            raise InvalidDeploymentError(f"{problem}: a recording begins with the deployment")
        file = open_alone(request_file_of(self._journal), empty=True)
        try:
            self._journal.unlink(missing_ok=True)
            instance.start(namespace=self._namespace, journal=str(self._journal.resolve()))
            self._log = RequestLog(RequestWriter(file, {"executor": "ray", **self._run_id()}))
            recording.record_to(self._log)
            self._read_clock()
            self._handle = deploying.run(
                self._application, name=self._name, route_prefix=None, namespace=self._namespace, journal=None
            )
        except BaseException:
            self._end()
            file.close()
            raise
        return self

    def play(
        self,
        arrivals: Sequence[float],
        payloads: Iterable[Mapping[str, Any]],
        actions: Iterable[tuple[float, Callable[[], object]]] = (),
    ) -> None:
        """Call at these times, and do something else at others, in seconds from now on; returns when all is answered.

        Args:
            payloads: The argument of each call.
        """
        began = read_at = time.monotonic()
        calls = [(at, lambda payload=payload: self._call(payload)) for at, payload in zip(arrivals, payloads, strict=True)]
        for at, act in sorted([*calls, *actions], key=lambda each: each[0]):
            while (left_s := began + at - time.monotonic()) > 0:
                time.sleep(min(left_s, CLOCK_EVERY_S))
                if time.monotonic() - read_at > CLOCK_EVERY_S:
                    read_at = time.monotonic()
                    self._read_clock(1)
            act()
        for answer in self._answers:
            with suppress(Exception):  # what became of it stands in the file
                found = tokens_in(answer.result())
                if found is not None:
                    self._tokens.append(CallTokens(answer.call.request_id, *found))

    def until_stopped(self) -> None:
        """Stay until Ctrl-C."""
        with suppress(KeyboardInterrupt):
            while True:
                time.sleep(LOOK_S)

    def __exit__(self, *_: object) -> None:
        self._read_clock()
        self._end()

    @property
    def found(self) -> Recorded:
        """What was written, once it is over."""
        failed = 0
        for answer in self._answers:
            try:
                answer.result(0)
            except Exception:
                failed += 1
        log, count = self._log, len(self._answers)
        assert log is not None, "a run that is over has begun"
        return Recorded(self._journal, request_file_of(self._journal), count, failed, log.dropped, self._error_s, log.problem)

    def _call(self, payload: Mapping[str, Any]) -> None:
        self._answers.append(self._handle.remote(dict(payload)))

    def _read_clock(self, times: int = ROUND_TRIPS) -> None:
        controller = connection.running(self._namespace)
        best: ClockReading | None = None
        for _ in range(times):
            asked = time.monotonic_ns()
            at_s = ask(controller, "notes", WHOLE).now
            answered = time.monotonic_ns()
            error_s = (answered - asked) / 2e9
            if best is None or error_s < best.error_s:
                best = ClockReading((asked + answered) // 2, at_s, error_s, time.time())
        if best is not None and self._log is not None:
            self._error_s = min(self._error_s, best.error_s)
            self._log.put(best)

    def _run_id(self) -> dict[str, str]:
        """What the journal says of which run it is; nothing, where the controller writes it on another machine."""
        reader = JournalReader(self._journal)
        with suppress(FileNotFoundError):
            reader.read_header()
        run = run_of(reader.about)
        return {} if run is None else {RUN: run}

    def _end(self) -> None:
        recording.record_to(None)
        with suppress(CallError):
            instance.shutdown(namespace=self._namespace)
        if self._log is not None:
            self._log.close(self._tokens)
