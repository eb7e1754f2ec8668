"""Actors are looked for in the cluster that this process was connected to; one that is gone is not started anew."""

import asyncio

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

import ray

from executors.ray_gpu.errors import NotRunningError
from executors.ray_gpu.requests.actors import connection, find_actor


@pytest.mark.parametrize("cluster", [None, object()])
def test_no_cluster_is_started_by_asking_for_an_actor_of_one_that_is_gone(cluster):
    assert connection() is None
    with pytest.raises(NotRunningError, match="Ray was shut down"):
        asyncio.run(find_actor("rankcore-controller", "rankcore", cluster))
    assert not ray.is_initialized()
