"""A user's request router in the caller's process, with real replicas over sockets and without a cluster (docs/routing.md)."""

import asyncio
import contextlib
import logging
import re
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.ray_gpu.config import RequestRouterConfig
from executors.ray_gpu.declaration import deployment
from executors.ray_gpu.errors import InvalidCallError, InvalidDeploymentError, OverloadedError, ReplicaGoneError
from executors.ray_gpu.packing import routing_of
from executors.ray_gpu.request_router import (
    FIFOMixin,
    LocalityMixin,
    MultiplexMixin,
    PendingRequest,
    RequestMetadata,
    RequestRouter,
    RunningReplica,
)
from executors.ray_gpu.requests.call import Wishes
from executors.ray_gpu.requests.multiplexing import multiplexed
from executors.ray_gpu.requests.packing import About
from executors.ray_gpu.requests.response import DeploymentResponse
from executors.ray_gpu.requests.selection import chosen, dispatched
from executors.ray_gpu.router_source import RouterSource
from tests.unit.test_ray_calls import TIMEOUT_S, replica
from tests.unit.test_ray_router import Caller, begun, break_connections

HEARD: list[tuple[object, ...]] = []


class Told(RequestRouter):
    """Does what the test wants, and takes note of what it is told."""

    wanted = staticmethod(lambda candidates, pending: [candidates])
    made: ClassVar[list["Told"]] = []

    def initialize_state(self, **kwargs):
        self.kwargs = kwargs
        Told.made.append(self)

    async def choose_replicas(self, candidate_replicas, pending_request=None):
        return Told.wanted(candidate_replicas, pending_request)

    def on_request_routed(self, pending_request, replica_id, result):
        HEARD.append(("routed", pending_request.metadata.call_method, str(replica_id)))

    def on_request_completed(self, replica_id, internal_request_id):
        HEARD.append(("completed", str(replica_id)))


@pytest.fixture(autouse=True)
def fresh():
    HEARD.clear()
    Told.made.clear()
    Told.wanted = staticmethod(lambda candidates, pending: [candidates])


def source(kind=Told, **fields):
    return RouterSource(name=f"{kind.__module__}:{kind.__qualname__}", **{"stats_period_s": 0.02, **fields}).text


def calls(**fields):
    backoff = {"initial_backoff_s": 0.01, "max_backoff_s": 0.02}
    return Caller(**{"router": source(backoff=backoff, kwargs={"size": 3}), **fields})


def played(folder, scenario, count=1, limit=5):
    with contextlib.ExitStack() as stack:
        replicas = []
        for number in range(count):
            (folder / str(number)).mkdir()
            replicas.append(stack.enter_context(replica(folder / str(number), max_ongoing_requests=limit)))

        async def play():
            async with asyncio.timeout(2 * TIMEOUT_S):
                return await scenario(*replicas)

        return asyncio.run(play())


def test_the_replica_that_a_router_names_gets_the_call_and_the_router_hears_of_it(tmp_path):
    async def scenario(first, second):
        Told.wanted = staticmethod(lambda candidates, _: [[each for each in candidates if each.replica_id == "m#1.1"]])
        caller = calls()
        caller.follow((0, first[1]), (1, second[1]))
        assert await caller.answer("later", 7) == 7
        (router,) = Told.made
        assert router.kwargs == {"size": 3}
        assert (router.initial_backoff_s, router.max_backoff_s, router.backoff_multiplier) == (0.01, 0.02, 2.0)
        assert {str(each) for each in router.curr_replicas} == {"m#1.0", "m#1.1"}
        assert router.curr_replicas["m#1.1"].max_ongoing_requests == 5
        return list(HEARD)

    assert played(tmp_path, scenario, 2) == [("routed", "later", "m#1.1"), ("completed", "m#1.1")]


def test_a_router_that_raises_loses_no_call_and_says_so_once(tmp_path, caplog):
    tries = []

    def wanted(candidates, pending):
        tries.append(pending)
        if len(tries) < 4:
            raise KeyError("nobody")
        return [candidates]

    async def scenario(first):
        Told.wanted = staticmethod(wanted)
        caller = calls()
        caller.follow((0, first[1]))
        assert await caller.answer("later", 7) == 7

    with caplog.at_level(logging.ERROR):
        played(tmp_path, scenario)
    assert caplog.text.count("has raised: the call waits") == 1
    assert len(set(map(id, tries))) == 1, "it is the same request each time"


