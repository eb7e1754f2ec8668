"""Executors are found by name (EP1 to EP3): each that is installed, no other is imported, and what is broken is said."""

import json
import sys
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from typer.testing import CliRunner

from executors import plugin as plugins
from executors.cli.app import app
from executors.plugin import BUILT_IN, GROUP, OURS, PluginError, checked, named, options_of
from tests.distributions import install, plugin

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


@pytest.fixture
def site(tmp_path, monkeypatch):
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    before = set(sys.modules)
    yield folder
    for module in set(sys.modules) - before:
        if getattr(sys.modules[module], "__file__", None) is not None and str(folder) in sys.modules[module].__file__:
            del sys.modules[module]


def said(*arguments):
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.stdout, done.stderr


def test_our_own_are_the_entry_points_of_the_distribution():
    assert PROJECT["entry-points"][GROUP] == BUILT_IN
    assert PROJECT["name"] == OURS


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_our_own_are_found_whatever_the_metadata_of_the_checkout_say(name, monkeypatch):
    monkeypatch.setattr(plugins.metadata, "entry_points", lambda group: ())
    assert named(name)[1].api == 1


def test_one_of_another_distribution_is_found_beside_our_own(site):
    install(site, "rankcore-nomad", executors={"nomad": "a_nomad:PLUGIN"}, modules={"a_nomad": plugin()})
    found, one = named("nomad")
    assert (found.distribution, found.version, one.api) == ("rankcore-nomad", "0.3", 1)
    assert [each.name for each in plugins.found()] == ["local", "nomad", "ray", "slurm"]


@pytest.mark.parametrize("command", [("status",), ("run", "models:app"), ("scale", "a", "1"), ("cordon", "a")], ids=" ".join)
def test_a_name_that_nobody_has_is_refused_with_those_there_are(site, command):
    install(site, "rankcore-nomad", executors={"nomad": "a_nomad:PLUGIN"}, modules={"a_nomad": plugin()})
    status, _, stderr = said(*command, "--executor", "nomda")
    assert (status, stderr) == (2, "rankcore: error: no executor 'nomda': installed are local, nomad, ray, slurm\n")


@pytest.mark.parametrize("name", ["nomad", "local"])
def test_a_name_that_two_distributions_have_is_refused_and_both_are_named(site, name):
    install(site, "rankcore-nomad", executors={name: "a_nomad:PLUGIN"}, modules={"a_nomad": plugin()})
    if name == "nomad":
        install(site, "other", version="7", executors={name: "a_nomad:PLUGIN"})
    status, _, stderr = said("status", "--executor", name)
    others = "other 7 and rankcore-nomad 0.3" if name == "nomad" else "rankcore 0.1.0 and rankcore-nomad 0.3"
    assert (status, stderr) == (2, f"rankcore: error: executor {name!r} is of {others}: uninstall one of them\n")
    assert named("ray")[1].api == 1, "others go on working"


