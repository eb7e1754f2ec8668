"""One class is bound twice in an application, under names of its own."""

from ray import serve


@serve.deployment
class Suffix:
    def __init__(self, text: str) -> None:
        self.text = text

    def __call__(self, value: str) -> str:
        return value + self.text


@serve.deployment
class Chain:
    def __init__(self, steps: list) -> None:
        self.steps = steps

    async def __call__(self, value: str) -> str:
        for each in self.steps:
            value = await each.remote(value)
        return value


def main() -> object:
    steps = [Suffix.options(name="first").bind("-a"), Suffix.options(name="second").bind("-b")]
    handle = serve.run(Chain.bind(steps), route_prefix=None)
    return [handle.remote("x").result(), sorted(serve.status().applications["default"].deployments)]


EXPECTED = ["x-a-b", ["Chain", "first", "second"]]
