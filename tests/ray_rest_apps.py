"""What a config of the REST tests imports, in tasks on the cluster."""

import asyncio

from executors import ray_gpu as serve


@serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 0}, user_config={"name": "v1"})
class Echo:
    def __call__(self, said):
        return said

    async def waits(self):
        await asyncio.sleep(600)


app = Echo.bind()
