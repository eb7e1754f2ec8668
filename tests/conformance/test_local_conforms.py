"""The conformance kit against replicas that are processes of this machine."""

import os

import pytest

from executors.local.bench import LocalBench
from rankcore.testing.conformance import CASES, CONTRACT, ConformanceTests

ALL = os.environ.get("CONFORMANCE") == "all"
"""`make conformance`. Else each deployment is disturbed twice, without crash and faults and with both; few lines meet them."""


class TestTheLocalExecutor(ConformanceTests):
    deployments = CASES if ALL else [case for case in CASES if not case.crash_controller]
    faulty_contract = CONTRACT if ALL else CONTRACT[::6]
    faulty_deployments = CASES if ALL else [case for case in CASES if case.crash_controller]
    seeds = (1, 2, 3) if ALL else (1,)

    @pytest.fixture
    def bench(self, tmp_path):
        with LocalBench(tmp_path) as bench:
            yield bench
