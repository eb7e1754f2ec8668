"""A request router of one's own goes by what the replicas say of themselves, `record_routing_stats`, and by its own options."""

import time

from ray import serve
from ray.serve.config import RequestRouterConfig
from ray.serve.request_router import (
    FIFOMixin,
    LocalityMixin,
    MultiplexMixin,
    PendingRequest,
    RequestRouter,
    RunningReplica,
)

import __main__


class ThroughputAwareRequestRouter(FIFOMixin, MultiplexMixin, LocalityMixin, RequestRouter):
    def initialize_state(self, name: str) -> None:
        self.name = name

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        ids = self.apply_locality_routing(pending_request=pending_request)
        near = [replica for replica in candidate_replicas if replica.replica_id in ids]
        for replicas in self.rank_replicas_via_locality(near):
            available = self.select_available_replicas(candidates=replicas)
            if available:
                return [[min(available, key=lambda replica: replica.routing_stats.get(self.name, 0))]]
        return []


__main__.ThroughputAwareRequestRouter = ThroughputAwareRequestRouter  # where a class of a program that is run by itself is


@serve.deployment(
    num_replicas=2,
    ray_actor_options={"num_cpus": 0},
    request_router_config=RequestRouterConfig(
        request_router_class=ThroughputAwareRequestRouter,
        request_router_kwargs={"name": "throughput"},
        request_routing_stats_period_s=0.2,
        request_routing_stats_timeout_s=1,
    ),
)
class Counts:
    def __init__(self) -> None:
        self.throughput = 0

    async def __call__(self) -> str:
        self.throughput += 1
        return serve.get_replica_context().replica_id.unique_id

    def record_routing_stats(self) -> dict[str, float]:
        return {"throughput": self.throughput}


def main() -> object:
    handle = serve.run(Counts.bind(), name="stats", route_prefix=None)
    first = handle.remote().result()
    ends_at = time.monotonic() + 30
    while (other := handle.remote().result()) == first and time.monotonic() < ends_at:
        time.sleep(0.1)
    time.sleep(3)
    counts = {first: 0, other: 0}
    for _ in range(4):
        counts[handle.remote().result()] += 1
    return [other != first, sorted(counts.values())]


EXPECTED = [True, [0, 4]]
