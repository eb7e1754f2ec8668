"""`python -m bench.idle_connections`: what thousands of idle connections cost a proxy, and how it serves others beside them.

Half of the connections have had an answer and say nothing more, half have never said anything. Both ends are processes of
their own. The proxy is the real one, but for the actor around it and a router that answers by itself: Ray is not needed. Exits
with 1 if a promise does not hold: each connection costs little, others are answered meanwhile, and all are closed when their
time is up, which gives back their files.
"""

import argparse
import asyncio
import multiprocessing
import pickle
import sys
import time
from typing import Any

from bench.soak_watch import held_by
from executors.ray_gpu.http.options import HttpOptions
from executors.ray_gpu.http.proxy_app import ProxyApp, serve
from executors.ray_gpu.proxies.proxy import allow_many_connections, bound
from executors.ray_gpu.requests.loops import new_loop

HEADER_S, KEEP_ALIVE_S = 60.0, 60.0
KIB_EACH = 40.0
"""So much of the proxy's memory a connection may take."""
CLOSED_S = 60.0
"""So long after its time every connection has to be closed."""
ASK = b"GET / HTTP/1.1\r\nhost: here\r\n\r\n"
BUFFER_BYTES = 4096
AT_ONCE = 200
PER_ADDRESS = 5000
"""Connections from one address of 127.0.0.0/8: their ports would run short."""


class Hello:
    """In a router's place: answers at once."""

    SAID = pickle.dumps(
        [
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]},
            {"type": "http.response.body", "body": b"hello"},
        ]
    )

    def submit_here(self, call: Any) -> None:
        call.stream.put(self.SAID)
        call.stream.end()


def run_proxy(port: int, up: Any) -> None:
    """A proxy, until its process is ended."""
    allow_many_connections()
    options = HttpOptions(port=port, header_timeout_s=HEADER_S, keep_alive_timeout_s=KEEP_ALIVE_S)
    app = ProxyApp(options, lambda deployment: Hello())
    app.routes = {"/": "hello"}

    async def serves() -> None:
        _, task = await serve(app, options, [await bound("127.0.0.1", port)])
        up.set()
        await task

    new_loop().run_until_complete(serves())


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One request and its whole answer."""
    writer.write(ASK)
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), head
    await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]))


async def opened(port: int, number: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection; every second one has asked something, and has its answer."""
    local = (f"127.0.0.{2 + number // PER_ADDRESS}", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=local, limit=BUFFER_BYTES)
    if number % 2:
        await ask(reader, writer)
    return reader, writer


async def latencies(port: int, times: int) -> list[float]:
    """Of requests one after another on a connection of their own, in seconds, sorted."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    found = []
    for _ in range(times):
        began = time.monotonic()
        await ask(reader, writer)
        found.append(time.monotonic() - began)
    writer.close()
    return sorted(found)


async def measure(port: int, pid: int, connections: int) -> list[str]:
    """Open, look, wait; returns what does not hold."""
    alone = await latencies(port, 300)
    files_before, _, mib_before = held_by(pid)
    began, idle = time.monotonic(), []
    for first in range(0, connections, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, connections))
        idle += await asyncio.gather(*(opened(port, number) for number in numbers))
    opened_s = time.monotonic() - began
    files, _, mib = held_by(pid)
    beside = await latencies(port, 300)
    kib_each = (mib - mib_before) * 1024 / connections
    closing = time.monotonic()
    ends = asyncio.gather(*(reader.read() for reader, _ in idle), return_exceptions=True)
    try:
        async with asyncio.timeout(max(HEADER_S, KEEP_ALIVE_S) + CLOSED_S):
            await ends
        closed = True
    except TimeoutError:
        closed = False
    closed_s = time.monotonic() - closing
    for _, writer in idle:
        writer.close()
    await asyncio.sleep(1.0)
    files_after, _, mib_after = held_by(pid)
    print(
        f"{connections:,} connections in {opened_s:.1f} s; open files of the proxy {files_before} -> {files} -> {files_after}"
    )
    print(f"its memory {mib_before:.1f} -> {mib:.1f} -> {mib_after:.1f} MiB: {kib_each:.1f} KiB for each connection")
    for what, found in (("before", alone), ("beside them", beside)):
        print(f"a request {what}: median {found[150] * 1e3:.1f} ms, p99 {found[297] * 1e3:.1f} ms")
    print(f"all are closed after {closed_s:.0f} s" if closed else f"not all are closed after {closed_s:.0f} s")
    broken = [] if closed else ["idle connections stay open"]
    broken += [f"a connection takes {kib_each:.1f} KiB"] if kib_each > KIB_EACH else []
    broken += [f"{files_after - files_before} files are not closed"] if files_after > files_before + 20 else []
    broken += [f"only {files - files_before} were open at once"] if files - files_before < connections - 10 else []
    return broken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--port", type=int, default=8025)
    chosen = parser.parse_args()
    allow_many_connections()
    spawned = multiprocessing.get_context("spawn")
    up = spawned.Event()
    proxy = spawned.Process(target=run_proxy, args=(chosen.port, up), daemon=True)
    proxy.start()
    try:
        assert up.wait(60), "the proxy is not up"
        assert proxy.pid is not None
        broken = asyncio.run(measure(chosen.port, proxy.pid, chosen.connections))
    finally:
        proxy.kill()
    for each in broken:
        print(f"BROKEN: {each}")
    print("all of it holds" if not broken else f"{len(broken)} things do not hold")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
