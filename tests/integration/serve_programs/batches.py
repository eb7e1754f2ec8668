"""Calls that come together are answered as one batch, each with its own result."""

from ray import serve


@serve.deployment(max_ongoing_requests=10)
class Model:
    @serve.batch(max_batch_size=4, batch_wait_timeout_s=5.0)
    async def __call__(self, values: list) -> list:
        return [[value * 10, len(values)] for value in values]


def main() -> object:
    handle = serve.run(Model.bind(), route_prefix=None)
    return [each.result() for each in [handle.remote(value) for value in range(4)]]


EXPECTED = [[0, 4], [10, 4], [20, 4], [30, 4]]
