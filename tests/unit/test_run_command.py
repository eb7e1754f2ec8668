"""`rankcore run` and `rankcore status`, without a cluster: whatever goes wrong is one line."""

import json

import attrs
import pytest
import typer

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.cli.run import RunAsked, _deploy_again, _file, _read, run
from executors.cli.verbs import Said, delete, evict, of_deployment, status
from executors.deployment_ids import as_application
from executors.loading import forget_modules_of
from executors.ray_gpu import changing, connection, deploying, inspecting
from executors.ray_gpu.errors import InvalidCallError, NoAnswerError, NotRunningError, UnknownNameError
from executors.ray_gpu.overview import DeploymentInfo, ReplicaStatus, Status
from rankcore import DeploymentStatus, ReplicaState

RAY = Said(None)


@pytest.fixture
def app(tmp_path, monkeypatch):
    """An application, and a cluster in which everything goes well."""
    place = tmp_path / "an_app.py"
    place.write_text("from executors.ray_gpu import deployment\n@deployment\ndef f(): ...\napp = f.bind()\n")
    empty = Status(namespace="n", epoch=1, controller_pid=1, journal=None, deployments={})
    monkeypatch.setattr(connection, "connect", lambda **_: None)
    monkeypatch.setattr(deploying, "run_many", lambda *_, **__: None)
    monkeypatch.setattr(inspecting, "status", lambda **_: empty)
    monkeypatch.setattr(deploying, "delete_all", lambda *_, **__: None)
    yield f"{place}:app"
    forget_modules_of(tmp_path)


def raising(error):
    def act(*_, **__):
        raise error

    return act


def ended(capsys, act):
    with pytest.raises(typer.Exit) as caught:
        act()
    problem = capsys.readouterr().err.splitlines()[-1]
    assert problem.startswith("rankcore: error: ")
    return caught.value.exit_code, problem


def test_a_cluster_that_goes_away_while_it_is_watched_is_one_line(app, monkeypatch, capsys):
    monkeypatch.setattr(inspecting, "status", raising(NotRunningError("the cluster does not answer: gone")))
    code, problem = ended(capsys, lambda: run(RunAsked(target=app)))
    assert (code, "does not answer: gone" in problem) == (2, True)


FILE = """
applications:
  - {name: a, import_path: "an_app_of_a_file:app"}
  - {name: b, import_path: "an_app_of_a_file:app", route_prefix: /b}
http_options: {port: 8123}
"""


class TestRunOfAFile:
    """`rankcore run apps.yaml`."""

    @pytest.fixture
    def deployed(self, app, tmp_path, monkeypatch):
        heard = []
        (tmp_path / "an_app_of_a_file.py").write_text((tmp_path / "an_app.py").read_text())
        (tmp_path / "apps.yaml").write_text(FILE)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(deploying, "deploy_packages", lambda packages, **how: heard.append((packages, how)))
        monkeypatch.setattr(deploying, "delete_all", lambda names, **_: heard.append(names))
        yield heard
        forget_modules_of(tmp_path)

    def test_all_of_it_is_deployed_and_deleted_again(self, deployed, monkeypatch):
        monkeypatch.setattr("executors.cli.run.watch", lambda look, names, go_on: None)
        run(RunAsked(target="apps.yaml"))
        (packages, how), ended = deployed
        assert [(each.spec.name, each.route_prefix) for each in packages] == [("a/f", "/"), ("b/f", "/b")]
        assert (how["wait"], how["replace"], how["http_options"], how.get("prune")) == (False, False, {"port": 8123}, None)
        assert ended == ["a/f", "b/f"]

    def test_it_stays_where_the_command_leaves(self, deployed):
        run(RunAsked(target="apps.yaml", detach=True))
        ((_, how),) = deployed
        assert how["wait"] is True

    def test_it_is_read_anew_when_something_changes(self, deployed, monkeypatch, tmp_path):
        uploaded = []

        def watch(look, names, go_on):
            (tmp_path / "apps.yaml").write_text(FILE.replace("name: b", "name: c"))
            _deploy_again(wanted, _file(wanted, _read(wanted)), tmp_path)

        monkeypatch.setattr("executors.cli.run.watch", watch)
        monkeypatch.setattr("executors.ray_gpu.environment.upload_anew", uploaded.append)
        wanted = RunAsked(target="apps.yaml", runtime_env={"working_dir": "code"})
        run(wanted)
        _, (packages, how), _ = deployed
        assert [each.spec.name for each in packages] == ["a/f", "c/f"]
        assert (how["wait"], how["replace"], uploaded) == (False, True, [{"working_dir": "code"}])

    @pytest.mark.parametrize("options", [{"name": "x"}, {"route_prefix": "/"}, {"http_port": 1}, {"args": {"a": "b"}}])
    def test_what_a_file_says_itself_is_refused(self, deployed, capsys, options):
        code, problem = ended(capsys, lambda: run(RunAsked(target="apps.yaml", **options)))
        assert (code, "a file says them itself" in problem, deployed) == (2, True, [])

    def test_a_mistake_in_it_is_one_line_with_its_place(self, deployed, capsys, tmp_path):
        (tmp_path / "apps.yaml").write_text(FILE.replace("name: b", "nane: b"))
        code, problem = ended(capsys, lambda: run(RunAsked(target="apps.yaml")))
        assert (code, "apps.yaml:4" in problem, deployed) == (2, True, [])


