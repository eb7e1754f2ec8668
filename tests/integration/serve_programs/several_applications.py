"""Several applications run beside each other, each under its prefix; their handles are had by name, and one is deleted."""

import os
from urllib.request import urlopen

from ray import serve


@serve.deployment
class Named:
    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, request=None) -> str:
        return self.name


def get(path: str) -> str:
    with urlopen(os.environ["SERVE_URL"] + path, timeout=30) as answer:
        return answer.read().decode()


def main() -> object:
    serve.run(Named.bind("a"), name="first", route_prefix="/first")
    serve.run(Named.bind("b"), name="second", route_prefix="/first/second")
    found = [get("/first"), get("/first/second"), serve.get_app_handle("second").remote().result()]
    found.append(serve.get_deployment_handle("Named", "first").remote().result())
    serve.delete("first")
    return [*found, sorted(serve.status().applications)]


EXPECTED = ["a", "b", "b", "a", ["second"]]
