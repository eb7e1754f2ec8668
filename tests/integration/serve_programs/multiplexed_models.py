"""One replica keeps several models; the one that is asked for is named by the caller, in a handle or a header."""

import os
from urllib.request import Request, urlopen

from ray import serve


@serve.deployment
class Models:
    @serve.multiplexed(max_num_models_per_replica=2)
    async def load(self, name: str) -> str:
        return f"weights of {name}"

    async def __call__(self, request=None) -> str:
        return await self.load(serve.get_multiplexed_model_id())


def main() -> object:
    handle = serve.run(Models.bind(), route_prefix="/models")
    asked = Request(os.environ["SERVE_URL"] + "/models", headers={"serve_multiplexed_model_id": "fr"})
    with urlopen(asked, timeout=30) as answer:
        over_http = answer.read().decode()
    return [handle.options(multiplexed_model_id="de").remote().result(), over_http]


EXPECTED = ["weights of de", "weights of fr"]
