"""`rankcore compare`, as a user runs it."""

import json
import re
import shutil
import statistics
from pathlib import Path

import pytest
from typer.testing import CliRunner

from executors.cli.app import app
from executors.simulator.load.sources import Source, read_source
from executors.simulator.questions.cells import Cell, in_processes, in_this_process, run_cell
from executors.simulator.questions.comparison import compare_each
from executors.simulator.record.flat_figures import label, number

SMALL = """\
name: small
seed: 5
nodes: [{name: n, count: 2, gpus: 2}]
network: {latency_s: {exponential: {mean: 0.01}}}
deployments:
  - name: llm
    target_replicas: 3
    requests: {poisson: {rate_per_s: 1, begin_s: 60, for_s: 60, service_s: {exponential: {mean: 3}}}}
faults: [{kind: node_loss, at: busiest_minute + 5, node: n-0, back_after_s: 30}]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text(SMALL)
    (tmp_path / "b.yaml").write_text(SMALL.replace("target_replicas: 3", "target_replicas: 4"))
    return tmp_path


def run(*arguments: str):
    return CliRunner().invoke(app, ["compare", *arguments])


def test_every_figure_has_both_means_and_the_paired_difference_with_its_interval(folder):
    done = run("a.yaml", "b.yaml", "--runs", "6", "--json", "-")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["seeds"] == [5, 6, 7, 8, 9, 10]
    assert found["rerun"] == "rankcore compare a.yaml b.yaml --runs 6 --seed 5"
    figure = found["deployments"][0]["figures"]["requests.latency_s.p95"]
    pairs = [b - a for a, b in zip(figure["a_runs"], figure["b_runs"], strict=True)]
    assert figure["a"] == pytest.approx(statistics.fmean(figure["a_runs"]))
    assert figure["difference"]["mean"] == pytest.approx(statistics.fmean(pairs))
    half_width = 2.5706 * statistics.stdev(pairs) / 6**0.5  # t(5) = 2.5706
    assert figure["difference"]["high"] - figure["difference"]["mean"] == pytest.approx(half_width, rel=1e-4)
    starts = found["deployments"][0]["figures"]["replica_starts"]["difference"]
    assert (starts["low"], starts["mean"], starts["high"], starts["distinguishable"]) == (1, 1, 1, True)


def test_both_have_the_same_requests_on_the_same_seed(folder):
    """Common random numbers: what is luck is in both."""
    found = json.loads(run("a.yaml", "b.yaml", "--runs", "5", "--json", "-").stdout)
    arrived = found["deployments"][0]["figures"]["requests.arrived"]
    assert arrived["a_runs"] == arrived["b_runs"]
    assert len(set(arrived["a_runs"])) > 1


def test_a_pair_is_much_sharper_than_two_samples_of_their_own(folder):
    found = json.loads(run("a.yaml", "b.yaml", "--runs", "8", "--json", "-").stdout)
    figure = found["deployments"][0]["figures"]["requests.latency_s.p50"]
    paired = statistics.stdev(b - a for a, b in zip(figure["a_runs"], figure["b_runs"], strict=True))
    assert paired < statistics.stdev(figure["a_runs"]) / 2


def test_the_table_says_what_is_different_and_what_is_not(folder):
    done = run("a.yaml", "b.yaml", "--runs", "5")
    lines = done.stdout.splitlines()
    assert lines[:2] == ["A: a.yaml", "B: b.yaml"]
    assert "5 runs of each, on the same seeds, 5 to 9" in done.stdout
    assert next(line for line in lines if "replica starts" in line).split()[-2:] == ["B", "higher"]
    assert next(line for line in lines if "latency p50" in line).split()[-1] == "no"
    assert "Equal in every pair: healthy at the end (1)" in done.stdout
    assert "again: rankcore compare a.yaml b.yaml --runs 5 --seed 5" in done.stdout


def test_one_run_has_no_interval_and_says_so(folder):
    done = run("a.yaml", "b.yaml", "--runs", "1")
    assert done.exit_code == 0
    assert "One pair says nothing of chance" in done.stdout
    figure = json.loads(run("a.yaml", "b.yaml", "--runs", "1", "--json", "-").stdout)["deployments"][0]["figures"]["gpu_hours"]
    assert (figure["difference"]["low"], figure["difference"]["distinguishable"]) == (None, None)


def test_a_scenario_differs_in_nothing_from_itself(folder):
    done = run("a.yaml", "a.yaml", "--runs", "3", "--json", "-")
    for figure in json.loads(done.stdout)["deployments"][0]["figures"].values():
        difference = figure["difference"]
        assert difference["count"] == 0 or (difference["low"], difference["mean"], difference["high"]) == (0, 0, 0)
        assert not difference["distinguishable"]


def test_a_run_depends_on_its_cell_only_and_not_on_the_number_of_jobs(folder):
    sources = read_source(folder / "a.yaml"), read_source(folder / "b.yaml")
    seeds = range(5, 9)
    assert compare_each(sources, seeds, in_this_process) == compare_each(sources, seeds, in_processes(2))


def test_deployments_of_one_file_only_are_named_and_the_others_compared(folder):
    (folder / "c.yaml").write_text(SMALL.replace("deployments:\n", "deployments:\n  - {name: extra, target_replicas: 1}\n"))
    done = run("a.yaml", "c.yaml", "--runs", "2")
    assert "only in c.yaml, compared with nothing: extra" in done.stdout
    found = json.loads(run("a.yaml", "c.yaml", "--runs", "2", "--json", "-").stdout)
    assert (found["only_in_a"], found["only_in_b"]) == ([], ["extra"])
    assert [each["name"] for each in found["deployments"]] == ["llm"]


def test_with_a_policy_b_is_a_with_its_settings(folder):
    (folder / "four.yaml").write_text("target_replicas: 4\n")
    done = run("a.yaml", "--policy", "four.yaml", "--runs", "2", "--json", "-")
    found, written_out = json.loads(done.stdout), json.loads(run("a.yaml", "b.yaml", "--runs", "2", "--json", "-").stdout)
    assert found["deployments"] == written_out["deployments"]
    assert (found["a"], found["b"]) == ("a.yaml", "a.yaml with four.yaml")
    assert found["rerun"] == "rankcore compare a.yaml --policy four.yaml --runs 2 --seed 5"


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        (None, "rankcore: error: expected B, what it is compared with, or --policy FILE"),
        ("- 4", "rankcore: error: p.yaml: expected a mapping of settings such as min_hot_s: 60, found [4]"),
        ("target_replica: 4", 'rankcore: error: target_replica: expected a known key such as "target_replicas"'),
        (
            "displacement: {turn_factor: 21}",
            "displacement.turn_factor: expected a number from 0 to 20, found 21.0 (set by displacement",
        ),
    ],
)
def test_a_policy_that_says_nothing_is_told_in_one_line(folder, policy, problem):
    (folder / "p.yaml").write_text(policy or "")
    done = run("a.yaml", *(["--policy", "p.yaml"] if policy is not None else []), "--runs", "1")
    assert (done.exit_code, done.stderr.count("\n"), problem in done.stderr) == (2, 1, True), done.stderr


def data_in(page: str):
    return json.loads(re.search(r'<script type="application/json" id="run-data">(.*?)</script>', page, re.DOTALL)[1])


def test_a_page_has_the_first_pair_on_one_axis_and_the_figures_as_printed(folder):
    done = run("a.yaml", "b.yaml", "--runs", "3", "--html", "both.html", "--json", "f.json")
    assert done.exit_code == 0, done.stderr
    assert "page:  both.html" in done.stdout
    page, found = (folder / "both.html").read_text(), json.loads((folder / "f.json").read_text())
    data = data_in(page)
    assert [each["letter"] for each in data["runs"]] == ["A", "B"]
    assert [len(each["deployments"][0]["holds"]) for each in data["runs"]] == [3, 4]
    assert "seed 5" in page
    assert "rankcore compare a.yaml b.yaml --runs 3 --seed 5" in page
    rows = re.findall(r'<tr><th scope="row">(.*?)</th>((?:<td.*?</td>)+)</tr>', page)
    shown = {name: re.findall(r"<td[^>]*>(.*?)</td>", cells) for name, cells in rows}
    for key, figure in found["deployments"][0]["figures"].items():
        if figure["a_runs"] != figure["b_runs"]:
            difference = figure["difference"]["mean"]
            assert shown[label(key)][2] == ("-" if difference is None else number(difference, signed=True))
            assert " ".join(shown[label(key)]) in " ".join(done.stdout.split())
        else:
            assert label(key) not in shown


def test_each_of_three_more_scenarios_is_compared_with_the_first_as_it_would_be_alone(folder):
    for target in (2, 5):
        (folder / f"{target}.yaml").write_text(SMALL.replace("target_replicas: 3", f"target_replicas: {target}"))
    others = ("b.yaml", "2.yaml", "5.yaml")
    done = run("a.yaml", *others, "--runs", "3", "--html", "four.html", "--json", "f.json")
    assert done.exit_code == 0, done.stderr
    found = json.loads((folder / "f.json").read_text())
    assert found["rerun"] == "rankcore compare a.yaml b.yaml 2.yaml 5.yaml --runs 3 --seed 5"
    alone = [json.loads(run("a.yaml", other, "--runs", "3", "--json", "-").stdout) for other in others]
    assert found["pairs"] == [{key: value for key, value in each.items() if key != "rerun"} for each in alone]
    for words in ("A: a.yaml", "D: 5.yaml", "llm: B and A", "llm: D and A", "C lower", "D higher"):
        assert words in done.stdout
    page = (folder / "four.html").read_text()
    assert [len(each["deployments"][0]["holds"]) for each in data_in(page)["runs"]] == [3, 4, 2, 5]
    assert "B - A, C - A, D - A" in page
    assert [words in page for words in ("llm: B and A", "llm: C and A", "llm: D and A")] == [True] * 3


def test_every_run_of_three_scenarios_is_made_once(folder):
    sources, made = [read_source(folder / name) for name in ("a.yaml", "b.yaml", "a.yaml")], []

    def counted(cells):
        made.extend((cell.source.name, cell.seed) for cell in cells)
        return in_this_process(cells)

    assert len(compare_each(sources, [1, 2], counted)) == 2
    assert len(made) == 6


def test_a_page_is_the_same_whatever_the_number_of_jobs(folder):
    for jobs in ("1", "2"):
        assert run("a.yaml", "b.yaml", "--runs", "2", "--jobs", jobs, "--html", f"{jobs}.html").exit_code == 0
    assert (folder / "1.html").read_bytes() == (folder / "2.html").read_bytes()


def test_without_a_page_no_run_is_carried_from_process_to_process(folder):
    source = read_source(folder / "a.yaml")
    assert run_cell(Cell(source, 5)).result is None
    (found,) = compare_each((source, source), [5], in_this_process)
    assert found.drawn == ()
    (found,) = compare_each((source, source), [5, 6], in_this_process, is_drawn=True)
    assert [each.seed for each in found.drawn] == [5, 5]


def test_a_page_that_cannot_be_made_costs_no_figures(folder, monkeypatch):
    def broken(*_):
        raise RuntimeError("a bug in the page")

    monkeypatch.setattr("executors.cli.compare.render_comparison", broken)
    done = run("a.yaml", "b.yaml", "--runs", "1", "--html", "both.html", "--json", "f.json")
    assert done.exit_code != 0
    assert "a bug in the page" in done.stderr
    assert json.loads((folder / "f.json").read_text())["deployments"]
    assert not (folder / "both.html").exists()


def test_progress_is_told_for_every_run(folder):
    source, told = read_source(folder / "a.yaml"), []
    compare_each((source, source), [1, 2], in_this_process, progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("a.yaml", "missing.yaml"), "missing.yaml: cannot be read"),
        (("a.yaml", "bad.yaml"), "expected an integer"),
        (("a.yaml", "other.yaml"), "expected a deployment that is in both, found llm in a.yaml and other in other.yaml"),
        (("a.yaml", "trace.yaml"), "deployments[0].requests.trace.file: "),
        (("a.yaml", "b.yaml", "--seed", str(2**63 - 2)), "--seed: expected at most"),
        (("a.yaml", "b.yaml", "--json", "a.yaml"), "which is an input"),
        (("a.yaml", "b.yaml", "--html", "a.yaml"), "which is an input"),
        (("a.yaml", "b.yaml", "b.yaml", "b.yaml", "b.yaml"), "expected at most 4 scenarios, found 5"),
        (("a.yaml", "b.yaml", "a.yaml", "--policy", "p.yaml"), "--policy: expected one scenario besides A at most, found 2"),
        (("a.yaml", "b.yaml", "other.yaml"), "found llm in a.yaml and other in other.yaml"),
        (("models.yaml", "models.yaml", "--html", "p.html"), "--html: expected deployments without residency"),
        (("a.yaml", "b.yaml", "--runs", "0"), "'--runs'"),
        (("a.yaml",), "expected B, what it is compared with, or --policy FILE"),
    ],
)
def test_what_cannot_be_compared_is_one_line_and_status_2_and_nothing_runs(folder, arguments, problem, monkeypatch):
    monkeypatch.setattr("executors.simulator.questions.cells.run_cell", None)
    (folder / "bad.yaml").write_text(SMALL.replace("target_replicas: 3", "target_replicas: x"))
    (folder / "other.yaml").write_text(SMALL.replace("name: llm", "name: other"))
    shutil.copy(Path(__file__).parents[2] / "examples/sixty-and-sixty.yaml", folder / "models.yaml")
    trace = "{trace: {file: gone.csv, base_s: 1, prompt_s_per_token: 0, output_s_per_token: 0}}"
    start = SMALL.index("{poisson")
    (folder / "trace.yaml").write_text(SMALL[:start] + trace + SMALL[SMALL.index("\n", start) :])
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("rankcore: error: ")
    assert problem in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_broken_promise_ends_it_and_names_the_run(folder, monkeypatch):
    def broken(cell: Cell):
        found = run_cell(cell)
        return type(found)(found.figures, "promise R3 broken at t=1 s: x" if cell.seed == 7 else None)

    monkeypatch.setattr("executors.simulator.questions.cells.run_cell", broken)
    done = run("a.yaml", "b.yaml", "--runs", "5")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "rankcore: error: a.yaml with seed 7: promise R3 broken at t=1 s: x\n"


def test_ctrl_c_is_one_line_and_status_130(folder, monkeypatch):
    def interrupted(cell: Cell):
        raise KeyboardInterrupt

    monkeypatch.setattr("executors.simulator.questions.cells.run_cell", interrupted)
    done = run("a.yaml", "b.yaml", "--json", "f.json")
    assert done.exit_code == 130
    assert done.stderr == "rankcore: interrupted, nothing was written\n"
    assert not (folder / "f.json").exists()


def test_a_source_survives_the_way_to_another_process():
    import pickle

    source = Source("a.yaml", SMALL, ".")
    assert run_cell(pickle.loads(pickle.dumps(Cell(source, 5)))) == run_cell(Cell(source, 5))


def test_objectives_are_told_of_both_by_runs_and_by_windows(folder):
    options = ("--slo", "p95 wait_s < 0.5 @ 80%", "--slo", "lost < 1", "--slo-window", "20s", "--runs", "3")
    done = run("a.yaml", "b.yaml", *options, "--json", "figures.json")
    assert done.exit_code == 0, done.stderr
    found = json.loads((folder / "figures.json").read_text())
    windows, lost = found["slo"]
    assert (windows["text"], windows["of"]) == ("p95 wait_s < 0.5 @ 80%", "windows")
    shares = found["deployments"][0]["figures"]["windows.p95 wait_s < 0.5 @ 80%"]
    assert shares["a_runs"] == windows["a"]["runs"]
    assert all(0 <= share <= 1 for share in windows["a"]["runs"] + windows["b"]["runs"])
    assert windows["b"]["held_in_runs"] == sum(share >= 0.8 for share in windows["b"]["runs"])
    assert lost["a"]["held_in_runs"] == sum(count < 1 for count in lost["a"]["runs"])
    assert "--slo 'p95 wait_s < 0.5 @ 80%' --slo 'lost < 1' --slo-window 20s" in found["rerun"]
    assert "of windows" in done.stdout
    assert f"{lost['a']['held_in_runs']}/3" in done.stdout


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--slo", "p99 ttft_s < 2"), '--slo: expected ttft_s for a deployment with an engine, found "p99 ttft_s"'),
        (("--slo", "p99 wait < 2"), "--slo: expected a figure: latency_s, wait_s,"),
        (("--slo", "lost < 1 @ 9%", "--slo-window", "soon"), "--slo-window: expected a time such as 120s"),
        (("--slo", "lost < 1 @ 9%", "--slo-window", "0.5"), "--slo-window: expected 1 s or more, found '0.5'"),
    ],
)
def test_a_bad_objective_is_one_line_and_nothing_runs(folder, options, problem):
    done = run("a.yaml", "b.yaml", *options)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert problem in done.stderr
