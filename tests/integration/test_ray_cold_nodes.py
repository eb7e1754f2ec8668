"""Weights that may be COLD on several nodes (raylets on one machine), of which one is lost in the middle of a load."""

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'rankcore[torch]'")

from tests.fleet_models import WEIGHT_BYTES, write_weights
from tests.ray_local import ANSWER_S, add_node, clean_up, eventually, several_nodes

pytestmark = pytest.mark.slow

FOR_WEIGHTS = {"role": "weights"}


@pytest.fixture
def cluster():
    from executors import ray_gpu

    with several_nodes() as cluster:
        ray_gpu.start(
            memory={"device": "cpu", "stand_in_gpu_bytes": (WEIGHT_BYTES,), "cache_bytes": 2 * WEIGHT_BYTES},
            proxy_location="Disabled",
        )
        yield cluster
        clean_up(ray_gpu)


def loading():
    """The nodes where a load is under way."""
    import ray

    from executors.ray_gpu.discovery import find_workers

    found = []
    for _, actor in find_workers("rankcore").values():
        try:
            report = ray.get(actor.describe.remote(), timeout=ANSWER_S)
        except ray.exceptions.RayError:
            continue
        if report.moving and report.progress.bytes_done:
            found.append(report.node_id)
    return found


@pytest.mark.night
def test_who_waits_for_a_load_on_a_node_that_is_lost_is_answered_from_another_one(cluster, tmp_path):
    from executors import ray_gpu
    from tests.tenures import Tenured

    nodes = {node.node_id: node for node in (add_node(cluster, labels=FOR_WEIGHTS) for _ in range(2))}
    path, answer = write_weights(tmp_path, "m", 1)
    residency = ray_gpu.Residency(weights=path, node_labels=FOR_WEIGHTS)
    handle = ray_gpu.run(
        Tenured.options(residency=residency, user_config="v1", start_backoff_s=0.05).bind(str(tmp_path)), route_prefix=None
    )
    hold = tmp_path / "hold"
    hold.touch()
    waiting = handle.total.remote()
    (lost,) = eventually(loading, "it loads")
    cluster.remove_node(nodes[lost], allow_graceful=False)
    (other,) = eventually(lambda: [each for each in loading() if each != lost], "it loads elsewhere")
    assert other in nodes
    hold.unlink()
    assert waiting.result(ANSWER_S) == pytest.approx(answer)
    info = ray_gpu.status().deployments["Tenured"]
    eventually(lambda: ray_gpu.status().deployments["Tenured"].status == "HEALTHY", "it is healthy")
    assert [each.node_id for each in info.replicas] == [other]
