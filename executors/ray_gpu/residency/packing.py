"""A model on its way to the processes that have it: its code, where its modules are found, and which version of it this is."""

import os
import sys

import attrs

from executors.ray_gpu import packing
from executors.ray_gpu.residency.declaration import Model
from executors.ray_gpu.residency.words import pack, unpack


@attrs.frozen
class Packed:
    """A model as it is sent and kept.

    Attributes:
        model: The model, as bytes.
        sys_path: Where the deployer's modules are found: Ray takes along the folder of the script, and no other.
        version: The same for the same code and options, whatever the user_config, also from another process.
        load_timeout_s: Of the model.
    """

    model: bytes
    sys_path: tuple[str, ...]
    version: str
    load_timeout_s: float


def pack_model(model: Model) -> bytes:
    """As it is sent."""
    blob = pack(model)
    # A user_config is told to the replicas that there are.
    version = packing.version_of(pack(attrs.evolve(model, user_config=None)) + packing.source_of(model.code), {})
    return pack(Packed(blob, tuple(os.path.abspath(path) for path in sys.path), version, model.load_timeout_s))


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


def version_of(packed: bytes) -> str:
    """The same for two packed models that have the same code and options."""
    found: Packed = unpack(packed)
    return found.version
