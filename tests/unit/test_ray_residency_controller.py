"""The controller of a fleet and its processes, without a cluster: what happens while a process is being ended."""

import asyncio
from types import SimpleNamespace

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")
pytest.importorskip("torch", reason="torch is not installed: pip install 'rankcore[torch]'")

from msgspec.structs import replace
from ray.exceptions import RayActorError

from executors.ray_gpu.errors import CallCancelledError, InvalidDeploymentError, NameInUseError
from executors.ray_gpu.residency import client
from executors.ray_gpu.residency import hosts as hosts_module
from executors.ray_gpu.residency import moves as moves_module
from executors.ray_gpu.residency import nodes as nodes_module
from executors.ray_gpu.residency import restart as restart_module
from executors.ray_gpu.residency.controller import FleetController
from executors.ray_gpu.residency.declaration import Model
from executors.ray_gpu.residency.hosts import Hosts
from executors.ray_gpu.residency.machine import Machine
from executors.ray_gpu.residency.moves import Moves
from executors.ray_gpu.residency.nodes import Nodes
from executors.ray_gpu.residency.options import FleetOptions
from executors.ray_gpu.residency.packing import opened, pack_model
from executors.ray_gpu.residency.requests import Requests
from executors.ray_gpu.residency.restart import told_at
from executors.ray_gpu.residency.words import Answer, Declared, Told
from executors.ray_gpu.worker.messages import MoveEnded, Progressed
from executors.ray_gpu.worker.places import NodeMemory, Places
from rankcore.dispatching import LoadProgressed, fleet_step, open_fleet
from rankcore.errors import RankcoreError
from rankcore.residency import ModelSpec, Phase, Resident, Wanted
from rankcore.residency.commands import DropFromCpu, LoadToGpu, OffloadToCpu, UnloadFromGpu
from rankcore.residency.events import (
    DeployRequested,
    EvictRequested,
    LoadFailed,
    NodeJoined,
    OffloadFailed,
    OffloadFinished,
    ReplicaLost,
)
from rankcore.routing import FailureKind
from rankcore.routing.commands import Complete, Dispatch
from rankcore.routing.events import RequestFailed
from tests.fleet_models import Held, Probe, write_weights

NODE = "n1"
MEMORY = NodeMemory((100,), 100)
SERVED = "m#0"


async def said(word):
    return word


class Process:
    """An actor of Ray: it is told things, and ends some time after it was killed."""

    def __init__(self):
        self.killed = False
        self.gone = asyncio.Event()
        self.heard = []
        self.words = []
        self.newest_move = 0
        self.seat = None
        self.blocked = self.slow = False
        self.answers = Answer(value=b"")
        self.leaves = asyncio.Event()
        self.stay = SimpleNamespace(remote=self._stay)
        self.leave = SimpleNamespace(remote=self._leave)
        self.answer = SimpleNamespace(remote=self._answer)
        self.process_id = SimpleNamespace(remote=self._process_id)
        self.told = SimpleNamespace(remote=self._told)
        self.load = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=self._load))

    async def _stay(self):
        await self.gone.wait()
        raise RayActorError

    async def _answer(self, epoch, request_id, attempt, call):
        await asyncio.sleep(0)
        return self.answers

    async def _load(self, epoch, move, gpus, gpu_bytes):
        for word in self.words:
            yield said(word)
        if self.blocked:
            await asyncio.Event().wait()

    async def _told(self, epoch):
        if self.blocked:
            await asyncio.Event().wait()
        return Told(frozenset({"r"}), self.newest_move, self.seat)

    async def _process_id(self):
        if self.blocked:
            await asyncio.Event().wait()
        self.leaves.set()

    async def _leave(self, epoch, move, timeout_s, keep_copy):
        if self.blocked or self.slow:
            await self.leaves.wait()
        self.heard.append(("leave", keep_copy))
        return MoveEnded(move)


@pytest.fixture
def ray(monkeypatch):
    """Only what `Hosts` calls of it."""
    made = []

    class Actor:
        def options(self, **_):
            return self

        def remote(self, *_):
            made.append(Process())
            return made[-1]

    def kill(process, no_restart):
        process.killed = True
        asyncio.get_running_loop().call_later(0.05, process.gone.set)

    monkeypatch.setattr(hosts_module, "ray", SimpleNamespace(remote=lambda _: Actor(), kill=kill))
    monkeypatch.setattr(hosts_module, "NodeAffinitySchedulingStrategy", lambda *_, **__: None)
    return made


