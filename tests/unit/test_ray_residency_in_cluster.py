"""A deployment whose weights may be COLD, under Ray's controller without a cluster: its workers are in memory."""

import asyncio
from types import SimpleNamespace

import attrs
import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.ray_gpu import cluster as clusters
from executors.ray_gpu import controller as controllers
from executors.ray_gpu import node_news
from executors.ray_gpu.checkpoint import Found
from executors.ray_gpu.control import callers
from executors.ray_gpu.errors import InvalidDeploymentError, NameInUseError, UnknownNameError
from executors.ray_gpu.worker import node_memory, worker_process, workers
from executors.ray_gpu.worker.node_memory import MemoryOffer
from executors.ray_gpu.worker.options import MemoryOptions
from executors.ray_gpu.world import NodeInfo
from rankcore import DeploymentStatus
from rankcore.cluster.commands import Standing
from rankcore.cluster.records import Record
from rankcore.cluster.residency import ResidencySpec
from rankcore.codec import from_json, to_json
from rankcore.errors import PlannerFailedError
from rankcore.residency.levels import Level
from rankcore.routing.demand import demand_for
from tests.ray_in_memory import M, a_controller, of, package, until, without_actors
from tests.workers_in_memory import WorkerInMemory

WEIGHTS = 10
SPEC = ResidencySpec(weight_bytes=WEIGHTS, weights="/models/m", min_hot_s=0.0)
OTHER = "default/other"


@pytest.fixture(autouse=True)
def actors(monkeypatch):
    """One node with room for one model on a GPU; the actors that there are, by worker."""
    without_actors(monkeypatch)
    there = {}

    def start(namespace, deployment, worker_id, version, epoch, weights, expected, places, options):
        there[worker_id] = WorkerInMemory(worker_id, places)
        there[worker_id].started_with = weights, expected
        return there[worker_id]

    def look(memories, nodes):
        if not memories.offers:
            memories.offers["n"], memories.places["n"] = MemoryOffer((WEIGHTS,), 100, {}), "n"
            memories._on_news()

    async def reaped(*place):
        return

    monkeypatch.setattr(workers, "start_worker", start)
    monkeypatch.setattr(workers, "Reaper", lambda world: SimpleNamespace(gone=reaped))

    async def freed(memories, node_id):
        return

    monkeypatch.setattr(node_memory.NodeMemories, "look", look)
    monkeypatch.setattr(node_memory.NodeMemories, "_freed", freed)
    monkeypatch.setattr(node_memory, "give_back", lambda namespace, node_id: None)
    monkeypatch.setattr(node_news, "live_nodes", lambda: {"n": NodeInfo("n", "", {}, {})})
    monkeypatch.setattr(worker_process, "locate", lambda actor: ("n", 1))
    monkeypatch.setattr(worker_process, "ray", SimpleNamespace(kill=lambda actor: actor.kill()))
    return there


def cold(name="m", **fields):
    found = package(name, **fields)
    return attrs.evolve(found, residency=SPEC, code=attrs.evolve(found.code, weights="/models/m", weights_contents="1-2"))


def scenario(play):
    def run(actors, monkeypatch):
        async def go():
            async with asyncio.timeout(100):
                await play(actors, monkeypatch)

        asyncio.run(go())

    return run


def routed(controller, name=M):
    return sorted(of(controller, name).executor.routes or ())


async def called(controller, name=M, waiting=1):
    await controller.hear_load(name, f"caller of {name}", waiting)


@scenario
async def test_a_cold_deployment_is_loaded_for_who_calls_it_and_routed_once_it_is_ready(actors, monkeypatch):
    controller = await a_controller()
    await controller.deploy((cold(),), False)
    assert (routed(controller), actors) == ([], {})
    await called(controller)
    await until(lambda: routed(controller))
    (actor,) = actors.values()
    assert actor.started_with == ("/models/m", "1-2")
    order = [name for name, *_ in actor.asked_of if name in ("load_to_gpu", "take", "change")]
    assert order == ["load_to_gpu", "take", "change"]
    await until(lambda: {"announce", "limit"} <= {name for name, *_ in actor.asked_of})
    assert of(controller).routes()[1].endpoints[0][0].replica_id == "default/m#1.0"
    assert of(controller).availability.standing is Standing.READY
    assert of(controller).routes()[1].report_every_s is None, "its callers report what waits for nobody, and no samples"


