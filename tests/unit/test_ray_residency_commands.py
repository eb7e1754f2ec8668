"""What `rankcore deploy`, `scale`, `evict` and `where` say, without a cluster."""

import io
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")
pytest.importorskip("torch", reason="torch is not installed: pip install 'rankcore[torch]'")

from executors.cli.app import app
from executors.cli.fleet_view import NO_NODE, line_of, view, view_of_model
from executors.ray_gpu import residency
from executors.ray_gpu.errors import InvalidCallError, InvalidDeploymentError
from executors.ray_gpu.residency import FleetOptions, FleetStanding, Model, ModelStanding, NodeStanding, ReplicaStanding, client
from executors.ray_gpu.residency.packing import pack_model, unpack_model
from executors.torch_weights import WeightsFileError
from rankcore.errors import InvalidSpecError
from tests.fleet_models import Probe, write_weights

MODELS = """
from executors.ray_gpu.residency import Model
class Tiny: pass
model = Model(name="tiny", code=Tiny, weights="tiny.safetensors")
number = 3
"""
NODE = NodeStanding("a047857d93c41bbc", ((20_000_000, 3_200_000),), 20_000_000, 11_600_000)


@pytest.fixture
def rankcore(tmp_path, monkeypatch):
    """The command in a folder of its own, from which no cluster is found."""
    (tmp_path / "models_of_a_user.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return lambda *arguments: CliRunner().invoke(app, arguments)


def replica(replica_id="tiny#0", level="COLD", phase="resting", because="", **fields):
    places = {"node_id": None, "gpus": (), "gpu_bytes": (), "cpu_bytes": 0, "in_flight": 0, "percent": None, "rank": None}
    return ReplicaStanding(
        **{"displaced": (), "history": (), **places, **fields},
        replica_id=replica_id,
        level=level,
        phase=phase,
        because=because,
    )


def model(*replicas, target=1, waiting=0, waits_for=""):
    return ModelStanding("tiny", target, waiting, waits_for, replicas)


def shown(what):
    out = io.StringIO()
    Console(file=out, width=120).print(what)
    return out.getvalue()


@pytest.mark.parametrize(
    "arguments",
    [("deploy", "models_of_a_user:model"), ("scale", "tiny", "1"), ("evict", "tiny"), ("where",), ("where", "tiny")],
)
def test_without_a_cluster_each_command_says_how_to_start_one_and_starts_none(rankcore, monkeypatch, arguments):
    monkeypatch.setattr(
        "executors.ray_gpu.residency.deploy", lambda *_, **__: pytest.fail("a cluster would end with the command")
    )
    done = rankcore(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("rankcore: error: Ray is not running: start it with `ray start --head`")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("evict",), "expected a MODEL, or --replica ID, found neither"),
        (("evict", "tiny", "--replica", "tiny#0"), "expected a MODEL, or --replica ID, found both"),
        (("evict", "tiny", "--keep", "HOT"), "--keep: expected one of WARM, COLD, found 'HOT'"),
        (("deploy", "models_of_a_user"), "expected MODULE:NAME"),
        (("deploy", "models_of_a_user:nobody"), "models_of_a_user has no 'nobody'; it has: Model, Tiny, model, number"),
        (("deploy", "models_of_a_user:number"), "must be a Model of executors.ray_gpu.residency, or a list of some; found 3"),
    ],
)
def test_what_cannot_be_meant_is_told_in_one_line(rankcore, arguments, problem):
    done = rankcore(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert problem in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_model_that_is_listed_twice_is_refused():
    twice = Model(name="tiny", code=object, weights="tiny.safetensors")
    with pytest.raises(InvalidDeploymentError, match="models must have names of their own, got 'tiny' 2 times"):
        residency.deploy(twice, twice)


def test_weights_have_the_path_that_they_have_where_the_model_is_declared(tmp_path, monkeypatch):
    """The processes that load them have other working folders."""
    monkeypatch.chdir(tmp_path)
    declared = Model(name="tiny", code=object, weights=Path("weights") / "tiny.safetensors")
    monkeypatch.chdir("/")
    assert unpack_model(pack_model(declared)).weights == declared.weights == str(tmp_path / "weights" / "tiny.safetensors")


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (model(target=0), "tiny: none wanted HOT; on disk (COLD) until asked for"),
        (model(replica(phase="loading")), "tiny: 1 wanted HOT; 1 loading"),
        (
            model(replica(level="WARM"), replica(level="HOT", phase="serving"), replica(), target=1),
            "tiny: 1 wanted HOT; 1 in memory (WARM), 1 on disk (COLD), 1 serving (HOT)",
        ),
        (
            model(
                replica(phase="waiting", because="30 GB too little is free"), replica(level="HOT", phase="serving"), target=2
            ),
            "tiny: 2 wanted HOT; 1 serving (HOT), 1 waiting: 30 GB too little is free",
        ),
    ],
)
def test_a_command_says_in_one_line_what_it_has_brought_about(found, line):
    assert line_of(found, nodes=1) == line


