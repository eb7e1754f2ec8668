"""What operators see of a real Ray cluster: logs, the names of processes, and metrics."""

import asyncio
import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import attrs
import pytest

from tests.free_ports import free_ports
from tests.ray_local import ANSWER_S, clean_up, eventually, start_ray

pytestmark = pytest.mark.slow

REPORT_MS = 1000
"""Ray's processes send their metrics so often; its least."""


@pytest.fixture(scope="module")
def spans(tmp_path_factory):
    """Where each process of the cluster writes its spans."""
    return tmp_path_factory.mktemp("spans")


@pytest.fixture(scope="module")
def lines(spans):
    """Of a cluster whose processes' lines come to this one: all that have come."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")
    import ray
    from ray._private.ray_logging import global_worker_stdstream_dispatcher as dispatcher

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RANKCORE_METRICS_EVERY_S", "0.5")
        patch.setenv("RANKCORE_TRACING_EXPORTER_IMPORT_PATH", "tests.ray_apps:span_processors")
        patch.setenv("RANKCORE_TEST_SPANS", str(spans))
        start_ray(log_to_driver=True, _system_config={"metrics_report_interval_ms": REPORT_MS})
        come = []
        dispatcher.add_handler("test", come.append)
        try:
            yield come
        finally:
            dispatcher.remove_handler("test")
            ray.shutdown()


@pytest.fixture
def serve(lines):
    from executors import ray_gpu

    yield ray_gpu
    clean_up(ray_gpu)


def get(port, path, **headers):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    return urllib.request.urlopen(request, timeout=ANSWER_S).read()


@pytest.fixture
def prometheus(lines, tmp_path):
    """Debian's, which scrapes the cluster each second: asks it, and returns the series with their values."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("Prometheus is not installed: apt-get install prometheus")
    from executors.ray_gpu.metrics.scrape import endpoints

    (port,) = free_ports(1)
    targets = [url.removeprefix("http://").removesuffix("/metrics") for url in endpoints()]
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "ray", "static_configs": [{"targets": targets}]}],
    }
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))
    options = [f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}"]
    with (tmp_path / "prometheus.log").open("w") as log:
        process = subprocess.Popen([program, *options, f"--web.listen-address=127.0.0.1:{port}"], stderr=log, stdout=log)

    def ask(query):
        try:
            answer = json.loads(get(port, f"/api/v1/query?{urllib.parse.urlencode({'query': query})}"))
        except OSError:
            return []
        return [(each["metric"], float(each["value"][1])) for each in answer["data"]["result"]]

    try:
        eventually(lambda: ask("up") and ask("up")[0][1] == 1.0, "Prometheus scrapes the cluster")
        yield ask
    finally:
        process.terminate()
        process.wait()


def test_each_line_of_a_replica_says_who_wrote_it_for_which_request_and_each_request_has_one(serve, lines, tmp_path):
    """LoggingConfig as in Ray Serve, for an application, a deployment and the proxies."""
    from tests.ray_apps import Chatty

    (port,) = free_ports(1)
    config = {"encoding": "JSON", "logs_dir": str(tmp_path), "additional_log_standard_attrs": ["threadName"]}
    serve.start(http_options={"port": port}, logging_config={"logs_dir": str(tmp_path)}, proxy_location="HeadOnly")
    serve.run(Chatty.bind(), route_prefix="/chat", logging_config=serve.LoggingConfig(**config))
    eventually(lambda: b"/chat" in get(port, "/-/routes"), "the route is known")
    assert get(port, "/chat/x", **{"x-request-id": "r-1"}) == b"said"
    (file,) = tmp_path.glob("replica_default%2FChatty%23*.log")

    def written():
        return [json.loads(each) for each in file.read_text().splitlines()]

    eventually(lambda: len(written()) == 2, "what the replica logged, and its access line, are there")
    who = {"application": "default", "deployment": "Chatty", "rank": 0, "request_id": "r-1", "levelname": "INFO"}
    said, access = written()
    assert who.items() <= said.items()
    assert said["message"] == "asked for it"
    assert "threadName" in said
    assert who.items() <= access.items()
    assert re.fullmatch(r"GET /chat/x 200 [\d.]+ms", access["message"])
    assert access["replica"] == said["replica"]
    assert access["replica"].startswith("default/Chatty#")
    (proxy,) = tmp_path.glob("proxy_*.log")
    pattern = r"INFO [\d-]+ [\d:,]+ proxy 127.0.0.1 r-1 -- GET /chat/x 200 [\d.]+ms"
    eventually(lambda: re.search(pattern, proxy.read_text()), "the proxy's line is there")


