"""A small Ray cluster on this machine for the tests of one module, and what such tests wait with.

Only a failing test waits as long as the limits here, so they are those of a machine that is ten times slower, and busy.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

OBJECT_STORE_BYTES = 80 * 1024 * 1024
PATIENCE_S = 240.0
ANSWER_S = 120.0
"""For one call of a handle."""


def start_ray(num_cpus: int = 4, **options: Any) -> None:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # listens on 127.0.0.1 alone
    import ray
    from ray._private import ray_constants

    ray_constants.ENABLE_RAY_CLUSTER = False  # the variable is read when ray is imported
    ray.init(
        address="local",
        num_cpus=num_cpus,
        object_store_memory=OBJECT_STORE_BYTES,
        include_dashboard=False,
        logging_level="warning",
        _node_ip_address="127.0.0.1",
        **{"log_to_driver": False, **options},
    )


QUICK_TO_NOTICE = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 300,
    "health_check_timeout_ms": 20_000,
    "health_check_failure_threshold": 3,
}
"""A raylet that was killed refuses connections, which is noticed at once; one that is starved answers late, and is not lost."""


@contextmanager
def several_nodes() -> Iterator[Any]:
    """A head node for driver and controller, and nodes with two processors each, as many as a test adds."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray
    from ray._private import ray_constants
    from ray.cluster_utils import Cluster

    ray_constants.ENABLE_RAY_CLUSTER = True  # Ray's nodes do not talk to each other over 127.0.0.1
    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 0,
            "object_store_memory": OBJECT_STORE_BYTES,
            "include_dashboard": False,
            "_system_config": QUICK_TO_NOTICE,
        },
    )
    ray.init(address=cluster.address, logging_level="warning", log_to_driver=False)
    try:
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def add_node(cluster: Any, num_cpus: int = 2, **options: Any) -> Any:
    """One more machine, as far as Ray is concerned."""
    return cluster.add_node(num_cpus=num_cpus, object_store_memory=OBJECT_STORE_BYTES, **options)


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[None]:
    """Ray on this machine, with four logical processors and nothing deployed."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")
    import ray

    start_ray()
    try:
        yield
    finally:
        ray.shutdown()


@pytest.fixture
def serve(ray_cluster: None) -> Iterator[Any]:
    """The executor's public face; what a test leaves behind is deleted."""
    from executors import ray_gpu

    try:
        yield ray_gpu
    finally:
        clean_up(ray_gpu)


def clean_up(serve: Any) -> None:
    from executors.ray_gpu.discovery import find_replicas

    serve.shutdown(timeout_s=PATIENCE_S)
    eventually(lambda: not find_replicas("rankcore"), "all replicas are gone")


def eventually(condition: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S) -> Any:
    """Wait until a condition holds, and return what it returned."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what}")
        time.sleep(0.02)
