"""A function is deployed and called through its handle."""

from ray import serve


@serve.deployment
def greet(name: str) -> str:
    return f"hello {name}"


def main() -> object:
    handle = serve.run(greet.bind(), route_prefix=None)
    return [handle.remote("ann").result(), handle.remote(name="bob").result()]


EXPECTED = ["hello ann", "hello bob"]
