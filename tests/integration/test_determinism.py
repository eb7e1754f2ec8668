"""The same scenario and seed give the same run to the byte, whatever the hash seed of the process is."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HASH_SEEDS = ("0", "1", "4242")

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


def outputs(folder: Path, hash_seed: str) -> dict[str, bytes]:
    run = folder / hash_seed
    run.mkdir()
    (run / "s.yaml").write_text(SCENARIO)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed}
    options = ["--journal", "j.jsonl", "--json", "f.json", "--report", "r.html"]
    subprocess.run(
        [sys.executable, "-m", "executors.cli", "simulate", "s.yaml", *options], cwd=run, env=env, check=True, timeout=120
    )
    return {path.name: path.read_bytes() for path in run.iterdir()}


def test_journal_figures_and_report_are_the_same_bytes_under_three_hash_seeds(tmp_path):
    first, *others = [outputs(tmp_path, hash_seed) for hash_seed in HASH_SEEDS]
    assert sorted(first) == ["f.json", "j.jsonl", "r.html", "s.yaml"]
    assert first["j.jsonl"].count(b"\n") > 100
    for other in others:
        assert other == first
