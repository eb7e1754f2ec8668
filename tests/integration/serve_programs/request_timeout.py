"""A request that takes longer than `request_timeout_s` of the proxies is answered with an error."""

import asyncio
import os
from urllib.error import HTTPError
from urllib.request import urlopen

from ray import serve


@serve.deployment
class Slow:
    async def __call__(self, request) -> str:
        await asyncio.sleep(60)
        return "late"


def main() -> object:
    serve.run(Slow.bind(), route_prefix="/slow")
    try:
        urlopen(os.environ["SERVE_URL"] + "/slow", timeout=30)
    except HTTPError as error:
        return error.code
    return None


EXPECTED = 504
IN_RAY_SERVE = 408
WHY = "504 says that it is the server that was late"
