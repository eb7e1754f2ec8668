"""A handle that is not needed any more is shut down, and another one calls the same deployment."""

import asyncio

from ray import serve


@serve.deployment
def double(number: int) -> int:
    return 2 * number


def main() -> object:
    handle = serve.run(double.bind(), name="doubles", route_prefix=None)
    answers = [handle.remote(1).result()]
    handle.shutdown()
    other = serve.get_app_handle("doubles")
    answers.append(other.remote(2).result())
    asyncio.run(other.shutdown_async())
    answers.append(serve.get_deployment_handle("double", "doubles").remote(3).result())
    return answers


EXPECTED = [2, 4, 6]
