"""Every way to call weights that are COLD, on Ray: what comes back, what is said to those who wait, and what to those for whom
nothing can be done. And who dies meanwhile: one answer or one clear error each.
"""

import json
import os
import signal
import threading
import urllib.error
import urllib.request
from functools import partial

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'rankcore[torch]'")

from executors.ray_gpu.errors import UnavailableError
from tests.fleet_models import WEIGHT_BYTES, write_weights
from tests.free_ports import free_ports
from tests.ray_local import ANSWER_S, clean_up, eventually, ray_cluster  # noqa: F401 (a fixture)

pytestmark = pytest.mark.ray

ROOM_BYTES = WEIGHT_BYTES + WEIGHT_BYTES // 2
ADD = "ray.serve.generated.serve_pb2_grpc.add_UserDefinedServiceServicer_to_server"


@pytest.fixture(scope="module")
def started(ray_cluster):  # noqa: F811
    """With one GPU that one model fits on, and memory for the others."""
    from executors import ray_gpu

    port, grpc_port = free_ports(2)
    memory = {"device": "cpu", "stand_in_gpu_bytes": (ROOM_BYTES,), "cache_bytes": 4 * WEIGHT_BYTES}
    grpc_options = {"port": grpc_port, "servicer_functions": [ADD]}
    ray_gpu.start(http_options={"port": port}, grpc_options=grpc_options, memory=memory, proxy_location="HeadOnly")
    ray_gpu.port, ray_gpu.grpc_port = port, grpc_port
    yield ray_gpu
    clean_up(ray_gpu)


@pytest.fixture
def serve(started, tmp_path):
    yield started
    for hold in tmp_path.rglob("hold"):
        hold.unlink()
    for name in list(started.status().deployments):
        started.delete(name)
    eventually(lambda: not workers(), "all workers have ended")


def workers():
    from executors.ray_gpu.discovery import find_workers

    return find_workers("rankcore")


def reports():
    """What each worker says of itself, but for those that end meanwhile."""
    import ray

    found = {}
    for worker_id, (_, actor) in workers().items():
        try:
            found[worker_id] = ray.get(actor.describe.remote(), timeout=ANSWER_S)
        except ray.exceptions.RayActorError:
            continue
    return found


def books():
    """What the controller's books say that each worker takes: on GPUs, and in the node's memory."""
    import ray

    from executors.ray_gpu import names

    def taken(controller):
        planner = controller._cluster.state.weights.planner
        return {each: (record.gpu_bytes, record.cpu_bytes) for each, record in planner.replicas.items()}

    controller = ray.get_actor(names.CONTROLLER, namespace=names.DEFAULT_NAMESPACE)
    found = ray.get(controller.__ray_call__.remote(taken), timeout=ANSWER_S)
    return {each: held for each, held in found.items() if held != ((), 0)}


def held():
    """What workers hold indeed, likewise."""
    from executors.ray_gpu.worker.reports import held_by

    found = {each: held_by(report) for each, report in reports().items()}
    return {each: (one.gpu_bytes, one.cpu_bytes) for each, one in found.items() if one is not None}


def cold(serve, folder, name, seed=1, code=None, residency=(), **options):
    from tests.tenures import Tenured

    path, answer = write_weights(folder, name, seed)
    weights = serve.Residency(**{"weights": path, "min_hot_s": 0.0, **dict(residency)})
    chosen = (code or Tenured).options(name=name, residency=weights, user_config="v1", **options)
    return chosen.bind(str(folder)), answer


def opened(serve, path):
    return urllib.request.urlopen(f"http://127.0.0.1:{serve.port}{path}", timeout=ANSWER_S)


def test_over_grpc(serve, tmp_path):
    import grpc
    from ray.serve.generated import serve_pb2, serve_pb2_grpc

    from tests.ray_cold_apps import Service

    application, answer = cold(serve, tmp_path, "m", code=Service)
    serve.run(application, name="over-grpc", route_prefix=None)
    assert workers() == {}
    with grpc.insecure_channel(f"127.0.0.1:{serve.grpc_port}") as channel:
        stub = serve_pb2_grpc.UserDefinedServiceStub(channel)
        ask = {"timeout": ANSWER_S, "metadata": (("application", "over-grpc"),), "wait_for_ready": True}
        known = eventually(
            lambda: answered(lambda: list(stub.Streaming(serve_pb2.UserDefinedMessage(num=3), **ask))), "it is known"
        )
        assert [(each.num_x2, each.greeting) for each in known] == [(number, f"{answer:.3f}") for number in range(3)]
        assert stub.__call__(serve_pb2.UserDefinedMessage(num=4), **ask).num_x2 == 8


