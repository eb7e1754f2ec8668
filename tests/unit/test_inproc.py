"""A cluster in an event loop: callers that wait, load, displace, fail and go; its journal runs again."""

import asyncio
import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from executors.engine.clusters import CLUSTER
from executors.engine.journal import JournalWriter
from executors.engine.reading import JournalError
from executors.engine.replay import replay
from executors.inproc import InprocCluster, begin_again
from executors.ray_gpu.errors import DeadlineError, OverloadedError, ReplicaGoneError, UnavailableError
from executors.ray_gpu.messages import CallStatus
from rankcore.autoscaling import AutoscalingSpec
from rankcore.cluster import cluster_step, recover_cluster, refusals
from rankcore.cluster.commands import KillWorker, MoveWeights, QueryWorker
from rankcore.cluster.events import ApplyRequested, ChangeRequested, DeletionRequested, MoveFailed, NodeJoined, WorkerLost
from rankcore.cluster.residency import deployment_of
from rankcore.commands import KillReplica, QueryReplica, StartReplica
from rankcore.errors import InvalidSpecError, PlannerFailedError, UnknownDeploymentError
from rankcore.events import NodeLost, ReplicaMissing, ReplicaStopped
from rankcore.residency.commands import DropFromCpu
from rankcore.residency.events import EvictRequested
from rankcore.routing import RoutingSpec
from tests.inproc import TIMEOUT_S, Weights, entry, join, phases, run, shop, tenures, until, weighed
from tests.journals import sealed, unsealed


def test_calls_of_cold_models_wait_load_and_displace():
    async def main(cluster: InprocCluster, weights: Weights) -> list[str]:
        told: list[CallStatus] = []
        first = await cluster.call("s/a", 1, on_status=told.append)
        assert [(status.state, status.percent) for status in told if status.percent < 100] == [
            ("LOADING", 0),
            ("LOADING", 50),
            ("READY", 0),
        ]
        others = await asyncio.gather(*(cluster.call("b", number) for number in range(3)))
        assert weights.log.count("load s/b") == 1
        assert "offload s/a" in weights.log
        return [first, *others]

    answers = run(main, entry("s/a", 50), entry("s/b", 60))
    assert answers == ["s/a says 1", "s/b says 0", "s/b says 1", "s/b says 2"]


def test_who_waits_is_told_behind_whom_and_that_there_is_no_place():
    async def main(cluster: InprocCluster, weights: Weights) -> None:
        await cluster.call("a", 1)
        weights.hold("answer s/a")
        asking = asyncio.ensure_future(cluster.call("a", 2))
        await until(lambda: "offload s/a" not in weights.log and cluster._callers["s/a"].load.in_flight)
        told: list[CallStatus] = []
        waiting = asyncio.ensure_future(cluster.call("b", 1, on_status=told.append))
        await until(lambda: any(each.behind == ("s/a",) for each in told))
        late: list[CallStatus] = []
        too = asyncio.ensure_future(cluster.call("b", 2, on_status=late.append))
        await until(lambda: late)
        assert (told[-1].state, late) == ("PROVISIONING", told[-1:]), "who comes later is told at once how it stands"
        weights.held["answer s/a"].set()
        assert await asyncio.gather(asking, waiting, too) == ["s/a says 2", "s/b says 1", "s/b says 2"]
        for _ in range(2):
            with pytest.raises(UnavailableError, match="s/large is UNAVAILABLE") as refused:
                await cluster.call("large", 1)
            assert refused.value.retry_after_s is not None
            assert 0.0 < refused.value.retry_after_s <= 30.0

    run(main, entry("s/a", 50), entry("s/b", 60), entry("s/large", 100, wait_for_room_s=0.01))


def test_what_a_model_raises_is_handed_over_and_it_lives_on():
    async def main(cluster: InprocCluster, _: Weights) -> None:
        with pytest.raises(KeyError, match="mine"):
            await cluster.call("a", KeyError("mine"))
        assert await cluster.call("a", 2) == "s/a says 2"

    run(main, entry("s/a", 50))