def test_a_router_that_names_nobody_is_asked_again(tmp_path):
    tries = []

    def wanted(candidates, pending):
        tries.append(pending.args)
        return [candidates] if len(tries) == 3 else []

    async def scenario(first):
        Told.wanted = staticmethod(wanted)
        caller = calls()
        caller.follow((0, first[1]))
        return await caller.answer("later", 7)

    assert played(tmp_path, scenario) == 7
    assert tries == [[7]] * 3


def test_a_router_that_cannot_be_made_leaves_the_default_in_its_place(tmp_path, caplog):
    async def scenario(first):
        caller = calls(router=RouterSource(name="no_such_module:Router").text)
        caller.follow((0, first[1]))
        return await caller.answer("later", 7)

    with caplog.at_level(logging.ERROR):
        assert played(tmp_path, scenario) == 7
    assert "its request router no_such_module:Router cannot be made; least_loaded here" in caplog.text


def test_what_waits_for_a_full_replica_goes_there_and_what_is_too_much_is_refused(tmp_path):
    async def scenario(first, second):
        Told.wanted = staticmethod(lambda candidates, _: [[each for each in candidates if each.replica_id == "m#1.0"]])
        caller = calls(max_ongoing_requests=1, max_queued_requests=1)
        caller.follow((0, first[1]), (1, second[1]))
        held = caller.call("for_ever")
        await begun(first[0])
        waits = caller.call("later", 1)
        await caller.until(lambda: caller.router._core.waiting == 1)
        with pytest.raises(OverloadedError):
            await caller.answer("later", 2)
        held.cancel()
        return await DeploymentResponse(waits)

    assert played(tmp_path, scenario, 2, limit=1) == 1


def test_a_call_that_is_cancelled_while_it_is_asked_about_is_forgotten(tmp_path):
    async def scenario(first):
        Told.wanted = staticmethod(lambda *_: [])
        caller = calls()
        caller.follow((0, first[1]))
        call = caller.call("later", 1)
        await caller.until(lambda: caller.router._proposer is not None and caller.router._proposer._tasks)
        call.cancel()
        await caller.until(lambda: not caller.router._calls)
        assert not caller.router._proposer._tasks
        assert not caller.router._proposer._pending

    played(tmp_path, scenario)


def test_routers_know_what_replicas_say_of_themselves(tmp_path):
    async def scenario(first):
        user = first[0]
        user.instance.record_routing_stats = lambda: {"seen": len(user.instance.seen)}
        user.instance.record_replica_metadata = lambda: {"zone": "b"}
        caller = calls()
        caller.follow((0, first[1]))
        await caller.answer("later", 7)
        known = Told.made[0].curr_replicas["m#1.0"]
        await caller.until(lambda: known.routing_stats == {"seen": 0} and known.replica_metadata == {"zone": "b"})
        user.instance.seen.append(1)
        await caller.until(lambda: known.routing_stats == {"seen": 1})

        @multiplexed
        async def model(model_id):
            return model_id

        user.instance.load = model
        assert await caller.answer("load", "fr") == "fr"
        await caller.until(lambda: "fr" in known.multiplexed_model_ids)
        user.instance.record_routing_stats = lambda: 3
        await asyncio.sleep(0)
        return known.routing_stats

    assert played(tmp_path, scenario) == {"seen": 1}


def test_another_router_is_asked_from_when_it_is_deployed_and_none_once_there_is_none(tmp_path):
    async def scenario(first):
        caller = calls()
        caller.follow((0, first[1]))
        await caller.answer("later", 7)
        caller.spec = routing_of(deployment(name="m", max_ongoing_requests=5)(lambda: 0), "m")
        caller.follow((0, first[1]))
        assert await caller.answer("later", 8) == 8
        assert caller.router._proposer is None
        return len(HEARD)

    assert played(tmp_path, scenario) == 2


def test_a_class_that_is_no_router_is_refused_and_a_policy_by_its_name_takes_its_place():
    class Nobody:
        pass

    with pytest.raises(InvalidDeploymentError, match="has no choose_replicas"):
        deployment(request_router_config={"request_router_class": Nobody})
    own = deployment(request_router_config={"request_router_class": Told})(lambda: 0)
    assert routing_of(own, "m").router
    assert not routing_of(
        own.options(request_router_config={"request_router_class": "PowerOfTwoChoicesRequestRouter"}), "m"
    ).router


