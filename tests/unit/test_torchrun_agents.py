"""Agents of a gang in this process, over loopback: connections that end, leases that lapse, refusals in one line."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress

import pytest

from executors.torchrun.ending import MEMBER, kill_processes_of, machine, processes_of, started_ticks
from executors.torchrun.lease import GRACE_S, MARGIN_S, Deadline, LeaseGuard, deadline, has_lapsed
from executors.torchrun.link import Link
from executors.torchrun.messages import VERSION, AgentPhase, AskToJoin, Hello
from executors.torchrun.options import AgentOptions, GangOptionError, options_of, sizes_of, store_port_of
from executors.torchrun.server import check_address
from rankcore.gang import Gang
from tests.torchrun_served import PATIENCE_S, Served


class Ended:
    """What an agent was told of its end."""

    def __init__(self):
        self.terminated, self.killed, self.why = threading.Event(), threading.Event(), ""

    def terminate(self, why):
        self.why = why
        self.terminated.set()


@contextmanager
def agents(served, names, **said):
    links = {}
    for name in names:
        ended = Ended()
        guard = LeaseGuard(ended.terminate, ended.killed.set)
        hello = Hello(VERSION, "job", name, f"node-{name}", "", os.getpid(), 1)
        links[name] = Link(
            "127.0.0.1", served.port, hello, AskToJoin(0, None, None, 1, served.server.coordinator.gang.max_size), guard
        )
        links[name].ended = ended
        links[name].start()
    try:
        yield links
    finally:
        for link in links.values():
            link.stop(PATIENCE_S)


def parked(link):
    """One that has joined, so that others come after it."""
    link.ask()
    assert link.wait(PATIENCE_S, lambda: link.standing is not None)
    return link


def rounds(*links):
    """The rank of each in the round that it has asked for, or asks for now."""
    for link in links:
        link.ask()
    for link in links:
        assert link.wait(PATIENCE_S, link.has_answer)
    return [link.take().rank for link in links]


def test_a_gang_meets_and_a_spare_takes_the_rank_of_one_that_leaves():
    served = Served(Gang(2, 2))
    with agents(served, "abs") as link:
        assert rounds(parked(link["a"]), link["b"]) == [0, 1]
        parked(link["s"])
        assert [each.needs_round for each in link.values()] == [False] * 3
        assert link["s"].standing.phase is AgentPhase.PARKED
        link["a"].stop(PATIENCE_S)
        assert link["b"].wait(PATIENCE_S, lambda: link["b"].needs_round)
        assert rounds(link["b"]) == [1]
        assert link["s"].wait(PATIENCE_S, link["s"].has_answer)
        assert link["s"].take().rank == 0
        assert not link["b"].needs_round
        link["b"].close()
        for name in "bs":
            assert link[name].wait(PATIENCE_S, lambda name=name: link[name].is_closed)
    assert served.ends() == 0
    assert [line.partition(": ")[2] for line in served.lines] == [
        "round 1: rank 0 node-a, 1 node-b; 2 agents, 0 parked",
        "2 agents, 1 parked",
        "round 2: rank 0 node-s; 2 agents, 0 parked",
    ]


def test_agents_tell_a_new_coordinator_their_ranks_before_they_are_asked():
    served = Served(Gang(2, 2))
    with agents(served, "ab") as link:
        assert rounds(parked(link["b"]), link["a"]) == [0, 1]
        served.crash()
        served = Served(Gang(2, 2, restarted=True, recover_s=5.0), served.port)
        for each in link.values():
            assert each.wait(PATIENCE_S, lambda each=each: each.needs_round)
            assert each.wait(PATIENCE_S, each.has_answer)
        assert rounds(link["a"], link["b"]) == [1, 0]
        assert link["a"].standing.round == 2
        assert not any(each.needs_round for each in link.values())
        link["a"].close()
    assert served.ends() == 0


def test_an_agent_has_a_lease_from_its_first_request_on():
    served = Served(Gang(1, 1), lease_s=600.0)  # of which the first renewal would come after 120 s
    with agents(served, "a") as link:
        assert link["a"].wait(PATIENCE_S, lambda: link["a"].welcome is not None)
        link["a"].ask()
        assert link["a"]._guard._lease_s == 600.0
    served.crash()


def test_an_agent_without_a_coordinator_is_told_to_end():
    served = Served(Gang(1, 1), lease_s=MARGIN_S + 0.1)
    with agents(served, "a") as link:
        assert rounds(link["a"]) == [0]
        served.crash()
        assert link["a"].ended.terminated.wait(PATIENCE_S)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (Gang(1, 2), "MAX is 1, expected 2"),
        (Gang(1, 1, nproc=8), "nproc is 1, expected 8"),
        (Gang(1, 1, agents_per_node=0), "node node-a has 0 already, expected no more"),
    ],
)
def test_an_agent_with_a_rank_that_a_new_coordinator_refuses_ends_at_once(other, why):
    """Its rank may be another's, of whom that coordinator knows (TR8)."""
    served = Served(Gang(1, 1))
    with agents(served, "a") as link:
        assert rounds(link["a"]) == [0]
        served.crash()
        served = Served(other, served.port)
        assert link["a"].ended.terminated.wait(PATIENCE_S)
        assert link["a"].ended.why == f"the coordinator refuses it, {why}"
    served.crash()


