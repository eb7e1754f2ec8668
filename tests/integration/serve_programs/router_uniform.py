"""A request router of one's own draws a replica for each call, and counts in its process what it has routed."""

import random

from ray import serve
from ray.serve.config import RequestRouterConfig
from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

import __main__


class UniformRequestRouter(RequestRouter):
    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        return [[random.choice(candidate_replicas)]]

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result) -> None:
        import builtins

        builtins.ROUTED = [*getattr(builtins, "ROUTED", []), (pending_request.metadata.call_method, replica_id.unique_id)]


__main__.UniformRequestRouter = UniformRequestRouter  # where a class of a program that is run by itself is


@serve.deployment(
    num_replicas=3,
    ray_actor_options={"num_cpus": 0},
    request_router_config=RequestRouterConfig(request_router_class=UniformRequestRouter),
)
class Where:
    def __call__(self) -> str:
        return serve.get_replica_context().replica_id.unique_id


def main() -> object:
    import builtins

    builtins.ROUTED = []
    handle = serve.run(Where.bind(), name="uniform", route_prefix=None)
    answers = [handle.remote().result() for _ in range(40)]
    routed = builtins.ROUTED
    return [len(set(answers)), len(routed), {method for method, _ in routed}, [replica for _, replica in routed] == answers]


EXPECTED = [3, 40, {"__call__"}, True]