class Fleet:
    """The parts of a controller, and nothing of them in a cluster. What is told is written down, and decides nothing.

    Attributes:
        events: What was told.
    """

    def __init__(self):
        self.events = []
        self.models = {}
        self.machine = Machine(open_fleet(), lambda: 0.0, None, lambda _: None)
        self.machine.tell = self.events.append
        self.hosts = Hosts("test", 1, lambda *_: None)
        self.nodes = Nodes(self.machine, FleetOptions(device="cpu"), "test")
        self.moves = Moves(self.machine, self.hosts, self.models, self.nodes.places, 1)
        self.requests = Requests(self.machine, self.hosts, 1, self.moves.restart)

    def loads(self, replica_id):
        """A replica is LOADING; returns the command for it."""
        state = open_fleet()
        for event in (
            NodeJoined(node_id=NODE, gpu_bytes=(100,), cpu_bytes=100, at=0.0),
            DeployRequested(wanted=(Wanted(spec=ModelSpec(model="m", weight_bytes=40), replicas=1),), at=0.0),
        ):
            state, commands, _ = fleet_step(state, event)
        (load,) = [each for each in commands if isinstance(each, LoadToGpu)]
        assert load.replica_id == replica_id
        self.machine.state = state
        return load

    def told_at(self):
        return told_at(self.machine, self.hosts, 1, (SERVED, NODE))


def places():
    return Places(FleetOptions(device="cpu"), "test", NODE, MEMORY)


def test_a_replica_that_left_the_gpu_for_the_disk_has_no_process_when_that_is_told(ray):
    async def left():
        fleet = Fleet()
        fleet.hosts.start(SERVED, b"", places(), {})
        await fleet.moves.leave(UnloadFromGpu(replica_id=SERVED, node_id=NODE, timeout_s=1.0, move=2))
        assert list(fleet.hosts) == []
        return fleet.events

    (told,) = asyncio.run(left())
    assert isinstance(told, OffloadFinished)
    assert ray[0].gone.is_set()


def test_a_load_waits_for_a_process_that_is_being_ended_and_gets_a_new_one(ray):
    async def started_again():
        hosts = Hosts("test", 1, lambda *_: None)
        first = hosts.start(SERVED, b"", places(), {})
        ending = asyncio.create_task(hosts.end(SERVED, NODE))
        await asyncio.sleep(0)
        assert hosts.get(SERVED, NODE) is None
        await hosts.ended(SERVED, NODE)
        second = hosts.start(SERVED, b"", places(), {})
        await ending
        return first is second, hosts.get(SERVED, NODE) is second

    assert asyncio.run(started_again()) == (False, True)


def test_a_process_that_dies_while_it_drops_its_copy_takes_no_other_one_with_it(ray):
    async def dropped():
        fleet = Fleet()
        first = fleet.hosts.start(SERVED, b"", places(), {})

        async def dies(*_):
            first.gone.set()
            while fleet.hosts.get(SERVED, NODE) is not None:
                await asyncio.sleep(0)
            fleet.hosts.start(SERVED, b"", places(), {})  # the planner was told, and loads the replica again
            raise RayActorError

        first.drop = SimpleNamespace(remote=dies)
        await asyncio.wait_for(fleet.moves.drop(DropFromCpu(replica_id=SERVED, node_id=NODE, move=2)), 60.0)
        return fleet.hosts.get(SERVED, NODE)

    second = asyncio.run(dropped())
    assert second is ray[1]
    assert not second.killed


def test_who_is_to_be_restarted_and_has_ended_by_itself_is_lost_once(ray):
    async def restarted():
        fleet = Fleet()
        first = fleet.hosts.start(SERVED, b"", places(), {})
        first.gone.set()
        while fleet.hosts.get(SERVED, NODE) is not None:
            await asyncio.sleep(0)
        second = fleet.hosts.start(SERVED, b"", places(), {})
        await fleet.moves.restart(SERVED, NODE, first, "poisoned")
        return fleet.events, second.killed

    assert asyncio.run(restarted()) == ([], False)


