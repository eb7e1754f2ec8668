"""A controller and its watchdog, two real processes without Ray: one is stopped, killed or busy, and what becomes of both."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.ray_gpu.os_processes import stat_of
from executors.ray_gpu.patience import CONTROLLER_SILENCE_S, PROXY_SILENCE_S, controller_silence_s, proxy_silence_s
from tests.ray_local import eventually

if not hasattr(os, "pidfd_open"):
    pytest.skip("this system has no pidfd, and so no watchdog", allow_module_level=True)

TIMEOUT_S = 60.0
SILENCE_S = 0.75

CONTROLLER = """
import asyncio, sys, time
from executors.ray_gpu import watched

watched.AGAIN_S = float(sys.argv[2])

async def live():
    watched.Watched(float(sys.argv[1])).begin()
    while True:
        word = await asyncio.to_thread(sys.stdin.readline)
        if word == "block\\n":
            time.sleep(float(sys.argv[1]) / 2)
        print("again", flush=True)

asyncio.run(live())
"""


def alive(pid):
    fields = stat_of(pid)
    return fields is not None and fields[0] not in "ZX"


def children(pid):
    """The living ones, but for copies of the process itself that have not begun to run another program."""
    found = []
    for each in filter(str.isdigit, os.listdir("/proc")):
        fields = stat_of(int(each))
        if fields is not None and fields[0] not in "ZX" and int(fields[1]) == pid:
            found.append(int(each))
    return found


@contextmanager
def controller(silence_s=SILENCE_S, again_s=0.01):
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = subprocess.Popen([sys.executable, "-c", CONTROLLER, str(silence_s), str(again_s)], **pipes)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def watchdog_of(process, other_than=None):
    def found():
        there = children(process.pid)
        return there[0] if len(there) == 1 and there[0] != other_than else None

    return eventually(found, "it has a watchdog", TIMEOUT_S)


def gone(pid, why):
    eventually(lambda: not alive(pid), why, TIMEOUT_S)


def test_a_controller_that_is_stopped_is_ended_and_its_watchdog_ends_with_it():
    with controller() as stopped:
        watchdog = watchdog_of(stopped)
        os.kill(stopped.pid, signal.SIGSTOP)
        gone(stopped.pid, "it has been ended")
        gone(watchdog, "so has its watchdog")
        assert stopped.wait(TIMEOUT_S) == -signal.SIGKILL
        assert b"has not answered for 0.75 s and was killed" in stopped.stderr.read()


def test_one_that_is_stopped_or_busy_for_less_lives_on_and_so_does_its_watchdog():
    with controller(silence_s=20.0) as process:
        watchdog = watchdog_of(process)
        for _ in range(3):
            os.kill(process.pid, signal.SIGSTOP)
            os.kill(process.pid, signal.SIGCONT)
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"again\n"
        assert (alive(process.pid), children(process.pid)) == (True, [watchdog])


def test_a_loop_that_was_blocked_answers_what_was_asked_meanwhile():
    with controller(silence_s=3.0) as process:
        watchdog = watchdog_of(process)
        process.stdin.write(b"block\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"again\n"
        assert (alive(process.pid), children(process.pid)) == (True, [watchdog])


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
def test_a_watchdog_that_ends_or_hangs_is_replaced(how):
    with controller() as process:
        first = watchdog_of(process)
        os.kill(first, how)
        second = watchdog_of(process, other_than=first)
        gone(first, "the first is gone")
        os.kill(process.pid, signal.SIGSTOP)
        gone(process.pid, "the second watches")
        gone(second, "and ends")
        assert b"another is started" in process.stderr.read()


def test_a_watchdog_that_is_ended_just_before_its_controller_is_no_news():
    """As Ray does at the end of a cluster: children first."""
    with controller(again_s=3600.0) as process:
        watchdog = watchdog_of(process)
        os.kill(watchdog, signal.SIGKILL)
        eventually(lambda: stat_of(watchdog) is None, "the controller knows that it is gone", TIMEOUT_S)
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"again\n", "the loop has gone on"
        process.kill()
        assert b"watchdog" not in process.communicate()[1]


def test_a_machine_that_stands_still_costs_no_controller():
    with controller() as process:
        watchdog = watchdog_of(process)
        for pid in (watchdog, process.pid):
            os.kill(pid, signal.SIGSTOP)
        time.sleep(2 * SILENCE_S)
        for pid in (process.pid, watchdog):
            os.kill(pid, signal.SIGCONT)
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"again\n"
        assert watchdog_of(process) == watchdog


def test_a_watchdog_ends_with_its_controller():
    with controller() as process:
        watchdog = watchdog_of(process)
        process.kill()
        gone(watchdog, "nothing is left to watch")


def test_a_watchdog_is_a_light_process():
    with controller() as process:
        watchdog = watchdog_of(process)
        about = Path(f"/proc/{watchdog}")
        eventually(lambda: b"watchdog.py" in (about / "cmdline").read_bytes(), "it runs its own program", TIMEOUT_S)
        loaded = (about / "maps").read_text()
        assert "_raylet" not in loaded
        assert "grpc" not in loaded


@pytest.mark.parametrize("text", ["", "soon", "-1", "0", "nan", "inf"])
def test_how_long_silence_may_last_comes_from_the_environment_where_that_makes_sense(monkeypatch, text):
    monkeypatch.setenv(PROXY_SILENCE_S, text)
    monkeypatch.setenv(CONTROLLER_SILENCE_S, text)
    assert (proxy_silence_s(), controller_silence_s()) == (9.0, 27.0)
    monkeypatch.setenv(PROXY_SILENCE_S, "2")
    monkeypatch.setenv(CONTROLLER_SILENCE_S, "3.5")
    assert (proxy_silence_s(), controller_silence_s()) == (2.0, 3.5)
