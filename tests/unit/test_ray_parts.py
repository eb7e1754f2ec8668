"""The parts of the Ray executor that need no cluster: names, frames, pickles, demands of nodes, checkpoints, options."""

import asyncio
import os
import pickle
import struct
import subprocess
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from ray.exceptions import GetTimeoutError, RayActorError

from executors import ray_gpu
from executors.ray_gpu import checkpoint, connection, names, node_news, world
from executors.ray_gpu.changes import change_of
from executors.ray_gpu.context import ReplicaContext
from executors.ray_gpu.conversation import short
from executors.ray_gpu.declaration import deployment
from executors.ray_gpu.errors import (
    InvalidDeploymentError,
    NoAnswerError,
    NotInReplicaError,
    NotRunningError,
    RemoteError,
    VersionMismatchError,
)
from executors.ray_gpu.extras import RayExtras, extras_of
from executors.ray_gpu.membership import Membership
from executors.ray_gpu.requests import under_way
from executors.ray_gpu.requests.frames import ERROR, HEADER, LARGE, VALUE, Frames
from executors.ray_gpu.requests.packing import LARGE_BYTES, About, pack_call, pack_error, pack_value, unpack, unpack_call
from executors.ray_gpu.room import demands, fitting, obstacle
from executors.ray_gpu.worker.options import MemoryOptions
from executors.ray_gpu.world import NodeInfo
from rankcore import DeploymentSpec, deploy, step
from rankcore.checks import DEPLOYMENT_LENGTH_MAX, NAME_LENGTH_MAX
from rankcore.cluster import EntrySpec
from rankcore.cluster.events import NodeJoined, NodesListed
from rankcore.cluster.records import Record
from rankcore.codec import to_json
from rankcore.commands import InitializeReplica
from rankcore.errors import RankcoreError
from rankcore.events import ReplicaPlaced
from rankcore.residency.spec import ExpectedShape
from rankcore.routing import RoutingSpec
from tests.clusters import Cluster, application

ROOT = Path(__file__).parents[2]
LETTERS = st.characters(codec="ascii", categories=["L", "N", "P"])
NAMES = st.text(LETTERS, min_size=1, max_size=12).filter(lambda name: "#" not in name)


@given(NAMES, st.integers(0, 99), st.integers(0, 99))
def test_a_replica_is_found_by_the_name_of_its_actor(name, epoch, serial):
    replica_id = f"{name}#{epoch}.{serial}"
    assert names.replica_of(names.actor_name(name, replica_id)) == (name, replica_id)


@pytest.mark.parametrize("causes", [20, 2000])
def test_what_ray_says_of_the_end_of_a_process_is_kept_in_one_line_to_its_end(causes):
    told = " ".join(f"({number}) the process was killed by the OOM killer," for number in range(causes))
    text = f"The actor died unexpectedly.\n\tclass_name: Replica\n\tpid: 7\n\x1b[36mIts worker has died.\x1b[0m\n {told}"
    found = short(RuntimeError(text))
    whole = f"Its worker has died. {told}"
    assert found == (whole if causes == 20 else f"{whole[:4000]}...")


@pytest.mark.parametrize("name", ["", "rankcore-controller", "a:b#1.0", "SERVE_CONTROLLER_ACTOR", ":#1.0", "aa#1.0"])
def test_other_actors_are_no_replicas(name):
    assert names.replica_of(name) is None


@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(1, 7))
def test_frames_are_cut_wherever_the_bytes_break(bodies, size):
    stream = b"".join(HEADER.pack(len(body), index, VALUE) + body for index, body in enumerate(bodies))
    heard = []
    frames = Frames(lambda call_id, kind, body: heard.append((call_id, kind, body)))
    for start in range(0, len(stream), size):
        frames.feed(stream[start : start + size])
    assert heard == [(index, VALUE, body) for index, body in enumerate(bodies)]