def test_a_load_that_fails_for_good_is_an_error_with_the_reason():
    async def main(cluster: InprocCluster, weights: Weights) -> None:
        weights.fails["load s/a"] = OSError("no such file")
        for _ in range(2):
            with pytest.raises(UnavailableError, match="OSError: no such file"):
                await cluster.call("a", 1)

    run(main, entry("s/a", 50, max_start_failures=1))


@pytest.mark.parametrize("wrong", [True, False])
def test_that_a_node_has_other_weights_is_told_to_the_machine(monkeypatch, wrong):
    refused = []
    monkeypatch.setattr(refusals, "refuse", lambda draft, model, node_id: refused.append(deployment_of(model)))

    async def main(cluster: InprocCluster, weights: Weights) -> None:
        weights.fails["load s/a"] = error = OSError("others")
        error.wrong_weights = wrong
        with pytest.raises(UnavailableError, match="others"):
            await cluster.call("a", 1)

    run(main, entry("s/a", 50, max_start_failures=1))
    assert refused == ["s/a"] * wrong


def test_a_load_that_fails_is_tried_again():
    async def main(cluster: InprocCluster, weights: Weights) -> None:
        weights.fails["load s/a"] = OSError("not now")
        asking = asyncio.ensure_future(cluster.call("a", 1))
        await until(lambda: "not now" in cluster.state.deployments["s/a"].trouble)
        weights.fails.clear()
        assert await asking == "s/a says 1"

    run(main, entry("s/a", 50, start_backoff_s=0.01, start_backoff_max_s=0.01, max_start_failures=100))


def test_a_load_from_memory_that_fails_is_tried_again_from_there():
    async def main(cluster: InprocCluster, weights: Weights) -> None:
        await cluster.call("a", 1)
        [worker_id] = weights.hot
        cluster.tell(EvictRequested(model="s/a", at=cluster.now))
        await until(lambda: phases(cluster)["RESTING"])
        weights.fails["load s/a"] = OSError("not now")
        asking = asyncio.ensure_future(cluster.call("a", 2))
        await until(lambda: "not now" in cluster.state.deployments["s/a"].trouble)
        weights.fails.clear()
        assert await asking == "s/a says 2"
        assert (weights.hot, "drop s/a" in weights.log) == ({worker_id}, False)

    run(main, entry("s/a", 50, start_backoff_s=0.01, start_backoff_max_s=0.01))


def test_who_is_not_there_is_asked_again():
    async def main(cluster: InprocCluster, weights: Weights) -> None:
        await cluster.call("a", 1)
        [worker_id] = weights.hot
        weights.hot.clear()
        asking = asyncio.ensure_future(cluster.call("a", 2))
        await until(lambda: cluster._callers["s/a"].waiting)
        weights.hot.add(worker_id)
        assert await asking == "s/a says 2"

    run(main, entry("s/a", 50))


def test_deadlines_limits_and_cancellation():
    async def main(cluster: InprocCluster, weights: Weights) -> None:
        weights.hold("answer s/a")
        with pytest.raises(DeadlineError):
            await cluster.call("a", 1, timeout_s=0.01)
        await until(lambda: phases(cluster)["SERVING"] and not cluster._callers["s/a"].load.in_flight)
        load = cluster._callers["s/a"]
        working = asyncio.ensure_future(cluster.call("a", 2))
        await until(lambda: load.load.in_flight)
        waiting = asyncio.ensure_future(cluster.call("a", 3))
        await until(lambda: load.waiting)
        with pytest.raises(OverloadedError) as refused:
            await cluster.call("a", 4)
        assert refused.value.retry_after_s > 0.0
        waiting.cancel()
        await until(lambda: not load.waiting)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        await until(lambda: not load.load.in_flight)

    run(main, entry("s/a", 50, routing=RoutingSpec(name="s/a", max_ongoing_requests=1, max_queued_requests=1)))


