"""`rankcore deploy`, `config`, `status`, `update`, `stop`, `logs`, `notes` and the like, on one cluster."""

import contextlib
import itertools
import json
import os
import subprocess

import pytest
import yaml
from typer.testing import CliRunner

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.cli.app import app
from executors.engine.replay import replay
from executors.ray_gpu.building import OPTIONS
from tests.free_ports import free_ports
from tests.ray_local import eventually

pytestmark = pytest.mark.slow

MODULE = """
import sys
from executors import ray_gpu as serve

@serve.deployment(ray_actor_options={"num_cpus": 0})
class Translator:
    def __init__(self):
        print("loading the model", flush=True)
        print("no GPU here", file=sys.stderr, flush=True)
    def reconfigure(self, config):
        self.language = config["language"]
    def __call__(self, request=None):
        return self.language

app = Translator.bind()

def build(args):
    return Translator.options(name=args["name"], user_config={"language": "french"}).bind()
"""
FILE = """\
proxy_location: HeadOnly
http_options:
  host: 127.0.0.1
  port: PORT
grpc_options:
  port: 9000
  grpc_servicer_functions: []
applications:
  - name: text
    route_prefix: /text
    import_path: apps_of_a_shell:app
    runtime_env: {}
    deployments:
      - name: Translator
        num_replicas: 2
        max_ongoing_requests: 4
        user_config: {language: french}
        ray_actor_options: {num_cpus: 0}
        graceful_shutdown_timeout_s: 5.0
  - name: built
    route_prefix: /built
    import_path: apps_of_a_shell:build
    args: {name: Made}
"""
"""As `serve build` and the documentation of Ray Serve write one."""
LOGGING = """\
logging_config: {encoding: TEXT, log_level: INFO, logs_dir: null, enable_access_log: true}
"""
ON_BUNDLES = """\
applications:
  - name: placed
    import_path: apps_of_a_shell:app
    deployments:
      - name: Translator
        user_config: {language: french}
        static_placement: {placement_group: GROUP, replica_bundle_mapping: {0: [1], 1: [0]}}
"""