def test_calls_and_values_arrive_as_they_were():
    assert unpack_call(pack_call("f", ((1, "a"), {}))) == ("f", ((1, "a"), {}), About())
    about = About("r1", "french", True)
    method, ((function,), kwargs), said = unpack_call(pack_call("f", ((lambda: 7,), {"k": 1}), about))
    assert (method, function(), kwargs, said) == ("f", 7, {"k": 1}, about)
    assert unpack(*pack_value({"a": [1]})) == {"a": [1]}
    kind, _ = pack_value(struct)
    assert kind == VALUE, "cloudpickle names modules"
    kind, packed = pack_value(each for each in ())
    assert kind == ERROR
    with pytest.raises(TypeError, match="the result cannot be pickled"):
        unpack(kind, packed)


@pytest.mark.parametrize(
    "value",
    [bytes(LARGE_BYTES), "x" * LARGE_BYTES, [bytes([each]) * (LARGE_BYTES // 2) for each in range(3)], bytearray(LARGE_BYTES)],
)
def test_what_is_large_is_not_packed(value):
    assert pack_value(value) == (LARGE, b"")
    assert pack_call("f", ((value,), {})) is None
    assert pack_call("f", ((), {"k": value})) is None


def test_exceptions_arrive_as_themselves_with_the_remote_traceback():
    with pytest.raises(KeyError, match="k") as caught:
        unpack(*pack_error(KeyError("k"), "Traceback: there"))
    assert "Traceback: there" in "".join(traceback.format_exception(caught.value))

    class NeedsTwo(Exception):
        def __init__(self, one, two):
            super().__init__(one)

    with pytest.raises(RemoteError, match=r"NeedsTwo(.|\n)*over there"):
        unpack(*pack_error(NeedsTwo(1, 2), "over there"))


def node(free, **total):
    return NodeInfo("n", "127.0.0.1", total, dict.fromkeys(total, free))


def test_what_no_node_can_hold_is_told_with_the_largest():
    asked = demands({"num_cpus": 0, "num_gpus": 4, "resources": {"tpu": 1}})
    assert asked == {"GPU": 4.0, "tpu": 1.0}
    assert "it asks for GPU 4, tpu 1; the largest node has GPU 2" in obstacle({"a": node(2, GPU=2.0, tpu=1.0)}, asked)
    apart = {"a": node(8, GPU=8.0), "b": node(1, tpu=1.0)}
    assert obstacle(apart, asked).endswith("which no node has all of")
    assert obstacle({"a": node(1, GPU=8.0, tpu=1.0)}, asked).startswith("it waits for room")
    assert obstacle({"a": node(8, GPU=8.0, tpu=8.0)}, asked) == ""
    assert obstacle({}, asked).startswith("no node can ever hold it")


def test_a_type_of_accelerator_that_no_node_has_is_told():
    asked = demands({"num_cpus": 0, "num_gpus": 1, "accelerator_type": "H100"})
    here = {"a": node(4, **{"GPU": 4.0, "accelerator_type:A10": 1.0})}
    assert obstacle(here, asked).endswith("the largest node has accelerator_type:H100 0")
    assert obstacle({"a": node(1, **{"GPU": 4.0, "accelerator_type:H100": 1.0})}, asked) == ""


def test_news_of_nodes_goes_on_after_the_cluster_did_not_answer(monkeypatch):
    answers = iter([ConnectionError("not now"), {"a": node(1, CPU=1.0)}, ConnectionError("not now"), {}])

    def look():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(node_news, "live_nodes", look)
    monkeypatch.setattr(node_news, "PERIOD_S", 0.0)
    monkeypatch.setattr(world, "ASK_AGAIN_S", 0.0)
    told = []

    async def follow():
        here = SimpleNamespace(now=lambda: 0.0, call=lambda function: asyncio.to_thread(function))
        process = SimpleNamespace(node_id="a", endpoint="there", requested_at=-10.0)
        entry = SimpleNamespace(spec=SimpleNamespace(demand={"CPU": 0.1}))
        one = SimpleNamespace(entry=entry, executor=SimpleNamespace(processes={"a/m#1.0": process}))
        news = node_news.NodeNews(here, told.append, lambda: [one], SimpleNamespace(processes={}, end_misplaced=None))
        cluster = Cluster()
        cluster.apply(application(EntrySpec(ranks=DeploymentSpec(name="a/m", target_replicas=1))))
        news.follow(cluster.state)
        assert news._task is None
        cluster.apply(application(EntrySpec(ranks=DeploymentSpec(name="a/m", target_replicas=1, placement="pack_ranks"))))
        news.follow(cluster.state)
        async with asyncio.timeout(120):
            while len(told) < 2:
                await asyncio.sleep(0.001)
        news.close()

    asyncio.run(follow())
    assert [type(each).__name__ for each in told] == ["NodeJoined", "NodeLost"], "of no memory, no list of nodes is told"
    assert told[0].resources == {"CPU": 1.1}, "what is free, and what replicas have"


def test_memory_that_is_given_back_is_offered_no_more():
    """A deployment that came later was loaded on what the last one had, and failed: nothing was known of its node."""
    told = []

    async def give_back():
        here = SimpleNamespace(now=lambda: 5.0)
        news = node_news.NodeNews(here, told.append, tuple, SimpleNamespace(processes={}, end_misplaced=None))
        news._told = {"a": ({"CPU": 1.0}, node_news.MemoryOffer((10,), 5, {})), "b": ({"CPU": 1.0}, node_news.NO_MEMORY)}
        news._task = asyncio.current_task()
        news.close()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)

    asyncio.run(give_back())
    assert told == [NodeJoined(node_id="a", resources={"CPU": 1.0}, at=5.0)]


EXPECTED = ExpectedShape(gpu_bytes=(80,))


def test_nodes_are_listed_once_each_of_them_has_said_what_it_offers():
    told, offers = [], {}
    memory = SimpleNamespace(offers=offers, look=lambda nodes: None, close=offers.clear, expected_shapes=(EXPECTED,))

    async def watch():
        news = node_news.NodeNews(
            SimpleNamespace(now=lambda: 5.0), told.append, tuple, SimpleNamespace(processes={}, end_misplaced=None)
        )
        news.memory = memory
        for known in ((), ("a",), ("a", "b"), ("a", "b")):
            offers.update(dict.fromkeys(known, node_news.MemoryOffer((10,), 5, {})))
            news._look_at({each: node(1, CPU=1.0) for each in ("a", "b")})
        news._task = asyncio.current_task()
        news.close()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)

    asyncio.run(watch())
    lists = [(each.node_ids, each.expected_shapes) for each in told if isinstance(each, NodesListed)]
    assert lists == [(("a", "b"), (EXPECTED,)), (None, (EXPECTED,))]
    assert [type(each).__name__ for each in told][:3] == ["NodeJoined", "NodeJoined", "NodesListed"], (
        "and not before they joined"
    )


@pytest.mark.parametrize("wrong", [1, (1,), ({"gpu": 1},), ({"gpu_bytes": (0,)},)])
def test_wrong_shapes_of_nodes_that_may_come_are_refused(wrong):
    with pytest.raises(InvalidDeploymentError, match=r"MemoryOptions\.expected_shapes must be a tuple of ExpectedShape"):
        MemoryOptions(expected_shapes=wrong)


def packed_in_another_process(folder, main):
    code = "from executors.ray_gpu.packing import pack\n" + main + "print(pack(app, (), {}, 'default').spec.version)"
    (folder / "main.py").write_text(code)
    line = [sys.executable, str(folder / "main.py")]
    done = subprocess.run(line, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    return done.stdout.strip()


def test_new_code_in_a_module_is_another_version_and_the_same_code_is_not(tmp_path):
    main = "from models import Model\nfrom executors import ray_gpu as serve\napp = serve.deployment(Model).bind()\n"
    (tmp_path / "models.py").write_text("class Model:\n    def __call__(self): return 1\n")
    first = packed_in_another_process(tmp_path, main)
    assert packed_in_another_process(tmp_path, main) == first
    (tmp_path / "models.py").write_text("class Model:\n    def __call__(self): return 2000\n")
    assert packed_in_another_process(tmp_path, main) != first


def test_a_main_script_that_runs_again_deploys_the_same_version(tmp_path):
    main = """
from executors import ray_gpu as serve
@serve.deployment
class Model:
    def __call__(self): return 1
app = Model.bind()
"""
    first = packed_in_another_process(tmp_path, main)
    assert packed_in_another_process(tmp_path, main) == first
    assert packed_in_another_process(tmp_path, main.replace("return 1", "return 2")) != first


def test_fractions_fit_as_often_as_they_fit():
    assert fitting(node(1.0, GPU=1.0), demands({"num_cpus": 0, "num_gpus": 0.25})) == 4
    assert fitting(node(0.0, GPU=1.0), demands({"num_cpus": 0, "num_gpus": 0.25})) == 0


class KeyValueStore(dict):
    """Ray's, as far as a checkpoint uses it."""

    def put(self, key, value, overwrite):
        was_there = key in self
        if overwrite or not was_there:
            self[key] = value
        return was_there

    def listed(self, prefix):
        return sorted(key for key in self if key.startswith(prefix))


@pytest.fixture
def kept(monkeypatch):
    store = KeyValueStore()
    for name, function in {
        "_put": lambda key, value, *, overwrite: store.put(key, value, overwrite),
        "_get": store.get,
        "_list": store.listed,
        "_delete": lambda key: store.pop(key, None),
    }.items():
        monkeypatch.setattr(checkpoint, name, function)
    return store


def record_of(number, name="default/m", id_on_ray=None, **fields):
    spec = DeploymentSpec(name=name, target_replicas=number % 100, user_config={"a": [1, {"b": None}]})
    routing = RoutingSpec(name=name, policy="affinity", max_queued_requests=7, request_timeout_s=1.5, by_credits=True)
    extras = RayExtras(class_name="models.M", spares=2, id_on_ray=id_on_ray).to_extras()
    applied = EntrySpec(ranks=spec, routing=routing, demand={"CPU": 0.5}, extras=extras)
    return Record(deployment=name, number=number, applied=applied, spec=spec, **fields)


def test_a_checkpoint_is_read_as_it_was_written(kept):
    record = record_of(7, deleting=True, failed=True, previous=DeploymentSpec(name="default/m", target_replicas=2))
    store = checkpoint.Checkpoint("ns")
    store.put_record(record)
    assert store.records(1) == [checkpoint.Found("default/m", record)]
    assert store.records(1)[0].record.spec.user_config == {"a": (1, {"b": None})}


def test_a_record_that_lands_late_stands_beside_the_newer_one_and_not_in_its_place(kept):
    store = checkpoint.Checkpoint("ns")
    for number in (1, 5, 3):
        store.put_record(record_of(number))
        store.put_record(record_of(number + 1, "default/m2"))
    assert [(found.id_on_ray, found.record.number) for found in store.records(1)] == [("default/m", 5), ("default/m2", 6)]
    store.put_record(record_of(9))
    assert len(kept.listed(names.record_prefix("ns", "default/m"))) == 1, "all that are older have gone"
    store.forget_record("default/m")
    assert [found.id_on_ray for found in store.records(1)] == ["default/m2"]


def test_a_record_under_an_older_key_counts_until_it_is_stored_anew(kept):
    store = checkpoint.Checkpoint("ns")
    record = record_of(0, id_on_ray="m")
    kept[names.older_record_key("ns", "m")] = to_json(record).encode()
    assert store.records(1) == [checkpoint.Found("m", record)]
    adopted = attrs.evolve(record, number=2**32 + 1)
    store.put_record(adopted)
    assert store.records(2) == [checkpoint.Found("m", adopted)]
    assert kept.listed(names.older_records_prefix("ns")) == []


def test_what_is_no_record_of_an_earlier_epoch_is_said_to_be_none(kept):
    store = checkpoint.Checkpoint("ns")
    store.put_record(record_of(2**32))
    (later,) = store.records(1)
    assert (later.record, later.problem) == (None, "its record is of epoch 1, and this is epoch 1")
    kept[names.record_key("ns", "default/n", 1)] = to_json(record_of(2**32)).encode()
    kept[names.record_key("ns", "default/o", 1)] = b"{"
    kept[names.record_key("ns", "default/p", 1)] = to_json(
        attrs.evolve(record_of(1), applied=EntrySpec(ranks=record_of(1).spec))
    ).encode()
    problems = {found.id_on_ray: found.problem for found in store.records(2) if found.record is None}
    assert problems["default/n"] == "its record is one of default/m"
    assert all(problems[name].startswith("its record cannot be read: ") for name in ("default/o", "default/p"))


def test_a_world_is_complete_when_every_rank_has_a_holder():
    holders = {0: ("m#1.0", (0, 0, 0)), 1: ("m#1.1", (1, 0, 1))}
    world = Membership.of(holders, 2)
    assert world.ranks_of("m#1.1") == (1, 0, 1)
    assert world.local_world_size(0) == 2
    assert Membership.of(holders, 3) is None
    assert Membership.of({0: holders[0], 2: holders[1]}, 2) is None
    replaced = Membership.of({**holders, 1: ("m#1.2", (1, 0, 1))}, 2)
    assert replaced.generation != world.generation


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"replicas": 2}, "deployment option 'replicas' is unknown; there are: .*num_replicas"),
        ({"ray_actor_options": {"name": "x"}}, r"ray_actor_options\['name'\] is unknown; there are: .*num_gpus"),
        ({"ray_actor_options": 3}, "ray_actor_options must be a dict, got 3"),
        ({"spares": -1}, "spares must be an integer from 0 to 1000, got -1"),
    ],
)
def test_unknown_options_are_refused_with_those_that_there_are(settings, text):
    with pytest.raises(InvalidDeploymentError, match=text):
        deployment(**settings)


