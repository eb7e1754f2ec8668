"""`--executor ray`, as `executors.plugin` finds it: its controller is an actor, which functions of this package ask."""

from importlib.util import find_spec

import msgspec

from executors.plugin import API, ExecutorPlugin


class RayOptions(msgspec.Struct, frozen=True):
    """It has none: what there is to say of a Ray cluster has options of its own."""


def check(options: RayOptions) -> str | None:
    """Why there can be no replicas on Ray; None: there can be."""
    return None if find_spec("ray") is not None else "ray is not installed: pip install 'rankcore[ray]'"


PLUGIN = ExecutorPlugin(api=API, options=RayOptions, check=check, functions="executors.ray_gpu")
