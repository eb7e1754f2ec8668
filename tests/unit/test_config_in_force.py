"""`rankcore config` and a deploy of what it prints: no replica changes, and proxies keep their secrets, which it leaves out."""

import json
import sys
from functools import partial
from types import SimpleNamespace

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.apps import packing
from executors.ray_gpu import connection, deploying, instance
from executors.ray_gpu.building import WantedApplication, built
from executors.ray_gpu.errors import InvalidDeploymentError, NoAnswerError
from executors.ray_gpu.extras import extras_of
from executors.ray_gpu.grpc_proxy.options import GrpcOptions
from executors.ray_gpu.http.options import HttpOptions
from executors.ray_gpu.in_force import _static, application_config, config_of
from executors.ray_gpu.logs.config import as_plain
from executors.ray_gpu.process import CAPTURE_CHILD_TASKS
from executors.ray_gpu.proxies.options import ProxyOptions
from rankcore.cluster.records import Cause
from rankcore.placement import StaticPlacement

TOKEN = "0123456789abcdef-a-token"
MODULE = """
from executors import ray_gpu as serve

@serve.deployment
class M:
    def __call__(self): ...

app = M.bind()
"""
LOUD = {"log_level": "DEBUG"}


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "an_app_in_force.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield "an_app_in_force:app"
    sys.modules.pop("an_app_in_force", None)


def packed(module, options, logging_config=None):
    wanted = WantedApplication(name="a", import_path=module, deployments={"M": options}, logging_config=logging_config)
    (package,) = built(wanted, "n")
    return package


def in_force(package):
    spec = package.entry_spec
    entry = SimpleNamespace(spec=spec, target=SimpleNamespace(replicas=1, cause=Cause.USER), deleting=False)
    codes = {package.code.version: package.code}
    return SimpleNamespace(deployment="a/M", entry=entry, extras=extras_of(spec), codes=lambda: codes)


def said_of(package, is_logging_said=False):
    application = SimpleNamespace(route_prefix=None)
    (found,) = application_config("a", application, [in_force(package)], is_logging_said)["deployments"]
    return json.loads(json.dumps({key: value for key, value in found.items() if key != "name"}))


@pytest.mark.parametrize(
    "options",
    [
        {"logging_config": LOUD},
        {"logging_config": {}},
        {"logging_config": {"enable_access_log": False}},
        {"placement_group_bundles": [{"CPU": 1}]},
        {"placement_group_bundles": [{"CPU": 1}, {"CPU": 1}], "placement_group_strategy": "SPREAD"},
        {"placement_group_bundles": [{"CPU": 1}] * 2, "placement_group_bundle_label_selector": [{"zone": "a"}]},
        {"max_replicas_per_node": 3},
        {"max_replicas_per_node": 2, "ray_actor_options": {"resources": {"tpu": 1}, "num_cpus": 0.5}},
        {"ray_actor_options": {"runtime_env": {"env_vars": {"A": "1"}}}},
        {"version": "v7"},
        {"sync_threads": 3, "user_config": {"a": 1}, "max_ongoing_requests": 3},
        {"autoscaling_config": {"min_replicas": 1, "max_replicas": 5}},
        {"restart_token": "x", "partition": 1},
    ],
)
def test_what_is_printed_of_a_deployment_deploys_the_same(module, options):
    there = packed(module, options)
    said = said_of(there)
    again = packed(module, said)
    assert (again.code.version, again.entry_spec) == (there.code.version, there.entry_spec)
    assert (again.code.actor_options, again.code.logging) == (there.code.actor_options, there.code.logging)
    assert "node:__internal_implicit_resource_" not in json.dumps(said)
    assert ("version" in said) == ("version" in options)


def test_logging_of_proxies_does_not_reach_replicas_that_nobody_has_said_to_log(module):
    there = packed(module, {})
    again = packed(module, said_of(there, is_logging_said=True), logging_config=LOUD)
    assert (again.code.version, again.code.logging) == (there.code.version, None)
    of_application = packed(module, {}, logging_config=LOUD)
    assert packed(module, said_of(of_application)).code.version == of_application.code.version


def test_a_static_placement_says_whether_child_tasks_are_captured():
    static = StaticPlacement(group="g", bundles=((0, 1), (2, 3)), bundle_count=4)
    code = SimpleNamespace(actor_options={CAPTURE_CHILD_TASKS: False})
    assert _static(static, code)["capture_child_tasks"] is False
    assert "capture_child_tasks" not in _static(static, SimpleNamespace(actor_options={CAPTURE_CHILD_TASKS: True}))


