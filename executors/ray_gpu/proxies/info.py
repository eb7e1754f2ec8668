"""What `status()` shows of a proxy."""

import attrs


@attrs.frozen
class ProxyInfo:
    """A proxy, as `status()` shows it.

    Attributes:
        host, port: Where it takes HTTP.
        grpc_port: Where it takes gRPC; None: nowhere.
        pid: Of its process; None: it is not up.
        problem: Why not; "": it is, or is on its way.
    """

    node_id: str
    host: str
    port: int
    grpc_port: int | None
    pid: int | None
    problem: str = ""

    @property
    def status(self) -> str:
        """How it is, in the words of Ray Serve."""
        return "HEALTHY" if self.pid is not None else "UNHEALTHY" if self.problem else "STARTING"
