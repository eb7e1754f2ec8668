"""The shipped examples run, keep every promise, and answer what their comments say that they answer."""

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from executors.checking import Checking
from executors.cli.app import app
from executors.simulator.load.sources import read_source
from executors.simulator.questions.settings import read_settings
from executors.simulator.residency.run import ResidencyRun

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
CHECKOUT_MAX_BYTES = 15_000_000
DAY_S = 86_400.0

Figures = dict[str, Any]


@functools.cache
def run_of(name: str, *options: str) -> Figures:
    """What `rankcore simulate` says of an example; that it ends well is looked at here."""
    with tempfile.TemporaryDirectory() as folder:
        report = ("--json", "-", "--report", f"{folder}/report.html")
        done = CliRunner().invoke(app, ["simulate", str(EXAMPLES / f"{name}.yaml"), *report, *options])
    assert (done.exit_code, done.stderr) == (0, "")
    found: Figures = json.loads(done.stdout)
    assert found["failure"] is None
    return found


def deployments(name: str, *options: str) -> dict[str, Figures]:
    return {figures["name"]: figures for figures in run_of(name, *options)["deployments"]}


def answer(name: str) -> str:
    """The comment that an example begins with, on one line."""
    lines = (EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    end = next(index for index, line in enumerate(lines) if not line.startswith("#"))
    return " ".join(" ".join(line.removeprefix("#") for line in lines[:end]).split())


def gap_s(figures: Figures) -> float:
    return figures["longest_gap"]["until"] - figures["longest_gap"]["since"]


def node_failure_at_peak() -> list[str]:
    (lost,) = deployments("node-failure-at-peak").values()
    (calm,) = deployments("node-failure-at-peak", "--set", "faults=[]").values()
    (spare,) = deployments("node-failure-at-peak", "--set", "target_replicas=14").values()
    assert lost["ranks_moved"] == lost["other_ranks_moved"] == lost["reconfigures"] == spare["ranks_moved"] == 0
    requests = lost["requests"]
    return [
        f"rank {lost['longest_gap']['rank']} stands empty for {gap_s(lost) / 60:.0f} minutes",
        f"{requests['lost']} of {requests['arrived']:,} requests are lost",
        f"{requests['waited_over_1_s']:,} wait for more than a second",
        f"{calm['requests']['waited_over_1_s']:,} without the loss",
        f"99th percentile of waiting is {requests['wait_s']['p99']:.1f} s ({calm['requests']['wait_s']['p99']:.1f} s without)",
        f"both ranks are held again after {gap_s(spare):.0f} s",
    ]


def rolling_update() -> list[str]:
    rows = []
    for name, figures in deployments("rolling-update").items():
        assert figures["replica_crashes"] == figures["ranks_moved"] == figures["requests"]["lost"] == 0
        requests = figures["requests"]
        rows.append(
            f"{name} {figures['replica_starts']} {figures['incomplete_s']:.0f} s {gap_s(figures):.0f} s "
            f"{requests['waited_over_1_s']} {requests['wait_s']['p99']:.1f} s {figures['gpu_hours']:.1f}"
        )
    return rows


def downscale_policies() -> list[str]:
    return [
        f"{name} {figures['ranks_moved']} {figures['other_ranks_moved']} {figures['reconfigures']}"
        for name, figures in deployments("downscale-policies").items()
    ]


def controller_crash() -> list[str]:
    (figures,) = deployments("controller-crash-mid-compaction").values()
    requests = figures["requests"]
    assert (figures["replica_starts"], figures["replica_crashes"], requests["lost"]) == (16, 0, 0)
    return [
        f"{figures['ranks_moved']} global ranks change, each once",
        f"{figures['reconfigures']} reconfigures are carried out in all",
        f"{figures['reconfigures_sent']} messages were sent for them",
        f"ranks are not 0..8 for {figures['incomplete_s']:.0f} s",
        f"all {requests['done']:,} requests are served, {requests['waited_over_1_s']} of them after more than a second",
    ]


def fault_trace() -> list[str]:
    (short,) = deployments("fault-trace-60-days").values()
    (enough,) = deployments("fault-trace-60-days", "--set", "target_replicas=365").values()
    assert enough["ranks_moved"] == 0
    return [
        f"{short['ranks_moved']} times the highest rank moves into a lower one",
        f"{short['replica_crashes']} replicas go down with their nodes",
        f"on {short['incomplete_s'] / DAY_S:.0f} of the 60 days some rank is not held",
        f"rank {short['longest_gap']['rank']} for {gap_s(short) / DAY_S:.1f} days on end",
        f"no rank is ever without its replica for more than {gap_s(enough):.0f} s",
    ]


def spot_nodes() -> list[str]:
    found = run_of("spot-nodes")
    (figures,) = found["deployments"]
    requests = figures["requests"]
    return [
        f"{figures['replica_crashes']} replicas are taken away",
        f"{figures['ranks_moved']} times the highest rank moves into a lower one",
        f"for {figures['rank_gap_s'] / found['ended_at']:.1%} of the time the ranks that run have a gap",
        f"{figures['incomplete_s'] / found['ended_at']:.0%} of the time",
        f"{requests['lost']} of {requests['arrived']:,} requests are lost",
        f"{requests['waited_over_1_s'] / requests['done']:.1%} wait for more than a second",
    ]


@functools.cache
def compared(first: str, second: str, runs: int) -> tuple[str, Figures]:
    """What `rankcore compare` prints at 120 columns, and its figures."""
    command = [sys.executable, "-m", "executors.cli", "compare", f"examples/{first}.yaml", f"examples/{second}.yaml"]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [*command, "--runs", str(runs), "--jobs", "2", "--json", f"{folder}/figures.json"],
            env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120"},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
            timeout=600,
        )
        (deployment,) = json.loads(Path(folder, "figures.json").read_text(encoding="utf-8"))["deployments"]
    return done.stdout, deployment["figures"]


