"""Every rank holds a part of the data, a broadcast asks them all, and the answers come back in the order of the ranks.

    python examples/data_parallel_broadcast.py

Rank r of N has the numbers r, r + N, r + 2N, ...; `broadcast=True` sends one call to each rank. When the number of replicas
changes, `reconfigure` deals the numbers anew. A single rank can be asked with `rank=`.
"""

from executors import ray_gpu as serve
from executors.ray_gpu.errors import CallError

NUMBERS = 1_000


@serve.deployment(num_replicas=4, user_config={}, victims="highest_rank", ray_actor_options={"num_cpus": 0})
class Part:
    def __init__(self):
        self.rank = serve.get_replica_context().rank.rank

    def reconfigure(self, user_config, rank):
        self.rank = rank.rank

    def total(self):
        """The sum of this rank's numbers, and of how many ranks it believes to be one."""
        world_size = serve.get_replica_context().world_size
        return sum(range(self.rank, NUMBERS, world_size)), world_size


def total(handle, world_size):
    """The sum of all numbers: asked again while ranks have not all heard of a change."""
    while True:
        try:
            parts = handle.options(method_name="total", broadcast=True).remote().result(timeout_s=60)
        except CallError as error:  # a rank has gone meanwhile
            print(error)
            continue
        if len(parts) == world_size and all(heard == world_size for _, heard in parts):
            return [part for part, _ in parts]


app = Part.bind()

if __name__ == "__main__":
    handle = serve.run(app, route_prefix=None)
    for world_size in (4, 2):
        serve.scale("Part", world_size)
        parts = total(handle, world_size)
        assert sum(parts) == sum(range(NUMBERS)), parts
        print(f"{world_size} ranks: {' + '.join(map(str, parts))} = {sum(parts)}")
    last, _ = handle.options(method_name="total", rank=1).remote().result(timeout_s=60)
    print(f"rank 1 alone: {last}")
    serve.shutdown()
