"""A class keeps state; its methods are called by their names, with `__init__`'s arguments from `bind`."""

from ray import serve


@serve.deployment
class Counter:
    def __init__(self, start: int, *, step: int = 1) -> None:
        self.value, self.step = start, step

    def increase(self) -> int:
        self.value += self.step
        return self.value

    async def __call__(self) -> int:
        return self.value


def main() -> object:
    handle = serve.run(Counter.bind(10, step=5), route_prefix=None)
    return [
        handle.increase.remote().result(),
        handle.options(method_name="increase").remote().result(),
        handle.remote().result(),
    ]


EXPECTED = [15, 20, 20]
