"""Asynchronous code outside of replicas awaits responses and iterates over streams."""

import asyncio

from ray import serve


@serve.deployment
class Model:
    async def __call__(self, value: int) -> int:
        return value + 1

    async def items(self):
        for each in "ab":
            yield each


async def calls(handle) -> list:
    numbers = await asyncio.gather(*(handle.remote(value) for value in range(3)))
    return [numbers, [each async for each in handle.options(stream=True).items.remote()]]


def main() -> object:
    return asyncio.run(calls(serve.run(Model.bind(), route_prefix=None)))


EXPECTED = [[1, 2, 3], ["a", "b"]]