def static_placement() -> list[str]:
    (lost,) = deployments("static-placement-node-loss").values()
    mapping = [[4 * rank + place for place in range(4)] for rank in (0, 1, 8, 9, 4, 5, 6, 7)]
    remap = f"[{{at: 660, deployment: rollout, placement: {{group: pg-trainers, bundles: {mapping}}}}}]"
    assert f"--set 'changes={remap}'" in answer("static-placement-node-loss")
    (moved,) = deployments("static-placement-node-loss", "--set", f"changes={remap}").values()
    assert lost["ranks_moved"] == lost["other_ranks_moved"] == lost["reconfigures"] == 0
    assert (moved["replica_starts"], moved["replica_crashes"], moved["reconfigures"]) == (10, 2, 0)
    _, figures = compared("static-placement-node-loss", "free-placement-node-loss", 20)
    waited, unserved = figures["requests.waited_over_1_s"], figures["unserved_rank_s"]
    return [
        f"{unserved['a']:,.0f} rank-seconds are unserved",
        f"{waited['a']:,.0f} of {figures['requests.arrived']['a']:,.0f} requests wait for more than a second",
        f"{unserved['b']:.0f} rank-seconds, and {waited['b']:.0f} requests",
        f"{moved['unserved_rank_s']:.0f} rank-seconds are unserved",
        f"{moved['requests']['waited_over_1_s']} requests wait (seed 1,",
    ]


def spot_preemption() -> list[str]:
    name = "spot-preemption-with-notice"
    (told,) = deployments(name).values()
    (struck,) = deployments(name, "--set", "faults=[{kind: node_loss, at: 720, node: spot-1, back_after_s: 300}]").values()
    assert told["ranks_moved"] == told["replica_crashes"] == 0
    return [
        f"{told['requests']['lost']} of {told['requests']['arrived']:,} requests are lost",
        f"a rank stands empty for {gap_s(told):.0f} s at most",
        f"and {struck['requests']['lost']} requests are lost",
    ]


