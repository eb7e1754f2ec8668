"""The live page: one file with all that it needs and nothing of the cluster in it; it asks this server and no other."""

from functools import lru_cache
from importlib.resources import files

from executors.simulator.report.assets import asset, document

SHARED = ("common", "view", "paint", "phases", "tooltip")
"""What the page has in common with the reports of the simulator."""
OWN = ("live_model", "live_stream", "live_draw", "live_tables", "live_whatif", "live_main")
HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""What it may load and run it says itself (`document`)."""
_FOLDER = files("executors.ray_gpu.rest") / "assets"


@lru_cache(maxsize=1)
def live_page() -> bytes:
    """The page, as it is sent."""
    parts = [*(asset(f"{name}.js") for name in SHARED), *(_own(f"{name}.js") for name in OWN)]
    script = '"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n"
    styles = asset("tokens.css") + _own("live.css")
    return document("rankcore live", styles=styles, body=_own("live.html"), script=script, may_ask=True).encode()


def _own(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