@pytest.mark.parametrize(
    "wrong",
    [
        {"initial_backoff_s": 0},
        {"request_routing_stats_period_s": "soon"},
        {"request_router_class": "nothing"},
        {"request_router_kwargs": {"a": {1}}},
        {"no_such": 1},
    ],
)
def test_what_is_no_request_router_config_is_refused(wrong):
    with pytest.raises(InvalidDeploymentError, match="request_router_config"):
        deployment(request_router_config=wrong)


def test_a_config_is_what_a_process_that_calls_makes_its_router_of():
    config = RequestRouterConfig(
        request_router_class=Told,
        request_router_kwargs={"a": 1},
        request_routing_stats_period_s=0.5,
        request_routing_stats_timeout_s=2,
        initial_backoff_s=0.1,
        backoff_multiplier=3,
        max_backoff_s=9,
    )
    spec = routing_of(deployment(name="m", request_router_config=config)(lambda: 0), "m")
    read = RouterSource.read(spec.router)
    assert read.load().__name__ == "Told"
    assert (read.kwargs, read.stats_period_s, read.stats_timeout_s) == ({"a": 1}, 0.5, 2)
    assert read.backoff == {"initial_backoff_s": 0.1, "backoff_multiplier": 3.0, "max_backoff_s": 9.0}
    assert attrs_of_serve() == {name: getattr(RequestRouterConfig(), name) for name in attrs_of_serve()}


def attrs_of_serve():
    config = pytest.importorskip("ray.serve.config")
    fields = config.RequestRouterConfig.model_fields
    return {name: field.default for name, field in fields.items() if isinstance(field.default, float | int)}


