"""Config objects under the names that they have in `ray.serve.config`. Wherever one is taken, a dict of its fields is too.

    from executors.ray_gpu.config import AutoscalingConfig, HTTPOptions

Those of Ray Serve itself are taken likewise.
"""

from enum import StrEnum
from typing import Any

import attrs

from executors.ray_gpu.deployment_actor_config import DeploymentActorConfig
from executors.ray_gpu.grpc_proxy.options import GrpcOptions
from executors.ray_gpu.http.options import HttpOptions
from executors.ray_gpu.proxies.options import chosen
from executors.ray_gpu.serve_options import BackpressureConfig, ControllerOptions, RequestRouterConfig
from rankcore.autoscaling import AutoscalingSpec

__all__ = [
    "AutoscalingConfig",
    "AutoscalingPolicy",
    "BackpressureConfig",
    "ControllerOptions",
    "DeploymentActorConfig",
    "HTTPOptions",
    "ProxyLocation",
    "RequestRouterConfig",
    "gRPCOptions",
]


class ProxyLocation(StrEnum):
    """Where proxies are."""

    Disabled = "Disabled"
    HeadOnly = "HeadOnly"
    EveryNode = "EveryNode"


def HTTPOptions(**fields: Any) -> HttpOptions:
    """`HttpOptions`, with Serve's names of fields too."""
    found = chosen(HttpOptions, fields)
    assert found is not None
    return found


def gRPCOptions(**fields: Any) -> GrpcOptions:
    """`GrpcOptions`, with Serve's names of fields too."""
    found = chosen(GrpcOptions, fields)
    assert found is not None
    return found


@attrs.frozen(kw_only=True)
class AutoscalingConfig(AutoscalingSpec):
    """What `autoscaling_config` takes.

    Attributes:
        policy: A function of a `rankcore.autoscaling.View`, its import path, or `{"policy_function": ...}`; None: the usual.
        smoothing_factor, upscale_smoothing_factor, downscale_smoothing_factor: As the two factors that replaced them.
    """

    policy: Any = None
    smoothing_factor: float | None = None
    upscale_smoothing_factor: float | None = None
    downscale_smoothing_factor: float | None = None


@attrs.frozen(kw_only=True)
class AutoscalingPolicy:
    """What decides how many replicas a load calls for."""

    policy_function: Any
