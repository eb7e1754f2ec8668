"""What `status()` shows: plain values, the same for a user in Python, for the command line and for tests."""

import attrs

from executors.ray_gpu.proxies.info import ProxyInfo
from rankcore import DeploymentStatus, ReplicaRank, ReplicaState

SETTLED = (DeploymentStatus.HEALTHY, DeploymentStatus.DEPLOY_FAILED)


@attrs.frozen(kw_only=True)
class ReplicaStatus:
    """One replica.

    Attributes:
        rank: In the book; None: it has none (yet).
        node_id: Where it is; None: nowhere yet.
        pid: Of its process; None: not up yet.
        message: What it waits for; "": nothing.
    """

    replica_id: str
    state: ReplicaState
    rank: ReplicaRank | None
    node_id: str | None
    pid: int | None
    version: str
    message: str = ""


@attrs.frozen(kw_only=True)
class DeploymentInfo:
    """One deployment.

    Attributes:
        message: What is wrong, with the traceback of the last failure; "": nothing.
        world_size: The target.
        replicas: In the order of their ranks, those without one last.
        spares: Processes that stand by and are up.
        class_name: Module and qualified name of what is deployed.
    """

    name: str
    status: DeploymentStatus
    message: str
    world_size: int
    version: str
    class_name: str
    app_name: str
    replicas: tuple[ReplicaStatus, ...]
    spares: int = 0

    @property
    def is_settled(self) -> bool:
        """Whether it is healthy or was given up: there is nothing to wait for."""
        return self.status in SETTLED

    @property
    def ranks(self) -> dict[int, str]:
        """Who has which global rank."""
        return {each.rank.rank: each.replica_id for each in self.replicas if each.rank is not None}


@attrs.frozen(kw_only=True)
class Status:
    """Everything in one namespace.

    Attributes:
        epoch: Of the controller; grows with each of its restarts.
        controller_pid: Its process.
        journal: Where the controller writes what happens, on its node; None: nowhere.
        deployments: By name.
        proxies: That serve HTTP, one for each node that should have one.
    """

    namespace: str
    epoch: int
    controller_pid: int
    journal: str | None
    deployments: dict[str, DeploymentInfo]
    proxies: tuple[ProxyInfo, ...] = ()
