"""`rankcore record` on a real Ray cluster: what it leaves is whole, and its simulation has the same ranks."""

import json
import os
from random import Random

import pytest
from typer.testing import CliRunner

pytestmark = pytest.mark.slow

TRACE = 60


@pytest.fixture
def trace(tmp_path):
    stream, at = Random(1), 0.0
    rows = ["at,service"]
    for _ in range(TRACE):
        at += stream.expovariate(30)
        rows.append(f"{at:.4f},{stream.uniform(0.05, 0.2):.4f}")
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.mark.night
def test_a_run_is_recorded_calibrated_and_simulated(ray_cluster, tmp_path, trace):
    from executors.cli.app import app
    from executors.engine.replay import replay
    from executors.engine.request_reading import request_file_of

    journal = tmp_path / "run.jsonl"
    columns = ["--set", "columns={time: at, service: service}"]
    asked = ["record", "bench.fidelity_app:app", "--requests", str(trace), *columns, "-o", str(journal), "--json"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["calls"], found["failed"], found["dropped"], found["problem"]) == (TRACE, 0, 0, None)
    assert found["clock_error_s"] < 1.0
    assert replay(journal).warning is None
    done = CliRunner().invoke(app, ["calibrate", str(journal), "-o", str(tmp_path / "scenario.yaml")])
    assert done.exit_code == 0, done.stderr
    done = CliRunner().invoke(app, ["fidelity", str(journal), "--runs", "2", "--tolerance", "1", "--json", "-"])
    assert json.loads(done.stdout)["simulated"]["history"]["difference"] is None, done.stdout
    assert os.path.exists(tmp_path / "scenario.requests-0.csv")
    rows = (tmp_path / "scenario.requests-0.csv").read_text().splitlines()
    assert rows[0] == "at,service,prompt,output"
    outputs = [round(float(row.split(",")[1]) * 1000) for row in trace.read_text().splitlines()[1:]]
    assert [int(row.split(",")[3]) for row in rows[1:]] == outputs
    first = json.loads(journal.read_text().splitlines()[0])["about"]["run"]
    assert json.loads(request_file_of(journal).read_text().splitlines()[0])["about"]["run"] == first


@pytest.mark.night
def test_nothing_is_recorded_where_something_runs(serve, tmp_path):
    from bench.fidelity_app import Sleeper
    from executors.cli.app import app

    serve.run(Sleeper.bind(), route_prefix=None)
    done = CliRunner().invoke(
        app, ["record", "bench.fidelity_app:app", "-o", str(tmp_path / "x.jsonl"), "--namespace", "rankcore"]
    )
    assert (done.exit_code, "expected a namespace in which nothing runs" in done.stderr) == (2, True)
    assert not (tmp_path / "x.jsonl").exists()
