"""Metrics: the table and what is made of it, what is published of a count, and gaps of ranks."""

import asyncio
import importlib.util
import json
import re
from http.client import BadStatusLine, IncompleteRead
from pathlib import Path
from types import SimpleNamespace as Of
from urllib.request import OpenerDirector, ProxyHandler

import pytest

from executors.ray_gpu.metrics import of_requests, scrape
from executors.ray_gpu.metrics.catalogue import BY_NAME, CATALOGUE, COUNTER
from executors.ray_gpu.metrics.counts import (
    BATCH_SIZES,
    LATENCY_MS,
    LIFETIME_MS,
    PERCENTAGES,
    WINDOW_S,
    CheckCounts,
    Histogram,
    Latency,
    ProxyCounts,
    ReplicaCounts,
    Utilization,
    count_here,
)
from executors.ray_gpu.metrics.lifetimes import INITIALIZATION, RECONFIGURE, SHUTDOWN, STARTUP, Lifetimes
from executors.ray_gpu.metrics.of_decisions import Decisions, Gaps, of_proxies
from executors.ray_gpu.metrics.publisher import Publisher, Sample, every_s
from executors.ray_gpu.metrics.scrape import merged
from executors.ray_gpu.proxies.info import ProxyInfo
from executors.ray_gpu.requests.batching import batch
from executors.ray_gpu.requests.multiplexing import multiplexed
from executors.ray_gpu.serve_statuses import APPLICATION_NUMBERS, DEPLOYMENT_NUMBERS, DEPLOYMENTS, PROXY_NUMBERS
from rankcore import DeploymentStatus, ReplicaRank
from rankcore.autoscaling import AutoscalerState, AutoscalingSpec
from rankcore.cluster.commands import CarryOut
from rankcore.cluster.notes import ClusterNoteKind
from rankcore.commands import (
    InitializeReplica,
    KillReplica,
    PrepareReplica,
    PublishRoutes,
    ReconfigureReplica,
    StartReplica,
    StopReplica,
)
from rankcore.events import ReplicaDied, ReplicaPrepared, ReplicaReady, ReplicaReconfigured, ReplicaStopped
from rankcore.notes import NoteKind

DOCS = Path(__file__).parents[2] / "docs"
SERIES = {series for metric in CATALOGUE for series in metric.series}


class Instrument:
    """In place of Ray's."""

    def __init__(self, name, is_counter, keys, meaning):
        self.values = {}
        self.keys, self.said = keys, 0

    def inc(self, value, tags):
        key = tuple(tags[each] for each in self.keys)
        self.values[key] = self.values.get(key, 0) + value
        self.said += 1

    def set(self, value, tags):
        self.values[tuple(tags[each] for each in self.keys)] = value
        self.said += 1


class Thing:
    """What a source speaks of."""


@pytest.fixture
def published():
    made = {}

    def make(name, *about):
        made[name] = Instrument(name, *about)
        return made[name]

    return Publisher(make), made


