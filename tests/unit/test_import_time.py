"""An import of users' code that hangs ends the command: one line says which one, where it waits, and what to do."""

import os
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from typer.testing import CliRunner

from executors import import_time
from executors.apps import packing
from executors.cli import deploy as deploying
from executors.cli.app import app
from executors.cli.backends import REST_ADDRESS
from executors.cli.reloading import Reloading
from executors.cli.run import RunAsked, load_again
from executors.import_time import within
from executors.loading import LoadError
from executors.ray_gpu import connection
from executors.ray_gpu.building import BuildError, WantedApplication, built

LONG_S = 60
HANGS = f"import time\ntime.sleep({LONG_S})\n"
BUILDER = f"import time\ndef build():\n    time.sleep({LONG_S})\n"
CATCHES_ALL = f"import time\nwhile True:\n    try:\n        time.sleep({LONG_S})\n    except BaseException:\n        pass\n"
THREAD = f"import threading, time\nthreading.Thread(target=time.sleep, args=({LONG_S},)).start()\ntime.sleep({LONG_S})\n"
FILE = "applications:\n  - name: shop\n    import_path: an_import:app\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(connection, "connect", lambda **_: None)
    (tmp_path / "apps.yaml").write_text(FILE)
    yield tmp_path
    sys.modules.pop("an_import", None)


@pytest.mark.parametrize(("code", "name", "line"), [(HANGS, "app", 2), (BUILDER, "build", 3)])
@pytest.mark.parametrize(
    "command",
    [
        ("build", "an_import:{}"),
        ("deploy", "an_import:{}"),
        ("run", "an_import:{}"),
        ("run", "--executor", "local", "an_import:{}"),
    ],
)
def test_a_command_ends_in_one_line_that_names_the_import_and_where_it_waits(folder, command, code, name, line):
    (folder / "an_import.py").write_text(code)
    arguments = [each.format(name) for each in command]
    done = CliRunner().invoke(app, [*arguments, "--import-timeout", "0.3"])
    assert done.exit_code == 2
    assert done.stdout == ""
    said = f"rankcore: error: an_import:{name} is not imported within 0.3 s: it waits at {folder}/an_import.py:{line}; "
    assert done.stderr.startswith(said)
    assert "`--import-timeout SECONDS` gives it more" in done.stderr
    assert done.stderr.count("\n") == 1
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_of_a_file_the_error_has_its_place_in_it(folder):
    (folder / "an_import.py").write_text(HANGS)
    done = CliRunner().invoke(app, ["deploy", "apps.yaml", "--import-timeout", "0.3"])
    assert done.exit_code == 2
    assert done.stderr.startswith("rankcore: error: applications[0].import_path: an_import:app is not imported within 0.3 s")
    assert done.stderr.endswith("(apps.yaml:3)\n")


def test_what_is_imported_in_time_is_not_disturbed_later(folder):
    (folder / "an_import.py").write_text("app = 1\n")
    with pytest.raises(BuildError, match="must be what bind"):
        built(WantedApplication(name="a", import_path="an_import:app"), "n", import_timeout_s=0.05)
    time.sleep(0.1)  # no condition to wait for: what must not come is an alarm


def test_a_module_that_was_given_up_is_imported_anew(folder):
    (folder / "an_import.py").write_text(HANGS)
    with pytest.raises(LoadError), within(0.2, "an_import"):
        __import__("an_import")
    (folder / "an_import.py").write_text("app = 'mended, and of another length'\n")
    assert __import__("an_import").app.startswith("mended")


def test_a_reload_that_hangs_is_one_line_and_what_was_deployed_goes_on(folder, capsys, monkeypatch):
    (folder / "an_import.py").write_text(HANGS)
    asked = RunAsked(target="an_import:app", import_timeout_s=0.2)
    reloading = Reloading(folder, lambda changed: load_again(asked, changed))
    monkeypatch.setattr(reloading, "_changes", iter([{(1, "an_import.py")}]))
    reloading.go_on(0.0)
    assert capsys.readouterr().err.endswith("; what was deployed last goes on\n")


def test_who_waits_is_told_how_long_it_has_been(folder, capsys, monkeypatch):
    monkeypatch.setattr(import_time, "TELL_EVERY_S", 0.05)
    (folder / "an_import.py").write_text(HANGS)
    with pytest.raises(LoadError), within(0.3, "an_import:app"):
        __import__("an_import")
    assert "importing an_import:app ... 0 s\n" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["0", "-1", "nan", "inf", "long", "1e99"])
def test_a_limit_that_is_no_time_is_refused(wrong):
    done = CliRunner().invoke(app, ["build", "an_import:app", f"--import-timeout={wrong}"])
    assert done.exit_code == 2
    assert f"expected a number of seconds above 0, found {wrong!r}" in done.stderr


def test_a_limit_for_what_a_rest_server_imports_is_refused(monkeypatch):
    monkeypatch.setenv(REST_ADDRESS, "")  # so that what the command sets is undone
    done = CliRunner().invoke(app, ["deploy", "an_import:app", "--import-timeout", "5", "--address", "http://127.0.0.1:1"])
    assert done.exit_code == 2
    assert "--import-timeout is for a Ray cluster: a REST server imports the code, and has its own limit" in done.stderr


@pytest.mark.parametrize("command", ["deploy", "run", "build"])
def test_the_limit_is_120_s_where_none_is_said(command, folder, monkeypatch):
    limits = []

    def refusing(limit, _):
        limits.append(limit)
        raise LoadError("enough")

    monkeypatch.setattr(import_time, "within", refusing)
    CliRunner().invoke(app, [command, "an_import:app"])
    assert limits == [120]


@pytest.mark.parametrize(
    ("code", "said"), [(CATCHES_ALL, "is not imported within 0.3 s; `--import-timeout"), (THREAD, "it waits at ")]
)
def test_code_that_catches_everything_or_leaves_threads_ends_too(folder, code, said):
    (folder / "an_import.py").write_text(code)
    program = "from executors import import_time; import_time.GRACE_S = 0.2; from executors.cli import main; main()"
    path = os.pathsep.join([str(folder), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", program, "build", "an_import:app", "--import-timeout", "0.3"],
        capture_output=True,
        text=True,
        timeout=LONG_S / 2,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_each_application_of_a_file_has_the_limit_of_its_own(folder, monkeypatch):
    limits = []
    monkeypatch.setattr(packing, "built", lambda *_, import_timeout_s, **__: limits.append(import_timeout_s) or ())
    (folder / "apps.yaml").write_text(FILE + "  - name: b\n    route_prefix: /b\n    import_path: an_import:b\n")
    asked = deploying.DeployAsked("apps.yaml", import_timeout_s=7.0)
    deploying._wanted_on_ray(asked, True, True)
    assert limits == [7.0, 7.0]