def test_deployments_are_declared_as_in_ray_serve():
    @deployment
    class Plain:
        pass

    @deployment(num_replicas=2, name="other")
    def function(x):
        return x

    assert (Plain.name, function.name) == ("Plain", "other")
    changed = function.options(num_replicas=3)
    assert (function.settings["num_replicas"], changed.settings["num_replicas"]) == (2, 3)
    with pytest.raises(InvalidDeploymentError, match=r"run\(Plain.bind\(\)\) starts it"):
        Plain()
    with pytest.raises(InvalidDeploymentError, match="takes a class or a function"):
        deployment(3)


def test_deployments_of_one_name_in_an_application_are_numbered():
    from executors.ray_gpu.applications import in_order

    @deployment
    class Model:
        pass

    first, second, third = Model.bind(1), Model.bind(2), Model.bind([])
    target = Model.options(name="Model_1").bind(first, [second], other={"a": third, "b": first})
    named = {"Model": first, "Model_1": second, "Model_2": third, "Model_1_1": target}
    assert [(name, id(each)) for name, each in in_order(target).items()] == [(name, id(each)) for name, each in named.items()]
    shared = Model.bind()
    outer = Model.options(name="outer").bind(shared, [shared])
    assert list(in_order(outer)) == ["Model", "outer"]


