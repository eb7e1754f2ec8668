"""`python -m bench.rest_reads`: what ten thousand reads by REST cost calls, and how long one takes under a load of calls.

In turns of a few seconds calls by handle go on, 16 in flight, beside readers and without them; a process of its own, of low
priority since readers are elsewhere, reads over connections that stay open, so many times a second. The ratio is of the calls/s
of neighbouring turns. Where the machine does other things too, what processes have taken of its processors says more.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

from bench.measure import print_table

PORT = 8294
IN_FLIGHT = 16
CONNECTIONS = 4
PATHS = ("/api/v1/ranks", "/api/serve/applications/", "/api/v1/status")


async def read(rate: float, for_s: float) -> list[float]:
    """Read so many times a second, for so long, and say how long each read took."""
    took: list[float] = []
    number = int(rate * for_s)
    begin = time.perf_counter()

    async def one(index: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
        for turn in range(index, number, CONNECTIONS):
            await asyncio.sleep(max(0.0, begin + turn / rate - time.perf_counter()))
            asked = time.perf_counter()
            writer.write(f"GET {PATHS[turn % len(PATHS)]} HTTP/1.1\r\nhost: localhost:{PORT}\r\n\r\n".encode())
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            assert b" 200 " in head, head
            await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0]))
            took.append(time.perf_counter() - asked)
        writer.close()

    await asyncio.gather(*(one(index) for index in range(CONNECTIONS)))
    return took


async def calls_in(handle: Any, for_s: float) -> float:
    """How many calls a second are answered."""
    until, done = time.perf_counter() + for_s, 0

    async def one() -> None:
        nonlocal done
        while time.perf_counter() < until:
            await handle.remote(1)
            done += 1

    begin = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(IN_FLIGHT)))
    return done / (time.perf_counter() - begin)


async def measure(handle: Any, rate: float, for_s: float, rounds: int) -> tuple[list[float], list[float], list[float]]:
    """Calls/s without and with readers, of each round, and how long reads took."""
    without, beside, took = [], [], []
    await calls_in(handle, for_s)
    for number in range(rounds):
        for reads in (False, True) if number % 2 == 0 else (True, False):
            if not reads:
                without.append(await calls_in(handle, for_s))
                continue
            command = ["nice", "-n", "15", sys.executable, "-m", "bench.rest_reads", "--reader", str(rate), str(for_s)]
            reader = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert reader.stdout is not None
            assert reader.stdin is not None
            await reader.stdout.readline()
            reader.stdin.write(b"go\n")
            beside.append(await calls_in(handle, for_s))
            took += json.loads(await reader.stdout.readline())
            await reader.wait()
        print(f"round {number + 1} of {rounds}: {without[-1]:.0f} calls/s, beside readers {beside[-1]:.0f}", file=sys.stderr)
    return without, beside, took


def processor_s(pid: int) -> float:
    """What a process has taken of the processors."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pids(serve: Any) -> tuple[int, int]:
    """Of the controller, and of the REST server."""
    import ray

    server = ray.get_actor("rankcore-rest", namespace="rankcore")
    return serve.status().controller_pid, ray.get(server.describe.remote())[0]


def decisions(journal: str) -> int:
    """How many steps of the machine have had a note about ranks or a request."""
    with open(journal, "rb") as file:
        return sum(b'"ClusterNote"' in line for line in file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reads", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=250.0, help="reads a second")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--reader", nargs=2, type=float, metavar=("RATE", "SECONDS"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.reader is not None:
        print("ready", flush=True)
        sys.stdin.readline()
        return print(json.dumps(asyncio.run(read(*given.reader))), flush=True)
    from executors import ray_gpu as serve
    from tests.ray_local import start_ray

    start_ray()

    @serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 0})
    class Echo:
        async def __call__(self, said: int) -> int:
            return said

    handle = serve.run(Echo.bind(), route_prefix=None)
    serve.start_rest({"port": PORT})
    journal = serve.status().journal
    assert journal is not None, "there is one by default"
    before, processes = decisions(journal), pids(serve)
    taken_s = [processor_s(each) for each in processes]
    for_s = given.reads / given.rate / given.rounds
    without, beside, took = asyncio.run(measure(handle, given.rate, for_s, given.rounds))
    taken_s = [processor_s(each) - at_first for each, at_first in zip(processes, taken_s, strict=True)]
    ratios = [1 - after / alone for alone, after in zip(without, beside, strict=True)]
    took_ms = sorted(each * 1000 for each in took)
    print_table(
        ("", ""),
        [
            ("reads", f"{len(took_ms)}"),
            ("calls/s without readers, median", f"{statistics.median(without):.0f}"),
            ("calls/s beside them, median", f"{statistics.median(beside):.0f}"),
            ("calls slower by, median of the rounds", f"{statistics.median(ratios):.1%}"),
            ("  of the rounds", ", ".join(f"{each:.1%}" for each in sorted(ratios))),
            ("a read, p50", f"{statistics.median(took_ms):.1f} ms"),
            ("a read, p99", f"{took_ms[int(len(took_ms) * 0.99)]:.1f} ms"),
            ("processor time of the REST server, a read", f"{taken_s[1] / len(took_ms) * 1e6:.0f} us"),
            ("processor time of the controller, all the while", f"{taken_s[0]:.2f} s"),
            ("decisions meanwhile", f"{decisions(journal) - before}"),
        ],
    )
    serve.shutdown()


if __name__ == "__main__":
    main()
