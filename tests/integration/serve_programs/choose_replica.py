"""A place at a replica is taken first, and the call sent there when it is known what to ask: `choose_replica`, `dispatch`."""

import asyncio

from ray import serve


@serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 0}, max_ongoing_requests=3)
class Which:
    async def __call__(self, text: str) -> tuple[str, str]:
        return text, serve.get_replica_context().replica_id.unique_id

    async def letters(self, text: str):
        for letter in text:
            yield letter


async def choose(handle) -> list[object]:
    async with handle.choose_replica("first") as chosen:
        said, where = await handle.dispatch(chosen, "then")
    async with handle.choose_replica() as unused:
        names = set(unused.to_dict())
    async with handle.options(method_name="letters", stream=True).choose_replica() as chosen:
        letters = [each async for each in handle.dispatch(chosen, "abc")]
    return [said, isinstance(where, str) and bool(where), "replica_id" in names and "node_id" in names, letters]


def main() -> object:
    handle = serve.run(Which.bind(), name="places", route_prefix=None)
    handle.remote("before").result()
    return asyncio.run(choose(handle))


EXPECTED = ["then", True, True, ["a", "b", "c"]]
