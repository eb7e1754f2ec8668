"""Workers without processes: an actor that does what a worker's does, as far as a controller can see it."""

import asyncio
from types import SimpleNamespace

import attrs
from ray.exceptions import ActorDiedError

from executors.ray_gpu.messages import Endpoint, Outcome, Report
from executors.ray_gpu.worker.messages import MoveEnded, Progressed, WorkerReport
from rankcore.residency.levels import Level


class Streamed:
    """What a method that yields returns to its caller."""

    def __init__(self, words):
        self._words = words

    async def __aiter__(self):
        async for word in self._words:
            yield answered(word)


async def _at_once(word):
    return word


def answered(word):
    return _at_once(word)


class Method:
    def __init__(self, actor, name):
        self._actor, self._name = actor, name

    def options(self, num_returns):
        assert num_returns == "streaming"
        return SimpleNamespace(remote=lambda *args: Streamed(self._actor.streamed(self._name, *args)))

    def remote(self, *args):
        return self._actor.asked(self._name, *args)


class WorkerInMemory:
    """Loads and leaves once it may.

    Attributes:
        may_move, may_report: Cleared: moves, or answers to a new controller's question, wait.
        asked_of: Every call, with its arguments.
        fails: What a method of a name answers in place of what it should.
    """

    def __init__(self, worker_id="a/m@1#1.0", node_id="n", level=Level.COLD):
        self.worker_id, self.node_id, self.level = worker_id, node_id, level
        self.asked_of, self.fails = [], {}
        self.may_move = asyncio.Event()
        self.may_move.set()
        self.may_report = asyncio.Event()
        self.may_report.set()
        self.dead = asyncio.Event()
        self.loop = None
        self.newest = self.granted = self.tenure = self.ended = None
        self.moving = False

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return Method(self, name)

    def kill(self):
        """As Ray does, on any thread."""
        self.loop.call_soon_threadsafe(self.dead.set)

    async def alive(self, work):
        """What it answers, unless it dies before."""
        self.loop = asyncio.get_running_loop()
        doing, dying = asyncio.ensure_future(work), asyncio.ensure_future(self.dead.wait())
        await asyncio.wait({doing, dying}, return_when=asyncio.FIRST_COMPLETED)
        dying.cancel()
        if self.dead.is_set():
            doing.cancel()
            raise ActorDiedError
        return doing.result()

    async def asked(self, name, *args):
        self.asked_of.append((name, *args))
        return await self.alive(self.done(name, *args))

    async def done(self, name, *args):
        if name in self.fails:
            return self.fails[name]
        return await getattr(self, f"on_{name}")(*args)

    async def streamed(self, name, load):
        self.asked_of.append((name, load))
        if self.newest != load:
            self.newest = self.granted = load
            self.moving = True
        yield Progressed(1, 4)
        await self.alive(self.may_move.wait())
        if self.newest.move != load.move:
            yield MoveEnded(load.move, "it was broken off")
            return
        self.moving = False
        self.ended = self.fails.get(name) or MoveEnded(load.move, gpu_bytes=load.gpu_bytes)
        if self.ended.failed_because is None:
            self.level = Level.HOT
        yield self.ended

    async def on_leave(self, leave):
        self.newest, self.moving = leave, True
        await self.may_move.wait()
        self.moving = False
        self.level = Level.WARM if leave.keep_copy else Level.COLD
        self.granted = self.tenure = None
        self.ended = MoveEnded(leave.move)
        return self.ended

    async def on_watch(self):
        await asyncio.Event().wait()

    async def on_describe(self):
        return self.report()

    async def on_query(self, epoch, tenure=None):
        await self.may_report.wait()
        if self.tenure is not None:
            self.tenure = attrs.evolve(self.tenure, epoch=epoch)
        return self.report(epoch)

    async def on_take(self, epoch, replica_id):
        self.tenure = Report(
            endpoint=Endpoint(replica_id, self.worker_id, self.node_id, "", 1),
            ranks=None,
            world_size=None,
            version="a",
            ready=False,
            draining=False,
            config_id=None,
            epoch=epoch,
            protocol=3,
        )
        return self.tenure.endpoint

    async def on_change(self, replica_id, change):
        assert self.tenure.endpoint.replica_id == replica_id
        self.tenure = attrs.evolve(self.tenure, ranks=change.ranks, ready=True, config_id=change.config_id)
        return Outcome("done")

    async def on_announce(self, epoch, revision, world_size):
        return True

    async def on_limit(self, by, number):
        return None

    async def on_check_health(self):
        return None

    async def on_load(self):
        return 0

    def report(self, epoch=1):
        move = self.newest.move if self.newest is not None else 0
        return WorkerReport(
            worker_id=self.worker_id,
            actor_name=self.worker_id,
            node_id=self.node_id,
            pid=1,
            started=None,
            version="a",
            epoch=epoch,
            level=self.level,
            move=move,
            moving=self.moving,
            ended=self.ended,
            progress=Progressed(0),
            gpus=(),
            gpu_bytes=(),
            host_bytes=5,
            tenure=self.tenure,
            protocol=3,
            newest=self.newest,
            granted=self.granted,
        )