def test_who_waits_for_the_first_node_is_not_said_to_lack_room():
    waits = model(replica(phase="waiting", because="there is no node"))
    assert line_of(waits, nodes=0) == f"tiny: 1 wanted HOT; 1 waiting: {NO_NODE}"
    assert NO_NODE in shown(view(FleetStanding((), (waits,), 1)))


def test_where_lists_replicas_by_age_and_those_that_are_only_on_disk_as_one():
    serving = [replica(f"tiny#{number}", "HOT", "serving", f"because {number}") for number in (2, 10, 9)]
    lines = shown(view(FleetStanding((NODE,), (model(*serving, replica("tiny#3"), replica("tiny#4")),), 1))).splitlines()
    assert lines[1].split("  ")[1:2] == ["3.2 MB of 20 MB"]
    assert [line.split("because")[-1].strip() for line in lines[4:7]] == ["2", "9", "10"]
    assert "2 of them  COLD" in lines[7]
    assert len(lines) == 8


def test_where_model_says_why_what_it_displaced_and_what_its_times_are():
    history = ("29.1 s: placed on a047857d: it goes to GPU 0 (T5)",)
    text = shown(
        view_of_model(model(replica("tiny#2", "HOT", "serving", "it fits", displaced=("a#0 at 29.1 s",), history=history)))
    )
    for words in ("wanted HOT: 1", "why: it fits", "displaced a#0 at 29.1 s", history[0], "times are seconds since the fleet"):
        assert words in text


NOT_WHAT_THEY_MAY_BE = {
    "weights": (None, 5, b"w", ["w"]),
    "args": (None, "ab", 5, {1}),
    "kwargs": (None, "ab", [("a", 1)]),
    "node_labels": (None, "ab", 5, [1], ({},)),
    "code": (None, "C", Probe()),
}


@pytest.mark.parametrize(
    ("field", "value"), [(field, value) for field, values in NOT_WHAT_THEY_MAY_BE.items() for value in values]
)
def test_a_field_of_a_model_that_is_not_what_it_may_be_is_named(tmp_path, field, value):
    with pytest.raises(InvalidDeploymentError, match=rf"Model\.{field}"):
        Model(**{"name": "m", "code": Probe, "weights": "w", field: value})


@pytest.mark.parametrize("gpus", [0, -1, 1025, 2**53, 10**400, True, 1.0, "1"])
def test_a_number_of_gpus_that_no_node_has_is_refused_before_the_weights_are_split(tmp_path, gpus):
    weights = write_weights(tmp_path, "m", 1)[0]
    with pytest.raises(InvalidSpecError, match=r"ModelSpec\.gpus"):
        Model(name="m", code=Probe, weights=weights, gpus=gpus).spec()


def test_what_cannot_be_deployed_is_refused_before_any_cluster_is_asked(tmp_path):
    weights = write_weights(tmp_path, "m", 1)[0]
    for each in (None, 5, "m", Probe, []):
        with pytest.raises(InvalidDeploymentError, match="takes models"):
            client.deploy(each)
    with pytest.raises(InvalidDeploymentError, match="of model 'm' must be what can be pickled"):
        client.deploy(Model(name="m", code=Probe, weights=weights, args=((each for each in ()),)))
    with pytest.raises(WeightsFileError, match="the path must be"):
        client.deploy(Model(name="m", code=Probe, weights="x" * 300))
    with pytest.raises(InvalidCallError, match="keep must be"):
        client.evict("m", keep=5)


@pytest.mark.parametrize("sizes", [None, 5, 1.5, "ab", {1: 2}, (-1,), (1.0,), (2**53 + 1,)])
def test_sizes_of_what_stands_for_gpus_are_refused_by_name(sizes):
    with pytest.raises(InvalidDeploymentError, match=r"FleetOptions\.stand_in_gpu_bytes"):
        FleetOptions(stand_in_gpu_bytes=sizes)
