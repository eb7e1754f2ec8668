"""One deployment calls two others, whose handles it is given in `__init__`, and awaits both at once."""

import asyncio

from ray import serve
from ray.serve.handle import DeploymentHandle


@serve.deployment
class Double:
    def __call__(self, value: int) -> int:
        return value * 2


@serve.deployment
class Add:
    def __init__(self, by: int) -> None:
        self.by = by

    def add(self, value: int) -> int:
        return value + self.by


@serve.deployment
class Both:
    def __init__(self, double: DeploymentHandle, add: DeploymentHandle) -> None:
        self.double, self.add = double, add

    async def __call__(self, value: int) -> list:
        return list(await asyncio.gather(self.double.remote(value), self.add.add.remote(value)))


def main() -> object:
    return serve.run(Both.bind(Double.bind(), Add.bind(100)), route_prefix=None).remote(7).result()


EXPECTED = [14, 107]
