"""The command takes the options of Ray Serve's command, and they mean the same; nothing runs here."""

import os

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from typer.testing import CliRunner

from executors.cli import config as config_command
from executors.cli import run as run_command
from executors.cli import start as start_command
from executors.cli import verbs
from executors.cli.app import app


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in ("RAY_ADDRESS", "RAY_DASHBOARD_ADDRESS"):  # a command sets them, and each test begins without
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def typed(*words, status=0, **options):
    done = CliRunner().invoke(app, words, **options)
    assert done.exit_code == status, done.output
    return done.stdout if status == 0 else done.stderr


@pytest.mark.parametrize(
    ("options", "leaves"),
    [([], False), (["--blocking"], False), (["--non-blocking"], True), (["--detach"], True)],
)
def test_run_stays_unless_it_is_told_not_to_block(options, leaves, monkeypatch):
    asked = []
    monkeypatch.setattr(run_command, "run", asked.append)
    typed("run", "shop:app", *options)
    assert [each.detach for each in asked] == [leaves]


def test_run_that_does_not_block_cannot_reload():
    assert "--reload is for a command that stays" in typed("run", "shop:app", "--non-blocking", "--reload", status=2)


@pytest.mark.parametrize("words", [["shop"], ["--name", "shop"], ["-n", "shop"], ["shop", "-n", "shop"]])
def test_an_application_is_named_by_an_option_or_by_the_argument(words, monkeypatch):
    asked = []
    monkeypatch.setattr(config_command, "config", lambda name, *_: asked.append(name))
    monkeypatch.setattr(verbs, "status", lambda namespace, as_json, name: asked.append(name))
    typed("config", *words)
    typed("status", *words)
    assert asked == ["shop", "shop"]


@pytest.mark.parametrize("command", ["config", "status"])
def test_two_names_for_one_are_refused(command):
    assert "--name: expected what the argument says, 'a', found 'b'" in typed(command, "a", "--name", "b", status=2)


@pytest.mark.parametrize(
    ("options", "tells"), [([], True), (["--grpc-enable-reflection"], True), (["--grpc-disable-reflection"], False)]
)
def test_reflection_of_grpc_is_on_unless_it_is_turned_off(options, tells, monkeypatch):
    asked = []
    monkeypatch.setattr(start_command, "start", lambda http, grpc, *_: asked.append(grpc))
    typed("start", "--grpc-servicer-functions", "m.add_to_server", *options)
    typed("start", *options)
    assert asked == [{"port": 9000, "servicer_functions": ["m.add_to_server"], "enable_reflection": tells}, None]


@pytest.mark.parametrize(("options", "where"), [([], "EveryNode"), (["--proxy-location", "HeadOnly"], "HeadOnly")])
def test_proxies_are_on_every_node_unless_start_says_otherwise(options, where, monkeypatch):
    asked = []
    monkeypatch.setattr(start_command, "start", lambda http, *_: asked.append(http))
    typed("start", *options)
    assert asked == [{"host": "127.0.0.1", "port": 8000, "location": where}]


def test_the_address_of_the_cluster_has_a_short_option(monkeypatch):
    monkeypatch.setattr(start_command, "start", lambda *_: None)
    typed("start", "-a", "10.0.0.1:6379")
    assert os.environ["RAY_ADDRESS"] == "10.0.0.1:6379"
