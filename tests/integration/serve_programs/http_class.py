"""A class answers HTTP: it is given a Starlette request, and what it returns becomes JSON."""

import json
import os
from urllib.request import Request, urlopen

from ray import serve


@serve.deployment
class Sum:
    async def __call__(self, request) -> dict:
        numbers = await request.json()
        return {"sum": sum(numbers), "method": request.method}


def main() -> object:
    serve.run(Sum.bind(), route_prefix="/sum")
    with urlopen(Request(os.environ["SERVE_URL"] + "/sum", data=b"[1, 2, 3]"), timeout=30) as answer:
        return [answer.status, json.loads(answer.read())]


EXPECTED = [200, {"sum": 6, "method": "POST"}]