def test_an_eviction_lets_work_finish_and_provisions_again_for_who_waits():
    async def main(cluster: InprocCluster, weights: Weights) -> None:
        weights.hold("answer s/a")
        asking = [asyncio.ensure_future(cluster.call("a", number)) for number in range(2)]
        await until(lambda: "s/a" in cluster._callers and cluster._callers["s/a"].load.in_flight)
        cluster.tell(EvictRequested(model="s/a", at=cluster.now))
        weights.held["answer s/a"].set()
        assert await asyncio.gather(*asking) == ["s/a says 0", "s/a says 1"]
        assert weights.log.count("load s/a") == 2
        assert weights.log[:3] == ["load s/a", "answer s/a", "offload s/a"], "the call that was under way was finished before"

    run(main, entry("s/a", 50, routing=RoutingSpec(name="s/a", max_ongoing_requests=1)))


def test_what_does_not_finish_in_its_time_is_stopped_and_lost():
    async def main(cluster: InprocCluster, weights: Weights) -> None:
        weights.hold("answer s/a")
        asking = asyncio.ensure_future(cluster.call("a", 1))
        await until(lambda: "s/a" in cluster._callers and cluster._callers["s/a"].load.in_flight)
        cluster.tell(EvictRequested(model="s/a", at=cluster.now))
        with pytest.raises(ReplicaGoneError, match="nobody knows whether it was begun"):
            await asking

    run(main, entry("s/a", 50), how=weighed(drain_timeout_s=0.01))


def test_a_load_that_is_broken_off_and_an_offload_that_fails():
    async def main(cluster: InprocCluster, weights: Weights) -> None:
        weights.hold("load s/a")
        asking = asyncio.ensure_future(cluster.call("a", 1))
        await until(lambda: phases(cluster)["LOADING"])
        cluster.tell(EvictRequested(model="s/a", at=cluster.now))
        await until(lambda: weights.broken_off == ["load s/a"])
        weights.held["load s/a"].set()
        assert await asking == "s/a says 1"
        assert weights.log.count("load s/a") == 1, "what was broken off has not ended"
        weights.fails["offload s/a"] = MemoryError()
        cluster.tell(EvictRequested(model="s/a", at=cluster.now))
        await until(lambda: phases(cluster) == {"RESTING": 1} or not phases(cluster))
        assert "drop s/a" in weights.log
        assert not weights.hot
        assert await cluster.call("a", 2) == "s/a says 2"

    run(main, entry("s/a", 50))


def test_a_load_from_memory_that_is_broken_off_leaves_the_copy_there():
    async def main(cluster: InprocCluster, weights: Weights) -> None:
        await cluster.call("a", 1)
        cluster.tell(EvictRequested(model="s/a", at=cluster.now))
        await until(lambda: phases(cluster)["RESTING"])
        weights.hold("load s/a")
        asking = asyncio.ensure_future(cluster.call("a", 2))
        await until(lambda: phases(cluster)["LOADING"])
        asking.cancel()
        await asyncio.wait([asking])
        cluster.tell(EvictRequested(model="s/a", at=cluster.now))
        await until(lambda: phases(cluster)["RESTING"])
        [record] = [each for _, each in cluster.state.weights.planner.replicas.items()]
        assert record.copy_node_id == "n1"
        assert "drop s/a" not in weights.log
        weights.held.clear()
        assert await cluster.call("a", 3) == "s/a says 3"

    run(main, entry("s/a", 50))


def test_what_is_evicted_to_disk_is_dropped_whether_it_is_hot_or_warm():
    async def main(cluster: InprocCluster, weights: Weights) -> None:
        for warm in (False, True):
            await cluster.call("a", 1)
            if warm:
                cluster.tell(EvictRequested(model="s/a", at=cluster.now))
                await until(lambda: phases(cluster)["RESTING"])
            weights.log.clear()
            cluster.tell(EvictRequested(model="s/a", keep="COLD", at=cluster.now))
            await until(lambda: weights.log and not phases(cluster))
            assert weights.log == ["drop s/a"]
            assert not cluster._workers._held

    run(main, entry("s/a", 50))


