"""`rankcore build` and `rankcore shutdown`, without a cluster."""

import contextlib
import io
import sys

import pytest
import yaml
from click.testing import CliRunner as OfClick
from typer.testing import CliRunner

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.apps import packing
from executors.cli import deploy as deploying
from executors.cli.app import app
from executors.ray_gpu import connection, inspecting, instance
from executors.ray_gpu.building import WantedApplication, built
from executors.ray_gpu.deploying import RunTarget, packages_of
from executors.ray_gpu.errors import NoAnswerError, NotRunningError
from executors.ray_gpu.overview import Status

SERVICE = "ray.serve.generated.serve_pb2_grpc.add_UserDefinedServiceServicer_to_server"
MODULE = """
from executors import ray_gpu as serve

def policy(view):
    return 1

@serve.deployment(num_replicas=2, user_config={"k": [1, 2.5, None]}, max_surge_percent=50, hand_over="prepared")
class Inner:
    def __call__(self): return 1

@serve.deployment(autoscaling_config={"max_replicas": 3, "policy": policy}, ray_actor_options={"num_cpus": 0})
class Outer:
    def __init__(self, inner): ...
    def __call__(self): return 1

app = Outer.bind(Inner.bind())
weights = Inner.options(name="Weights", num_replicas=None, max_surge=0, hand_over="none",
                        residency=serve.Residency(weights="/w", weight_bytes=1000, priority=3)).bind()
nested = Outer.options(name="Nested", autoscaling_config={"max_replicas": 3, "policy": lambda view: 1}).bind(1)

def build():
    return Inner.options(name="Made").bind()

same = Outer.options(user_config={}).bind(1)
"""


