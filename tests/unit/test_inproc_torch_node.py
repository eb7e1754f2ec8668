"""A node of a cluster in one process whose weights really move: where they are after each move, and what is told of it."""

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

from executors.inproc import InprocCluster, NotThereError
from executors.inproc.torch_node import TorchModel, TorchNode
from executors.ray_gpu.errors import UnavailableError
from executors.torch_weights import Level, StandIn, WarmStore
from rankcore.cluster.events import ScaleRequested
from rankcore.residency.commands import LoadToGpu
from rankcore.residency.events import EvictRequested
from tests.inproc import phases, shop, tenures, until

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
        replica_id="s/a@1#1.0",
        model="s/a",
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
    node, devices = node_of(tmp_path, {"s/a": model(tmp_path, "a", 1)}, 2**16, 2**16)

    async def around() -> None:
        told: list[int] = []
        await node.load(load_to(0), told.append)
        assert node.level("s/a@1#1.0") is Level.HOT
        assert await node.answer("s/a@1#1.0", 2.0) == right(1, 2.0)
        await node.offload("s/a@1#1.0")
        assert free(devices) == [2**16, 2**16]
        with pytest.raises(NotThereError):
            await node.answer("s/a@1#1.0", 2.0)
        await node.load(load_to(0), told.append)
        await node.offload("s/a@1#1.0")
        await node.load(load_to(1, move=2), told.append)
        assert free(devices)[0] == 2**16 > free(devices)[1]
        assert await node.answer("s/a@1#1.0", 3.0) == right(1, 3.0)
        await node.drop("s/a@1#1.0")
        assert node.level("s/a@1#1.0") is Level.COLD
        await node.drop("s/a@1#1.0")

    asyncio.run(around())
    assert free(devices) == [2**16, 2**16]


def test_a_copy_stays_when_there_is_no_room_elsewhere_or_its_load_was_broken_off(tmp_path: Path):
    node, devices = node_of(tmp_path, {"s/a": model(tmp_path, "a", 1)}, 2**16, 16)

    async def around() -> None:
        await node.load(load_to(0), lambda _: None)
        await node.offload("s/a@1#1.0")
        with pytest.raises(Exception, match="gpu:1"):
            await node.load(load_to(1), lambda _: None)
        assert node.level("s/a@1#1.0") is Level.WARM
        broken_off = asyncio.ensure_future(node.load(load_to(0), lambda _: broken_off.cancel()))
        await asyncio.wait([broken_off])
        assert broken_off.cancelled()
        await node.offload("s/a@1#1.0")  # it may have been HOT by then
        assert node.level("s/a@1#1.0") is Level.WARM
        assert free(devices) == [2**16, 16]
        await node.aclose()

    asyncio.run(around())
    assert free(devices) == [2**16, 16]


def run(folder: Path, models: dict[str, TorchModel], main: Any, *gpu_bytes: int, **options: Any) -> None:
    async def scene() -> None:
        node, _ = node_of(folder, models, *gpu_bytes)
        async with InprocCluster(node) as cluster:
            cluster.tell(node.joined(cluster.now))
            cluster.apply(shop(*(each.spec(name, **options) for name, each in models.items())))
            await asyncio.wait_for(main(cluster, node), 60.0)
        await node.aclose()

    asyncio.run(scene())


