"""The controller on Ray with no cluster below: its store is in memory, and its replicas are none or answer at once."""

import asyncio
import concurrent.futures
import itertools
import pickle
import threading
from collections import Counter, defaultdict
from types import SimpleNamespace

from executors.deployment_ids import deployment_id
from executors.maintenance import Maintenance
from executors.ray_gpu import cluster as clusters
from executors.ray_gpu import executor
from executors.ray_gpu import ray_deployment as deployments
from executors.ray_gpu.checkpoint import Found
from executors.ray_gpu.cluster import ClusterOnRay
from executors.ray_gpu.controller import Controller
from executors.ray_gpu.extras import extras_of
from executors.ray_gpu.metrics.counts import CheckCounts
from executors.ray_gpu.packing import Package
from executors.ray_gpu.proxies.keeper import ProxyKeeper
from executors.ray_gpu.user_code import Code
from executors.ray_gpu.waiting_line import WaitingLine
from executors.ray_gpu.worker import workers
from executors.ray_gpu.worker.options import MemoryOptions
from rankcore import DeploymentSpec
from rankcore.commands import InitializeReplica, KillReplica, StartReplica, StopReplica
from rankcore.events import ReplicaPlaced, ReplicaReady, ReplicaStartFailed, ReplicaStopped
from rankcore.routing import RoutingSpec

M = "default/m"


class Store:
    """A checkpoint in memory. Records that it `holds` wait for `gate`."""

    def __init__(self, *found):
        self.kept = {each.id_on_ray: each for each in found}
        self.codes = {}
        self.gate = threading.Event()
        self.gate.set()
        self.holds = lambda record: True
        self.failures = 0
        self.failures_of_planner = []
        self.options = MemoryOptions()
        self.asked, self.times = {}, {}

    def records(self, before_epoch):
        return [found for _, found in sorted(self.kept.items())]

    def memory(self):
        return self.options

    def put_memory(self, options):
        self.options = options

    def maintenance(self):
        return [(key, key, text.encode()) for key, text in self.asked.items()]

    def put_maintenance(self, texts, changed):
        for key in changed:
            self.asked.pop(key, None)
            self.asked |= {key: texts[key]} if key in texts else {}

    def cordons(self):
        return list(self.kept_maintenance().cordons.values())

    def replacements(self):
        return list(self.kept_maintenance().replacements.values())

    def kept_maintenance(self):
        found = Maintenance(self)
        found.read()
        return found

    def planner_failures(self, since):
        return [at for at in self.failures_of_planner if at >= since]

    def put_deployed(self, times):
        self.times = times

    def deployed(self):
        return self.times

    def put_planner_failure(self, at):
        self.failures_of_planner.append(at)

    def put_code(self, code):
        self.codes[code.deployment, code.version] = code

    def code(self, id_on_ray, version):
        return self.codes.get((id_on_ray, version))

    def versions(self, id_on_ray):
        return sorted(version for name, version in self.codes if name == id_on_ray)

    def put_record(self, record):
        assert not self.holds(record) or self.gate.wait(120)
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the cluster does not answer")
        id_on_ray = extras_of(record.applied).id_on_ray or record.deployment
        self.kept[id_on_ray] = Found(id_on_ray, record)

    def drop_code(self, name, keep):
        self.codes = {key: code for key, code in self.codes.items() if key[0] != name or key[1] in keep}

    def forget(self, name):
        self.drop_code(name, frozenset())

    def forget_record(self, name):
        del self.kept[name]

    def __getitem__(self, id_on_ray):
        return self.kept[id_on_ray].record

    @property
    def live(self):
        """The deployments that are not gone, by the record."""
        return sorted(name for name, found in self.kept.items() if found.record is not None and not found.record.deleted)


class World:
    namespace, epoch = "test", 1
    cordoned = frozenset()

    def __init__(self, *found):
        self.checkpoint = Store(*found)
        self.own_groups = {}
        self.checks = defaultdict(CheckCounts)
        self.numbers = itertools.count(1)
        self.line = WaitingLine(self)

    def now(self):
        return asyncio.get_running_loop().time()

    async def call(self, function, *args, **kwargs):
        return await asyncio.to_thread(function, *args, **kwargs)


