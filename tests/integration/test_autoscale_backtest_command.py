"""`rankcore autoscale-backtest`, as a user runs it, and the page about autoscaling, which runs as well."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from executors.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "autoscaling.md").read_text(encoding="utf-8")
TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2024-01-01 00:{second // 60:02d}:{second % 60:02d}.0,{100 + second},{20 + second % 7}\n" for second in range(240)
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace.csv").write_text(TRACE)
    (tmp_path / "few.yaml").write_text("max_replicas: 2\nmin_replicas: 0\nupscale_delay_s: 0\ndownscale_delay_s: 20\n")
    (tmp_path / "many.yaml").write_text("{min_replicas: 6, max_replicas: 8}\n")
    return tmp_path


def run(*arguments: str):
    return CliRunner().invoke(app, ["autoscale-backtest", *arguments])


BOTH = ("trace.csv", "--policy", "few.yaml", "--policy", "many.yaml", "--init-s", "5")


def test_each_policy_has_its_misses_hours_events_and_moves(folder):
    done = run(*BOTH, "--json", "-")
    assert done.exit_code == 0, done.stderr
    few, many = json.loads(done.stdout)["policies"]
    assert (few["policy"], many["policy"]) == ("few", "many")
    assert few["requests"] == many["requests"] == 240
    assert few["slo_misses"] > many["slo_misses"] >= 0
    assert few["replica_hours"] < many["replica_hours"] == pytest.approx(6 * 299 / 3600, rel=0.01)
    assert few["scale_events"] > many["scale_events"] == 0
    assert few["wait_s"]["of"] == "all"
    assert few["wait_s"]["n"] == 240


def test_the_same_command_gives_the_same_bytes_and_says_how_to_run_it_again(folder):
    first = run(*BOTH, "--html", "first.html", "--json", "first.json")
    again = shlex.split(json.loads((folder / "first.json").read_text())["rerun"])
    second = run(*again[2:], "--html", "second.html", "--json", "second.json")
    assert (first.exit_code, second.exit_code) == (0, 0), second.stderr
    assert (folder / "first.html").read_bytes() == (folder / "second.html").read_bytes()
    assert (folder / "first.json").read_bytes() == (folder / "second.json").read_bytes()


def test_a_policy_runs_the_same_alone_and_beside_others(folder):
    beside = json.loads(run(*BOTH, "--json", "-").stdout)["policies"][0]
    alone = json.loads(run(*BOTH[:3], "--init-s", "5", "--json", "-").stdout)["policies"][0]
    assert alone == beside


def test_a_trace_is_read_as_a_scenario_reads_it(folder):
    header, *rows = TRACE.splitlines()
    renamed = header.replace("TIMESTAMP", "when").replace("ContextTokens", "asked").replace("GeneratedTokens", "told")
    (folder / "other.csv").write_text("\n".join((renamed, *reversed(rows))))
    keys = ("columns={time: when, prompt: asked, output: told}", "where={told: {not: 20}}")
    done = run("other.csv", *BOTH[1:], *(word for key in keys for word in ("--set", key)), "--json", "-")
    assert done.exit_code == 0, done.stderr
    plain = run(*BOTH, "--set", "where={GeneratedTokens: {not: 20}}", "--json", "-")
    few = [json.loads(each.stdout)["policies"][0] for each in (done, plain)]
    assert few[0]["requests"] == 205
    assert {**few[0], "notes": []} == {**few[1], "notes": []}
    assert done.stderr.splitlines() == [
        "rankcore: note: other.csv: 204 of 205 rows out of order (most 238 s): sorted",
        "rankcore: note: other.csv: where leaves out 35 of 240 rows",
    ]
    again = shlex.split(json.loads(done.stdout)["rerun"])
    assert run(*again[2:], "--json", "-").stdout == done.stdout
    refused = run(*BOTH, "--set", "sort=never")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert 'requests.trace.sort: expected true or refuse, found "never"' in refused.stderr


CODE = """
def half(view):
    return view.ongoing_requests / 2

def broken(view):
    return "many"

