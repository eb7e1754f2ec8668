"""What a trace file is: how many rows over how long, how they are spread, what is in its columns, and what looks wrong with it.

Read with the very keys with which a scenario would read it, so that what is described is what would be replayed.
"""

import json
import math
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import attrs

from executors.simulator.fields import FieldProblem
from executors.simulator.load.arrivals import Arrivals
from executors.simulator.load.csvfile import TraceError
from executors.simulator.load.presets import FAULTS, PRESETS, RATES, REQUESTS
from executors.simulator.load.stamps import UNITS_S
from executors.simulator.load.table import Counts, Kind, Numbers, Reading, Table, Words, read_table
from executors.simulator.scenario.errors import ScenarioError, path_text
from executors.simulator.scenario.loading import load_arrivals, parse_scenario
from executors.simulator.scenario.model import Scenario
from executors.simulator.scenario.requests import TOKEN_TIMES, RateRequests, TraceRequests
from executors.simulator.scenario.workload import ignored_in, request_columns, service_in

DAY_S = 86_400.0
SHORT_ROWS, SHORT_S = 100, 1.0
LONG_S = 400 * DAY_S
RATE_MAX_PER_S, RATE_MIN_PER_S = 10_000.0, 1 / DAY_S
COARSE_SHARE = 0.99
GAP_SHARE = 0.25
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


@attrs.frozen
class Warned:
    """Something that looks wrong.

    Attributes:
        kind: In a word.
    """

    kind: str
    text: str


@attrs.frozen(kw_only=True)
class Description:
    """Of a file.

    Attributes:
        about: What the preset is of; None: no preset.
        span_s: From the first row to the last.
        rate_per_s: Rows per second; None: all at once.
        cv: Coefficient of variation of the times between rows: 1 is Poisson, more comes in bursts; None: as for the rate.
        columns: Of each column of numbers, by its name here: p50, p90, p99, max and mean.
        names: Of each column of names, how many there are.
        notes: What was left out, sorted or not read.
    """

    file: str
    about: str | None
    rows: int
    span_s: float
    rate_per_s: float | None
    cv: float | None
    columns: Mapping[str, Mapping[str, float]]
    names: Mapping[str, int]
    notes: tuple[str, ...]
    warnings: tuple[Warned, ...]


def describe(path: Path, preset: str | None, keys: Mapping[str, Any]) -> Description:
    """Read a file and sum it up.

    Args:
        keys: Further keys of whoever reads such a file in a scenario, such as `time_unit`.

    Raises:
        ScenarioError: One line that says where, what was found and what is allowed.
    """
    if preset is not None and preset not in PRESETS:
        raise ScenarioError(f"--preset: expected one of {', '.join(PRESETS)}, found {preset!r}")
    scenario = _scenario(path, preset, keys)
    try:
        found = _read(path, scenario, keys.get("columns") or {})
    except TraceError as error:
        raise ScenarioError(str(error)) from None
    except FieldProblem as problem:
        raise ScenarioError(f"{path_text(problem.keys)}: {problem}") from None
    return _summed_up(path, preset, found)


def arrivals_of(path: Path, preset: str | None, keys: Mapping[str, Any]) -> Arrivals:
    """The requests of a file, as a scenario would have them.

    Raises:
        ScenarioError: As `describe`.
    """
    if preset is not None and preset not in REQUESTS:
        raise ScenarioError(f"--preset: expected one of {', '.join(REQUESTS)}, found {preset!r}")
    if "model" in (keys.get("columns") or {}):
        raise ScenarioError("--set: columns.model: expected nothing, as all calls go to one application: where chooses rows")
    (found,) = load_arrivals(_scenario(path, preset, keys), path.parent, 0).values()
    return found


@attrs.frozen
class _Found:
    table: Table
    kinds: Mapping[str, Kind]
    time_unit: str | None
    of_requests: bool


def _scenario(path: Path, preset: str | None, keys: Mapping[str, Any]) -> Scenario:
    """One that reads the file; JSON is YAML."""
    place = "fault_trace" if preset in FAULTS else "rates" if preset in RATES else "trace"
    form = {"file": path.name, **({} if preset is None else {"preset": preset}), **keys}
    named = keys.get("columns")
    says_it = (isinstance(named, Mapping) and "service" in named) or not keys.keys().isdisjoint((*TOKEN_TIMES, "service_s"))
    if place != "fault_trace" and not says_it:
        form["service_s"] = 0
    deployment: dict[str, Any] = {"name": "described", "target_replicas": 1}
    scenario: dict[str, Any] = {"nodes": [{"name": "node", "count": 1, "gpus": 1}], "deployments": [deployment]}
    if place == "fault_trace":
        scenario[place] = form
    else:
        deployment["requests"] = {place: form}
    return parse_scenario(json.dumps(scenario), "--set")


