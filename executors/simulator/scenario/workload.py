"""From what a scenario says of a deployment's requests to the requests themselves.

Arrivals, token counts and service times each come from a stream of their own, drawn in the order of arrival before the
run: the third request is the same third request whatever fails, however many replicas there are and however requests
are served. That is what makes two scenarios on one seed comparable.
"""

from array import array
from collections.abc import Iterable
from pathlib import Path

from executors.simulator.engines.spec import TOKENS_MAX
from executors.simulator.fields import SECONDS_MAX
from executors.simulator.load.arrivals import Arrivals, RateWindow, draw_arrivals
from executors.simulator.load.csvfile import TraceError
from executors.simulator.load.distributions import Distribution
from executors.simulator.load.traces import RATE_MAX, RateColumns, read_rates, read_trace
from executors.simulator.scenario.requests import (
    DrawnTokens,
    GammaRequests,
    PoissonRequests,
    RateRequests,
    Requests,
    TraceRequests,
)
from executors.simulator.streams import Streams


def make_arrivals(requests: Requests, deployment: str, folder: Path, streams: Streams) -> Arrivals:
    """The requests of a deployment; files are relative to `folder`.

    Raises:
        TraceError: A file cannot be used; names it and the line.
        TooManyRequestsError: There is no end to them.
    """
    match requests:
        case TraceRequests():
            return _of_trace(requests, deployment, folder, streams)
        case RateRequests():
            windows = _windows(requests, folder)
        case PoissonRequests() | GammaRequests():
            cv = requests.cv if isinstance(requests, GammaRequests) else 1.0
            windows = [RateWindow(requests.begin_s, requests.begin_s + requests.for_s, requests.rate_per_s, cv)]
    at_s = draw_arrivals(windows, streams.once("arrivals", deployment))
    if requests.tokens is not None:
        counts = _drawn_tokens(requests.tokens, len(at_s), deployment, streams)
        times = requests.tokens.token_times
        return _of_tokens(at_s, *counts) if times is None else Arrivals(at_s, _linear(times, *counts))
    assert requests.service_s is not None, "the class asks for one of both"
    return Arrivals(at_s, _drawn_service(requests.service_s, len(at_s), deployment, streams))


def _of_trace(requests: TraceRequests, deployment: str, folder: Path, streams: Streams) -> Arrivals:
    path, times = folder / requests.file, requests.token_times
    columns = (requests.prompt_tokens_column, requests.output_tokens_column) if requests.service_s is None else ()
    rows = read_trace(path, requests.time_column, columns, requests.speedup, requests.limit)
    at_s = array("d", (requests.begin_s + after_s for after_s in rows.after_s))
    if times is not None:
        return Arrivals(at_s, _linear(times, *rows.tokens))
    if requests.service_s is None:
        return _of_tokens(at_s, *rows.tokens)
    return Arrivals(at_s, _drawn_service(requests.service_s, len(at_s), deployment, streams))


def _windows(requests: RateRequests, folder: Path) -> list[RateWindow]:
    path = folder / requests.file
    where = {column: str(text) for column, text in requests.where.items()}
    columns = RateColumns(start=requests.start_column, rate=requests.rate_column, cv=requests.cv_column, where=where)
    windows = []
    for window in read_rates(path, columns, requests.window_s, requests.cv):
        begin_s, end_s = window.begin_s / requests.speedup, window.end_s / requests.speedup
        rate = window.rate_per_s * requests.scale * requests.speedup
        if rate > RATE_MAX or end_s > SECONDS_MAX:
            most = f"{RATE_MAX:g} requests/s within {SECONDS_MAX:g} s"
            raise TraceError(f"{path}: expected at most {most}, found {rate:g} requests/s until {end_s:g} s")
        if requests.for_s is not None:
            end_s = min(end_s, requests.for_s)
        if begin_s < end_s:
            windows.append(RateWindow(requests.begin_s + begin_s, requests.begin_s + end_s, rate, window.cv))
    return windows


def _drawn_service(distribution: Distribution, count: int, deployment: str, streams: Streams) -> "array[float]":
    stream, sample = streams.once("service", deployment), distribution.sample
    return array("d", (sample(stream) for _ in range(count)))


def _drawn_tokens(tokens: DrawnTokens, count: int, deployment: str, streams: Streams) -> tuple[Iterable[int], Iterable[int]]:
    prompts, outputs = (streams.once(f"{what}_tokens", deployment) for what in ("prompt", "output"))
    return (
        (round(tokens.prompt.sample(prompts)) for _ in range(count)),
        (round(tokens.output.sample(outputs)) for _ in range(count)),
    )


def _of_tokens(at_s: "array[float]", prompts: Iterable[int], outputs: Iterable[int]) -> Arrivals:
    """Requests for an engine, of one token each at least."""
    counts = (array("q", (min(max(count, 1), TOKENS_MAX) for count in each)) for each in (prompts, outputs))
    return Arrivals(at_s, array("d"), *counts)


def _linear(times: tuple[float, float, float], prompts: Iterable[int], outputs: Iterable[int]) -> "array[float]":
    base_s, per_prompt, per_output = times
    pairs = zip(prompts, outputs, strict=True)
    return array("d", (min(base_s + prompt * per_prompt + output * per_output, SECONDS_MAX) for prompt, output in pairs))
