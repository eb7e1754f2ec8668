"""`make bench-ray`, or `python -m bench.ray_requests`: requests by handles, HTTP and gRPC, beside Ray Serve in one run.

Each system runs in a process of its own with a fresh cluster, taking turns. The same callers ask the same user code; HTTP is
asked over 64 connections that stay open, by a client of a few lines that takes little of the processors. What was measured is
shown as it comes; Ctrl-C breaks off, with the table of what there is. `--only` measures parts of it.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import Any

from bench.measure import print_table, save
from bench.ray_serve import summary
from bench.turns import Found, number, show, take_turns, tell, values_of

SYSTEMS = ("rankcore", "Ray Serve", "Ray Serve, throughput")
PORT, GRPC_PORT = 8031, 9031
IN_FLIGHT = 64
TOKENS, STREAMS = 200, 16
KINDS = {
    "handle": {
        "handle, 1 in flight": "handle 1",
        "handle, 64 in flight, 1 replica": "handle 64 on 1",
        "handle, 64 in flight, 2 replicas": "handle 64",
        "handle, 64 in flight, 4 replicas": "handle 64 on 4",
        "handle, 1 KiB there and back": "handle 1 KiB",
        "handle, 1 MiB there and back, 8 in flight": "handle 1 MiB",
    },
    "http": {
        "HTTP, 1 connection": "http 1",
        "HTTP, 64 connections": "http 64",
        "HTTP, 1 MiB there and back, 8 connections": "http 1 MiB",
    },
    "grpc": {"gRPC, 64 in flight": "grpc 64"},
}
RATES = {
    **{f"{title}: requests/s": f"{key} calls" for kinds in KINDS.values() for title, key in kinds.items()},
    "streams by handle, items/s": "handle items",
    "streams over HTTP, items/s": "http items",
}
TIMES = {
    f"{title}: {what}, ms": f"{key} {what}"
    for kinds in KINDS.values()
    for title, key in kinds.items()
    for what in ("p50", "p99")
}
ROWS = RATES | TIMES
PARTS = (*KINDS, "streams")
"""What `--only` takes."""


def parts_of(text: str) -> tuple[str, ...]:
    """The parts that are named, in our order.

    Raises:
        argparse.ArgumentTypeError: One of them is none.
    """
    named = {each.strip() for each in text.split(",")}
    for each in sorted(named - set(PARTS)):
        raise argparse.ArgumentTypeError(f"{each!r} is no part; there are: {', '.join(PARTS)}")
    return tuple(part for part in PARTS if part in named)


def started(name: str) -> Any:
    """Start what listens; returns the module that serves."""
    if name == "rankcore":
        from ray.serve.generated import serve_pb2_grpc

        from executors import ray_gpu

        functions = [serve_pb2_grpc.add_UserDefinedServiceServicer_to_server]
        ray_gpu.start(
            http_options={"port": PORT},
            grpc_options={"port": GRPC_PORT, "servicer_functions": functions},
            proxy_location="HeadOnly",
        )
        return ray_gpu
    from ray import serve
    from ray.serve.config import gRPCOptions

    function = "ray.serve.generated.serve_pb2_grpc.add_UserDefinedServiceServicer_to_server"
    grpc_options = gRPCOptions(port=GRPC_PORT, grpc_servicer_functions=[function])
    serve.start(http_options={"port": PORT}, grpc_options=grpc_options, proxy_location="HeadOnly")
    return serve


def deploy(serve: Any, replicas: int) -> None:
    """Deploy so many replicas."""
    from ray.serve.generated import serve_pb2

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


def handle_of(name: str, serve: Any) -> Any:
    """What calls it. With its throughput settings Ray Serve's handles belong to the event loop that they are made in."""
    return serve.get_deployment_handle("Bench") if name == "rankcore" else serve.get_deployment_handle("Bench", "bench")


def measure(name: str, share: int, parts: Collection[str]) -> None:
    """Parts of one system, on a fresh cluster of this process."""
    from tests.ray_local import start_ray

    start_ray()
    import ray

    async def told() -> None:
        async for figures in measured(name, share, parts):
            tell(figures)

    try:
        asyncio.run(told())
    finally:
        ray.shutdown()


