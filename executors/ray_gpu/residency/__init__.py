"""Models whose weights are on GPUs, in memory or on disk, on a Ray cluster. Needs rankcore[ray,torch].

    from executors.ray_gpu import residency

    residency.deploy(residency.Model(name="tiny", code=Tiny, weights="tiny.safetensors"))
    print(residency.ModelHandle("tiny").remote("hello").result())

`client` is what callers use. `controller` hosts the machine of `rankcore.dispatching`, which decides everything, in `machine`;
`moves`, `requests` and `nodes` carry out what it commands and tell it what happens, and `restart` goes on after a crash.
`host` is the process of a replica, `hosts` all of them, `places` the memory of a node, `waiting` the requests, `store` what
outlives the controller, `journal` what it was told, and `memory` what it remembers for `where`.
"""

from executors.ray_gpu.errors import explained

try:
    from executors.ray_gpu.residency.client import (
        ModelHandle,
        ModelResponse,
        deploy,
        evict,
        scale,
        shutdown,
        standing,
        start,
        where,
    )
    from executors.ray_gpu.residency.declaration import Model
    from executors.ray_gpu.residency.options import DeviceKind, FleetOptions
    from executors.ray_gpu.residency.words import FleetStanding, ModelStanding, NodeStanding, ReplicaStanding
except ModuleNotFoundError as error:
    raise explained(error) from None

__all__ = [
    "DeviceKind",
    "FleetOptions",
    "FleetStanding",
    "Model",
    "ModelHandle",
    "ModelResponse",
    "ModelStanding",
    "NodeStanding",
    "ReplicaStanding",
    "deploy",
    "evict",
    "scale",
    "shutdown",
    "standing",
    "start",
    "where",
]
