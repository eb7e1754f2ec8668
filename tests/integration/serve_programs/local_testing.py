"""With `_local_testing_mode=True` an application runs in the process that runs it, on threads."""

import os

from ray import serve


@serve.deployment
class Double:
    def __call__(self, value: int) -> list:
        return [value * 2, os.getpid()]


@serve.deployment(user_config={"add": 1})
class Front:
    def __init__(self, double) -> None:
        self.double = double

    def reconfigure(self, config: dict) -> None:
        self.add = config["add"]

    async def __call__(self, value: int) -> list:
        found, pid = await self.double.remote(value)
        return [found + self.add, pid == os.getpid()]

    def items(self, count: int):
        yield from range(count)


def main() -> object:
    handle = serve.run(Front.bind(Double.bind()), _local_testing_mode=True)
    return [handle.remote(4).result(timeout_s=30), list(handle.options(stream=True).items.remote(2))]


EXPECTED = [[9, True], [0, 1]]