def test_what_is_waited_for_is_told_where_there_is_no_terminal():
    from executors.cli.ray_view import summary

    info = DeploymentInfo(
        name="m",
        status=DeploymentStatus.UPDATING,
        message="no node can ever hold it: it asks for GPU 8; the largest node has GPU 0\nmore",
        world_size=1,
        version="a",
        class_name="models.M",
        app_name="default",
        replicas=(),
    )
    assert summary(info).endswith("ranks none yet; no node can ever hold it: it asks for GPU 8; the largest node has GPU 0")
    trace = 'm#1.2: start failed: Traceback (most recent call last):\n  File "m.py", line 3, in __init__\nOSError: no such disk'
    assert summary(attrs.evolve(info, message=trace)).endswith("; m#1.2: start failed: OSError: no such disk")


def test_calls_that_outlast_the_stopping_are_one_line(app, monkeypatch, capsys):
    from executors.cli import run as run_module

    monkeypatch.setattr(run_module, "watch", lambda *_: None)
    monkeypatch.setattr(deploying, "delete_all", raising(TimeoutError("the controller has not answered delete within 60 s")))
    code, problem = ended(capsys, lambda: run(RunAsked(target=app)))
    assert (code, "it goes on, see `rankcore status`" in problem) == (1, True)


def test_status_of_a_controller_that_does_not_answer_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(inspecting, "status", raising(TimeoutError("the controller has not answered hello within 30 s")))
    assert ended(capsys, lambda: status(None, False))[0] == 2


def info(app_name, name):
    return DeploymentInfo(
        name=f"{app_name}/{name}",
        status=DeploymentStatus.HEALTHY,
        message="",
        world_size=1,
        version="a",
        class_name="models.M",
        app_name=app_name,
        replicas=(),
    )


@pytest.fixture
def three(monkeypatch):
    """What runs: two applications of one class, one of which has another deployment. Returns what was asked of it."""
    asked = []
    there_are = {each.name: each for each in (info("a", "m"), info("a", "only"), info("b", "m"))}
    found = Status(namespace="n", epoch=1, controller_pid=1, journal=None, deployments=there_are)
    monkeypatch.setattr(inspecting, "status", lambda **_: found)
    monkeypatch.setattr(changing, "scale", lambda *arguments, **_: asked.append(arguments))
    monkeypatch.setattr(deploying, "delete", lambda *arguments, **_: asked.append(arguments))
    monkeypatch.setattr(changing, "evict", lambda *arguments, **options: asked.append((*arguments, options["keep"])))
    return asked


