"""A model on its way to the processes that have it: its code, where its modules are found, and which version of it this is."""

import attrs

from executors.ray_gpu import packing
from executors.ray_gpu.environment import RuntimeEnv, find_modules, module_path, of_job
from executors.ray_gpu.residency.declaration import Model
from executors.ray_gpu.residency.words import pack, unpack
from executors.torch_weights.contents import declared_in


@attrs.frozen
class Packed:
    """A model as it is sent and kept.

    Attributes:
        model: The model, as bytes.
        sys_path: Where the deployer's modules are found: before the interpreter's own, and behind them.
        version: The same for the same code, options and weights, whatever the user_config, also from another process.
        load_timeout_s: Of the model.
        runtime_env: That its processes have.
        class_name: Module and qualified name of its code.
        expected: The contents that its weights must have where they are loaded; None: they were not declared.
    """

    model: bytes
    sys_path: tuple[tuple[str, ...], tuple[str, ...]]
    version: str
    load_timeout_s: float
    runtime_env: RuntimeEnv
    class_name: str
    expected: str | None = None


def pack_model(model: Model, weights: str = "") -> bytes:
    """As it is sent.

    Args:
        model: What its user declares.
        weights: What is declared of its weights (`WeightsFiles.declared`), which are the deployer's; "": nothing.
    """
    blob = pack(model)
    runtime_env = of_job()
    # A user_config is told to the replicas that there are.
    code = pack(attrs.evolve(model, user_config=None)) + packing.source_of(model.code)
    version = packing.version_of(code, {"runtime_env": runtime_env} if runtime_env else {}) + weights
    class_name = f"{model.code.__module__}.{model.code.__qualname__}"
    return pack(Packed(blob, module_path(), version, model.load_timeout_s, runtime_env, class_name, declared_in(weights)))


def unpack_model(packed: bytes) -> Model:
    """What `pack_model` was given; its modules can be imported from now on. For processes of that model alone."""
    found: Packed = unpack(packed)
    find_modules(*found.sys_path)
    model: Model = unpack(found.model)
    return model


def opened(packed: bytes) -> Packed:
    """What there is to know of a packed model without its code."""
    found: Packed = unpack(packed)
    return found
