"""What calls go through and return, under the module's name that they have in Ray Serve (`ray.serve.handle`)."""

from executors.ray_gpu.requests.handle import DeploymentHandle
from executors.ray_gpu.requests.response import DeploymentBroadcastResponse, DeploymentResponse, DeploymentResponseGenerator

__all__ = ["DeploymentBroadcastResponse", "DeploymentHandle", "DeploymentResponse", "DeploymentResponseGenerator"]