def test_a_coordinator_of_another_job_renews_no_lease_and_the_right_one_does_so_again():
    served = Served(Gang(1, 1))
    with agents(served, "a") as link:
        assert rounds(link["a"]) == [0]
        served.crash()
        stranger = Served(Gang(1, 1), served.port, run_id="another")
        assert link["a"].wait(PATIENCE_S, lambda: link["a"].is_closed)
        assert not link["a"]._guard._stopped.is_set()
        stranger.crash()
        served = Served(Gang(1, 1, restarted=True), served.port)
        assert link["a"].wait(PATIENCE_S, lambda: link["a"].needs_round)
        assert rounds(link["a"]) == [0]
        assert not link["a"].ended.terminated.is_set()
    served.crash()


def test_an_agent_whose_job_is_done_joins_no_other_one_at_its_address():
    served = Served(Gang(1, 1))
    with agents(served, "a") as link:
        assert rounds(link["a"]) == [0]
        link["a"].close()
        assert link["a"].wait(PATIENCE_S, lambda: link["a"].is_closed)
        served.crash()
        link["a"]._thread.join(PATIENCE_S)
        assert not link["a"]._thread.is_alive()


def test_a_coordinator_that_hears_no_agent_is_cut_off_from_nobody_else():
    served = Served(Gang(1, 1))
    with socket.create_connection(("127.0.0.1", served.port), PATIENCE_S) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with suppress(ConnectionResetError):
            assert stranger.recv(1) == b""
    with agents(served, "a") as link:
        assert rounds(link["a"]) == [0]
        link["a"].close()
    assert served.ends() == 0


@pytest.mark.parametrize(
    ("after_s", "expected"),
    [
        (0, Deadline.NONE),
        (13.9, Deadline.NONE),
        (14, Deadline.TERM),
        (18.9, Deadline.TERM),
        (19, Deadline.KILL),
    ],
)
def test_an_agent_has_killed_itself_before_its_rank_is_given_away(after_s, expected):
    assert deadline(100.0, 15.0, 100.0 + after_s) is expected
    assert not has_lapsed(100.0, 15.0, 100.0 + 14 + GRACE_S)
    assert has_lapsed(100.0, 15.0, 100.1 + 15 + GRACE_S)


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


def test_a_lease_that_is_over_stays_over_and_one_that_another_has_ends_at_once():
    ended, clock = Ended(), Clock()
    guard = LeaseGuard(ended.terminate, ended.killed.set, clock)
    guard.renewed(100.0, 15.0)
    clock.now_s = 114.0
    guard.renewed(114.0, 15.0)
    assert ended.terminated.wait(PATIENCE_S)
    clock.now_s = 119.0
    assert ended.killed.wait(PATIENCE_S)
    assert ended.why == "no coordinator has answered for 14 s"
    other = Ended()
    guard = LeaseGuard(other.terminate, other.killed.set, Clock())
    guard.renewed(100.0, 15.0)
    guard.lapse("it is another's")
    assert other.terminated.wait(PATIENCE_S)
    assert other.why == "it is another's"
    assert not other.killed.is_set()
    guard.stop()