def free_placement() -> list[str]:
    (figures,) = deployments("free-placement-node-loss").values()
    requests = figures["requests"]
    assert figures["reconfigures"] == figures["other_ranks_moved"]
    return [
        f"longest gap of a rank is {gap_s(figures):.0f} s",
        f"{requests['waited_over_1_s']} of {requests['arrived']:,} requests wait for more than a second",
        f"{figures['other_ranks_moved']} replicas are told another node rank",
    ]


def autoscaling() -> list[str]:
    (crashed,) = deployments("autoscaling").values()
    (calm,) = deployments("autoscaling", "--set", "faults=[]").values()
    requests, scaling = crashed["requests"], crashed["scaling"]
    assert requests["lost"] == requests["failed"] == 0
    return [
        f"{requests['done']:,} of {requests['arrived']:,} requests are done in {scaling['replica_hours']:.1f} replica-hours",
        f"12 replicas all the time are {12 * run_of('autoscaling')['ended_at'] / 3600:.1f}",
        f"with {scaling['scale_events']} scale events and {crashed['ranks_moved']} moves",
        f"{requests['waited_over_1_s']:,} wait for more than a second",
        f"99th percentile of waiting is {requests['wait_s']['p99']:.1f} s",
        f"{calm['requests']['waited_over_1_s']:,} wait, and the 99th percentile is {calm['requests']['wait_s']['p99']:.1f} s",
    ]


def residency_23_models() -> list[str]:
    found = run_of("residency-23-models")
    bare = run_of("residency-23-models", "--set", "node_list.cpu_cache_share=0")["all_deployments"]
    models, whole, ended_at = found["deployments"], found["all_deployments"], found["ended_at"]
    requests, moves = whole["requests"], whole["moves"]
    assert len(models) == 23
    never = [model["name"] for model in models if not model["hot_s"]]
    steady = [model for model in models if model["hot_s"] > 0.99 * ended_at]
    loads = moves["loads_from_disk"] + moves["loads_from_cpu"]
    answered = 100 * requests["done"] / requests["arrived"]
    assert bare["moves"]["loads_from_cpu"] == 0
    return [
        f"a day of {requests['arrived']:,} requests, {answered:.1f} % are answered",
        f"{' and '.join(never)} are larger than any node",
        f"{len(steady)} models are HOT for more than 99 % of the day",
        f"{100 * whole['memory']['gpu_used']:.0f} % of the GPU memory is held on average",
        f"{whole['misses']['count']} times a request finds its model away",
        f"half of the first answers come within {whole['misses']['first_answer_s']['p50']:.0f} s",
        f"{moves['loads_from_cpu']} of {loads} loads fast ones",
        f"{bare['moves']['loads_from_disk']} loads come from disk",
        f"half of the first answers take up to {bare['misses']['first_answer_s']['p50']:.0f} s",
    ]


def seventy_and_ten_tens() -> list[str]:
    large, *small = run_of("seventy-and-ten-tens")["deployments"]
    calls = large["requests"]
    return [
        f"Of {calls['arrived']} calls to the large one {calls['done']} are answered",
        f"all {sum(each['requests']['arrived'] for each in small):,} to the small ones",
        f"It is loaded {large['moves']['loads_from_disk']} times",
        f"calls wait for {large['misses']['first_answer_s']['p50']:.0f} s until then in the median",
    ]


def sixty_and_sixty() -> list[str]:
    turns, long = (run_of("sixty-and-sixty", *options)["all_deployments"] for options in ((), ("--set", "min_hot_s=180")))
    assert turns["requests"]["not_done"] == 0
    expired = 100 * long["requests"]["expired"] / long["requests"]["arrived"]
    return [
        f"all {turns['requests']['arrived']:,} calls are answered",
        f"first answer within {turns['misses']['first_answer_s']['p99']:.0f} s",
        f"the first answer takes {long['misses']['first_answer_s']['p99']:.0f} s, and {expired:.0f} % expire",
    ]


