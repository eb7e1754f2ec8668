"""A replica whose `check_health` raises is replaced by another."""

import os
import time

from ray import serve


@serve.deployment(health_check_period_s=0.2, health_check_timeout_s=30, graceful_shutdown_timeout_s=0.1)
class Sick:
    def __init__(self) -> None:
        self.is_well = True

    def fall_ill(self) -> int:
        self.is_well = False
        return os.getpid()

    def check_health(self) -> None:
        if not self.is_well:
            raise RuntimeError("ill")

    def __call__(self) -> int:
        return os.getpid()


def main() -> object:
    handle = serve.run(Sick.bind(), route_prefix=None)
    before = handle.fall_ill.remote().result()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if handle.remote().result(timeout_s=5) != before:
                return "another one"
        except Exception:
            pass
        time.sleep(0.1)
    return "still the first"


EXPECTED = "another one"
