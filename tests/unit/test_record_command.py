"""`rankcore record` without Ray: what is wrong with its arguments is one line; what calls are given."""

import pytest
from typer.testing import CliRunner

from executors.cli.app import app
from executors.cli.record import payload_of
from executors.simulator.questions.described import arrivals_of


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--requests", "there_is_none.csv"], "there_is_none.csv"),
        (["--requests", "trace.csv", "--preset", "stepfun-faults"], "--preset: expected one of"),
        (["--requests", "trace.csv", "--set", "columns={time: when}"], "when"),
        (["--requests", "trace.csv", "--set", "columns={time: at, model: service}"], "columns.model: expected nothing"),
        ([], "no_such_module"),
        (["-o", "nowhere/run.jsonl"], "--output: expected a file in a folder that is there"),
    ],
)
def test_what_is_wrong_is_one_line_before_ray_is_asked_for(tmp_path, monkeypatch, options, problem):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace.csv").write_text("at,service\n0,0.5\n2,1.5\n")
    done = CliRunner().invoke(app, ["record", "no_such_module:app", "-o", "run.jsonl", *options])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.stderr
    assert problem in done.stderr
    assert not (tmp_path / "run.jsonl").exists()


def test_a_call_is_given_how_long_it_takes(tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("at,prompt,service\n0,10,0.5\n2,20,1.5\n")
    calls = arrivals_of(trace, None, {"columns": {"time": "at", "service": "service"}})
    assert list(calls.at_s) == [0.0, 2.0]
    assert [payload_of(calls, index) for index in range(2)] == [{"service_s": 0.5}, {"service_s": 1.5}]
    tokens = {"columns": {"time": "at", "prompt": "prompt", "output": "prompt"}, "base_s": 1}
    priced = arrivals_of(trace, None, {**tokens, "prompt_s_per_token": 0.1, "output_s_per_token": 0})
    assert payload_of(priced, 1) == {"service_s": 3.0}
