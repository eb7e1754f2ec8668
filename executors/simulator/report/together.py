"""A page of two to four runs on one time axis.

A chart has a line for each run, and below it a strip with what each other run has more, or less, than the first. Lanes of
ranks and nodes are drawn once where they are the same in all runs, and else once for each, by default only those that
differ. A line of the list that stands in every run is one line; another one says of which runs it is.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from types import MappingProxyType

import attrs

from executors.simulator.questions.held import ObjectiveHeld
from executors.simulator.report.assets import asset
from executors.simulator.report.data import Json, milliseconds, page_data, row_cells
from executors.simulator.report.happened import HappenedRow, rows_of
from executors.simulator.report.page import LEGEND, not_drawn
from executors.simulator.report.page import SCRIPTS as SCRIPTS_OF_ONE
from executors.simulator.report.parts import LIST, OVERLAYS, header, panel, timeline, whole_page
from executors.simulator.report.verdict import Verdict
from executors.simulator.report.windows import about_windows, windows_data
from executors.simulator.run import RunResult

LETTERS = "ABCD"
RUNS_MAX = len(LETTERS)

SCRIPTS = (*SCRIPTS_OF_ONE[:-1], "together_model", "difference", "together_windows", "together_main")

DIFFERING = '<input type="checkbox" id="eventful"$checked> only lanes that differ'

CHARTS = (
    ("running", "replicas running", "dashed: the world size; dotted, one of each run, where it is not the same"),
    ("waiting", "requests waiting", "mean, and the range within each stretch of time"),
    ("latency", "latency", "seconds, of requests that ended then"),
    ("wait", "wait", "seconds, of requests that ended then"),
)
"""Name of each chart, its title, and what it shows; all but the first are of requests."""


@attrs.frozen
class NamedRun:
    """One of the runs, what the page calls it, and whether objectives held in it."""

    name: str
    result: RunResult
    held: Sequence[ObjectiveHeld] = ()


@attrs.frozen(kw_only=True)
class Telling:
    """What a page says around its picture.

    Attributes:
        verdict: The sentence below the title; None: there is none.
        figures: HTML between the header and the picture.
        after: HTML behind the list of what happened.
        about: The last words, in plain text.
        limits: What an objective allows, by the name of the chart in which it is a line.
        rerun: The command that gives the page again.
        command: The name of that command, for the line above the title.
    """

    title: str
    verdict: Verdict | None = None
    facts: Sequence[tuple[str, str]]
    figures: str
    after: str = ""
    about: str
    limits: Mapping[str, float] = MappingProxyType({})
    rerun: str
    command: str


def render_together(runs: Sequence[NamedRun], telling: Telling) -> str:
    """The whole page, with nothing outside it. The same runs give the same bytes."""
    assert 2 <= len(runs) <= RUNS_MAX, f"{len(runs)} runs"
    data = {**_data(runs), "limits": dict(telling.limits)}
    body = "\n".join(
        (
            '<main id="report" class="together">',
            header(telling.title, telling.verdict, telling.facts, telling.rerun, telling.command, _names(runs)),
            telling.figures,
            timeline(_legend(runs), _panels(runs, data), _choice(data)),
            LIST,
            telling.after,
            f"<footer>{not_drawn(data['runs'])}<p>{escape(telling.about)}</p></footer>",
            "</main>",
            OVERLAYS,
        )
    )
    return whole_page(telling.title, body, SCRIPTS, data, asset("together.css"))


def _names(runs: Sequence[NamedRun]) -> str:
    """Which line is whose."""
    listed = "".join(
        f"<li>{_line(place)}<b>{LETTERS[place]}</b> <span>{escape(run.name)}</span></li>" for place, run in enumerate(runs)
    )
    return f'<ul class="runs" aria-label="runs">{listed}</ul>'


def _legend(runs: Sequence[NamedRun]) -> str:
    """That of a page of one run, with the lines of all before it."""
    start, first, rest = LEGEND.partition("<li>")
    lines = "".join(f"<li>{_line(place)}run {LETTERS[place]}</li>" for place, _ in enumerate(runs))
    return f"{start}{lines}{first}{rest}"


def _line(place: int) -> str:
    """How the line of a run looks."""
    return f'<svg class="k-line run{place}" viewBox="0 0 34 10" aria-hidden="true"><path d="M0 5H34"/></svg>'


def _data(runs: Sequence[NamedRun]) -> Json:
    """In the layout of `assets/together_model.js`."""
    told = [rows_of(run.result) for run in runs]
    names = list(dict.fromkeys(figures.name for run in runs for figures in run.result.deployments))
    found = [page_data(run.result, len(runs)) for run in runs]
    longest_s = max(run.result.ended_at for run in runs)
    for letter, run, each in zip(LETTERS, runs, found, strict=False):
        del each["rows"]
        each["letter"] = letter
        each["windows"] = windows_data(run.result, run.held, longest_s)
    return {
        "version": 1,
        "end": milliseconds(longest_s),
        "began": _began(runs),
        "deployments": names,
        "runs": found,
        "rows": [[letters, *row_cells(row, names)] for letters, row in _merged([rows for rows, _ in told])],
        "left_out": {"rows": sum(left_out for _, left_out in told)},
    }


def _began(runs: Sequence[NamedRun]) -> int | None:
    """The time of day at 0, where it is known and the same for all."""
    first, *others = (run.result.unix_s_at_0 for run in runs)
    return None if first is None or any(each != first for each in others) else milliseconds(first)


def _merged(told: Sequence[Sequence[HappenedRow]]) -> list[tuple[str, HappenedRow]]:
    """The rows of all runs by time, each with the letters of the runs in which it stands; the n-th of equal ones is one row."""
    letters_of: dict[tuple[HappenedRow, int], str] = {}
    for letter, rows in zip(LETTERS, told, strict=False):
        seen: dict[HappenedRow, int] = {}
        for row in rows:
            nth = seen[row] = seen.get(row, 0) + 1
            letters_of[row, nth] = letters_of.get((row, nth), "") + letter
    return sorted(((letters, row) for (row, _), letters in letters_of.items()), key=lambda found: found[1].at)


def _panels(runs: Sequence[NamedRun], data: Json) -> Iterable[str]:
    yield panel("overview", "", "")
    yield panel("axis", "", "")
    for index, name in enumerate(data["deployments"]):
        whose = f" of {name}" if len(data["deployments"]) > 1 else ""
        have = [place for place, run in enumerate(runs) if any(figures.name == name for figures in run.result.deployments)]
        charts = CHARTS[: None if _is_asked(runs, name) else 1]
        for chart, title, about in (*charts, *_windows([_of(data["runs"][place], name) for place in have])):
            yield panel(chart, title + whose, about, index)
            if len(have) > 1:
                minus = ", ".join(f"{LETTERS[place]} - {LETTERS[have[0]]}" for place in have[1:])
                yield panel(f"{chart}-difference", minus, "", index)
        lanes = {place: _lanes(data["runs"][place], name) for place in have}
        yield from _lanes_of("ranks", f"ranks{whose}", "who held each rank; those below the line are wanted", lanes, index)
    nodes = {place: {**each, "series": None, "letter": None, "windows": None} for place, each in enumerate(data["runs"])}
    about = "what stood on each node; hatched while it was down or cut off"
    yield from _lanes_of("nodes", "nodes", about, {place: _nodes(each) for place, each in nodes.items()})


def _of(data: Json, name: str) -> Json:
    """The windows of a deployment in one run."""
    (found,) = (windows for each, windows in zip(data["deployments"], data["windows"], strict=True) if each["name"] == name)
    return dict(found)


def _windows(windows: Sequence[Json]) -> Iterable[tuple[str, str, str]]:
    """The panels of windows that any run has, as `CHARTS`."""
    found: dict[str, tuple[str, str, str]] = {}
    for each in windows:
        for shown in (*each["panels"], *each["engine"]):
            several, last = len(shown["lines"]) > 1, shown["lines"][-1]["name"]
            about = about_windows(shown, each["width"]).replace("p50, p95, p99", last)
            about = f"{last} {about}" if several and not about.startswith(last) else about
            found.setdefault(shown["name"], (f"window-{shown['name']}", shown["title"], about))
    return found.values()


def _is_asked(runs: Sequence[NamedRun], name: str) -> bool:
    """Whether requests came to a deployment, in any run."""
    return any(figures.requests.arrived for run in runs for figures in run.result.deployments if figures.name == name)


def _lanes(data: Json, name: str) -> Json:
    """All that the lanes of a deployment are drawn from."""
    (found,) = (each for each in data["deployments"] if each["name"] == name)
    return {"nodes": data["nodes"], **{key: value for key, value in found.items() if key != "series"}}


def _nodes(data: Json) -> Json:
    """All that the lanes of nodes are drawn from."""
    lanes = [_lanes(data, each["name"]) for each in data["deployments"]]
    return {"nodes": data["nodes"], "outages": data["outages"], "deployments": lanes}


def _lanes_of(name: str, title: str, about: str, lanes: dict[int, Json], deployment: int | None = None) -> Iterable[str]:
    """One panel if all runs have the same lanes, else one of each."""
    first, *others = lanes
    if all(lanes[place] == lanes[first] for place in others):
        letters = ", ".join(LETTERS[place] for place in lanes)
        same = f"the same in {letters}: {about}" if others else f"only in {letters}: {about}"
        yield panel(name, title, same, deployment, first)
        return
    for place in lanes:
        yield panel(name, f"{LETTERS[place]}: {title}", about, deployment, place)


def _choice(data: Json) -> str:
    """Whether lanes that are the same are hidden at first: where some are, and others are not."""
    same = all(_nodes(each) == _nodes(data["runs"][0]) for each in data["runs"])
    return DIFFERING.replace("$checked", "" if same else " checked")
