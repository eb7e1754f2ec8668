"""The simulator's speed: against the same model in SimPy, and a million requests with the real command, with an engine too."""

import csv
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from bench.measure import Candidate, Timing, interleave, print_table, save
from bench.simpy_model import LeanModel, Model, Router, Setting
from executors.simulator.load.arrivals import Arrivals
from executors.simulator.load.requests import RequestCounts
from executors.simulator.run import Run
from executors.simulator.scenario import Scenario, parse_scenario
from executors.simulator.scenario.loading import load_arrivals

REPEATS, QUICK_REPEATS = 5, 3
FOR_S, QUICK_FOR_S = 500.0, 250.0
COMMAND_FOR_S, QUICK_COMMAND_FOR_S = 2_500.0, 250.0
ENGINE_REQUESTS, QUICK_ENGINE_REQUESTS = 1_000_000, 20_000
ENGINE_RATE_PER_S = 56.0
LENGTHS = Path(__file__).parents[1] / "examples" / "data" / "azure_llm_2023_code.csv"
RATE_PER_S = 400.0
BEGIN_S = 30.0
SETTING = Setting(crashes=tuple((40.0 + 2 * number, 7 * number % 64) for number in range(8)))
BYTES_PER_KB = 1024
POLL_S = 0.02

SCENARIO = """
name: {requests} requests over {replicas} replicas
nodes: [{{name: node, count: 8, gpus: 8}}]
network: {{latency_s: {latency_s}}}
deployments:
  - name: llm
    target_replicas: {replicas}
    max_ongoing_requests: {max_ongoing}
    start_s: {start_s}
    init_s: {init_s}
    stable_after_s: 0.1  # the models know nothing of a back-off after crashes
    requests:
      poisson: {{rate_per_s: {rate_per_s}, begin_s: {begin_s}, for_s: {for_s}, service_s: {{exponential: {{mean: 1}}}}}}
faults: {faults}
"""

ENGINE_SCENARIO = """
name: {requests} requests over 16 replicas with an engine
nodes: [{{name: gpu, count: 16, gpus: 2, gpu_type: H100}}]
engines:
  - name: llama-70b-fp8
    kv_cache_tokens: 467500
    tables:
      - {{gpu_type: H100, tp: 2, base_ms: [[0, 18.3], [100, 21.3]], prompt_ms: [[0, 0], [2048, 158.1056]], kv_ns: 7}}
deployments:
  - name: llm
    target_replicas: 16
    gpus_per_replica: 2
    max_ongoing_requests: 128
    engine: llama-70b-fp8
    request_slo: {{ttft_s: 2, tpot_s: 0.05}}
    requests: {{trace: {{file: lengths.csv, begin_s: 30}}}}
"""


def scenario_text(setting: Setting, for_s: float, rate_per_s: float = RATE_PER_S) -> str:
    """What `Model` simulates, for our own simulator."""
    faults = [f"{{kind: replica_crash, at: {at}, deployment: llm, rank: {rank}}}" for at, rank in setting.crashes]
    return SCENARIO.format(
        requests=round(rate_per_s * for_s),
        replicas=setting.replicas,
        max_ongoing=setting.max_ongoing,
        latency_s=setting.latency_s,
        start_s=setting.start_s,
        init_s=setting.init_s,
        rate_per_s=rate_per_s,
        begin_s=BEGIN_S,
        for_s=for_s,
        faults=f"[{', '.join(faults)}]",
    )


def ours(scenario: Scenario, arrivals: Arrivals) -> RequestCounts:
    """A whole run: ranks, messages, invariants and figures included."""
    run = Run(scenario, {"llm": arrivals})
    run.go()
    return run.world.deployments["llm"].requests.counts


def events_of(counts: RequestCounts | Router) -> int:
    """Arrivals and ends of requests: what all sides agree on, however many events of their own they make of it."""
    return counts.arrived + counts.done + counts.lost


