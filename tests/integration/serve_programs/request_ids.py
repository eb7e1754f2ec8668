"""A request's id is taken from its header, and comes back in the answer's."""

import os
from urllib.request import Request, urlopen

from ray import serve


@serve.deployment
def anything(request) -> str:
    return "ok"


def main() -> object:
    serve.run(anything.bind(), route_prefix="/ids")
    asked = Request(os.environ["SERVE_URL"] + "/ids", headers={"x-request-id": "r-17"})
    with urlopen(asked, timeout=30) as answer:
        return answer.headers["x-request-id"]


EXPECTED = "r-17"