@pytest.mark.parametrize("keep_copy", [True, False])
def test_what_is_left_of_a_replica_that_leaves_the_gpu_is_what_the_command_says(ray, keep_copy):
    async def left():
        fleet = Fleet()
        process = fleet.hosts.start(SERVED, b"", places(), {})
        await fleet.moves.leave(UnloadFromGpu(replica_id=SERVED, node_id=NODE, timeout_s=1.0, move=2, keep_copy=keep_copy))
        return process

    process = asyncio.run(left())
    assert process.heard == [("leave", keep_copy)]
    assert process.killed is not keep_copy


@pytest.mark.parametrize(("newest_move", "stays"), [(0, True), (1, False)])
def test_a_process_that_was_told_more_than_was_kept_is_ended_by_the_next_controller(ray, newest_move, stays):
    async def taken_over():
        fleet = Fleet()
        fleet.hosts.start(SERVED, b"", places(), {}).newest_move = newest_move
        assert fleet.machine.state.residency.moves == 1
        return await fleet.told_at(), fleet.hosts.get(SERVED, NODE) is not None

    assert asyncio.run(taken_over()) == ({"r"}, stays)


@pytest.mark.parametrize(("seat", "stays"), [(None, True), ("m#1.0", True), ("m#1.1", False)])
def test_a_process_with_a_rank_that_was_not_kept_is_ended_by_the_next_controller(ray, seat, stays):
    ranking = SimpleNamespace(seats={SERVED: "m#1.0"})

    async def taken_over():
        fleet = Fleet()
        fleet.hosts.start(SERVED, b"", places(), {}).seat = seat
        residency = SimpleNamespace(moves=1, replicas={SERVED: SimpleNamespace(model="m")})
        fleet.machine.state = SimpleNamespace(residency=residency, models={"m": SimpleNamespace(ranking=ranking)}, clock=0.0)
        await fleet.told_at()
        return fleet.hosts.get(SERVED, NODE) is not None

    assert asyncio.run(taken_over()) is stays


def test_a_process_that_blocks_does_not_hold_up_the_next_controller(ray, monkeypatch):
    monkeypatch.setattr(restart_module, "TOLD_S", 0.01)

    async def taken_over():
        fleet = Fleet()
        fleet.hosts.start(SERVED, b"", places(), {}).blocked = True
        return await fleet.told_at(), list(fleet.hosts)

    assert asyncio.run(taken_over()) == (frozenset(), [])


@pytest.mark.parametrize(("how", "fails"), [("blocked", True), ("slow", False)])
def test_a_process_whose_loop_is_blocked_is_ended_when_it_is_to_leave_and_a_slow_one_is_waited_for(
    ray, monkeypatch, how, fails
):
    monkeypatch.setattr(moves_module, "TOLD_S", 0.05)

    async def left():
        fleet = Fleet()
        process = fleet.hosts.start(SERVED, b"", places(), {})
        setattr(process, how, True)
        await asyncio.wait_for(
            fleet.moves.leave(OffloadToCpu(replica_id=SERVED, node_id=NODE, cpu_bytes=40, timeout_s=0.0, move=2)), 60.0
        )
        return fleet.events, process.killed

    (told,), killed = asyncio.run(left())
    assert isinstance(told, OffloadFailed if fails else OffloadFinished)
    assert killed is fails


def test_a_load_of_which_nothing_arrives_has_failed_and_its_process_is_ended(ray, tmp_path):
    stuck = Model(name="m", code=Probe, weights=write_weights(tmp_path, "m", 1)[0], load_timeout_s=0.05)

    async def loaded():
        fleet = Fleet()
        fleet.models["m"], fleet.nodes.places[NODE] = pack_model(stuck), places()
        process = fleet.hosts.start(SERVED, b"", places(), {})
        process.words, process.blocked = [Progressed(10)], True
        await asyncio.wait_for(fleet.moves.load(fleet.loads(SERVED)), 60.0)
        return fleet.events, process.killed

    (progressed, lost), killed = asyncio.run(loaded())
    assert isinstance(progressed, LoadProgressed)
    assert isinstance(lost, ReplicaLost)
    assert "nothing arrived for 0.05 s" in lost.reason
    assert killed


