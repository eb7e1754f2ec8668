"""V3 on a real Ray cluster: with `hand_over="overlap"` a successor takes calls before it has its rank."""

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.free_ports import free_ports
from tests.integration.test_ray_http import Client
from tests.ray_load import Calls
from tests.ray_local import ANSWER_S, eventually

pytestmark = pytest.mark.slow

NAME = "ServesWithoutRank"
OVERLAPPING = {"max_surge": 1, "max_unavailable": 0, "hand_over": "overlap", "start_backoff_s": 0.05}


def info(serve, name=NAME):
    return serve.status().deployments[name]


def reports(name=NAME):
    from executors.ray_gpu.observation import observe

    return observe(name, timeout_s=ANSWER_S)


def by_rank(name=NAME):
    return {report.ranks[0]: report.endpoint.pid for report in reports(name) if report.ranks is not None}


def prepared():
    return [report.endpoint.pid for report in reports() if report.ranks is None and report.prepared]


def deploy(serve, folder, build, replicas, min_ready_s=0.0, wait=True, route_prefix=None, **options):
    from tests.ray_apps import ServesWithoutRank

    deployment = ServesWithoutRank.options(**OVERLAPPING, num_replicas=replicas, min_ready_s=min_ready_s, **options)
    return serve.run(deployment.bind(str(folder), build), route_prefix=route_prefix, wait=wait)


def whole(serve):
    eventually(lambda: info(serve).status == "HEALTHY", "it is healthy")


@contextmanager
def grpc_call(port):
    import grpc
    from ray.serve.generated import serve_pb2, serve_pb2_grpc

    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = serve_pb2_grpc.UserDefinedServiceStub(channel)
        yield lambda: json.loads(stub.Method1(serve_pb2.UserDefinedMessage(), timeout=ANSWER_S).greeting)


def test_who_has_no_rank_yet_takes_calls_of_every_kind_but_those_for_a_rank(serve, tmp_path):
    pytest.importorskip("grpc")
    from ray.serve.generated import serve_pb2_grpc

    http_port, grpc_port = free_ports(2)
    functions = [serve_pb2_grpc.add_UserDefinedServiceServicer_to_server]
    serve.start(
        http_options={"port": http_port},
        grpc_options={"port": grpc_port, "servicer_functions": functions},
        proxy_location="HeadOnly",
    )
    handle = deploy(serve, tmp_path, "a", 2, route_prefix="/")
    before = by_rank()
    deploy(serve, tmp_path, "b", 2, min_ready_s=3600.0, wait=False, route_prefix="/")
    (successor,) = eventually(prepared, "a successor is prepared")
    client = Client(http_port)
    with grpc_call(grpc_port) as grpc:
        ways = {
            "awaited": lambda: handle.remote().result(ANSWER_S),
            "on a thread": lambda: handle.on_a_thread.remote().result(ANSWER_S),
            "a stream": lambda: list(handle.options(stream=True).items.remote(3))[-1],
            "a batch": lambda: handle.together.remote(0).result(ANSWER_S),
            "HTTP": lambda: json.loads(client.ask("/")[1]),
            "gRPC": grpc,
        }
        for way, ask in ways.items():
            answered = eventually(lambda ask=ask: (found := ask())["pid"] == successor and found, f"{way}: it answers")
            assert answered == {"pid": successor, "build": "b", "rank": None, "refusal": "RankNotAssignedError"}, way
            others = eventually(lambda ask=ask: (found := ask())["pid"] != successor and found, f"{way}: so do the others")
            assert before[others["rank"]] == others["pid"], way
    for _ in range(20):
        for rank, pid in before.items():
            assert handle.options(rank=rank).standing.remote().result(ANSWER_S)["pid"] == pid
        everybody = handle.options(broadcast=True).standing.remote().result(ANSWER_S)
        assert [each["pid"] for each in everybody] == [before[0], before[1]]


