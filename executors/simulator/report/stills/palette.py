"""The colours of the report, for pictures that have to be readable on a light page and on a dark one."""

import re
from collections.abc import Iterator

from executors.simulator.report.assets import asset

COLOURS = 6
"""Of replicas: `--c0` to `--c5` of `tokens.css`."""

BRIGHT = 0.2
"""From this relative luminance on, dark letters can be read better than light ones, as in `paint.js`."""

_COLOUR = re.compile(r"--([a-z0-9-]+): (#[0-9a-f]{6})")
_FONT = re.compile(r"--sans: ([^;]+);")

_RULES = """\
text{font:11px var(--sans);font-variant-numeric:tabular-nums;fill:var(--soft)}
.title{font-size:13px;font-weight:600;fill:var(--ink)}.head{font-weight:600;fill:var(--ink)}.strong{fill:var(--ink)}
.paper{fill:var(--card);stroke:var(--line)}.card{fill:var(--card)}.lane{fill:var(--lane)}.rule{fill:var(--line)}
.vacant{fill:var(--bad);opacity:.24}.frame{fill:var(--bad)}.why{fill:var(--bad-ink)}
.wait{fill:none;stroke:var(--soft);stroke-dasharray:4 3}.size{fill:none;stroke:var(--ink);stroke-width:1.5}
.want{fill:none;stroke:var(--ink);stroke-width:1.25;stroke-dasharray:5 3}
.ctl{fill:var(--controller);opacity:.16}
.pin{stroke-width:1;stroke-dasharray:3 3}
.fault{fill:var(--bad);stroke:var(--bad)}.change{fill:var(--change);stroke:var(--change)}
.controller{fill:var(--controller);stroke:var(--controller)}
.band{opacity:.2}.down{fill:var(--bad)}.waiting{fill:var(--change)}.running{fill:var(--good)}
.mean{fill:none;stroke-width:1.6;stroke-linejoin:round}.mean.down{stroke:var(--bad)}.mean.waiting{stroke:var(--change)}
.mean.running{stroke:var(--good)}
"""


def styles() -> str:
    """Rules for every class that the pictures use, with other colours where the reader prefers a dark page."""
    light, dark = _themes()
    (font,) = _FONT.findall(asset("tokens.css"))
    colours = "".join(f".c{index}{{fill:var(--c{index})}}" for index in range(COLOURS))
    return (
        f":root{{color-scheme:light dark;--sans:{font};{_declared(light)}}}\n"
        f"@media (prefers-color-scheme:dark){{:root{{{_declared(dark)}}}}}\n{_RULES}{colours}\n"
        f"{''.join(_letters(light))}\n@media (prefers-color-scheme:dark){{{''.join(_letters(dark))}}}\n"
    )


def pattern(phase: str, colour: int) -> str:
    """The fill of a replica of this colour while it does not simply serve."""
    every, width, stripe, ground = {
        "starting": (6.0, 1.6, f"var(--c{colour})", 0.22),
        "draining": (5.0, 1.5, "var(--card)", 0.5),
        "moving": (7.0, 3.2, "var(--moving)", 1.0),
        "reconfiguring": (5.0, 1.3, "var(--card)", 1.0),
        "hung": (6.0, 3.0, "var(--bad)", 1.0),
        "unready": (6.0, 3.0, "var(--soft)", 1.0),
    }[phase]
    turn = -45 if phase == "draining" else 45
    return (
        f'<pattern id="{phase}{colour}" width="{every:g}" height="{every:g}" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate({turn})"><rect class="card" width="{every:g}" height="{every:g}"/>'
        f'<rect class="c{colour}" width="{every:g}" height="{every:g}" opacity="{ground:g}"/>'
        f'<rect width="{width:g}" height="{every:g}" style="fill:{stripe}"/></pattern>'
    )


def _themes() -> tuple[dict[str, str], dict[str, str]]:
    """The colours of a light page, and those that a dark one has instead."""
    light_text, _, rest = asset("tokens.css").partition("@media (prefers-color-scheme: dark)")
    dark_text = rest.partition(":root[data-theme")[0]
    return dict(_COLOUR.findall(light_text)), dict(_COLOUR.findall(dark_text))


def _declared(colours: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in colours.items())


def _letters(colours: dict[str, str]) -> Iterator[str]:
    """For each colour of a replica, letters that can be read on it."""
    for index in range(COLOURS):
        yield f".on{index}{{fill:{'#14181c' if _luminance(colours[f'c{index}']) > BRIGHT else '#ffffff'}}}"


def _luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
