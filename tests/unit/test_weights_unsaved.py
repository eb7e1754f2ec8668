"""Buffers that no file has get their values where a module is made on the meta device: computed again, or computed at once."""

import asyncio
import threading

import pytest
import torch
from torch import nn

from executors.torch_weights import UnknownBuffersError, WeightsMismatchError, meta_parameters
from executors.torch_weights.unsaved import compute_unsaved
from tests.weights_worlds import Language, node, saved, untied


class Rotary(nn.Module):
    """Computes frequencies, as models with rotary positions do."""

    def __init__(self):
        super().__init__()
        self.register_buffer("frequencies", self.computed(), persistent=False)

    @staticmethod
    def computed():
        return 1.0 / (10_000.0 ** (torch.arange(0, 8, 2, dtype=torch.float) / 8))


class Outer(nn.Module):
    """Fills in what it knows of, as models of transformers do; parameters too."""

    def __init__(self, inner=Rotary):
        super().__init__()
        self.rotary = inner()
        self.linear = nn.Linear(4, 4, bias=False)
        self.asked = []

    def _init_weights(self, owner):
        self.asked.append(owner)
        if hasattr(owner, "frequencies"):
            owner.frequencies.copy_(Rotary.computed())

    def forward(self, numbers):
        return self.linear(numbers * self.rotary.frequencies)


class Wrapped(nn.Module):
    """Has a model in it."""

    def __init__(self):
        super().__init__()
        self.model = Outer()


def on_meta(make):
    with torch.device("meta"):
        return make()


def test_a_model_that_can_compute_them_again_does_and_answers_as_one_that_was_made_with_memory(tmp_path):
    reference = Outer()
    path = saved(tmp_path / "m.safetensors", dict(reference.state_dict()))
    module = on_meta(Outer)
    weights = node(tmp_path).weights(path, module=module)

    async def around():
        for move in (weights.from_cache, weights.to_cache, weights.from_cache, weights.drop, weights.from_cache):
            await move()
        assert torch.equal(module(torch.ones(4)), reference(torch.ones(4)))
        await weights.aclose()

    asyncio.run(around())
    assert module.rotary.frequencies.dtype is torch.float32


def test_the_innermost_model_around_a_buffer_computes_it():
    module = on_meta(Wrapped)
    assert compute_unsaved(module) == []
    assert torch.equal(module.model.rotary.frequencies, Rotary.computed())
    assert set(module.model.asked) == {module.model.rotary}


class Unknown(nn.Module):
    """Its buffer is one that no `_init_weights` knows of."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.ones(3), persistent=False)


class Noisy(nn.Module):
    """Its buffer is another one each time."""

    def __init__(self):
        super().__init__()
        self.register_buffer("frequencies", torch.rand(3), persistent=False)


class OuterOfNoisy(Outer):
    def __init__(self):
        super().__init__(Noisy)

    def _init_weights(self, owner):
        owner.frequencies.uniform_()


@pytest.mark.parametrize(
    ("make", "name"), [(lambda: Outer(Unknown), "rotary.mask"), (OuterOfNoisy, "rotary.frequencies"), (Rotary, "frequencies")]
)
def test_what_is_left_as_it_was_or_is_random_is_not_taken_for_computed(tmp_path, make, name):
    module = on_meta(make)
    content = {"linear.weight": torch.ones(4, 4)} if hasattr(module, "linear") else {}
    with pytest.raises(UnknownBuffersError, match=rf"{name} on the meta device: make the module within"):
        node(tmp_path).weights(saved(tmp_path / "m.safetensors", content), module=module)
    assert module.get_buffer(name).is_meta


def test_with_parameters_alone_on_meta_buffers_have_values_and_tied_weights_stay_tied(tmp_path):
    reference = Language()
    path = saved(tmp_path / "m.safetensors", untied(reference))
    with meta_parameters(), torch.random.fork_rng():
        module = Language()
    assert all(each.is_meta for each in module.parameters())
    assert module.head.weight is module.embedding.weight
    assert [name for name, each in module.named_parameters() if not each.requires_grad] == ["hidden.bias"]
    weights = node(tmp_path).weights(path, module=module)

    async def hot():
        await weights.from_cache()
        assert torch.equal(module(torch.tensor([1, 2, 49])), reference(torch.tensor([1, 2, 49])))
        await weights.aclose()

    asyncio.run(hot())


def test_it_holds_within_it_only_and_on_its_thread_only_and_also_on_the_meta_device():
    made = {}

    def elsewhere():
        made["elsewhere"] = nn.Linear(2, 2)

    with torch.device("meta"), meta_parameters():
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        made["within"] = Rotary()
        lazy = nn.LazyLinear(2)
        empty = nn.Linear(2, 2, bias=False)
    assert not any(each.is_meta for each in made["elsewhere"].parameters())
    assert torch.equal(made["within"].frequencies, Rotary.computed())
    assert isinstance(lazy.weight, nn.UninitializedParameter)
    assert empty.weight.is_meta
    assert empty.bias is None
    assert not nn.Linear(2, 2).weight.is_meta


def test_the_error_travels():
    import pickle

    error = pickle.loads(pickle.dumps(UnknownBuffersError(["a", "b"])))
    assert isinstance(error, WeightsMismatchError)
    assert (error.missing, "none of a, b on the meta device" in str(error)) == (("a", "b"), True)
