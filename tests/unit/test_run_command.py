"""`rankcore run` and `rankcore status`, without a cluster: whatever goes wrong is one line."""

import pytest
import typer

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.cli.run import run
from executors.cli.status import status
from executors.ray_gpu import api, connection
from executors.ray_gpu.errors import NotRunningError
from executors.ray_gpu.overview import DeploymentInfo, Status
from rankcore import DeploymentStatus


@pytest.fixture
def app(tmp_path, monkeypatch):
    """An application, and a cluster in which everything goes well."""
    place = tmp_path / "an_app.py"
    place.write_text("from executors.ray_gpu import deployment\n@deployment\ndef f(): ...\napp = f.bind()\n")
    empty = Status(namespace="n", epoch=1, controller_pid=1, journal=None, deployments={})
    monkeypatch.setattr(connection, "connect", lambda **_: None)
    monkeypatch.setattr(api, "run", lambda *_, **__: None)
    monkeypatch.setattr(api, "status", lambda **_: empty)
    monkeypatch.setattr(api, "delete_all", lambda *_, **__: None)
    return f"{place}:app"


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
    monkeypatch.setattr(api, "status", raising(NotRunningError("the cluster does not answer: gone")))
    code, problem = ended(capsys, lambda: run(app, None, None, False, False))
    assert (code, "does not answer: gone" in problem) == (2, True)


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


def test_calls_that_outlast_the_stopping_are_one_line(app, monkeypatch, capsys):
    from executors.cli import run as run_module

    monkeypatch.setattr(run_module, "watch", lambda *_: None)
    monkeypatch.setattr(api, "delete_all", raising(TimeoutError("the controller has not answered delete within 60 s")))
    code, problem = ended(capsys, lambda: run(app, None, None, False, False))
    assert (code, "it goes on, see `rankcore status`" in problem) == (1, True)


def test_status_of_a_controller_that_does_not_answer_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(api, "status", raising(TimeoutError("the controller has not answered hello within 30 s")))
    assert ended(capsys, lambda: status(None, False))[0] == 2
