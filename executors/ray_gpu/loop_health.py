"""How the controller keeps up, in the fields of Ray Serve's controller: `rankcore controller-health`.

A turn of Serve's loop is here a step of the machine, which is taken when an event comes and not ten times a second. What
Serve's loop does in parts, a step does as a whole, so the parts have no times of their own (`NOT_MEASURED`). Whether the
process has a moment to spare is measured by itself: by how late a short sleep ends.
"""

import asyncio
import math
import resource
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

STEPS_KEPT = 100
REPORTS_KEPT = 2000
SLEEP_S = 1.0
"""Between two looks at how late the event loop is."""
NOT_MEASURED = (
    "deployment_state_update_duration_s",
    "application_state_update_duration_s",
    "proxy_state_update_duration_s",
    "node_update_duration_s",
    "replica_ingest_duration_ms",  # replicas report no load: who calls them does
    "metrics_decompress_duration_ms",
    "columnar_decode_duration_ms",
    "handle_metrics_delay_ms",
    "replica_metrics_delay_ms",
)


class ControllerHealth:
    """Counts on the controller's event loop.

    Args:
        monotonic, wall: Clocks, in seconds.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self._monotonic, self._wall = monotonic, wall
        self._began, self._began_at = monotonic(), wall()
        self._steps: deque[float] = deque(maxlen=STEPS_KEPT)
        self._step_count, self._step_at = 0, 0.0
        self._reports: deque[tuple[float, float]] = deque(maxlen=REPORTS_KEPT)  # when, and how long
        self._report_count = 0
        self._slept_s = SLEEP_S
        self._looking: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Look how late the event loop is, from now on to the end of this process."""
        self._looking = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        while True:
            began = self._monotonic()
            await asyncio.sleep(SLEEP_S)
            self._slept_s = self._monotonic() - began

    def step(self, took_s: float) -> None:
        """A step has been taken."""
        self._steps.append(took_s)
        self._step_count, self._step_at = self._step_count + 1, self._wall()

    def report(self, took_s: float) -> None:
        """A report of load has been taken in."""
        self._reports.append((self._monotonic(), took_s))
        self._report_count += 1

    def read(self) -> dict[str, Any]:
        """All of it."""
        uptime_s = self._monotonic() - self._began
        reports = [took_s for _, took_s in self._reports]
        over_s = self._monotonic() - self._reports[0][0] if self._reports else uptime_s
        return {
            "timestamp": self._wall(),
            "controller_start_time": self._began_at,
            "uptime_s": uptime_s,
            "last_control_loop_time": self._step_at,
            "num_control_loops": self._step_count,
            "loop_duration_s": _spread(self._steps),
            "loops_per_second": self._step_count / uptime_s if uptime_s > 0 else 0.0,
            "last_sleep_duration_s": self._slept_s,
            "expected_sleep_duration_s": SLEEP_S,
            "event_loop_delay_s": max(0.0, self._slept_s - SLEEP_S),
            "num_asyncio_tasks": len(asyncio.all_tasks()),
            "handle_ingest_duration_ms": _spread([1000.0 * each for each in reports]),
            "handle_reports_received": self._report_count,
            "replica_reports_received": 0,
            "ingest_reports_received": self._report_count,
            "ingest_cpu_fraction": sum(reports) / over_s if over_s > 0 else 0.0,
            **dict.fromkeys(NOT_MEASURED),
            "process_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            / (2**20 if sys.platform == "darwin" else 2**10),
        }


def _spread(values: "deque[float] | list[float]") -> dict[str, float]:
    if not values:
        return dict.fromkeys(("mean", "std", "min", "max"), 0.0)
    mean = math.fsum(values) / len(values)
    return {
        "mean": mean,
        "std": math.sqrt(math.fsum((each - mean) ** 2 for each in values) / len(values)),
        "min": min(values),
        "max": max(values),
    }
