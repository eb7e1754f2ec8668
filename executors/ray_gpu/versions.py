"""Which versions of what run in a process: driver and controller have to agree."""

import platform

import ray

from executors.ray_gpu import names


def versions() -> dict[str, str]:
    """What two processes have to have in common: Python's minor version, since code is pickled; Ray; and our protocol."""
    return {
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "Ray": str(ray.__version__),
        "rankcore protocol": str(names.PROTOCOL),
    }
