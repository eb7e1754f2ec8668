"""The conformance kit against replicas that are jobs of a real Slurm of three nodes."""

import os

import pytest

from rankcore.testing.conformance import CASES, CONTRACT, ConformanceTests
from tests.slurm_local import MISSING, REASON, local_slurm

pytestmark = [pytest.mark.skipif(bool(MISSING), reason=REASON), pytest.mark.night]
ALL = os.environ.get("CONFORMANCE") == "all"


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    with local_slurm(tmp_path_factory.mktemp("slurm") / "cluster") as found:
        yield found


class TestTheSlurmExecutor(ConformanceTests):
    deployments = CASES if ALL else CASES[::4]
    faulty_contract = CONTRACT if ALL else ()
    faulty_deployments = CASES if ALL else ()

    @pytest.fixture
    def bench(self, tmp_path, slurm):
        from tests.conformance.slurm import SlurmBench

        with SlurmBench(tmp_path, slurm) as bench:
            yield bench
