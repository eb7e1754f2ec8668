"""How long controllers and proxies may be silent before they are taken for hung. The cluster's environment may change it."""

import logging
import math
import os

LOG = logging.getLogger(__name__)

PROXY_SILENCE_S = "RANKCORE_PROXY_SILENCE_S"
CONTROLLER_SILENCE_S = "RANKCORE_CONTROLLER_SILENCE_S"
LEAST_S = 0.5


def proxy_silence_s() -> float:
    """Leaves time for another to start within 15 s."""
    return _chosen(PROXY_SILENCE_S, 9.0)


def controller_silence_s() -> float:
    """Ends a controller within 30 s."""
    return _chosen(CONTROLLER_SILENCE_S, 27.0)


def _chosen(variable: str, usual_s: float) -> float:
    text = os.environ.get(variable, "")
    try:
        found = float(text) if text else usual_s
    except ValueError:
        found = math.nan
    if not LEAST_S <= found < math.inf:
        LOG.warning("%s must be a number of seconds from %g on, got %r: it is %g", variable, LEAST_S, text[:80], usual_s)
        return usual_s
    return found