def test_a_worker_that_is_lost_and_a_node_that_is_lost_are_replaced():
    async def main(cluster: InprocCluster, weights: Weights) -> None:
        weights.hold("answer s/a")
        for lose in ("worker", "node"):
            asking = asyncio.ensure_future(cluster.call("a", 1))
            await until(lambda: "s/a" in cluster._callers and cluster._callers["s/a"].load.in_flight)
            [worker_id] = weights.hot
            weights.hot.clear()
            if lose == "worker":
                cluster.tell(WorkerLost(worker_id=worker_id, node_id="n1", reason="segfault", at=cluster.now))
            else:
                cluster.tell(NodeLost(node_id="n1", at=cluster.now))
                join(cluster, 80, node_id="n2")
            with pytest.raises(ReplicaGoneError):
                await asking
            await until(lambda: weights.hot)
        weights.held.clear()
        assert await cluster.call("a", 3) == "s/a says 3"

    run(main, entry("s/a", 50, 1, start_backoff_s=0.01))


def test_a_worker_that_is_killed_gives_all_up_and_is_replaced():
    """Its load takes too long."""

    async def main(cluster: InprocCluster, weights: Weights) -> None:
        weights.hold("load s/a")
        asking = asyncio.ensure_future(cluster.call("a", 1))
        await until(lambda: "drop s/a" in weights.log)
        weights.held.clear()
        assert await asking == "s/a says 1"

    spec = entry("s/a", 50, start_backoff_s=0.01, max_start_failures=100)
    assert spec.residency is not None
    run(main, attrs.evolve(spec, residency=attrs.evolve(spec.residency, load_timeout_s=0.05)))


def test_a_deployment_that_is_deleted_is_given_up_and_its_calls_fail():
    async def main(cluster: InprocCluster, weights: Weights) -> None:
        weights.hold("answer s/a")
        asking = [asyncio.ensure_future(cluster.call("a", number)) for number in range(2)]
        await until(lambda: "s/a" in cluster._callers and cluster._callers["s/a"].load.in_flight)
        cluster.tell(DeletionRequested(deployments=("s/a",), at=cluster.now))
        weights.held["answer s/a"].set()
        assert await asking[0] == "s/a says 0"
        with pytest.raises(UnavailableError, match="deleted"):
            await asking[1]
        assert not weights.hot
        with pytest.raises(UnknownDeploymentError, match="one of s/b"):
            await cluster.call("a", 1)

    spec = entry("s/a", 50, routing=RoutingSpec(name="s/a", max_ongoing_requests=1))
    run(main, spec, entry("s/b", 10))


def test_names_and_specs_that_cannot_be_are_refused():
    async def main(cluster: InprocCluster, _: Weights) -> None:
        with pytest.raises(UnknownDeploymentError, match="one of s/a"):
            await cluster.call("b", 1)
        with pytest.raises(InvalidSpecError, match="residency of s/p"):
            cluster.apply(shop(entry("s/a", 50), attrs.evolve(entry("s/p", 1), residency=None)))
        assert set(cluster.state.deployments) == {"s/a"}

    run(main, entry("s/a", 50))


def test_whoever_waits_when_the_cluster_is_closed_is_told_so():
    async def scene() -> None:
        weights = Weights()
        async with InprocCluster(weights) as cluster:
            join(cluster, 80)
            cluster.apply(shop(entry("s/a", 50), entry("s/b", 20)))
            weights.hold("load s/a")
            weights.hold("answer s/b")
            asking = [asyncio.ensure_future(cluster.call(model, 1)) for model in "ab"]
            await until(lambda: "s/b" in cluster._callers and cluster._callers["s/b"].load.in_flight)
        for each in asking:
            with pytest.raises(UnavailableError, match="closed"):
                await each
        with pytest.raises(UnavailableError, match="closed"):
            await cluster.call("a", 1)
        with pytest.raises(UnavailableError, match="closed"):
            cluster.apply(shop(entry("s/a", 50)))

    asyncio.run(scene())


