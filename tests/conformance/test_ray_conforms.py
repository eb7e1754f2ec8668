"""The conformance suite against real replicas on a real Ray cluster of several raylets."""

import pytest

from rankcore.testing import conformance
from tests.conformance.on_ray import RayCluster, RaySystem
from tests.ray_local import clean_up

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster():
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")
    cluster = RayCluster()
    try:
        yield cluster
    finally:
        cluster.shutdown()


@pytest.mark.parametrize("case", conformance.CASES, ids=str)
def test_the_ray_executor_conforms(case, cluster, tmp_path):
    from executors import ray_gpu

    try:
        conformance.run(case, RaySystem(cluster, tmp_path))
    finally:
        clean_up(ray_gpu)
