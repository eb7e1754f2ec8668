"""Each replica gets a placement group of its own; what it starts runs in it, and it goes when the replica does."""

import time

import ray
from ray import serve


@ray.remote(num_cpus=1)
class Helper:
    def group(self) -> str:
        return ray.util.get_current_placement_group().id.hex()


@serve.deployment(
    num_replicas=2,
    ray_actor_options={"num_cpus": 0},
    placement_group_bundles=[{"CPU": 1}, {"CPU": 1}],
    placement_group_strategy="STRICT_PACK",
)
class Sharded:
    def __init__(self) -> None:
        self.own = ray.util.get_current_placement_group().id.hex()
        self.helpers = [Helper.remote() for _ in range(2)]

    def groups(self) -> list:
        return [self.own, *ray.get([each.group.remote() for each in self.helpers])]


def there() -> int:
    table = ray.util.placement_group_table().values()
    return sum(each["state"] == "CREATED" for each in table)


def main() -> object:
    handle = serve.run(Sharded.bind(), route_prefix=None)
    found = handle.broadcast("groups").results()
    before = there()
    serve.delete("default")
    deadline = time.monotonic() + 30
    while there() and time.monotonic() < deadline:
        time.sleep(0.1)
    return [[len(set(each)) for each in found], len({each[0] for each in found}), before, there()]


EXPECTED = [[1, 1], 2, 2, 0]