@pytest.mark.parametrize(
    ("app_name", "options", "text"),
    [
        ("a/b", {}, "the application's name must be .* without / # @ and surrounding blanks, got 'a/b'"),
        ("", {}, "the application's name must be a non-empty string"),
        (None, {}, "the application's name must be a non-empty string .* got None"),
        ("a", {"name": "b/c"}, "name must be a non-empty string .* without / # @ .* got 'b/c'"),
        ("a", {"name": "b#1"}, "name must be .* got 'b#1'"),
        ("a", {"name": "b@c"}, "name must be .* got 'b@c'"),
        (
            "a" * 200,
            {"name": "b" * 100},
            "characters: the names of application and deployment, with the / between them, may have 213",
        ),
    ],
)
def test_a_name_that_is_none_is_refused_before_anything_runs(app_name, options, text):
    from executors.ray_gpu.packing import pack

    with pytest.raises(InvalidDeploymentError, match=text):
        pack(deployment(**options)(Remembers).bind(), (), {}, app_name)


class Remembers:
    pass


def test_a_deployment_has_its_id_in_the_core_and_its_own_name_in_its_context():
    from executors.ray_gpu.packing import pack

    package = pack(deployment(Remembers).bind(), (), {}, "app", "Remembers_1")
    found = {package.spec.name, package.routing.name, package.code.deployment}
    assert (found, package.code.app_name) == ({"app/Remembers_1"}, "app")
    assert extras_of(package.entry_spec).id_on_ray is None
    older = package.on_ray("Remembers_1")
    assert (older.entry_spec.deployment, older.code.deployment) == ("app/Remembers_1", "Remembers_1")
    assert extras_of(older.entry_spec).id_on_ray == "Remembers_1", "as its replicas are called"
    context = ReplicaContext("app", "Remembers_1", "app/Remembers_1#3.4", (0, 0, 0), 1, "n", "ns")
    assert (context.deployment_id, context.deployment) == ("app/Remembers_1", "Remembers_1")


