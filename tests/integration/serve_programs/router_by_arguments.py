"""A request router of one's own reads the call: its method, its arguments and its session say which replica has it."""

from ray import serve
from ray.serve.config import RequestRouterConfig
from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica

import __main__


class ByArgument(RequestRouter):
    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        in_order = sorted(candidate_replicas, key=lambda replica: str(replica.replica_id))
        assert set(self.curr_replicas) == {replica.replica_id for replica in in_order}
        said = pending_request.metadata
        number = pending_request.args[0] if said.call_method == "nth" else int(said.session_id)
        return [[in_order[number % len(in_order)]]]


__main__.ByArgument = ByArgument  # where a class of a program that is run by itself is


@serve.deployment(
    num_replicas=3,
    ray_actor_options={"num_cpus": 0},
    request_router_config=RequestRouterConfig(
        request_router_class=ByArgument, initial_backoff_s=0.01, backoff_multiplier=1.5, max_backoff_s=0.1
    ),
)
class Shard:
    def nth(self, number: int) -> str:
        return serve.get_replica_context().replica_id.unique_id

    def __call__(self) -> str:
        return serve.get_replica_context().replica_id.unique_id


def main() -> object:
    handle = serve.run(Shard.bind(), name="shards", route_prefix=None)
    by_number = [handle.nth.remote(number).result() for number in range(6)]
    by_session = [handle.options(session_id=str(number)).remote().result() for number in range(3)]
    return [len(set(by_number)), by_number[:3] == by_number[3:], by_session == by_number[:3]]


EXPECTED = [3, True, True]
