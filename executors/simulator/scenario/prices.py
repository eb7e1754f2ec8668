"""What GPUs cost: prices by their type, and for which time they are billed."""

from collections.abc import Mapping, Sequence
from typing import Any

from executors.simulator.fields import FieldProblem, name, number
from executors.simulator.scenario.hardware import NodeGroup

REPLICAS, NODES = "replicas", "nodes"
_price = number(least=0.0, most=1e6)


def check_prices(prices: Mapping[str, Any], groups: Sequence[NodeGroup], billing: str) -> None:
    """Raise `FieldProblem` for what are no prices, or for a node that has none, or for a way to bill nothing."""
    keys = ("gpu_prices_per_hour",)
    if not isinstance(prices, Mapping):
        raise FieldProblem(keys, prices, "a mapping of types of GPUs to USD")
    if billing == NODES and not prices:
        raise FieldProblem(("billing",), billing, "gpu_prices_per_hour beside it, as nothing is billed without prices")
    for gpu_type, price in prices.items():
        if not name.accepts(gpu_type):
            raise FieldProblem((*keys, str(gpu_type)), gpu_type, name.allowed_instead_of(gpu_type))
        if not _price.accepts(price):
            raise FieldProblem((*keys, gpu_type), price, _price.allowed)
    for index, group in enumerate(groups if prices else ()):
        if group.gpu_type not in prices:
            allowed = f"one of {', '.join(prices)}, as these have prices"
            raise FieldProblem(("nodes", index, "gpu_type"), group.gpu_type, allowed)
