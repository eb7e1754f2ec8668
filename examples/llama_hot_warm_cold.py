"""A model of transformers as a plain class: HOT, WARM, HOT, COLD and HOT again, with the words of `from_pretrained` each time.

    pip install "rankcore[ray,torch]" transformers
    python examples/llama_hot_warm_cold.py

Makes a tiny Llama with random weights and tied embeddings, starts a local Ray cluster whose "GPU" is memory, and deploys the
class. With a GPU, leave `memory=` out. The class makes its module on the meta device, where it takes no memory: its parameters
are the weights, wherever they have been brought, and its rotary frequencies, which no file has, are computed anew.
"""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from executors import ray_gpu as serve

PROMPT = [1, 2, 3, 4]
NEW_TOKENS = 16
PATIENCE_S = 120.0


class Llama:
    """What a user writes: nothing in it knows of places."""

    def __init__(self, folder: str) -> None:
        with torch.device("meta"):
            self.module = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder, local_files_only=True)).eval()

    def __call__(self, tokens: list[int]) -> list[int]:
        asked = torch.tensor([tokens], device=self.module.device)
        answer: list[int] = self.module.generate(asked, max_new_tokens=NEW_TOKENS, do_sample=False)[0].tolist()
        return answer


def write_weights(folder: Path) -> None:
    """As somebody else has trained them."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        initializer_range=0.4,  # so that it has something to say
    )
    LlamaForCausalLM(config).save_pretrained(folder)


def of_from_pretrained(folder: Path) -> list[int]:
    """What is right."""
    module = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True).eval()
    answer: list[int] = module.generate(torch.tensor([PROMPT]), max_new_tokens=NEW_TOKENS, do_sample=False)[0].tolist()
    return answer


def levels() -> list[str]:
    """Where the weights are; nowhere but on disk: []."""
    return [str(worker.level) for worker in serve.status().deployments["llama/Llama"].workers]


def until(reached: Callable[[], bool]) -> None:
    begun = time.monotonic()
    while not reached():
        assert time.monotonic() - begun < PATIENCE_S, f"the weights are {levels()}"
        time.sleep(0.05)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "llama"
        write_weights(path)
        right = of_from_pretrained(path)
        serve.start(memory={"device": "cpu", "stand_in_gpu_bytes": (2**24,), "cache_bytes": 2**24}, proxy_location="Disabled")
        try:
            model = serve.deployment(Llama).options(residency=serve.Residency(weights=path, min_hot_s=0.0))
            handle = serve.run(model.bind(os.fspath(path)), name="llama", route_prefix=None)
            for keep, left in (("WARM", ["WARM"]), ("COLD", []), (None, ["HOT"])):
                answer = handle.remote(PROMPT).result(timeout_s=PATIENCE_S)
                print(f"{levels()[0]}: {answer[len(PROMPT) :]}, {'as' if answer == right else 'NOT as'} from_pretrained")
                assert answer == right
                if keep is not None:
                    serve.evict("llama/Llama", keep=keep)
                    until(lambda left=left: levels() == left)
                    print(f"{(levels() or ['COLD'])[0]}")
        finally:
            serve.shutdown()


if __name__ == "__main__":
    main()
