"""The same scenario and seed give the same run to the byte, whatever the hash seed of the process is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.extent import WHOLE

ROOT = Path(__file__).resolve().parents[2]
HASH_SEEDS = ("0", "1", "4242") if WHOLE else ("0", "4242")

SCENARIO = """\
seed: 11
nodes: [{name: n, count: 5, gpus: 4}]
network: {latency_s: {exponential: {mean: 0.05}}}
deployments:
  - name: chat
    target_replicas: 9
    init_s: {uniform: {low: 2, high: 9}}
    reconfigure_s: {exponential: {mean: 0.5}}
    requests: {poisson: {rate_per_s: 6, begin_s: 15, for_s: 200, service_s: {gamma: {mean: 1, shape: 2}}}}
  - name: code
    target_replicas: 4
    victims: highest_rank
    compaction: immediate
    init_s: {empirical: [1, 4, 9]}
    requests: {poisson: {rate_per_s: 2, begin_s: 15, for_s: 200, service_s: {exponential: {mean: 1}}}}
faults:
  - {kind: replica_crash, at: 40, deployment: chat}
  - {kind: node_loss, at: busiest_minute + 7, node: n-2, back_after_s: 25}
  - {kind: controller_crash, at: 110, restart_after_s: 4}
changes:
  - {at: 90, deployment: chat, target_replicas: 5}
  - {at: 130, deployment: chat, version: "2"}
  - {at: 140, deployment: code, user_config: {b: 1, a: [2, 3]}}
  - {at: 150, deployment: code, target_replicas: 7}
"""

STORM = """\
seed: 12
duration_s: 500
nodes:
  - {name: n, count: 5, gpus: 4, memory_gb: 64}
  - {name: spot, count: 3, gpus: 4, memory_gb: 64}
network:
  latency_s: {exponential: {mean: 0.2}}
  loss: 0.1
  duplication: 0.1
  reorder: 0.1
  reorder_s: {exponential: {mean: 3}}
  lease_s: 10
deployments:
  - name: chat
    target_replicas: 9
    memory_gb_per_replica: 12.5
    health_check_timeout_s: 10
    init_s: {uniform: {low: 2, high: 9}}
    requests: {poisson: {rate_per_s: 3, begin_s: 15, for_s: 300, service_s: {gamma: {mean: 1, shape: 2}}}}
  - name: code
    target_replicas: 4
    placement: pack_ranks
    compaction: immediate
    init_s: {empirical: [1, 4, 9]}
faults:
  - {kind: replica_hang, at: 60, deployment: chat}
  - {kind: start_failure, at: 70, deployment: chat, for_s: 20}
  - {kind: slow_start, at: 80, node: n-1, factor: 3, for_s: 60}
  - {kind: node_partition, at: 90, node: n-0, for_s: 30}
fault_rates:
  - {kind: replica_crash, deployment: chat, mtbf_s: 200}
  - {kind: replica_hang, deployment: code, mtbf_s: 200, mttr_s: 20}
  - {kind: node_loss, nodes: n, mtbf_s: 300, mttr_s: 20}
  - {kind: node_partition, nodes: n, mtbf_s: 300, mttr_s: 20}
  - {kind: controller_crash, mtbf_s: 150, mttr_s: 5}
fault_trace: {file: spot.csv, group: spot, map: slots, up: add, down: remove}
changes:
  - {at: 190, deployment: chat, target_replicas: 5}
  - {at: 230, deployment: chat, version: "2"}
"""
SPOT = "time,event,node\n5,add,a\n5,add,b\n100,remove,a\n120,add,c\n300,remove,b\n"


def outputs(folder: Path, scenario: str, hash_seed: str) -> dict[str, bytes]:
    run = folder / hash_seed
    run.mkdir()
    (run / "s.yaml").write_text(scenario)
    (run / "spot.csv").write_text(SPOT)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed}
    options = ["--journal", "j.jsonl", "--json", "f.json", "--report", "r.html"]
    subprocess.run(
        [sys.executable, "-m", "executors.cli", "simulate", "s.yaml", *options], cwd=run, env=env, check=True, timeout=600
    )
    return {path.name: path.read_bytes() for path in run.iterdir()}


@pytest.mark.parametrize("scenario", [SCENARIO, STORM])
def test_journal_figures_and_report_are_the_same_bytes_in_processes_with_other_hash_seeds(tmp_path, scenario):
    first, *others = [outputs(tmp_path, scenario, hash_seed) for hash_seed in HASH_SEEDS]
    assert sorted(first) == ["f.json", "j.jsonl", "r.html", "s.yaml", "spot.csv"]
    assert first["j.jsonl"].count(b"\n") > 100
    for other in others:
        assert other == first


ANSWERS = (
    ("compare", "s.yaml", "t.yaml", "--runs", "2", "--json", "-"),
    ("sweep", "s.yaml", "--vary", "deployments[chat].target_replicas=8,9", "--runs", "2", "--out", "out"),
    ("simulate", "s.yaml", "--journal", "j.jsonl", "-q"),
    ("explain", "j.jsonl", "--rank", "5", "--deployment", "chat"),
    ("explain", "j.jsonl", "--at", "135", "--deployment", "chat", "--json"),
    ("plan", "s.yaml", "--deployment", "chat", "--target", "4", "--json"),
    (
        "simulate",
        "--from",
        "j.jsonl",
        "--at",
        "100",
        "--fault",
        "a replica of chat crashes",
        "--journal",
        "f.jsonl",
        "--json",
        "-",
    ),
)


ASKS = """
import json, sys
from typer.testing import CliRunner
from executors.cli.app import app
said = []
for arguments in json.loads(sys.argv[1]):
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    said.append(done.stdout)
print(json.dumps(said))
"""


def answers(folder: Path, hash_seed: str) -> tuple[dict[str, bytes], list[str]]:
    """Of one process for all questions: what is looked at is its hash seed."""
    run = folder / hash_seed
    run.mkdir()
    (run / "s.yaml").write_text(SCENARIO)
    (run / "t.yaml").write_text(SCENARIO.replace("target_replicas: 9", "target_replicas: 10"))
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", ASKS, json.dumps(ANSWERS)]
    said = json.loads(subprocess.run(command, cwd=run, env=env, check=True, timeout=600, capture_output=True).stdout)
    return {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*") if path.is_file()}, said


def test_every_answer_is_the_same_bytes_under_other_hash_seeds(tmp_path):
    first, *others = [answers(tmp_path, hash_seed) for hash_seed in HASH_SEEDS]
    assert {"out/sweep.csv", "out/sweep.html", "out/cells.jsonl", "f.jsonl", "j.fork.report.html"} <= first[0].keys()
    assert all(first[1][place] for place in (0, 1, 3, 4, 5, 6))
    for other in others:
        assert other == first
