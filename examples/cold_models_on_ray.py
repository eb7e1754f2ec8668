"""Four models, and room for two: a call for one that is on disk waits until it has displaced another.

    python examples/cold_models_on_ray.py

Makes four small models with random weights, starts a local Ray cluster whose "GPU" is 20 MB of memory, deploys them, and
calls all of them in turn. It prints what each call was told while it waited, and at the end where the weights are, and why.
"""

import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file

from executors import ray_gpu as serve

WIDTH = 1024
WEIGHT_BYTES = 2 * 4 * WIDTH * WIDTH
NAMES = ("tiny-a", "tiny-b", "tiny-c", "tiny-d")


def layers(device: str) -> torch.nn.Sequential:
    with torch.device(device):
        return torch.nn.Sequential(
            torch.nn.Linear(WIDTH, WIDTH, bias=False), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH, bias=False)
        )


@serve.deployment
class Tiny:
    """Its `module` has no memory of its own: its parameters are the weights, wherever they have been brought."""

    def __init__(self) -> None:
        self.module = layers("meta")

    @torch.no_grad()
    def __call__(self, number: float) -> float:
        first = next(self.module.parameters())
        return float(self.module(torch.full((1, WIDTH), number, device=first.device)).sum())


def write_weights(folder: Path) -> dict[str, float]:
    """A file for each model, and what each answers to 1.0."""
    answers = {}
    for seed, name in enumerate(NAMES):
        torch.manual_seed(seed)
        module = layers("cpu")
        save_file(module.state_dict(), folder / f"{name}.safetensors")
        with torch.no_grad():
            answers[name] = float(module(torch.ones(1, WIDTH)).sum())
    return answers


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        expected = write_weights(Path(folder))
        serve.start(
            memory={"device": "cpu", "stand_in_gpu_bytes": (20_000_000,), "cache_bytes": 20_000_000}, proxy_location="Disabled"
        )
        weights = {name: serve.Residency(weights=f"{folder}/{name}.safetensors", min_hot_s=0.2) for name in NAMES}
        applications = [Tiny.options(name=name, residency=weights[name]).bind() for name in NAMES]
        handles = serve.run_many(
            [serve.RunTarget(app, name, route_prefix=None) for app, name in zip(applications, NAMES, strict=True)]
        )
        try:
            for name, handle in (*zip(NAMES, handles, strict=True),) * 2:
                response = handle.remote(1.0)
                told = [str(status) for status in response.statuses()]
                answer = response.result(timeout_s=120)
                print(f"{name}: {answer:.4f} (expected {expected[name]:.4f}); was told: {', then '.join(told) or 'nothing'}")
                assert abs(answer - expected[name]) < 1e-2 * max(1.0, abs(expected[name]))
            for info in serve.status().deployments.values():
                for worker in info.workers:
                    print(f"{info.name}: {worker.level}, {worker.because}")
        finally:
            serve.shutdown()


if __name__ == "__main__":
    main()