async def measured(name: str, share: int, parts: Collection[str]) -> AsyncIterator[dict[str, float]]:
    """The figures of these parts, one measurement after the other."""
    serve = await asyncio.to_thread(started, name)
    for replicas in (1, 4, 2) if "handle" in parts else (2,):
        await asyncio.to_thread(deploy, serve, replicas)
        handle = handle_of(name, serve)
        if "handle" in parts:
            key = "handle 64" if replicas == 2 else f"handle 64 on {replicas}"
            yield named(key, await paced(lambda handle=handle: handle.echo.remote(1), IN_FLIGHT, 12_000 // share))
    of_part = {"handle": handles(handle, share), "http": http(share), "grpc": grpc(share), "streams": streams(handle, share)}
    for part in parts:
        async for figures in of_part[part]:
            yield figures
    await asyncio.to_thread(serve.shutdown)


async def handles(handle: Any, share: int) -> AsyncIterator[dict[str, float]]:
    """Calls of two replicas by a handle, but those that were measured while it was made."""
    yield named("handle 1", await paced(lambda: handle.echo.remote(1), 1, 2_000 // share))
    small, large = b"x" * 1024, b"x" * 1024 * 1024
    yield named("handle 1 KiB", await paced(lambda: handle.echo.remote(small), IN_FLIGHT, 12_000 // share))
    yield named("handle 1 MiB", await paced(lambda: handle.echo.remote(large), 8, 800 // share))


async def streams(handle: Any, share: int) -> AsyncIterator[dict[str, float]]:
    """Items of several streams at once: by a handle, and over HTTP with a connection for each stream."""
    streaming = handle.options(method_name="tokens", stream=True)

    async def by_handle() -> None:
        async for _ in streaming.remote(TOKENS):
            pass

    async def over_http() -> None:
        client = await Client.connect()
        await client.get("/stream")
        client.writer.close()

    yield {"handle items": await items(by_handle, 10 // share)}
    yield {"http items": await items(over_http, 40 // share)}


async def items(stream: Callable[[], Awaitable[None]], rounds: int) -> float:
    """Items a second over several streams at once, each so often."""

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


async def http(share: int) -> AsyncIterator[dict[str, float]]:
    """Requests over connections that stay open."""
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

        yield named(key, await paced(ask, connections, count))
        for client in clients:
            client.writer.close()


async def grpc(share: int) -> AsyncIterator[dict[str, float]]:
    """Unary calls over one channel."""
    from grpc.aio import insecure_channel
    from ray.serve.generated import serve_pb2, serve_pb2_grpc

    async with insecure_channel(f"127.0.0.1:{GRPC_PORT}") as channel:
        call = serve_pb2_grpc.UserDefinedServiceStub(channel).__call__
        message, metadata = serve_pb2.UserDefinedMessage(num=3), (("application", "bench"),)
        yield named("grpc 64", await paced(lambda: call(message, metadata=metadata), IN_FLIGHT, 6_000 // share))


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


def ratios(found: Found) -> None:
    """How many times the requests a second of Ray Serve, with its throughput settings too; medians over rounds."""
    rows = []
    for title, key in RATES.items():
        ours = values_of(found["rankcore"], key)
        others = [values_of(found.get(name, ()), key) for name in SYSTEMS[1:]]
        times = [f"{number(statistics.median(ours) / statistics.median(other))}x" if ours and other else "" for other in others]
        if any(times):
            rows.append([title, *times])
    print_table(["times", *SYSTEMS[1:]], rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ray_requests", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round, and a tenth of the requests")
    parser.add_argument("--rounds", type=int, default=3, help="how often each system runs; the table shows medians")
    parser.add_argument("--only", type=parts_of, default=PARTS, metavar="PARTS", help=f"some of {','.join(PARTS)}")
    parser.add_argument("--child", choices=SYSTEMS, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        measure(chosen.child, 10 if chosen.quick else 1, chosen.only)
        return
    arguments = ["--only", ",".join(chosen.only), *(["--quick"] if chosen.quick else [])]
    found, broken_off = take_turns("bench.ray_requests", SYSTEMS, 1 if chosen.quick else chosen.rounds, ROWS, arguments)
    show(found, ROWS)
    ratios(found)
    print(f"\nall measurements: {save('ray_requests', {'systems': found})}")
    sys.exit(130 if broken_off else 0)


if __name__ == "__main__":
    main()