def test_a_model_that_is_kept_in_another_version_than_is_wanted_is_not_loaded(ray, tmp_path):
    model = Model(name="m", code=Probe, weights=write_weights(tmp_path, "m", 1)[0])

    async def loaded(version):
        fleet = Fleet()
        fleet.models["m"], fleet.nodes.places[NODE] = pack_model(model), places()
        await asyncio.wait_for(fleet.moves.load(replace(fleet.loads(SERVED), version=version)), 60.0)
        return list(fleet.hosts), fleet.events

    hosts, (failed,) = asyncio.run(loaded("another"))
    assert isinstance(failed, LoadFailed)
    assert "another version than the one that is to be loaded: deploy it again" in failed.reason
    assert hosts == []
    hosts, _ = asyncio.run(loaded(opened(pack_model(model)).version))
    assert hosts == [(SERVED, NODE)]


def test_a_load_that_is_called_off_while_it_waits_for_an_old_process_to_end_starts_none(ray, tmp_path):
    model = Model(name="m", code=Probe, weights=write_weights(tmp_path, "m", 1)[0])

    async def called_off():
        fleet = Fleet()
        fleet.models["m"], fleet.nodes.places[NODE] = pack_model(model), places()
        fleet.hosts.start(SERVED, b"", places(), {})
        ending = asyncio.create_task(fleet.hosts.end(SERVED, NODE))
        await asyncio.sleep(0)
        load = asyncio.create_task(fleet.moves.load(fleet.loads(SERVED)))
        await asyncio.sleep(0)
        fleet.machine.state = fleet_step(fleet.machine.state, EvictRequested(model="m", at=0.0)).state
        await asyncio.wait_for(asyncio.gather(ending, load), 60.0)
        return list(fleet.hosts), fleet.events

    assert asyncio.run(called_off()) == ([], [])


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan"), "600", None])
def test_the_time_that_a_load_has_is_a_number_of_seconds(seconds):
    with pytest.raises(InvalidDeploymentError, match=r"Model\.load_timeout_s of 'm' must be a number of seconds above 0"):
        Model(name="m", code=Probe, weights="w", load_timeout_s=seconds)


def test_a_request_that_its_replica_had_no_time_to_finish_is_lost_and_not_cancelled(ray):
    async def sent():
        fleet = Fleet()
        fleet.hosts.start(SERVED, b"", places(), {}).answers = Answer(cut_off=True, reason="it left")
        record = SimpleNamespace(node_id=NODE)
        fleet.machine.state = SimpleNamespace(residency=SimpleNamespace(replicas={SERVED: record}), clock=0.0)
        fleet.requests._waiting.enter("r", b"")
        await fleet.requests.send(Dispatch("r", SERVED))
        return fleet.events

    (told,) = asyncio.run(sent())
    assert (told.kind, told.reason) == (FailureKind.LOST, "it left")


def test_a_process_of_which_many_requests_say_that_its_gpu_is_lost_is_lost_once(ray):
    async def sent():
        fleet = Fleet()
        fleet.hosts.start(SERVED, b"", places(), {}).answers = Answer(error=b"", reason="device-side assert", poisoned=True)
        record = SimpleNamespace(node_id=NODE)
        fleet.machine.state = SimpleNamespace(residency=SimpleNamespace(replicas={SERVED: record}), clock=0.0)
        requests = ("r", "s", "t")
        for each in requests:
            fleet.requests._waiting.enter(each, b"")
        await asyncio.gather(*(fleet.requests.send(Dispatch(each, SERVED)) for each in requests))
        return fleet.events

    told = asyncio.run(sent())
    assert sorted(each.request_id for each in told if isinstance(each, RequestFailed)) == ["r", "s", "t"]
    assert [each.reason for each in told if isinstance(each, ReplicaLost)] == ["device-side assert"]


def test_only_the_processes_of_the_replicas_that_are_named_are_looked_at(ray):
    async def looked():
        hosts = Hosts("test", 1, lambda *_: None)
        for replica_id in ("m#0", "m#1", "m#2"):
            hosts.start(replica_id, b"", places(), {})
        records = {"m#1": Resident(replica_id="m#1", model="m", phase=Phase.LOADING, node_id=NODE)}
        return hosts.unneeded(["m#2", "m#1"], records.get)

    assert asyncio.run(looked()) == [("m#2", NODE)]


