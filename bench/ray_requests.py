"""`make bench-ray`, or `python -m bench.ray_requests`: requests by handles, HTTP and gRPC, beside Ray Serve in one run.

Each system runs in a process of its own with a fresh cluster, taking turns. The same callers ask the same user code; HTTP is
asked over 64 connections that stay open, by a client of a few lines that takes little of the processors.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench.measure import print_table, save
from bench.ray_serve import in_child, number, show, summary

SYSTEMS = ("rankcore", "Ray Serve", "Ray Serve, throughput")
PORT, GRPC_PORT = 8031, 9031
IN_FLIGHT = 64
TOKENS, STREAMS = 200, 16
KINDS = {
    "handle, 1 in flight": "handle 1",
    "handle, 64 in flight, 1 replica": "handle 64 on 1",
    "handle, 64 in flight, 2 replicas": "handle 64",
    "handle, 64 in flight, 4 replicas": "handle 64 on 4",
    "handle, 1 KiB there and back": "handle 1 KiB",
    "handle, 1 MiB there and back, 8 in flight": "handle 1 MiB",
    "HTTP, 1 connection": "http 1",
    "HTTP, 64 connections": "http 64",
    "HTTP, 1 MiB there and back, 8 connections": "http 1 MiB",
    "gRPC, 64 in flight": "grpc 64",
}
ROWS = {
    **{
        f"{title}: {what}": f"{key} {unit}"
        for title, key in KINDS.items()
        for what, unit in (("requests/s", "calls"), ("p50, ms", "p50"), ("p99, ms", "p99"))
    },
    "streams by handle, items/s": "handle items",
    "streams over HTTP, items/s": "http items",
}


def deployed(name: str, replicas: int) -> Any:
    """Deploy so many replicas; returns the module that serves."""
    from ray.serve.generated import serve_pb2, serve_pb2_grpc

    function = "ray.serve.generated.serve_pb2_grpc.add_UserDefinedServiceServicer_to_server"
    if name == "rankcore":
        from executors import ray_gpu as serve

        if replicas == 1:
            functions = [serve_pb2_grpc.add_UserDefinedServiceServicer_to_server]
            serve.start(http_options={"port": PORT}, grpc_options={"port": GRPC_PORT, "servicer_functions": functions})
    else:
        from ray import serve

        if replicas == 1:
            from ray.serve.config import gRPCOptions

            grpc_options = gRPCOptions(port=GRPC_PORT, grpc_servicer_functions=[function])
            serve.start(http_options={"port": PORT}, grpc_options=grpc_options)

    class Bench:
        async def echo(self, value):
            return value

        async def tokens(self, count):
            for _ in range(count):
                yield "token "
                await asyncio.sleep(0)

        async def __call__(self, request):
            if hasattr(request, "num"):
                return serve_pb2.UserDefinedResponse(num_x2=request.num)
            if request.url.path == "/stream":
                from starlette.responses import StreamingResponse

                return StreamingResponse(self.tokens(TOKENS))
            if request.url.path == "/echo":
                from starlette.responses import Response

                return Response(await request.body())
            return "hello"

    options = {"num_replicas": replicas, "max_ongoing_requests": 2 * IN_FLIGHT, "ray_actor_options": {"num_cpus": 0}}
    app = serve.deployment(name="Bench", **options)(Bench).bind()
    serve.run(app, name="bench", route_prefix="/")
    return serve


def handle_of(name: str, serve: Any) -> Any:
    """What calls it. With its throughput settings Ray Serve's handles belong to the event loop that they are made in."""
    return serve.get_deployment_handle("Bench") if name == "rankcore" else serve.get_deployment_handle("Bench", "bench")


def measure(name: str, quick: bool) -> dict[str, float]:
    """Everything about one system, on a fresh cluster of this process."""
    from tests.ray_local import start_ray

    start_ray()
    import ray

    try:
        return asyncio.run(everything(name, 10 if quick else 1))
    finally:
        ray.shutdown()


