"""An asynchronous replica works on up to `max_ongoing_requests` calls at once, and on no more."""

import asyncio

from ray import serve


@serve.deployment(max_ongoing_requests=3)
class Parallel:
    def __init__(self) -> None:
        self.now = self.most = 0

    async def __call__(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.3)
        self.now -= 1

    async def seen(self) -> int:
        return self.most


def main() -> object:
    handle = serve.run(Parallel.bind(), route_prefix=None)
    for each in [handle.remote() for _ in range(8)]:
        each.result()
    return handle.seen.remote().result()


EXPECTED = 3
