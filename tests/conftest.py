"""Profiles of hypothesis, named by HYPOTHESIS_PROFILE: `ci`, the default, is deterministic, and so is `night`, of twice as many
examples; `explore` looks for new failures.
"""

import atexit
import functools
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.extent import PROFILE, examples

# Nothing here depends on the time: the machines that run this are shared, and speed is measured in bench/.
ANY_SPEED: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
DETERMINISTIC: dict[str, Any] = {**ANY_SPEED, "derandomize": True, "database": None}
settings.register_profile("ci", **DETERMINISTIC, max_examples=examples(100), print_blob=True)
settings.register_profile("night", **DETERMINISTIC, print_blob=True)
settings.register_profile("explore", **ANY_SPEED, max_examples=2_000, print_blob=True)
# Whether anything fails, and not what is the shortest way to it: for bugs that are planted on purpose.
settings.register_profile(
    "mutants",
    **DETERMINISTIC,
    phases=(Phase.explicit, Phase.generate),
    report_multiple_bugs=False,
)
settings.load_profile(PROFILE)

# Ray's own is 15: beside another suite, the replicas of a test would wait for a processor that is never free.
os.environ.setdefault("RAY_worker_niceness", "0")

# A program that a test runs, and that crashes, says in which function it did.
os.environ.setdefault("PYTHONFAULTHANDLER", "1")

# Where the names of what failed are kept for the end of `make test`; not inherited by the suites that tests start.
FAILURES = os.environ.pop("FAILURES_FILE", None)

# A suite that is started in the background, or with nohup, ignores these, and so would every command that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

ENDED: list[int] = []
"""The status with which a suite has ended, for `leave`; the handler of a process that came of a fork finds another's."""


def leave(suite: int) -> None:
    """End without the destructors of libraries: threads of Ray's run on into what these free, and end the process with SIGSEGV
    though all tests have passed (seen once in some forty runs).
    """
    if ENDED and os.getpid() == suite and "ray._raylet" in sys.modules:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ENDED[-1])


atexit.register(leave, os.getpid())  # the first that is registered is the last that runs


def pytest_sessionfinish(exitstatus: int) -> None:
    ENDED.append(int(exitstatus))


NAMES_AN_EXECUTOR = re.compile(r"^\s*(from|import) executors\b", re.MULTILINE)


@functools.cache
def is_traced(path: Path) -> bool:
    """Examples of the core alone. With those that are marked `traced`, of its checker and laws, they reach every branch of it.

    A tracer makes a test take two to six times as long: all others do without.
    """
    return path.parent.name == "unit" and NAMES_AN_EXECUTOR.search(path.read_text(encoding="utf-8")) is None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts Ray is marked: no two such tests run at once, since each finds the cluster that its machine started last.

    Unit tests start none, whatever they are about. What is traced is marked too.
    """
    for item in items:
        if is_traced(item.path):
            item.add_marker(pytest.mark.traced)
        if item.path.parent.name != "unit" and ("ray" in item.path.stem or "_ray_" in item.name):
            item.add_marker(pytest.mark.ray)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _keep_failure(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    _keep_failure(report)


def _keep_failure(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Written at once: a suite that is killed has its failures told too."""
    if FAILURES is None or not report.failed:
        return
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (crash.message if crash else report.longreprtext).strip().splitlines()
    told = [line[:200] for line in (lines[:2] if crash else lines[-2:])]
    with open(FAILURES, "a", encoding="utf-8") as file:
        file.write("\n    ".join([f"{report.nodeid} ({report.when})", *told]) + "\n")