@scenario
async def test_who_waits_is_told_how_much_of_a_load_has_come(actors, monkeypatch):
    controller = await a_controller()
    await controller.deploy((cold(),), False)
    held = WorkerInMemory.__init__

    def hold(actor, *args, **fields):
        held(actor, *args, **fields)
        actor.may_move.clear()

    monkeypatch.setattr(WorkerInMemory, "__init__", hold)
    await called(controller)
    await until(lambda: of(controller).availability is not None and of(controller).availability.percent == 25)
    assert of(controller).availability.standing is Standing.LOADING


@scenario
async def test_two_deployments_take_turns_on_one_place(actors, monkeypatch):
    controller = await a_controller()
    await controller.deploy((cold(), cold("other")), False)
    for first, second in ((M, OTHER), (OTHER, M), (M, OTHER)):
        await called(controller, second, 0)
        await called(controller, first, 1)
        await until(lambda first=first: routed(controller, first))
        assert routed(controller, second) == []
        await called(controller, first, 0)
    levels = sorted((worker_id.partition("@")[0], str(each.level)) for worker_id, each in actors.items())
    assert levels == [(M, "HOT"), (OTHER, "WARM")]
    assert not of(controller, OTHER).executor.processes, "who has left is no replica"


@scenario
async def test_a_worker_that_dies_is_replaced(actors, monkeypatch):
    controller = await a_controller()
    monkeypatch.setattr(controller._world, "is_alive", alive, raising=False)
    await controller.deploy((cold(target_replicas=1, start_backoff_s=0.001),), False)
    await until(lambda: routed(controller) == ["default/m#1.0"])
    (actor,) = actors.values()
    actor.dead.set()
    await until(lambda: routed(controller) == ["default/m#1.1"])


async def alive(node_id):
    return True


async def crashed(controller, actors):
    """What the next controller finds."""
    controller._cluster._node_news.close()
    await until(lambda: all(controller._cluster.is_saved(each) for each in controller._cluster.deployments))
    store = controller._world.checkpoint
    found = [Found(each.id_on_ray, from_json(to_json(each.record), Record)) for each in store.kept.values()]
    return found, {worker_id: ("n", actor) for worker_id, actor in actors.items()}


@scenario
async def test_a_controller_that_comes_back_finds_what_is_hot_and_who_calls_never_hears_of_it(actors, monkeypatch):
    controller = await a_controller()
    await controller.deploy((cold(),), False)
    await called(controller)
    await until(lambda: routed(controller))
    codes = controller._world.checkpoint.codes
    found, there = await crashed(controller, actors)
    monkeypatch.setattr(clusters, "find_workers", lambda namespace: there)
    [worker] = actors.values()
    worker.may_report.clear()
    following = await a_controller(*found, epoch=2, codes=codes)
    assert following._cluster.is_recovering(M)
    monkeypatch.setattr(callers, "LONG_POLL_S", 0.0)
    assert await following.routes(M, (1, 5)) == ((1, 5), None), "they go on with the routes that they have"
    worker.may_report.set()
    await until(lambda: M in following._cluster.deployments and routed(following) == ["default/m#1.0"])
    assert of(following).entry.ranks.status is DeploymentStatus.HEALTHY
    assert len(actors) == 1
    assert [name for name, *_ in actors.popitem()[1].asked_of].count("load_to_gpu") == 1


@scenario
async def test_a_controller_that_comes_back_in_the_middle_of_a_load_gives_its_end_to_who_waits(actors, monkeypatch):
    controller = await a_controller()
    await controller.deploy((cold(),), False)
    held = WorkerInMemory.__init__

    def hold(actor, *args, **fields):
        held(actor, *args, **fields)
        actor.may_move.clear()

    monkeypatch.setattr(WorkerInMemory, "__init__", hold)
    await called(controller)
    await until(lambda: any(each.moving for each in actors.values()))
    codes = controller._world.checkpoint.codes
    found, there = await crashed(controller, actors)
    controller._cluster.loop._deliver = lambda event: None
    monkeypatch.setattr(clusters, "find_workers", lambda namespace: there)
    following = await a_controller(*found, epoch=2, codes=codes)
    await until(lambda: M in following._cluster.deployments)
    await called(following)
    next(iter(actors.values())).may_move.set()
    await until(lambda: routed(following))
    assert len(actors) == 1


