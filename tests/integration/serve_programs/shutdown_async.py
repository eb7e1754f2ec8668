"""Everything is shut down from asynchronous code, and nothing runs any more."""

import asyncio

from ray import serve


@serve.deployment
def anything() -> str:
    return "ok"


def main() -> object:
    said = serve.run(anything.bind(), route_prefix=None).remote().result()
    asyncio.run(serve.shutdown_async())
    return said


EXPECTED = "ok"
