"""Four models, room for two: requests wait while weights move, and every one is answered. No GPU and no Ray.

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

from executors.fleet import FleetJournal, FleetRunner, replay_fleet
from executors.fleet.torch_node import TorchModel, TorchNode
from executors.torch_weights import StandIn, WarmStore
from rankcore.dispatching import DispatchPolicy, Status, open_fleet
from rankcore.residency import Wanted
from rankcore.residency.events import DeployRequested

WIDTH = 1024
NAMES = ("ada", "bell", "curie", "dirac")
REQUESTS = 40


def build() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))


def call(module: nn.Module, number: int) -> float:
    return float(module(torch.full((WIDTH,), float(number))).sum())


def say(name: str, number: int, status: Status) -> None:
    parts = [f"{name} {number:>2}: {status.kind}"]
    if status.behind:
        parts.append("behind " + ", ".join(status.behind))
    if status.percent is not None:
        parts.append(f"{status.percent} %")
    if status.seconds_left is not None:
        parts.append(f"{1000 * status.seconds_left:.0f} ms left")
    print("  ".join(parts))


async def main(folder: Path) -> None:
    modules, models = {}, {}
    for seed, name in enumerate(NAMES):
        torch.manual_seed(seed)
        modules[name] = build()
        save_file(modules[name].state_dict(), folder / f"{name}.safetensors")
        models[name] = TorchModel(path=folder / f"{name}.safetensors", build=build, call=call)
    size = models["ada"].spec("ada").weight_bytes
    device, store = StandIn(int(2.5 * size), folder / "devices"), WarmStore(folder / "warm")
    node = TorchNode("here", [device], store, models, cpu_bytes=size)
    journal = FleetJournal.create(folder / "fleet.jsonl")
    async with FleetRunner(open_fleet(DispatchPolicy(turn_s=0.05)), node, journal=journal) as fleet:
        fleet.tell(node.joined(fleet.now))
        fleet.tell(
            DeployRequested(wanted=tuple(Wanted(spec=models[name].spec(name), replicas=0) for name in NAMES), at=fleet.now)
        )

        async def ask(number: int) -> bool:
            name = NAMES[number * number % 7 % len(NAMES)]
            answer = await fleet.request(name, number, on_status=lambda status: say(name, number, status))
            with torch.no_grad():
                return answer == call(modules[name], number)

        right = await asyncio.gather(*(ask(number) for number in range(REQUESTS)))
    await node.aclose()
    journal.close()
    levels = Counter(str(resident.level) for resident in fleet.state.residency.replicas.values())
    print(f"{sum(right)} of {REQUESTS} requests answered rightly; in the end {dict(sorted(levels.items()))}")
    again = replay_fleet(folder / "fleet.jsonl")
    print(f"the journal's {again.steps} steps run again: {'they agree' if again.difference is None else again.difference}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))