async def everything(name: str, share: int) -> dict[str, float]:
    found: dict[str, float] = {}
    for replicas in (1, 4, 2):
        serve = await asyncio.to_thread(deployed, name, replicas)
        handle = handle_of(name, serve)
        key = "handle 64" if replicas == 2 else f"handle 64 on {replicas}"
        found |= named(key, await paced(lambda handle=handle: handle.echo.remote(1), IN_FLIGHT, 12_000 // share))
    found |= await handles(handle, share)
    found |= await outside(share)
    await asyncio.to_thread(serve.shutdown)
    return found


async def handles(handle: Any, share: int) -> dict[str, float]:
    found = named("handle 1", await paced(lambda: handle.echo.remote(1), 1, 2_000 // share))
    small, large = b"x" * 1024, b"x" * 1024 * 1024
    found |= named("handle 1 KiB", await paced(lambda: handle.echo.remote(small), IN_FLIGHT, 12_000 // share))
    found |= named("handle 1 MiB", await paced(lambda: handle.echo.remote(large), 8, 800 // share))
    streaming = handle.options(method_name="tokens", stream=True)

    async def stream() -> None:
        async for _ in streaming.remote(TOKENS):
            pass

    return {**found, "handle items": await items(stream, share)}


async def items(stream: Callable[[], Awaitable[None]], share: int) -> float:
    """Items a second over several streams at once."""
    rounds = max(1, 10 // share)

    async def reader() -> None:
        for _ in range(rounds):
            await stream()

    await stream()
    begin = time.perf_counter()
    await asyncio.gather(*(reader() for _ in range(STREAMS)))
    return TOKENS * STREAMS * rounds / (time.perf_counter() - begin)


async def paced(call: Callable[[], Awaitable[Any]], in_flight: int, count: int) -> dict[str, float]:
    """So many callers that each make one call after the other."""
    taken: list[float] = []

    async def caller(times: int) -> None:
        for _ in range(times):
            begin = time.perf_counter()
            await call()
            taken.append(time.perf_counter() - begin)

    await asyncio.gather(*(caller(5) for _ in range(in_flight)))
    taken.clear()
    begin = time.perf_counter()
    await asyncio.gather(*(caller(max(1, count // in_flight)) for _ in range(in_flight)))
    return summary(taken, time.perf_counter() - begin)


async def outside(share: int) -> dict[str, float]:
    """HTTP and gRPC."""
    found: dict[str, float] = {}
    for key, connections, count, path, body in (
        ("http 1", 1, 2_000 // share, "/", b""),
        ("http 64", IN_FLIGHT, 12_000 // share, "/", b""),
        ("http 1 MiB", 8, 800 // share, "/echo", bytes(1024 * 1024)),
    ):
        clients = [await Client.connect() for _ in range(connections)]
        free = list(clients)

        async def ask(free: list[Client] = free, path: str = path, body: bytes = body) -> None:
            client = free.pop()
            await client.get(path, body)
            free.append(client)

        found |= named(key, await paced(ask, connections, count))
        for client in clients:
            client.writer.close()

    async def stream() -> None:
        client = await Client.connect()
        await client.get("/stream")
        client.writer.close()

    found["http items"] = await items(stream, share)
    import grpc
    from ray.serve.generated import serve_pb2, serve_pb2_grpc

    async with grpc.aio.insecure_channel(f"127.0.0.1:{GRPC_PORT}") as channel:
        call = serve_pb2_grpc.UserDefinedServiceStub(channel).__call__
        message, metadata = serve_pb2.UserDefinedMessage(num=3), (("application", "bench"),)
        found |= named("grpc 64", await paced(lambda: call(message, metadata=metadata), IN_FLIGHT, 6_000 // share))
    return found


class Client:
    """A connection that stays open."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls) -> "Client":
        return cls(*await asyncio.open_connection("127.0.0.1", PORT))

    async def get(self, path: str, body: bytes = b"") -> None:
        """Ask, with a body if there is one, and read the whole answer."""
        method, length = ("POST", f"content-length: {len(body)}\r\n") if body else ("GET", "")
        self.writer.write(f"{method} {path} HTTP/1.1\r\nhost: bench\r\n{length}\r\n".encode() + body)
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        assert head.startswith(b"http/1.1 200"), head
        if b"transfer-encoding: chunked" in head:
            while int(await self.reader.readuntil(b"\r\n"), 16):
                await self.reader.readuntil(b"\r\n")
            await self.reader.readuntil(b"\r\n")
        else:
            length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
            await self.reader.readexactly(length)


def named(key: str, found: dict[str, float]) -> dict[str, float]:
    return {f"{key} {unit}": value for unit, value in found.items()}


def ratios(found: dict[str, list[dict[str, float]]]) -> None:
    """How many times the requests a second of Ray Serve, with its throughput settings too; medians over rounds."""
    import statistics

    def median(name: str, key: str) -> float | None:
        values = [each[key] for each in found.get(name, ()) if key in each]
        return statistics.median(values) if values else None

    rows = []
    for title, key in ROWS.items():
        if "p50" in key or "p99" in key:
            continue
        ours, row = median("rankcore", key), [title]
        for name in SYSTEMS[1:]:
            other = median(name, key)
            row.append(f"{number(ours / other)}x" if ours and other else "")
        rows.append(row)
    print_table(["times", *SYSTEMS[1:]], rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ray_requests", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round, and a tenth of the requests")
    parser.add_argument("--rounds", type=int, default=3, help="how often each system runs; the table shows medians")
    parser.add_argument("--child", choices=SYSTEMS, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        print("RESULT " + json.dumps(measure(chosen.child, chosen.quick)))
        return
    found: dict[str, list[dict[str, float]]] = {name: [] for name in SYSTEMS}
    for turn in range(1 if chosen.quick else chosen.rounds):
        for name in SYSTEMS if turn % 2 == 0 else reversed(SYSTEMS):
            print(f"round {turn + 1}: {name} ...", file=sys.stderr, flush=True)
            found[name].append(in_child("bench.ray_requests", name, chosen.quick))
    show(found, ROWS)
    ratios(found)
    print(f"\nall measurements: {save('ray_requests', {'systems': found})}")


if __name__ == "__main__":
    main()
