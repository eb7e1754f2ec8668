"""Autoscaling policies on a recorded trace: each one in the same world, with the same requests and start-up times."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs

from executors.checking import Checking
from executors.simulator.fields import FieldProblem
from executors.simulator.load.sources import Source
from executors.simulator.questions.policy_code import load_policy
from executors.simulator.record.percentiles import Percentiles
from executors.simulator.run import Run, RunResult
from executors.simulator.scenario.errors import ScenarioError, path_text
from executors.simulator.scenario.structuring import structure_autoscaling
from executors.simulator.scenario.textfile import read_text
from executors.simulator.scenario.yamlfile import line_of, parse
from rankcore.autoscaling import AutoscalingSpec, Policy, ongoing_requests
from rankcore.errors import PolicyError

Progress = Callable[[float, float], None]

DEPLOYMENT = "app"
NODE_GPUS = 8
TAIL_S = 60.0
"""How long every run goes on after the last request has come; what is not done by then was too late."""


@attrs.frozen
class PolicyFile:
    """An autoscaling policy, as a file has it.

    Attributes:
        name: Of the file, without folder and ending.
        options: The keys of the file, which are those of `autoscaling:` in a scenario, but for `policy`.
        function: What the file names as `policy: FILE.py:FUNCTION`, relative to itself; by default Ray Serve's.
    """

    name: str
    path: Path
    spec: AutoscalingSpec
    options: dict[str, Any]
    function: Policy = ongoing_requests


@attrs.frozen(kw_only=True)
class Conditions:
    """What is the same for all policies.

    Attributes:
        trace: A file with a row for each request.
        service: How long requests take, as keys of `requests.trace` in a scenario.
        init_s: How long a replica's start-up takes, as a scenario has it.
        reading: How the trace is read, as further keys of `requests.trace`.
        slo_wait_s: A request that waits longer for a replica has missed its objective.
    """

    trace: Path
    service: dict[str, Any]
    init_s: Any
    max_ongoing_requests: int
    slo_wait_s: float
    seed: int
    limit: int | None = None
    reading: dict[str, Any] = attrs.Factory(dict)


@attrs.frozen(kw_only=True)
class Backtest:
    """What one policy came to.

    Attributes:
        slo_misses: Requests that waited too long, were turned away or lost, or were not done at the end.
        rank_moves: How often a running replica was given another global rank.
        notes: What has to be known of the trace.
    """

    policy: str
    requests: int
    slo_misses: int
    replica_hours: float
    scale_events: int
    rank_moves: int
    wait_s: Percentiles
    notes: tuple[str, ...]
    result: RunResult


def read_policy(path: Path) -> PolicyFile:
    """A policy file.

    Raises:
        ScenarioError: It cannot be used; one line that says where, what was found and what is allowed.
    """
    data, lines = parse(read_text(path), str(path))
    try:
        options = {key: value for key, value in data.items() if key != "policy"} if isinstance(data, dict) else data
        spec = structure_autoscaling(options)
        function = load_policy(data["policy"], path.parent) if "policy" in data else ongoing_requests
        return PolicyFile(path.stem, path, spec, options, function)
    except FieldProblem as problem:
        where = f"{path}:{line_of(problem.keys, lines)}"
        raise ScenarioError(f"{path_text(problem.keys) if problem.keys else 'the policy'}: {problem} ({where})") from None


def backtest(
    conditions: Conditions,
    policies: Sequence[PolicyFile],
    progress: Progress | None = None,
    checking: Checking = Checking.END,
) -> tuple[Backtest, ...]:
    """Run every policy, in their order.

    Raises:
        ScenarioError: The trace or a condition cannot be used, and nothing has run; or a policy of a user's failed.
    """
    most = max(policy.spec.max_replicas for policy in policies)
    sources = [_source(conditions, policy, most) for policy in policies]
    scenarios = [source.pinned() for source in sources]
    arrivals = sources[0].arrivals(scenarios[0])
    requests = arrivals[DEPLOYMENT]
    end = (requests.at_s[-1] if len(requests) else 0.0) + TAIL_S
    found = []
    for index, (policy, scenario) in enumerate(zip(policies, scenarios, strict=True)):
        run = Run(attrs.evolve(scenario, duration_s=end), arrivals, checking=checking)
        run.controller.policies[DEPLOYMENT] = policy.function
        try:
            result = run.go(None if progress is None else _Part(progress, index, len(policies)).show)
        except PolicyError as error:
            raise ScenarioError(f"{policy.path}: {error}") from None
        found.append(_summed_up(policy, conditions, run, result))
    return tuple(found)


@attrs.frozen
class _Part:
    """The progress of one run among several."""

    progress: Progress
    index: int
    count: int

    def show(self, now: float, end: float) -> None:
        self.progress(self.index * end + min(now, end), self.count * end)


def _summed_up(policy: PolicyFile, conditions: Conditions, run: Run, result: RunResult) -> Backtest:
    (figures,) = result.deployments
    assert figures.scaling is not None, "the scenario has autoscaling"
    waits_s = run.world.deployments[DEPLOYMENT].requests.counts.waits_s
    in_time = sum(1 for wait_s in waits_s if wait_s <= conditions.slo_wait_s)
    return Backtest(
        policy=policy.name,
        requests=figures.requests.arrived,
        slo_misses=figures.requests.arrived - in_time,
        replica_hours=figures.scaling.replica_hours,
        scale_events=figures.scaling.scale_events,
        rank_moves=figures.ranks_moved,
        wait_s=figures.requests.wait_s,
        notes=run.world.deployments[DEPLOYMENT].requests.arrivals.notes,
        result=result,
    )


def _source(conditions: Conditions, policy: PolicyFile, most: int) -> Source:
    """The scenario in which a policy runs; JSON is YAML."""
    trace = {"file": conditions.trace.name, "limit": conditions.limit, **conditions.service, **conditions.reading}
    deployment = {
        "name": DEPLOYMENT,
        "max_ongoing_requests": conditions.max_ongoing_requests,
        "init_s": conditions.init_s,
        "requests": {"trace": trace},
        "autoscaling": policy.options,
    }
    scenario = {
        "name": policy.name,
        "seed": conditions.seed,
        "nodes": [{"name": "node", "count": math.ceil(most / NODE_GPUS), "gpus": NODE_GPUS}],
        "deployments": [deployment],
    }
    return Source(f"backtest of {policy.path}", json.dumps(scenario, indent=1), str(conditions.trace.parent))