def answered(call):
    """What it returns; None: the proxy does not know the application yet."""
    import grpc

    try:
        return call()
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.NOT_FOUND:
            raise
        return None


def test_over_a_websocket(serve, tmp_path):
    import websockets.exceptions
    import websockets.sync.client

    from tests.ray_cold_apps import Chat

    application, answer = cold(serve, tmp_path, "m", code=Chat)
    serve.run(application, name="chat", route_prefix="/chat")
    assert workers() == {}

    def connected():
        try:
            return websockets.sync.client.connect(f"ws://127.0.0.1:{serve.port}/chat/sum", open_timeout=ANSWER_S)
        except websockets.exceptions.InvalidStatus as error:
            if error.response.status_code != 404:
                raise
            return None

    with eventually(connected, "the route is known") as connection:
        for text in ("a", "b"):
            connection.send(text)
            assert connection.recv(timeout=ANSWER_S) == f"{text}: {answer:.3f}"


def test_in_a_batch_and_by_a_handle_of_a_pinned_ingress(serve, tmp_path):
    from tests.ray_cold_apps import Front

    application, answer = cold(serve, tmp_path, "m")
    serve.run(Front.bind(application), name="shop", route_prefix="/front")
    assert workers() == {}
    with eventually(lambda: routed(serve, "/front"), "the route is known") as response:
        assert json.load(response) == {"total": pytest.approx(answer), "items": [f"{n}: {answer:.3f}\n" for n in range(2)]}
    serve.delete("shop")
    eventually(lambda: not workers(), "its worker has ended")
    application, answer = cold(serve, tmp_path, "batched", seed=2)
    handle = serve.run(application, name="batched", route_prefix=None)
    calls = [handle.together.remote(number) for number in range(3)]
    assert [each.result(ANSWER_S) for each in calls] == [(number, 3, pytest.approx(answer)) for number in range(3)]


def routed(serve, path):
    """The response; None: the route is not known yet."""
    try:
        return opened(serve, path)
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return None


def shown(response):
    """What a response says of how its deployment stands, as it comes."""
    seen = []

    def follow():
        for each in response.statuses():
            seen.append(each)

    threading.Thread(target=follow, daemon=True).start()
    return seen


def test_who_waits_is_told_behind_whom_and_how_much_has_come(serve, tmp_path):
    folders = [tmp_path / each for each in ("first", "second")]
    for each in folders:
        each.mkdir()
    first, _ = cold(serve, folders[0], "first")
    second, answer = cold(serve, folders[1], "second", seed=2)
    handles = [serve.run(each, name=name, route_prefix=None) for name, each in (("one", first), ("two", second))]
    gate, hold = tmp_path / "gate", folders[1] / "hold"
    items = handles[0].options(method_name="count", stream=True).remote(2, str(gate))
    next(items)
    hold.touch()
    waiting = handles[1].total.remote()
    seen = shown(waiting)
    eventually(lambda: any(each.behind == ("one/first",) for each in seen), "it waits for the other one to leave")
    assert str(next(each for each in seen if each.behind)) == "PROVISIONING behind one/first"
    gate.touch()
    assert len(list(items)) == 1, "what was under way ends first"
    eventually(lambda: any(each.state == "LOADING" and 0 < each.percent < 100 for each in seen), "some of it has come")
    hold.unlink()
    assert waiting.result(ANSWER_S) == pytest.approx(answer)
    percents = [each.percent for each in seen if each.state == "LOADING"]
    assert percents == sorted(percents)


