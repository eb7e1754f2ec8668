"""A model of uneven tensors that no one GPU holds: HOT on two, and computing there.

    pip install "rankcore[torch]"
    python examples/uneven_over_two_gpus.py

Tensors are not cut: each GPU gets neighbours, so that the fullest has as little as possible. What travels is the activations,
and moving them is the module's own part: before it uses a parameter it moves what it has to where that parameter is
(`on`), since a layer, too, may be cut in two. Nothing else of the module knows of devices. With two GPUs it runs on them,
else on two stand-ins with a budget of bytes.

On Ray such a class is deployed with `Residency(weights=...)`: it goes on as few GPUs as hold its fullest part, and its module
has parameters on each of them.
"""

import asyncio
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from executors.torch_weights import Cuda, Device, OutOfDeviceMemory, ResidentWeights, StandIn, WarmStore, meta_parameters

WORDS, WIDTH, LAYERS = 6000, 64, 3
ONE_GPU_BYTES = 2_400_000
TOKENS = torch.tensor([1, 5, 4999])


def on(owner: nn.Module, activation: torch.Tensor) -> torch.Tensor:
    """An activation where a module's weight is; no copy where it is there already."""
    return activation.to(owner.weight.device, non_blocking=True)


class Layer(nn.Module):
    """What comes in goes out where it came in, whichever GPUs it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, activation: torch.Tensor) -> torch.Tensor:
        wide = torch.relu(self.up(on(self.up, activation)))
        return activation + self.down(on(self.down, wide)).to(activation.device)


class Uneven(nn.Module):
    """Two large tensors, and small ones between them."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.output = nn.Linear(WIDTH, WORDS, bias=False)
        self.register_buffer("scale", torch.arange(1, WIDTH + 1) ** -0.5, persistent=False)

    @torch.no_grad()
    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        activation = self.embedding(on(self.embedding, tokens))
        for layer in self.layers:
            activation = layer(activation)
        return self.output(on(self.output, activation * self.scale.to(activation.device)))


def devices(folder: Path) -> list[Device]:
    if torch.cuda.device_count() >= 2:
        return [Cuda(0), Cuda(1)]
    return [StandIn(ONE_GPU_BYTES, folder / "devices", f"gpu:{number}") for number in range(2)]


async def main(folder: Path) -> None:
    torch.manual_seed(0)
    whole = Uneven()
    right = whole(TOKENS)
    save_file(whole.state_dict(), folder / "uneven.safetensors")
    gpus, store = devices(folder), WarmStore(folder / "warm")
    with meta_parameters():  # its buffer is computed, and its parameters take no memory
        module = Uneven()
    if isinstance(gpus[0], StandIn):
        alone = ResidentWeights(folder / "uneven.safetensors", gpus[:1], store)
        try:
            await alone.from_cache()
        except OutOfDeviceMemory as error:
            print(f"on one: {error}")
    weights = ResidentWeights(folder / "uneven.safetensors", gpus, store, module=module)
    for move in (weights.from_cache, weights.to_cache, weights.from_cache, weights.drop, weights.from_cache):
        moved = await move()
        if moved.target == "HOT":
            answer = module(TOKENS).cpu()
            assert torch.allclose(answer, right, atol=1e-4)
            print(f"HOT on {len(gpus)} devices with {weights.device_bytes} bytes: the answers are right")
        else:
            print(f"{moved.target}")
    await weights.aclose()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))