def test_a_node_that_does_not_say_what_it_has_holds_up_no_other_and_is_asked_once(monkeypatch):
    alive = {"sick": SimpleNamespace(labels={}), "well": SimpleNamespace(labels={})}
    monkeypatch.setattr(nodes_module, "live_nodes", lambda: alive)
    asked = []

    async def looked():
        fleet = Fleet()

        async def measured(node_id):
            asked.append(node_id)
            if node_id == "sick":
                await asyncio.Event().wait()
            return MEMORY

        fleet.nodes._measured = measured
        for _ in range(3):
            await asyncio.wait_for(fleet.nodes.look(), 60.0)
            await asyncio.sleep(0)
        fleet.machine.close()
        return [event.node_id for event in fleet.events]

    assert asyncio.run(looked()) == ["well"]
    assert asked == ["sick", "well"]


@pytest.mark.parametrize(("times", "replicas"), [(1, -1), (2, 1)])
def test_a_deployment_that_is_refused_has_changed_nothing(tmp_path, times, replicas):
    model = Model(name="m", code=Probe, weights=write_weights(tmp_path, "m", 1)[0])
    declared = Declared(pack_model(model), model.spec(), model.serving(), replicas)
    fleet, controller = Fleet(), object.__new__(FleetController)
    controller._machine, controller._models = fleet.machine, fleet.models
    with pytest.raises(RankcoreError):
        asyncio.run(controller.deploy((declared,) * times, False))
    assert (fleet.events, fleet.models) == ([], {})


@pytest.mark.parametrize("takes_names", [True, False])
def test_a_model_takes_the_name_of_another_class_only_where_that_is_asked_for(tmp_path, takes_names):
    weights = write_weights(tmp_path, "m", 1)[0]
    models = [Model(name=name, code=code, weights=weights) for name, code in (("m", Probe), ("n", Probe), ("m", Held))]
    first, new, other = (Declared(pack_model(model), model.spec(), model.serving(), 0) for model in models)
    fleet, controller = Fleet(), object.__new__(FleetController)
    controller._machine, controller._models = fleet.machine, fleet.models
    controller._store = SimpleNamespace(put=lambda *_: None)
    asyncio.run(controller.deploy((first,), False))
    told = list(fleet.events)
    asked = controller.deploy((new, other), takes_names)
    if takes_names:
        asyncio.run(asked)
        assert fleet.models == {"m": other.packed, "n": new.packed}
        return
    with pytest.raises(NameInUseError, match=r"m is the name of a model of tests\.fleet_models\.Probe already"):
        asyncio.run(asked)
    assert (fleet.models, fleet.events) == ({"m": first.packed}, told)


def test_what_is_told_while_a_fleet_ends_starts_nothing():
    fleet = Fleet()
    del fleet.machine.tell
    fleet.machine.close()
    before = fleet.machine.state
    fleet.machine.tell(NodeJoined(node_id=NODE, gpu_bytes=(100,), cpu_bytes=100, labels={}, at=0.0))
    assert fleet.machine.state is before


def test_a_request_whose_answer_got_lost_on_the_way_is_one_that_was_begun(ray):
    async def asked_again(again):
        fleet = Fleet()
        fleet.hosts.start(SERVED, b"", places(), {})
        record = SimpleNamespace(node_id=NODE)
        fleet.machine.state = SimpleNamespace(residency=SimpleNamespace(replicas={SERVED: record}), clock=0.0)
        fleet.requests._waiting.enter("r", b"")
        await fleet.requests.send(Dispatch("r", SERVED))
        fleet.requests._waiting.close(Complete("r"))
        asked = asyncio.create_task(fleet.requests.ask("r", "m", b"", None, again))
        await asyncio.sleep(0)
        asked.cancel()
        return fleet.events[-1].begun

    assert [asyncio.run(asked_again(again)) for again in (True, False)] == [True, False]


def test_a_request_that_is_given_up_before_it_is_sent_is_never_sent(monkeypatch):
    sent, held = [], []
    monkeypatch.setattr(client, "_sender", lambda: SimpleNamespace(submit=held.append, done=lambda: None))
    fleet = SimpleNamespace(
        **{each: SimpleNamespace(remote=lambda *_, each=each: sent.append(each)) for each in ("ask", "cancel")}
    )
    response = client.ModelResponse(fleet, "m", b"", None)
    response.cancel()
    (send,) = held
    send()
    with pytest.raises(CallCancelledError):
        response.result()
    assert sent == []
