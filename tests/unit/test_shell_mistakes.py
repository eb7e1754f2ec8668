"""Mistakes at the shell, in files and in users' code are one line each, and no traceback."""

import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from typer.testing import CliRunner

from executors.apps.file import AppsFile
from executors.cli import deploy, reloading, verbs
from executors.cli.app import app
from executors.loading import LoadError, arguments_for, forget_modules_of, in_one_line, load_application
from executors.ray_gpu.building import BuildError, WantedApplication, built
from executors.ray_gpu.errors import InvalidDeploymentError
from executors.ray_gpu.own_groups import group_wanted
from executors.simulator.scenario.errors import ScenarioError

MODULE = """
class Builder:
    def __call__(self, args):
        raise ValueError("two\\nlines")

builder = Builder()

def ends(args):
    raise SystemExit(3)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "a_wrong_builder.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield "a_wrong_builder"
    sys.modules.pop("a_wrong_builder", None)


@pytest.mark.parametrize("option", ["name", "namespace"])
def test_an_argument_of_the_function_is_no_option(option, monkeypatch):
    monkeypatch.setattr(verbs, "of_deployment", lambda *_, **__: pytest.fail("it was asked"))
    found = CliRunner().invoke(app, ["update", "a/M", f"{option}=x"])
    assert (found.exit_code, found.stderr.count("\n")) == (2, 1)
    assert f"found '{option}'" in found.stderr


def test_options_that_are_called_as_our_own_arguments_are_sent_on(monkeypatch):
    monkeypatch.setattr(verbs, "_meant", lambda name, _: name)
    monkeypatch.setattr(verbs, "_tell", lambda *_: None)
    asked = []
    api = SimpleNamespace(update=lambda *_, **options: asked.append(options))
    monkeypatch.setattr(verbs, "api_of", lambda _: api)
    found = CliRunner().invoke(app, ["update", "a/M", "said=1", "verb=2"])
    assert (found.exit_code, asked) == (0, [{"said": 1, "verb": 2, "namespace": None}])


def test_an_option_that_is_said_twice_is_refused(monkeypatch):
    monkeypatch.setattr(verbs, "of_deployment", lambda *_, **__: pytest.fail("it was asked"))
    found = CliRunner().invoke(app, ["update", "a/M", "max_surge=1", "max_surge=2"])
    assert found.exit_code == 2
    assert "expected max_surge=VALUE once" in found.stderr


def test_what_another_writer_has_deleted_meanwhile_is_said_to_be_gone(capsys):
    nothing = SimpleNamespace(deployments={})
    way = deploy.Wanted(plan=None, take=None, names=lambda _: ["a/M"], status=lambda: nothing)
    deploy._tell(way, False, True)
    assert capsys.readouterr().out == "a/M  gone\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected a list of applications, found an empty file"),
        ("applications: []\n---\na: 1\n", "expected one list of applications in a file, found a second document"),
    ],
)
def test_a_file_of_applications_is_called_one(tmp_path, text, problem):
    (tmp_path / "apps.yaml").write_text(text)
    with pytest.raises(ScenarioError, match=problem):
        AppsFile.read(tmp_path / "apps.yaml")


@pytest.mark.parametrize("labels", [5, "x", {"zone": "a"}])
def test_labels_of_bundles_that_are_no_list_are_refused_by_name(labels):
    settings = {"placement_group_bundles": [{"CPU": 1}], "placement_group_bundle_label_selector": labels}
    with pytest.raises(InvalidDeploymentError, match=r"^placement_group_bundle_label_selector must be a list of dicts"):
        group_wanted(settings, {})


@pytest.mark.parametrize(("name", "problem"), [("builder", "ValueError: two lines"), ("ends", "SystemExit: 3")])
def test_a_builder_that_raises_is_one_line(module, name, problem):
    who = {"builder": "Builder"}.get(name, name)
    with pytest.raises(BuildError) as refused:
        built(WantedApplication(name="a", import_path=f"{module}:{name}"), "n")
    assert str(refused.value) == f"{who} raised {problem}"
    with pytest.raises(LoadError) as refused:
        load_application(f"{module}:{name}")
    assert str(refused.value).endswith(problem)
    assert "\n" not in str(refused.value)


def test_an_object_that_takes_no_arguments_is_named_by_its_class():
    class Nothing:
        def __call__(self): ...

    with pytest.raises(LoadError, match="Nothing takes none"):
        arguments_for(Nothing(), {"a": 1})


def test_modules_of_a_folder_are_forgotten_and_ours_stay_where_it_has_our_checkout(module, tmp_path, monkeypatch):
    __import__(module)
    ours = SimpleNamespace(__file__=str(tmp_path / "executors" / "made_up.py"))
    monkeypatch.setitem(sys.modules, "executors.made_up", ours)
    forget_modules_of(tmp_path)
    assert module not in sys.modules
    assert sys.modules["executors.made_up"] is ours


def test_whatever_a_reload_raises_is_one_line(tmp_path, monkeypatch, capsys):
    def deploys(_):
        raise ValueError("two\nlines")

    there = reloading.Reloading(tmp_path, deploys)
    monkeypatch.setattr(there, "_changes", iter([{("modified", str(tmp_path / "x.py"))}]))
    there.go_on(0.0)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert "ValueError: two lines; what was deployed last goes on" in said[1]
    assert in_one_line(ValueError("a"), "m") == "m: ValueError: a"
