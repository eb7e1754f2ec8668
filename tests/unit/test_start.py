"""`start` without a cluster: on which nodes it has proxies."""

import pytest

pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install 'ray[serve]'")

from ray.serve.config import HTTPOptions

from executors.ray_gpu import connection, instance
from executors.ray_gpu.errors import InvalidDeploymentError
from executors.ray_gpu.http.options import HttpOptions
from executors.ray_gpu.proxies.options import ProxyOptions

ADD = "ray.serve.generated.serve_pb2_grpc.add_UserDefinedServiceServicer_to_server"


@pytest.fixture
def served(monkeypatch):
    """What is served once `start` was called; `[0]`: what is before."""
    found = [None]
    monkeypatch.setattr(connection, "connect", lambda **_: None)
    monkeypatch.setattr(connection, "start_controller", lambda *_: "controller")
    monkeypatch.setattr(instance, "say_where_journal_is", lambda *_: None)
    monkeypatch.setattr(instance, "ask", lambda controller, method, *_: found[0])
    monkeypatch.setattr(instance, "serve_outside", lambda controller, options, replace: found.append(options))
    return found


def test_a_first_route_begins_a_proxy_on_the_head_node():
    assert ProxyOptions().http.location == ProxyOptions(http=HttpOptions(port=1)).http.location == "HeadOnly"


@pytest.mark.parametrize(
    ("said", "where", "port"),
    [
        ({}, "EveryNode", 8000),
        ({"http_options": {"port": 8080}}, "EveryNode", 8080),
        ({"http_options": HTTPOptions(port=8080)}, "EveryNode", 8080),
        ({"http_options": HttpOptions(port=8080)}, "EveryNode", 8080),
        ({"http_options": HttpOptions(port=8080, location="HeadOnly")}, "HeadOnly", 8080),
        ({"grpc_options": {"servicer_functions": [ADD]}}, "EveryNode", 8000),
        ({"http_options": {"port": 8080, "location": "HeadOnly"}}, "HeadOnly", 8080),
        ({"proxy_location": "HeadOnly"}, "HeadOnly", 8000),
        ({"proxy_location": "Disabled"}, "Disabled", 8000),
        ({"logging_config": {"log_level": "ERROR"}}, "EveryNode", 8000),
    ],
)
def test_proxies_begin_on_every_node_unless_it_is_said_otherwise(served, said, where, port):
    instance.start(**said)
    (options,) = served[1:]
    assert (options.http.location, options.http.port) == (where, port)


def test_proxies_that_run_stay_where_they_are_unless_it_is_said_otherwise(served):
    served[0] = ProxyOptions(http=HttpOptions(port=8001, location="HeadOnly"))
    instance.start()
    assert served[1:] == []
    instance.start(http_options={"port": 8080})
    instance.start(proxy_location="EveryNode")
    assert [(each.http.port, each.http.location) for each in served[1:]] == [(8080, "HeadOnly"), (8000, "EveryNode")]


def test_without_what_http_needs_there_is_a_controller_alone(served, monkeypatch, caplog):
    def missing():
        raise InvalidDeploymentError("HTTP needs more packages")

    monkeypatch.setattr(instance, "check_http_can_be_served", missing)
    instance.start()
    assert served[1:] == []
    assert "there are no proxies: HTTP needs more packages" in caplog.text
    with pytest.raises(InvalidDeploymentError):
        instance.start(http_options={})
