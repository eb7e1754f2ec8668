"""With `max_queued_requests` a call too many is refused at once, in a handle and over HTTP."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor

import requests
from ray import serve
from ray.serve.config import BackpressureConfig
from ray.serve.exceptions import BackPressureError


@serve.deployment(
    max_ongoing_requests=1,
    max_queued_requests=1,
    backpressure_config=BackpressureConfig(status_code=429, retry_after_s=6.5),
)
class Gate:
    async def __call__(self) -> str:
        await asyncio.sleep(1)
        return "through"


def main() -> object:
    handle = serve.run(Gate.bind(), route_prefix="/gate")
    handle.remote().result()  # the process knows limit and replicas from now on
    outcomes = []
    responses = [handle.remote() for _ in range(5)]
    for each in responses:
        try:
            outcomes.append(each.result(timeout_s=30))
        except BackPressureError:
            outcomes.append("refused")
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: requests.get(os.environ["SERVE_URL"] + "/gate", timeout=30), range(6)))
    refused = {(each.status_code, each.headers.get("retry-after")) for each in answers if each.status_code != 200}
    return [sorted(set(outcomes)), sorted(refused), any(each.status_code == 200 for each in answers)]


EXPECTED = [["refused", "through"], [(429, "7")], True]