@pytest.fixture
def shell(serve, tmp_path, monkeypatch):
    """Type a line, and have exit status and output; what is asked runs in this process."""
    (tmp_path / "apps_of_a_shell.py").write_text(MODULE)
    text = FILE.replace("PORT", str(free_ports(1)[0]))
    (tmp_path / "apps.yaml").write_text(LOGGING + text if "logging_config" in OPTIONS else text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def type_in(*words, status=0):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == status, done.output
        return done.stdout if status == 0 else done.stderr

    return type_in


def test_a_file_of_ray_serves_form_is_deployed_told_changed_and_taken_away(shell, serve, tmp_path):
    schema = pytest.importorskip("ray.serve.schema", reason="Ray Serve is not installed: pip install 'ray[serve]'")
    schema.ServeDeploySchema.model_validate(yaml.safe_load((tmp_path / "apps.yaml").read_text()))
    plan = [
        "new       built/Made: 1 would start (rank 0)",
        "new       text/Translator: 2 would start (rank 0, rank 1)",
    ]
    assert shell("deploy", "apps.yaml", "--dry-run").splitlines() == plan
    done = shell("deploy", "apps.yaml", "--wait").splitlines()
    assert done[:2] == plan
    assert [line.split(",")[0] for line in done[2:]] == ["text/Translator HEALTHY", "built/Made HEALTHY"]
    assert shell("deploy", "apps.yaml", "--dry-run") == "nothing would change\n"
    before = serve.status()
    assert json.loads(shell("deploy", "apps.yaml", "--json")) == {
        "plan": {"changes": [], "weights": []},
        "revision_before": before.revision,
        "revision": before.revision,
    }

    # what is in force: a deploy of it changes nothing, and a verb is seen in it
    (tmp_path / "found.yaml").write_text(shell("config"))
    assert shell("deploy", "found.yaml", "--dry-run") == "nothing would change\n"
    text = next(each for each in serve.config_in_force()["applications"] if each["name"] == "text")
    whole = yaml.safe_load((tmp_path / "apps.yaml").read_text())
    wanted = whole["applications"][0]
    assert (text["import_path"], text["route_prefix"]) == (wanted["import_path"], "/text")
    shell("scale", "Translator", "3")
    found = json.loads(shell("config", "text", "--json"))["applications"][0]["deployments"][0]
    assert (found["num_replicas"], found["max_ongoing_requests"]) == (3, 4)

    # two writers: the second is told the revision that won
    revision = serve.status().revision
    problem = shell("deploy", "apps.yaml", "--expect", before.revision, status=1)
    assert problem.startswith(
        f"rankcore: error: revision must be {revision}, which is in force, got {before.revision}: another"
    )

    # who the file does not name any more goes
    (tmp_path / "fewer.yaml").write_text(yaml.safe_dump({**whole, "applications": [wanted]}))
    assert shell("deploy", "fewer.yaml", "--no-prune", "--dry-run") == "nothing would change\n", (
        "a scale outlasts the same file"
    )
    assert "deleted   built/Made: 1 would stop (built/Made#1.0)" in shell("deploy", "fewer.yaml", "--wait").splitlines()
    eventually(lambda: list(serve.status().applications) == ["text"], "the application that is not named is gone")

    # status, update, stop, logs, notes
    shown = " ".join(shell("status").split())
    for words in ("text/Translator HEALTHY", "route /text -> text", "proxy 127.0.0.1:", f"revision {serve.status().revision}"):
        assert words in shown
    shell("update", "text/Translator", "user_config={language: german}", "max_ongoing_requests=7")
    handle = serve.get_app_handle("text")
    eventually(lambda: handle.remote().result() == "german", "the new user_config is there")
    assert json.loads(shell("config", "--json"))["applications"][0]["deployments"][0]["max_ongoing_requests"] == 7
    lines = shell("logs", "text/Translator#0").splitlines()
    assert [line.partition("  ")[0].partition(" ")[2] for line in lines if "loading the model" in line] == ["rank 0"]
    printed = [json.loads(line) for line in shell("logs", "text", "--json").splitlines()]
    assert {(each["rank"], each["stream"]) for each in printed if "no GPU here" in each["text"]} == {
        (0, "err"),
        (1, "err"),
        (2, "err"),
    }
    assert "has no rank or replica '9'; it has ranks 0, 1, 2" in shell("logs", "Translator#9", status=2)
    replica_id = serve.status().deployments["text/Translator"].ranks[1]
    told = json.loads(shell("stop", replica_id, "--json"))
    assert list(told["deployments"]) == ["text/Translator"]
    eventually(lambda: serve.status().deployments["text/Translator"].ranks.get(1) not in (None, replica_id), "it is replaced")
    assert f"{replica_id}  stop chosen" in shell("notes", "text")
    notes = [json.loads(line) for line in shell("notes", "--json").splitlines()]
    assert {"ApplyRequested", "ScaleRequested", "StopRequested"} <= {each["cause"] for each in notes}
    assert shell("defragment") == "nobody waits\n"
    assert json.loads(shell("delete", "text", "--json")) == {"deleted": "text"}


def test_a_file_puts_ranks_on_bundles_of_a_group_that_it_names(shell, serve, tmp_path):
    import ray

    place = tmp_path / "placed.yaml"
    place.write_text(ON_BUNDLES)
    problem = shell("deploy", "placed.yaml", status=2)
    where = "applications[0].deployments[0].static_placement"
    no_group = "static_placement.placement_group: there is no placement group 'GROUP'"
    assert problem == f"rankcore: error: {where}.placement_group: {no_group} (placed.yaml:7)\n"
    group = ray.util.placement_group([{"CPU": 0.01}, {"CPU": 0.01}], name="a_group_of_a_shell")
    try:
        place.write_text(ON_BUNDLES.replace("GROUP", "a_group_of_a_shell"))
        assert "placed/Translator HEALTHY, 2 of 2 running" in shell("deploy", "placed.yaml", "--wait")
        found = serve.config_in_force()["applications"][0]["deployments"][0]
        assert found["static_placement"]["placement_group"] == "a_group_of_a_shell"
        (tmp_path / "found.yaml").write_text(shell("config"))
        assert shell("deploy", "found.yaml", "--dry-run") == "nothing would change\n"
        place.write_text(ON_BUNDLES.replace("GROUP", "a_group_of_a_shell").replace("1: [0]", "1: [1]"))
        assert f"error: {where}: static_placement: " in shell("deploy", "placed.yaml", status=2)
    finally:
        ray.util.remove_placement_group(group)


HANGS = """\
applications:
  - name: stuck
    import_path: hangs:app
    runtime_env: {env_vars: {PYTHONPATH: FOLDER}}
"""


def test_an_import_that_hangs_on_the_cluster_ends_and_a_downscale_stops_whom_it_was_told_to(shell, serve, tmp_path):
    (tmp_path / "hangs.py").write_text("import time\ntime.sleep(600)\n")
    (tmp_path / "hangs.yaml").write_text(HANGS.replace("FOLDER", str(tmp_path)))
    said = shell("deploy", "hangs.yaml", "--import-timeout", "2", status=2).splitlines()[-1]
    assert f"hangs:app is not imported within 2 s: it waits at {tmp_path}/hangs.py:2; `--import-timeout SECONDS`" in said
    assert said.endswith("(hangs.yaml:3)")
    shell("deploy", "apps.yaml", "--wait")
    first, second = (each.replica_id for each in serve.status().deployments["text/Translator"].replicas)
    said = shell("scale", "text/Translator", "1", "--stop-first", "text/Translator#9.9", status=2)
    assert said.startswith("rankcore: error: text/Translator has no replica 'text/Translator#9.9'")
    shell("scale", "text/Translator", "1", "--stop-first", first)

    def left():
        info = serve.status().deployments["text/Translator"]
        return info.status == "HEALTHY" and [(each.replica_id, each.rank.rank) for each in info.replicas]

    assert eventually(lambda: left() if len(left() or ()) == 1 else None, "one is left") == [(second, 0)]


def test_a_journal_whose_disk_was_full_is_taken_up_again_and_status_says_so_meanwhile(shell, serve, small_disk):
    path = small_disk / "run.jsonl"
    serve.start(journal=str(path))
    shell("deploy", "apps.yaml", "--wait")
    with open(small_disk / "ballast", "ab", buffering=0) as ballast, contextlib.suppress(OSError):
        while ballast.write(b"x" * 512):
            pass
    numbers = itertools.cycle((1, 2))

    def change():
        serve.scale("text/Translator", next(numbers))
        return serve.status()

    found = eventually(lambda: (now := change()).journal_problem and now, "the journal cannot be written")
    assert found.journal is None
    problem = f"{path} cannot be written: No space left on device"
    assert f"journal {problem}" in " ".join(shell("status").split())
    (small_disk / "ballast").unlink()
    found = eventually(lambda: (now := change()).journal and now, "it is written again")
    assert (found.journal, found.journal_problem) == (str(path), None)
    replayed = replay(path)
    assert replayed.difference is None
    assert "steps were not written: No space left on device" in replayed.warning


@pytest.fixture
def small_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("only who may mount a file system can have one that is full")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)