def test_ray_shows_a_replica_by_deployment_and_rank_and_follows_its_rank(serve, lines):
    """Before its lines at drivers."""
    from tests.ray_apps import Chatty

    handle = serve.run(
        Chatty.options(name="llm", num_replicas=2, logging_config={"enable_access_log": False}).bind(), route_prefix=None
    )
    first, second = sorted(serve.status().deployments["default/llm"].replicas, key=lambda each: each.rank.rank)

    def shown(text):
        return {
            (each["actor_name"], re.search(r" rank=(\d+) ", line)[1])
            for each in tuple(lines)
            for line in each["lines"]
            if str(each["pid"]) == str(second.pid) and text in line
        }

    handle.options(rank=1).remote("one").result(ANSWER_S)
    eventually(lambda: shown("asked for one") == {("llm#rank1", "1")}, "the name is before the line, the rank in it", 60.0)
    serve.scale("llm", 1, stop_first=(first.replica_id,))

    def has_followed():
        handle.remote("another").result(ANSWER_S)
        return ("llm#rank0", "0") in shown("asked for another")

    eventually(has_followed, "rank 1 has moved to 0, and so has the name", 60.0)


def test_prometheus_has_what_routers_replicas_proxies_and_the_controller_count(serve, prometheus):
    """Of a deployment that was called so and so often, by handle and over HTTP."""
    from executors.ray_gpu.metrics.catalogue import CATALOGUE
    from executors.ray_gpu.metrics.scrape import scrape
    from tests.ray_apps import Batched, Chatty, ManyModels

    (port,) = free_ports(1)
    serve.start(http_options={"port": port}, proxy_location="HeadOnly")
    app = Chatty.options(name="counted", num_replicas=2, health_check_period_s=0.5).bind()
    handle = serve.run(app, name="shop", route_prefix="/shop")
    batched = serve.run(Batched.bind(), name="batched", route_prefix=None)
    models = serve.run(ManyModels.options(num_replicas=1).bind(), name="models", route_prefix=None)
    for each in [batched.remote(number) for number in range(8)]:
        assert each.result(ANSWER_S)[1] == 8
    for model_id in ("a", "b", "b", "c"):
        models.options(multiplexed_model_id=model_id).remote().result(ANSWER_S)
    eventually(lambda: b"/shop" in get(port, "/-/routes"), "the route is known")
    for _ in range(7):
        handle.remote().result(ANSWER_S)
    for _ in range(3):
        with pytest.raises(ValueError, match="as asked"):
            handle.fail.remote().result(ANSWER_S)
    for _ in range(5):
        get(port, "/shop")
    with pytest.raises(urllib.error.HTTPError):
        get(port, "/nowhere")
    own = 'deployment="counted",application="shop"'

    def says(query, value):
        eventually(lambda: [found for _, found in prometheus(query)] == [value], f"{query} is {value}", 60.0)

    says(f"sum(ray_serve_num_router_requests_total{{{own}}})", 15)
    says(f"sum(ray_serve_deployment_request_counter_total{{{own}}})", 12)
    says(f'sum(ray_serve_deployment_error_counter_total{{{own},exception_type="ValueError"}})', 3)
    says(f"sum(ray_serve_deployment_processing_latency_ms_count{{{own}}})", 15)
    says(f'sum(ray_serve_deployment_processing_latency_ms_bucket{{{own},le="+Inf"}})', 15)
    says('sum(ray_serve_num_http_requests_total{route="/shop",status_code="200",application="shop"})', 5)
    says('sum(ray_serve_num_http_error_requests_total{route="",error_code="404"})', 1)
    says(f"ray_serve_deployment_status{{{own}}}", 6)
    says('ray_serve_application_status{application="shop"}', 6)
    says(f"ray_serve_deployment_replica_healthy{{{own}}}", 2)
    says(f'ray_rankcore_ranks{{{own},how="held"}}', 2)
    says(f'ray_rankcore_ranks{{{own},how="vacant"}}', 0)
    says(f"sum(ray_serve_handle_request_counter_total{{{own}}})", 15)
    says('sum(ray_serve_batches_processed_total{application="batched",function_name="__call__"})', 1)
    says('sum(ray_serve_actual_batch_size_bucket{application="batched",le="8.0"})', 1)
    says('sum(ray_serve_multiplexed_models_load_counter_total{application="models"})', 3)
    says('sum(ray_serve_num_multiplexed_models{application="models"})', 2)
    says(f"count(ray_serve_replica_utilization_percent{{{own}}} > 0)", 2)
    says(f"ray_serve_replica_startup_latency_ms_count{{{own}}}", 2)
    says(f"ray_serve_replica_initialization_latency_ms_count{{{own}}}", 2)
    says("max(ray_serve_proxy_status)", 2)
    eventually(lambda: prometheus(f"ray_serve_health_check_latency_ms_count{{{own}}} > 2"), "checks are timed", 60.0)
    serve.scale("shop/counted", 1)
    says(f"ray_serve_replica_shutdown_duration_ms_count{{{own}}}", 1)
    gaps = prometheus(f"ray_rankcore_rank_gap_seconds_total{{{own}}}")
    assert {labels["rank"] for labels, _ in gaps} <= {"0", "1"}
    taken = "sum(ray_rankcore_steps_total) > 5 and sum(ray_rankcore_step_time_ms_count) > 5"
    eventually(lambda: prometheus(taken), "steps are counted and timed", 60.0)
    page = asyncio.run(scrape())[0].decode()
    published = set(re.findall(r"^(ray_(?:serve|rankcore)_\w+)[{ ]", page, re.MULTILINE))
    assert published <= {series for metric in CATALOGUE for series in metric.series}
    assert {"ray_rankcore_controller_epoch", "ray_rankcore_replicas", "ray_rankcore_journal_lag_seconds"} <= published


