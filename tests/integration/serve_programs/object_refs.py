"""References to objects of Ray among the arguments are objects in the replica."""

import ray
from ray import serve


@serve.deployment
def length(values: list) -> int:
    return len(values)


def main() -> object:
    handle = serve.run(length.bind(), route_prefix=None)
    return handle.remote(ray.put([1, 2, 3])).result()


EXPECTED = 3
