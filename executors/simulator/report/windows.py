"""What the page of a run shows of its windows: percentiles along the time, limits of objectives, and windows that missed one.

The layout is that of `assets/windows.js`, which reads it. Times are whole milliseconds; a value that is not there is one that
was never: too many of the window's requests had no answer.
"""

import math
from collections.abc import Iterable, Sequence

from executors.simulator.engines.pages import EnginePages
from executors.simulator.questions.held import ObjectiveHeld
from executors.simulator.record.flat_figures import number
from executors.simulator.record.windows import Windows
from executors.simulator.report.data import Json, milliseconds
from executors.simulator.run import RunResult
from executors.simulator.scenario.objectives import ATTAINMENT, FIGURES, PERCENTILES, SHARE, FigureKind, Reading

TITLES = {
    "latency_s": "latency, from arrival to end",
    "wait_s": "wait for a replica",
    "ttft_s": "time to the first token",
    "tpot_s": "time per further token",
}
OF_ENGINES = {
    "itl": ("time between tokens", "p50, p95, p99 of all gaps that ended in each", "s"),
    "batch": ("batch", "sequences that decode, the mean of the iterations that ended in each", ""),
    "kv": ("KV cache in use", "the mean of the time of iterations that ended in each", "%"),
    "line": ("waiting in replicas", "for a place in the batch, the most in any replica in each", ""),
}
"""Panels of engines: title, what it says of each stretch, unit."""
WIDTHS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 43_200, 86_400, 604_800)
WINDOWS_USUAL = 150
WINDOWS_MAX = 20_000
"""Of all panels of a page together; windows are drawn wider where there are more."""
SPANS_MAX = 1_000


def windows_data(result: RunResult, held: Sequence[ObjectiveHeld], longest_s: float | None = None) -> list[Json]:
    """Of each deployment, in their order: width and numbers of its windows, and the panels with a value for each.

    `longest_s`: how long the longest run of the page lasted, where there are several, so that all have windows as wide.
    """
    lasted_s = result.ended_at if longest_s is None else longest_s
    return [_deployment(result, figures.name, held, lasted_s) for figures in result.deployments]


def about_windows(panel: Json, width_ms: int) -> str:
    """What each value of a panel of windows is."""
    if "about" in panel:
        return f"{panel['about']} {number(panel['width'] / 1000)} s"
    limits = ("; dashed: the limit of an objective" if panel["limits"] else "") + (
        "; shaded: missed" if any(limit["missed"] for limit in panel["limits"]) else ""
    )
    never = "; a bar at the top: never" if any(None in line["values"] for line in panel["lines"]) else ""
    return f"of all requests that came in each {number(width_ms / 1000)} s{never}{limits}"


def _deployment(result: RunResult, name: str, held: Sequence[ObjectiveHeld], lasted_s: float) -> Json:
    figures = next(each for each in result.deployments if each.name == name)
    if not figures.requests.arrived:
        return {"width": 0, "at": [], "panels": [], "engine": []}
    ours = [each for each in held if each.deployment == name and each.goal.reading.figure.by_request]
    usual = ("ttft_s", "latency_s") if figures.engine is not None else ("latency_s",)
    shown_in = [(each, _panel_of(each.goal.reading)) for each in ours]
    panels = dict.fromkeys((*((name, False) for name in usual), *(panel for _, panel in shown_in)))
    asked = [each.windows.width_s for each in ours if each.windows is not None]
    shared = len(panels) * len(result.deployments)
    windows = Windows(result.felt[name], _width_s(asked, lasted_s, shared), result.ended_at)
    return {
        "width": milliseconds(windows.width_s),
        "at": windows.numbers,
        "engine": _engine(result.series[name].engine, result.ended_at),
        "panels": [_panel(windows, *panel, [each for each, its in shown_in if its == panel]) for panel in panels],
    }


def _engine(pages: EnginePages | None, ended_at: float) -> list[Json]:
    """Panels of what engines did in stretches of time of their own; those in which nothing ran are left out."""
    if pages is None:
        return []
    ran = [(number, page) for number, page in sorted(pages.pages.items()) if page.iterations]
    lines: dict[str, list[tuple[str, list[float | None]]]] = {
        "itl": [
            (name, [_plain(page.gaps.quantile_s(share) or 0.0) if page.gaps.counts else None for _, page in ran])
            for name, share in PERCENTILES.items()
        ],
        "batch": [("sequences", [_plain(page.decoded / page.iterations) for _, page in ran])],
        "kv": [
            ("in use", [_plain(100 * page.kv_share_ps / page.busy_ps) if page.busy_ps else None for _, page in ran]),
        ],
        "line": [("waiting", [float(page.longest_line) for _, page in ran])],
    }
    return [
        {
            "name": name,
            "title": title,
            "about": about,
            "unit": unit,
            "of": "engines",
            "width": milliseconds(pages.width_s),
            "at": [number for number, _ in ran],
            "lines": [{"name": label, "values": values} for label, values in lines[name]],
            "limits": [],
        }
        for name, (title, about, unit) in OF_ENGINES.items()
    ]


def _panel_of(reading: Reading) -> tuple[str, bool]:
    """A figure, and whether as a share: percentiles of one figure are in one panel, its count and its share are not."""
    return reading.figure.name, reading.before == SHARE or reading.figure.keys == ATTAINMENT


def _width_s(asked: Sequence[float], lasted_s: float, panels: int) -> float:
    """How wide a window is drawn: as wide as those of objectives, unless there are too many; else so that it looks well."""
    found = asked[0] if asked else next((each for each in WIDTHS_S if lasted_s <= WINDOWS_USUAL * each), WIDTHS_S[-1])
    while lasted_s / found * panels > WINDOWS_MAX:
        found *= 2
    return float(found)


def _panel(windows: Windows, name: str, is_share: bool, held: Sequence[ObjectiveHeld]) -> Json:
    figure, scale = FIGURES[name], 100 if is_share else 1
    before = SHARE if is_share and figure.kind is FigureKind.COUNT else ""
    numbers = windows.figures(figure.keys)
    unit = "%" if is_share else figure.unit
    return {
        "name": f"{name}-share" if is_share else name,
        "title": TITLES.get(name, f"share {name}" if before else name),
        "unit": unit,
        "of": "requests",
        "lines": [
            {"name": each or name, "values": [_plain(scale * figure.of(each, found)) for found in numbers]}
            for each in (PERCENTILES if figure.kind is FigureKind.TIMES else (before,))
        ],
        "limits": [_limit(each, scale, unit) for each in held],
    }


def _limit(held: ObjectiveHeld, scale: int, unit: str) -> Json:
    goal = held.goal
    spans = [] if held.windows is None else _joined((each.since, each.until) for each in held.windows.missed)
    return {
        "text": goal.text,
        "label": f"{goal.sign} {scale * goal.limit:g} {unit}".rstrip(),
        "value": scale * goal.limit,
        "held": held.held,
        "missed": [[milliseconds(since), milliseconds(until)] for since, until in spans[:SPANS_MAX]],
        "missed_left_out": max(0, len(spans) - SPANS_MAX),
    }


def _joined(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Neighbours as one."""
    found: list[tuple[float, float]] = []
    for since, until in spans:
        if found and found[-1][1] == since:
            found[-1] = found[-1][0], until
        else:
            found.append((since, until))
    return found


def _plain(value: float) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None
