"""From what a scenario says of a deployment's requests to the requests themselves.

Arrivals, token counts and service times each come from a stream of their own, drawn in the order of arrival before the
run: the third request is the same third request whatever fails, however many replicas there are and however requests
are served. That is what makes two scenarios on one seed comparable.
"""

from array import array
from collections.abc import Iterable
from itertools import repeat
from operator import sub
from pathlib import Path

import attrs

from executors.simulator.engines.spec import TOKENS_MAX
from executors.simulator.fields import SECONDS_MAX, shown
from executors.simulator.load.arrivals import Arrivals, RateWindow, draw_arrivals
from executors.simulator.load.csvfile import TraceError, refuse
from executors.simulator.load.distributions import Distribution
from executors.simulator.load.stamps import STAMP_MAX, UNITS_S
from executors.simulator.load.table import Counts, Kind, Numbers, Table, Words, read_table
from executors.simulator.load.traces import RATE_MAX, RateColumns, read_rates
from executors.simulator.load.users import Users
from executors.simulator.scenario.requests import (
    END,
    OF_TOKENS,
    ClosedRequests,
    DrawnTokens,
    GammaRequests,
    PoissonRequests,
    RateRequests,
    Requests,
    TraceRequests,
)
from executors.simulator.streams import Streams

TIMEOUT_MIN_S = 0.001
MODEL = "model"
MODELS_SHOWN = 8
OF_REQUESTS = ("session", "timeout", MODEL)
"""Columns of traces that any request may have."""


def make_arrivals(requests: Requests, deployment: str, folder: Path, streams: Streams) -> Arrivals:
    """The requests of a deployment, with token counts for its engine or with service times; files are relative to `folder`.

    Raises:
        TraceError: A file cannot be used; names it and the line.
        TooManyRequestsError: There is no end to them.
        FieldProblem: A time of the scenario is none of the file.
    """
    notes: tuple[str, ...] = ()
    match requests:
        case TraceRequests():
            return _of_trace(requests, deployment, folder, streams)
        case RateRequests():
            windows, notes = _windows(requests, folder)
        case PoissonRequests() | GammaRequests():
            cv = requests.cv if isinstance(requests, GammaRequests) else 1.0
            windows = [RateWindow(requests.begin_s, requests.begin_s + requests.for_s, requests.rate_per_s, cv)]
        case ClosedRequests():
            think_s = _drawn("think", requests.think_s, requests.count, deployment, streams)
            users = Users(requests.concurrency, requests.begin_s, think_s)
            return attrs.evolve(_served(requests, array("d"), requests.count, deployment, streams), users=users)
    at_s = draw_arrivals(windows, streams.once("arrivals", deployment))
    return attrs.evolve(_served(requests, at_s, len(at_s), deployment, streams), notes=notes)


def _served(
    requests: PoissonRequests | GammaRequests | RateRequests | ClosedRequests,
    at_s: "array[float]",
    count: int,
    deployment: str,
    streams: Streams,
) -> Arrivals:
    """So many requests, with what each takes, or has of tokens."""
    if requests.tokens is not None:
        counts = _drawn_tokens(requests.tokens, count, deployment, streams)
        found = requests.tokens.token_times
        return _of_tokens(at_s, *counts) if found is None else Arrivals(at_s, _linear(found, *counts))
    assert requests.service_s is not None, "the class asks for one of both"
    return Arrivals(at_s, _drawn("service", requests.service_s, count, deployment, streams))


def _of_trace(requests: TraceRequests, deployment: str, folder: Path, streams: Streams) -> Arrivals:
    path, times = folder / requests.file, requests.token_times
    wanted = {key: each for key, each in request_columns(requests).items() if key in (*requests.read, *OF_REQUESTS)}
    table = read_table(path, requests.reading(streams.seed, deployment), wanted, requests.may_lack)
    if MODEL in wanted:
        table = _of_model(path, table, deployment, *wanted[MODEL])
    at_s = array("d", (requests.begin_s + after_s for after_s in table.after_s))
    if requests.service_s is not None:
        made = Arrivals(at_s, _drawn("service", requests.service_s, len(at_s), deployment, streams))
    elif times is not None:
        made = Arrivals(at_s, _linear(times, _uncached(table), table.cells["output"]))
    elif requests.read == OF_TOKENS:
        made = attrs.evolve(_of_tokens(at_s, table.cells["prompt"], table.cells["output"]), cached=table.cells.get("cached"))
    else:
        made = Arrivals(at_s, service_in(path, requests, table))
    return attrs.evolve(
        made,
        sessions=table.cells.get("session"),
        timeouts_s=table.cells.get("timeout"),
        notes=(*table.notes, *ignored_in(path, requests)),
        unix_s_at_0=None if table.origin_unix_s is None else table.origin_unix_s - requests.begin_s,
    )


