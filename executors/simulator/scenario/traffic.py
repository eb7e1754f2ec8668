"""Traffic of all deployments together: who gets which share of it."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import attrs

from executors.simulator.fields import FieldProblem, choice, integer, name, number, optional
from executors.simulator.load.csvfile import number_of, read_cells
from executors.simulator.load.distributions import Distribution
from executors.simulator.load.presets import RATES
from executors.simulator.load.stamps import STAMP_MAX
from executors.simulator.load.traces import CV_MAX, RATE_MAX
from executors.simulator.scenario.requests import (
    DrawnTokens,
    GammaRequests,
    RateRequests,
    Requests,
    check_service,
    check_times,
)

WINDOW_S = 600.0


@attrs.frozen(kw_only=True)
class ZipfTraffic:
    """One stream of requests, of which the k-th deployment has a share in proportion to 1 / k**exponent.

    Attributes:
        rate_per_s: Of all deployments together.
        exponent: 0: all alike; 1 and more: few have nearly all of it.
        cv: Coefficient of variation of the times between the requests of one deployment.
        service_s: How long each takes to serve.
        tokens: Or how many tokens each has.
    """

    rate_per_s: float = attrs.field(validator=number(above=0.0, most=RATE_MAX))
    exponent: float = attrs.field(default=1.0, validator=number(least=0.0, most=10.0))
    cv: float = attrs.field(default=1.0, validator=number(least=0.01, most=CV_MAX))
    begin_s: float = attrs.field(default=0.0, validator=number(least=0.0))
    for_s: float = attrs.field(validator=number(above=0.0))
    service_s: Distribution | None = None
    tokens: DrawnTokens | None = None

    def __attrs_post_init__(self) -> None:
        check_service(self.service_s, self.tokens)
        check_times(self.tokens)

    def shares(self, models: int) -> list[float]:
        """Of each, the most popular first; together 1."""
        weights = [(place + 1) ** -self.exponent for place in range(models)]
        return [weight / sum(weights) for weight in weights]


@attrs.frozen(kw_only=True)
class ClientTraffic:
    """Rates of the clients of one service, measured window by window: the busiest client stands for the first deployment.

    Attributes:
        file: Relative to the scenario file: a CSV file with a row for each client and window; where one is missing,
            nothing arrives.
        preset: Published rates, which set the keys that are not here.
        client_column: Which client it is.
        start_column: When the window begins, in seconds.
        rate_column: Requests per second in it.
        window_s: How long a window lasts.
        cv: Coefficient of variation of the times between the requests of one client.
        scale: What rates are multiplied with.
        speedup: 2 replays the windows in half their time, at twice their rate.
        begin_s: When time 0 of the file is.
        for_s: How long, from then on; None: to the end of the file.
        most: Only so many clients, the busiest ones; None: one for each deployment that has no requests of its own.
        service_s: How long each request takes to serve.
        tokens: Or how many tokens each has.
    """

    file: str = attrs.field(validator=name)
    preset: str | None = attrs.field(default=None, validator=optional(choice(*RATES)))
    client_column: str = attrs.field(default="client_id", validator=name)
    start_column: str = attrs.field(default="timestamp", validator=name)
    rate_column: str = attrs.field(default="rate", validator=name)
    window_s: float = attrs.field(default=WINDOW_S, validator=number(above=0.0))
    cv: float = attrs.field(default=1.0, validator=number(least=0.01, most=CV_MAX))
    scale: float = attrs.field(default=1.0, validator=number(above=0.0, most=1e6))
    speedup: float = attrs.field(default=1.0, validator=number(above=0.0, most=1e6))
    begin_s: float = attrs.field(default=0.0, validator=number(least=0.0))
    for_s: float | None = attrs.field(default=None, validator=optional(number(above=0.0)))
    most: int | None = attrs.field(default=None, validator=optional(integer(1, 100_000)))
    service_s: Distribution | None = None
    tokens: DrawnTokens | None = None

    def __attrs_post_init__(self) -> None:
        check_service(self.service_s, self.tokens)
        check_times(self.tokens)


@attrs.frozen(kw_only=True)
class Traffic:
    """Requests for all deployments that have none of their own, in the order in which these are listed: the first has most.

    Attributes:
        zipf: Drawn, in shares that fall off by a power law.
        clients: Measured: the clients of one service stand for the deployments.
    """

    zipf: ZipfTraffic | None = None
    clients: ClientTraffic | None = None

    def __attrs_post_init__(self) -> None:
        if (self.zipf is None) == (self.clients is None):
            found = "both" if self.zipf is not None else "none of them"
            raise FieldProblem((), found, "one of zipf: {...}, clients: {...}")

    def of_deployments(self, names: Iterable[str], folder: Path) -> Mapping[str, Requests]:
        """The requests of each deployment that has a share; a file is relative to `folder`.

        Raises:
            TraceError: The file cannot be used; names it and the line.
            FieldProblem: It has fewer clients than there are deployments.
        """
        wanted = list(names)
        if self.zipf is not None:
            return dict(zip(wanted, _zipf(self.zipf, len(wanted)), strict=True))
        assert self.clients is not None, "the class asks for one of both"
        return _clients(self.clients, wanted, folder)


def _zipf(zipf: ZipfTraffic, models: int) -> list[Requests]:
    return [
        GammaRequests(
            rate_per_s=zipf.rate_per_s * share,
            cv=zipf.cv,
            begin_s=zipf.begin_s,
            for_s=zipf.for_s,
            service_s=zipf.service_s,
            tokens=zipf.tokens,
        )
        for share in zipf.shares(models)
    ]


def _clients(clients: ClientTraffic, names: list[str], folder: Path) -> dict[str, Requests]:
    path = folder / clients.file
    until = STAMP_MAX if clients.for_s is None else clients.for_s * clients.speedup
    totals: dict[str, float] = {}
    first: dict[str, float] = {}
    columns = (clients.client_column, clients.start_column, clients.rate_column)
    for line, (client, start_text, rate_text) in read_cells(path, columns):
        start = number_of(path, line, clients.start_column, start_text, 0.0, STAMP_MAX)
        if start < until:
            first.setdefault(client, start)
            totals[client] = totals.get(client, 0.0) + number_of(path, line, clients.rate_column, rate_text, 0.0, 1e12)
    busiest = sorted(totals, key=lambda client: (-totals[client], client))
    wanted = len(names) if clients.most is None else min(clients.most, len(names))
    if len(busiest) < wanted:
        allowed = f"at most {len(busiest)}, as {path} has no more clients then; most: {len(busiest)} leaves the others none"
        raise FieldProblem(("clients", "most"), clients.most or len(names), allowed)
    return {model: _of_client(clients, client, first[client]) for model, client in zip(names, busiest[:wanted], strict=False)}


def _of_client(clients: ClientTraffic, client: str, first: float) -> Requests:
    # Rates of a file are read as beginning with their first window: this client's may come late.
    late_s = first / clients.speedup
    return RateRequests(
        file=clients.file,
        start_column=clients.start_column,
        rate_column=clients.rate_column,
        cv=clients.cv,
        where={clients.client_column: client},
        window_s=clients.window_s,
        scale=clients.scale,
        speedup=clients.speedup,
        begin_s=clients.begin_s + late_s,
        for_s=None if clients.for_s is None else clients.for_s - late_s,
        service_s=clients.service_s,
        tokens=clients.tokens,
    )
