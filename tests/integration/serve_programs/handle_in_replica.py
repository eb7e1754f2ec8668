"""A replica looks up another deployment of its application by name."""

from ray import serve


@serve.deployment
class Store:
    def __call__(self, key: str) -> str:
        return key.upper()


@serve.deployment
class Front:
    def __init__(self, store) -> None:
        self.name = store.deployment_name

    async def __call__(self, key: str) -> str:
        return await serve.get_deployment_handle(self.name, "app").remote(key)


def main() -> object:
    return serve.run(Front.bind(Store.bind()), name="app", route_prefix=None).remote("k").result()


EXPECTED = "K"
