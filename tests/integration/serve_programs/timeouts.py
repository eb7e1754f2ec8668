"""`result(timeout_s=...)` raises `TimeoutError`; the call goes on and can be waited for again."""

import asyncio

from ray import serve


@serve.deployment
class Slow:
    async def __call__(self, seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "done"


def main() -> object:
    response = serve.run(Slow.bind(), route_prefix=None).remote(1.0)
    try:
        response.result(timeout_s=0.1)
    except TimeoutError:
        return ["not yet", response.result(timeout_s=30)]
    return None


EXPECTED = ["not yet", "done"]