def test_who_cannot_have_a_place_yet_is_queued_and_what_cannot_be_had_is_refused_with_its_reason(serve, tmp_path):
    import grpc
    import websockets.exceptions
    import websockets.sync.client
    from ray.serve.generated import serve_pb2, serve_pb2_grpc

    from tests.ray_cold_apps import Service

    first, answer = cold(serve, tmp_path, "first", residency={"dedicated": True})
    waits = {"wait_for_room_s": 3.0, "failed_for_s": 1000.0}
    second, _ = cold(serve, tmp_path, "second", seed=2, code=Service, residency=waits)
    handle = serve.run(first, name="one", route_prefix=None)
    assert handle.total.remote().result(ANSWER_S) == pytest.approx(answer)
    other = serve.run(second, name="two", route_prefix="/two")
    waiting = other.total.remote()
    seen = shown(waiting)
    with pytest.raises(UnavailableError) as refused:
        waiting.result(ANSWER_S)
    assert "QUEUED" in {each.state for each in seen}
    assert "two/second is UNAVAILABLE: 1 x 1.049 MB: 524288 bytes too little is free" in str(refused.value)
    assert 0 < refused.value.retry_after_s <= 1000
    with pytest.raises(urllib.error.HTTPError) as over_http:
        eventually(lambda: routed(serve, "/two"), "the route is known")
    assert (over_http.value.code, 0 < int(over_http.value.headers["retry-after"]) <= 1000) == (503, True)
    assert "two/second is UNAVAILABLE" in over_http.value.read().decode()
    with grpc.insecure_channel(f"127.0.0.1:{serve.grpc_port}") as channel:
        call, about = serve_pb2_grpc.UserDefinedServiceStub(channel).__call__, (("application", "two"),)
        ask = partial(call, serve_pb2.UserDefinedMessage(), timeout=ANSWER_S, metadata=about)
        with pytest.raises(grpc.RpcError) as over_grpc:
            eventually(lambda: answered(ask), "it is known")
    assert over_grpc.value.code() is grpc.StatusCode.UNAVAILABLE
    assert 0 < int(dict(over_grpc.value.trailing_metadata())["retry-after"]) <= 1000
    with pytest.raises(websockets.exceptions.InvalidStatus) as over_websocket:
        websockets.sync.client.connect(f"ws://127.0.0.1:{serve.port}/two/sum", open_timeout=ANSWER_S)
    assert over_websocket.value.response.status_code == 503
    huge = {"working_bytes": 10**12, "wait_for_room_s": 1000.0}
    third, _ = cold(serve, tmp_path, "third", seed=3, code=Service, residency=huge)
    no_node = r"three/third is UNAVAILABLE: no node could ever hold it: .*: 1000 GB .*do not fit: it has 1 GPU of at most"
    with pytest.raises(UnavailableError, match=no_node):
        serve.run(third, name="three", route_prefix="/three").total.remote().result(ANSWER_S)
    with pytest.raises(urllib.error.HTTPError) as of_no_node:
        eventually(lambda: routed(serve, "/three"), "the route is known")
    assert (of_no_node.value.code, "no node could ever hold it" in of_no_node.value.read().decode()) == (503, True)
    assert handle.total.remote().result(ANSWER_S) == pytest.approx(answer), "who has the place is not troubled"


def test_what_waits_for_cold_weights_is_listed_and_ended_whoever_calls_and_nothing_is_loaded_for_nobody(serve, tmp_path):
    import ray

    @ray.remote(num_cpus=0)
    def another_process():
        from executors import ray_gpu

        try:
            ray_gpu.get_app_handle("two").total.remote().result(ANSWER_S)
        except ray_gpu.CallCancelledError as error:
            return str(error)

    first, answer = cold(serve, tmp_path, "first", residency={"dedicated": True})
    second, _ = cold(serve, tmp_path, "second", seed=2, residency={"wait_for_room_s": 1000.0})
    holder = serve.run(first, name="one", route_prefix=None)
    assert holder.total.remote().result(ANSWER_S) == pytest.approx(answer)
    response = serve.run(second, name="two", route_prefix="/two").total.remote()
    elsewhere, outside = another_process.remote(), []
    client = threading.Thread(target=lambda: outside.append(refused(serve, "/two")))
    client.start()

    def waiting():
        return serve.requests_under_way("two").waiting

    eventually(lambda: len(waiting()) == 3 and all(each.status.startswith("QUEUED: ") for each in waiting()), "all three wait")
    assert {(each.deployment, each.position) for each in waiting()} == {("two/second", 1)}
    assert {each.method for each in waiting()} == {"total", "HTTP"}
    assert serve.requests_under_way("one").waiting == ()
    (over_http,) = (each for each in waiting() if each.method == "HTTP")
    serve.cancel_request(over_http.id, reason="enough")
    client.join(ANSWER_S)
    assert outside[0][0] == 499
    with pytest.raises(serve.UnknownNameError):
        serve.cancel_request(over_http.id)
    assert len(serve.cancel_waiting("two", reason="not today")) == 2
    with pytest.raises(serve.CallCancelledError, match="not today"):
        response.result(ANSWER_S)
    assert ray.get(elsewhere, timeout=ANSWER_S) == "not today"
    assert waiting() == ()
    eventually(lambda: not serve.status().deployments["two/second"].waiting, "the demand is withdrawn")
    serve.delete("one")
    assert [each for each in workers() if each.startswith("two/")] == [], "nothing is loaded for nobody"


