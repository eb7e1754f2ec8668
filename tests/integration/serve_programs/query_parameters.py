"""Query parameters are read from the request, and text comes back as text."""

import os
from urllib.request import urlopen

from ray import serve


@serve.deployment
class Repeat:
    def __call__(self, request) -> str:
        return request.query_params["word"] * int(request.query_params.get("times", 2))


def main() -> object:
    serve.run(Repeat.bind(), route_prefix="/")
    with urlopen(os.environ["SERVE_URL"] + "/?word=ab&times=3", timeout=30) as answer:
        return [answer.read().decode(), answer.headers["content-type"]]


EXPECTED = ["ababab", "text/plain; charset=utf-8"]