def test_a_planner_that_fails_closes_the_cluster_and_callers_hear_why(monkeypatch: pytest.MonkeyPatch):
    async def main(cluster: InprocCluster, weights: Weights) -> None:
        weights.hold("load s/a")
        asking = asyncio.ensure_future(cluster.call("a", 1))
        await until(lambda: phases(cluster)["LOADING"])

        def broken(*_: Any) -> None:
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr("rankcore.cluster.planner.carried_out", broken)
        weights.held["load s/a"].set()
        with pytest.raises(PlannerFailedError, match="a bug"):
            await asking
        with pytest.raises(PlannerFailedError, match="a bug"):
            join(cluster, 80)

    run(main, entry("s/a", 50))


# -- its journal


def keep(path: Path) -> None:
    async def main(cluster: InprocCluster, _: Weights) -> None:
        await asyncio.gather(*(cluster.call(model, 1) for model in "abab"))

    with JournalWriter.create(path, kind=CLUSTER, about={"test": 1}, fingerprint_every=3) as journal:
        run(main, entry("s/a", 50), entry("s/b", 60), journal=journal)


def test_a_journal_runs_again_to_the_same_state(tmp_path: Path):
    path = tmp_path / "cluster.jsonl"
    keep(path)
    result = replay(path, CLUSTER)
    assert result.difference is None
    assert result.warning is None
    assert result.steps > 12
    assert result.fingerprints == 1 + (result.steps - 1) // 3  # of the beginning, and of every third after it
    assert set(result.state.deployments) == {"s/a", "s/b"}


def test_a_journal_that_tells_another_story_is_found(tmp_path: Path):
    path = tmp_path / "cluster.jsonl"
    keep(path)
    lines = unsealed(path)
    other = next(index for index, line in enumerate(lines) if '"GiveTenure"' in json.dumps(line))
    for old, new, what in (
        ('"rank": 0', '"rank": 1', "commands[0] differs"),
        ('"rule": "P4"', '"rule": "P5"', "notes[1] differs"),
    ):
        assert old in json.dumps(lines[other])
        told = json.loads(json.dumps(lines[other]).replace(old, new))
        path.write_bytes(sealed([*lines[:other], told, *lines[other + 1 :]]))
        assert what.partition("[")[0] in str(replay(path, CLUSTER).difference)
    marked = next(index for index, line in enumerate(lines) if index > 1 and "fingerprint" in line)
    path.write_bytes(sealed([*lines[:marked], lines[marked] | {"fingerprint": "0"}]))
    assert "fingerprint differs" in str(replay(path, CLUSTER).difference)


def test_a_journal_that_was_cut_off_is_read_up_to_there(tmp_path: Path):
    path = tmp_path / "cluster.jsonl"
    keep(path)
    whole = replay(path, CLUSTER).steps
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1])[:-5])
    result = replay(path, CLUSTER)
    assert result.steps == whole - 1
    assert "in the middle of this line" in (result.warning or "")


def test_an_event_that_does_not_fit_its_state_is_a_difference(tmp_path: Path):
    path = tmp_path / "cluster.jsonl"
    with JournalWriter.create(path, kind=CLUSTER) as journal:
        how = begin_again(recover_cluster((), (), at=0.0, epoch=1).state)
        first = how.step()
        journal.begin(how, first)
        event = ApplyRequested(applications=(shop(entry("s/a", 5)),), at=0.0)
        journal.append(EvictRequested(model="s/a", at=0.0), cluster_step(first.state, event))
    assert "UnknownDeploymentError" in str(replay(path, CLUSTER).difference)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "the file is empty: a journal begins with a line about itself"),
        ("{}\n", "its first line has no key 'journal'"),
        ("x", "not a line of a journal"),
    ],
)
def test_what_is_no_journal_is_refused_with_its_line(tmp_path: Path, text: str, what: str):
    path = tmp_path / "cluster.jsonl"
    path.write_text(text)
    with pytest.raises(JournalError, match=what):
        replay(path, CLUSTER)