def test_the_processes_of_an_agent_are_found_when_it_is_gone_and_no_others_are():
    member = f"a/{os.getpid()}/x"
    script = (
        "import subprocess, sys; p = subprocess.Popen(['sleep', '600'], stdout=subprocess.DEVNULL); print(p.pid, flush=True)"
    )
    other = subprocess.Popen(["sleep", "600"], env={MEMBER: member + "y"})
    done = subprocess.run(
        [sys.executable, "-S", "-c", script], env={MEMBER: member, "PATH": os.environ["PATH"]}, stdout=subprocess.PIPE
    )
    orphan = int(done.stdout)
    try:
        assert processes_of(member, 2**30) == [orphan]
        assert started_ticks(orphan) > 0
        assert kill_processes_of(member, 2**30) == 1
        while processes_of(member, 2**30):
            time.sleep(0.01)
        assert other.poll() is None
        assert other.pid in processes_of("nobody", os.getpid())  # a child, without the variable
    finally:
        other.kill()
        other.wait()
    assert (started_ticks(2**30), processes_of(member, 2**30)) == (-1, [])


def test_the_end_of_an_agent_on_this_host_is_known_at_once():
    served = Served(Gang(1, 1))
    sleeper = subprocess.Popen(["sleep", "600"])
    server, told = served.server, threading.Event()
    server.coordinator.left = lambda member, now_s: told.set() or []
    try:
        for ticks, is_watched in ((1, False), (started_ticks(sleeper.pid), True)):
            hello = Hello(VERSION, "job", "a", "n", machine(), sleeper.pid, ticks)
            asyncio.run_coroutine_threadsafe(_watch(server, hello), served._loop).result(PATIENCE_S)
            assert ("a" in server._pidfds) == is_watched
        sleeper.send_signal(signal.SIGKILL)
        assert told.wait(PATIENCE_S)
    finally:
        sleeper.kill()
        sleeper.wait()
        served.crash()


async def _watch(server, hello):
    server._watch(hello)


def test_options_of_an_agent():
    assert options_of({"node_id": "n", "nproc": "8", "connect_timeout_s": "5", "timeout": 900}) == AgentOptions("n", 8, 5.0)
    assert options_of({}).nproc is None
    for wrong, said in (
        ({"is_host": "1"}, "--rdzv-conf has is_host, expected some of node_id, nproc, connect_timeout_s"),
        ({"nproc": "many"}, "--rdzv-conf nproc must be a positive number, got many"),
        ({"connect_timeout_s": "0"}, "--rdzv-conf connect_timeout_s must be a positive number, got 0"),
    ):
        with pytest.raises(GangOptionError) as raised:
            options_of(wrong)
        assert str(raised.value) == said


def test_sizes_of_a_gang():
    assert (sizes_of("2:3"), sizes_of("4")) == ((2, 3), (4, 4))
    for wrong in ("0:3", "3:2", "x", "", "1:2:3"):
        with pytest.raises(GangOptionError, match="--nnodes must be MIN:MAX"):
            sizes_of(wrong)


def test_the_store_has_a_port_of_its_own():
    assert [store_port_of(29_400, None), store_port_of(0, None), store_port_of(0, 0), store_port_of(65_535, 7)] == [
        29_401,
        0,
        0,
        7,
    ]
    with pytest.raises(GangOptionError, match="--port must be below 65535 where no --store-port is given, got 65535"):
        store_port_of(65_535, None)
    with pytest.raises(GangOptionError, match="--store-port must be another port than --port, got 7 for both"):
        store_port_of(7, 7)


def test_a_host_that_is_not_this_machine_is_said_at_once():
    check_address("127.0.0.1")
    with pytest.raises(OSError, match=r"^--host must be an address of this machine, got 192\.0\.2\.1: "):
        check_address("192.0.2.1")


def test_the_entry_point_needs_neither_ray_nor_typer_nor_torch():
    found = "print(sorted({'ray', 'typer', 'torch', 'msgspec'} & {*sys.modules}))"
    script = f"import sys; from executors.torchrun.entry import rankcore; rankcore(); {found}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")
