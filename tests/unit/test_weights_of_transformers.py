"""Models of transformers, made on the meta device, answer as `from_pretrained` does wherever their weights have been."""

import asyncio
import sys
import uuid
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'rankcore[torch]'")
pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

import torch
import transformers

from executors.ray_gpu.worker.options import MemoryOptions
from executors.ray_gpu.worker.places import NodeMemory, Places
from executors.ray_gpu.worker.weights import HeldWeights
from executors.torch_weights import Level, LocalAgreement
from tests.weights_worlds import node

ROOM = 2**24
SMALL = {"vocab_size": 99, "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 32}
FEW_WORDS = {**SMALL, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


@pytest.fixture
def llama(monkeypatch):
    """The plain class of the example."""
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "examples")
    import llama_hot_warm_cold

    yield llama_hot_warm_cold
    del sys.modules["llama_hot_warm_cold"]


def test_a_tied_llama_goes_hot_warm_hot_cold_hot_as_a_plain_class_of_a_worker(tmp_path, llama):
    llama.write_weights(tmp_path)
    right = llama.of_from_pretrained(tmp_path)
    assert len(set(right)) > 8, "an answer of one word would show little"
    user = llama.Llama(str(tmp_path))
    places = Places(MemoryOptions(device="cpu"), "test", uuid.uuid4().hex, NodeMemory((ROOM,), ROOM))
    held = HeldWeights(str(tmp_path), None, places, LocalAgreement())
    found = []

    async def around():
        for keep_copy in (True, False, False):
            await held.load(user, (0,), (ROOM,), lambda done, total: None)
            found.append((held.level, user(llama.PROMPT) == right))
            assert user.module.lm_head.weight is user.module.model.embed_tokens.weight
            await held.leave(user, keep_copy=keep_copy)
            assert places.device(0).memory().free_bytes == ROOM

    asyncio.run(around())
    assert found == [(Level.HOT, True)] * 3


@pytest.mark.night
@pytest.mark.parametrize(
    ("model", "config"),
    [
        ("GPT2LMHeadModel", lambda: transformers.GPT2Config(**FEW_WORDS, n_positions=64)),
        ("BertModel", lambda: transformers.BertConfig(**SMALL, intermediate_size=48)),
        (
            "Gemma3ForCausalLM",
            lambda: transformers.Gemma3TextConfig(**FEW_WORDS, num_key_value_heads=1, head_dim=16, intermediate_size=48),
        ),
    ],
)
def test_others_too_with_the_buffers_that_they_compute(tmp_path, model, config):
    kind = getattr(transformers, model)
    torch.manual_seed(1)
    kind(config()).save_pretrained(tmp_path)
    right = kind.from_pretrained(tmp_path, local_files_only=True).eval()
    with torch.device("meta"):
        module = kind(kind.config_class.from_pretrained(tmp_path, local_files_only=True)).eval()
    weights = node(tmp_path, ROOM).weights(tmp_path, module=module)
    words = torch.tensor([[1, 5, 9]])

    @torch.no_grad()
    async def around():
        for move in (weights.from_cache, weights.to_cache, weights.from_cache, weights.drop, weights.from_cache):
            await move()
        for (name, found), (_, wanted) in zip(module.named_buffers(), right.named_buffers(), strict=True):
            assert torch.equal(found, wanted), name
        assert torch.equal(module(words)[0], right(words)[0])
        await weights.aclose()

    asyncio.run(around())
