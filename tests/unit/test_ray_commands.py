"""What `rankcore deploy`, `status`, `scale`, `evict` and `delete` say, without a cluster."""

import io
import re

import attrs
import pytest
from rich.console import Console
from typer.testing import CliRunner

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.cli.app import app
from executors.cli.ray_view import ROWS_MAX, line, lines_of_node, summary, view
from executors.ray_gpu.messages import CallStatus
from executors.ray_gpu.overview import (
    CordonedNode,
    DeploymentInfo,
    NodeMemoryStatus,
    ReplicaOnNode,
    Status,
    WorkerStatus,
)
from rankcore import DeploymentStatus

MODULE = """
from executors import ray_gpu as serve

@serve.deployment
class Tiny:
    pass

app = Tiny.bind()
apps = [Tiny.options(name="a").bind(), Tiny.options(name="b").bind()]
number = 3
"""
FILE = """\
applications:
  - import_path: models_of_a_user:app
    deployments:
      - name: Tiny
        num_replicas: two
"""
NODE = NodeMemoryStatus(
    node_id="a047857d93c41bbc", gpus=((20_000_000, 3_200_000),), cpu_bytes=20_000_000, cpu_free_bytes=11_600_000
)


@pytest.fixture
def rankcore(tmp_path, monkeypatch):
    """The command in a folder of its own, from which no cluster is found."""
    (tmp_path / "models_of_a_user.py").write_text(MODULE)
    (tmp_path / "apps.yaml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return lambda *arguments: CliRunner().invoke(app, arguments)


def worker(level="HOT", phase="serving", **fields):
    found = WorkerStatus(
        worker_id="shop/tiny@1#1.0",
        level=level,
        phase=phase,
        node_id="a047857d93c41bbc",
        gpus=(0,),
        gpu_bytes=(16_800_000,),
        cpu_bytes=0,
        percent=None,
        replica_id=None,
        version="1",
        because="it fits on GPU 0, from disk",
    )
    return attrs.evolve(found, **fields)


def info(*workers, **fields):
    found = DeploymentInfo(
        name="shop/tiny",
        status=DeploymentStatus.HEALTHY,
        message="",
        world_size=1,
        version="1",
        class_name="m.Tiny",
        app_name="shop",
        replicas=(),
        has_residency=True,
        workers=workers,
    )
    return attrs.evolve(found, **fields)


def shown(found):
    status = Status(namespace="n", epoch=1, controller_pid=1, journal=None, deployments={found.name: found}, memory=(NODE,))
    out = io.StringIO()
    Console(file=out, width=160).print(view(status))
    return out.getvalue()


def test_a_journal_that_cannot_be_written_is_said():
    problem = "/j/run.jsonl cannot be written: No space left on device; it is taken up again once it can be"
    status = Status(namespace="n", epoch=1, controller_pid=1, journal=None, deployments={}, journal_problem=problem)
    out = io.StringIO()
    Console(file=out, width=160).print(view(status))
    assert f"journal {problem}\n" in out.getvalue()


@pytest.mark.parametrize(
    "arguments",
    [
        ("deploy", "models_of_a_user:app"),
        ("deploy", "models_of_a_user:apps", "--dry-run"),
        ("scale", "tiny", "1"),
        ("evict", "tiny"),
        ("delete", "tiny"),
        ("cordon", "n"),
        ("uncordon", "n"),
        ("drain", "n", "--deadline", "120s", "--reason", "new driver"),
        ("replace", "m#1.0", "m#1.1", "--deadline", "2m"),
        ("status",),
        ("status", "tiny"),
    ],
)
def test_without_a_cluster_each_command_says_how_to_start_one_and_starts_none(rankcore, arguments):
    done = rankcore(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("rankcore: error: Ray is not running: start it with `ray start --head`")


def test_where_is_status_and_says_so(rankcore):
    done = rankcore("where", "tiny")
    warning, error = done.stderr.splitlines()
    assert warning == "rankcore: warning: `rankcore where` goes with the next release: it is `rankcore status` now"
    assert error.startswith("rankcore: error: Ray is not running")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("drain", "n", "--deadline", "soon"), "expected a time such as 120s, 2m, 1h30m, 0:02:00 or 120, found 'soon'"),
        (("evict", "tiny", "--keep", "HOT"), "--keep: expected one of WARM, COLD, found 'HOT'"),
        (("deploy", "models_of_a_user"), "expected MODULE:NAME"),
        (("deploy", "models_of_a_user:nobody"), "models_of_a_user has no 'nobody'; it has: Tiny, app, apps, number"),
        (("deploy", "models_of_a_user:number"), "must be what bind() returned, or a function that returns it; found 3"),
        (("deploy", "models_of_a_user:Tiny"), "is a deployment, not an application: write `app = Tiny.bind()`"),
        (("deploy", "apps.yaml", "--name", "a"), "--name, --replicas and --route-prefix are for MODULE:NAME"),
        (("deploy", "apps.yaml", "--route-prefix", "/a"), "--name, --replicas and --route-prefix are for MODULE:NAME"),
        (("deploy", "nothing.yaml"), "nothing.yaml: cannot be read"),
    ],
)
def test_what_cannot_be_meant_is_told_in_one_line(rankcore, arguments, problem):
    done = rankcore(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert problem in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("found", "weights"),
    [
        (info(), "COLD"),
        (info(worker("COLD", "loading", percent=40)), "1 LOADING 40 %"),
        (info(worker(), worker("WARM", "resting"), worker(), worker("HOT", "leaving")), "2 HOT, 1 HOT, leaving, 1 WARM"),
        (info(worker("COLD", "waiting")), "1 COLD, waiting"),
    ],
)
def test_a_command_says_in_one_line_where_weights_are(found, weights):
    assert summary(found) == f"shop/tiny HEALTHY, 0 of 1 running, ranks none yet, weights {weights}"