@pytest.mark.parametrize(
    ("name", "shown"), [(None, "a/m a/only b/m"), ("a", "a/m a/only"), ("b", "b/m"), ("only", "a/only"), ("b/m", "b/m")]
)
def test_status_shows_an_application_or_a_deployment(three, capsys, name, shown):
    status(None, True, name)
    assert list(json.loads(capsys.readouterr().out)["deployments"]) == shown.split()
    status(None, False, name)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if "HEALTHY" in line] == shown.split()


def test_a_name_that_nothing_has_is_refused_with_what_there_is(three, capsys):
    for name in ("a", "c/m", "a/", ""):
        code, said = ended(capsys, lambda name=name: of_deployment(RAY, "scale", name, 2))
        assert (code, said.strip()) == (
            2,
            f"rankcore: error: there is no deployment {name!r}; there is: a/m, a/only, b/m",
        )
    assert three == []


def test_what_is_left_alone_is_shown_with_the_reason(three, capsys, monkeypatch):
    alone = attrs.evolve(inspecting.status(), left_alone={"c/odd": "its record cannot be read: why"})
    monkeypatch.setattr(inspecting, "status", lambda **_: alone)
    for name, shown in ((None, "a/m a/only b/m"), ("c", ""), ("odd", ""), ("c/odd", "")):
        status(None, False, name)
        said = " ".join(capsys.readouterr().out.split())
        assert "c/odd LEFT ALONE, its replicas go on: its record cannot be read: why" in said
        assert [each for each in shown.split() if each not in said] == []
        status(None, True, name)
        assert list(json.loads(capsys.readouterr().out)["left_alone"]) == ["c/odd"]
    status(None, False, "a")
    assert "LEFT ALONE" not in capsys.readouterr().out


def test_a_name_that_several_have_is_refused_with_all_of_them(three, capsys):
    several = "may be any of: a/m, b/m"
    assert several in ended(capsys, lambda: status(None, False, "m"))[1]
    assert several in ended(capsys, lambda: of_deployment(RAY, "scale", "m", 2))[1]
    found = ended(capsys, lambda: status(None, False, "c"))
    assert found == (2, "rankcore: error: there is no application or deployment 'c'; there is: a/m, a/only, b/m")
    assert three == []


def test_scale_and_evict_take_deployments_by_bare_and_by_full_names(three, capsys):
    of_deployment(RAY, "scale", "only", 2)
    of_deployment(RAY, "scale", "a/m", 3)
    assert three == [("a/only", 2), ("a/m", 3)]
    evict(RAY, "only", "cold")
    evict(RAY, "a/m#1.2", "WARM")
    assert three[2:] == [("a/only", "COLD"), ("a/m#1.2", "WARM")]
    said = capsys.readouterr().out.splitlines()
    assert said[2:4] == ["a/m HEALTHY, 0 of 1 running, ranks none yet", "`rankcore status a/m` shows how that comes on"]
    assert "'m' may be any of: a/m, b/m" in ended(capsys, lambda: evict(RAY, "m", "WARM"))[1]


def test_delete_says_what_it_has_deleted_or_why_it_could_not(three, monkeypatch, capsys):
    delete(RAY, "a", 3.0)
    assert (three, capsys.readouterr().out) == ([("a",)], "deleted a\n")
    monkeypatch.setattr(deploying, "delete", raising(UnknownNameError("there is no deployment 'm'")))
    assert ended(capsys, lambda: delete(RAY, "m", None)) == (2, "rankcore: error: there is no deployment 'm'")
    monkeypatch.setattr(deploying, "delete", raising(NoAnswerError("not within 3 s")))
    assert ended(capsys, lambda: delete(RAY, "m", 3.0))[0] == 1


def test_the_application_has_a_name_that_it_may_have_wherever_its_file_is(app, monkeypatch):
    from executors.cli import run as run_module

    names = []
    monkeypatch.setattr(run_module, "watch", lambda look, deployments, *_: names.append(deployments))
    run(RunAsked(target=app))
    run(RunAsked(target=app, name="mine"))
    assert names == [(f"{as_application(app)}/f",), ("mine/f",)]
    assert "/" not in as_application(app)


