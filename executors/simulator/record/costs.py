"""What a deployment's GPUs cost in a run.

What: with `billing: replicas` the GPUs of a replica are billed from when it is placed until it has ended; with `billing: nodes`
all GPUs of all nodes that are up, whoever uses them. That bill is split among deployments by the GPU-hours of their replicas,
and equally where there are none, so that what deployments cost adds up to what is paid.
"""

import math
from collections.abc import Mapping, Sequence

import attrs

from executors.simulator.cluster.outages import DOWN, Outage
from executors.simulator.load.engine_queue import EngineQueue
from executors.simulator.scenario.model import Scenario
from executors.simulator.scenario.prices import NODES

HOUR_S = 3600.0
MTOK = 1e6


@attrs.frozen(kw_only=True)
class CostFigures:
    """What a deployment cost.

    Attributes:
        cost_usd: GPU-hours as they are billed, by the prices of their types.
        cost_per_mtok_output: For a million output tokens of requests that were done; None: there were none, or no engine.
        cost_per_mtok_total: Prompt tokens counted as well.
        cost_per_mtok_good: Output tokens of requests alone that met `request_slo`.
    """

    cost_usd: float
    cost_per_mtok_output: float | None
    cost_per_mtok_total: float | None
    cost_per_mtok_good: float | None


def bills(
    scenario: Scenario, gpu_s: Mapping[str, Mapping[str, float]], outages: Sequence[Outage], lasted_s: float
) -> dict[str, float] | None:
    """What each deployment pays, in USD; None: there are no prices.

    Args:
        scenario: It has the prices.
        gpu_s: GPU-seconds of replicas, by deployment and node.
        outages: When nodes were down.
        lasted_s: How long the run was.
    """
    if not scenario.gpu_prices_per_hour:
        return None
    prices = {
        each: float(scenario.gpu_prices_per_hour[str(group.gpu_type)]) for group in scenario.nodes for each in group.node_ids
    }
    if scenario.billing != NODES:
        return {
            name: math.fsum(prices[node_id] * spent_s for node_id, spent_s in nodes.items()) / HOUR_S
            for name, nodes in gpu_s.items()
        }
    up_s = dict.fromkeys(prices, lasted_s)
    for outage in outages:
        if outage.kind == DOWN:
            up_s[outage.subject] -= outage.until - outage.since
    total = math.fsum(prices[each] * scenario.node_gpus[each] * spent_s for each, spent_s in up_s.items()) / HOUR_S
    used = {name: math.fsum(nodes.values()) for name, nodes in gpu_s.items()}
    in_all = math.fsum(used.values())
    return {name: total * (each / in_all if in_all else 1 / len(used)) for name, each in used.items()}


def cost_figures(cost_usd: float | None, queue: object) -> CostFigures | None:
    """What that is for each token; None: there are no prices."""
    if cost_usd is None:
        return None
    output = total = good = 0
    if isinstance(queue, EngineQueue):
        told = queue.told
        output, total, good = told.output_tokens, told.prompt_tokens + told.output_tokens, told.good_tokens
    each = [MTOK * cost_usd / tokens if tokens else None for tokens in (output, total, good)]
    return CostFigures(cost_usd=cost_usd, cost_per_mtok_output=each[0], cost_per_mtok_total=each[1], cost_per_mtok_good=each[2])
