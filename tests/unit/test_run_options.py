"""`rankcore run`: arguments of builder functions, environments and folders; what cannot be meant is one line."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.cli import run as run_module
from executors.cli.app import app
from executors.cli.reloading import Reloading
from executors.cli.run import RunAsked
from executors.loading import LoadError, forget_modules_of, load_application
from tests.ray_local import eventually

MODULE = """
from executors.ray_gpu import deployment
from pydantic import BaseModel

@deployment
def f(): ...

class Wanted(BaseModel):
    replicas: int
    name: str = "typed"

app = f.bind()

def untyped(args):
    return f.options(name=args.get("name", "none")).bind()

def typed(wanted: Wanted):
    return f.options(name=wanted.name, num_replicas=wanted.replicas).bind()

def without():
    return f.bind()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "builders_of_a_user.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "")
    yield tmp_path
    sys.modules.pop("builders_of_a_user", None)


@pytest.fixture
def asked(folder, monkeypatch):
    """What the command was asked for, without a cluster."""
    found = []
    monkeypatch.setattr(run_module, "run", found.append)
    return found


def test_builder_functions_take_a_dict_or_a_pydantic_model(folder):
    assert load_application("builders_of_a_user:untyped", {"name": "mine"}).deployment.name == "mine"
    assert load_application("builders_of_a_user:untyped").deployment.name == "none"
    found = load_application("builders_of_a_user:typed", {"replicas": "3"}).deployment.settings
    assert (found["name"], found["num_replicas"]) == ("typed", 3)
    assert load_application("builders_of_a_user:without").deployment.name == "f"


@pytest.mark.parametrize(
    ("target", "args", "problem"),
    [
        ("typed", {"replicas": "many"}, "validation error for Wanted replicas Input should be a valid integer"),
        ("typed", {}, "validation error for Wanted replicas Field required"),
        ("without", {"a": "b"}, "without takes none"),
        ("app", {"a": "b"}, "takes no arguments: it is no function that returns an application"),
    ],
)
def test_wrong_arguments_are_one_line(folder, target, args, problem):
    with pytest.raises(LoadError) as raised:
        load_application(f"builders_of_a_user:{target}", args)
    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_is_not_taken_for_another_of_its_name(tmp_path, monkeypatch):
    """Replicas import it by its name: they would find the one or the other."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    source = "from executors.ray_gpu import deployment\n\n@deployment\ndef f(): ...\n\napp = f.bind()\n"
    for name in ("one/twice_named.py", "other/twice_named.py", "json.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(source)
    assert load_application(f"{tmp_path}/one/twice_named.py:app").deployment.name == "f"
    for name in ("other/twice_named.py", "json.py"):
        with pytest.raises(
            LoadError, match=rf"{name} cannot be imported: the module .* is another one here, of .*: rename the file"
        ):
            load_application(f"{tmp_path}/{name}:app")
    forget_modules_of(tmp_path)
    assert load_application(f"{tmp_path}/other/twice_named.py:app").deployment.name == "f"
    forget_modules_of(tmp_path)


def test_arguments_environment_and_folders_reach_the_run(asked, folder):
    (folder / "env.yaml").write_text("env_vars: {A: b}\nworking_dir: /elsewhere\n")
    line = "run m:app size=large n=2 --runtime-env env.yaml --working-dir . --app-dir . --route-prefix /x"
    assert CliRunner().invoke(app, line.split()).exit_code == 0
    (found,) = asked
    assert found.args == {"size": "large", "n": "2"}
    assert found.runtime_env == {"env_vars": {"A": "b"}, "working_dir": "."}
    assert (found.route_prefix, found.reload_of, sys.path[0]) == ("/x", None, str(folder))
    assert CliRunner().invoke(app, ["run", "m:app", "--reload"]).exit_code == 0
    assert asked[1].reload_of == Path()
    assert CliRunner().invoke(app, ["run", "m:app", "--reload", "--working-dir", "code", "--app-dir", "."]).exit_code == 0
    assert asked[2].reload_of == Path("code")
    assert asked[1].runtime_env is None


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("m:app size", "expected KEY=VALUE, found 'size'"),
        ("m:app a=1 a=2", "expected each key once, found 'a' again"),
        ("m:app --app-dir nowhere", "--app-dir: expected a folder, found 'nowhere'"),
        ("m:app --runtime-env nothing.yaml", "nothing.yaml: cannot be read"),
        ("m:app --runtime-env-json [1]", "--runtime-env-json: expected a mapping of names to values, found [1]"),
        ("m:app --runtime-env a --runtime-env-json {}", "expected --runtime-env or --runtime-env-json, found both"),
        ("m:app --reload --detach", "--reload is for a command that stays"),
        ("m:app --reload --working-dir s3://b/a.zip", "--reload: expected a folder as working_dir, found 's3://b/a.zip'"),
        ("apps.yaml --executor local", "FILE is for --executor ray"),
        ("m:app --executor local --reload", "--runtime-env, --working-dir and --reload are for --executor ray"),
    ],
)
def test_what_cannot_be_meant_is_one_line_and_nothing_is_run(asked, line, problem):
    done = CliRunner().invoke(app, ["run", *line.split()])
    assert (done.exit_code, asked) == (2, [])
    assert problem in done.stderr
    assert done.stderr.strip().count("\n") == 0


def test_what_changes_in_a_folder_is_loaded_and_deployed_anew_and_a_mistake_is_one_line(folder, capsys):
    wanted = RunAsked(target="builders_of_a_user:app")
    deployed = []
    assert load_application(wanted.target).deployment.name == "f"
    reloading = Reloading(folder, lambda changed: deployed.append(run_module.load_again(wanted, changed)))
    reloading.go_on(0.0)
    assert deployed == []
    (folder / "builders_of_a_user.py").write_text(MODULE.replace("app = f.bind()", "app = f.options(name='again').bind()"))
    eventually(lambda: reloading.go_on(0.01) or deployed, "the change is seen")
    assert deployed[0].deployment.name == "again"
    (folder / "builders_of_a_user.py").write_text("raise ValueError('half\\nwritten')")
    eventually(lambda: reloading.go_on(0.01) or "half" in capsys.readouterr().err, "the mistake is told")
    assert len(deployed) == 1
