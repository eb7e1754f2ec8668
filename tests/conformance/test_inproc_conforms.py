"""The conformance suite against a cluster in one process, whose controller cannot crash without its replicas."""

import pytest

from executors.inproc.workers import WorkersHere
from rankcore.testing import conformance
from tests.conformance.inproc import InprocSystem

PREPARING = (
    "update by successors that are prepared",
    "update by successors that overlap",
    "version that cannot be prepared",
)
"""Workers' ranks are handed over with no successor beside them: there, `hand_over` is refused."""
CASES = [case for case in conformance.CASES if not case.crash_controller and case.name not in PREPARING]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_cluster_in_one_process_conforms(case):
    with InprocSystem() as system:
        conformance.run(case, system)


def test_a_worker_that_never_gives_its_rank_up_does_not_conform(monkeypatch):
    monkeypatch.setattr(WorkersHere, "_end_tenure", lambda *_: None)
    monkeypatch.setattr("tests.conformance.inproc.PATIENCE_S", 2.0)
    (case,) = [case for case in CASES if str(case) == "downscale with compaction"]
    with InprocSystem() as system, pytest.raises(conformance.NonconformityError, match="is draining"):
        conformance.run(case, system)