def test_the_predecessor_ends_its_calls_with_its_rank_and_the_successor_answers_while_it_adopts_it(serve, tmp_path):
    handle = deploy(serve, tmp_path, "a", 1)
    (predecessor,) = by_rank().values()
    long_call = handle.wait_for.remote("long")
    eventually((tmp_path / "long-begun").exists, "a call of the predecessor is under way")
    deploy(serve, tmp_path, "b", 1, wait=False)
    eventually(lambda: [report for report in reports() if report.draining], "the predecessor is told to go")
    (successor,) = prepared()

    def answers(**expected):
        found = handle.remote().result(ANSWER_S)
        return found["pid"] == successor and expected.items() <= found.items()

    eventually(lambda: answers(rank=None), "calls go to the successor, which has no rank")
    early_call = handle.wait_for.remote("early")
    eventually((tmp_path / "early-begun").exists, "a call without a rank is under way")
    (tmp_path / "no-ranks").touch()  # `reconfigure(user_config, rank)` takes until this is gone
    with ThreadPoolExecutor() as threads:
        for_the_rank = threads.submit(lambda: handle.options(rank=0).remote().result(ANSWER_S))
        for_all = threads.submit(lambda: handle.options(broadcast=True).remote().result(ANSWER_S))
        assert all(answers(rank=None) for _ in range(20))
        (tmp_path / "long").touch()
        begun, ended = long_call.result(ANSWER_S)
        assert begun == ended == {"pid": predecessor, "build": "a", "rank": 0, "refusal": ""}
        eventually(lambda: by_rank() == {0: successor}, "the successor is told its rank")
        assert all(answers(rank=0) for _ in range(20)), "while its reconfigure runs"
        assert not for_the_rank.done()
        assert not for_all.done()
        (tmp_path / "no-ranks").unlink()
        assert for_the_rank.result(ANSWER_S) == {"pid": successor, "build": "b", "rank": 0, "refusal": ""}
        assert [each["pid"] for each in for_all.result(ANSWER_S)] == [successor]
    (tmp_path / "early").touch()
    begun, ended = early_call.result(ANSWER_S)
    assert (begun["rank"], ended["rank"]) == (None, 0), "it goes on, and sees the rank that its replica has by now"
    whole(serve)


def test_one_that_is_not_well_before_it_has_a_rank_is_replaced_while_all_old_ones_serve(serve, tmp_path):
    handle = deploy(serve, tmp_path, "a", 2, idempotent=True)
    before = by_rank()
    with Calls(handle) as calls:
        # It is killed while it runs a call, perhaps: that one is done again.
        options = {"health_check_period_s": 0.1, "max_start_failures": 1, "idempotent": True}
        deploy(serve, tmp_path, "b", 2, min_ready_s=3600.0, wait=False, **options)
        eventually(prepared, "a successor is prepared")
        (tmp_path / "unwell-b").touch()
        eventually(lambda: info(serve).status == "DEPLOY_FAILED", "it is given up")
    assert "the GPU fell off the bus" in info(serve).message
    assert by_rank() == before
    assert calls.failed == []


def test_a_restarted_controller_finds_who_serves_without_a_rank_and_calls_go_on(serve, tmp_path):
    handle = deploy(serve, tmp_path, "a", 1)
    before = by_rank()
    deploy(serve, tmp_path, "b", 1, min_ready_s=3600.0, wait=False)
    (successor,) = eventually(prepared, "its successor is prepared")

    def answers():
        return handle.remote().result(ANSWER_S)["pid"]

    eventually(lambda: answers() == successor, "it takes calls")
    with Calls(handle) as calls:
        os.kill(serve.status().controller_pid, signal.SIGKILL)
        eventually(lambda: info(serve).status == "UPDATING", "the next controller has taken over")
        eventually(lambda: answers() == successor, "it takes calls still, or again")
        assert by_rank() == before
        deploy(serve, tmp_path, "b", 1)
    assert calls.failed == []
    assert by_rank() == {0: successor}


def test_a_controller_that_is_lost_while_a_rank_is_handed_over_costs_no_call(serve, tmp_path):
    handle = deploy(serve, tmp_path, "a", 1)
    (tmp_path / "no-ranks").touch()
    deploy(serve, tmp_path, "b", 1, wait=False)
    (report,) = eventually(lambda: [each for each in reports() if each.ranks and not each.ready], "the rank is handed over")
    epoch = serve.status().epoch
    with Calls(handle) as calls:
        os.kill(serve.status().controller_pid, signal.SIGKILL)
        eventually(lambda: serve.status().epoch > epoch, "there is another controller")
        eventually(lambda: info(serve).status != "RECOVERING", "which has heard of everybody")
        for _ in range(20):
            found = handle.remote().result(ANSWER_S)
            assert (found["pid"], found["rank"]) == (report.endpoint.pid, 0)
        assert by_rank() == {0: report.endpoint.pid}
        (tmp_path / "no-ranks").unlink()
        whole(serve)
        assert handle.options(rank=0).remote().result(ANSWER_S)["pid"] == report.endpoint.pid
    assert calls.failed == []


def test_a_class_that_reads_its_rank_in_init_fails_with_what_to_do_and_all_old_ones_serve(serve):
    from tests.ray_apps import RankAware

    deployment = RankAware.options(**OVERLAPPING, num_replicas=3, max_start_failures=1)
    handle = serve.run(deployment.bind("a"), route_prefix=None)
    before = by_rank("RankAware")
    with Calls(handle) as calls, pytest.raises(serve.DeploymentFailedError) as failed:
        serve.run(deployment.bind("b"), route_prefix=None)
    assert "has no rank yet: with hand_over" in str(failed.value)
    assert "Ask in reconfigure(self, user_config, rank) or in a call, use rank_or_none, or leave hand_over" in str(failed.value)
    assert by_rank("RankAware") == before
    assert calls.failed == []
