"""`handle.broadcast` goes to all replicas that run: one that is still being started again is not waited for."""

import os
import signal
import tempfile
import time

from ray import serve


@serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 0})
class Late:
    def __init__(self, closed: str) -> None:
        while os.path.exists(closed):
            time.sleep(0.05)

    async def pid(self) -> int:
        return os.getpid()


def main() -> object:
    closed = os.path.join(tempfile.mkdtemp(), "closed")
    handle = serve.run(Late.bind(closed), route_prefix=None)

    def until(count: int) -> list:
        for _ in range(600):
            found = handle.broadcast("pid").results(timeout_s=30, return_exceptions=True)
            if len(found) == count and not any(isinstance(each, Exception) for each in found):
                break
            time.sleep(0.1)
        return found

    first = until(2)
    with open(closed, "w"):
        os.kill(first[0], signal.SIGKILL)
    left = until(1)
    os.remove(closed)
    return [left == [first[1]], len(set(until(2)))]


EXPECTED = [True, 2]
