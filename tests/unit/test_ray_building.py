"""Applications of a file are built: the file's options take the place of the code's, and what is wrong has its key."""

import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from ray.exceptions import RuntimeEnvSetupError, WorkerCrashedError

from executors.ray_gpu import building
from executors.ray_gpu.building import OPTIONS, RESIDENCY_OPTIONS, BuildError, WantedApplication, built
from executors.ray_gpu.declaration import OWN_OPTIONS, ROUTING_OPTIONS, SPEC_OPTIONS

MODULE = """
from executors import ray_gpu as serve

@serve.deployment(num_replicas=3, max_ongoing_requests=7)
class Chat:
    def __init__(self, other=None): ...

@serve.deployment
class Other:
    pass

other = Other.bind()
app = Chat.bind([other, {"again": other}])

def make(args):
    return Chat.options(num_replicas=args["size"]).bind()

def plain():
    return app
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "apps_of_a_file.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield "apps_of_a_file"
    sys.modules.pop("apps_of_a_file", None)


def wanted(import_path, deployments=(), **fields):
    return WantedApplication(name="shop", import_path=import_path, deployments=dict(deployments), **fields)


def by_name(packages):
    return {package.spec.name: package for package in packages}


def test_options_of_the_file_take_the_place_of_those_of_the_code_and_the_others_stay(module):
    options = {"Chat": {"num_replicas": 2, "residency": {"weights": "/nowhere", "weight_bytes": 7, "priority": 3}}}
    found = by_name(built(wanted(f"{module}:app", options, route_prefix="/chat"), "test"))
    assert sorted(found) == ["shop/Chat", "shop/Other"], "what is bound in two places is one deployment"
    chat = found["shop/Chat"]
    assert (chat.spec.target_replicas, chat.routing.max_ongoing_requests, chat.residency.priority) == (2, 7, 3)
    assert (chat.route_prefix, chat.is_ingress, found["shop/Other"].route_prefix) == ("/chat", True, None)
    as_it_is = by_name(built(wanted(f"{module}:plain"), "test"))["shop/Chat"]
    assert (as_it_is.spec.target_replicas, as_it_is.residency) == (3, None)


def test_the_same_file_again_is_the_same_packages(module):
    options = {"Chat": {"user_config": {"a": [1]}}}
    first, again = (built(wanted(f"{module}:app", options), "test") for _ in range(2))
    assert [each.entry_spec for each in first] == [each.entry_spec for each in again]


def test_an_application_logs_as_the_file_says_and_a_deployment_as_is_said_of_it_itself(module):
    options = {"Other": {"logging_config": {"log_level": "ERROR"}}}
    found = by_name(built(wanted(f"{module}:app", options, logging_config={"log_level": "DEBUG"}), "test"))
    assert {name: each.code.logging["log_level"] for name, each in found.items()} == {
        "shop/Chat": "DEBUG",
        "shop/Other": "ERROR",
    }


@pytest.mark.parametrize("of_name", [".app", ":app"])
def test_an_import_path_may_have_a_dot_before_the_name(module, of_name):
    assert "shop/Chat" in by_name(built(wanted(module + of_name), "test"))


def test_a_builder_has_its_args(module):
    (package,) = built(wanted(f"{module}:make", args={"size": 5}), "test")
    assert package.spec.target_replicas == 5


@pytest.mark.parametrize(
    ("import_path", "fields", "keys", "problem"),
    [
        ("app", {"args": {"a": 1}}, ("args",), "takes none"),
        ("plain", {"args": {"a": 1}}, ("args",), "takes none"),
        ("make", {}, ("args",), "make raised KeyError: 'size'"),
        ("nothing", {}, ("import_path",), "has no 'nothing'"),
        ("app", {"runtime_env": {"env_vars": {"A": 3}}}, ("runtime_env",), "runtime_env['env_vars'] must be of type"),
        ("Chat", {}, ("import_path",), "is a deployment"),
        (
            "app",
            {"deployments": {"Chta": {}}},
            ("deployments", "Chta", "name"),
            "there is no deployment 'Chta'; there is: Chat, Other",
        ),
        (
            "app",
            {"deployments": {"Chat": {"num_replicas": -1}}},
            ("deployments", "Chat", "num_replicas"),
            "num_replicas must be",
        ),
        (
            "app",
            {"deployments": {"Chat": {"ray_actor_options": {"x": 1}}}},
            ("deployments", "Chat", "ray_actor_options"),
            "'x'",
        ),
        (
            "app",
            {"deployments": {"Chat": {"residency": {"weights": "/m", "weight_bytes": 7, "priority": 101}}}},
            ("deployments", "Chat", "residency"),
            "Residency.priority must be",
        ),
        (
            "app",
            {"deployments": {"Chat": {"residency": {"weight": "/m"}}}},
            ("deployments", "Chat", "residency"),
            "no 'weight'",
        ),
        ("app", {"deployments": {"Chat": {"residency": {}}}}, ("deployments", "Chat", "residency"), "must have weights"),
    ],
)
def test_what_cannot_be_had_has_its_key(module, import_path, fields, keys, problem):
    with pytest.raises(BuildError) as raised:
        built(wanted(f"{module}:{import_path}", **fields), "test")
    assert (raised.value.keys, problem in str(raised.value)) == (keys, True), str(raised.value)


@pytest.mark.parametrize(
    ("raised", "key"),
    [
        (WorkerCrashedError(), "import_path"),
        (RuntimeEnvSetupError("no such package"), "runtime_env"),
        (ValueError("x"), "runtime_env"),
    ],
)
def test_a_task_that_dies_is_its_codes_fault_and_one_that_cannot_begin_its_environments(module, monkeypatch, raised, key):
    def get(*_, **__):
        raise raised

    task = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda *_: None))
    monkeypatch.setattr(building, "ray", SimpleNamespace(remote=lambda _: task, get=get))
    with pytest.raises(BuildError) as told:
        built(wanted(f"{module}:app"), "test", in_task=True)
    assert told.value.keys == (key,)


def test_a_file_can_say_what_code_can_say():
    assert {*SPEC_OPTIONS, *ROUTING_OPTIONS, *OWN_OPTIONS} - set(OPTIONS) == {"name", "_placement_info"}
    assert "idle_to_cold_s" in RESIDENCY_OPTIONS