def five_on_three() -> list[str]:
    facts, loads, mean_s = [], [], []
    for settings in ((), read_settings(ROOT / "bench" / "policies" / "least-recently-used.yaml")):
        source = read_source(EXAMPLES / "five-on-three.yaml", settings)
        run = ResidencyRun(source.scenario(), source.arrivals(source.scenario()), checking=Checking.END)
        whole = run.go().all_deployments
        assert whole.requests.not_done == 0
        loads.append(whole.moves.loads_from_disk)
        wait = whole.requests.wait_s
        facts += [f"{loads[-1]:,} loads", f"half of the calls wait for {wait.p50:.0f} s, and 5 % for {wait.p95:.0f} s and more"]
        mean_s.append(sum(sum(queue.counts.waits_s) for queue in run.world.queues.values()) / whole.requests.arrived)
    assert loads[0] <= loads[1] / 2
    return [*facts, f"waits for {mean_s[0]:.0f} s on average with turns, and for {mean_s[1]:.0f} s without"]


def eight_nodes() -> list[str]:
    lost, calm = (run_of("eight-nodes", *options)["all_deployments"] for options in ((), ("--set", "faults=[]")))
    assert lost["requests"]["not_done"] == calm["requests"]["not_done"] == 0
    return [
        f"All {lost['requests']['arrived']:,} requests are answered",
        f"{lost['misses']['count']} times one finds its model away, and 95 % of the first answers",
        f"come within {lost['misses']['first_answer_s']['p95']:.0f} s",
        f"Without the loss {calm['misses']['count']} times",
    ]


def warm_source() -> list[str]:
    warm, cold, one = (
        run_of("warm-source", *options)["all_deployments"]
        for options in ((), ("--set", "nodes[0].cpu_cache_gb=0"), ("--set", "nodes[0].cpu_cache_gb=60"))
    )
    assert cold["moves"]["loads_from_cpu"] == 0
    from_disk, loads = one["moves"]["loads_from_disk"], one["moves"]["loads_from_cpu"] + one["moves"]["loads_from_disk"]
    return [
        f"{warm['moves']['loads_from_cpu']} more come from the copy",
        f"{warm['requests']['done']:,} of {warm['requests']['arrived']:,} calls are answered",
        f"come within {warm['misses']['first_answer_s']['p50']:.0f} s",
        f"all {cold['moves']['loads_from_disk']} loads come from disk, and {cold['requests']['done']} are answered",
        f"one copy alone {one['requests']['done']:,} are, though {from_disk} of {loads} loads come from disk",
    ]


def urgent_against_loading() -> list[str]:
    urgent, large = run_of("urgent-against-loading")["deployments"]
    assert urgent["requests"]["not_done"] == large["requests"]["not_done"] == 0
    misses = urgent["misses"]
    return [
        f"All {urgent['requests']['arrived']} urgent calls and all {large['requests']['arrived']} others are answered",
        f"Half of the {misses['count']} times",
        f"came within {misses['first_answer_s']['p50']:.0f} s",
        f"5 % take {misses['first_answer_s']['p95']:.0f} s and more",
    ]


def more_wanted_than_fits() -> list[str]:
    (lost,) = deployments("more-wanted-than-fits").values()
    (calm,) = deployments("more-wanted-than-fits", "--set", "faults=[]").values()
    (patient,) = deployments("more-wanted-than-fits", "--set", "scarcity_after_s=null").values()
    away = {each["rank"]: each["total_s"] for each in lost["unserved"]}
    assert calm["ranks_moved"] == calm["reconfigures"] == patient["ranks_moved"] == 0
    assert not calm["unserved"], "with 3 of 5 in place the ranks 0, 1 and 2 run, and others never do"
    assert [each["rank"] for each in patient["unserved"]] == [0]
    assert sorted(away) == [0, 2]
    return [
        f"{lost['ranks_without_room']} of {lost['world_size']} ranks never fit",
        f"the running ranks have a gap for {calm['rank_gap_s']:.0f} s",
        f"missing for {lost['incomplete_s'] / 60:.0f} of 30 minutes",
        f"{lost['ranks_moved']} rank moved, {lost['reconfigures']} reconfigure,",
        f"Rank 0 is away for {away[0]:.0f} s.",
        f"rank 0 is away for {gap_s(patient):.0f} s, while the ranks 1 and 2 run",
    ]