def _of_model(path: Path, table: Table, deployment: str, column: str, models: Kind) -> Table:
    """The rows that are for a deployment, by its id or its name.

    Raises:
        TraceError: There are none.
    """
    assert isinstance(models, Words), "names are words"
    names = models.numbers
    name = next((each for each in (deployment, deployment.rpartition("/")[2]) if each in names), None)
    if name is None:
        there = ", ".join(shown(each) for each in list(names)[:MODELS_SHOWN])
        more = f" and {len(names) - MODELS_SHOWN} more" if len(names) > MODELS_SHOWN else ""
        raise TraceError(f"{path}: {column}: expected a row of {shown(deployment)}, found those of {there}{more}")
    found = table.only(MODEL, names[name])
    return attrs.evolve(found, notes=(*found.notes, f"{path}: {len(found):,} of {len(table):,} rows are for {deployment}"))


def request_columns(requests: TraceRequests) -> dict[str, tuple[str, Kind]]:
    """All columns that a trace has besides its times; `began`: its times again, where `service` has those of ends."""
    kinds: dict[str, Kind] = {"prompt": Counts(), "output": Counts(), "cached": Counts(), "session": Words("session")}
    kinds |= {"timeout": Numbers(TIMEOUT_MIN_S, SECONDS_MAX), MODEL: Words(MODEL)}
    column_of, ends = dict(requests.column_of), requests.service_unit == END
    unit_s = float(UNITS_S[(requests.time_unit or "s") if ends else requests.service_unit])
    kinds["service"] = Numbers(0.0, (STAMP_MAX if ends else SECONDS_MAX) / unit_s, unit_s)
    if ends:
        column_of["began"], kinds["began"] = column_of["time"], kinds["service"]
    return {key: (column_of[key], kind) for key, kind in kinds.items() if key in column_of}


def service_in(path: Path, requests: TraceRequests, table: Table) -> "array[float]":
    """How long each request took, as its file says.

    Raises:
        TraceError: It does not, or one ended before it began.
    """
    column = requests.column_of["service"]
    if "service" not in table.cells:
        raise TraceError(f"{path}: expected a column {shown(column)}, or service_s in the scenario, found neither")
    ended = table.cells["service"]
    if "began" not in table.cells:
        return ended
    found = array("d", map(sub, ended, table.cells["began"]))
    early = next((index for index, service_s in enumerate(found) if service_s < 0.0), None)
    if early is not None:
        refuse(path, table.lines[early], f"{column}: expected an end, found one {-found[early]:g} s before its begin")
    return array("d", (min(each, SECONDS_MAX) for each in found))


def ignored_in(path: Path, requests: TraceRequests) -> tuple[str, ...]:
    """What of a file is not read though it may matter, in words."""
    return () if requests.ignored is None else (f"{path}: {requests.ignored} is not read",)


def _uncached(table: Table) -> Iterable[int]:
    prompts = table.cells["prompt"]
    return (max(prompt - cached, 0) for prompt, cached in zip(prompts, table.cells.get("cached", repeat(0)), strict=False))


def _windows(requests: RateRequests, folder: Path) -> tuple[list[RateWindow], tuple[str, ...]]:
    path = folder / requests.file
    columns = RateColumns(rate=requests.rate_column, cv=requests.cv_column)
    found, table = read_rates(path, requests.reading, columns, requests.window_s, requests.cv)
    windows = []
    for window in found:
        begin_s, end_s = window.begin_s / requests.speedup, window.end_s / requests.speedup
        rate = window.rate_per_s * requests.scale * requests.speedup
        if rate > RATE_MAX or end_s > SECONDS_MAX:
            most = f"{RATE_MAX:g} requests/s within {SECONDS_MAX:g} s"
            raise TraceError(f"{path}: expected at most {most}, found {rate:g} requests/s until {end_s:g} s")
        if requests.for_s is not None:
            end_s = min(end_s, requests.for_s)
        if begin_s < end_s:
            windows.append(RateWindow(requests.begin_s + begin_s, requests.begin_s + end_s, rate, window.cv))
    return windows, table.notes


def _drawn(what: str, distribution: Distribution, count: int, deployment: str, streams: Streams) -> "array[float]":
    stream, sample = streams.once(what, deployment), distribution.sample
    return array("d", (sample(stream) for _ in range(count)))


def _drawn_tokens(tokens: DrawnTokens, count: int, deployment: str, streams: Streams) -> tuple[Iterable[int], Iterable[int]]:
    prompts, outputs = (streams.once(f"{what}_tokens", deployment) for what in ("prompt", "output"))
    return (
        (round(tokens.prompt.sample(prompts)) for _ in range(count)),
        (round(tokens.output.sample(outputs)) for _ in range(count)),
    )


def _of_tokens(at_s: "array[float]", prompts: Iterable[int], outputs: Iterable[int]) -> Arrivals:
    """Requests for an engine, of one token each at least."""
    prompt, output = (array("q", (min(max(count, 1), TOKENS_MAX) for count in each)) for each in (prompts, outputs))
    return Arrivals(at_s, array("d"), prompt=prompt, output=output)


def _linear(times: tuple[float, float, float], prompts: Iterable[int], outputs: Iterable[int]) -> "array[float]":
    base_s, per_prompt, per_output = times
    pairs = zip(prompts, outputs, strict=True)
    return array("d", (min(base_s + prompt * per_prompt + output * per_output, SECONDS_MAX) for prompt, output in pairs))