def test_a_deployment_whose_replicas_would_have_ids_that_the_core_refuses_is_refused_itself():
    """It was deployed, never came up, and ended each next controller."""
    longest = "é" * (DEPLOYMENT_LENGTH_MAX - len("/Model"))
    name = deployment(Remembers).options(name="Model").id_in(longest)
    epoch = 2**31 - 1
    made = deploy(DeploymentSpec(name=name, target_replicas=1), at=0.0, epoch=epoch)
    (replica_id,) = made.state.replicas
    assert len(replica_id) + len(str(2**63)) <= NAME_LENGTH_MAX, "any number of replicas later"
    step(made.state, ReplicaPlaced(replica_id=replica_id, node_id="n", at=1.0))
    with pytest.raises(
        InvalidDeploymentError, match=f"has {DEPLOYMENT_LENGTH_MAX + 1} characters: the names of application and .* may have"
    ):
        deployment(Remembers).options(name="Model").id_in(longest + "x")


def test_a_handle_says_whose_it_calls_and_is_rebuilt_from_what_older_ones_were_pickled_as():
    from executors.ray_gpu.requests.handle import CallOptions, DeploymentHandle, _rebuild

    handle = DeploymentHandle("app/Model", namespace="ns")
    assert (handle.app_name, handle.deployment_name, handle.predict.deployment_name) == ("app", "Model", "Model")
    older = _rebuild("Model", "ns", CallOptions())
    assert (older.app_name, older.deployment_name) == ("", "Model")
    assert repr(pickle.loads(pickle.dumps(handle.predict))) == "DeploymentHandle('app/Model', method='predict')"


