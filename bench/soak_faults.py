"""The faults of a soak: processes are killed, stopped for a moment, or for good; a controller goes on while it is replaced."""

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import ray

from executors import ray_gpu as serve
from executors.ray_gpu import names
from executors.ray_gpu.patience import CONTROLLER_SILENCE_S, PROXY_SILENCE_S, controller_silence_s, proxy_silence_s

SILENCE = {PROXY_SILENCE_S: "4", CONTROLLER_SILENCE_S: "6"}
"""The cluster of a soak is less patient than others, so that a minute has several of each."""
PAUSE_SHARE = 0.4
"""Of the silence that is allowed: a process that is stopped for no longer has to live on."""
MARGIN_S = 15.0
"""How much later than after that silence a stopped process may be ended, on a machine that is busy."""

Pids = dict[str, list[int]]


def exists(pid: int) -> bool:
    """Whether there is such a process."""
    return Path(f"/proc/{pid}").exists()


def kill(pid: int, silence_s: float) -> list[str]:
    """End it."""
    send(pid, signal.SIGKILL)
    return []


def pause(pid: int, silence_s: float) -> list[str]:
    """Stop it for less than may be, after which it has to be there."""
    send(pid, signal.SIGSTOP)
    time.sleep(silence_s * PAUSE_SHARE)
    there = exists(pid)
    send(pid, signal.SIGCONT)
    time.sleep(0.5)
    return [] if there and exists(pid) else [f"process {pid} was stopped for a moment only, and was ended"]


def stop(pid: int, silence_s: float) -> list[str]:
    """Stop it for good, after which it has to be ended by others."""
    send(pid, signal.SIGSTOP)
    if until_gone(pid, silence_s + MARGIN_S):
        return []
    send(pid, signal.SIGCONT)
    return [f"process {pid} was stopped for {silence_s + MARGIN_S:g} s, and is still there"]


def go_on_late(pid: int, silence_s: float) -> list[str]:
    """Stop a controller, have Ray replace it, and let it go on meanwhile: it has to end, and the next one to answer."""
    epoch = serve.status().epoch
    send(pid, signal.SIGSTOP)
    try:
        ray.kill(ray.get_actor(names.CONTROLLER, namespace=names.DEFAULT_NAMESPACE), no_restart=False)
        time.sleep(silence_s * PAUSE_SHARE)
    finally:
        send(pid, signal.SIGCONT)
    successor = serve.status()
    if successor.epoch <= epoch or successor.controller_pid == pid:
        return [f"the replaced controller {pid} has answered"]
    return [] if until_gone(pid, silence_s + MARGIN_S) else [f"the replaced controller {pid} lives on"]


def send(pid: int, what: signal.Signals) -> None:
    """Send a signal, if there is a process."""
    with suppress(ProcessLookupError):
        os.kill(pid, what)


def until_gone(pid: int, timeout_s: float) -> bool:
    """Whether it has ended within so long."""
    deadline = time.monotonic() + timeout_s
    while exists(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not exists(pid)


Fault = Callable[[int, float], list[str]]
FAULTS: tuple[tuple[str, str, Fault, int], ...] = (
    ("replica killed", "replica", kill, 12),
    ("proxy killed", "proxy", kill, 4),
    ("proxy paused", "proxy", pause, 3),
    ("proxy stopped", "proxy", stop, 3),
    ("controller killed", "controller", kill, 4),
    ("controller paused", "controller", pause, 3),
    ("controller stopped", "controller", stop, 3),
    ("controller goes on late", "controller", go_on_late, 2),
)
"""What is done to which kind of process, and how often beside the others."""


def do_something(pids: Pids, chance: random.Random, spared: set[int]) -> tuple[str, list[str]]:
    """One fault: what it was, and what did not hold."""
    name, kind, fault, _ = chance.choices(FAULTS, [weight for *_, weight in FAULTS])[0]
    candidates = [pid for pid in pids[kind] if pid not in spared]
    if not candidates:
        return "nothing", []
    silence_s = controller_silence_s() if kind == "controller" else proxy_silence_s()
    return name, [f"{name}: {wrong}" for wrong in fault(chance.choice(candidates), silence_s)]