async def a_controller(*found, epoch=1, codes=(), journal=None, store=None):
    controller = Controller.__new__(Controller)
    controller._world = World(*found)
    controller._world.epoch = epoch
    controller._world.checkpoint = store if store is not None else controller._world.checkpoint
    controller._world.checkpoint.codes |= dict(codes)
    controller._journal = journal
    controller._deploying, controller._reports = asyncio.Lock(), itertools.count()
    controller._proxies = ProxyKeeper(controller._world)
    controller._deployed = controller._world.checkpoint.deployed()
    controller._cluster = ClusterOnRay(controller._world, journal)
    controller._watch_calls()
    await controller._cluster.recover()
    return controller


def of(controller, name=M):
    return controller._cluster.deployments[name]


def status_of(controller, name=M):
    return of(controller, name).entry.ranks.status


async def until(reached):
    async with asyncio.timeout(120):
        while not reached():
            await asyncio.sleep(0.001)


def package(name="m", app_name="default", **fields):
    found = deployment_id(app_name, name)
    spec = DeploymentSpec(name=found, **{"target_replicas": 0, "version": "a", **fields})
    return Package(Code(found, spec.version, f"models.{name}", app_name, b"", (), {}), spec, 0, RoutingSpec(name=found))


def without_actors(monkeypatch):
    """Returns replicas that a controller is to find, by the ids of their deployments, and those of them that it has ended."""
    found, ended = {}, []
    monkeypatch.setattr(clusters, "find_replicas", lambda namespace: {name: list(ids) for name, ids in found.items()})
    monkeypatch.setattr(clusters, "find_workers", lambda namespace: {})
    monkeypatch.setattr(clusters, "sweep_groups", lambda namespace, found: None)
    monkeypatch.setattr(clusters, "sweep_actors", lambda namespace, kept, but: None)
    monkeypatch.setattr(workers, "Reaper", lambda world: SimpleNamespace())
    monkeypatch.setattr(clusters, "kill_replica", lambda namespace, name, replica_id: ended.append(replica_id))
    monkeypatch.setattr(executor, "Reaper", lambda world: SimpleNamespace())
    return found, ended


def answer_at_once(monkeypatch):
    """Replicas do what they are told at once, but those of version "b" do not start. Returns what they are told, each with the
    record that was stored then.
    """
    done = []

    class Answering(deployments.RayExecutor):
        def __init__(self, world, *more):
            super().__init__(world, *more)
            self.versions = {}

        def execute(self, command):
            done.append((command, self._world.checkpoint[self._spec().name]))
            about = {"replica_id": getattr(command, "replica_id", None), "at": self._world.now()}
            match command:
                case StartReplica():
                    self.versions[command.replica_id] = command.version
                    self.tell(ReplicaPlaced(node_id="n", **about))
                case InitializeReplica() if self.versions[command.replica_id] == "b":
                    self.tell(ReplicaStartFailed(reason="b does not start", **about))
                case InitializeReplica():
                    self.tell(ReplicaReady(**about))
                case StopReplica() | KillReplica():
                    self.tell(ReplicaStopped(**about))

        async def loads(self, replica_ids):
            return dict.fromkeys(replica_ids, 1)

    monkeypatch.setattr(deployments, "RayExecutor", Answering)
    return done


class ActorInMemory:
    """What a caller has of a controller, in the event loop of both: `actor.method.options(...).remote(...)`.

    Args:
        methods: Those that the actor was created with; None: all.

    Attributes:
        called: The names of methods, in the order of the calls.
        pending: How many calls are not answered yet, by the method's name.
    """

    def __init__(self, controller, methods=None):
        self._controller, self._methods = controller, methods
        self.called, self.pending = [], Counter()

    def __getattr__(self, name):
        if self._methods is not None and name not in self._methods:
            raise AttributeError(name)
        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda *args: self._call(name, args)))

    def _call(self, name, args):
        self.called.append(name)
        done = concurrent.futures.Future()
        args = pickle.loads(pickle.dumps(args))

        async def call():
            self.pending[name] += 1
            try:
                done.set_result(pickle.loads(pickle.dumps(await getattr(self._controller, name)(*args))))
            except Exception as error:
                done.set_exception(error)
            finally:
                self.pending[name] -= 1

        task = asyncio.get_running_loop().create_task(call())
        done.task = task  # which nobody else holds
        return SimpleNamespace(future=lambda: done)