def refused(serve, path):
    """The status and the body of an answer that is none."""
    while True:
        try:
            opened(serve, path).close()
        except urllib.error.HTTPError as error:
            if error.code != 404:  # the route is not known yet
                return error.code, error.read().decode()


@pytest.mark.parametrize("whom", ["proxy", "worker", "controller"])
def test_who_dies_in_the_middle_of_a_load_leaves_one_answer_or_one_clear_error(serve, tmp_path, whom):
    application, answer = cold(serve, tmp_path, "m", start_backoff_s=0.05)
    handle = serve.run(application, name="shop", route_prefix="/m")
    (proxy,) = serve.status().proxy_infos
    hold, came = tmp_path / "hold", []
    hold.touch()

    def ask():
        try:
            with eventually(lambda: routed(serve, "/m?upto=1"), "the route is known") as response:
                came.append((response.status, response.read().decode()))
        except urllib.error.HTTPError as error:
            came.append((error.code, error.read().decode()))
        except OSError as error:
            came.append((type(error).__name__, ""))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    eventually(lambda: [each for each in reports().values() if each.moving and each.progress.bytes_done], "it loads")
    waiting = handle.total.remote()
    (report,) = reports().values()
    before = serve.status()
    pid = {"proxy": proxy.pid, "worker": report.pid, "controller": before.controller_pid}[whom]
    os.kill(pid, signal.SIGKILL)
    if whom == "controller":
        eventually(lambda: serve.status().epoch > before.epoch, "another controller answers")
    elif whom == "worker":
        eventually(lambda: pid not in [each.pid for each in reports().values()], "it is gone")
    hold.unlink()
    assert waiting.result(ANSWER_S) == pytest.approx(answer)
    asking.join(ANSWER_S)
    assert len(came) == 1
    if whom == "proxy":
        assert came[0][0] in ("RemoteDisconnected", "ConnectionResetError")
    else:
        assert came[0] == (200, f"0: {answer:.3f}\n")
    with eventually(lambda: quietly(lambda: routed(serve, "/m?upto=1")), "a proxy answers") as response:
        assert response.read().decode() == f"0: {answer:.3f}\n"
    eventually(lambda: books() == held(), "the books say what processes hold")
    assert list(held().values()) == [((WEIGHT_BYTES,), 0)]


def quietly(call):
    """What it returns; None: nobody is there."""
    try:
        return call()
    except urllib.error.HTTPError as error:
        if error.code != 503:
            raise
        return None
    except OSError:
        return None


def test_who_takes_no_calls_for_a_while_stays_where_it_is_and_calls_wait(serve, tmp_path):
    """V16: asked as a tenure's start-up ends, and from then on."""
    from tests.ray_cold_apps import Moody

    closed = tmp_path / "closed"
    closed.touch()
    application, answer = cold(serve, tmp_path, "m", code=Moody, health_check_period_s=0.2, health_check_timeout_s=5.0)
    handle = serve.run(application, name="moody", route_prefix=None)
    call = handle.total.remote()

    def replica():
        return next(iter(serve.status().deployments["moody/m"].replicas), None)

    eventually(lambda: (found := replica()) is not None and "check_ready returned False" in found.message, "it is unready")
    assert not call.done()
    closed.unlink()
    assert call.result(ANSWER_S) == answer
    was, (worker,) = replica().replica_id, list(workers())
    closed.touch()
    eventually(lambda: "unready for" in replica().message, "it is unready again")
    waiting = handle.total.remote()
    closed.unlink()
    assert waiting.result(ANSWER_S) == answer
    assert (replica().replica_id, list(workers())) == (was, [worker])
