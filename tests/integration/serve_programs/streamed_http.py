"""A `StreamingResponse` is sent while it is made."""

import os
from urllib.request import urlopen

from ray import serve
from starlette.responses import StreamingResponse


@serve.deployment
class Count:
    def __call__(self, request):
        until = int(request.query_params["until"])

        async def numbers():
            for number in range(until):
                yield f"{number}\n"

        return StreamingResponse(numbers(), media_type="text/plain", status_code=200)


def main() -> object:
    serve.run(Count.bind(), route_prefix="/count")
    with urlopen(os.environ["SERVE_URL"] + "/count?until=4", timeout=30) as answer:
        return [line.decode().strip() for line in answer]


EXPECTED = ["0", "1", "2", "3"]
