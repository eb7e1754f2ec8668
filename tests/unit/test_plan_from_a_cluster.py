"""`rankcore plan --from` a cluster's journal: what a request would bring to replicas, to others', and to weights."""

import json

import pytest
from typer.testing import CliRunner

from executors.cli.app import app
from rankcore.cluster.residency import ResidencySpec
from tests.clusters import RecordedCluster, application, entry


@pytest.fixture
def journal(tmp_path) -> str:
    """A GPU of 6 bytes, on which `a/x` is at 10 s and `a/y` from 20 s on; `b/x` has no weights that may be COLD."""
    cluster = RecordedCluster(tmp_path / "run.jsonl")
    cluster.join(6)
    sizes = {"a/x": 4, "a/y": 5, "a/huge": 9}
    specs = {each: ResidencySpec(weight_bytes=size, min_hot_s=0.0) for each, size in sizes.items()}
    weights = [entry(each, int(each == "a/x"), residency=spec) for each, spec in specs.items()]
    cluster.apply(application(*weights), application(entry("b/x", 2)))
    cluster.wait(20.0)
    cluster.call("a/y", 3)
    cluster.journal.close()
    return str(tmp_path / "run.jsonl")


def run(*arguments: str):
    return CliRunner().invoke(app, ["plan", "--from", *arguments])


def test_what_is_scaled_up_is_planned_with_who_makes_room_for_it(journal):
    done = run(journal, "--deployment", "a/x", "--target", "1")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines() == [
        "a/x, HEALTHY at 0:00:20.0: world size 0 -> 1",
        "  1 would start, in this order:",
        "    1. rank 0, version 1",
        "  it would end up HEALTHY",
        "a/y, HEALTHY at 0:00:20.0: world size 1 -> 0",
        "  1 would stop:",
        "    a/y#1.0 (rank 0)",
        "  it would end up HEALTHY",
        "a/x@1#1.0 would be loaded to n0: it goes to GPU 0, from its copy there, once a/y@1#1.1 left: cost 50 GB",
        "a/y@1#1.1 would be displaced from n0: by a/x@1#1.0",
    ]


def test_a_plan_is_of_the_moment_that_is_asked_about(journal):
    done = run(journal, "--deployment", "y", "--target", "1", "--at", "10s", "--json")
    found = json.loads(done.stdout)
    assert (found["deployment"], found["at"], [each["deployment"] for each in found["others"]]) == ("a/y", 10.0, ["a/x"])
    assert [(each["worker_id"], each["what"], each["node_id"]) for each in found["weights"]] == [
        ("a/y@1#1.1", "loaded", "n0"),
        ("a/x@1#1.0", "displaced", "n0"),
    ]


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (
            ["--deployment", "a/y", "--evict", "cold"],
            ["    a/y#1.0 (rank 0)", "a/y@1#1.1 would be evicted from n0: to be COLD at most"],
        ),
        (["--deployment", "a/y", "--delete"], ["    a/y#1.0 (rank 0)", "  it would end up DELETED"]),
        (
            ["--deployment", "a/y", "--set", "version=2"],
            [
                "    1. rank 0, version 2",
                "a/y@1#1.1 would be evicted from n0: to be COLD at most",
                "a/y@2#1.2 would be loaded to n0: it fits on GPU 0, from disk",
            ],
        ),
        (
            ["--deployment", "huge", "--target", "1"],
            ["a/huge@1#1.2 would be left waiting: n0: 9 bytes do not fit: it has 1 GPU of at most 6 bytes"],
        ),
        (
            ["--deployment", "b/x", "--target", "1", "--stop-first", "b/x#1.0"],
            ["    b/x#1.0 (rank 0)", "    b/x#1.1: rank 1 -> 0"],
        ),
        (["--deployment", "b/x", "--target", "2"], ["  nothing would start, stop, move or be reconfigured"]),
    ],
)
def test_what_else_may_be_asked_for_is_planned(journal, arguments, lines):
    done = run(journal, *arguments)
    assert done.exit_code == 0, done.stderr
    assert [line for line in lines if line not in done.stdout.splitlines()] == [], done.stdout


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--deployment", "b/x", "--evict", "WARM"], "b/x: EvictRequested.model must be of a deployment with residency"),
        (["--deployment", "a/y", "--evict", "HOT"], '--evict: expected WARM or COLD, found "HOT"'),
        (["--deployment", "a/y", "--evict", "WARM", "--delete"], "--delete, --evict: expected one of them"),
        (["--deployment", "a/y", "--delete", "--target", "1"], "--delete, --evict: expected one of them"),
        (["--deployment", "x", "--target", "1"], "--deployment: expected one of a/x, b/x"),
        (["--target", "1"], "expected --deployment, since there are several: a/huge, a/x, a/y, b/x"),
        (["--deployment", "a/y", "--target", "1", "--stop-first", "a/y#9.9"], "--stop-first: expected"),
        (
            ["--deployment", "b/x", "--set", "version=2", "--stop-first", "b/x#1.0"],
            "--stop-first: expected --target alone with it",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(journal, arguments, problem):
    done = run(journal, *arguments)
    assert done.exit_code == 2
    assert problem in done.stderr
    assert done.stderr.count("\n") == 1


def test_before_anything_was_applied_there_is_nothing_to_plan(tmp_path):
    RecordedCluster(tmp_path / "run.jsonl")
    done = run(str(tmp_path / "run.jsonl"), "--target", "1")
    assert "expected a journal that has begun by then, found no deployment yet" in done.stderr


def test_a_deletion_is_not_planned_from_a_scenario(tmp_path):
    done = CliRunner().invoke(app, ["plan", "some.yaml", "--delete"])
    assert (done.exit_code, "expected the journal of a cluster" in done.stderr) == (2, True)