nothing = 3
"""


def test_a_policy_of_ones_own_is_a_function_in_a_file(folder):
    (folder / "mine.py").write_text(CODE)
    (folder / "mine.yaml").write_text("max_replicas: 2\npolicy: mine.py:half\nupscale_delay_s: 0\n")
    (folder / "serve.yaml").write_text("max_replicas: 2\nupscale_delay_s: 0\n")  # 2 requests for each, as well
    done = run("trace.csv", "--policy", "mine.yaml", "--policy", "serve.yaml", "--json", "-")
    assert done.exit_code == 0, done.stderr
    mine, serve = json.loads(done.stdout)["policies"]
    assert {**mine, "policy": ""} == {**serve, "policy": ""}


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("mine.py:broken", "the autoscaling policy broken must return a number of replicas"),
        ("mine.py:nothing", "mine.py has no function nothing"),
        ("mine.py", "policy: expected FILE.py:FUNCTION"),
        ("3", "policy: expected FILE.py:FUNCTION"),
        ("missing.py:half", "missing.py cannot be read"),
        ("bad.py:half", "bad.py cannot be run: SyntaxError"),
    ],
)
def test_a_policy_that_cannot_be_used_is_one_line_and_status_2(folder, named, message):
    (folder / "mine.py").write_text(CODE)
    (folder / "bad.py").write_text("def half(view:\n")
    (folder / "mine.yaml").write_text(f"max_replicas: 2\npolicy: {named}\n")
    done = run("trace.csv", "--policy", "mine.yaml")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert message in done.stderr


@pytest.mark.parametrize(("policies", "pictures"), [(1, 1), (2, 1), (4, 1), (5, 5)])
def test_the_page_has_the_table_and_up_to_four_policies_in_one_picture(folder, policies, pictures):
    names = ["few", "many", *(f"p{number}" for number in range(3))][:policies]
    for name in names[2:]:
        (folder / f"{name}.yaml").write_text(f"{{min_replicas: 1, max_replicas: {int(name[1:]) + 3}}}\n")
    chosen = [word for name in names for word in ("--policy", f"{name}.yaml")]
    assert run("trace.csv", *chosen, "--init-s", "5", "--html", "page.html", "--quiet").output == ""
    page = (folder / "page.html").read_text()
    assert page.count('data-panel="running"') == page.count('data-panel="waiting"') == pictures
    assert all(f'<th scope="row">{name}</th>' in page for name in names)
    for word in (*names, "SLO misses", "replica-hours", "scale events", "rank moves", "replicas running"):
        assert word in page
    assert "https://" not in page  # nothing is fetched
    assert "src=" not in page.replace("style-src=", "")


def test_a_trace_without_tokens_takes_a_service_time(folder):
    (folder / "bare.csv").write_text("TIMESTAMP\n2024-01-01 00:00:00\n2024-01-01 00:00:09\n")
    done = run("bare.csv", "--policy", "many.yaml", "--service-s", "2", "--limit", "1", "--json", "-")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["policies"][0]["requests"] == 1


@pytest.mark.parametrize(
    ("policy", "arguments", "message"),
    [
        ("max_replicas: 0", [], "max_replicas: expected an integer >= 1, found 0 (bad.yaml:1)"),
        ("min_replicas: 1\nmax_replica: 3", [], 'max_replica: expected a known key such as "max_replicas"'),
        ("- 1", [], "the policy: expected a mapping"),
        ("max_replicas: 3\nmin_replicas: 4", [], "min_replicas: expected an integer from 0 to 3, found 4 (bad.yaml:2)"),
        ("a: [", [], "bad.yaml"),
        ("max_replicas: 3", ["--policy", "sub/bad.yaml"], "expected files with different names, found bad 2 times"),
        ("max_replicas: 3", ["--html", "trace.csv"], "which is an input"),
        ("max_replicas: 3", ["--service-s", "-1"], "--service-s"),
        ("max_replicas: 200000", [], "at most 100000 replicas"),
    ],
)
def test_bad_input_is_one_line_and_status_2(folder, policy, arguments, message):
    (folder / "bad.yaml").write_text(policy)
    (folder / "sub").mkdir()
    (folder / "sub" / "bad.yaml").write_text("max_replicas: 3")
    done = run("trace.csv", "--policy", "bad.yaml", *arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("trace", "message"),
    [(None, "missing.csv"), ("TIMESTAMP\nsoon\n", "missing.csv"), ("TIMESTAMP,ContextTokens\n", "GeneratedTokens")],
)
def test_a_trace_that_cannot_be_used_is_named(folder, trace, message):
    if trace is not None:
        (folder / "missing.csv").write_text(trace)
    done = run("missing.csv", "--policy", "many.yaml")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert message in done.stderr


def python(*arguments: str, cwd: Path) -> str:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    done = subprocess.run([sys.executable, *arguments], cwd=cwd, env=env, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_page_about_autoscaling_runs_and_prints_what_it_says(tmp_path):
    code, printed = re.search(r"```python\n(.*?)```\n\nprints\n\n```text\n(.*?)```", PAGE, re.DOTALL).groups()
    (tmp_path / "page.py").write_text(code)
    assert python("page.py", cwd=tmp_path) == printed


def test_the_page_about_autoscaling_shows_what_a_backtest_prints():
    command, table = re.search(r"```text\n\$ rankcore (autoscale-backtest .*?)\n(.*?)```", PAGE, re.DOTALL).groups()
    found = python("-m", "executors.cli", *shlex.split(command), cwd=ROOT)
    shown = [line.rstrip() for line in found.splitlines() if not line.startswith("again")]
    assert shown == [line.rstrip() for line in table.splitlines()]