def test_the_handle_of_a_method_is_made_once_and_is_no_part_of_what_travels():
    from executors.ray_gpu.requests.handle import DeploymentHandle

    handle, fresh = DeploymentHandle("app/Model"), DeploymentHandle("app/Model")
    assert handle.predict is handle.predict
    assert handle.predict is not handle.options(method_name="predict")
    assert pickle.dumps(handle) == pickle.dumps(fresh)
    with pytest.raises(AttributeError, match="_private"):
        _ = handle._private


def test_run_takes_applications_only():
    with pytest.raises(InvalidDeploymentError, match=r"run\(\) takes what bind\(\) returns"):
        ray_gpu.run(3)


def test_the_context_is_for_replicas():
    with pytest.raises(NotInReplicaError, match="outside a replica"):
        ray_gpu.get_replica_context()


def test_every_public_name_is_there():
    assert sorted(ray_gpu.__all__) == dir(ray_gpu)
    assert all(getattr(ray_gpu, name) is not None for name in ray_gpu.__all__)


def test_every_error_that_a_caller_can_catch_is_a_public_name():
    tree, found = [ray_gpu.RayExecutorError], []
    while tree:
        error = tree.pop()
        if error.__module__ == "executors.ray_gpu.errors":
            found.append(error)
        tree += error.__subclasses__()
    assert {each.__name__ for each in found} >= {"OverloadedError", "ReplicaGoneError", "DeadlineError", "NameInUseError"}
    assert [each.__name__ for each in found if getattr(ray_gpu, each.__name__, None) is not each] == []
    assert [each.__name__ for each in found if each.__name__ not in ray_gpu.__all__] == []
    assert [each.__name__ for each in found if each.__name__ not in (ray_gpu.errors.__doc__ or "")] == [], (
        "the tree on top is old"
    )
    assert issubclass(ray_gpu.RayExecutorError, RankcoreError)


