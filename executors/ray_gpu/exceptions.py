"""What calls raise, under the names of `ray.serve.exceptions`; `executors.ray_gpu.errors` has all that there is."""

from executors.ray_gpu.errors import CallCancelledError as RequestCancelledError
from executors.ray_gpu.errors import OverloadedError as BackPressureError
from executors.ray_gpu.errors import RayExecutorError as RayServeException
from executors.ray_gpu.errors import ReplicaGoneError as ReplicaUnavailableError
from executors.ray_gpu.errors import UnavailableError as DeploymentUnavailableError

__all__ = [
    "BackPressureError",
    "DeploymentUnavailableError",
    "RayServeException",
    "ReplicaUnavailableError",
    "RequestCancelledError",
]
