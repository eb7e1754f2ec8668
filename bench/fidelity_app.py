"""What the recordings of `make fidelity` deploy: it takes as long as each call says. Replicas import it."""

import asyncio
import time
from typing import Any

from executors import ray_gpu as serve


@serve.deployment(ray_actor_options={"num_cpus": 0}, max_ongoing_requests=2, user_config={"version": 1})
class Sleeper:
    """A model whose service time the caller chooses."""

    def __init__(self, init_s: float = 1.0) -> None:
        time.sleep(init_s)

    async def reconfigure(self, user_config: dict[str, Any], rank: Any) -> None:
        await asyncio.sleep(0.05)

    async def __call__(self, row: dict[str, float]) -> float:
        await asyncio.sleep(row["service_s"])
        return row["service_s"]


app = Sleeper.options(num_replicas=3).bind()
