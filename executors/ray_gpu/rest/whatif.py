"""What if a node is lost, a target is set, a replica dies now: what is there goes on in the simulator, in a process of its own.

One question at a time: it takes a processor for some seconds. The process is ended with the client that waits for it, with this
server, and when it takes too long. It gets the journal's path and what was measured, and asks nobody.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Annotated, Any

import attrs
from msgspec import Meta, Struct

from executors.ray_gpu.overview import Status
from executors.ray_gpu.rest.problems import Problem
from executors.ray_gpu.world import NodeInfo
from executors.simulator.from_journal.calls import MeasuredCalls

MODULE = "executors.simulator.from_journal.prediction"
ANSWER_S = 120.0
GONE_S = 0.5
"""So often it is looked whether the client still waits."""
CALLS_MAX = 500_000
"""So many calls in a prediction take some seconds."""
HORIZON_MIN_S, HORIZON_MAX_S = 10.0, 3600.0
TARGET_MAX = 10_000
HAPPENS = ("node", "target", "rank")


class WhatIfBody(Struct, forbid_unknown_fields=True):
    """Whose lanes are wanted; one of three things that happen now: a node is lost, the target is set, the replica with a rank
    dies; and how far to look ahead.
    """

    deployment: str
    node: str | None = None
    target: Annotated[int, Meta(ge=0, le=TARGET_MAX)] | None = None
    rank: Annotated[int, Meta(ge=0)] | None = None
    horizon_s: Annotated[float, Meta(ge=HORIZON_MIN_S, le=HORIZON_MAX_S)] = 300.0


def asked_in(
    said: WhatIfBody, status: Status, nodes: Mapping[str, NodeInfo] | None, calls: Mapping[str, MeasuredCalls]
) -> dict[str, Any]:
    """What is asked, of what there is.

    Raises:
        Problem: It names none of these, or several, or something that is not there; names the field.
    """
    given = [each for each in HAPPENS if getattr(said, each) is not None]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        raise Problem(422, f"{given[-1] if given else 'node'}: expected one of {', '.join(HAPPENS)}, found {found}", "node")
    if said.deployment not in status.deployments:
        there_are = ", ".join(status.deployments) or "none"
        raise Problem(404, f"deployment: there is no {said.deployment!r:.80}; there is: {there_are}", "deployment")
    info = status.deployments[said.deployment]
    if info.has_residency:
        text = "deployment: its weights may be COLD, and how long they move then is not predicted here"
        raise Problem(422, f"{text}: `rankcore simulate` has scenarios with residency", "deployment")
    if said.rank is not None and said.rank >= info.world_size:
        raise Problem(422, f"rank: expected 0 to {info.world_size - 1}, found {said.rank}", "rank")
    if said.node is not None:
        there = {*(nodes or {}), *(each.node_id for each in info.replicas if each.node_id is not None)}
        if said.node not in there:
            text = f"node: expected one of {len(there)} nodes that are alive, found {said.node!r:.80}"
            raise Problem(422, f"{text}; GET /api/v1/live names them", "node")
    expected = sum(each.rate_per_s for each in calls.values()) * said.horizon_s
    if expected > CALLS_MAX:
        most = CALLS_MAX * said.horizon_s / expected
        text = f"horizon_s: expected at most {most:.0f}, for {CALLS_MAX:,} calls at the present rate, found {said.horizon_s:g}"
        raise Problem(422, text, "horizon_s")
    return {"happens": given[0], given[0]: getattr(said, given[0]), "deployment": info.name}


class WhatIf:
    """Asks one question at a time."""

    def __init__(self) -> None:
        self._is_asking = False

    async def ask(self, question: dict[str, Any], is_gone: Callable[[], Awaitable[bool]]) -> bytes:
        """The answer, as JSON.

        Raises:
            Problem: Another one is being answered, it takes too long, or the journal cannot be gone on with.
        """
        if self._is_asking:
            raise Problem(429, "another what-if is being answered: ask again in some seconds", None, {"retry-after": "5"})
        self._is_asking = True
        try:
            return await self._answer(question, is_gone)
        finally:
            self._is_asking = False

    async def _answer(self, question: dict[str, Any], is_gone: Callable[[], Awaitable[bool]]) -> bytes:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", MODULE),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
        )
        assert process.stdin is not None, "it has a pipe"
        assert process.stdout is not None, "it has a pipe"
        assert process.stderr is not None, "it has a pipe"
        try:
            process.stdin.write(json.dumps(question).encode() + b"\n")  # it may not read it: nobody waits for that
            reading = asyncio.gather(process.stdout.read(), process.stderr.read())
            deadline = asyncio.get_running_loop().time() + ANSWER_S
            while not reading.done():
                await asyncio.wait([reading], timeout=GONE_S)
                if asyncio.get_running_loop().time() > deadline:
                    raise Problem(
                        504, f"the prediction has taken longer than {ANSWER_S:g} s and is ended: ask for a shorter horizon_s"
                    )
                if not reading.done() and await is_gone():
                    raise Problem(499, "the client has left")
            said, complaints = reading.result()
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        return _checked(said, complaints)


def _checked(said: bytes, complaints: bytes) -> bytes:
    if not said:
        last = (complaints.decode(errors="replace").strip().splitlines() or ["it was ended"])[-1]
        if "No module named" in last:
            raise Problem(503, f"what-ifs need more packages on the head node: pip install 'rankcore[sim]' ({last:.200})")
        raise Problem(500, f"the prediction has failed: {last:.300}")
    found = json.loads(said)
    if "error" in found:
        raise Problem(422, f"{found['error']:.600}", "deployment")
    return said


def question_of(
    journal: str,
    now: float | None,
    asked: dict[str, Any],
    horizon_s: float,
    calls: Mapping[str, MeasuredCalls],
    nodes: Mapping[str, NodeInfo] | None,
) -> dict[str, Any]:
    """What the process is told, a `LiveQuestion`: that is not imported here, where `rankcore[sim]` need not be installed."""
    free = {each.node_id: dict(each.free) for each in nodes.values()} if nodes is not None else None
    measured = {name: attrs.asdict(each) for name, each in calls.items()}
    return {"journal": journal, "now": now, "asked": asked, "horizon_s": horizon_s, "calls": measured, "free": free}