@pytest.fixture
def rankcore(tmp_path, monkeypatch):
    (tmp_path / "apps_to_build.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(connection, "connect", lambda **_: None)
    yield lambda *arguments, **options: CliRunner().invoke(app, arguments, **options)
    sys.modules.pop("apps_to_build", None)  # the next test has another file of that name


@pytest.mark.parametrize("target", ["apps_to_build:app", "apps_to_build:build", "apps_to_build.py:app"])
def test_what_is_deployed_from_the_file_is_what_the_code_says(rankcore, tmp_path, target):
    done = rankcore("build", target, "-o", "apps.yaml")
    assert (done.exit_code, done.output) == (0, "apps.yaml: 1 application\n")
    (found,) = (from_file(tmp_path / "apps.yaml"),)
    (application,) = deploying._imported(target)
    from_code = packages_of(RunTarget(application, application.deployment.name), "rankcore")[0]
    assert [each.spec for each in found] == [each.spec for each in from_code]
    assert [each.code.app_name for each in found] == [each.code.app_name for each in from_code]


@pytest.mark.parametrize(
    ("options", "tells"), [([], True), (["--grpc-enable-reflection"], True), (["--grpc-disable-reflection"], False)]
)
def test_services_of_grpc_stand_in_the_file_with_whether_they_are_told(rankcore, tmp_path, options, tells):
    paths = [SERVICE, f"{SERVICE}.again"]
    services = [word for path in paths for word in ("--grpc-servicer-functions", path)]
    rankcore("build", "apps_to_build:app", "-o", "apps.yaml", *services, *options)
    said = packing.read(tmp_path / "apps.yaml").config.grpc
    assert said == {"grpc_servicer_functions": paths, "enable_reflection": tells}
    rankcore("build", "apps_to_build:app", "-o", "apps.yaml", *options)
    assert packing.read(tmp_path / "apps.yaml").config.grpc is None


def from_file(path):
    return packing.packages_of(packing.read(path), "rankcore")


def test_what_code_prints_as_it_is_imported_is_not_in_the_file(rankcore, tmp_path):
    (tmp_path / "prints_as_it_is_built.py").write_text(
        "from apps_to_build import app\nprint('imported')\ndef make(args):\n    print('made')\n    return app\n"
    )
    done = rankcore("build", "prints_as_it_is_built:make")
    assert (done.exit_code, done.stderr) == (0, "imported\nmade\n")
    assert yaml.safe_load(done.stdout)["applications"][0]["import_path"] == "prints_as_it_is_built:make"
    of_file = WantedApplication(name="shop", import_path="prints_as_it_is_built:make")
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert built(of_file, "test")
    assert said.getvalue() == ""


def test_options_stand_there_as_the_code_has_them(rankcore):
    done = rankcore("build", "apps_to_build:app", "apps_to_build:build")
    assert done.exit_code == 0
    assert done.output.startswith("# Written by `rankcore build apps_to_build:app apps_to_build:build`; ")
    inner = {"num_replicas": 2, "user_config": {"k": [1, 2.5, None]}, "hand_over": "prepared", "max_surge": "50%"}
    scaled = {"max_replicas": 3, "policy": "apps_to_build:policy"}
    outer = {"name": "Outer", "autoscaling_config": scaled, "ray_actor_options": {"num_cpus": 0}}
    assert yaml.safe_load(done.output)["applications"] == [
        {
            "name": "Outer",
            "route_prefix": "/Outer",
            "import_path": "apps_to_build:app",
            "deployments": [{"name": "Inner", **inner}, outer],
        },
        {
            "name": "Made",
            "route_prefix": "/Made",
            "import_path": "apps_to_build:build",
            "deployments": [{"name": "Made", **inner}],
        },
    ]
    (alone,) = yaml.safe_load(rankcore("build", "apps_to_build:app").output)["applications"]
    assert alone["route_prefix"] == "/"


ON_BOTH = """
from ray import serve

@serve.deployment(num_replicas=2, user_config={"k": [1, None]}, max_ongoing_requests=7, health_check_period_s=3.5)
class Inner: ...

@serve.deployment(autoscaling_config={"min_replicas": 1, "max_replicas": 3}, ray_actor_options={"num_cpus": 0.5},
                  graceful_shutdown_timeout_s=4.0, max_queued_requests=9)
class Outer:
    def __init__(self, inner): ...

one = Outer.bind(Inner.bind())
two = Inner.options(name="Two", max_replicas_per_node=3).bind()
"""


@pytest.mark.parametrize("names", [("one",), ("two",), ("one", "two")])
def test_applications_are_those_that_ray_serve_builds_but_for_their_names_and_empty_environments(rankcore, tmp_path, names):
    scripts = pytest.importorskip("ray.serve.scripts", reason="Ray Serve is not installed: pip install 'ray[serve]'")
    (tmp_path / "built_there.py").write_text(ON_BOTH)
    (tmp_path / "built_here.py").write_text(ON_BOTH.replace("from ray import", "from executors import ray_gpu as"))
    done = OfClick().invoke(scripts.cli, ["build", *(f"built_there:{each}" for each in names), "-o", "there.yaml"])
    assert done.exit_code == 0, done.output
    theirs = yaml.safe_load((tmp_path / "there.yaml").read_text())["applications"]
    ours = yaml.safe_load(rankcore("build", *(f"built_here:{each}" for each in names)).output)["applications"]
    for index, (there, here) in enumerate(zip(theirs, ours, strict=True)):
        name = {"one": "Outer", "two": "Two"}[names[index]]
        route = {"app": f"/app{index + 1}", "own": f"/{name}"} if len(names) > 1 else {"app": "/", "own": "/"}
        of_theirs = {"name": f"app{index + 1}", "runtime_env": {}, "route_prefix": route["app"]}
        of_ours = {"name": name, "route_prefix": route["own"]}
        assert {key: there.pop(key) for key in of_theirs} == of_theirs
        assert {key: here.pop(key) for key in of_ours} == of_ours
        assert there.pop("import_path").replace("built_there", "built_here") == here.pop("import_path")
        assert there == here


def test_weights_are_a_mapping_of_what_was_said_of_them(rankcore):
    (application,) = yaml.safe_load(rankcore("build", "apps_to_build:weights").output)["applications"]
    assert application["deployments"][0]["residency"] == {"weights": "/w", "weight_bytes": 1000, "priority": 3}


def test_what_no_file_can_hold_stays_in_the_code_and_is_said(rankcore, tmp_path):
    done = rankcore("build", "apps_to_build:nested", "--output-path", "apps.yaml")
    assert done.exit_code == 0
    text = (tmp_path / "apps.yaml").read_text()
    assert text.splitlines()[1] == "# Nested/Nested: autoscaling_config stays as the code has it"
    assert yaml.safe_load(text)["applications"][0]["deployments"] == [{"name": "Nested", "ray_actor_options": {"num_cpus": 0}}]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("apps_to_build:app", "apps_to_build:same"), "apps_to_build:same: expected an application with a name of its own"),
        (("apps_to_build:none",), "apps_to_build has no 'none'; it has: "),
        (
            ("apps_to_build:policy",),
            "policy must be what bind() returned, or a function that returns it; found 1",
        ),
        (("apps_to_build:app", "-o", "nowhere/apps.yaml"), "--output-path: nowhere/apps.yaml cannot be written: "),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(rankcore, tmp_path, arguments, problem):
    before = sorted(tmp_path.iterdir())
    done = rankcore("build", *arguments)
    assert done.exit_code == 2
    assert problem in done.stderr
    assert done.stderr.count("\n") == 1
    assert [each for each in sorted(tmp_path.iterdir()) if each.name != "__pycache__"] == before