def test_a_step_that_the_journal_does_not_take_is_not_taken_and_is_tried_again(monkeypatch: pytest.MonkeyPatch):
    class Full:
        is_full = False

        def begin(self, how: Any, first: Any) -> None:
            pass

        def append(self, event: Any, result: Any) -> None:
            if self.is_full:
                raise OSError("no space left")

    journal = Full()
    monkeypatch.setattr("executors.inproc.cluster.AGAIN_S", 0.01)

    async def main(cluster: InprocCluster, weights: Weights) -> None:
        await until(lambda: phases(cluster)["LOADING"])
        journal.is_full = True
        with pytest.raises(OSError, match="no space"):
            join(cluster, 80, node_id="n2")
        assert set(cluster.state.nodes) == {"n1"}
        weights.held["load s/a"].set()
        await until(lambda: weights.hot)
        assert phases(cluster) == {"LOADING": 1}
        journal.is_full = False
        await until(lambda: phases(cluster) == {"SERVING": 1})

    weights = Weights()
    weights.hold("load s/a")
    run(main, entry("s/a", 50, 1), journal=journal, node=weights)


def test_a_process_that_takes_over_has_what_was_wanted_and_loads_again(tmp_path: Path):
    path = tmp_path / "cluster.jsonl"

    async def dies(cluster: InprocCluster, weights: Weights) -> None:
        weights.hold("load s/a")
        asking = asyncio.ensure_future(cluster.call("a", 1))
        await until(lambda: phases(cluster) == {"LOADING": 1, "SERVING": 1})
        asking.cancel()

    with JournalWriter.create(path, kind=CLUSTER) as journal:
        run(dies, entry("s/a", 50), entry("s/b", 20, 1), journal=journal)
    state = replay(path, CLUSTER).state
    assert phases_of(state) == {"LOADING", "SERVING"}

    async def takes_over() -> None:
        weights = Weights()
        with JournalWriter.resume(path, kind=CLUSTER) as journal:
            async with InprocCluster(weights, how=begin_again(state), journal=journal) as cluster:
                assert cluster.now >= state.clock
                assert cluster.state.epoch == state.epoch + 1
                cluster.tell(NodeJoined(node_id="n1", resources={}, gpu_bytes=(80,), cpu_bytes=200, at=cluster.now))
                await until(lambda: "load s/b" in weights.log)
                assert await asyncio.wait_for(cluster.call("a", 2), TIMEOUT_S) == "s/a says 2"
        assert replay(path, CLUSTER).difference is None

    asyncio.run(asyncio.wait_for(takes_over(), TIMEOUT_S))


def phases_of(state: Any) -> set[str]:
    return {each.phase.name for _, each in state.weights.planner.replicas.items()}


# -- what changes while it runs


def test_more_calls_than_a_replica_takes_bring_another_one_and_a_limit_may_be_raised():
    async def main(cluster: InprocCluster, weights: Weights) -> None:
        await cluster.call("a", 0)
        weights.hold("answer s/a")
        asking = [asyncio.ensure_future(cluster.call("a", number)) for number in range(3)]
        await until(lambda: len(weights.hot) == 2)  # nobody waits: it is what the first one works on that calls for it
        asking += [asyncio.ensure_future(cluster.call("a", number)) for number in range(3, 7)]
        await until(lambda: cluster._callers["s/a"].load.in_flight == 6)
        spec = cluster.state.deployments["s/a"].spec
        wider = attrs.evolve(spec, routing=RoutingSpec(name="s/a", max_ongoing_requests=4))
        cluster.tell(ChangeRequested(spec=wider, at=cluster.now))
        await until(lambda: cluster._callers["s/a"].load.in_flight == 7)
        weights.held["answer s/a"].set()
        assert await asyncio.gather(*asking) == [f"s/a says {number}" for number in range(7)]

    load = AutoscalingSpec(
        min_replicas=0,
        max_replicas=2,
        target_ongoing_requests=2.0,
        metrics_interval_s=0.05,
        look_back_period_s=0.1,
        upscale_delay_s=0.05,
    )
    spec = entry("s/a", 30, routing=RoutingSpec(name="s/a", max_ongoing_requests=3))
    run(main, attrs.evolve(spec, autoscaling=load))


