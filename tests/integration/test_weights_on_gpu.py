"""Weights on a real GPU: moved, measured, and given up. Skipped where there is none."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from executors.torch_weights import Cuda, Level, OutOfDeviceMemory, ResidentWeights, StillHeldError, WarmStore
from tests.weights_worlds import Language, same, saved, untied

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

ROOT = Path(__file__).parents[2]
SLACK_BYTES = 64 * 2**20
"""What the driver may take and give back in larger pieces."""
LARGE = {f"layers.{index}": torch.full((64, 2**20), index, dtype=torch.bfloat16) for index in range(4)}
LARGE_BYTES = 2**29


def free_bytes():
    torch.cuda.synchronize()
    return torch.cuda.mem_get_info()[0]


@pytest.fixture
def large(tmp_path):
    torch.cuda.init()
    Cuda(0).allocate(2**20).free()
    return ResidentWeights(saved(tmp_path / "m.safetensors", LARGE), [Cuda(0)], WarmStore(tmp_path))


def test_weights_are_the_same_after_every_move_and_the_driver_measures_what_they_take(large):
    before = free_bytes()

    async def around():
        for move in (large.from_cache, large.to_cache, large.from_cache, large.drop, large.to_cache, large.from_cache):
            moved = await move()
            if large.level is Level.HOT:
                assert all(torch.equal(large.tensors[name].cpu(), tensor) for name, tensor in LARGE.items())
                assert abs(moved.before[0].free_bytes - moved.after[0].free_bytes - LARGE_BYTES) < SLACK_BYTES
            else:
                assert abs(free_bytes() - before) < SLACK_BYTES
        await large.aclose()

    asyncio.run(around())
    assert abs(free_bytes() - before) < SLACK_BYTES


def test_a_warm_copy_is_pinned(large):
    asyncio.run(large.to_cache())
    assert large._held.copy.pinned
    assert large._held.copy.data.is_pinned()


def test_no_room_on_the_gpu_is_a_failed_load(tmp_path):
    before = free_bytes()
    total = torch.cuda.mem_get_info()[1]
    weights = ResidentWeights(saved(tmp_path / "m.safetensors", LARGE), [Cuda(0)], WarmStore(tmp_path), spare_bytes=total)
    with pytest.raises(OutOfDeviceMemory, match="cuda:0 has"):
        asyncio.run(weights.from_cache())
    assert weights.level is Level.COLD
    assert abs(free_bytes() - before) < SLACK_BYTES


def test_a_tensor_that_somebody_keeps_keeps_all_hot(large):
    async def keep():
        await large.from_cache()
        kept = large.tensors["layers.2"][3:]
        with pytest.raises(StillHeldError, match="cuda:0"):
            await large.to_cache()
        assert large.level is Level.HOT
        del kept
        await large.to_cache()

    asyncio.run(keep())


def test_a_move_that_is_cancelled_gives_the_memory_back(large):
    before = free_bytes()

    async def cancel():
        task = asyncio.ensure_future(large.from_cache(lambda done, total: done and task.cancel()))
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    if large.level is Level.COLD:
        assert abs(free_bytes() - before) < SLACK_BYTES


def test_what_the_gpu_still_computes_with_weights_is_right_when_they_leave(large):
    async def leave():
        await large.from_cache()
        result = large.tensors["layers.3"].float()
        for _ in range(50):
            result = result * 1.0 + large.tensors["layers.3"] * 0
        await large.to_cache()
        return result

    assert (asyncio.run(leave()) == 3).all()


def test_a_module_on_the_gpu_answers_as_on_the_cpu(tmp_path):
    reference = Language()
    module = Language()
    tokens = torch.tensor([1, 2, 49])
    path = saved(tmp_path / "m.safetensors", untied(reference))
    weights = ResidentWeights(path, [Cuda(0)], WarmStore(tmp_path), module=module)

    async def around():
        for move in (weights.from_cache, weights.to_cache, weights.from_cache):
            await move()
            if weights.level is Level.HOT:
                assert torch.allclose(module(tokens.cuda()).cpu(), reference(tokens), atol=1e-4)
                assert same(weights.tensors, untied(reference))
        await weights.aclose()

    asyncio.run(around())


POISONED = """
import asyncio, sys
from pathlib import Path
import torch
from executors.torch_weights import Cuda, DevicePoisonedError, Fate, ResidentWeights, WarmStore, fate_of
weights = ResidentWeights(sys.argv[1], [Cuda(0)], WarmStore(Path(sys.argv[2])))
asyncio.run(weights.from_cache())
try:
    torch.ones(3, device="cuda")[torch.tensor([5], device="cuda")].cpu()
except Exception as error:
    assert fate_of(error) is Fate.POISONED, error
try:
    asyncio.run(weights.to_cache())
except DevicePoisonedError:
    print("poisoned", flush=True)
import os
os._exit(3)
"""


def test_a_device_side_assert_poisons_the_process_and_no_other(tmp_path, large):
    path = saved(tmp_path / "n.safetensors", LARGE)
    command = [sys.executable, "-c", POISONED, str(path), str(tmp_path)]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout) == (3, "poisoned\n"), done.stderr
    asyncio.run(large.from_cache())
    assert torch.equal(large.tensors["layers.1"].cpu(), LARGE["layers.1"])


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_model_that_no_one_gpu_holds_computes_on_two():
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "examples" / "uneven_over_two_gpus.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("HOT on 2 devices") == 3


def test_a_model_of_transformers_says_the_same_after_every_move(tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
    torch.manual_seed(0)
    sizes = {"vocab_size": 128, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4}
    config = transformers.LlamaConfig(**sizes, tie_word_embeddings=True, initializer_range=0.4)
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    asked = torch.tensor([[1, 2, 3, 4]], device="cuda:0")
    whole = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, local_files_only=True).to("cuda:0").eval()
    right = whole.generate(asked, max_new_tokens=16, do_sample=False).tolist()
    with torch.device("meta"):
        module = transformers.AutoModelForCausalLM.from_config(config).eval()
    weights = ResidentWeights(tmp_path, [Cuda(0)], WarmStore(tmp_path), module=module)

    async def around():
        for move in (weights.from_cache, weights.to_cache, weights.from_cache, weights.drop, weights.from_cache):
            await move()
            if weights.level is Level.HOT:
                assert module.generate(asked, max_new_tokens=16, do_sample=False).tolist() == right
        await weights.aclose()

    asyncio.run(around())