def test_traces_are_as_the_tracing_config_of_the_start_says_and_user_code_adds_its_own(serve, lines):
    pytest.importorskip("opentelemetry.sdk", reason="the SDK of OpenTelemetry is not installed: pip install opentelemetry-sdk")
    import ray

    from executors.ray_gpu.requests.tracing import trace_as
    from executors.ray_gpu.schema import TracingConfig
    from tests.ray_apps import Traced

    trace_as(TracingConfig(enabled=False), "driver")  # what calls has no spans, which those of replicas are not to need
    folder = Path(ray._private.worker._global_node.get_logs_dir_path()) / "rankcore" / "spans"

    def written():
        return "".join(path.read_text() for path in folder.glob("*traced*") if path.stat().st_size)

    try:
        config = TracingConfig(enabled=True, exporter_import_path="", sampling_ratio=1.0)
        serve.start(tracing_config=config)
        handle = serve.run(Traced.bind(), name="traced", route_prefix=None)
        on_loop = handle.remote("on the loop").result(timeout_s=ANSWER_S)
        on_thread = handle.on_a_thread.remote("on a thread").result(timeout_s=ANSWER_S)
        for trace_id, name in ((on_loop, "on the loop"), (on_thread, "on a thread")):
            span = f'"trace_id": "0x{trace_id}"'
            eventually(lambda span=span: written().count(span) >= 2, "that of the call, and the user's below it")
            assert f'"name": "{name}"' in written()
        assert serve.config_in_force()["tracing_config"] == attrs.asdict(config)
        serve.delete("traced")
        serve.start(tracing_config={"enabled": False})
        before = written()
        off = serve.run(Traced.bind(), name="traced", route_prefix=None).remote("unseen").result(timeout_s=ANSWER_S)
        assert (off, written()) == ("0" * 32, before)
    finally:
        trace_as(None, "")
        serve.shutdown()


def test_a_request_and_all_calls_that_it_leads_to_are_one_trace_that_goes_on_with_its_clients(serve, spans):
    """Client, proxy, replica, handle, replica: each span's parent is the one before."""
    pytest.importorskip("opentelemetry.sdk", reason="the SDK of OpenTelemetry is not installed: pip install opentelemetry-sdk")
    from tests.ray_apps import Asks, Chatty

    (port,) = free_ports(1)
    serve.start(http_options={"port": port}, proxy_location="HeadOnly")
    serve.run(Asks.bind(Chatty.bind()), name="traced", route_prefix="/ask")
    eventually(lambda: b"/ask" in get(port, "/-/routes"), "the route is known")
    trace_id, client = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    assert get(port, "/ask?q=me", traceparent=f"00-{trace_id}-{client}-01") == b"said"

    def of_trace():
        written = [json.loads(line) for file in spans.glob("*.jsonl") for line in file.read_text().splitlines()]
        return {each["parent_id"]: each for each in written if each["context"]["trace_id"] == f"0x{trace_id}"}

    found = eventually(lambda: len(of_trace()) == 4 and of_trace(), "all four spans have ended")
    names, parent = [], f"0x{client}"
    while parent in found:
        names.append((found[parent]["kind"], found[parent]["name"]))
        parent = found[parent]["context"]["span_id"]
    assert names == [
        ("SpanKind.SERVER", "GET /ask"),
        ("SpanKind.SERVER", "traced/Asks (http)"),
        ("SpanKind.CLIENT", "traced/Chatty __call__"),
        ("SpanKind.SERVER", "traced/Chatty __call__"),
    ]
