"""A worker's process as the controller sees it: each move has one answer, and each end is told once, when it is over."""

import asyncio
from types import SimpleNamespace

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.ray_gpu.worker import worker_process as processes
from executors.ray_gpu.worker.messages import Leave, Load, MoveEnded
from executors.ray_gpu.worker.worker_process import WorkerProcess
from rankcore.cluster.commands import KillWorker
from rankcore.residency.levels import Level, Phase
from tests.ray_in_memory import until
from tests.workers_in_memory import WorkerInMemory


class Here:
    """A controller with one worker."""

    def __init__(self, monkeypatch):
        self.epoch, self.namespace = 1, "test"
        self.told, self.losses, self.found, self.ended = [], [], [], False
        self.may_be_reaped = asyncio.Event()
        self.may_be_reaped.set()
        self.actor = WorkerInMemory()
        self.process = WorkerProcess(self, self, "a/m@1#1.0", "n", self)
        monkeypatch.setattr(processes, "locate", lambda actor: ("n", 1))
        monkeypatch.setattr(
            processes, "ray", SimpleNamespace(kill=lambda actor: self.loop.call_soon_threadsafe(actor.dead.set))
        )
        self.loop = asyncio.get_running_loop()

    def now(self):
        return 1.0

    async def call(self, function, *args):
        return function(*args)

    async def gone(self, *place):
        await self.may_be_reaped.wait()

    def tell(self, event):
        self.told.append(event)

    def found_tenure(self, process):
        self.found.append(process.tenure_found)

    async def tell_losses(self, node_id):
        self.losses.append(node_id)

    def has_ended(self, process):
        self.ended = True

    def news(self):
        return [
            (type(each).__name__, getattr(each, "move", None)) for each in self.told if type(each).__name__ != "MoveProgressed"
        ]

    def start(self):
        self.process.start(lambda: self.actor)
        self.process.load(Load(1, 7, (0,), (9,)), from_disk=True)


def scenario(play):
    """Runs a coroutine function of `Here`; a process that was told to end is gone once `may_be_reaped`."""

    def run(monkeypatch):
        async def go():
            await play(Here(monkeypatch))

        asyncio.run(go())

    return run


async def hot(here):
    here.start()
    await until(lambda: here.news())
    assert here.news() == [("MoveFinished", 7)]
    here.told.clear()


@scenario
async def test_a_load_from_disk_begins_the_process(here):
    here.actor.may_move.clear()
    here.start()
    await until(lambda: here.told)
    assert [each.share for each in here.told] == [0.25]
    here.actor.may_move.set()
    await until(lambda: here.news())
    assert here.news() == [("MoveFinished", 7)]


@scenario
async def test_a_load_from_disk_that_fails_ends_its_process_before_it_is_answered_and_nothing_else_is_told(here):
    here.actor.fails["load_to_gpu"] = MoveEnded(7, "no such file")
    here.may_be_reaped.clear()
    here.start()
    await until(here.actor.dead.is_set)
    assert here.news() == []
    here.may_be_reaped.set()
    await until(lambda: here.news())
    assert here.news() == [("MoveFailed", 7)]
    assert here.told[-1].reason == "no such file"
    assert here.losses == []


@scenario
async def test_that_a_node_has_other_weights_is_told_with_the_failure(here):
    here.actor.fails["load_to_gpu"] = MoveEnded(7, "others", wrong_weights=True)
    here.start()
    await until(lambda: here.news())
    assert (here.news(), here.told[-1].wrong_weights) == ([("MoveFailed", 7)], True)


@scenario
async def test_a_load_that_poisons_its_gpu_is_a_worker_lost(here):
    here.actor.fails["load_to_gpu"] = MoveEnded(7, "device-side assert", poisoned=True)
    here.start()
    await until(lambda: here.news())
    assert here.news() == [("WorkerLost", None)]
    assert here.told[-1].reason == "device-side assert"


@scenario
async def test_a_leave_with_a_copy_leaves_the_process(here):
    await hot(here)
    here.process.leave(Leave(1, 8))
    await until(lambda: here.news())
    assert (here.news(), here.actor.dead.is_set()) == ([("MoveFinished", 8)], False)


@scenario
async def test_a_leave_without_a_copy_ends_the_process_and_only_its_answer_is_told(here):
    await hot(here)
    here.process.leave(Leave(1, 8, keep_copy=False))
    await until(lambda: here.news())
    assert (here.news(), here.actor.dead.is_set()) == ([("MoveFinished", 8)], True)


@scenario
async def test_a_leave_that_fails_ends_the_process(here):
    await hot(here)
    here.actor.fails["leave"] = MoveEnded(8, "user code does not end")
    here.process.leave(Leave(1, 8))
    await until(lambda: here.news())
    assert (here.news(), here.actor.dead.is_set()) == ([("MoveFailed", 8)], True)


def test_a_process_whose_loop_is_blocked_is_ended_when_it_is_to_leave_and_a_slow_one_is_waited_for(monkeypatch):
    monkeypatch.setattr(processes, "SILENT_S", 0.05)

    async def left(here, is_blocked):
        await hot(here)
        here.actor.may_move.clear()
        if is_blocked:
            here.actor.on_describe = asyncio.Event().wait
        here.process.leave(Leave(1, 8, timeout_s=0.0))
        await until(lambda: sum(name == "describe" for name, *_ in here.actor.asked_of) >= 1)
        here.actor.may_move.set() if not is_blocked else None
        await until(lambda: here.news())
        return here.news(), here.actor.dead.is_set(), here.actor.level

    found = [asyncio.run(_played(monkeypatch, left, is_blocked)) for is_blocked in (True, False)]
    assert found[0][:2] == ([("MoveFailed", 8)], True)
    assert found[1] == ([("MoveFinished", 8)], False, Level.WARM)