def test_what_is_watched_is_said_again_when_it_changes_and_not_as_time_passes(three, monkeypatch, capsys):
    from executors.cli import verbs

    stands = iter(["stalled for 1 s: 0 of 2 updated", "stalled for 2 s: 0 of 2 updated", "rolling: 1 of 2 updated", None])

    def look(**_):
        rollout = next(stands)
        if rollout is None:
            raise NotRunningError("gone")
        found = attrs.evolve(info("a", "m"), rollout=rollout, message="why\nmore")
        return Status(namespace="n", epoch=1, controller_pid=1, journal=None, deployments={found.name: found})

    monkeypatch.setattr(inspecting, "status", look)
    monkeypatch.setattr(verbs, "LOOK_EVERY_S", 0.0)
    with pytest.raises(typer.Exit):
        verbs.watch(None)
    lines = [line.partition("  ")[2] for line in capsys.readouterr().out.splitlines()]
    assert lines == ["a/m  HEALTHY  stalled for 1 s: 0 of 2 updated; why", "a/m  HEALTHY  rolling: 1 of 2 updated; why"]


def test_a_deployment_that_ends_while_it_is_watched_is_said_to_be_gone(three, monkeypatch, capsys):
    from executors.cli import verbs

    one = Status(namespace="n", epoch=1, controller_pid=1, journal=None, deployments={"a/m": info("a", "m")})
    stands = iter([one, attrs.evolve(one, deployments={})])
    monkeypatch.setattr(inspecting, "status", lambda **_: next(stands))
    monkeypatch.setattr(verbs, "LOOK_EVERY_S", 0.0)
    with pytest.raises((StopIteration, RuntimeError)):
        verbs.watch(None)
    lines = [line.partition("  ")[2] for line in capsys.readouterr().out.splitlines()]
    assert lines == ["a/m  HEALTHY  1 of 1 available", "a/m  gone"]


@pytest.mark.parametrize(
    ("words", "asked"),
    [(("rollback", "only"), ("a/only", {})), (("retry", "only", "--rank", "2", "--rank", "0"), ("a/only", {"ranks": (2, 0)}))],
)
def test_rollback_and_retry_ask_for_the_one_deployment_that_is_meant(three, monkeypatch, capsys, words, asked):
    from typer.testing import CliRunner

    from executors.cli.app import app as rankcore

    found = []
    for verb in ("rollback", "retry"):
        monkeypatch.setattr(changing, verb, lambda name, namespace, **options: found.append((name, options)))
    assert CliRunner().invoke(rankcore, words).exit_code == 0
    assert found == [asked]


@pytest.mark.parametrize("ranks", [["1"], [-1], [True], 1.5])
def test_what_are_no_ranks_is_refused_before_anybody_is_asked(ranks):
    with pytest.raises(InvalidCallError, match="ranks must be integers"):
        changing.retry("m", ranks=ranks)


@pytest.mark.parametrize(
    ("state", "ends"), [("RUNNING", False), ("STARTING", False), ("DRAINING", True), ("FAILED", True), (None, True)]
)
def test_a_run_whose_version_has_failed_ends_unless_what_was_healthy_last_serves(app, monkeypatch, capsys, state, ends):
    from executors.cli import run as run_module

    there = ReplicaStatus(
        replica_id="an_app/f#1.0", state=ReplicaState(state or "FAILED"), rank=None, node_id="n", pid=1, version="a"
    )
    replicas = () if state is None else (there,)
    failed = attrs.evolve(info("an_app", "f"), status=DeploymentStatus.DEPLOY_FAILED, message="no weights", replicas=replicas)
    now = Status(namespace="n", epoch=1, controller_pid=1, journal=None, deployments={failed.name: failed})
    problem = run_module.watch(lambda: now, [failed.name], raising(KeyboardInterrupt))
    assert problem == ("an_app/f did not come up: no weights" if ends else None)
