"""`rankcore deploy FILE`: what is wrong with a file as a whole is one line with key and line, and no cluster is asked."""

import pytest
import typer

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from types import SimpleNamespace

from executors.apps import packing
from executors.apps.file import AppsFile
from executors.cli.deploy import DeployAsked, _told, deploy
from executors.cli.plan_words import weights_lines
from executors.loading import forget_modules_of
from executors.ray_gpu import connection, deploying, inspecting
from executors.ray_gpu.errors import ConflictError, InvalidDeploymentError, NameInUseError
from executors.simulator.scenario.errors import ScenarioError
from executors.simulator.scenario.yamlfile import parse
from rankcore import DeploymentStatus
from rankcore.cluster import ClusterPlan, PlannedChange, PlannedWeights
from rankcore.planning import Plan, PlannedMove, PlannedStart, PlannedStop

MODULE = """\
from pydantic import BaseModel
from executors.ray_gpu import deployment
@deployment
def f(): ...
app = f.bind()
class Size(BaseModel):
    layers: int
def build(size: Size): return app
"""
APPS = "an_app_of_a_file"
FILE = """\
http_options: {port: 8080}
proxy_location: HeadOnly
applications:
  - name: one
    import_path: MODULE:app
    route_prefix: /x
  - name: two
    import_path: MODULE:app
    route_prefix: /y
"""
PLANNED = PlannedChange("old/Model", "deleted", None)


