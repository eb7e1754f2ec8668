"""The small charts of a sweep, side by side in one picture."""

import re
from collections.abc import Sequence

from executors.simulator.report.assets import asset
from executors.simulator.report.chart import HEIGHT, WIDTH, Chart, render_chart
from executors.simulator.report.stills.frame import LEFT, text, width_of
from executors.simulator.report.stills.frame import WIDTH as PICTURE
from executors.simulator.report.stills.picture import svg

_LINES = re.compile(r"^(?:\.c\d|polyline|\.bar|circle|\.rule|\.tick|\.place).*$", re.MULTILINE)


def render_charts(title: str, charts: Sequence[Chart], note: str) -> str:
    """A whole SVG file with all charts in a row, as `rankcore sweep` draws them on its page."""
    rules = "\n".join(line for line in _LINES.findall(asset("multiples.css")))
    room = (PICTURE - 16) / len(charts)
    wide = min(room - 12, WIDTH * 1.3)
    letters = f".chart text{{font-size:{11 * WIDTH / wide:.1f}px}}"  # however large the chart, the same as beside it
    parts = [f"<style>\n{rules}\n{letters}\n</style>", text(16, 24, title, "title")]
    tall = HEIGHT * wide / WIDTH
    for index, chart in enumerate(charts):
        x = 16 + index * room
        parts.append(text(x, 48, chart.title, "head"))
        place = f'class="chart" x="{x:.1f}" y="54" width="{wide:.1f}" height="{tall:.1f}"'
        parts.append(render_chart(chart).replace("<svg ", f"<svg {place} ", 1))
    bottom = 54 + tall + 16
    parts.append(text(16, bottom, note))
    x = 16 + width_of(note) + 24
    names = [name for name in charts[0].names if name]
    for index, name in enumerate(names):
        parts.append(f'<g class="c{index}"><polyline points="{x:.1f},{bottom - 4:.1f} {x + 26:.1f},{bottom - 4:.1f}"/></g>')
        parts.append(text(x + 32, bottom, name))
        x += 32 + width_of(name) + LEFT / 2
    return svg(title, parts, bottom + 14)
