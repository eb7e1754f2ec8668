"""Times of day of a run: those of its traces, which `--at` takes and the page has, and none where they are not known."""

from array import array
from pathlib import Path

import pytest
from typer.testing import CliRunner

from executors.cli.app import app
from executors.simulator.load.arrivals import Arrivals
from executors.simulator.load.sources import read_source
from executors.simulator.wall_clock import unix_s_at_0, unix_s_of, utc

BEGAN = 1_700_158_623.5  # 2023-11-16T18:17:03.5Z
SCENARIO = """\
name: small
nodes: [{name: n, count: 2, gpus: 2}]
deployments:
  - name: llm
    target_replicas: 2
    init_s: 3
    requests: {trace: {file: t.csv, begin_s: 30, service_s: 1%s}}
"""


def began_with(folder: Path, stamps: list[str], more: str = "") -> float | None:
    (folder / "t.csv").write_text("TIMESTAMP\n" + "".join(f"{stamp}\n" for stamp in stamps))
    (folder / "s.yaml").write_text(SCENARIO % more)
    source = read_source(folder / "s.yaml")
    return unix_s_at_0(source.arrivals(source.scenario()))


@pytest.mark.parametrize(
    ("stamps", "more", "began"),
    [
        (["2023-11-16 18:17:03.5", "2023-11-16 18:17:05"], "", BEGAN - 30),
        (["2023-11-16T19:17:03.5+01:00", "2023-11-16T18:17:05Z"], "", BEGAN - 30),
        (["2023-11-16 18:17:05", "2023-11-16 18:17:03.5"], "", BEGAN - 30),
        (["1700158623500", "1700158625000"], ", time_unit: ms", BEGAN - 30),
        (["1700158623.5", "1700158625"], "", BEGAN - 30),
        (["2023-11-16 18:17:03.5", "2023-11-16 18:17:09"], ", begin: '2023-11-16 18:17:05'", BEGAN + 5.5 - 30),
        (["2023-11-16 18:17:03.5", "2023-11-16 18:17:09"], ", origin: '2023-11-16 18:17:00'", BEGAN - 3.5 - 30),
        (["0", "1.5"], "", None),
        (["7", "9"], ", time_unit: days", None),
        (["2023-11-16 18:17:03.5", "2023-11-16 18:17:05"], ", speedup: 2", None),
    ],
)
def test_a_run_has_the_times_of_day_that_its_trace_has(tmp_path, stamps, more, began):
    found = began_with(tmp_path, stamps, more)
    assert found == (None if began is None else pytest.approx(began, abs=1e-5))


def test_deployments_that_share_one_trace_have_its_times_of_day(tmp_path):
    (tmp_path / "t.csv").write_text("TIMESTAMP,for\n2023-11-16 18:17:03.5,a\n2023-11-16 18:17:05,b\n")
    requests = "{trace: {file: t.csv, service_s: 1, columns: {model: for}}}"
    (tmp_path / "s.yaml").write_text(
        f"nodes: [{{name: n, gpus: 2}}]\nevery_deployment: {{target_replicas: 1, requests: {requests}}}\n"
        "deployments: [{name: a}, {name: b}]\n"
    )
    source = read_source(tmp_path / "s.yaml")
    assert unix_s_at_0(source.arrivals(source.scenario())) == pytest.approx(BEGAN, abs=1e-5)


def test_traces_that_disagree_give_no_times_of_day():
    def of(at: float | None) -> Arrivals:
        return Arrivals(array("d", [1.0]), unix_s_at_0=at)

    assert unix_s_at_0({"a": of(BEGAN), "b": of(None), "c": of(BEGAN)}) == BEGAN
    assert unix_s_at_0({"a": of(BEGAN), "b": of(BEGAN + 60)}) is None
    assert unix_s_at_0({"a": Arrivals(unix_s_at_0=BEGAN)}) is None, "no request came of it"


def test_times_of_day_are_read_and_written():
    assert unix_s_of("2023-11-16T18:17:03.5Z") == unix_s_of("2023-11-16 18:17:03.5") == BEGAN
    assert unix_s_of("2023-11-16T19:17:03.5+01:00") == BEGAN
    assert utc(BEGAN) == "2023-11-16T18:17:03.500000Z"
    assert utc(1_700_158_623.0) == "2023-11-16T18:17:03Z"
    for text in ("120s", "0:02:00", "2d 03:00:00", "2023-11-16", "2023-11-16T99:00Z"):
        assert unix_s_of(text) is None


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def test_at_takes_a_time_of_day_in_fork_and_explain(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    began_with(tmp_path, [f"2023-11-16 18:17:{second:02d}" for second in range(60)])
    done = run("simulate", "s.yaml", "--journal", "run.jsonl", "-q", "--json", "run.json")
    assert done.exit_code == 0, done.stderr
    assert '"began_at": "2023-11-16T18:16:30Z"' in (tmp_path / "run.json").read_text()
    assert "2023-11-16T18:16:30Z" in (tmp_path / "s.report.html").read_text()
    fork = ("fork", "run.jsonl", "--fault", "node n-0 lost", "--at")
    done = run(*fork, "2023-11-16T18:17:15Z")
    assert done.exit_code == 0, done.stderr
    assert "the same up to 0:00:45, checked line by line" in done.stdout
    assert "at 0:00:45" in run("explain", "run.jsonl", "--at", "2023-11-16T19:17:15+01:00").stdout.lower()
    done = run(*fork, "2023-11-16T18:00Z")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "--at: expected a time from 2023-11-16T18:16:30Z on, when the run began" in done.stderr


def test_a_time_of_day_of_a_run_without_any_is_refused_in_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    began_with(tmp_path, ["0", "5"])
    assert run("simulate", "s.yaml", "--journal", "run.jsonl", "-q", "--json", "run.json").exit_code == 0
    assert "began_at" not in (tmp_path / "run.json").read_text()
    for command in (("fork", "run.jsonl", "--fault", "node n-0 lost"), ("explain", "run.jsonl")):
        done = run(*command, "--at", "2023-11-16T18:17:15Z")
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
        assert "--at: expected a time since the run began, such as 120s: no trace of it has times of day" in done.stderr
