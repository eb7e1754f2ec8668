"""An application without a route is at `/`, where no second one may be; with None it has no HTTP."""

import os
import time
from urllib.error import HTTPError
from urllib.request import urlopen

from ray import serve
from ray.serve.exceptions import RayServeException


@serve.deployment
class Named:
    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, request=None) -> str:
        return self.name


def get(wanted: str) -> str:
    for _ in range(100):  # the proxy hears of it a moment later
        try:
            with urlopen(os.environ["SERVE_URL"] + "/any/path", timeout=30) as answer:
                found = answer.read().decode()
        except HTTPError as error:
            found = str(error.code)
        if found == wanted:
            break
        time.sleep(0.1)
    return found


def main() -> object:
    serve.run(Named.bind("a"), name="first")
    found = [get("a")]
    try:
        serve.run(Named.bind("b"), name="second")
    except RayServeException as error:
        found += ["first" in str(error), "/" in str(error)]
    found.append(sorted(serve.status().applications))
    found.append(serve.run(Named.bind("b"), name="second", route_prefix=None).remote().result())
    serve.run(Named.bind("again"), name="first")
    found.append(get("again"))
    serve.delete("first")
    found.append(get("404"))
    serve.run(Named.bind("b"), name="second")
    return [*found, get("b")]


EXPECTED = ["a", True, True, ["first"], "b", "again", "404", "b"]