def run(quick: bool) -> None:
    """Measure, print and save."""
    scenario = parse_scenario(scenario_text(SETTING, QUICK_FOR_S if quick else FOR_S), "bench")
    arrivals = load_arrivals(scenario, Path(), scenario.seed)["llm"]
    timings = _against_simpy(scenario, arrivals, QUICK_REPEATS if quick else REPEATS)
    print()
    for_s = QUICK_COMMAND_FOR_S if quick else COMMAND_FOR_S
    command = _command(round(RATE_PER_S * for_s), scenario_text(SETTING, for_s))
    requests = QUICK_ENGINE_REQUESTS if quick else ENGINE_REQUESTS
    scenario_with_engine = ENGINE_SCENARIO.format(requests=requests)
    engine = _command(requests, scenario_with_engine, _lengths(requests), "with an engine, ", "--check", "end")
    content = {
        "requests": len(arrivals),
        "us_per_event": {timing.name: timing.each_us for timing in timings},
        "events_per_s": {timing.name: 1e6 / timing.median_us for timing in timings},
        "command": command,
        "engine": engine,
    }
    print(f"saved: {save('simulator', content)}")


def _against_simpy(scenario: Scenario, arrivals: Arrivals, repeats: int) -> list[Timing]:
    def simpy(model: type[Model]) -> Candidate:
        def prepare() -> Model:
            return model(SETTING, arrivals.at_s, arrivals.service_s)

        return Candidate(NAMES[model], prepare, lambda prepared: events_of(prepared.run()))

    our = Candidate("ours", lambda: None, lambda _: events_of(ours(scenario, arrivals)))
    timings = interleave([our, simpy(Model), simpy(LeanModel)], repeats)
    print(f"{len(arrivals):,} requests over {SETTING.replicas} replicas, {len(SETTING.crashes)} crashes: arrivals and ends")
    rows = [
        [
            timing.name,
            f"{1e6 / timing.median_us:,.0f}",
            f"± {100 * timing.spread:.0f} %",
            f"{timing.median_us:.2f} us",
            f"{timings[0].times_faster_than(timing):.2f}" if timing is not timings[0] else "",
        ]
        for timing in timings
    ]
    print_table(["", "events/s", "spread", "per event", "we are faster by"], rows)
    return timings


NAMES = {Model: "SimPy", LeanModel: "SimPy, callbacks only"}


def _lengths(requests: int) -> str:
    """A trace of so many requests with the lengths of the Azure code trace, over and over, at random times."""
    with LENGTHS.open() as file:
        rows = [(row["ContextTokens"], row["GeneratedTokens"]) for row in csv.DictReader(file)]
    draw, at_s = Random(1), 0.0
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    for index in range(requests):
        at_s += draw.expovariate(ENGINE_RATE_PER_S)
        lines.append(f"{at_s:.6f},{','.join(rows[index % len(rows)])}")
    return "\n".join(lines) + "\n"


def _command(requests: int, scenario: str, lengths: str = "", told: str = "", *options: str) -> dict[str, Any]:
    """`rankcore simulate` as a process of its own, page and table included."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "scenario.yaml"
        path.write_text(scenario)
        (Path(folder) / "lengths.csv").write_text(lengths)
        begin, cpu_before_s = time.perf_counter(), _cpu_of_children_s()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        arguments = [sys.executable, "-m", "executors.cli", "simulate", path.name, "--quiet", *options]
        process = subprocess.Popen(arguments, cwd=folder, env=environment)
        peak_bytes = 0
        while process.poll() is None:
            peak_bytes = max(peak_bytes, _peak_bytes(process.pid))
            time.sleep(POLL_S)
        wall_s, cpu_s = time.perf_counter() - begin, _cpu_of_children_s() - cpu_before_s
    if process.returncode:
        raise RuntimeError(f"the command ended with status {process.returncode}")
    spent = f"{wall_s:.1f} s, of which {cpu_s:.1f} s of CPU, and {peak_bytes / 1e6:.0f} MB at most"
    print(f"rankcore simulate, {told}about {requests:,} requests: {spent}")
    return {"requests": requests, "wall_s": wall_s, "cpu_s": cpu_s, "peak_bytes": peak_bytes}


def _cpu_of_children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _peak_bytes(pid: int) -> int:
    """The largest that a process has been; getrusage would count what its parent was when it began."""
    try:
        found = re.search(r"^VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) * BYTES_PER_KB if found else 0
