"""Small models for the tests of residency on Ray. Replicas import this file."""

import os
import time
from pathlib import Path

import torch
from safetensors.torch import save_file

WIDTH = 512
WEIGHT_BYTES = WIDTH * WIDTH * 4


class Probe:
    """Answers with the sum of its weights, and can be told to misbehave."""

    def __init__(self) -> None:
        with torch.device("meta"):
            self.module = torch.nn.Linear(WIDTH, WIDTH, bias=False)

    def __call__(self) -> float:
        return float(self.module.weight.double().sum())

    def process_id(self) -> int:
        return os.getpid()

    def write_and_wait(self, begun: str, until: str) -> str:
        """Say in a file that it runs, and go on once another file is there."""
        with Path(begun).open("a", encoding="ascii") as file:
            file.write("x")
        while not Path(until).exists():
            time.sleep(0.01)
        return "done"

    def raise_value_error(self) -> None:
        raise ValueError("as asked")

    def break_the_gpu(self) -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")


def write_weights(folder: Path, name: str, seed: int) -> tuple[str, float]:
    """A file, and what its model answers."""
    weight = torch.rand(WIDTH, WIDTH, generator=torch.Generator().manual_seed(seed))
    path = folder / f"{name}.safetensors"
    save_file({"weight": weight}, path)
    return str(path), float(weight.double().sum())
