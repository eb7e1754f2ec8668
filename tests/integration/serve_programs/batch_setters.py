"""A new `user_config` changes the size of batches that are formed."""

from ray import serve


@serve.deployment(max_ongoing_requests=10, user_config={"size": 2})
class Model:
    def reconfigure(self, config: dict) -> None:
        self.__call__.set_max_batch_size(config["size"])
        self.__call__.set_batch_wait_timeout_s(10.0)

    @serve.batch(max_batch_size=1)
    async def __call__(self, values: list) -> list:
        return [len(values)] * len(values)


def main() -> object:
    handle = serve.run(Model.bind(), route_prefix=None)
    return [each.result() for each in [handle.remote(value) for value in range(4)]]


EXPECTED = [2, 2, 2, 2]