def canary() -> list[str]:
    rows = []
    for name, figures in deployments("canary").items():
        assert figures["below_floor_s"] == figures["requests"]["lost"] == 0
        rows.append(
            f"{name} {figures['replica_starts']} {figures['incomplete_s']:.0f} s {gap_s(figures):.0f} s "
            f"{figures['requests']['waited_over_1_s']}"
        )
    return rows


def bad_config() -> list[str]:
    (figures,) = deployments("bad-config").values()
    (at_once,) = deployments("bad-config", "--set", "config_rollout=at_once").values()
    requests = figures["requests"]
    assert (figures["status"], figures["replica_starts"], figures["reconfigures"]) == ("DEPLOY_FAILED", 4 + 3, 1), "V5"
    return [
        f"after {figures['reconfigures'] + figures['start_failures']} failures the deployment is {figures['status']}",
        f"{figures['least_running']} of {figures['world_size']} run at all times",
        f"for {figures['below_floor_s']:.0f} s fewer than N - U",
        f"{requests['lost']} of {requests['arrived']:,} requests are lost",
        f"Rank {figures['longest_gap']['rank']} is away for {gap_s(figures):.0f} s",
        f"at worst {at_once['least_running']} of 4 run, for {at_once['below_floor_s']:.0f} s fewer than N - U",
    ]


def crash_loop() -> list[str]:
    found = deployments("crash-loop")
    careful = found["careful"]
    assert (found["proven"]["status"], found["proven"]["update_s"]) == ("HEALTHY", 0.0)
    in_two_minutes = deployments("crash-loop", "--set", "duration_s=420")["proven"]
    stopped = careful["replica_starts"] - 10 - careful["replica_crashes"]
    assert (stopped <= 2, careful["replica_crashes"] <= 6) == (True, True), "V7"
    assert in_two_minutes["replica_starts"] - 10 <= 9, "V8"
    return [
        *(
            f"{name} {each['replica_starts']} {each['replica_crashes']} {each['least_running']} {each['below_floor_s']:.0f} s "
            f"{each['requests']['lost']} {each['status']}"
            for name, each in found.items()
        ),
        f"{stopped} old replicas are stopped and no more, version 2 is started {careful['replica_crashes']} times",
        f"is DEPLOY_FAILED after {careful['update_s']:.0f} s",
        f"{in_two_minutes['replica_starts'] - 10} starts of rank 3 within the two minutes",
    ]


def make_before_break() -> list[str]:
    found = deployments("make-before-break")
    for figures in found.values():
        assert figures["below_floor_s"] == figures["requests"]["lost"] == 0, "V1"
    gap = {name: (f"{gap_s(each):.0f}" if gap_s(each) > 20 else f"{gap_s(each):.1f}") for name, each in found.items()}
    return [
        f"{name} {gap[name]} s {figures['unserved_rank_s']:.0f} s {figures['requests']['waited_over_1_s']}"
        for name, figures in found.items()
    ]


def zero_unavailable() -> list[str]:
    found = deployments("zero-unavailable")
    for figures in found.values():
        assert figures["below_floor_s"] == figures["requests"]["lost"] == figures["requests"]["unfinished"] == 0, "V1"
    assert found["overlap"]["least_running"] == 10, "V3"
    assert found["overlap"]["requests"]["done"] >= 10_000, "V3"
    return [
        f"{name} {each['least_running']} {gap_s(each):.1f} s {each['requests']['waited_over_1_s']} {each['requests']['lost']}"
        for name, each in found.items()
    ]