class Uneven(nn.Module):
    """One tensor of 24 KiB among small ones: equal parts over two devices would not hold it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.second = nn.Linear(WIDTH, 6 * WIDTH)
        self.third = nn.Linear(6 * WIDTH, 1)

    @torch.no_grad()
    def forward(self, activation: torch.Tensor) -> torch.Tensor:
        for each in (self.first, self.second, self.third):
            activation = nn.functional.linear(activation, each.weight, each.bias)
        return activation


def test_uneven_tensors_that_no_device_holds_are_hot_on_as_few_as_hold_the_fullest_part(tmp_path: Path):
    torch.manual_seed(1)
    module = Uneven()
    save_file(module.state_dict(), tmp_path / "u.safetensors")
    uneven = TorchModel(path=tmp_path / "u.safetensors", build=Uneven, call=call)
    shards = dict(uneven.spec("s/u").residency.shard_bytes)  # type: ignore[union-attr]
    assert (shards[1], shards[2]) == (30720, 25600)

    async def main(cluster: InprocCluster, node: TorchNode) -> None:
        assert await cluster.call("u", 2.0) == call(module, 2.0)
        [worker_id] = tenures(cluster, "s/u").values()
        record = cluster.state.weights.planner.replicas[worker_id]
        assert (record.gpus, record.gpu_bytes) == ((0, 1), (shards[2],) * 2)

    run(tmp_path, {"s/u": uneven}, main, shards[2], shards[2], shards[2])


def test_calls_have_weights_loaded_from_disk_and_from_memory(tmp_path: Path):
    async def main(cluster: InprocCluster, node: TorchNode) -> None:
        assert await cluster.call("a", 2.0) == right(1, 2.0)
        [worker_id] = tenures(cluster, "s/a").values()
        cluster.tell(EvictRequested(model="s/a", at=cluster.now))
        await until(lambda: phases(cluster)["RESTING"])
        assert node.level(worker_id) is Level.WARM
        assert await cluster.call("a", 3.0) == right(1, 3.0)
        assert list(tenures(cluster, "s/a").values()) == [worker_id]

    run(tmp_path, {"s/a": model(tmp_path, "a", 1)}, main, 2**16)


def test_a_truncated_file_is_a_call_that_fails_with_the_reason(tmp_path: Path):
    broken = model(tmp_path, "a", 1)
    whole = broken.path.read_bytes()

    async def main(cluster: InprocCluster, _: TorchNode) -> None:
        broken.path.write_bytes(whole[:-100])
        with pytest.raises(UnavailableError, match=r"(?s)^s/a is UNAVAILABLE: .*load: WeightsFileError: .*a\.safetensors"):
            await cluster.call("a", 1.0)
        assert await cluster.call("b", 1.0) == right(2, 1.0)

    models = {"s/a": broken, "s/b": model(tmp_path, "b", 2)}
    run(tmp_path, models, main, 2**16, max_start_failures=1)


def test_the_bytes_of_a_folder_are_those_of_its_files(tmp_path: Path):
    for name in ("one", "two"):
        save_file({name: torch.ones(WIDTH)}, tmp_path / f"{name}.safetensors")
    weight_map = {name: f"{name}.safetensors" for name in ("one", "two")}
    (tmp_path / "both.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    one, both = (TorchModel(path=path, build=build, call=call) for path in (tmp_path / "one.safetensors", tmp_path))
    both_spec, one_spec = both.spec("s/both", priority=3), one.spec("s/one")
    assert both_spec.residency.weight_bytes == 2 * one_spec.residency.weight_bytes
    assert (both_spec.residency.priority, both_spec.ranks.target_replicas) == (3, 0)


def deploy(cluster: InprocCluster, declared: TorchModel, replicas: int) -> None:
    cluster.apply(shop(declared.spec("s/a", replicas=replicas, **RETRIED_SOON)))


RETRIED_SOON = {"start_backoff_s": 0.01, "start_backoff_max_s": 0.01}


async def answers_of(cluster: InprocCluster, node: TorchNode, replicas: int) -> list[float]:
    """Of every replica, once there are so many of the version that is deployed, and nothing moves."""
    version = cluster.state.deployments["s/a"].spec.ranks.version

    def are_up() -> bool:
        state = cluster.state.deployments["s/a"].ranks
        up = [each for each in state.replicas.values() if each.state == "RUNNING" and each.version == version]
        return len(up) == replicas == len(state.replicas)

    await until(are_up)
    return [await node.answer(each, 2.0) for each in tenures(cluster, "s/a").values()]


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

    async def main(cluster: InprocCluster, node: TorchNode) -> None:
        deploy(cluster, files, 1)
        assert await answers_of(cluster, node, 1) == [right(1, 2.0)]
        if level != "HOT":
            cluster.tell(EvictRequested(model="s/a", keep=Level(level), at=cluster.now))
            await until(lambda: phases(cluster) == ({"RESTING": 1} if level == "WARM" else {}))
        (tmp_path / "new").mkdir()
        HOW_FILES_CHANGE[how](model(tmp_path / "new", "a", 2).path, files.path)
        deploy(cluster, files, 2)
        assert await answers_of(cluster, node, 2) == [right(2, 2.0)] * 2

    run(tmp_path, {"s/a": files}, main, 2**16)


def test_weights_that_were_changed_are_not_loaded_beside_the_former_ones_until_they_are_deployed(tmp_path: Path):
    files = model(tmp_path, "a", 1)

    async def main(cluster: InprocCluster, node: TorchNode) -> None:
        deploy(cluster, files, 1)
        assert await answers_of(cluster, node, 1) == [right(1, 2.0)]
        model(tmp_path, "a", 2)
        cluster.tell(ScaleRequested(deployment="s/a", target_replicas=2, at=cluster.now))
        await until(lambda: cluster.state.deployments["s/a"].trouble)
        for word in (str(files.path), "must be those that the model was deployed with", "deploy the model again"):
            assert word in cluster.state.deployments["s/a"].trouble
        assert [await node.answer(each, 2.0) for each in tenures(cluster, "s/a").values()] == [right(1, 2.0)]
        deploy(cluster, files, 2)
        assert await answers_of(cluster, node, 2) == [right(2, 2.0)] * 2

    run(tmp_path, {"s/a": files}, main, 2**16)


def test_deploying_unchanged_weights_again_changes_nothing(tmp_path: Path):
    files = model(tmp_path, "a", 1)

    async def main(cluster: InprocCluster, node: TorchNode) -> None:
        deploy(cluster, files, 1)
        assert await answers_of(cluster, node, 1) == [right(1, 2.0)]
        deployments = cluster.state.deployments
        deploy(cluster, files, 1)
        assert cluster.state.deployments == deployments

    run(tmp_path, {"s/a": files}, main, 2**16)


def test_a_replica_never_takes_the_warm_copy_of_another_version(tmp_path: Path):
    files = model(tmp_path, "a", 1)
    node, _ = node_of(tmp_path, {"s/a": files}, 2**16)
    stat = files.path.stat()

    async def around() -> None:
        await node.load(load_to(0, version=files.spec("s/a").ranks.version), lambda _: None)
        await node.offload("s/a@1#1.0")
        model(tmp_path, "a", 2)
        os.utime(files.path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        await node.load(load_to(0, move=2, version=files.spec("s/a").ranks.version), lambda _: None)
        assert await node.answer("s/a@1#1.0", 2.0) == right(2, 2.0)
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
    last_told = dict(line.split(": ", 1) for line in lines[:-2])
    assert set(last_told.values()) == {"READY"}, "what docs/embedding.md says never varies"
    assert lines[-2].startswith("40 of 40 calls answered rightly")
    assert lines[-1].endswith("they agree")
    for said in ("PROVISIONING behind", "LOADING 0 %", "READY"):
        assert said in done.stdout
