"""`python -m bench.hot_weights`: calls of weights that may be COLD and are HOT, beside those of a pinned deployment.

Both have one replica of the same class, in one cluster, and take turns: what else the machine does hits them alike. Memory
stands for the GPU.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench.measure import print_table, save
from bench.ray_requests import IN_FLIGHT, PORT, Client, paced
from bench.turns import Found, number, show, values_of

PINNED, HOT = "pinned", "residency, HOT"
KINDS = ("handle, 1 in flight", "handle, 64 in flight", "HTTP, 1 connection", "HTTP, 64 connections")
ROWS = {
    **{f"{kind}: requests/s": f"{kind} calls" for kind in KINDS},
    **{f"{kind}: {what}, ms": f"{kind} {what}" for kind in KINDS for what in ("p50", "p99")},
}
WIDTH = 64


def deployed(folder: Path) -> dict[str, Any]:
    """Deploy both, have the one loaded, and return their handles."""
    import torch
    from safetensors.torch import save_file

    from executors import ray_gpu

    class Bench:
        def __init__(self) -> None:
            self.module = torch.nn.Linear(WIDTH, WIDTH, bias=False)

        async def echo(self, value: Any) -> Any:
            return value

        async def __call__(self, request: Any) -> str:
            return "hello"

    weights = folder / "bench.safetensors"
    save_file({"weight": torch.zeros(WIDTH, WIDTH)}, weights)
    ray_gpu.start(
        http_options={"port": PORT}, memory={"device": "cpu", "stand_in_gpu_bytes": (1_000_000,)}, proxy_location="HeadOnly"
    )
    handles = {}
    for name, path, residency in ((PINNED, "/pinned", None), (HOT, "/hot", ray_gpu.Residency(weights=weights))):
        options = {"max_ongoing_requests": 2 * IN_FLIGHT, "ray_actor_options": {"num_cpus": 0}, "residency": residency}
        app = ray_gpu.deployment(name="Bench", **options)(Bench).bind()
        handles[name] = ray_gpu.run(app, name=path[1:], route_prefix=path)
        handles[name].echo.remote(1).result(timeout_s=60.0)
    return handles


async def measured(handles: dict[str, Any], rounds: int, share: int) -> Found:
    """Each kind of calls of both in turn, in every other round the other way round."""
    found: Found = {name: [{} for _ in range(rounds)] for name in handles}
    for turn in range(rounds):
        for kind in KINDS:
            for name in handles if turn % 2 == 0 else reversed(handles):
                print(f"round {turn + 1} of {rounds}: {kind}, {name} ...", file=sys.stderr, flush=True)
                figures = await of_kind(kind, handles[name], "/pinned" if name == PINNED else "/hot", share)
                found[name][turn].update({f"{kind} {unit}": value for unit, value in figures.items()})
    return found


async def of_kind(kind: str, handle: Any, path: str, share: int) -> dict[str, float]:
    """One measurement."""
    in_flight = IN_FLIGHT if "64" in kind else 1
    count = (12_000 if in_flight > 1 else 2_000) // share
    if kind.startswith("handle"):
        return await paced(lambda: handle.echo.remote(1), in_flight, count)
    clients = [await Client.connect() for _ in range(in_flight)]
    free = list(clients)

    async def ask() -> None:
        client = free.pop()
        await client.get(path)
        free.append(client)

    ask_one: Callable[[], Awaitable[Any]] = ask
    figures = await paced(ask_one, in_flight, count)
    for client in clients:
        client.writer.close()
    return figures


def ratios(found: Found) -> None:
    """HOT in parts of pinned: the median over rounds of what ran next to each other."""
    rows = []
    for kind in KINDS:
        pinned, hot = (values_of(found[name], f"{kind} calls") for name in (PINNED, HOT))
        rows.append([kind, number(100 * statistics.median(b / a for a, b in zip(pinned, hot, strict=True)))])
    print_table(["requests/s", "% of pinned"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.hot_weights", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round, and a tenth of the requests")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured; the table shows medians")
    chosen = parser.parse_args()
    from tests.ray_local import start_ray

    start_ray()
    import ray

    try:
        with tempfile.TemporaryDirectory() as folder:
            handles = deployed(Path(folder))
            found = asyncio.run(measured(handles, 1 if chosen.quick else chosen.rounds, 10 if chosen.quick else 1))
    finally:
        ray.shutdown()
    show(found, ROWS)
    ratios(found)
    print(f"\nall measurements: {save('hot_weights', {'systems': found})}")


if __name__ == "__main__":
    main()