def test_the_router_of_the_page_sends_each_call_where_the_fewest_tokens_were(tmp_path):
    page = (Path(__file__).resolve().parents[2] / "docs" / "requests.md").read_text()
    program = re.search(r"## Request routers of one's own\n\n```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert program is not None
    names = {"__name__": "of_the_page"}
    exec(program[1], names)
    spec = routing_of(deployment(name="m", request_router_config=names["config"])(names["Model"]), "m")

    async def scenario(first, second):
        for user, _ in (first, second):
            user.instance.record_routing_stats = lambda instance=user.instance: {"tokens": len(instance.seen)}
        caller = Caller(router=spec.router)
        caller.follow((0, first[1]), (1, second[1]))
        await caller.answer("later", 1)
        first[0].instance.seen += [1, 2, 3]
        known = caller.router._proposer._replicas
        await caller.until(lambda: known["m#1.0"].routing_stats == {"tokens": 3} and known["m#1.1"].routing_stats)
        await caller.answer("note", "fewest")
        return second[0].instance.seen

    assert played(tmp_path, scenario, 2) == ["fewest"]


class Mixed(FIFOMixin, MultiplexMixin, LocalityMixin, RequestRouter):
    async def choose_replicas(self, candidate_replicas, pending_request=None):
        return []


def test_the_mixins_rank_by_node_and_by_model():
    router = Mixed(deployment_id=None, self_node_id="here", prefer_local_node_routing=True)
    near, far, idle = (RunningReplica(f"m#{number}", node) for number, node in enumerate(("here", "there", "there")))
    near.says({"models": ["a"]})
    far.says({"models": ["b", "c"]})
    router.update_replicas([near, far, idle])
    everybody = {near.replica_id, far.replica_id, idle.replica_id}
    pending = PendingRequest(metadata=RequestMetadata(multiplexed_model_id="b"))
    assert router.apply_locality_routing(pending) == {near.replica_id}
    assert not pending.routing_context.should_backoff
    assert router.apply_locality_routing(pending) == everybody == router.apply_locality_routing()
    assert pending.routing_context.should_backoff
    assert router.rank_replicas_via_locality([far, near]) == [[near], [], [far]]
    pending = PendingRequest(metadata=RequestMetadata(multiplexed_model_id="b"))
    assert [router.apply_multiplex_routing(pending) for _ in range(3)] == [{far.replica_id}, {idle.replica_id}, everybody]
    unknown = PendingRequest(metadata=RequestMetadata(multiplexed_model_id="z"))
    assert router.apply_multiplex_routing(unknown) == {idle.replica_id}
    assert router.rank_replicas_via_multiplex([near, far, idle], "b") == [[far], [idle], [near]]
    idle._has_room = lambda _: False
    assert router.select_available_replicas() == [near, far]
    assert router.replica_queue_len_cache.get(near.replica_id) == 0
    router.on_replica_actor_died(near.replica_id)
    assert set(router.curr_replicas) == everybody - {near.replica_id}


# -- a place that is taken first: choose_replica, dispatch


def place(caller, *args, method="later"):
    return chosen(caller.router, "m", method, About(), Wishes(), (args, {}))


def test_a_place_counts_until_it_is_used_or_left(tmp_path):
    async def scenario(first):
        caller = Caller(max_ongoing_requests=1)
        caller.follow((0, first[1]))
        async with place(caller) as selection:
            assert selection.replica_id == "m#1.0"
            assert selection.to_dict()["node_id"] == "here"
            other = caller.call("later", 1)
            await caller.until(lambda: caller.router._core.waiting == 1)
            response = DeploymentResponse(dispatched(selection, "m", ((2,), {})))
            assert await response == 2
            with pytest.raises(InvalidCallError, match="used already"):
                dispatched(selection, "m", ((2,), {}))
        assert await DeploymentResponse(other) == 1
        async with place(caller):
            other = caller.call("later", 3)
            await caller.until(lambda: caller.router._core.waiting == 1)
        assert await DeploymentResponse(other) == 3
        assert caller.router._core.in_flight == 0
        assert not caller.router._held
        with pytest.raises(InvalidCallError, match="yields"):
            dispatched(selection, "other", ((), {}))
        with pytest.raises(InvalidCallError, match="this process alone"):
            async with chosen(SimpleNamespace(), "m", "later", About(), Wishes(), ((), {})):
                pass

    played(tmp_path, scenario, limit=1)


def test_a_place_whose_replica_has_died_fails_the_call(tmp_path):
    async def scenario(first):
        caller = Caller(idempotent=True)
        caller.follow((0, first[1]))
        async with place(caller) as selection:
            break_connections(*first)
            await caller.until(lambda: not caller.router._held)
            caller.follow()
            response = DeploymentResponse(dispatched(selection, "m", ((2,), {})))
            caller.follow((0, first[1]))
            with pytest.raises(ReplicaGoneError):
                await response
        await caller.until(lambda: not caller.router._calls)

    played(tmp_path, scenario)


def test_arguments_of_a_place_that_cannot_be_sent_free_it(tmp_path):
    async def scenario(first):
        caller = Caller()
        caller.follow((0, first[1]))
        async with place(caller) as selection:
            with pytest.raises(TypeError):
                dispatched(selection, "m", ((asyncio.get_running_loop(),), {}))
        await caller.until(lambda: not caller.router._calls)
        return caller.router._core.in_flight

    assert played(tmp_path, scenario) == 0


def test_a_place_tells_what_its_replica_has_recorded(tmp_path):
    async def scenario(first):
        first[0].instance.record_replica_metadata = lambda: {"port": 7}
        caller = Caller()
        caller.follow((0, first[1]))
        async with place(caller) as selection:
            return selection.replica_metadata

    assert played(tmp_path, scenario) == {"port": 7}


# -- serializations


@pytest.mark.parametrize(("encoding", "value", "there"), [("msgpack", (1, b"x"), [1, b"x"]), ("orjson", (1, "x"), [1, "x"])])
def test_arguments_and_results_are_plain_data_as_they_are_wanted(tmp_path, encoding, value, there):
    async def scenario(first):
        caller = Caller()
        caller.follow((0, first[1]))
        assert await caller.answer("later", value, wishes=Wishes(encoding=encoding)) == there
        with pytest.raises(TypeError, match=f"serialization '{encoding}' cannot take"):
            await caller.answer("later", object(), wishes=Wishes(encoding=encoding))
        from executors.ray_gpu.requests.call import Call
        from executors.ray_gpu.requests.composition import submit

        for given, expected in ((value, there), (object, TypeError)):
            call = Call("later", About(encoding=encoding))
            submit(call, ((given,), {}), caller.router)
            if expected is TypeError:
                with pytest.raises(TypeError, match="cannot be pickled"):
                    await DeploymentResponse(call)
            else:
                assert await DeploymentResponse(call) == expected

    played(tmp_path, scenario)


def raising(error):
    def wanted(candidates, pending):
        raise error

    return wanted


def naming(*names):
    return lambda *_: [[SimpleNamespace(replica_id=name) for name in names]]


def with_context(context):
    def wanted(candidates, pending):
        pending.routing_context = context
        return []

    return wanted


RUBBISH = {
    "a cancellation of its own": raising(asyncio.CancelledError()),
    "an exit": raising(SystemExit(3)),
    "an interrupt": raising(KeyboardInterrupt()),
    "the end of a generator": raising(GeneratorExit()),
    "nothing": lambda *_: None,
    "a string": lambda *_: ["m#1.0"],
    "strangers": naming("other#1.0", None, "", "m#1\x00", "m#\ud800", "m" * 100_000),
    "no context": with_context(None),
    "another context": with_context("far"),
}


@pytest.mark.parametrize("wanted", RUBBISH.values(), ids=RUBBISH)
def test_whatever_a_router_says_its_call_is_asked_about_again(tmp_path, wanted):
    tries = []

    def wanted_at_first(candidates, pending):
        tries.append(pending)
        return wanted(candidates, pending) if len(tries) == 1 else [candidates]

    async def scenario(first):
        Told.wanted = staticmethod(wanted_at_first)
        caller = calls()
        caller.follow((0, first[1]))
        assert await caller.answer("later", 7) == 7
        proposer = caller.router._proposer
        left = caller.router._calls, proposer._tasks, proposer._pending, proposer._flying
        assert not any(left)

    played(tmp_path, scenario)


class Backs(Told):
    def __init__(self, **options):
        super().__init__(**options)
        self.initial_backoff_s, self.backoff_multiplier = "soon", None


class BacksNowhere(Told):
    def __init__(self, **options):
        super().__init__(**options)
        self.initial_backoff_s = self.max_backoff_s = float("nan")


class AsksNobody(Told):
    max_num_routing_tasks_cap = 0


class AsksLess(Told):
    max_num_routing_tasks_cap = -1


class AsksWords(Told):
    max_num_routing_tasks_cap = "many"


class Exits(Told):
    def initialize_state(self, **kwargs):
        raise SystemExit(1)


class ExitsAtNews(Told):
    def update_replicas(self, replicas):
        raise SystemExit(1)


class ExitsAtRouting(Told):
    def on_request_routed(self, pending_request, replica_id, result):
        raise SystemExit(1)


class CancelledAtTheEnd(Told):
    def on_request_completed(self, replica_id, internal_request_id):
        raise asyncio.CancelledError


@pytest.mark.parametrize(
    "kind",
    [Backs, BacksNowhere, AsksNobody, AsksLess, AsksWords, Exits, ExitsAtNews, ExitsAtRouting, CancelledAtTheEnd],
    ids=lambda kind: kind.__name__,
)
def test_whatever_a_router_does_or_sets_no_call_is_lost(tmp_path, kind):
    tries = []

    def wanted(candidates, pending):
        tries.append(pending)
        return [candidates] if len(tries) > 1 else []

    async def scenario(first):
        Told.wanted = staticmethod(wanted)
        caller = calls(router=source(kind))
        caller.follow((0, first[1]))
        assert await caller.answer("later", 7) == 7

    played(tmp_path, scenario)


def test_a_router_that_always_has_more_to_propose_leaves_the_thread_to_others(tmp_path):
    tries = []

    def wanted(candidates, pending):
        tries.append(pending)
        if len(tries) > 10_000:
            raise AssertionError("nobody else has had a turn")
        pending.routing_context.tried_same_az = not pending.routing_context.tried_same_az
        return []

    async def scenario(first):
        Told.wanted = staticmethod(wanted)
        caller = calls()
        caller.follow((0, first[1]))
        caller.call("later", 7)
        await caller.until(lambda: tries)
        before = len(tries)
        await caller.until(lambda: len(tries) > before)
        assert len(tries) - before < 100

    played(tmp_path, scenario)


def test_what_is_asked_about_ends_with_its_event_loop(tmp_path):
    async def wait(*_):
        await asyncio.Event().wait()

    async def scenario(first):
        Told.wanted = staticmethod(lambda *_: [])
        caller = calls()
        caller.follow((0, first[1]))
        caller.call("later", 7)
        await caller.until(lambda: caller.router._proposer is not None and caller.router._proposer._tasks)
        Told.made[0].choose_replicas = wait
        await asyncio.sleep(0.05)
        (task,) = caller.router._proposer._tasks.values()
        task.cancel()
        await asyncio.wait([task], timeout=TIMEOUT_S)
        return task.cancelled()

    assert played(tmp_path, scenario)
