"""A fleet on several nodes of a real cluster: one of them is lost, with weights on it."""

import pytest

from tests.fleet_models import WEIGHT_BYTES, Probe, write_weights
from tests.ray_local import ANSWER_S, add_node, eventually, several_nodes

pytestmark = pytest.mark.ray


@pytest.fixture
def nodes():
    """Two nodes that a model may stand on, and the head, which it may not."""
    with several_nodes() as cluster:
        yield cluster, [add_node(cluster, labels={"for": "models"}) for _ in range(2)]


def test_what_stood_on_a_lost_node_is_loaded_on_another(nodes, tmp_path):
    from executors.ray_gpu import residency

    cluster, workers = nodes
    path, answer = write_weights(tmp_path, "m", 3)
    residency.start(residency.FleetOptions(device="cpu", stand_in_gpu_bytes=(2 * WEIGHT_BYTES,), cache_bytes=0))
    try:
        residency.deploy(residency.Model(name="m", code=Probe, weights=path, node_labels={"for": "models"}, idempotent=True))
        assert residency.ModelHandle("m").remote().result(ANSWER_S) == pytest.approx(answer)
        (before,) = residency.where("m").replicas
        assert before.node_id in {worker.node_id for worker in workers}
        cluster.remove_node(next(worker for worker in workers if worker.node_id == before.node_id), allow_graceful=False)
        eventually(
            lambda: [(each.level, each.node_id != before.node_id) for each in residency.where("m").replicas] == [("HOT", True)],
            "it is HOT on the other node",
        )
        assert residency.ModelHandle("m").remote().result(ANSWER_S) == pytest.approx(answer)
        assert before.node_id not in {node.node_id for node in residency.standing().nodes}
    finally:
        residency.shutdown()