@pytest.mark.parametrize(
    ("module", "problem"),
    [
        ("raise RuntimeError('no\\nlicence')", "cannot be imported: RuntimeError: no licence"),
        ("import nowhere_at_all", "cannot be imported: ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("OTHER = 1", "cannot be imported: AttributeError: module 'a_nomad' has no attribute 'PLUGIN'"),
        ("PLUGIN = 'none'", ": expected an ExecutorPlugin at a_nomad:PLUGIN, found str"),
        (plugin(api=2), "speaks api 2, this rankcore 1"),
    ],
)
def test_one_that_is_broken_is_one_line_with_its_distribution_and_others_work(site, module, problem):
    install(site, "rankcore-nomad", executors={"nomad": "a_nomad:PLUGIN"}, modules={"a_nomad": module})
    line = f"executor 'nomad' (rankcore-nomad 0.3){'' if problem.startswith(':') else ' '}{problem}"
    status, _, stderr = said("run", "models:app", "--executor", "nomad")
    assert (status, stderr) == (2, f"rankcore: error: {line}\n")
    status, stdout, _ = said("executors")
    shown = stdout.splitlines()
    assert status == 0
    assert [each.split()[:2] for each in shown] == [
        ["name", "distribution"],
        ["local", "rankcore"],
        ["nomad", "rankcore-nomad"],
        ["ray", "rankcore"],
        ["slurm", "rankcore"],
    ]
    assert shown[2].endswith(f"-    broken: {line}")
    assert shown[1].split()[3:5] == ["1", "ok"]


@pytest.mark.parametrize("name", ["Nomad", "9lives", "a_b", "a" * 33])
def test_a_name_that_no_executor_may_have_is_shown_as_broken_and_is_none(site, name):
    install(site, "odd", executors={name: "a_nomad:PLUGIN"}, modules={"a_nomad": plugin()})
    shown = {each["name"]: each for each in json.loads(said("executors", "--json")[1])}
    assert shown[name]["api"] is None
    assert "expected a name of a to z, 0 to 9 and -" in shown[name]["problem"]
    with pytest.raises(PluginError, match=r"installed are local, ray, slurm$"):
        named(name)


def test_only_what_is_named_is_imported(site):
    install(site, "one", executors={"one": "a_one:PLUGIN"}, modules={"a_one": plugin()})
    install(site, "two", executors={"two": "a_two:PLUGIN"}, modules={"a_two": plugin()})
    named("one")
    assert ("a_one" in sys.modules, "a_two" in sys.modules) == (True, False)


def test_help_reads_no_entry_point(monkeypatch):
    def read(**_):
        raise AssertionError("entry points are read")

    monkeypatch.setattr("importlib.metadata.entry_points", read)
    for arguments in (["--help"], ["run", "--help"], ["status", "--help"], ["executors", "--help"]):
        assert CliRunner().invoke(app, arguments).exit_code == 0


def test_what_cannot_run_here_says_why_and_begins_nothing(site):
    install(site, "s", executors={"nomad": "a_nomad:PLUGIN"}, modules={"a_nomad": plugin(check="no nomad on PATH")})
    status, _, stderr = said("run", "models:app", "--executor", "nomad")
    assert (status, stderr) == (2, "rankcore: error: executor 'nomad' (s 0.3) cannot run here: no nomad on PATH\n")
    assert said("executors")[1].splitlines()[2].split(maxsplit=4)[4] == "no nomad on PATH"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    partition: str = "all"
    poll_s: float = 1.0
    nodes: tuple[str, ...] = ()


TAKES = SimpleNamespace(options=Options)
NONE = SimpleNamespace(options=msgspec.defstruct("None_", []))


def test_options_are_what_their_types_make_of_them():
    found = options_of("nomad", TAKES, ("partition=gpu=1", "poll_s=0.5", "nodes=a,b"))
    assert found == Options(partition="gpu=1", poll_s=0.5, nodes=("a", "b"))
    assert options_of("nomad", TAKES, ()) == Options()


@pytest.mark.parametrize(
    ("plugin", "said", "problem"),
    [
        (TAKES, ("partiton=gpu",), "NAME=VALUE with one of partition, poll_s, nodes, found 'partiton=gpu'"),
        (TAKES, ("partition",), "NAME=VALUE with one of partition, poll_s, nodes, found 'partition'"),
        (TAKES, ("poll_s=soon",), "--option poll_s: Expected `float`, got `str`, found 'soon'"),
        (TAKES, ("poll_s=1", "poll_s=2"), "--option poll_s: expected it once, found it again"),
        (NONE, ("a=b",), "expected none, since it has no options, found 'a=b'"),
        (SimpleNamespace(options=msgspec.defstruct("Needs", [("account", str)])), (), "Missing required argument 'account'"),
    ],
)
def test_options_that_are_not_what_they_may_be_are_refused(plugin, said, problem):
    with pytest.raises(PluginError) as caught:
        options_of("nomad", plugin, said)
    assert problem in str(caught.value)


def test_options_of_ray_are_its_own(monkeypatch):
    status, _, stderr = said("run", "models:app", "--option", "a=b")
    assert (status, "expected none, since it has no options" in stderr) == (2, True)


def test_a_check_that_hangs_or_fails_is_no_yes(monkeypatch):
    monkeypatch.setattr(plugins, "CHECK_S", 0.02)
    assert checked(SimpleNamespace(check=lambda _: time.sleep(0.2)), None) == "its check has not answered within 0.02 s"
    monkeypatch.setattr(plugins, "CHECK_S", 10.0)
    assert "its check has failed: ZeroDivisionError" in checked(SimpleNamespace(check=lambda _: 1 / 0), None)


def test_what_has_a_controller_of_its_own_is_not_run_here(site):
    text = plugin().replace(", open=lambda *_: None", "")
    install(site, "s", executors={"nomad": "a_nomad:PLUGIN"}, modules={"a_nomad": text})
    status, _, stderr = said("run", "models:app", "--executor", "nomad")
    assert (status, "has a controller of its own, and no `open`" in stderr) == (2, True)
