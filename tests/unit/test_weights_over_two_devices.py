"""The example of a model that no one device holds: it is HOT on two, and its module moves what it computes."""

import asyncio
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'rankcore[torch]'")

import torch


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "examples")
    import uneven_over_two_gpus

    yield uneven_over_two_gpus
    del sys.modules["uneven_over_two_gpus"]


def test_it_is_hot_on_two_and_computes_there_whatever_it_has_been(example, tmp_path, capsys):
    asyncio.run(example.main(tmp_path))
    assert capsys.readouterr().out.count("HOT on 2 devices") == 3


def test_what_is_computed_is_moved_to_each_weight_that_it_meets(example, monkeypatch):
    """Where devices differ; all stand-ins are the host to torch."""
    with torch.device("meta"):
        module = example.Uneven()
    met = []

    def moved(owner, activation):
        met.append(next(name for name, each in module.named_modules() if each is owner))
        return activation.to("meta")

    monkeypatch.setattr(example, "on", moved)
    module(example.TOKENS)
    inner = [f"layers.{layer}.{part}" for layer in range(example.LAYERS) for part in ("up", "down")]
    assert met == ["embedding", *inner, "output"]