@pytest.fixture
def text(tmp_path, monkeypatch):
    (tmp_path / f"{APPS}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(connection, "connect", lambda **_: None)
    yield FILE.replace("MODULE", APPS)
    forget_modules_of(tmp_path)


def never(*_, **__):
    raise AssertionError("the cluster was asked")


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize(
    ("found", "by", "line", "problem"),
    [
        ("port: 8080", "port: many", 1, "http_options.port: http option port must be an integer from 1 to 65535, got 'many'"),
        ("port: 8080", "prot: 8080", 1, "http_options.prot: HttpOptions: no option 'prot'; the options are: "),
        (
            "HeadOnly",
            "Nowhere",
            2,
            "proxy_location: http option location must be one of 'HeadOnly', 'EveryNode', ",
        ),
        ("/y", "/x/", 9, "applications[1].route_prefix: expected one that application 'one' does not have, found '/x'"),
        ("/y", "y", 9, "applications[1].route_prefix: route_prefix must be a path such as '/' or '/llm', got 'y'"),
        ("name: two", "name: t/o", 7, "applications[1].name: the application's name must be"),
        (
            "port: 8080}",
            "port: 8080}\nlogging_config: {log_level: LOUD}",
            2,
            "logging_config.log_level: LoggingConfig.log_level must be one of ",
        ),
        (
            "name: two",
            "name: two\n    logging_config: {encodings: JSON}",
            8,
            "applications[1].logging_config.encodings: logging_config has no 'encodings'; there are: ",
        ),
        (
            "port: 8080}",
            "port: 8080}\ngrpc_options: {grpc_servicer_functions: [a.b], port: 0}",
            2,
            "grpc_options.port: gRPC option port must be an integer from 1 to 65535, got 0",
        ),
        (
            "port: 8080}",
            "port: 8080}\ngrpc_options: {port: many, grpc_servicer_functions: []}",
            2,
            "grpc_options.port: gRPC option port must be an integer from 1 to 65535, got 'many'",
        ),
        (
            "port: 8080}",
            "port: 8080}\ngrpc_options: {prot: 9000}",
            2,
            "grpc_options.prot: GrpcOptions: no option 'prot'; the options are: ",
        ),
        (
            "route_prefix: /y",
            "deployments: [{name: f, static_placement: {replica_bundle_mapping: {0: [0]}}}]",
            9,
            "applications[1].deployments[0].static_placement: static_placement.placement_group must be the name of a ",
        ),
        (
            "    route_prefix: /y",
            "    deployments:\n      - name: f\n        autoscaling_config:\n          max_replicas: 2\n"
            "          min_replicas: 5",
            13,
            "applications[1].deployments[0].autoscaling_config.min_replicas: autoscaling_config['min_replicas'] must be an ",
        ),
        (
            "    route_prefix: /y",
            "    deployments:\n      - name: f\n        residency:\n          weights: /m\n          weight: 3",
            13,
            "applications[1].deployments[0].residency.weight: residency has no 'weight'; there are: ",
        ),
        (
            "    route_prefix: /y",
            "    deployments:\n      - name: f\n        placement_group_bundles:\n          - CPU: 1\n          - CPU: -1",
            13,
            "applications[1].deployments[0].placement_group_bundles[1]: placement_group_bundles[1] must have finite ",
        ),
        (
            "    route_prefix: /y",
            "    deployments:\n      - name: f\n      - name: name",
            11,
            "applications[1].deployments[1].name: there is no deployment 'name'; there is: f",
        ),
        (
            "MODULE:app\n    route_prefix: /y",
            "MODULE:build\n    args:\n      depth: 1\n      layers: many",
            11,
            "applications[1].args.layers: build raised ValidationError: 1 validation error for Size layers Input should be ",
        ),
        (
            "route_prefix: /y",
            "deployments: [{name: f, logging_config: {log_level: LOUD}}]",
            9,
            "applications[1].deployments[0].logging_config.log_level: LoggingConfig.log_level must be one of ",
        ),
    ],
)
def test_it_is_one_line_with_key_and_line(text, tmp_path, monkeypatch, capsys, dry_run, found, by, line, problem):
    monkeypatch.setattr(deploying, "plan_packages", never)
    monkeypatch.setattr(deploying, "deploy_packages", never)
    found, by = found.replace("MODULE", APPS), by.replace("MODULE", APPS)
    assert text.count(found) == 1
    (tmp_path / "apps.yaml").write_text(text.replace(found, by))
    with pytest.raises(typer.Exit) as ended:
        deploy(DeployAsked("apps.yaml", dry_run=dry_run, namespace="n"))
    said = capsys.readouterr().err.splitlines()
    assert (ended.value.exit_code, len(said)) == (2, 1)
    assert said[0].startswith(f"rankcore: error: {problem}")
    assert said[0].endswith(f"(apps.yaml:{line})")


def test_a_service_that_cannot_be_imported_has_its_key(text):
    said = "grpc_options:\n  port: 9001\n  grpc_servicer_functions: [no.such]\n" + text
    data, lines = parse(said, "a.yaml")
    file = AppsFile(data, "a.yaml", lines)
    problem = "gRPC servicer function 'no.such' cannot be imported: No module named 'no'"

    def refuse():
        raise InvalidDeploymentError(problem)

    with pytest.raises(ScenarioError) as raised:
        packing.placed(file, (), refuse)
    assert str(raised.value) == f"grpc_options.grpc_servicer_functions: {problem} (a.yaml:3)"


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize(
    ("refused", "line", "key"),
    [
        ("route_prefix '/y' must be one that application 'older' does not have: give it another", 9, "route_prefix"),
        ("two/f is the name of a deployment of g already: delete that first", 7, "name"),
    ],
)
def test_what_the_cluster_refuses_is_said_with_key_and_line(text, tmp_path, monkeypatch, capsys, dry_run, refused, line, key):
    def refuse(*_, **__):
        raise NameInUseError(refused)

    monkeypatch.setattr(deploying, "plan_packages", refuse)
    monkeypatch.setattr(deploying, "deploy_packages", refuse)
    (tmp_path / "apps.yaml").write_text(text)
    with pytest.raises(typer.Exit) as ended:
        deploy(DeployAsked("apps.yaml", dry_run=dry_run, namespace="n"))
    assert ended.value.exit_code == 2
    assert capsys.readouterr().err == f"rankcore: error: applications[1].{key}: {refused} (apps.yaml:{line})\n"


@pytest.mark.parametrize(("said", "prune"), [(None, True), (False, False)])
def test_a_file_without_applications_deletes_all_and_says_what_goes(text, tmp_path, monkeypatch, capsys, said, prune):
    asked = []

    def info(name, status):
        of_weights = {"has_residency": False, "message": "", "world_size": 0, "rollout": ""}
        return SimpleNamespace(name=name, status=status, replicas=(), ranks={}, **of_weights)

    there_is = {"old/Model": info("old/Model", "DELETING")}
    monkeypatch.setattr(
        deploying, "plan_packages", lambda packages, **how: (ClusterPlan((PLANNED,) if how["prune"] else ()), "r1")
    )
    monkeypatch.setattr(
        deploying, "deploy_packages", lambda packages, **how: asked.append((packages, how["prune"], how["expected"]))
    )
    monkeypatch.setattr(inspecting, "status", lambda **_: SimpleNamespace(deployments=there_is))
    (tmp_path / "apps.yaml").write_text("applications: []\n")
    deploy(DeployAsked("apps.yaml", prune=said, wait=True, namespace="n"))
    assert asked == [((), prune, "r1")]
    gone = ["deleted   old/Model: no replica would change", "old/Model DELETING, 0 of 0 running, ranks none yet"]
    assert capsys.readouterr().out.splitlines() == (gone if prune else ["nothing would change"])


def test_who_comes_second_is_told_which_revision_won_and_a_plan_that_was_read_can_be_named(text, tmp_path, monkeypatch, capsys):
    def refuse(packages, *, expected, **_):
        raise ConflictError(expected, "r2")

    monkeypatch.setattr(deploying, "plan_packages", lambda packages, **how: (ClusterPlan(()), "r1"))
    monkeypatch.setattr(deploying, "deploy_packages", refuse)
    (tmp_path / "apps.yaml").write_text("applications: []\n")
    for expect, read in (("", "r1"), ("r0", "r0")):
        with pytest.raises(typer.Exit) as ended:
            deploy(DeployAsked("apps.yaml", expect=expect, namespace="n"))
        assert ended.value.exit_code == 1
        found = capsys.readouterr().err
        assert found.startswith(
            f"rankcore: error: revision must be r2, which is in force, got {read}: another writer came first"
        )
        assert found.count("\n") == 1


def test_a_plan_says_who_starts_stops_and_moves():
    plan = Plan(
        world_size_before=2,
        world_size_after=3,
        starts=(PlannedStart(rank=2, version="1", node_id=None),),
        stops=(PlannedStop("a/m#1.0", 0),),
        moves=(PlannedMove("a/m#1.1", 1, 0),),
        reconfigured=("a/m#1.1",),
        status=DeploymentStatus.HEALTHY,
    )
    assert list(_told(ClusterPlan((PlannedChange("a/m", "changed", plan),)))) == [
        "changed   a/m: world size 2 -> 3, 1 would start (rank 2), 1 would stop (a/m#1.0), "
        "1 would get another rank (a/m#1.1: 1 -> 0), 1 would get the new user_config in place"
    ]


def test_a_plan_says_that_an_application_gets_another_route():
    opened, closed = PlannedChange("a/m", "recorded", None, (None, "/")), PlannedChange("b/m", "recorded", None, ("/b", None))
    assert list(_told(ClusterPlan((opened, closed)))) == [
        "recorded  a/m: no replica would change, route none -> /",
        "recorded  b/m: no replica would change, route /b -> none",
    ]


def test_what_a_controller_of_an_older_release_plans_is_read():
    older = PlannedChange.__new__(PlannedChange)
    older.__setstate__({"deployment": "a/m", "what": "recorded", "plan": None})  # type: ignore[attr-defined]
    assert older == PlannedChange("a/m", "recorded", None)


def test_a_dry_run_calls_nodes_as_status_does():
    node_id, why = "0123456789abcdef" * 3 + "01234567", "80 GB free of 80 GB"
    found = PlannedWeights("a/m", "a/m@1#1.0", "loaded", node_id, "")
    left = PlannedWeights("a/m", "a/m@1#2.0", "left waiting", None, "", ((node_id, why), ("n2", why)))
    assert list(weights_lines((found, left))) == [
        "a/m@1#1.0 would be loaded to 01234567",
        f"a/m@1#2.0 would be left waiting: 01234567: {why}; n2: {why}",
    ]
