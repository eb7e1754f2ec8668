"""What stands in the pages, without a browser: bounded, the same each time, and nothing of it from outside."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from executors.cli.simulate import as_json
from executors.simulator.cluster.outages import DOWN, PARTITION, Outage, Outages
from executors.simulator.record.figures import DeploymentFigures
from executors.simulator.record.happenings import Failure, Happening
from executors.simulator.record.notebook import EVENTFUL_MAX, ROUTINE_MAX, Decision, Decisions, Notebook
from executors.simulator.record.timeline import Gap, Hold, Phase
from executors.simulator.report import data as report_data
from executors.simulator.report import render_page
from executors.simulator.report.assets import json_in_html
from executors.simulator.report.data import page_data
from executors.simulator.report.happened import HAPPENINGS_MAX, rows_of
from executors.simulator.report.verdict import verdict_of
from executors.simulator.report.words import duration, groups, rows
from rankcore import Step
from rankcore.notes import Note, NoteKind
from rankcore.values import ReplicaRank
from tests.report_runs import HOSTILE, everything, hostile, run_of

ROOT = Path(__file__).parents[2]
RERUN = "rankcore simulate x.yaml --seed 3"


@pytest.fixture(scope="module")
def result():
    return everything()


def ms(seconds: float) -> int:
    return round(seconds * 1000)


def data_in(page: str):
    return json.loads(re.search(r'<script type="application/json" id="run-data">(.*?)</script>', page, re.DOTALL)[1])


# -- the page


def test_the_same_run_gives_the_same_page_whatever_the_hash_seed(result):
    program = "import hashlib; from tests.report_runs import everything; from executors.simulator.report import render_page\n"
    program += f"print(hashlib.sha256(render_page(everything(), {RERUN!r}).encode()).hexdigest())"
    pages = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(pages) == 1


def test_hostile_names_end_no_element(result):
    page, plain = render_page(hostile(), f"rankcore simulate '{HOSTILE}'"), render_page(result, RERUN)
    for markup in ("<script", "</script", "<img", "<h1", "</h1", "<table", "<td"):
        assert page.count(markup) == plain.count(markup)
    assert data_in(page)["deployments"][0]["name"] == HOSTILE


@pytest.mark.parametrize("text", ["</script>", "<!--", "]]>", "a & b", '"', "\u2028", "\u2029", "\x00", "\U0001f680"])
def test_json_in_a_page_means_the_same_and_has_no_markup(text):
    written = json_in_html({"name": text})
    assert json.loads(written) == {"name": text}
    assert not set(written) & set("<>&\u2028\u2029")


def test_the_page_names_seed_command_and_every_figure(result):
    page = render_page(result, RERUN)
    assert RERUN in page
    for label, _ in rows(result.deployments[0]):
        assert label.strip() in page


AUTOSCALED = """
  - name: auto
    autoscaling: {min_replicas: 1, max_replicas: 3, target_ongoing_requests: 1, upscale_delay_s: 2}
    requests: {poisson: {rate_per_s: 2, for_s: 60, service_s: 1}}"""
PATIENT = """
  - name: patient
    target_replicas: 1
    requests: {poisson: {rate_per_s: 1, for_s: 60, service_s: 0.1}}"""
HURRIED = """
  - name: hurried
    target_replicas: 1
    max_ongoing_requests: 1
    request_timeout_s: 2
    idempotent: true
    requests: {poisson: {rate_per_s: 3, for_s: 60, service_s: 1}}"""


@pytest.mark.parametrize("deployments", [AUTOSCALED + HURRIED + PATIENT, PATIENT + HURRIED + AUTOSCALED])
def test_each_figure_of_the_page_is_that_of_its_deployment(deployments):
    crash = "faults: [{kind: replica_crash, at: 30, deployment: hurried, rank: 0}]"
    result = run_of(f"nodes: [{{name: n, count: 1, gpus: 5}}]\ndeployments:{deployments}\n{crash}\n")
    table = re.search(r'<section id="figures".*?</section>', render_page(result, RERUN), re.DOTALL)[0]
    names = re.findall(r'<th scope="col">(.*?)</th>', table)
    shown = {name: {} for name in names}
    for label, cells in re.findall(r'<tr><th scope="row"[^>]*>(.*?)</th>(.*?)</tr>', table):
        for name, value in zip(names, re.findall(r"<td>(.*?)</td>", cells), strict=True):
            shown[name][label] = value
    assert names == [figures.name for figures in result.deployments]
    for figures in result.deployments:
        expected = {label.strip(): value for label, value in rows(figures)}
        assert expected.items() <= shown[figures.name].items()
        others = {label: value for label, value in shown[figures.name].items() if label not in expected}
        assert set(others.values()) <= {"0", "-"}  # what it has nothing of
    assert int(shown["hurried"]["expired (deadline)"]) > 0
    assert shown["patient"]["expired (deadline)"] == "0"
    assert shown["patient"]["scale events"] == "-"


def test_ranks_for_which_there_never_was_room_are_counted_in_table_json_page_and_verdict():
    crowded = run_of("nodes: [{name: n, gpus: 16}]\ndeployments: [{name: llm, target_replicas: 40}]\n")
    figures = crowded.deployments[0]
    assert (figures.ranks_without_room, figures.world_size_most) == (24, 40)
    assert ("ranks that never fitted", "24 of 40") in rows(figures)
    assert "24 of 40 ranks never fitted on the nodes" in render_page(crowded, RERUN)
    assert as_json(crowded, RERUN)["deployments"][0]["ranks_without_room"] == 24


def test_a_rank_that_had_a_place_at_any_time_is_not_one_that_never_fitted(result):
    assert all(figures.ranks_without_room == 0 for figures in result.deployments)  # though replacements waited for a node
    assert "ranks that never fitted" not in dict(rows(result.deployments[0]))


def test_ranks_that_lost_their_holder_are_listed_the_worst_first(result):
    listed = re.findall(r'<tr data-deployment="llm" data-rank="(\d+)">', render_page(result, RERUN))
    figures = result.deployments[0]
    worst_first = sorted(figures.unserved, key=lambda rank: (-rank.longest.length_s, rank.rank))
    assert [int(rank) for rank in listed] == [rank.rank for rank in worst_first]
    assert listed


def test_a_broken_promise_is_what_the_page_says_first(result):
    failure = Failure(12.5, "llm", "ReplicaReady llm#1.0", "R3", "replicas <a> and b believe rank 0")
    broken = attrs.evolve(result, failure=failure)
    assert verdict_of(broken).grade == "broken"
    assert "The run was stopped: promise R3 broken" in render_page(broken, RERUN)
    assert "replicas &lt;a&gt; and b" in render_page(broken, RERUN)


# -- its data


def test_lanes_decode_to_the_holds_and_gaps_of_the_run(result):
    data = page_data(result)["deployments"][0]
    found, gaps = [], []
    for rank, flat in enumerate(data["holds"]):
        end = 0
        for away, long, replica, phase in zip(*[iter(flat)] * 4, strict=True):
            since, end = end + away, end + away + long
            found.append((rank, "llm" + data["replicas"][replica], page_data(result)["phases"][phase], since, end))
    for rank, flat in enumerate(data["gaps"]):
        end = 0
        for away, long in zip(*[iter(flat)] * 2, strict=True):
            since, end = end + away, end + away + long
            gaps.append((rank, since, end))
    ms = [
        (hold.rank, hold.replica_id, hold.phase, round(hold.since * 1e3), round(hold.until * 1e3))
        for hold in result.holds["llm"]
    ]
    assert found == ms
    assert gaps == [(gap.rank, round(gap.since * 1e3), round(gap.until * 1e3)) for gap in result.gaps["llm"]]


def test_a_huge_run_stays_a_small_page_that_says_what_is_not_in_it(result):
    holds = tuple(
        Hold(
            index % 1000,
            f"llm#1.{index}",
            f"gpu-node-{index % 4}",
            Phase.RUNNING,
            index // 1000 * 30.0,
            index // 1000 * 30.0 + index % 29,
        )
        for index in range(200_000)
    )
    gaps = tuple(Gap(hold.rank, hold.until, hold.since + 30.0) for hold in holds)
    happenings = tuple(Happening(float(index), "fault", None, "node gpu-node-1 lost" + "x" * 60) for index in range(50_000))
    outages = tuple(Outage("gpu-node-1", DOWN, index * 10.0, index * 10.0 + 5.0) for index in range(50_000))
    huge = attrs.evolve(
        result,
        holds={**result.holds, "llm": holds},
        gaps={**result.gaps, "llm": gaps},
        happenings=happenings,
        outages=outages,
        world_sizes={**result.world_sizes, "llm": ((0.0, 1000),)},
    )
    page = render_page(huge, RERUN)
    assert len(page) < 4_000_000
    assert "Not in the picture" in page
    data = data_in(page)
    drawn = sum(len(lane) // 4 for lane in data["deployments"][0]["holds"])
    assert drawn + data["deployments"][0]["left_out"]["holds"] == len(holds)
    assert data["left_out"]["rows"] == 50_000 - HAPPENINGS_MAX + result.decisions.left_out
    assert data["left_out"]["outages"] == 50_000 - report_data.OUTAGES_MAX


def test_what_is_left_out_is_the_shortest(result, monkeypatch):
    monkeypatch.setattr(report_data, "HOLDS_MAX", 20)
    data = page_data(result)["deployments"][0]
    lengths = sorted((round(hold.until * 1e3) - round(hold.since * 1e3) for hold in result.holds["llm"]), reverse=True)
    kept = sorted((length for lane in data["holds"] for length in lane[1::4]), reverse=True)
    assert kept == lengths[:10]  # of two deployments each has half of the room


def test_series_that_are_joined_keep_their_bounds(result, monkeypatch):
    fine = page_data(result)["deployments"][0]["series"]["waiting"]
    monkeypatch.setattr(report_data, "BUCKETS_MAX", 8 * 40)
    coarse = page_data(result)["deployments"][0]["series"]["waiting"]
    assert len(coarse["at"]) <= 40 < len(fine["at"])
    assert max(coarse["high"]) == max(fine["high"])
    assert min(coarse["low"]) == min(fine["low"])


# -- what happened, and why


def test_the_list_has_every_fault_and_change_and_the_decisions_in_the_words_of_the_notes(result):
    found, left_out = rows_of(result)
    assert left_out == 0
    assert [row.at for row in found] == sorted(row.at for row in found)
    happened = [happening.text for happening in result.happenings if happening.kind != "status"]
    assert [row.text for row in found if row.group in ("fault", "change", "controller")] == happened
    kept = [(row.what, row.text, row.rule) for row in found if row.group in ("decision", "routine", "status")]
    notes = [each.note for each in result.decisions.kept]
    assert sorted(kept) == sorted((str(note.kind), note.because, note.rule) for note in notes)


def test_a_move_is_told_with_both_ranks():
    note = Note(NoteKind.RANK_MOVED, "R8", "llm#1.7", ReplicaRank(7, 0, 0), ReplicaRank(2, 0, 0), because="compaction")
    run = attrs.evolve(everything(), happenings=(), decisions=Decisions((Decision(1.0, "llm", note),), 0))
    assert [row.ranks for row in rows_of(run)[0]] == ["7 \u2192 2"]


class Clock:
    now = 0.0


def noted(kinds):
    """A notebook that has seen a step with each of these notes, one a second."""
    clock = Clock()
    notebook = Notebook(clock)
    state = everything_state()
    for at, kind in enumerate(kinds):
        clock.now = float(at)
        notebook.append(None, Step(state, (), (Note(kind, "R6", because=str(at)),)))
    return notebook.decisions


def everything_state():
    from rankcore import DeploymentSpec, deploy

    return deploy(DeploymentSpec(name="llm", target_replicas=1)).state


def test_a_notebook_keeps_the_first_and_the_last_and_counts_the_rest():
    many = EVENTFUL_MAX + 500
    decisions = noted([NoteKind.RANK_KEPT] * many)
    numbers = [int(each.note.because) for each in decisions.kept]
    half = EVENTFUL_MAX // 2
    assert numbers == [*range(half), *range(many - half, many)]
    assert decisions.left_out == 500


def test_routine_does_not_push_out_what_matters():
    decisions = noted([NoteKind.REPLICA_LOST, *[NoteKind.REPLICA_RUNNING] * 5_000, NoteKind.RANK_MOVED])
    kinds = [each.note.kind for each in decisions.kept]
    assert (kinds[0], kinds[-1]) == (NoteKind.REPLICA_LOST, NoteKind.RANK_MOVED)
    assert len(kinds) == ROUTINE_MAX + 2


def test_repeats_and_late_news_are_in_the_journal_only():
    assert noted([NoteKind.REPEATED, NoteKind.LATE, NoteKind.UNKNOWN_REPLICA]) == Decisions((), 0)


def test_a_notebook_hands_on_to_the_journal_first():
    class Full:
        def append(self, event, result):
            raise OSError("full")

    notebook = Notebook(Clock(), Full())
    with pytest.raises(OSError, match="full"):
        notebook.append(None, Step(everything_state(), (), (Note(NoteKind.RANK_KEPT, "R6"),)))
    assert notebook.decisions.kept == ()


def test_outages_last_until_they_are_over_or_the_run_is():
    outages = Outages()
    outages.begin(1.0, "n", DOWN)
    outages.begin(2.0, "n", DOWN)  # it is down already
    outages.begin(2.0, "m", PARTITION)
    outages.end(3.0, "n", DOWN)
    outages.end(4.0, "n", DOWN)
    assert outages.until(9.0) == (Outage("n", DOWN, 1.0, 3.0), Outage("m", PARTITION, 2.0, 9.0))


def test_outages_of_a_run_are_those_of_its_faults(result):
    assert [(each.subject, each.kind, each.since, each.until) for each in result.outages] == [
        ("gpu-node-1", "down", 200.0, 260.0),
        ("controller", "controller down", 400.0, 420.0),
    ]


# -- words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.25, "250 ms"), (18.24, "18.2 s"), (628.7, "10 min 29 s"), (7500, "2 h 05 min"), (273_600, "3 d 04 h")],
)
def test_lengths_of_time_in_words(seconds, words):
    assert duration(seconds) == words


def test_rows_are_the_groups_one_after_another(result):
    figures: DeploymentFigures = result.deployments[0]
    assert tuple(rows(figures)) == tuple(row for _, part in groups(figures) for row in part)


def test_a_run_in_which_nothing_happened_is_good():
    calm = everything()
    figures = tuple(
        attrs.evolve(each, longest_gap=None, unserved=(), requests=attrs.evolve(each.requests, waited_over_1_s=0, lost=0))
        for each in calm.deployments
    )
    verdict = verdict_of(attrs.evolve(calm, deployments=figures))
    assert verdict.grade == "good"
    assert "without waiting over 1 s" in verdict.text


def test_the_verdict_names_the_worst(result):
    verdict = verdict_of(result)
    assert verdict.grade == "hurt"
    worst = max((figures.longest_gap for figures in result.deployments), key=lambda gap: gap.length_s)
    assert f"rank {worst.rank}" in verdict.text
    assert duration(worst.length_s) in verdict.text
