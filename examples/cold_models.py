"""Four models, room for two: calls wait while weights move, and every one is answered. No GPU and no Ray.

    pip install "rankcore[torch]"
    python examples/cold_models.py

Each model has random weights in a safetensors file. A stand-in for a GPU has memory for two of them, and the node's memory
for one copy more. Callers ask whichever model they like; what they are told while they wait is printed.
"""

import asyncio
import tempfile
from collections import Counter
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from executors.engine.clusters import CLUSTER
from executors.engine.journal import JournalWriter
from executors.engine.replay import replay
from executors.inproc import InprocCluster
from executors.inproc.torch_node import TorchModel, TorchNode
from executors.torch_weights import StandIn, WarmStore
from rankcore.cluster import ApplicationSpec

WIDTH = 1024
NAMES = ("ada", "bell", "curie", "dirac")
CALLS = 40


def build() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))


def call(module: nn.Module, number: int) -> float:
    return float(module(torch.full((WIDTH,), float(number))).sum())


async def main(folder: Path) -> None:
    modules, models = {}, {}
    for seed, name in enumerate(NAMES):
        torch.manual_seed(seed)
        modules[name] = build()
        save_file(modules[name].state_dict(), folder / f"{name}.safetensors")
        models[name] = TorchModel(path=folder / f"{name}.safetensors", build=build, call=call)
    specs = [models[name].spec(f"zoo/{name}", min_hot_s=0.05) for name in NAMES]
    size = specs[0].residency.weight_bytes
    device, store = StandIn(int(2.5 * size), folder / "devices"), WarmStore(folder / "warm")
    node = TorchNode("here", [device], store, {f"zoo/{name}": models[name] for name in NAMES}, cpu_bytes=size)
    journal = JournalWriter.create(folder / "cluster.jsonl", kind=CLUSTER)
    async with InprocCluster(node, journal=journal) as cluster:
        cluster.tell(node.joined(cluster.now))
        cluster.apply(ApplicationSpec(name="zoo", deployments=specs))

        async def ask(number: int) -> bool:
            name = NAMES[number * number % 7 % len(NAMES)]
            answer = await cluster.call(name, number, on_status=lambda status: print(f"{name} {number:>2}: {status}"))
            with torch.no_grad():
                return answer == call(modules[name], number)

        right = await asyncio.gather(*(ask(number) for number in range(CALLS)))
    await node.aclose()
    journal.close()
    levels = Counter(str(worker.level) for worker in cluster.state.weights.planner.replicas.values())
    print(f"{sum(right)} of {CALLS} calls answered rightly; in the end {dict(sorted(levels.items()))}")
    again = replay(folder / "cluster.jsonl")
    print(f"the journal's {again.steps} steps run again: {'they agree' if again.difference is None else again.difference}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))