def _read(path: Path, scenario: Scenario, named: Mapping[str, str]) -> _Found:
    requests, faults = scenario.deployments[0].requests, scenario.fault_trace
    kinds: dict[str, tuple[str, Kind]]
    if faults is not None:
        kinds = {"node": (faults.node_column, Words("node")), "event": (faults.event_column, Words("event"))}
        return _of(path, faults.form.reading, kinds, (), of_requests=False)
    if isinstance(requests, RateRequests):
        kinds = {"rate": (requests.rate_column, Numbers(0.0, 1e12))}
        if requests.cv_column is not None:
            kinds["cv"] = (requests.cv_column, Numbers(0.0, 1e12))
        return _of(path, requests.reading, kinds, (), of_requests=False)
    assert isinstance(requests, TraceRequests), "the scenario has one of these"
    kinds = request_columns(requests)
    optional = [key for key in kinds if key not in named or key in requests.may_lack]
    found = _of(path, requests.reading(0, "described"), kinds, optional, of_requests=True)
    cells = dict(found.table.cells)
    if "service" in cells:
        cells["service"] = service_in(path, requests, found.table)
        cells.pop("began", None)
    table = attrs.evolve(found.table, cells=cells, notes=(*found.table.notes, *ignored_in(path, requests)))
    return attrs.evolve(found, table=table)


def _of(path: Path, reading: Reading, kinds: dict[str, tuple[str, Kind]], optional: Sequence[str], of_requests: bool) -> _Found:
    table = read_table(path, reading, kinds, optional)
    return _Found(table, {key: kind for key, (_, kind) in kinds.items()}, reading.time_unit, of_requests)


def _summed_up(path: Path, preset: str | None, found: _Found) -> Description:
    table = found.table
    gaps_s = array("d", (after - before for before, after in pairwise(table.after_s)))
    span_s = table.after_s[-1] - table.after_s[0]
    cells = {key: values for key, values in table.cells.items() if not isinstance(found.kinds[key], Words)}
    return Description(
        file=str(path),
        about=None if preset is None else f"{preset}: {PRESETS[preset].about}",
        rows=len(table),
        span_s=span_s,
        rate_per_s=len(gaps_s) / span_s if span_s else None,
        cv=_cv(gaps_s) if span_s else None,
        columns={key: _spread(values) for key, values in cells.items()},
        names={key: len(set(table.cells[key])) for key in table.cells if key not in cells},
        notes=table.notes,
        warnings=tuple(_warnings(found, gaps_s, span_s)),
    )


def _cv(gaps_s: "array[float]") -> float:
    """Of ten million of them, in constant memory."""
    mean_s = fmean(gaps_s)
    return math.sqrt(math.fsum((each - mean_s) ** 2 for each in gaps_s) / len(gaps_s)) / mean_s


def _spread(values: "array[Any]") -> dict[str, float]:
    at, last = _in_order(values), len(values) - 1
    return {**{key: at(round(share * last)) for key, share in SHARES.items()}, "max": at(last), "mean": fmean(values)}


def _in_order(values: "array[Any]") -> Callable[[int], float]:
    """Which value is the n-th; many requests have the same number of tokens, so that these are counted and not sorted."""
    if values.typecode != Counts.CODE:
        return sorted(values).__getitem__
    counted = sorted(Counter(values).items())
    upto = list(accumulate(count for _, count in counted))
    return lambda place: counted[bisect_right(upto, place)][0]


def _warnings(found: _Found, gaps_s: "array[float]", span_s: float) -> list[Warned]:
    rows, warned = len(gaps_s) + 1, []
    if rows > SHORT_ROWS and span_s < SHORT_S:
        warned.append(Warned("unit_suspect", f"{rows:,} rows within {span_s:g} s: is time_unit right?"))
    if span_s > LONG_S:
        warned.append(Warned("unit_suspect", f"{span_s / DAY_S:,.0f} days: is time_unit right?"))
    if found.of_requests and gaps_s and not RATE_MIN_PER_S <= len(gaps_s) / max(span_s, 1e-9) <= RATE_MAX_PER_S:
        text = f"{len(gaps_s) / max(span_s, 1e-9):.3g} requests/s: is time_unit right, and is each row one request?"
        warned.append(Warned("rate_suspect", text))
    whole_s = max(float(UNITS_S.get(found.time_unit or "s", 1)), 1.0)
    whole = sum(1 for each in found.table.after_s if each % whole_s == 0.0)
    if found.of_requests and gaps_s and whole > COARSE_SHARE * rows:
        units = "seconds" if whole_s == 1.0 else found.time_unit
        warned.append(Warned("coarse_times", f"{whole / rows:.1%} of the times are whole {units}: jitter_s spreads them"))
    gap_s = max(gaps_s, default=0.0)
    if len(gaps_s) > 1 and gap_s > GAP_SHARE * span_s:
        warned.append(Warned("gap", f"{gap_s:,.4g} s without a row, {gap_s / span_s:.0%} of the span"))
    return warned