@scenario
async def test_a_planner_that_raises_ends_the_process_and_is_remembered(actors, monkeypatch):
    ended = []
    controller = await a_controller()
    monkeypatch.setattr(clusters.os, "_exit", ended.append)
    failures = controller._world.checkpoint.failures_of_planner = []
    await controller.deploy((cold(),), False)

    def fail(state, event):
        raise PlannerFailedError("as asked")

    controller._cluster.loop._deliver = lambda event: fail(None, event)
    await called(controller)
    await until(lambda: ended)
    assert set(ended) == {1}, "more than once only since it does not end here"
    assert failures


@scenario
async def test_a_deletion_ends_the_worker_and_gives_its_memory_back(actors, monkeypatch):
    controller = await a_controller()
    await controller.deploy((cold(target_replicas=1),), False)
    await until(lambda: routed(controller))
    await controller.delete((M,))
    assert not controller._cluster.workers.processes
    (actor,) = actors.values()
    assert (actor.dead.is_set(), actor.level) == (True, Level.COLD)


def test_residency_travels_in_the_record():
    record = cold().entry_spec
    assert from_json(to_json(record), type(record)) == record
    assert record.residency == SPEC


@scenario
async def test_residency_cannot_be_had_under_an_id_of_before(actors, monkeypatch):
    controller = await a_controller()
    older = package()
    older = attrs.evolve(older, code=attrs.evolve(older.code, deployment="m"))
    await controller.deploy((older,), False)
    with pytest.raises(InvalidDeploymentError, match="residency of default/m cannot be had while m has its place"):
        await controller.deploy((cold(),), True)


@scenario
async def test_memory_is_chosen_as_long_as_nobody_uses_it(actors, monkeypatch):
    controller = await a_controller()
    store, chosen = controller._world.checkpoint, MemoryOptions(device="cpu")
    await controller.use_memory(chosen)
    assert store.options == chosen
    await controller.deploy((cold(),), False)
    await controller.use_memory(chosen)
    with pytest.raises(InvalidDeploymentError, match="memory can be chosen where nobody uses it: delete default/m"):
        await controller.use_memory(MemoryOptions())
    assert store.options == chosen


@scenario
async def test_a_deletion_ends_a_worker_that_has_a_copy_too(actors, monkeypatch):
    controller = await a_controller()
    await controller.deploy((cold(), cold("other")), False)
    for first, second in ((M, OTHER), (OTHER, M)):
        await called(controller, second, 0)
        await called(controller, first, 1)
        await until(lambda first=first: routed(controller, first))
        await called(controller, first, 0)
    await controller.delete((M,))
    await controller.delete((OTHER,))
    await until(lambda: not controller._cluster.workers.processes)


@scenario
async def test_a_deletion_is_over_once_the_memory_of_copies_is_free_too(actors, monkeypatch):
    controller = await a_controller()
    await controller.deploy((cold(),), False)
    await called(controller)
    await until(lambda: routed(controller))
    await called(controller, waiting=0)
    await controller.evict("m", "WARM")
    (actor,) = actors.values()
    await until(lambda: actor.level is Level.WARM)
    ended = asyncio.Event()

    async def reaped(*place):
        await ended.wait()

    monkeypatch.setattr(controller._cluster.workers._reaper, "gone", reaped)
    deletion = asyncio.ensure_future(controller.delete((M,)))
    await until(lambda: actor.dead.is_set() and M not in controller._cluster.deployments)
    again = asyncio.ensure_future(controller.delete((M,)))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not deletion.done()
    assert not again.done()
    ended.set()
    await deletion
    await again
    assert not controller._cluster.workers.processes


