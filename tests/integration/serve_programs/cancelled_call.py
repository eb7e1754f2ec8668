"""A call that is given up is cancelled in the replica, and says so to whoever waits for it."""

import asyncio
import time

from ray import serve
from ray.serve.exceptions import RequestCancelledError


@serve.deployment
class Slow:
    def __init__(self) -> None:
        self.begun = self.cancelled = 0

    async def wait(self) -> None:
        self.begun += 1
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def counts(self) -> list:
        return [self.begun, self.cancelled]


def until(handle, expected: list) -> list:
    deadline = time.monotonic() + 30
    while (found := handle.counts.remote().result()) != expected and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def main() -> object:
    handle = serve.run(Slow.bind(), route_prefix=None)
    response = handle.wait.remote()
    begun = until(handle, [1, 0])
    response.cancel()
    try:
        response.result(timeout_s=10)
        said = "an answer"
    except RequestCancelledError:
        said = "cancelled"
    return [begun, said, until(handle, [1, 1]), response.cancelled()]


EXPECTED = [[1, 0], "cancelled", [1, 1], True]
