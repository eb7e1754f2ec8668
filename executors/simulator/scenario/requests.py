"""Where the requests of a deployment come from, as a scenario says it."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import attrs

from executors.simulator.fields import FieldProblem, FileTime, Missing, choice, integer, name, number, optional
from executors.simulator.load.arrivals import REQUESTS_MAX
from executors.simulator.load.distributions import Constant, Distribution
from executors.simulator.load.presets import RATES, REQUESTS
from executors.simulator.load.stamps import ISO, TIME_UNITS, UNITS_S
from executors.simulator.load.table import FIRST, ZERO, Reading
from executors.simulator.load.traces import CV_MAX, RATE_MAX
from executors.simulator.scenario.timed_file import TimedFile

COLUMNS = ("time", "prompt", "output", "cached", "service", "session", "timeout", "model")
OF_TOKENS = ("prompt", "output", "cached")
OF_SERVICE = ("service", "began")
"""Columns that say how long a request takes, in one way or the other."""
END = "end"
TOKEN_TIMES = ("base_s", "prompt_s_per_token", "output_s_per_token")
TOKEN_TIME_MAX = 1e3
USERS_MAX = 100_000
NO_TIME = Constant(value=0.0)
NO_SERVICE = f"a number, as there is no service_s: one of {', '.join(TOKEN_TIMES)}"
NO_ENGINE = f"a value, as there is no engine that says it: one of {', '.join(TOKEN_TIMES)}"


@attrs.frozen(kw_only=True)
class TraceRequests(TimedFile):
    """Requests of a file, CSV or JSON lines (`.jsonl`), packed (`.gz`) or not, with token counts or without.

    Service time is drawn from `service_s`; or it is base_s + prompt tokens x prompt_s_per_token + output tokens x
    output_s_per_token, with the counts of the file; or it stands in the file, in the column `service`. A deployment with an
    `engine` has none of these: it goes by the counts.

    Attributes:
        file: Relative to the scenario file.
        preset: A published trace, which sets the keys that are not here.
        service_s: How long each request takes, without a look at its tokens.
        base_s, prompt_s_per_token, output_s_per_token: Or what follows from its tokens.
        begin_s: When that comes which is the `origin`.
        origin: The first request, time 0 of the file ("zero"), or a time of the file.
        begin, end: Only rows from this time of the file on, and before that.
        speedup: 2 replays the trace in half its time.
        thin: The share of requests that is kept, drawn by seed and row: those of 0.1 are among those of 0.2.
        jitter_s: Up to so much is added to each time, drawn: for files that have whole seconds.
        limit: Only so many requests, the first ones of the file.
        time_unit: Of the time column; "iso": ISO 8601, in UTC where it names no zone. None: seconds where it has numbers, or
            else ISO 8601; it is never guessed.
        columns: What the columns are called: `time`, `prompt` and `output` tokens, `cached` (tokens of the prompt that take no
            time), `service`, `session` (those of one go to one replica under "affinity"), `timeout` (s), `model` (which
            deployment a row is for: only rows with the name of this one count, from the first of all on).
        service_unit: Of the column `service`; "end": it has the time of the end of each request.
        time_column, prompt_tokens_column, output_tokens_column: Where `columns` does not say it.
    """

    file: str = attrs.field(validator=name)
    preset: str | None = attrs.field(default=None, validator=optional(choice(*REQUESTS)))
    begin_s: float = attrs.field(default=0.0, validator=number(least=0.0))
    origin: float | str = attrs.field(default=FIRST, validator=FileTime((FIRST, ZERO)))
    begin: float | str | None = attrs.field(default=None, validator=optional(FileTime()))
    end: float | str | None = attrs.field(default=None, validator=optional(FileTime()))
    speedup: float = attrs.field(default=1.0, validator=number(above=0.0, most=1e6))
    thin: float = attrs.field(default=1.0, validator=number(above=0.0, most=1.0))
    jitter_s: float = attrs.field(default=0.0, validator=number(least=0.0))
    limit: int | None = attrs.field(default=None, validator=optional(integer(1, REQUESTS_MAX)))
    service_s: Distribution | None = None
    base_s: float | None = attrs.field(default=None, validator=optional(number(least=0.0)))
    prompt_s_per_token: float | None = attrs.field(default=None, validator=optional(number(least=0.0, most=TOKEN_TIME_MAX)))
    output_s_per_token: float | None = attrs.field(default=None, validator=optional(number(least=0.0, most=TOKEN_TIME_MAX)))
    time_unit: str | None = attrs.field(default=None, validator=optional(choice(*TIME_UNITS)))
    columns: Mapping[str, Any] = attrs.Factory(dict)
    service_unit: str = attrs.field(default="s", validator=choice(*UNITS_S, END))
    time_column: str = attrs.field(default="TIMESTAMP", validator=name)
    prompt_tokens_column: str = attrs.field(default="ContextTokens", validator=name)
    output_tokens_column: str = attrs.field(default="GeneratedTokens", validator=name)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self._check_columns()
        times = [key for key in TOKEN_TIMES if getattr(self, key) is not None]
        if self.service_s is not None and times:
            raise FieldProblem((times[0],), getattr(self, times[0]), f"no {times[0]} where service_s is given")
        from_file = "service" in self.columns
        if from_file and "service" not in self.preset_columns and (self.service_s is not None or times):
            allowed = f"no column of service times where {times[0] if times else 'service_s'} is given"
            raise FieldProblem(("columns", "service"), self.columns["service"], allowed)
        if self.service_unit == END and not from_file:
            raise FieldProblem(("service_unit",), END, "left out, as columns names no service")
        if self.service_unit == END and self.time_unit == ISO:
            raise FieldProblem(("service_unit",), END, f"one of {', '.join(UNITS_S)} where time_unit is iso")

    def _check_columns(self) -> None:
        if not isinstance(self.columns, Mapping):
            raise FieldProblem(("columns",), self.columns, f"a mapping with keys of {', '.join(COLUMNS)}")
        for key, column in self.columns.items():
            if key not in COLUMNS:
                raise FieldProblem(("columns", key), key, f"one of {', '.join(COLUMNS)}")
            if not name.accepts(column):
                raise FieldProblem(("columns", key), column, name.allowed)

    @property
    def preset_columns(self) -> dict[str, str]:
        """Which columns the preset names and nobody else does."""
        named = {} if self.preset is None else REQUESTS[self.preset].keys["columns"]
        return {key: column for key, column in named.items() if self.columns.get(key) == column}

    @property
    def column_of(self) -> Mapping[str, str]:
        """What each column is called."""
        named = {"time": self.time_column, "prompt": self.prompt_tokens_column, "output": self.output_tokens_column}
        return {**named, **self.columns}

    @property
    def may_lack(self) -> tuple[str, ...]:
        """Which columns the file need not have."""
        optional_columns = () if self.preset is None else REQUESTS[self.preset].optional
        return tuple(key for key in optional_columns if key in self.preset_columns)

    def for_engine(self) -> "TraceRequests":
        """As an engine reads it, which goes by the counts: durations of the file are none of its business."""
        columns = {key: column for key, column in self.columns.items() if key != "service"}
        return attrs.evolve(self, columns=columns, service_unit="s")

    @property
    def read(self) -> tuple[str, ...]:
        """Which columns say how long requests take: counts of tokens, or durations; none where the scenario says it."""
        if self.service_s is not None:
            return ()
        return OF_TOKENS if self.token_times is not None or "service" not in self.columns else OF_SERVICE

    @property
    def ignored(self) -> str | None:
        """What of the file is not read though it may matter; None: nothing."""
        return None if self.preset is None else REQUESTS[self.preset].ignored

    def reading(self, seed: int, deployment: str) -> Reading:
        """How the file is read."""
        return Reading(
            time=self.column_of["time"],
            time_unit=self.time_unit,
            sort=self.sort,
            where=self.where,
            skip_bad=self.skip_bad,
            begin=self.begin,
            end=self.end,
            origin=self.origin,
            limit=self.limit,
            thin=self.thin,
            jitter_s=self.jitter_s,
            speedup=self.speedup,
            seed=seed,
            jitter=("jitter", deployment),
            hint="; limit: takes the first ones only",
        )

    @property
    def token_times(self) -> tuple[float, float, float] | None:
        """base_s and the seconds per prompt and output token; None: tokens do not matter, service_s or the file says it all."""
        if self.base_s is None or self.prompt_s_per_token is None or self.output_s_per_token is None:
            return None
        return self.base_s, self.prompt_s_per_token, self.output_s_per_token


@attrs.frozen(kw_only=True)
class DrawnTokens:
    """Token counts drawn for each request, and the service time that follows from them.

    Service time is base_s + prompt tokens x prompt_s_per_token + output tokens x output_s_per_token; draws are rounded
    to whole tokens. For a deployment with an `engine` only the counts are given, of at least one token each.

    Attributes:
        prompt: Prompt tokens of a request.
        output: Output tokens of a request.
        base_s: Seconds of every request, whatever its tokens.
        prompt_s_per_token: Seconds for each prompt token; required without an engine.
        output_s_per_token: Seconds for each output token; required without an engine.
    """

    prompt: Distribution
    output: Distribution
    base_s: float = attrs.field(default=0.0, validator=number(least=0.0))
    prompt_s_per_token: float | None = attrs.field(default=None, validator=optional(number(least=0.0, most=TOKEN_TIME_MAX)))
    output_s_per_token: float | None = attrs.field(default=None, validator=optional(number(least=0.0, most=TOKEN_TIME_MAX)))

    @property
    def token_times(self) -> tuple[float, float, float] | None:
        """base_s and the seconds per prompt and output token; None: an engine says how long they take."""
        if self.prompt_s_per_token is None or self.output_s_per_token is None:
            return None
        return self.base_s, self.prompt_s_per_token, self.output_s_per_token


def check_service(service_s: Distribution | None, tokens: DrawnTokens | None) -> None:
    """Raise `FieldProblem` unless exactly one of the two says how long requests take."""
    if service_s is None and tokens is None:
        raise FieldProblem(("service_s",), Missing(), "a distribution, or tokens beside it")
    if service_s is not None and tokens is not None:
        raise FieldProblem(("tokens",), "both", "either service_s or tokens")


def _check_count(rate_per_s: float, for_s: float) -> None:
    if rate_per_s * for_s > REQUESTS_MAX:
        most = REQUESTS_MAX / rate_per_s
        raise FieldProblem(("for_s",), for_s, f"at most {most:g}: {REQUESTS_MAX} requests at this rate")


@attrs.frozen(kw_only=True)
class PoissonRequests:
    """Requests that arrive independently of each other, from `begin_s` on for `for_s`.

    Attributes:
        service_s: How long each takes to serve.
        tokens: Or how many tokens each has.
    """

    rate_per_s: float = attrs.field(validator=number(above=0.0, most=RATE_MAX))
    begin_s: float = attrs.field(default=0.0, validator=number(least=0.0))
    for_s: float = attrs.field(validator=number(above=0.0))
    service_s: Distribution | None = None
    tokens: DrawnTokens | None = None

    def __attrs_post_init__(self) -> None:
        check_service(self.service_s, self.tokens)
        _check_count(self.rate_per_s, self.for_s)


@attrs.frozen(kw_only=True)
class GammaRequests:
    """Requests with gamma distributed times between them, from `begin_s` on for `for_s`.

    Attributes:
        cv: Coefficient of variation of these times: 1 is Poisson, more comes in bursts, less is more regular.
        service_s: How long each takes to serve.
        tokens: Or how many tokens each has.
    """

    rate_per_s: float = attrs.field(validator=number(above=0.0, most=RATE_MAX))
    cv: float = attrs.field(validator=number(least=0.01, most=CV_MAX))
    begin_s: float = attrs.field(default=0.0, validator=number(least=0.0))
    for_s: float = attrs.field(validator=number(above=0.0))
    service_s: Distribution | None = None
    tokens: DrawnTokens | None = None

    def __attrs_post_init__(self) -> None:
        check_service(self.service_s, self.tokens)
        _check_count(self.rate_per_s, self.for_s)


@attrs.frozen(kw_only=True)
class ClosedRequests:
    """Requests of users who wait: each asks, has the answer, thinks, and asks again, until there were `count` in all.

    There are never more requests than users. One who was turned away asks again when he was told to, after he has thought; one
    whose deployment is deleted leaves.

    Attributes:
        concurrency: How many users there are.
        count: How many requests they have in all.
        think_s: From what became of a request to its user's next one.
        begin_s: When all of them ask for the first time.
        service_s: How long each takes to serve.
        tokens: Or how many tokens each has.
    """

    concurrency: int = attrs.field(validator=integer(1, USERS_MAX))
    count: int = attrs.field(validator=integer(1, REQUESTS_MAX))
    think_s: Distribution = NO_TIME
    begin_s: float = attrs.field(default=0.0, validator=number(least=0.0))
    service_s: Distribution | None = None
    tokens: DrawnTokens | None = None

    def __attrs_post_init__(self) -> None:
        check_service(self.service_s, self.tokens)
        if self.concurrency > self.count:
            raise FieldProblem(("count",), self.count, f"one request of each user at least: {self.concurrency}")


@attrs.frozen(kw_only=True)
class RateRequests(TimedFile):
    """Requests drawn at the rates of a file that has a row for each window of time.

    Attributes:
        file: Relative to the scenario file.
        preset: Published rates, which set the keys that are not here.
        time_unit: Of `start_column`; "iso": ISO 8601. None: seconds where it has numbers, or else ISO 8601.
        start_column: When each window begins.
        rate_column: Requests per second in it.
        cv_column: Coefficient of variation of the times between requests in it; left out: `cv` everywhere.
        cv: The same for all windows; 1 is Poisson.
        window_s: How long a window lasts; left out: the shortest step from one to the next.
        scale: What rates are multiplied with.
        speedup: 2 replays the windows in half their time, at twice their rate.
        begin_s: When the first window begins.
        for_s: How long, from then on; left out: to the end of the file.
        service_s: How long each request takes to serve.
        tokens: Or how many tokens each has.
    """

    file: str = attrs.field(validator=name)
    preset: str | None = attrs.field(default=None, validator=optional(choice(*RATES)))
    time_unit: str | None = attrs.field(default=None, validator=optional(choice(*TIME_UNITS)))
    start_column: str = attrs.field(default="window_start_s", validator=name)
    rate_column: str = attrs.field(default="rate", validator=name)
    cv_column: str | None = attrs.field(default=None, validator=optional(name))
    window_s: float | None = attrs.field(default=None, validator=optional(number(above=0.0)))
    cv: float = attrs.field(default=1.0, validator=number(least=0.01, most=CV_MAX))
    scale: float = attrs.field(default=1.0, validator=number(above=0.0, most=1e6))
    speedup: float = attrs.field(default=1.0, validator=number(above=0.0, most=1e6))
    begin_s: float = attrs.field(default=0.0, validator=number(least=0.0))
    for_s: float | None = attrs.field(default=None, validator=optional(number(above=0.0)))
    service_s: Distribution | None = None
    tokens: DrawnTokens | None = None

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        check_service(self.service_s, self.tokens)

    @property
    def reading(self) -> Reading:
        """How the file is read."""
        return Reading(
            time=self.start_column, time_unit=self.time_unit, sort=self.sort, where=self.where, skip_bad=self.skip_bad
        )


Requests: TypeAlias = TraceRequests | PoissonRequests | GammaRequests | RateRequests | ClosedRequests
REQUEST_SOURCES: dict[str, type[Requests]] = {
    "trace": TraceRequests,
    "poisson": PoissonRequests,
    "gamma": GammaRequests,
    "rates": RateRequests,
    "closed": ClosedRequests,
}
"""By the word that stands under `requests`."""


def check_times(tokens: DrawnTokens | None) -> None:
    """Raise `FieldProblem` for token counts of which nobody says how long they take: `traffic` is for no engine."""
    for key in TOKEN_TIMES:
        if tokens is not None and getattr(tokens, key) is None:
            raise FieldProblem(("tokens", key), Missing(), NO_ENGINE)


def check_engine(requests: Requests, engine: str | None) -> None:
    """Raise `FieldProblem` unless requests say how long they take, or, for an engine, how many tokens they have and no more."""
    keys: tuple[str, ...] = ("requests", next(key for key, cls in REQUEST_SOURCES.items() if isinstance(requests, cls)))
    if requests.service_s is not None:
        if engine is not None:
            allowed = f"nothing, as engine {engine!r} says how long requests take: tokens"
            raise FieldProblem((*keys, "service_s"), "a distribution", allowed)
        return
    if isinstance(requests, TraceRequests) and "service" in requests.columns:
        if engine is None and all(getattr(requests, key) is None for key in TOKEN_TIMES):
            return
        if engine is not None and "service" not in requests.preset_columns:
            allowed = f"no column of service times, as engine {engine!r} says how long requests take"
            raise FieldProblem((*keys, "columns", "service"), requests.columns["service"], allowed)
    timed: TraceRequests | DrawnTokens | None = requests if isinstance(requests, TraceRequests) else requests.tokens
    keys = keys if timed is requests else (*keys, "tokens")
    for key in TOKEN_TIMES:
        value = getattr(timed, key)
        if engine is None and value is None:
            raise FieldProblem((*keys, key), Missing(), NO_SERVICE if timed is requests else NO_ENGINE)
        if engine is not None and value:
            raise FieldProblem((*keys, key), value, f"nothing, as engine {engine!r} says how long tokens take")