def test_status_says_where_weights_are_why_and_who_waits_behind_whom():
    waits = CallStatus("PROVISIONING", behind=("chat/M",))
    text = shown(info(worker("COLD", "loading", percent=40), waiting=3, standing=waits))
    for words in (
        "3 calls wait: PROVISIONING behind chat/M",
        "LOADING 40 %",
        "0: 16.8 MB",
        "it fits on GPU 0, from disk",
        "a047857d",
    ):
        assert words in text
    assert "3.2 MB of 20 MB" in text
    assert "11.6 MB of 20 MB" in text
    assert "weights COLD: on disk until a call asks for them" in shown(info())
    refused = CallStatus("UNAVAILABLE", "12.8 MB do not fit: it has 1 GPU of at most 10 MB", retry_after_s=30.0)
    assert "calls are refused: 12.8 MB do not fit" in shown(info(standing=refused))
    assert "1 call waits: QUEUED" in shown(info(waiting=1))
    assert "weights" not in shown(info(has_residency=False)).replace("memory for weights", "")


def here(count=1):
    return tuple(ReplicaOnNode(replica_id=f"shop/m#1.{each}", rank=each or None, what="stays") for each in range(count))


@pytest.mark.parametrize(
    ("found", "lines"),
    [
        (
            CordonedNode(node_id="a047857d93c41bbc", address="10.0.0.7", state="cordoned", replicas=here(2)),
            [
                "node a047857d (10.0.0.7) is cordoned: no new replica comes there; 2 replicas there",
                "  shop/m#1.0, no rank: stays",
                "  shop/m#1.1, rank 1: stays",
            ],
        ),
        (
            CordonedNode(node_id="a", address="", state="draining", reason="new driver"),
            ["node a is to be left: new driver; no replicas there"],
        ),
        (
            CordonedNode(node_id="a", address="", state="draining", reason="new driver", is_head=True),
            ["node a is to be left: new driver; no replicas there; it is the head of the cluster, which stays"],
        ),
        (
            CordonedNode(node_id="a", address="", state="open", replicas=here()),
            ["node a is open: new replicas may come; 1 replica there", "  shop/m#1.0, no rank: stays"],
        ),
    ],
)
def test_how_it_stands_with_a_node_is_a_line_and_one_for_each_replica_there(found, lines):
    assert lines_of_node(found) == lines
    shown_of_many = lines_of_node(attrs.evolve(found, replicas=here(ROWS_MAX + 3)))
    assert (len(shown_of_many), shown_of_many[-1]) == (ROWS_MAX + 2, "  ... and 3 more")


def test_where_there_is_little_room_nodes_have_short_ids():
    node_id = "3f2a91bc" + 48 * "0"
    found = info(
        has_residency=False,
        message=f"to be replaced: rank 0 from {node_id} (drain)",
        rollout=f"1 of 1 available, waits: rank 0 on {node_id}",
    )
    for said in (line(found), summary(found), " ".join(shown(found).split())):
        assert "rank 0 from 3f2a91bc (drain)" in said
        assert "waits: rank 0 on 3f2a91bc" in said
        assert node_id not in said


def test_a_drain_with_a_deadline_says_until_when_and_status_shows_it():
    node = CordonedNode(node_id="a047857d93c41bbc", address="", state="draining", left_s=119.6, reason="drain", replicas=here())
    (over, _) = lines_of_node(attrs.evolve(node, left_s=0.0))
    assert over == "node a047857d is to be left, its deadline is over: drain; 1 replica there"
    (first, _) = lines_of_node(node)
    assert re.fullmatch(r"node a047857d is to be left by \d\d:\d\d:\d\d, in 120 s: drain; 1 replica there", first)
    status = Status(namespace="n", epoch=1, controller_pid=1, journal=None, deployments={}, cordons=(node,))
    out = io.StringIO()
    Console(file=out, width=160).print(view(status))
    assert "in 120 s: drain; 1 replica there" in out.getvalue()
