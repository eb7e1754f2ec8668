"""A model on its way to the processes that have it: its code, where its modules are found, and which version of it this is."""

import os
import sys

import attrs

from executors.ray_gpu import packing
from executors.ray_gpu.residency.declaration import Model
from executors.ray_gpu.residency.words import pack, unpack
from executors.torch_weights.contents import declared_in


@attrs.frozen
class Packed:
    """A model as it is sent and kept.

    Attributes:
        model: The model, as bytes.
        sys_path: Where the deployer's modules are found: Ray takes along the folder of the script, and no other.
        version: The same for the same code, options and weights, whatever the user_config, also from another process.
        load_timeout_s: Of the model.
        expected: The contents that its weights must have where they are loaded; None: they were not declared.
    """

    model: bytes
    sys_path: tuple[str, ...]
    version: str
    load_timeout_s: float
    expected: str | None = None


def pack_model(model: Model, weights: str = "") -> bytes:
    """As it is sent.

    Args:
        model: What its user declares.
        weights: What is declared of its weights (`WeightsFiles.declared`), which are the deployer's; "": nothing.
    """
    blob = pack(model)
    # A user_config is told to the replicas that there are.
    version = packing.version_of(pack(attrs.evolve(model, user_config=None)) + packing.source_of(model.code), {})
    sys_path = tuple(os.path.abspath(path) for path in sys.path)
    return pack(Packed(blob, sys_path, f"{version}{weights}", model.load_timeout_s, declared_in(weights)))


def unpack_model(packed: bytes) -> Model:
    """What `pack_model` was given; its modules can be imported from now on."""
    found: Packed = unpack(packed)
    for path in found.sys_path:
        if path not in sys.path:
            sys.path.append(path)
    model: Model = unpack(found.model)
    return model


def load_timeout_of(packed: bytes) -> float:
    """For how long nothing may arrive of a load, in seconds."""
    found: Packed = unpack(packed)
    return found.load_timeout_s


def expected_of(packed: bytes) -> str | None:
    """The contents that its weights must have where they are loaded; None: any."""
    found: Packed = unpack(packed)
    return found.expected


def version_of(packed: bytes) -> str:
    """The same for two packed models that have the same code, options and weights."""
    found: Packed = unpack(packed)
    return found.version
