"""A deployment iterates over another's stream and passes on what it makes of it."""

from ray import serve


@serve.deployment
class Source:
    async def __call__(self, count: int):
        for number in range(count):
            yield number


@serve.deployment
class Squares:
    def __init__(self, source) -> None:
        self.source = source.options(stream=True)

    async def __call__(self, count: int):
        async for number in self.source.remote(count):
            yield number * number


def main() -> object:
    handle = serve.run(Squares.bind(Source.bind()), route_prefix=None)
    return list(handle.options(stream=True).remote(4))


EXPECTED = [0, 1, 4, 9]
