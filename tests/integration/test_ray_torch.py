"""torch.distributed and ranks: groups follow the world, and the example answers correctly through changes and a crash."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ray_local import ANSWER_S, eventually

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'rankcore[torch]'")

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def embedding(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    sys.modules.pop("sharded_embedding", None)
    import sharded_embedding

    return sharded_embedding


def info(serve, name):
    return serve.status().deployments[name]


def settled(serve, name, world_size):
    return eventually(
        lambda: (now := info(serve, name)).status == "HEALTHY" and sorted(now.ranks) == list(range(world_size)) and now,
        f"{name} has ranks 0..{world_size - 1}",
    )


def test_the_sharded_table_answers_correctly_before_during_and_after_changes(serve, embedding, tmp_path):
    table = embedding.write_table(tmp_path / "table.pt")
    ids = list(range(0, embedding.ROWS, 53))
    shard = embedding.EmbeddingShard.options(user_config={"table": str(tmp_path / "table.pt")}, num_replicas=3)
    handle = serve.run(shard.bind(), route_prefix=None)

    def right():
        return torch.equal(embedding.embed(handle, ids), table[ids])

    def all_counted():
        return handle.counted.remote().result(ANSWER_S) == embedding.ROWS

    assert right(), "before"
    eventually(all_counted, "the group of three adds up")
    serve.scale("EmbeddingShard", 2)
    assert right(), "during a downscale"
    victim = next(each for each in settled(serve, "EmbeddingShard", 2).replicas if each.rank.rank == 0)
    assert right(), "after a downscale"
    os.kill(victim.pid, signal.SIGKILL)
    assert right(), "during a crash"
    settled(serve, "EmbeddingShard", 2)
    assert right(), "after a crash"
    eventually(lambda: all(all_counted() for _ in range(4)), "the new group of two adds up")


def test_the_environment_of_torch_distributed_comes_from_the_ranks(serve):
    class Env:
        def __init__(self):
            from executors import ray_gpu

            self.env = ray_gpu.torch_env()

        def __call__(self):
            return self.env

    app = serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 0})(Env)
    handle = serve.run(app.bind(), route_prefix=None)
    seen = {}
    eventually(lambda: seen.update({(env := handle.remote().result(ANSWER_S))["RANK"]: env}) or len(seen) == 2, "both")
    for rank in ("0", "1"):
        assert seen[rank]["WORLD_SIZE"] == seen[rank]["LOCAL_WORLD_SIZE"] == "2"
        assert seen[rank]["GROUP_RANK"] == "0"
        assert seen[rank]["MASTER_ADDR"] == "127.0.0.1"
    assert sorted(env["LOCAL_RANK"] for env in seen.values()) == ["0", "1"]
    assert seen["0"]["MASTER_PORT"] == seen["1"]["MASTER_PORT"]


def test_outside_a_replica_there_is_no_environment(serve):
    from executors.ray_gpu.errors import NotInReplicaError

    with pytest.raises(NotInReplicaError, match="outside a replica"):
        serve.torch_env()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_fractions_of_a_gpu_are_seen_by_each_replica(serve):
    class OnGpu:
        def __init__(self):
            import torch

            self.device = torch.zeros(1, device="cuda").device.type

        def __call__(self):
            return self.device, os.environ.get("CUDA_VISIBLE_DEVICES")

    app = serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 0, "num_gpus": 0.5})(OnGpu)
    handle = serve.run(app.bind(), route_prefix=None)
    assert {handle.remote().result(ANSWER_S) for _ in range(4)} == {("cuda", "0")}


def shared_by_torch():
    """Memory that torch has given a name, for processes to share."""
    return {each.name for each in Path("/dev/shm").glob("torch_*")}


@pytest.mark.night
@pytest.mark.parametrize("interrupted", [False, True], ids=["to its end", "ended by Ctrl-C"])
def test_trainers_and_replicas_share_weights_on_the_same_bundles_and_leave_nothing(tmp_path, interrupted):
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent), "RAY_ADDRESS": "local", "RAY_USAGE_STATS_ENABLED": "0"}
    command = [sys.executable, "-u", str(EXAMPLES / "rl_colocation.py")]
    before = shared_by_torch()
    with subprocess.Popen(
        command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        if interrupted:
            assert next(line for line in running.stdout if line.startswith("step 1"))
            running.send_signal(signal.SIGINT)
        stdout, stderr = running.communicate(timeout=600)
    assert running.returncode == (130 if interrupted else 0), stderr[-2000:]
    assert "terminate called" not in stderr
    assert shared_by_torch() <= before
    if interrupted:
        assert "Traceback" not in stderr
        return
    said = [line for line in stdout.splitlines() if not line.startswith("\x1b")]
    assert [line.split(";")[-1].strip() for line in said if line.startswith("step")] == [
        "the answer comes from the new weights, which nobody copied"
    ] * 3
    assert said[-1] == "rank 1 crashed, and is back on its bundles with the weights of step 3"
