"""With `max_queued_requests` a call too many is refused at once, in a handle and over HTTP."""

import asyncio

from ray import serve
from ray.serve.exceptions import BackPressureError


@serve.deployment(max_ongoing_requests=1, max_queued_requests=1)
class Gate:
    async def __call__(self) -> str:
        await asyncio.sleep(1)
        return "through"


def main() -> object:
    handle = serve.run(Gate.bind(), route_prefix=None)
    handle.remote().result()  # the process knows limit and replicas from now on
    outcomes = []
    responses = [handle.remote() for _ in range(5)]
    for each in responses:
        try:
            outcomes.append(each.result(timeout_s=30))
        except BackPressureError:
            outcomes.append("refused")
    return sorted(set(outcomes))


EXPECTED = ["refused", "through"]
