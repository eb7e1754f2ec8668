"""The conformance kit against real replicas on a real Ray cluster of several raylets.

The deployments go by the whole system, with the controller that users have. For the lines of the contract, and for faults
between core and executor, the kit takes the controller's place at the `RayExecutor`.
"""

import os

import pytest

from rankcore.testing import conformance
from tests.conformance.on_ray import RayCluster, RaySystem
from tests.conformance.ray_bench import RayBench
from tests.ray_local import clean_up

pytestmark = pytest.mark.slow

ALL = os.environ.get("CONFORMANCE") == "all"
"""`make conformance`. Else some of the lines of each half, and few of them with faults."""

BY_NIGHT = ("new user config and then fewer",)
CASES = [case for case in conformance.CASES if ALL or (case.crash_controller and case.name not in BY_NIGHT)]
"""What happens while the controller crashes happens also where it does not."""


@pytest.fixture(scope="module")
def cluster():
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")
    cluster = RayCluster()
    try:
        yield cluster
    finally:
        cluster.shutdown()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_ray_executor_conforms(case, cluster, tmp_path):
    from executors import ray_gpu

    try:
        conformance.run(case, RaySystem(cluster, tmp_path))
    finally:
        clean_up(ray_gpu)


class TestTheExecutorOfRay(conformance.ConformanceTests):
    contract = conformance.CONTRACT if ALL else conformance.CONTRACT[::6]
    deployments = conformance.CASES if ALL else [case for case in conformance.CASES if str(case) == "crash of one"]
    faulty_contract = conformance.CONTRACT if ALL else conformance.CONTRACT[2::28]
    faulty_deployments = conformance.CASES if ALL else [case for case in conformance.CASES if str(case) == "crash of one"]

    @pytest.fixture
    def bench(self, cluster, tmp_path):
        with RayBench(cluster, tmp_path) as bench:
            yield bench
