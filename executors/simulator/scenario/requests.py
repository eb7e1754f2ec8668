"""Where the requests of a deployment come from, as a scenario says it."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import attrs

from executors.simulator.fields import FieldProblem, Missing, integer, name, number, optional
from executors.simulator.load.arrivals import REQUESTS_MAX
from executors.simulator.load.distributions import Distribution
from executors.simulator.load.traces import CV_MAX, RATE_MAX

TOKEN_TIMES = ("base_s", "prompt_s_per_token", "output_s_per_token")
TOKEN_TIME_MAX = 1e3
NO_SERVICE = f"a number, as there is no service_s: one of {', '.join(TOKEN_TIMES)}"
NO_ENGINE = f"a value, as there is no engine that says it: one of {', '.join(TOKEN_TIMES)}"


@attrs.frozen(kw_only=True)
class TraceRequests:
    """Requests of a CSV file, with token counts or without.

    Service time is drawn from `service_s`; or it is base_s + prompt tokens x prompt_s_per_token + output tokens x
    output_s_per_token, with the counts of the file. A deployment with an `engine` has neither: it goes by the counts.

    Attributes:
        file: Relative to the scenario file.
        service_s: How long each request takes, without a look at its tokens.
        base_s, prompt_s_per_token, output_s_per_token: Or what follows from its tokens.
        begin_s: When the first request arrives.
        speedup: 2 replays the trace in half its time.
        limit: Only so many requests, the first ones.
        time_column, prompt_tokens_column, output_tokens_column: What the columns are called.
    """

    file: str = attrs.field(validator=name)
    begin_s: float = attrs.field(default=0.0, validator=number(least=0.0))
    speedup: float = attrs.field(default=1.0, validator=number(above=0.0, most=1e6))
    limit: int | None = attrs.field(default=None, validator=optional(integer(1, REQUESTS_MAX)))
    service_s: Distribution | None = None
    base_s: float | None = attrs.field(default=None, validator=optional(number(least=0.0)))
    prompt_s_per_token: float | None = attrs.field(default=None, validator=optional(number(least=0.0, most=TOKEN_TIME_MAX)))
    output_s_per_token: float | None = attrs.field(default=None, validator=optional(number(least=0.0, most=TOKEN_TIME_MAX)))
    time_column: str = attrs.field(default="TIMESTAMP", validator=name)
    prompt_tokens_column: str = attrs.field(default="ContextTokens", validator=name)
    output_tokens_column: str = attrs.field(default="GeneratedTokens", validator=name)

    def __attrs_post_init__(self) -> None:
        for key in TOKEN_TIMES:
            if self.service_s is not None and getattr(self, key) is not None:
                raise FieldProblem((key,), getattr(self, key), f"no {key} where service_s is given")

    @property
    def token_times(self) -> tuple[float, float, float] | None:
        """base_s and the seconds per prompt and output token; None: tokens do not matter, service_s says it all."""
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
class RateRequests:
    """Requests drawn at the rates of a CSV file that has a row for each window of time.

    Attributes:
        file: Relative to the scenario file.
        start_column: When each window begins, in seconds.
        rate_column: Requests per second in it.
        cv_column: Coefficient of variation of the times between requests in it; left out: `cv` everywhere.
        cv: The same for all windows; 1 is Poisson.
        where: Only rows with these texts, such as `{model: m-small}`.
        window_s: How long a window lasts; left out: the shortest step from one to the next.
        scale: What rates are multiplied with.
        speedup: 2 replays the windows in half their time, at twice their rate.
        begin_s: When the first window begins.
        for_s: How long, from then on; left out: to the end of the file.
        service_s: How long each request takes to serve.
        tokens: Or how many tokens each has.
    """

    file: str = attrs.field(validator=name)
    start_column: str = attrs.field(default="window_start_s", validator=name)
    rate_column: str = attrs.field(default="rate", validator=name)
    cv_column: str | None = attrs.field(default=None, validator=optional(name))
    where: Mapping[str, Any] = attrs.Factory(dict)
    window_s: float | None = attrs.field(default=None, validator=optional(number(above=0.0)))
    cv: float = attrs.field(default=1.0, validator=number(least=0.01, most=CV_MAX))
    scale: float = attrs.field(default=1.0, validator=number(above=0.0, most=1e6))
    speedup: float = attrs.field(default=1.0, validator=number(above=0.0, most=1e6))
    begin_s: float = attrs.field(default=0.0, validator=number(least=0.0))
    for_s: float | None = attrs.field(default=None, validator=optional(number(above=0.0)))
    service_s: Distribution | None = None
    tokens: DrawnTokens | None = None

    def __attrs_post_init__(self) -> None:
        check_service(self.service_s, self.tokens)
        if not isinstance(self.where, Mapping):
            raise FieldProblem(("where",), self.where, "a mapping of columns to texts")
        for column, text in self.where.items():
            if not isinstance(text, (str, int)) or isinstance(text, bool):
                raise FieldProblem(("where", column), text, "the text of a cell")


Requests: TypeAlias = TraceRequests | PoissonRequests | GammaRequests | RateRequests
REQUEST_SOURCES: dict[str, type[TraceRequests] | type[PoissonRequests] | type[GammaRequests] | type[RateRequests]] = {
    "trace": TraceRequests,
    "poisson": PoissonRequests,
    "gamma": GammaRequests,
    "rates": RateRequests,
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
    timed: TraceRequests | DrawnTokens | None = requests if isinstance(requests, TraceRequests) else requests.tokens
    keys = keys if timed is requests else (*keys, "tokens")
    for key in TOKEN_TIMES:
        value = getattr(timed, key)
        if engine is None and value is None:
            raise FieldProblem((*keys, key), Missing(), NO_SERVICE if timed is requests else NO_ENGINE)
        if engine is not None and value:
            raise FieldProblem((*keys, key), value, f"nothing, as engine {engine!r} says how long tokens take")