async def _played(monkeypatch, play, *args):
    return await play(Here(monkeypatch), *args)


@scenario
async def test_a_leave_of_a_busy_worker_fails_and_all_is_as_it_was(here):
    await hot(here)
    here.actor.fails["leave"] = MoveEnded(8, "2 calls are under way", busy=True)
    here.process.leave(Leave(1, 8, if_idle=True))
    await until(lambda: here.news())
    assert (here.news(), here.actor.dead.is_set()) == ([("MoveFailed", 8)], False)


@scenario
async def test_a_load_that_is_broken_off_is_not_answered_and_the_leave_is(here):
    here.actor.may_move.clear()
    here.start()
    await until(lambda: here.told)
    here.process.leave(Leave(1, 8))
    await until(lambda: here.actor.newest.move == 8)
    here.actor.may_move.set()
    await until(lambda: here.news())
    for _ in range(20):
        await asyncio.sleep(0)
    assert (here.news(), here.actor.dead.is_set()) == ([("MoveFinished", 8)], False)


@scenario
async def test_a_process_that_ends_by_itself_is_lost_once_and_its_node_is_looked_at_before(here):
    here.actor.may_move.clear()
    here.start()
    await until(lambda: here.told)
    here.actor.dead.set()
    await until(lambda: here.news())
    assert (here.news(), here.losses, here.ended) == ([("WorkerLost", None)], ["n"], True)


@scenario
async def test_a_kill_is_answered_with_the_loss_when_the_process_is_gone(here):
    await hot(here)
    here.may_be_reaped.clear()
    here.process.kill("it was told to end")
    await until(here.actor.dead.is_set)
    for _ in range(20):
        await asyncio.sleep(0)
    assert here.news() == []
    here.may_be_reaped.set()
    await until(lambda: here.news())
    assert (here.news(), here.told[-1].node_id) == ([("WorkerLost", None)], "n")


@scenario
async def test_a_kill_for_a_move_that_is_over_does_not_end_what_the_worker_is_by_now(here):
    await hot(here)
    here.process.kill_for(KillWorker("a/m", "a/m@1#1.0", 7, False, 1))
    here.process.leave(Leave(1, 8, keep_copy=True))
    here.process.kill_for(KillWorker("a/m", "a/m@1#1.0", 7, True, 1))
    await until(lambda: here.news())
    assert here.news() == [("MoveFinished", 8)]
    here.process.kill_for(KillWorker("a/m", "a/m@1#1.0", 8, False, 1))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not here.actor.dead.is_set()
    here.process.kill_for(KillWorker("a/m", "a/m@1#1.0", 8, True, 1))
    await until(lambda: len(here.news()) == 2)
    assert here.news()[1] == ("WorkerLost", None)


@scenario
async def test_of_a_move_that_ends_the_process_and_a_kill_only_the_loss_is_told(here):
    await hot(here)
    here.may_be_reaped.clear()
    here.process.leave(Leave(1, 8, keep_copy=False))
    await until(here.actor.dead.is_set)
    here.process.kill("it was told to end")
    here.may_be_reaped.set()
    await until(lambda: here.news())
    assert here.news() == [("WorkerLost", None)]


@scenario
async def test_of_a_process_that_is_replaced_nothing_is_told(here):
    await hot(here)
    here.process.replace()
    await until(here.process.gone.is_set)
    assert here.news() == []


@scenario
async def test_an_actor_that_ray_refuses_is_a_worker_lost(here):
    def refuse():
        raise ValueError("there is one of that name")

    here.process.start(refuse)
    here.process.load(Load(1, 7, (0,), (9,)), from_disk=True)
    await until(lambda: here.news())
    assert here.news() == [("WorkerLost", None)]
    assert "there is one of that name" in here.told[-1].reason


@scenario
async def test_a_load_that_is_found_under_way_is_reported_and_its_end_is_told(here):
    here.actor.may_move.clear()
    here.actor.newest = here.actor.granted = Load(1, 7, (0,), (9,))
    here.actor.moving = True
    here.process.find(here.actor)
    here.process.query(2)
    await until(lambda: here.news())
    (report,) = (each for each in here.told if type(each).__name__ == "WorkerReported")
    assert (report.phase, report.gpus, report.gpu_bytes, report.move) == (Phase.LOADING, (0,), (9,), 7)
    await until(lambda: any(name == "load_to_gpu" for name, *_ in here.actor.asked_of))
    (asked,) = (load for name, *load in here.actor.asked_of if name == "load_to_gpu")
    assert (asked[0].epoch, asked[0].move) == (2, 7)


@scenario
async def test_a_worker_that_is_found_with_nothing_is_lost(here):
    here.process.find(here.actor)
    here.process.query(2)
    await until(lambda: here.news())
    assert here.news() == [("WorkerLost", None)]


@scenario
async def test_a_worker_that_is_found_hot_says_which_replica_it_is_once_that_has_a_rank(here):
    actor = here.actor
    actor.level, actor.newest = Level.HOT, Load(1, 7, (0,), (9,))
    actor.granted = actor.newest
    await actor.on_take(1, "a/m#1.0")
    here.process.find(actor)
    here.process.query(2)
    await until(lambda: here.news())
    assert (here.told[-1].phase, here.told[-1].tenure, here.found) == (Phase.SERVING, None, [])
    await actor.on_change("a/m#1.0", SimpleNamespace(ranks=(0, 0, 0), config_id="1"))
    here.process.query(2)
    await until(lambda: len(here.news()) == 2)
    assert (here.told[-1].tenure, here.found) == ("a/m#1.0", ["a/m#1.0"])
