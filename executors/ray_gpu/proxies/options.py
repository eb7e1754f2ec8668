"""What proxies are to serve."""

from collections.abc import Mapping
from typing import Any

import attrs

from executors.ray_gpu.grpc_proxy.options import GrpcOptions
from executors.ray_gpu.http.options import HttpOptions


@attrs.frozen(kw_only=True)
class ProxyOptions:
    """Both protocols: proxies are where `http.location` says.

    Attributes:
        http: Also says on which nodes proxies are.
        grpc: None: no gRPC.
    """

    http: HttpOptions = attrs.field(factory=HttpOptions)
    grpc: GrpcOptions | None = None

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "ProxyOptions":
        """What `attrs.asdict` made of them."""
        grpc = data["grpc"]
        return cls(http=HttpOptions(**data["http"]), grpc=GrpcOptions(**grpc) if grpc is not None else None)