OUTSIDE = ProxyOptions(
    http=HttpOptions(
        host="0.0.0.0",
        port=8001,
        location="EveryNode",
        bearer_token=TOKEN,
        ssl_certfile="c",
        ssl_keyfile="k",
        ssl_keyfile_password="a password",
    ),
    grpc=GrpcOptions(servicer_functions=("a.b",), bearer_token=TOKEN),
    logging={
        "encoding": "TEXT",
        "log_level": "DEBUG",
        "logs_dir": None,
        "enable_access_log": True,
        "additional_log_standard_attrs": [],
    },
)


def asked_by_file(before, data):
    said = packing.of_proxies(packing.of_data(data, "body"))
    logging = said["logging_config"]
    return before.asked(said["http_options"], said["grpc_options"], as_plain(logging))


def test_what_is_printed_of_proxies_keeps_their_secrets_and_has_none_in_it():
    found = config_of({}, {}, OUTSIDE)
    assert TOKEN not in repr(found)
    assert "a password" not in repr(found)
    assert asked_by_file(OUTSIDE, json.loads(json.dumps(found))) == OUTSIDE
    with pytest.raises(InvalidDeploymentError, match="bearer_token must be the secret itself"):
        asked_by_file(ProxyOptions(), found)


@pytest.mark.parametrize(
    ("said", "token"),
    [
        ({"http_options": {"port": 8005}}, TOKEN),
        ({"http_options": {"port": 8005, "bearer_token": None}}, None),
        ({"http_options": {"port": 8005, "bearer_token": "another-0123456789"}}, "another-0123456789"),
    ],
)
def test_a_token_goes_only_where_the_file_says_so(said, token):
    found = asked_by_file(OUTSIDE, {**said, "applications": []}).http
    assert (found.port, found.bearer_token, found.location) == (8005, token, "EveryNode")
    assert found.ssl_keyfile_password is None, "it went with its key"


def test_a_place_alone_changes_the_place_alone():
    found = asked_by_file(OUTSIDE, {"proxy_location": "HeadOnly", "applications": []})
    assert found.http.location == "HeadOnly"
    assert asked_by_file(found, {"proxy_location": "EveryNode", "applications": []}) == OUTSIDE


@pytest.fixture
def calls(monkeypatch):
    found = []

    def ask(_, method, *arguments):
        found.append((method, arguments))
        return OUTSIDE if method == "proxy_options" else ()

    monkeypatch.setattr(connection, "start_controller", lambda *_: object())
    monkeypatch.setattr(connection, "find_controller", lambda *_: object())
    monkeypatch.setattr(instance, "say_where_journal_is", lambda *_: None)
    for module in (deploying, instance):
        for name in ("ask", "ask_at_length"):
            monkeypatch.setattr(module, name, ask)
    return found


def test_ports_that_clash_with_what_is_in_force_are_refused_before_anything_is_deployed(calls):
    clash = {"port": 9000}
    with pytest.raises(InvalidDeploymentError, match="cannot share port 9000"):
        deploying.deploy_packages((), wait=False, prune=True, http_options=clash, namespace="n")
    with pytest.raises(InvalidDeploymentError, match="cannot share port 9000"):
        deploying.plan_packages((), replace=False, prune=True, http_options=clash, namespace="n")
    assert {method for method, _ in calls} <= {"proxy_options", "revision"}


def test_a_plan_refuses_a_service_that_cannot_be_imported_as_the_deploy_would(calls):
    grpc = {"grpc_servicer_functions": ["no_such_module.add"], "port": 9001}
    for act in (partial(deploying.plan_packages, replace=False), partial(deploying.deploy_packages, wait=False)):
        with pytest.raises(InvalidDeploymentError, match=r"gRPC servicer function 'no_such_module\.add' cannot be imported"):
            act((), prune=True, grpc_options=grpc, namespace="n")


def test_there_is_no_plan_where_the_controller_does_not_answer(monkeypatch):
    def silent(*_):
        raise NoAnswerError("the controller has not answered")

    monkeypatch.setattr(connection, "find_controller", silent)
    with pytest.raises(NoAnswerError):  # and not one in which all would start: the controller has deployments
        deploying.plan_packages((), replace=False, prune=True, namespace="n")


def test_a_deploy_keeps_what_it_does_not_say_of_proxies(calls):
    deploying.deploy_packages((), wait=False, prune=True, http_options={"port": 8005}, namespace="n")
    (wanted,) = [arguments[0] for method, arguments in calls if method == "serve_outside"]
    assert (wanted.http.port, wanted.http.bearer_token, wanted.logging, wanted.grpc) == (
        8005,
        TOKEN,
        OUTSIDE.logging,
        OUTSIDE.grpc,
    )