@scenario
async def test_evict_takes_a_deployment_or_one_replica_off_the_gpus_and_keeps_a_copy_or_none(actors, monkeypatch):
    controller = await a_controller()
    await controller.deploy((cold(), package("pinned")), False)
    for name, keep, left in (("m", "WARM", [Level.WARM]), (M, "COLD", []), ("m#1.2", "COLD", [])):
        await called(controller)
        await until(lambda: routed(controller))
        await called(controller, waiting=0)
        assert routed(controller)[0] == f"{M}#1.{('m', M, 'm#1.2').index(name)}"
        await controller.evict(name, keep)
        await until(lambda left=left: [each.level for each in actors.values() if not each.dead.is_set()] == left)
        assert of(controller).entry.target.replicas == 0
    for name, error, said in (
        ("nobody", UnknownNameError, "there is no deployment 'nobody'"),
        ("m#7.7", UnknownNameError, "there is no replica 'default/m#7.7'"),
        ("pinned", InvalidDeploymentError, "default/pinned has no residency"),
    ):
        with pytest.raises(error, match=said):
            await controller.evict(name, "WARM")


@scenario
async def test_status_says_where_weights_are_who_waits_for_what_and_what_is_free(actors, monkeypatch):
    controller = await a_controller()
    monkeypatch.setattr(controllers, "live_nodes", dict)
    monkeypatch.setattr(controller._world, "namespace", "test", raising=False)
    await controller.deploy((cold(), cold("other")), False)
    await called(controller)
    await until(lambda: routed(controller))
    await called(controller, waiting=0)
    await until(lambda: not demand_for(controller._cluster.state.weights.demands, M, controller._world.now()))
    found = await controller.status()
    info = found.deployments[M]
    (worker,) = info.workers
    assert (worker.level, worker.phase, worker.node_id, worker.gpu_bytes) == ("HOT", "serving", "n", (WEIGHTS,))
    assert (worker.replica_id, worker.version) == ("default/m#1.0", "a")
    assert (info.has_residency, info.waiting, found.deployments[OTHER].workers) == (True, 0, ())
    (node,) = found.memory
    assert (node.gpus, node.cpu_bytes, node.cpu_free_bytes) == (((WEIGHTS, 0),), 100, 100)
    for actor in actors.values():
        actor.may_move.clear()
    await called(controller, OTHER, 3)
    await until(lambda: of(controller, OTHER).availability is not None)
    waits = (await controller.status()).deployments[OTHER]
    assert (waits.waiting, str(waits.standing)) == (3, f"PROVISIONING behind {M}")


@scenario
async def test_several_applications_are_taken_together_or_not_at_all(actors, monkeypatch):
    controller = await a_controller()
    good, bad = cold(app_name="a"), attrs.evolve(cold(app_name="b"), route_prefix="/x", is_ingress=True)
    worse = attrs.evolve(cold(app_name="c"), route_prefix="/x", is_ingress=True)
    with pytest.raises(NameInUseError, match="route_prefix '/x' must be one that application 'b' does not have"):
        await controller.apply((good, bad, worse), False, False)
    assert (await controller.deployments(), controller._world.checkpoint.live) == ({}, [])
    await controller.apply((good, bad), False, False)
    assert sorted(await controller.deployments()) == ["a/m", "b/m"]
    revision = controller._cluster.state.revision
    await controller.apply((good, bad), False, False)
    assert controller._cluster.state.revision == revision, "the same again changes nothing"
    await controller.apply((good,), False, False)
    assert sorted(await controller.deployments()) == ["a/m", "b/m"]
    await controller.apply((good,), False, True)
    await until(lambda: list(controller._cluster.deployments) == ["a/m"])


@scenario
async def test_a_dry_run_says_what_would_change_and_changes_nothing(actors, monkeypatch):
    controller = await a_controller()
    await controller.apply((cold(app_name="a"), cold(app_name="b")), False, False)
    before = controller._cluster.state
    changed = cold(app_name="a", target_replicas=2)
    plan = await controller.plan((changed, cold(app_name="c")), False, True)
    assert [(each.deployment, each.what) for each in plan.changes] == [
        ("a/m", "changed"),
        ("b/m", "deleted"),
        ("c/m", "new"),
    ]
    assert len(plan.changes[0].plan.starts) == 2
    assert (await controller.plan((cold(app_name="a"),), False, False)).changes == ()
    with pytest.raises(NameInUseError, match="a/m is the name of a deployment"):
        await controller.plan((attrs.evolve(changed, code=attrs.evolve(changed.code, class_name="other.M")),), False, False)
    assert controller._cluster.state is before