def how_many_replicas() -> list[str]:
    (enough,) = deployments("how-many-replicas", "--set", "target_replicas=3").values()
    (few,) = deployments("how-many-replicas", "--set", "target_replicas=2").values()
    assert enough["requests"]["lost"] == few["requests"]["lost"] == enough["requests"]["unfinished"] == 0
    assert enough["replica_crashes"] == 1
    return [
        f"is {enough['requests']['latency_s']['p99']:.1f} s in the first run",
        f"with 2 it is {few['requests']['latency_s']['p99']:.1f} s",
        f"{enough['requests']['retried']} are done again",
    ]


FACTS: dict[str, Callable[[], list[str]]] = {
    "node-failure-at-peak": node_failure_at_peak,
    "rolling-update": rolling_update,
    "downscale-policies": downscale_policies,
    "controller-crash-mid-compaction": controller_crash,
    "fault-trace-60-days": fault_trace,
    "spot-nodes": spot_nodes,
    "static-placement-node-loss": static_placement,
    "free-placement-node-loss": free_placement,
    "spot-preemption-with-notice": spot_preemption,
    "autoscaling": autoscaling,
    "residency-23-models": residency_23_models,
    "seventy-and-ten-tens": seventy_and_ten_tens,
    "sixty-and-sixty": sixty_and_sixty,
    "five-on-three": five_on_three,
    "eight-nodes": eight_nodes,
    "warm-source": warm_source,
    "urgent-against-loading": urgent_against_loading,
    "more-wanted-than-fits": more_wanted_than_fits,
    "canary": canary,
    "bad-config": bad_config,
    "crash-loop": crash_loop,
    "make-before-break": make_before_break,
    "zero-unavailable": zero_unavailable,
    "how-many-replicas": how_many_replicas,
}
MARKS = {
    **dict.fromkeys(("fault-trace-60-days", "spot-nodes", "residency-23-models"), pytest.mark.slow),
    **dict.fromkeys(("sixty-and-sixty", "five-on-three", "eight-nodes", "warm-source"), pytest.mark.night),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, ())) for name in FACTS])
def test_an_example_runs_and_its_comment_says_what_comes_out(name):
    said = answer(name)
    assert [fact for fact in FACTS[name]() if fact not in said] == []


def test_every_example_asks_a_question_says_its_command_and_is_looked_at_here():
    names = sorted(path.stem for path in EXAMPLES.glob("*.yaml"))
    assert names == sorted(FACTS)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in names:
        assert "?" in answer(name).partition("rankcore")[0], name
        assert f"rankcore simulate examples/{name}.yaml" in answer(name)
        assert f"examples/{name}.yaml" in readme


def test_the_page_shows_what_the_comparison_of_placements_prints():
    shown, _ = compared("static-placement-node-loss", "free-placement-node-loss", 20)
    page = (ROOT / "docs" / "answers.md").read_text(encoding="utf-8")
    section = page.partition("### What does it cost to stay on given bundles?")[2].partition("\n## ")[0]
    told = [line.strip() for line in section.splitlines() if line.startswith("    ") and " to " in line]
    assert told == [line.strip() for line in shown.splitlines() if line.startswith(" ") and " to " in line]


def test_all_data_is_credited_and_its_licence_is_here():
    data = EXAMPLES / "data"
    readme = (data / "README.md").read_text(encoding="utf-8")
    for path in data.glob("*.csv"):
        section = readme.partition(f"## {path.name}\n")[2].partition("\n## ")[0]
        for word in ("Source:", "Licence:", "Changed:"):
            assert word in section, f"{path.name}: {word}"
        licences = [licence for licence in data.glob("LICENSE-*.txt") if f"`{licence.name}`" in section]
        assert len(licences) == (0 if "none, plain facts" in section else 1), path.name


def test_the_checkout_stays_small():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("no git here")
    paths = [ROOT / os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]
    assert sum(path.stat().st_size for path in paths if path.is_file()) < CHECKOUT_MAX_BYTES
