"""`python -m bench.idle_connections`: what thousands of idle connections cost a proxy, and how it serves others beside them.

Half of the connections have had an answer and say nothing more, half have never said anything. Both ends are processes of
their own: the proxy is the real one, in front of a replica. Exits with 1 if a promise does not hold: each connection costs
little, others are answered meanwhile, and all are closed when their time is up, which gives back their files.
"""

import argparse
import asyncio
import resource
import sys
import time

import ray

from bench.soak_watch import held_by
from executors import ray_gpu as serve

HEADER_S, KEEP_ALIVE_S = 90.0, 90.0
KIB_EACH = 40.0
"""So much of the proxy's memory a connection may take."""
CLOSED_S = 60.0
"""So long after its time every connection has to be closed."""
ASK = b"GET / HTTP/1.1\r\nhost: here\r\n\r\n"
BUFFER_BYTES = 4096
AT_ONCE = 200
PER_ADDRESS = 5000
"""Connections from one address of 127.0.0.0/8: their ports would run short."""


@serve.deployment(ray_actor_options={"num_cpus": 0}, max_ongoing_requests=100)
class Hello:
    async def __call__(self, request):
        return "hello"


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
    broken += [f"only {files - files_before} were open at once"] if files - files_before < connections else []
    return broken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--port", type=int, default=8025)
    chosen = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < chosen.connections + 500:
        sys.exit(f"this user may have {hard} open files, and {chosen.connections + 500} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False)
    try:
        times = {"header_timeout_s": HEADER_S, "keep_alive_timeout_s": KEEP_ALIVE_S}
        serve.start(http_options={"port": chosen.port, **times})
        serve.run(Hello.bind(), route_prefix="/")
        (proxy,) = serve.status().proxies
        assert proxy.pid is not None, proxy.problem
        broken = asyncio.run(measure(chosen.port, proxy.pid, chosen.connections))
    finally:
        serve.shutdown(timeout_s=30)
        ray.shutdown()
    for each in broken:
        print(f"BROKEN: {each}")
    print("all of it holds" if not broken else f"{len(broken)} things do not hold")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
