"""A response is an argument of the next call, without being waited for in between."""

from ray import serve


@serve.deployment
class Adder:
    def __init__(self, by: int) -> None:
        self.by = by

    def __call__(self, value: int) -> int:
        return value + self.by


def main() -> object:
    one = serve.run(Adder.bind(1), name="one", route_prefix=None)
    ten = serve.run(Adder.bind(10), name="ten", route_prefix=None)
    return ten.remote(one.remote(ten.remote(0))).result()


EXPECTED = 21
