"""What the recordings of `make fidelity` deploy: it takes as long as each call says. Replicas import it."""

import asyncio
import time
from typing import Any

from executors import ray_gpu as serve

TOKENS_PER_S = 1000
"""An answer says how many tokens the call had, as a model's does."""


@serve.deployment(ray_actor_options={"num_cpus": 0}, max_ongoing_requests=2, user_config={"version": 1})
class Sleeper:
    """A model whose service time the caller chooses."""

    def __init__(self, init_s: float = 1.0) -> None:
        time.sleep(init_s)

    async def reconfigure(self, user_config: dict[str, Any], rank: Any) -> None:
        await asyncio.sleep(0.05)

    async def __call__(self, row: dict[str, float]) -> dict[str, int]:
        await asyncio.sleep(row["service_s"])
        return {"prompt_tokens": 1, "output_tokens": round(row["service_s"] * TOKENS_PER_S)}


app = Sleeper.options(num_replicas=3).bind()
