"""`rankcore trace describe`: what a trace is, what looks wrong with it, and one line for what is no trace (W9, W22)."""

import gzip
import json
import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from executors.cli.app import app
from executors.cli.trace import run

DATA = Path(__file__).parents[2] / "examples" / "data"


def described(*arguments: object):
    return CliRunner().invoke(app, ["trace", "describe", *map(str, arguments)])


def figures(*arguments: object) -> dict:
    done = described(*arguments, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def test_the_guide_shows_what_is_printed(monkeypatch):
    root = Path(__file__).parents[2]
    command, shown = re.search(
        r"\$ rankcore trace (describe .*?)\n(.*?)```", (root / "docs/simulating.md").read_text(), re.S
    ).groups()
    monkeypatch.chdir(root)
    done = CliRunner().invoke(app, ["trace", *command.split()])
    assert [line.rstrip() for line in done.stdout.splitlines()][:-1] == shown.splitlines()


def test_a_published_trace_has_the_figures_that_are_published_of_it():
    found = figures(DATA / "azure_llm_2023_code.csv", "--preset", "azure-llm-2023")
    assert (found["rows"], round(found["rate_per_s"], 2), round(found["cv"])) == (8819, 2.57, 13)
    assert found["span_s"] == pytest.approx(57.3 * 60, abs=3)
    assert found["columns"]["prompt"] == {
        "p50": 1469,
        "p90": 5186,
        "p99": 7436,
        "max": 7437,
        "mean": pytest.approx(2048, abs=0.5),
    }
    assert found["columns"]["output"]["p99"] == 252
    assert (found["warnings"], found["notes"]) == ([], [])


@pytest.mark.parametrize(
    ("name", "preset", "rows", "names"),
    [
        ("gpu_node_faults_days_000_240.csv", "stepfun-faults", 762, {"node": 184, "event": 2}),
        ("spot_nodes_aws_g4dn.csv", "bamboo-spot", 153, {"node": 79, "event": 2}),
        ("servegen_clients_m-small_day1.csv", "servegen", 2748, {}),
    ],
)
def test_rates_and_faults_are_described_too(name, preset, rows, names):
    found = figures(DATA / name, "--preset", preset)
    assert (found["rows"], found["names"]) == (rows, names)
    assert found["about"].startswith(f"{preset}: ")
    assert set(found["columns"]) == ({"rate", "cv"} if preset == "servegen" else set())


def test_people_read_a_table_and_notes_go_elsewhere(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("TIMESTAMP,ContextTokens,who\n0.5,1234,a\n0,1,b\n2.5,2,a\n")
    done = described(path, "--set", "columns={session: who}")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[:6] == [str(path), "rows      3", "span      0:00:02.5", "rate      0.8/s", "cv        0.6", "sessions  2"]
    assert [line.split() for line in lines if line.startswith(" prompt")] == [
        ["prompt", "2", "1,234", "1,234", "1,234", "412.3"]
    ]
    assert lines[-1] == "gap: 2 s without a row, 80% of the span"
    assert done.stderr == f"rankcore: note: {path}: 1 of 3 rows out of order (most 0.5 s): sorted\n"


def warned(folder: Path, times, *options: str) -> list[str]:
    path = folder / "t.csv"
    path.write_text("TIMESTAMP\n" + "".join(f"{at}\n" for at in times))
    strict = described(path, "--strict", *options)
    found = [each["kind"] for each in figures(path, *options)["warnings"]]
    assert strict.exit_code == (2 if found else 0)
    if found:
        assert strict.stderr == f"rankcore: error: {path}: expected a trace that looks right, found {', '.join(found)}\n"
    return found


@pytest.mark.parametrize(
    ("times", "options", "expected"),
    [
        ([0.7 * index for index in range(200)], (), []),
        ([index / 201 for index in range(200)], (), ["unit_suspect"]),
        ([index / 100 for index in range(100)], (), []),
        ([0.1, 500 * 86400.0, 1000 * 86400.0], (), ["unit_suspect", "rate_suspect", "gap"]),
        ([index / 20000 for index in range(90)], (), ["rate_suspect"]),
        ([0.5, 0.5], (), ["rate_suspect", "coarse_times"]),
        (range(200), (), ["coarse_times"]),
        (range(200), ("--set", "jitter_s=1"), []),
        ([*range(199), 199.5], (), ["coarse_times"]),
        ([*range(198), 198.5, 199.5], (), []),
        (range(200), ("--set", "time_unit=min"), ["coarse_times"]),
        ([0.1, 1.2, 1.9, 2.5, 3.6], (), ["gap"]),
        ([0.1, 1.2, 2.3, 3.4, 4.6, 5.7], (), []),
        ([0.1], (), []),
    ],
)
def test_what_looks_wrong_is_said_and_with_strict_refused(tmp_path, times, options, expected):
    assert warned(tmp_path, times, *options) == expected


def test_durations_are_described_as_such_also_where_the_file_has_their_ends(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("t,end\n10,15\n20.5,21.5\n")
    options = ("--set", "columns={time: t, service: end}", "--set", "service_unit=end")
    assert figures(path, *options)["columns"] == {"service": {"p50": 1, "p90": 5, "p99": 5, "max": 5, "mean": 3}}
    path.write_text('{"timestamp": 1, "input_length": 3, "output_length": 4, "hash_ids": [7]}\n')
    path = path.rename(tmp_path / "t.jsonl")
    assert figures(path, "--preset", "mooncake")["notes"] == [f"{path}: hash_ids is not read"]


ROW = b"t,n\n1,2\n"
MALFORMED = [
    *(
        (".csv", content, "")
        for content in (
            b"",
            b"\n",
            b"\n\n",
            b"t\n1\n",
            b"n\n1\n",
            b"t,t,n\n1,1,1\n",
            b"t,n\n",
            b"T,N\n1,2\n",
            b"t;n\n1;2\n",
            b"t\tn\n1\t2\n",
            b"t,n\n1\n",
            b"t,n\n,2\n",
            b"t,n\nsoon,2\n",
            b"t,n\nnan,2\n",
            b"t,n\ninf,2\n",
            b"t,n\n-1,2\n",
            b"t,n\n1e999,2\n",
            b"t,n\n1_0,2\n",
            b"t,n\n0x1,2\n",
            b"t,n\n1,\n",
            b"t,n\n1,-2\n",
            b"t,n\n1,2.5\n",
            b"t,n\n1,many\n",
            b"t,n\n1,1_0\n",
            b"t,n\n1,99999999999\n",
            b"t,n\n1,\xd9\xa3\n",
            b"t,n\n\xff,2\n",
            b"t,n\n1,2\0\n",
            b't,n\n"1,2\n',
            b'"t,n\n1,2\n',
            b't,n\n"1"x,2\n',
            "t,n\n1,2\n".encode("utf-16"),
            b"\x1f\x8b\x08",
            b"PAR1",
            b"%PDF-1.4",
            b"<html></html>\n",
            b"{}\n",
            b"t,n\n1," + 200_000 * b"9",
            200_000 * b"x",
            b"t,n\n2023-02-30,2\n",
            b"t,n\n2023-02-01 00:00Z,2\n2023-02-01 00:01,2\n",
            b"t,n\n1960-01-01,2\n",
            b"t,n\n1,2\n2e9,2\n",
            b"t,n\n1,2\n2023-11-16,2\n",
        )
    ),
    *(
        (".jsonl", content, "")
        for content in (
            b"",
            b"\n",
            b"[]\n",
            b"null\n",
            b"1\n",
            b'"t"\n',
            b"{\n",
            b"{}\n",
            b'{"t": 1}\n',
            b'{"t": 1, "n": null}\n',
            b'{"t": [1], "n": 1}\n',
            b'{"t": 1, "n": 1} x\n',
            b'{"t": NaN, "n": 1}\n',
            b'{"t": true, "n": 1}\n',
            b"[" * 50_000,
            b'{"t": "\xff", "n": 1}\n',
            ROW,
        )
    ),
    *((".csv.gz", content, "") for content in (ROW, b"", gzip.compress(ROW)[:-4], gzip.compress(ROW)[:15], gzip.compress(b""))),
    (".parquet", b"PAR1", ""),
    (".xlsx", b"PK\x03\x04", ""),
    *(
        (".csv", ROW, option)
        for option in (
            "time_unit=weeks",
            "where={x: 1}",
            "where={n: 3}",
            "where=3",
            "begin=2",
            "begin=soon",
            "origin=9",
            "sort=no",
            "thin=2",
            "skip_bad=x",
            "limit=0",
            "columns={x: y}",
            "columns={time: when}",
            "unit=ms",
            "=",
            "preset=x",
            "service_unit=end",
        )
    ),
]


def test_what_is_no_trace_is_told_in_one_line_and_nothing_is_printed(tmp_path, capsys):
    assert len(MALFORMED) >= 60
    for number, (ending, content, option) in enumerate(MALFORMED):
        path = tmp_path / f"{number}{ending}"
        path.write_bytes(content)
        columns = () if option.startswith("columns") else ("columns={time: t, prompt: n}",)
        with pytest.raises(typer.Exit) as caught:  # what the command runs, without the time that 80 command lines take
            run(path, None, [*columns, *([option] if option else [])], strict=False, as_json=False)
        out, err = capsys.readouterr()
        assert (caught.value.exit_code, out, err.count("\n")) == (2, "", 1), (ending, content[:40], option, out, err)
        assert err.startswith("rankcore: error: ")
        assert option or str(path) in err
    done = described(tmp_path / "0.csv", "--preset", "azure")
    assert (done.exit_code, done.stderr[:72]) == (2, "rankcore: error: --preset: expected one of azure-llm-2023, azure-llm-202")
