"""A node of a fleet whose weights really move: where they are after each move, and what the fleet is told."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from executors.fleet import FleetRunner, NotThereError, RequestError
from executors.fleet.torch_node import TorchModel, TorchNode
from executors.torch_weights import Level, StandIn, WarmStore
from rankcore.dispatching import open_fleet
from rankcore.residency import Phase, ResidencyPolicy, Wanted
from rankcore.residency.commands import LoadToGpu
from rankcore.residency.events import DeployRequested, EvictRequested, ScaleRequested

WIDTH = 32


def build() -> nn.Module:
    return nn.Linear(WIDTH, WIDTH)


def call(module: nn.Module, number: float) -> float:
    return float(module(torch.full((WIDTH,), number)).sum())


def model(folder: Path, name: str, seed: int) -> TorchModel:
    torch.manual_seed(seed)
    save_file(build().state_dict(), folder / f"{name}.safetensors")
    return TorchModel(path=folder / f"{name}.safetensors", build=build, call=call)


def right(seed: int, number: float) -> float:
    torch.manual_seed(seed)
    with torch.no_grad():
        return call(build(), number)


def node_of(folder: Path, models: dict[str, TorchModel], *gpu_bytes: int) -> tuple[TorchNode, list[StandIn]]:
    devices = [StandIn(size, folder / "devices", f"gpu:{index}") for index, size in enumerate(gpu_bytes)]
    return TorchNode("here", devices, WarmStore(folder / "warm"), models, cpu_bytes=2**20), devices


def load_to(*gpus: int, move: int = 1, version: str = "") -> LoadToGpu:
    return LoadToGpu(
        replica_id="a#0",
        model="a",
        node_id="here",
        gpus=gpus,
        gpu_bytes=(8192,) * len(gpus),
        source=Level.COLD,
        move=move,
        version=version,
    )


def free(devices: list[StandIn]) -> list[int]:
    return [device.memory().free_bytes for device in devices]


def test_weights_go_up_and_down_and_to_another_gpu(tmp_path: Path):
    node, devices = node_of(tmp_path, {"a": model(tmp_path, "a", 1)}, 2**16, 2**16)

    async def around() -> None:
        told: list[int] = []
        await node.load(load_to(0), told.append)
        assert node.level("a#0") is Level.HOT
        assert await node.answer("a#0", 2.0) == right(1, 2.0)
        await node.offload("a#0")
        assert free(devices) == [2**16, 2**16]
        with pytest.raises(NotThereError):
            await node.answer("a#0", 2.0)
        await node.load(load_to(0), told.append)
        await node.offload("a#0")
        await node.load(load_to(1, move=2), told.append)
        assert free(devices)[0] == 2**16 > free(devices)[1]
        assert await node.answer("a#0", 3.0) == right(1, 3.0)
        await node.unload("a#0")
        assert node.level("a#0") is Level.COLD
        await node.drop("a#0")
        await node.unload("a#0")

    asyncio.run(around())
    assert free(devices) == [2**16, 2**16]


def test_a_copy_stays_when_there_is_no_room_elsewhere_or_its_load_was_broken_off(tmp_path: Path):
    node, devices = node_of(tmp_path, {"a": model(tmp_path, "a", 1)}, 2**16, 16)

    async def around() -> None:
        await node.load(load_to(0), lambda _: None)
        await node.offload("a#0")
        with pytest.raises(Exception, match="gpu:1"):
            await node.load(load_to(1), lambda _: None)
        assert node.level("a#0") is Level.WARM
        await node.unload("a#0")
        assert node.level("a#0") is Level.WARM
        await node.aclose()

    asyncio.run(around())
    assert free(devices) == [2**16, 16]


def run(
    folder: Path, models: dict[str, TorchModel], main: Any, *gpu_bytes: int, planner: ResidencyPolicy | None = None
) -> None:
    async def scene() -> None:
        node, _ = node_of(folder, models, *gpu_bytes)
        async with FleetRunner(open_fleet(None, planner), node) as fleet:
            fleet.tell(node.joined(fleet.now))
            wanted = tuple(Wanted(spec=each.spec(name), replicas=0) for name, each in models.items())
            fleet.tell(DeployRequested(wanted=wanted, at=fleet.now))
            await asyncio.wait_for(main(fleet, node), 60.0)
        await node.aclose()

    asyncio.run(scene())


def test_requests_have_weights_loaded_from_disk_and_from_memory(tmp_path: Path):
    async def main(fleet: FleetRunner, node: TorchNode) -> None:
        assert await fleet.request("a", 2.0) == right(1, 2.0)
        [replica_id] = fleet.state.residency.replicas
        fleet.tell(EvictRequested(model="a", at=fleet.now))
        while fleet.state.moves:
            await asyncio.sleep(0.001)
        assert node.level(replica_id) is Level.WARM
        assert await fleet.request("a", 3.0) == right(1, 3.0)
        assert set(fleet.state.bandwidths) == {("here", "COLD"), ("here", "WARM")}

    run(tmp_path, {"a": model(tmp_path, "a", 1)}, main, 2**16)


def test_a_truncated_file_is_a_request_that_fails_with_the_reason(tmp_path: Path):
    broken = model(tmp_path, "a", 1)
    whole = broken.path.read_bytes()

    async def main(fleet: FleetRunner, _: TorchNode) -> None:
        broken.path.write_bytes(whole[:-100])
        with pytest.raises(RequestError, match="model 'a' cannot be loaded"):
            await fleet.request("a", 1.0)
        assert await fleet.request("b", 1.0) == right(2, 1.0)

    models = {"a": broken, "b": model(tmp_path, "b", 2)}
    run(tmp_path, models, main, 2**16, planner=ResidencyPolicy(max_load_failures=1))


def test_the_bytes_of_a_folder_are_those_of_its_files(tmp_path: Path):
    for name in ("one", "two"):
        save_file({name: torch.ones(WIDTH)}, tmp_path / f"{name}.safetensors")
    weight_map = {name: f"{name}.safetensors" for name in ("one", "two")}
    (tmp_path / "both.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    one, both = (TorchModel(path=path, build=build, call=call) for path in (tmp_path / "one.safetensors", tmp_path))
    assert both.spec("both", priority=3).weight_bytes == 2 * one.spec("one").weight_bytes


def deploy(fleet: FleetRunner, declared: TorchModel, replicas: int) -> None:
    fleet.tell(DeployRequested(wanted=(Wanted(spec=declared.spec("a"), replicas=replicas),), at=fleet.now))


async def settled(fleet: FleetRunner) -> None:
    while fleet.state.moves:
        await asyncio.sleep(0.001)


async def answers_of(fleet: FleetRunner, node: TorchNode) -> list[float]:
    """Of every replica that is HOT."""
    await settled(fleet)
    return [await node.answer(each, 2.0) for each in fleet.state.residency.hot_replicas("a")]


HOW_FILES_CHANGE = {
    "in place": lambda new, path: path.write_bytes(new.read_bytes()),
    "in place, with the time that it had": lambda new, path: (
        path.write_bytes(new.read_bytes()),
        os.utime(path, ns=(path.stat().st_atime_ns, 1)),
    ),
    "renamed over it": lambda new, path: new.rename(path),
}


@pytest.mark.parametrize("how", HOW_FILES_CHANGE)
@pytest.mark.parametrize("level", ["HOT", "WARM", "COLD"])
def test_weights_that_were_changed_and_deployed_again_answer_for_every_replica(tmp_path: Path, how: str, level: str):
    files = model(tmp_path, "a", 1)
    os.utime(files.path, ns=(1, 1))

    async def main(fleet: FleetRunner, node: TorchNode) -> None:
        deploy(fleet, files, 1)
        assert await answers_of(fleet, node) == [right(1, 2.0)]
        if level != "HOT":
            fleet.tell(EvictRequested(model="a", keep=Level(level), at=fleet.now))
            await settled(fleet)
        (tmp_path / "new").mkdir()
        HOW_FILES_CHANGE[how](model(tmp_path / "new", "a", 2).path, files.path)
        deploy(fleet, files, 2)
        assert await answers_of(fleet, node) == [right(2, 2.0)] * 2

    run(tmp_path, {"a": files}, main, 2**16)


def test_weights_that_were_changed_are_not_loaded_beside_the_former_ones_until_they_are_deployed(tmp_path: Path):
    files = model(tmp_path, "a", 1)

    async def main(fleet: FleetRunner, node: TorchNode) -> None:
        deploy(fleet, files, 1)
        assert await answers_of(fleet, node) == [right(1, 2.0)]
        model(tmp_path, "a", 2)
        fleet.tell(ScaleRequested(model="a", replicas=2, at=fleet.now))
        assert await answers_of(fleet, node) == [right(1, 2.0)]
        [waits] = [each for each in fleet.state.residency.replicas.values() if each.phase is Phase.WAITING]
        for word in (str(files.path), "must be those that the model was deployed with", "deploy the model again"):
            assert word in waits.because
        deploy(fleet, files, 2)
        assert await answers_of(fleet, node) == [right(2, 2.0)] * 2

    run(tmp_path, {"a": files}, main, 2**16, planner=ResidencyPolicy(max_load_failures=1))


def test_deploying_unchanged_weights_again_changes_nothing(tmp_path: Path):
    files = model(tmp_path, "a", 1)

    async def main(fleet: FleetRunner, node: TorchNode) -> None:
        deploy(fleet, files, 1)
        await settled(fleet)
        moves = fleet.state.residency.moves
        deploy(fleet, files, 1)
        assert fleet.state.residency.moves == moves

    run(tmp_path, {"a": files}, main, 2**16)


def test_a_replica_never_takes_the_warm_copy_of_another_version(tmp_path: Path):
    files = model(tmp_path, "a", 1)
    node, _ = node_of(tmp_path, {"a": files}, 2**16)
    stat = files.path.stat()

    async def around() -> None:
        await node.load(load_to(0, version=files.spec("a").version), lambda _: None)
        await node.offload("a#0")
        model(tmp_path, "a", 2)
        os.utime(files.path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        await node.load(load_to(0, move=2, version=files.spec("a").version), lambda _: None)
        assert await node.answer("a#0", 2.0) == right(2, 2.0)
        await node.aclose()

    asyncio.run(around())


@pytest.mark.slow
def test_the_example_with_four_models_and_room_for_two_answers_everybody():
    root = Path(__file__).resolve().parents[2]
    program = root / "examples" / "cold_models.py"
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, str(program)], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[-2].startswith("40 of 40 requests answered rightly")
    assert lines[-1].endswith("they agree")
    for said in ("provisioning  behind", "loading  0 %", "queued", "ready"):
        assert said in done.stdout