@pytest.fixture
def ended(monkeypatch):
    """What was ended."""
    found = []
    status = Status(
        namespace="staging", epoch=1, controller_pid=1, journal=None, deployments=dict.fromkeys(("shop/A", "shop/B"))
    )
    monkeypatch.setattr(inspecting, "status", lambda **_: status)
    monkeypatch.setattr(instance, "shutdown", lambda **said: found.append(said))
    return found


def test_a_shutdown_ends_what_it_says(rankcore, ended):
    done = rankcore("shutdown", "--yes", "--namespace", "staging", "--timeout", "3")
    assert (done.exit_code, done.output) == (0, "ended the controller of 'staging', its proxies, and 2 deployments\n")
    assert ended == [{"namespace": "staging", "timeout_s": 3.0}]


def test_a_shutdown_that_nobody_can_confirm_ends_nothing(rankcore, ended):
    done = rankcore("shutdown", "--namespace", "staging")
    assert done.exit_code == 2
    assert "--yes is missing: it would end the controller of 'staging'" in done.stderr
    assert ended == []


@pytest.mark.parametrize(("answer", "status", "ends"), [("y\n", 0, 1), ("n\n", 1, 0)])
def test_a_shutdown_asks_on_a_terminal(rankcore, ended, monkeypatch, answer, status, ends):
    monkeypatch.setattr("executors.cli.shutdown.is_terminal", lambda: True)
    done = rankcore("shutdown", input=answer)
    assert (done.exit_code, len(ended)) == (status, ends)
    assert "  shop/A\n  shop/B\nEnd the controller of 'rankcore', its proxies, and 2 deployments?" in done.stdout


def test_where_nothing_runs_a_shutdown_says_so(rankcore, monkeypatch):
    def nothing(**_):
        raise NotRunningError("no controller runs in 'rankcore'")

    monkeypatch.setattr(inspecting, "status", nothing)
    done = rankcore("shutdown", "--yes")
    assert (done.exit_code, done.stderr) == (2, "rankcore: error: no controller runs in 'rankcore'\n")


def test_a_controller_that_does_not_answer_is_ended_all_the_same(rankcore, ended, monkeypatch):
    def silence(**_):
        raise NoAnswerError("the controller has not answered 'status' within 60 s")

    waited = []
    monkeypatch.setattr(inspecting, "status", lambda namespace, timeout_s: waited.append(timeout_s) or silence())
    for timeout in (("--timeout", "0"), ("--timeout", "30"), ("--timeout", "900")):
        rankcore("shutdown", "--yes", *timeout)
    ended.clear()
    done = rankcore("shutdown", "--yes")
    assert waited == [2.0, 30.0, 60.0, 60.0], "no longer than the end may take"
    assert done.exit_code == 0
    assert done.output == "ended the controller of 'rankcore', its proxies, and what it has: it does not answer\n"
    assert len(ended) == 1
