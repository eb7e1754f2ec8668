"""The conformance kit against replicas that are jobs of a real Slurm of three nodes."""

import os

import pytest

from rankcore.testing.conformance import CASES, CONTRACT, ConformanceTests
from tests.conformance.slurm import LoopbackBench, slurm
from tests.slurm_local import MISSING, REASON

__all__ = ["slurm"]
pytestmark = [pytest.mark.skipif(bool(MISSING), reason=REASON), pytest.mark.night]
ALL = os.environ.get("CONFORMANCE") == "all"


class TestTheSlurmExecutor(ConformanceTests):
    deployments = CASES if ALL else CASES[::4]
    faulty_contract = CONTRACT if ALL else ()
    faulty_deployments = CASES if ALL else ()

    @pytest.fixture
    def bench(self, tmp_path, slurm):
        with LoopbackBench(tmp_path, slurm) as bench:
            yield bench
