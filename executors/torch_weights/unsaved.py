"""Buffers that no file has (`register_buffer(..., persistent=False)`): positions, frequencies, masks. A module computes them.

**What.** A module that was made on the meta device has computed them there, so that they have no values. There are two ways
to values, and an error that names what has none:

1. A module of transformers can compute them again: its `_init_weights(owner)`, which `from_pretrained` calls for the same
   reason, fills in what the owner of a buffer computes. They are given memory, of the types that they have, and it is called.
2. `meta_parameters()` has parameters alone on the meta device: whatever else a constructor computes is computed as ever.

**Why what 1 has filled in is trusted.** A class whose `_init_weights` does not know of a buffer leaves in it what was there. So
it is called twice, over zeros and over ones: what differs then was not computed, or is random, and neither is what the model
was trained with. What agrees does not depend on the memory that it was given.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.nn.parameter import is_lazy
from torch.utils.weak import WeakIdKeyDictionary

Unsaved = tuple[str, nn.Module, str, Tensor]
"""Name in the module, owner, name in the owner, value."""


@contextlib.contextmanager
def meta_parameters() -> Iterator[None]:
    """Modules that are made within have parameters without memory; their buffers have values.

    What a constructor puts into a parameter is computed, in memory that is given back once it is registered. Modules of other
    threads are left alone.
    """
    thread = threading.get_ident()
    made = WeakIdKeyDictionary()

    def without_memory(module: nn.Module, name: str, given: nn.Parameter | None) -> nn.Parameter | None:
        if given is None or given.is_meta or is_lazy(given) or threading.get_ident() != thread:
            return None
        if given not in made:
            made[given] = nn.Parameter(torch.empty_like(given, device="meta"), given.requires_grad)
        # One under two names (tied weights) stays one.
        found: nn.Parameter = made[given]
        return found

    handle = register_module_parameter_registration_hook(without_memory)  # type: ignore[arg-type]  # what it returns counts
    try:
        with torch.device("cpu"):
            yield
    finally:
        handle.remove()


def unsaved(module: nn.Module) -> Iterator[Unsaved]:
    """The buffers of a module that its file has not."""
    for prefix, owner in module.named_modules():
        for name in sorted(owner._non_persistent_buffers_set):
            value = getattr(owner, name)
            if value is not None:
                yield f"{prefix}.{name}".lstrip("."), owner, name, value


def compute_unsaved(module: nn.Module) -> list[str]:
    """Give values to the unsaved buffers that are on the meta device; returns the names of those for which there is no way."""
    lost = [each for each in unsaved(module) if each[3].is_meta]
    first, second = (_computed(module, lost, fill) for fill in (0, 1))
    kept = {name: value for name, value in first.items() if torch.equal(value, second[name])}
    for name, owner, own_name, value in lost:
        owner.register_buffer(own_name, kept.get(name, value), persistent=False)
    return [name for name, *_ in lost if name not in kept]


@torch.no_grad()
def _computed(module: nn.Module, lost: list[Unsaved], fill: int) -> dict[str, Tensor]:
    """What `_init_weights` makes of these buffers where they have been filled before; {}: there is none that could."""
    found: dict[str, Tensor] = {}
    for _, owner, own_name, value in lost:
        owner.register_buffer(own_name, torch.full_like(value, fill, device="cpu"), persistent=False)
    for owner in dict.fromkeys(owner for _, owner, _, _ in lost):
        compute = _init_weights_for(module, owner)
        if compute is not None:
            compute(owner)
    for name, owner, own_name, _ in lost:
        found[name] = getattr(owner, own_name)
    return found


def _init_weights_for(module: nn.Module, owner: nn.Module) -> Callable[[nn.Module], object] | None:
    """Of the innermost module around an owner that has one."""
    around = [each for _, each in module.named_modules() if any(inner is owner for inner in each.modules())]
    return next((found for each in reversed(around) if callable(found := getattr(each, "_init_weights", None))), None)
