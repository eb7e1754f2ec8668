"""Small models for the tests of residency on Ray. Replicas import this file."""

import asyncio
import os
import threading
import time
from pathlib import Path

import torch
from safetensors.torch import save_file

from executors.ray_gpu.context import get_replica_context
from executors.torch_weights import ResidentWeights, stand_in

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


class Held(Probe):
    """Its copies, and what frees its memory, wait as long as the file "hold" is in a folder; who waits says so there."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        upload, to_cold = stand_in._CopyLane.upload, ResidentWeights._to_cold

        def held_upload(lane, target, source):  # type: ignore[no-untyped-def]
            wait_while_held(Path(folder), "copies")
            return upload(lane, target, source)

        def held_to_cold(weights, progress):  # type: ignore[no-untyped-def]
            wait_while_held(Path(folder), "frees")
            to_cold(weights, progress)

        stand_in._CopyLane.upload = held_upload  # type: ignore[method-assign]
        ResidentWeights._to_cold = held_to_cold  # type: ignore[method-assign]

    def write_down(self, path: str, word: str) -> str:
        """Leave a trace in a file for each time that a request is done."""
        with Path(path).open("a", encoding="ascii") as file:
            file.write(word)
        return word

    async def write_and_wait_where_it_can_be_cancelled(self, begun: str, until: str) -> str:
        """As `write_and_wait`."""
        with Path(begun).open("a", encoding="ascii") as file:
            file.write("x")
        while not Path(until).exists():
            await asyncio.sleep(0.01)
        return "done"


def wait_while_held(folder: Path, what: str) -> None:
    """Say that something is about to be done, and wait until it may be."""
    if (folder / "hold").exists():
        (folder / f"{what}-{os.getpid()}").touch()
    while (folder / "hold").exists():
        time.sleep(0.01)


class Ranked(Probe):
    """Keeps what it was told of its rank."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[dict[str, int], int]] = []

    def reconfigure(self, user_config, rank):  # type: ignore[no-untyped-def]
        self.told.append((user_config, rank.rank))

    def standing(self) -> tuple[int, int, int, list[tuple[dict[str, int], int]]]:
        """Process, rank, world size, and what it was told."""
        context = get_replica_context()
        return os.getpid(), context.rank.rank, context.world_size, self.told


class Stuck:
    """Its constructor never returns."""

    def __init__(self) -> None:
        threading.Event().wait()


def write_weights(folder: Path, name: str, seed: int) -> tuple[str, float]:
    """A file, and what its model answers."""
    weight = torch.rand(WIDTH, WIDTH, generator=torch.Generator().manual_seed(seed))
    path = folder / f"{name}.safetensors"
    save_file({"weight": weight}, path)
    return str(path), float(weight.double().sum())