def test_calls_of_one_key_go_to_one_replica():
    class Named(Weights):
        async def answer(self, worker_id: str, payload: Any) -> Any:
            return worker_id

    async def main(cluster: InprocCluster, weights: Named) -> None:
        await until(lambda: len(tenures(cluster, "s/a")) == 2 and len(cluster._callers["s/a"].loads_of_replicas) == 2)
        found = await asyncio.gather(*(cluster.call("a", number, key=f"k{number % 4}") for number in range(16)))
        assert all(len(set(found[key::4])) == 1 for key in range(4))

    spec = entry("s/a", 30, 2, routing=RoutingSpec(name="s/a", policy="affinity", max_ongoing_requests=100, load_factor=100.0))
    run(main, spec, node=Named())


def test_what_is_asked_of_whom_there_is_not_is_answered():
    async def main(cluster: InprocCluster, _: Weights) -> None:
        told: list[Any] = []
        cluster._workers._tell = told.append
        nobody = "s/a@1#1.7"
        for command in (
            KillWorker("s/a", nobody, None, False, 1),
            KillWorker("s/a", nobody, 3, False, 1),
            QueryWorker(nobody, 1),
        ):
            cluster._workers.execute(command)
        drop = DropFromCpu(replica_id="s/a@1#1.7", node_id="n1", move=3)
        cluster._workers.execute(MoveWeights("s/a", None, drop, 1))
        for about in (QueryReplica("s/a#1.7", 1), KillReplica("s/a#1.7", 1)):
            cluster._workers.command("s/a", about)
        assert [type(each) for each in told] == [WorkerLost, WorkerLost, MoveFailed, ReplicaMissing, ReplicaStopped]
        with pytest.raises(NotImplementedError, match="weights that may be COLD"):
            cluster._workers.command("s/a", StartReplica("s/a#1.7", 0, "1", None, (), 1))

    run(main, entry("s/a", 50))


def test_a_worker_is_killed_for_the_move_that_it_is_killed_for_and_for_no_other():
    async def main(cluster: InprocCluster, weights: Weights) -> None:
        await until(lambda: phases(cluster) == {"SERVING": 1})
        [held] = cluster._workers._held.values()
        move = held.newest
        for late in ((move - 1, True), (move, False)):
            cluster._workers.execute(KillWorker("s/a", held.worker_id, *late, 1))
            assert held.move is not None
            assert held.move.done(), "the load that was to be broken off is over"
        cluster._workers.execute(KillWorker("s/a", held.worker_id, move, True, 1, "it hangs"))
        await until(lambda: len(weights.log) == 3 and phases(cluster) == {"SERVING": 1})
        assert weights.log == ["load s/a", "drop s/a", "load s/a"]

    run(main, entry("s/a", 50, 1, start_backoff_s=0.01))


def test_a_worker_that_cannot_be_dropped_ends_all_the_same(caplog: pytest.LogCaptureFixture):
    async def main(cluster: InprocCluster, weights: Weights) -> None:
        await cluster.call("a", 1)
        weights.fails |= {"offload s/a": MemoryError("full"), "drop s/a": OSError("gone")}
        cluster.tell(EvictRequested(model="s/a", at=cluster.now))
        await until(lambda: not phases(cluster))
        assert "were not dropped" in caplog.text

    run(main, entry("s/a", 50))


def test_a_planner_that_fails_at_once_says_so_to_who_asked(monkeypatch: pytest.MonkeyPatch):
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("a bug")

    async def scene() -> None:
        async with InprocCluster(Weights()) as cluster:
            monkeypatch.setattr("rankcore.cluster.planner.carried_out", broken)
            with pytest.raises(PlannerFailedError, match="a bug"):
                join(cluster, 80)
            with pytest.raises(PlannerFailedError, match="a bug"):
                await cluster.call("a", 1)

    asyncio.run(scene())


def test_news_that_the_core_refuses_ends_nothing(caplog: pytest.LogCaptureFixture):
    async def main(cluster: InprocCluster, _: Weights) -> None:
        cluster._backend.tell(EvictRequested(model="s/nobody", at=cluster.now))
        assert await cluster.call("a", 1) == "s/a says 1"
        assert "the core refused an event" in caplog.text

    run(main, entry("s/a", 50))
