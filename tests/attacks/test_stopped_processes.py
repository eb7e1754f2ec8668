"""Processes that are stopped (SIGSTOP) on a real Ray cluster, as a debugger, a frozen container or a neighbour may do."""

import http.client
import os
import signal
import threading
from contextlib import suppress

import pytest

from executors.ray_gpu.patience import CONTROLLER_SILENCE_S, PROXY_SILENCE_S
from tests.free_ports import free_ports
from tests.ray_local import ANSWER_S, clean_up, eventually, start_ray

pytestmark = [pytest.mark.slow, pytest.mark.ray]

if not hasattr(os, "pidfd_open"):
    pytest.skip("this system has no pidfd, and so no watchdog", allow_module_level=True)

SILENCE = {PROXY_SILENCE_S: "1.5", CONTROLLER_SILENCE_S: "3"}


@pytest.fixture(scope="module")
def impatient_cluster():
    """Ray on this machine, where a stopped process is found out sooner than it would be by default."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")
    import ray

    with pytest.MonkeyPatch.context() as environment:
        for variable, seconds in SILENCE.items():
            environment.setenv(variable, seconds)
        start_ray()
        try:
            yield
        finally:
            ray.shutdown()


@pytest.fixture
def serve(impatient_cluster):
    from executors import ray_gpu

    try:
        yield ray_gpu
    finally:
        clean_up(ray_gpu)


@pytest.fixture
def port():
    """One that is free."""
    return free_ports(1)[0]


def ask(port, path="/"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def exists(pid):
    return os.path.exists(f"/proc/{pid}")


def ranks_of(serve, name):
    return eventually(lambda: (now := serve.status().deployments[name]).status == "HEALTHY" and now.ranks, f"{name} is healthy")


def test_a_stopped_proxy_is_replaced_on_its_port(serve, port, tmp_path):
    from tests.ray_apps import Web

    serve.start(http_options={"port": port}, proxy_location="HeadOnly")
    serve.run(Web.bind(str(tmp_path / "go")), route_prefix="/")
    eventually(lambda: (ask(port) or (0,))[0] == 200, "the route is known")
    (before,) = serve.status().proxy_infos
    os.kill(before.pid, signal.SIGSTOP)
    eventually(lambda: (ask(port) or (0,))[0] == 200, "another proxy answers on its port")
    assert not exists(before.pid), "the old one is gone, and not only out of use"
    (after,) = eventually(
        lambda: (found := serve.status().proxy_infos)[0].pid not in (None, before.pid) and found, "status says so"
    )
    assert (after.port, after.problem) == (before.port, "")


def test_a_stopped_proxy_does_not_hold_up_the_end(serve, port, tmp_path):
    from tests.ray_apps import Web

    serve.start(http_options={"port": port}, proxy_location="HeadOnly")
    serve.run(Web.bind(str(tmp_path / "go")), route_prefix="/")
    (proxy,) = serve.status().proxy_infos
    os.kill(proxy.pid, signal.SIGSTOP)
    serve.shutdown(timeout_s=ANSWER_S)
    eventually(lambda: not exists(proxy.pid), "it is gone")


def test_a_stopped_controller_is_replaced_and_nothing_else_changes(serve, port, tmp_path):
    from tests.ray_apps import Web

    serve.start(http_options={"port": port}, proxy_location="HeadOnly")
    serve.run(Web.options(num_replicas=2).bind(str(tmp_path / "go")), route_prefix="/")
    eventually(lambda: (ask(port) or (0,))[0] == 200, "the route is known")
    before, ranks = serve.status(), ranks_of(serve, "Web")
    answers = []
    asking = threading.Thread(target=lambda: answers.append(ask(port, "/wait")))
    asking.start()
    eventually((tmp_path / "go.begun").exists, "a request is under way")
    os.kill(before.controller_pid, signal.SIGSTOP)
    assert ask(port)[0] == 200, "requests need no controller"
    after = serve.status()
    assert after.epoch == before.epoch + 1
    assert not exists(before.controller_pid), "the old one is gone, and not only out of use"
    assert ranks_of(serve, "Web") == ranks
    (tmp_path / "go").touch()
    asking.join()
    assert answers == [(200, b"waited")]
    eventually(lambda: [each.pid for each in serve.status().proxy_infos] == [before.proxy_infos[0].pid], "it is the same")


def test_a_driver_is_told_who_does_not_answer(serve, monkeypatch):
    from executors.ray_gpu import connection
    from executors.ray_gpu.errors import NoAnswerError
    from rankcore.errors import RankcoreError
    from tests.ray_apps import double

    serve.run(double.bind(), route_prefix=None)
    monkeypatch.setattr(connection, "ANSWER_S", 0.5)
    controller = serve.status().controller_pid
    os.kill(controller, signal.SIGSTOP)
    with pytest.raises(NoAnswerError, match=r"the controller has not answered 'delete' within .* s") as raised:
        connection.ask_at_length(connection.find_controller("rankcore"), "delete", ())
    assert isinstance(raised.value, RankcoreError)
    with suppress(ProcessLookupError):  # it may have been ended by now
        os.kill(controller, signal.SIGCONT)
    assert "double" in serve.status().deployments