WITHOUT_RAY = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "ray":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
"""


def last_line(code):
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    return done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    "statement",
    [
        "from executors import ray_gpu as serve; serve.run",
        "from executors.ray_gpu import run",
        "from executors.ray_gpu import residency",
    ],
)
def test_without_ray_the_error_says_which_extra_to_install(statement):
    said = last_line(WITHOUT_RAY + statement)
    assert said.startswith("executors.ray_gpu.errors.MissingExtraError: ray is not installed")
    assert said.endswith("pip install 'rankcore[ray]'")


def test_what_is_missing_and_comes_with_no_extra_is_said_as_python_does():
    code = "from executors import ray_gpu as serve; serve._HOMES['odd'] = 'no_such_module'; serve.odd"
    assert last_line(code) == "ModuleNotFoundError: No module named 'no_such_module'"


def test_a_user_config_reaches_user_code_with_its_lists_and_dicts_as_they_were_written():
    user_config = {"layers": [1, [2, {"sizes": [3]}]], "name": "v2", "nothing": None}
    started = deploy(DeploymentSpec(name="m", target_replicas=1, user_config=user_config)).state
    replica_id = next(iter(started.replicas))
    commands = step(started, ReplicaPlaced(replica_id=replica_id, node_id="n1", at=1.0)).commands
    (command,) = (each for each in commands if isinstance(each, InitializeReplica))
    assert change_of(command).user_config == user_config


def test_which_memory_weights_may_use_is_stored_and_is_as_by_default_where_it_cannot_be_read(kept):
    expected = ({"gpu_bytes": (9,), "labels": {"zone": "b"}}, ExpectedShape(gpu_bytes=(8, 8)))
    known = MemoryOptions(device="cpu", stand_in_gpu_bytes=(5, 7), cache_bytes=3, expected_shapes=expected)
    store, options = checkpoint.Checkpoint("ns"), known
    assert store.memory() == MemoryOptions()
    store.put_memory(options)
    assert store.memory() == options
    kept[names.memory_key("ns")] = b"{"
    assert store.memory() == MemoryOptions()
    store.forget_memory()
    assert dict(kept) == {}


def test_when_applications_were_deployed_is_stored_and_unknown_where_it_cannot_be_read(kept):
    store = checkpoint.Checkpoint("ns")
    assert store.deployed() == {}
    store.put_deployed({"shop": 1.5})
    assert checkpoint.Checkpoint("ns").deployed() == {"shop": 1.5}
    for damaged in (b"{", b"[]", b'{"shop": "x"}'):
        kept[names.deployed_key("ns")] = damaged
        assert store.deployed() == {}
    store.forget_deployed()
    assert dict(kept) == {}


def test_ends_of_controllers_whose_planner_failed_count_for_a_while(kept):
    store = checkpoint.Checkpoint("ns")
    for at in (1.5, 700.0, 20.25):
        store.put_planner_failure(at)
    assert store.planner_failures(since=20.0) == [20.25, 700.0]
    assert store.planner_failures(since=0.0) == [20.25, 700.0], "older ones are forgotten"


def test_a_controller_of_before_is_said_to_lack_what_came_later():
    """Ray gives an actor that it starts again the methods that it was created with."""
    with pytest.raises(VersionMismatchError, match=r"the controller is from before 'evict' was there: shutdown\(\)"):
        connection.ask(SimpleNamespace(), "evict", "m", "WARM")


def raising(error):
    def raises(*_, **__):
        raise error

    return raises


class Before:
    """A controller that runs other code than is installed here, as Ray's handle shows it: with all methods of what is."""

    def __init__(self):
        self.inquire_waiting = self.__ray_call__ = SimpleNamespace(
            remote=lambda function: function(SimpleNamespace(hello=None))
        )


def test_a_controller_that_began_with_other_code_is_asked_what_it_has(monkeypatch):
    monkeypatch.setattr(connection.ray, "get", lambda answer, timeout: answer)
    assert connection.has(Before(), "hello")
    assert not connection.has(Before(), "inquire_waiting")
    assert connection.has(SimpleNamespace(inquire_waiting=None), "inquire_waiting"), "it is in this process"
    for failed, told in ((GetTimeoutError("late"), NoAnswerError), (RayActorError(), NotRunningError)):
        monkeypatch.setattr(connection.ray, "get", raising(failed))
        with pytest.raises(told):
            connection.has(Before(), "hello")


def test_calls_that_wait_are_not_asked_for_where_the_controller_does_not_know_of_them(monkeypatch):
    monkeypatch.setattr(connection.ray, "get", lambda answer, timeout: answer)
    monkeypatch.setattr(connection, "running", lambda namespace: Before())
    found = SimpleNamespace(namespace="n")
    assert under_way._inquire(found, ("a/x",)) == {"calls": [], "silent": 0}
    with pytest.raises(VersionMismatchError, match="from before calls that wait could be ended"):
        under_way._inquire(found, ("a/x",), because="enough")
