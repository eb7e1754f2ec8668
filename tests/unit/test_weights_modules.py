"""A module has the weights as its parameters while they are HOT, without a copy, and none while they are not."""

import asyncio

import pytest
import torch
from torch import nn

from executors.torch_weights import Level, StillHeldError, UnknownBuffersError, WeightsMismatchError
from tests.weights_worlds import Language, node, saved, untied

TOKENS = torch.tensor([1, 2, 49])


def on_meta():
    """As users make a module without memory: what is computed and not saved they compute after."""
    with torch.device("meta"):
        module = Language()
    module.positions = torch.arange(8.0)
    return module


@pytest.mark.parametrize("make", [Language, on_meta])
@pytest.mark.parametrize("devices", [1, 2])
def test_a_module_answers_the_same_after_every_move(tmp_path, make, devices):
    reference = Language()
    place = node(tmp_path, *[2**20] * devices)
    path = saved(tmp_path / "m.safetensors", untied(reference))
    module = make()
    weights = place.weights(path, module=module, devices=place.devices)

    async def around():
        for move in (weights.from_cache, weights.to_cache, weights.from_cache, weights.drop, weights.from_cache):
            await move()
            if weights.level is Level.HOT:
                assert torch.equal(module(TOKENS), reference(TOKENS))
                assert module.head.weight is module.embedding.weight
                assert module.embedding.weight.data_ptr() == weights.tensors["embedding.weight"].data_ptr()
                assert [name for name, each in module.named_parameters() if not each.requires_grad] == ["hidden.bias"]
                assert int(module.steps) == 7
            else:
                assert place.free == [2**20] * devices
                with pytest.raises((NotImplementedError, RuntimeError), match="meta"):
                    module(TOKENS).sum().item()
        await weights.aclose()

    asyncio.run(around())
    assert place.free == [2**20] * devices


def test_a_module_gives_up_the_memory_that_it_has(tmp_path):
    module = Language()
    node(tmp_path).weights(saved(tmp_path / "m.safetensors", untied(module)), module=module)
    assert all(each.is_meta for each in module.state_dict().values())


def test_names_and_shapes_that_do_not_fit_are_all_told_and_the_module_is_left_alone(tmp_path):
    module = Language()
    before = dict(module.state_dict(keep_vars=True))
    content = untied(module) | {"hidden.weight": torch.ones(8, 9), "surplus": torch.ones(1)}
    del content["steps"]
    with pytest.raises(WeightsMismatchError) as caught:
        node(tmp_path).weights(saved(tmp_path / "m.safetensors", content), module=module)
    assert (caught.value.missing, caught.value.unexpected) == (("steps",), ("surplus",))
    assert caught.value.misshapen == (("hidden.weight", (8, 8), (8, 9)),)
    told = "missing: steps; unexpected: surplus; of another shape: hidden.weight (module (8, 8), file (8, 9))"
    assert told in str(caught.value)
    after = module.state_dict(keep_vars=True)
    assert all(after[name] is tensor for name, tensor in before.items())


def test_a_file_that_does_not_fit_any_more_is_a_failed_load(tmp_path):
    module = Language()
    place = node(tmp_path)
    weights = place.weights(saved(tmp_path / "m.safetensors", untied(module)), module=module)
    saved(tmp_path / "n.safetensors", {"other": torch.ones(2)}).replace(tmp_path / "m.safetensors")
    with pytest.raises(WeightsMismatchError):
        asyncio.run(weights.from_cache())
    assert (weights.level, place.free) == (Level.COLD, [2**20])


def test_a_buffer_that_is_neither_saved_nor_there_is_told(tmp_path):
    with torch.device("meta"):
        module = Language()
    content = untied(Language())
    with pytest.raises(UnknownBuffersError, match="none of positions on the meta device"):
        node(tmp_path).weights(saved(tmp_path / "m.safetensors", content), module=module)


def test_a_parameter_that_somebody_keeps_is_named_and_the_module_goes_on(tmp_path):
    module = Language()
    path = saved(tmp_path / "m.safetensors", untied(module))
    want = module(TOKENS)
    weights = node(tmp_path).weights(path, module=module)

    async def keep():
        await weights.from_cache()
        kept = module.hidden.weight
        with pytest.raises(StillHeldError, match=r"somebody keeps hidden\.weight"):
            await weights.to_cache()
        assert torch.equal(module(TOKENS), want)
        del kept
        await weights.to_cache()

    asyncio.run(keep())


def test_a_module_may_be_trained_in_another_type_than_it_is_saved(tmp_path):
    module = nn.Linear(4, 4)
    content = {name: each.bfloat16() for name, each in module.state_dict().items()}
    weights = node(tmp_path).weights(saved(tmp_path / "m.safetensors", content), module=module)
    asyncio.run(weights.from_cache())
    assert module.weight.dtype is torch.bfloat16