def test_the_page_and_the_dashboard_are_current():
    spec = importlib.util.spec_from_file_location("make_metrics", DOCS / "make_metrics.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    for path, make in made.MADE.items():
        assert path.read_text() == make(), f"{path.name} is not current: make docs"


def test_each_metric_that_the_dashboard_names_exists_and_each_has_a_panel():
    panels = [each for each in json.loads((DOCS / "dashboard.json").read_text())["panels"] if each["type"] != "row"]
    named = {name for each in panels for name in re.findall(r"ray_\w+", each["targets"][0]["expr"])}
    assert named <= SERIES
    assert {each["title"] for each in panels} == set(BY_NAME)
    places = [(each["gridPos"]["x"], each["gridPos"]["y"]) for each in panels]
    assert len(set(places)) == len(places), "none lies on another"


def test_serves_names_and_labels_are_those_of_the_installed_ray_serve():
    """Where its source spells them out; those of proxies are made of the protocol's name there."""
    serve = pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install 'ray[serve]'")
    source = "\n".join(path.read_text() for path in Path(serve.__file__).parent.glob("**/*.py"))
    for metric in CATALOGUE:
        if metric.is_of_serve:
            spelt = (
                re.sub("(?<=_)(http|grpc)(?=_)", "{protocol_name}", metric.name) if metric.source == "proxy" else metric.name
            )
            assert f'"{spelt}"' in source, metric.name
            after = source[source.index(f'"{spelt}"') :][:700]
            tags = re.search(r"tag_keys=\(([^)]*)\)", after)
            if tags is not None and metric.source in ("router", "proxy"):
                assert set(re.findall(r'"(\w+)"', tags[1])) == set(metric.labels), metric.name


def test_buckets_are_those_of_ray_serve():
    constants = pytest.importorskip("ray.serve._private.constants", reason="Ray Serve is not installed")
    assert list(LATENCY_MS) == constants.DEFAULT_LATENCY_BUCKET_MS
    assert list(LIFETIME_MS) == constants.DEFAULT_REPLICA_STARTUP_SHUTDOWN_LATENCY_BUCKETS_MS
    assert list(BATCH_SIZES) == constants.DEFAULT_BATCH_SIZE_BUCKETS
    assert list(PERCENTAGES) == constants.DEFAULT_BATCH_UTILIZATION_BUCKETS_PERCENT


def test_only_what_has_changed_is_published_and_counters_grow_by_the_difference(published):
    publisher, made = published
    thing, total = Thing(), [3]
    publisher.add(thing, lambda _: [Sample("rankcore_router_retries", ("llm", "default"), total[0])])
    publisher.publish()
    publisher.publish()
    total[0] = 5
    publisher.publish()
    assert made["rankcore_router_retries"].values == {("llm", "default"): 5}
    assert made["rankcore_router_retries"].said == 2, "once for each change"


def test_a_histogram_is_its_cumulative_buckets_sum_and_count(published):
    publisher, made = published
    thing, latency = Thing(), Latency()
    for seconds in (0.0005, 0.001, 0.0011, 1000.0):
        latency.add(seconds)
    publisher.add(thing, lambda _: [Sample("rankcore_step_time_ms", (), latency)])
    publisher.publish()
    buckets = made["rankcore_step_time_ms_bucket"].values
    assert [buckets["1.0",], buckets["2.0",], buckets["600000.0",], buckets["+Inf",]] == [2, 3, 3, 4]
    assert made["rankcore_step_time_ms_count"].values == {(): 4}
    assert made["rankcore_step_time_ms_sum"].values[()] == pytest.approx(1000002.6)


def test_a_gauge_of_what_is_gone_goes_to_zero_and_a_counter_stays(published):
    publisher, made = published
    thing = Thing()
    sample = Sample("serve_replica_processing_queries", ("llm", "llm#1.0", "default"), 4)
    publisher.add(thing, lambda _: [sample, Sample("serve_deployment_replica_starts", sample.labels, 1)])
    publisher.publish()
    del thing
    publisher.publish()
    assert made["serve_replica_processing_queries"].values == {sample.labels: 0}
    assert made["serve_deployment_replica_starts"].values == {sample.labels: 1}


def test_of_two_things_with_the_same_labels_a_counter_has_the_sum_and_one_that_begins_again_goes_on(published):
    publisher, made = published
    first, second, totals = Thing(), Thing(), {"first": 100, "second": 5}
    labels = ("llm", "default")
    publisher.add(first, lambda _: [Sample("rankcore_router_retries", labels, totals["first"])])
    publisher.add(second, lambda _: [Sample("rankcore_router_retries", labels, totals["second"])])
    publisher.publish()
    publisher.publish()
    assert made["rankcore_router_retries"].values == {labels: 105}
    totals["second"] = 2
    publisher.publish()
    assert made["rankcore_router_retries"].values == {labels: 107}


def test_a_gauge_that_another_thing_has_too_does_not_go_to_zero_with_the_first(published):
    publisher, made = published
    first, second, labels = Thing(), Thing(), ("llm", "llm#1.0", "default")
    for thing in (first, second):
        publisher.add(thing, lambda _: [Sample("serve_replica_processing_queries", labels, 4)])
    publisher.publish()
    del first, thing
    publisher.publish()
    assert made["serve_replica_processing_queries"].values == {labels: 4}
    del second


def test_a_source_that_raises_keeps_no_other_from_being_published(published):
    publisher, made = published
    thing = Thing()
    publisher.add(thing, lambda _: 1 / 0)
    publisher.add(thing, lambda _: [Sample("rankcore_controller_epoch", (), 7)])
    publisher.publish()
    assert made["rankcore_controller_epoch"].values == {(): 7}


def test_all_that_requests_are_counted_as_stands_in_the_table_with_so_many_labels():
    counts = ReplicaCounts()
    counts.ended("", "OK", 0.1)
    counts.ended("/", "ValueError", 0.1)
    counts.models.asked += 1
    counts.of_batches("infer").begin(3, 4, 0.1)
    server = type("Server", (), {"counts": counts, "under_way": 1, "max_ongoing_requests": 5})()
    proxy = ProxyCounts()
    proxy.answered("/", "default/llm", "GET", "200", 0.1)
    proxy.answered("/", "default/llm", "GET", "500", 0.1)
    proxy.answered("", "", "GET", "404", 0.1)
    samples = [*of_requests.of_replica("default/llm", "default/llm#1.0", server)]
    for protocol in ("http", "grpc"):
        samples += of_requests.of_proxy(protocol, "n", "127.0.0.1", proxy)
    for name, labels, value in samples:
        assert len(BY_NAME[name].labels) == len(labels), name
        assert isinstance(value, Histogram) == (BY_NAME[name].kind == "histogram"), name
    said = {(each.name, each.labels): each.value for each in samples}
    assert said["serve_deployment_error_counter", ("llm", "default/llm#1.0", "default", "/", "ValueError")] == 1
    assert said["serve_num_http_error_requests", ("/", "500", "GET", "default")] == 1
    assert said["serve_num_http_error_requests", ("", "404", "GET", "")] == 1
    assert said["serve_num_deployment_http_error_requests", ("llm", "500", "GET", "/", "default")] == 1
    assert not any(name == "serve_num_deployment_http_error_requests" and labels[0] == "" for name, labels in said)


@pytest.fixture
def replica():
    """Counts of the replica that this process is, and what is published of it by now: values by name and labels."""
    counts = ReplicaCounts()
    count_here(counts)
    server = Of(counts=counts, under_way=0, max_ongoing_requests=5)

    def said():
        samples = of_requests.of_replica("default/llm", "default/llm#1.0", server)
        return {(each.name, *each.labels[3:]): each.value for each in samples}

    yield said
    count_here(ReplicaCounts())


def test_batches_are_counted_with_their_sizes_and_times_and_those_who_wait_for_one(replica):
    class Model:
        @batch(max_batch_size=4, batch_wait_timeout_s=0.0)
        async def infer_for_metrics(self, values):
            await gate.wait()
            return values

        @batch(max_batch_size=8, batch_wait_timeout_s=0.0, batch_size_fn=sum)
        async def by_size(self, values):
            raise LookupError

    async def scenario():
        nonlocal gate
        gate, model = asyncio.Event(), Model()
        async with asyncio.timeout(60):
            calls = [asyncio.ensure_future(model.infer_for_metrics(each)) for each in range(5)]
            while replica().get(("serve_batches_processed", name)) != 1:
                await asyncio.sleep(0)
            assert replica()["serve_batch_queue_length", name] == 1, "the fifth waits while the first batch runs"
            gate.set()
            await asyncio.gather(*calls)
            with pytest.raises(LookupError):
                await model.by_size(6)
        assert replica()["serve_batch_queue_length", name] == 0

    gate, name = None, "infer_for_metrics"
    asyncio.run(scenario())
    said = replica()
    assert said["serve_batches_processed", name] == 2
    assert (said["serve_actual_batch_size", name].counts[:3], said["serve_actual_batch_size", name].sum) == ([1, 0, 1], 5)
    assert said["serve_batch_utilization_percent", name].sum == 125.0
    assert (said["serve_batch_wait_time_ms", name].count, said["serve_batch_execution_time_ms", name].count) == (2, 2)
    assert said["serve_actual_batch_size", "by_size"].sum == 6, "as large as its batch_size_fn says"
    assert said["serve_batch_execution_time_ms", "by_size"].count == 1, "one that raises has taken its time too"


def test_models_are_counted_as_they_are_asked_for_loaded_and_given_up(replica):
    class Server:
        @multiplexed(max_num_models_per_replica=1)
        async def model(self, model_id):
            if model_id == "broken":
                raise LookupError
            return model_id

    server = Server()

    async def scenario():
        for each in ("first", "first", "second"):
            await server.model(each)
        with pytest.raises(LookupError):
            await server.model("broken")

    assert not any("multiplexed" in name for name, *_ in replica()), "nobody has asked for one"
    asyncio.run(scenario())
    said = replica()
    assert said["serve_multiplexed_get_model_requests_counter",] == 4
    assert (said["serve_multiplexed_models_load_counter",], said["serve_multiplexed_model_load_latency_ms",].count) == (3, 2)
    assert (said["serve_multiplexed_models_unload_counter",], said["serve_multiplexed_model_unload_latency_ms",].count) == (
        2,
        2,
    )
    asyncio.run(server.model("third"))
    said = replica()
    assert said["serve_registered_multiplexed_model_id", "third"] == 1
    assert ("serve_registered_multiplexed_model_id", "second") not in said
    assert said["serve_num_multiplexed_models",] >= 1


def test_utilization_is_of_the_calls_that_ended_within_the_window():
    at = 0.0
    used = Utilization(lambda: at)
    assert used.percent(60.0, 2) == pytest.approx(100.0 * 60.0 / (WINDOW_S * 2))
    at = 20.0
    assert used.percent(120.0, 2) == pytest.approx(100.0 * 120.0 / (WINDOW_S * 2))
    at = 20.0 + WINDOW_S
    assert used.percent(180.0, 2) == pytest.approx(100.0 * 60.0 / (WINDOW_S * 2)), "those before are forgotten"
    assert used.percent(1e9, 2) == 100.0


A, RANK = "a/m#1.0", ReplicaRank(0, 0, 0)


def given(*commands_and_events):
    """How many things a deployment's replicas have begun and ended, and how long those took: each item one second later."""
    lifetimes = Lifetimes()
    for at, each in enumerate(commands_and_events):
        lifetimes.command(each, float(at))
        lifetimes.event(each, float(at))
    found = lifetimes.took.get("a/m", {})
    return {name: (took.count, took.sum) for name, took in found.items() if took.count}, lifetimes


START, READY = StartReplica(A, 0, "v1", None, (), 1), ReplicaReady(replica_id=A, at=0.0)
INITIALIZE = InitializeReplica(A, RANK, 1, None, None, 1, 1)


def test_a_start_up_goes_from_the_first_command_until_the_replica_is_ready_and_counts_once():
    took, _ = given(START, START, INITIALIZE, INITIALIZE, READY, READY)
    assert took == {STARTUP: (1, 4.0), INITIALIZATION: (1, 2.0)}


def test_a_prepared_replica_has_its_initialization_behind_it_while_it_waits_for_its_rank():
    prepared = ReplicaPrepared(replica_id=A, revision=1, at=0.0)
    took, _ = given(START, PrepareReplica(A, 1, None, None, 1, 1), prepared, None, INITIALIZE, READY)
    assert took == {STARTUP: (1, 5.0), INITIALIZATION: (1, 1.0)}


def test_a_change_counts_until_that_very_change_is_adopted():
    def change(revision):
        return ReconfigureReplica(A, RANK, 1, None, None, revision, 1)

    adopted = [ReplicaReconfigured(replica_id=A, revision=each, at=0.0) for each in (1, 2)]
    took, _ = given(change(1), change(2), change(2), adopted[0], adopted[1])
    assert took == {RECONFIGURE: (1, 3.0)}


def test_an_end_goes_from_the_first_command_until_the_process_is_gone_and_one_that_nobody_asked_for_is_none():
    took, lifetimes = given(StopReplica(A, 5.0, 1), KillReplica(A, 1), ReplicaStopped(replica_id=A, at=0.0))
    assert took == {SHUTDOWN: (1, 2.0)}
    assert not lifetimes._begun
    took, lifetimes = given(START, ReplicaDied(replica_id=A, at=0.0), READY)
    assert (took, lifetimes._begun) == ({}, {}), "what died has not started"
    _, lifetimes = given(START, INITIALIZE, READY, StopReplica(A, 5.0, 1))
    lifetimes.keep(())
    assert (lifetimes.took, lifetimes._begun) == ({}, {}), "nor is anything kept of a deployment that is gone"


def test_a_proxy_stands_as_ray_serve_numbers_it():
    def info(node_id, **how):
        return ProxyInfo(node_id=node_id, host="0.0.0.0", port=8000, grpc_port=None, **how)

    ended = Latency(LIFETIME_MS)
    infos = info("n1", pid=7), info("n2", pid=None), info("n3", pid=None, problem="taken")
    samples = list(of_proxies(Of(infos=infos, addresses={"n1": "10.0.0.1"}, ends={"n1": ended})))
    assert samples == [
        Sample("serve_proxy_status", ("n1", "10.0.0.1"), 2),
        Sample("serve_proxy_status", ("n2", ""), 1),
        Sample("serve_proxy_status", ("n3", ""), 3),
        Sample("serve_proxy_shutdown_duration_ms", ("n1", "10.0.0.1"), ended),
    ]
    serve = pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install 'ray[serve]'")
    source = (Path(serve.__file__).parent / "_private" / "proxy_state.py").read_text()
    described = source[source.index('"serve_proxy_status"') :][:300]
    assert {name: int(number) for number, name in re.findall(r"(\d)=([A-Z]+)", described)} == PROXY_NUMBERS


class Entry:
    """As much of a deployment as gaps are told of."""

    def __init__(self, **ranks):
        held = {name: type("R", (), {"rank": type("K", (), {"rank": rank})()})() for name, rank in ranks.items()}
        self.ranks = type("Ranks", (), {"replicas": held})()


def routes(added=(), removed=()):
    return PublishRoutes(added, removed, 1, 1)


def test_a_gap_is_the_time_in_which_no_replica_that_takes_requests_has_the_rank():
    gaps = Gaps()
    gaps.publish(Entry(a=0), routes(("a",)), 10.0)
    gaps.resize(2, 10.0)
    assert gaps.seconds(14.0) == {1: 4.0}, "rank 1 has had nobody from the first routes on"
    gaps.publish(Entry(a=0, b=1), routes(("b",)), 15.0)
    gaps.publish(Entry(b=1), routes((), ("a",)), 20.0)
    assert gaps.seconds(23.0) == {0: 3.0, 1: 5.0}
    gaps.look(Entry(b=0), "b", 24.0)
    assert gaps.seconds(26.0) == {0: 4.0, 1: 7.0}, "b has moved to rank 0"
    gaps.resize(1, 27.0)
    assert gaps.seconds(99.0) == {0: 4.0, 1: 8.0}, "there is no rank 1 any more"


def test_a_successor_on_the_routes_with_the_same_rank_leaves_no_gap():
    gaps = Gaps()
    gaps.publish(Entry(a=0), routes(("a",)), 1.0)
    gaps.resize(1, 1.0)
    gaps.publish(Entry(a=0, b=0), routes(("b",)), 2.0)
    gaps.publish(Entry(b=0), routes((), ("a",)), 3.0)
    gaps.publish(Entry(b=0), routes(("b",)), 4.0)
    assert gaps.seconds(9.0) == {}


def test_a_target_that_is_too_great_by_far_makes_a_thousand_series_at_most():
    gaps = Gaps()
    gaps.publish(Entry(a=0, b=250_000), routes(("a", "b")), 1.0)
    gaps.resize(300_000, 1.0)
    gaps.publish(Entry(a=0), routes((), ("b",)), 2.0)
    assert gaps.seconds(3.0) == dict.fromkeys(range(1, 1000), 2.0)
    gaps.resize(1, 3.0)
    assert len(gaps.seconds(9.0)) == 999


def test_nothing_is_kept_of_a_deployment_that_is_gone():
    entry = Entry(a=0)
    entry.residency, entry.outbox = None, Of(unsaved_since=None)
    entry.scaler = Of(core=AutoscalerState(spec=AutoscalingSpec(target_ongoing_requests=3.0)))
    entry.ranks.world_size, entry.ranks.status, entry.ranks.replicas = 3, DeploymentStatus.HEALTHY, {}
    planner = Of(replicas={}, nodes={})
    state = Of(deployments={"a/m": entry}, epoch=1, weights=Of(planner=planner, demands={}))
    checks = {"a/m": CheckCounts()}
    checks["a/m"].add("it is not well", 0.2)
    checks["a/m"].add(None, 0.1)
    decisions = Decisions(lambda: state, lambda: 0.0, checks)

    def named():
        return {each.labels[:2] for each in decisions.samples() if len(each.labels) > 1}

    note = Of(kind=ClusterNoteKind.RANKS, deployment="a/m", of=Of(kind=NoteKind.REPLICA_LOST, replica_id=None))
    went = CarryOut("a/m", routes(("x",))), CarryOut("a/m", StopReplica(A, 5.0, 1))
    decisions.observe(object(), Of(state=state, notes=[note], commands=went), 0.0)
    decisions.observe(ReplicaStopped(replica_id=A, at=0.0), Of(state=state, notes=[], commands=[]), 0.0)
    assert named() == {("m", "a")}
    vacant = [each.value for each in decisions.samples() if each.name == "rankcore_ranks" and each.labels[2] == "vacant"]
    assert vacant == [3]
    said = {each.name: each.value for each in decisions.samples()}
    assert (said["serve_health_check_failures_total"], said["serve_health_check_latency_ms"].count) == (1, 2)
    assert (said["serve_autoscaling_target_ongoing_requests"], said["serve_autoscaling_total_requests"]) == (3.0, 0.0)
    assert said[SHUTDOWN].count == 1
    for name, labels, _ in decisions.samples():
        assert len(BY_NAME[name].labels) == len(labels), name
    state = Of(deployments={}, epoch=1, weights=state.weights)
    decisions.observe(object(), Of(state=state, notes=[note], commands=[]), 0.0)
    assert named() == set()


@pytest.mark.parametrize(("said", "found"), [("2.5", 2.5), ("5s", 5.0), ("", 5.0), ("-1", 5.0), ("nan", 5.0)])
def test_a_period_that_is_none_is_said_and_the_usual_one_holds(said, found, monkeypatch, caplog):
    monkeypatch.delenv("RANKCORE_METRICS", raising=False)
    monkeypatch.setenv("RANKCORE_METRICS_EVERY_S", said)
    assert every_s() == found
    assert ("RANKCORE_METRICS_EVERY_S must be seconds" in caplog.text) == (said != "2.5")


def test_statuses_have_the_numbers_that_ray_serve_says_its_own_have():
    serve = pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install 'ray[serve]'")
    for file, numbers in (("deployment_state.py", DEPLOYMENT_NUMBERS), ("application_state.py", APPLICATION_NUMBERS)):
        source = (Path(serve.__file__).parent / "_private" / file).read_text()
        described = source[source.index(f'"serve_{file.partition("_")[0]}_status"') :][:500]
        assert {name: int(number) for number, name in re.findall(r"(\d)=([A-Z_]+)", described)} == {"UNKNOWN": 0, **numbers}
    assert {name for name, _ in DEPLOYMENTS.values()} <= set(DEPLOYMENT_NUMBERS)


def test_one_page_has_the_series_of_all_nodes_by_name_and_none_of_rays():
    counter = next(metric for metric in CATALOGUE if metric.kind == COUNTER).series[0]
    one = f'# HELP {counter} x\n# TYPE {counter} counter\n{counter}{{a="1"}} 1.0\n# TYPE ray_x gauge\nray_x 3.0\n'
    other = f'# HELP {counter} x\n# TYPE {counter} counter\n{counter}{{a="2"}} 2.0\n'
    text = merged([one, other])
    assert text == f'# HELP {counter} x\n# TYPE {counter} counter\n{counter}{{a="1"}} 1.0\n{counter}{{a="2"}} 2.0\n'
    assert merged([one, f'# EOF\n#\n{counter}{{a="3\n{counter} x\n{counter}', other]) == text


@pytest.mark.parametrize(
    "error", [IncompleteRead(b"x"), BadStatusLine("x"), OSError("x"), UnicodeDecodeError("utf-8", b"", 0, 1, "x")]
)
def test_a_node_whose_page_cannot_be_read_is_left_out(monkeypatch, error):
    def broken(*_, **__):
        raise error

    monkeypatch.setattr(OpenerDirector, "open", broken)
    assert scrape._page("http://127.0.0.1:1/metrics") == ""


def test_nodes_are_asked_themselves_whatever_proxy_there_is():
    assert not [each for each in scrape._DIRECT.handlers if isinstance(each, ProxyHandler) and each.proxies]
