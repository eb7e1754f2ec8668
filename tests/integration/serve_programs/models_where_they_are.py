"""Calls for a model go to a replica that has it, once one has; each model is loaded once."""

import time

from ray import serve


@serve.deployment(num_replicas=3, ray_actor_options={"num_cpus": 0})
class Models:
    @serve.multiplexed(max_num_models_per_replica=2)
    async def load(self, name: str) -> str:
        return serve.get_replica_context().replica_id.unique_id

    async def __call__(self) -> str:
        return await self.load(serve.get_multiplexed_model_id())


def main() -> object:
    handle = serve.run(Models.bind(), name="models", route_prefix=None)
    found = []
    for model in ("de", "fr"):
        asked = handle.options(multiplexed_model_id=model)
        asked.remote().result()
        time.sleep(3)  # until the others know
        found.append(len({asked.remote().result() for _ in range(20)}))
    return found


EXPECTED = [1, 1]
