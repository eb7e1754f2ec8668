"""What `status()` shows: plain values, the same for a user in Python, for the command line and for tests."""

from collections import Counter
from enum import StrEnum
from typing import Any

import attrs

from executors.deployment_ids import meant_by, own_name, split
from executors.ray_gpu.errors import UnknownNameError, not_one
from executors.ray_gpu.messages import CallStatus, across_releases
from executors.ray_gpu.proxies.info import ProxyInfo
from executors.ray_gpu.serve_statuses import DEPLOYMENTS, application_status
from rankcore import DeploymentStatus, ReplicaRank, ReplicaState

SETTLED = (DeploymentStatus.HEALTHY, DeploymentStatus.DEPLOY_FAILED)


class ProxyStatus(StrEnum):
    """How a proxy is, in the words of Ray Serve."""

    STARTING = "STARTING"
    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"


class ApplicationStatus(StrEnum):
    """How an application is, in the words of Ray Serve."""

    NOT_STARTED = "NOT_STARTED"
    DEPLOYING = "DEPLOYING"
    DEPLOY_FAILED = "DEPLOY_FAILED"
    RUNNING = "RUNNING"
    UNHEALTHY = "UNHEALTHY"
    DELETING = "DELETING"


SERVES_STATES = {
    ReplicaState.REQUESTED: "STARTING",
    ReplicaState.PLACED: "STARTING",
    ReplicaState.PREPARING: "STARTING",
    ReplicaState.PREPARED: "STARTING",
    ReplicaState.RECONFIGURING: "UPDATING",
    ReplicaState.DRAINING: "STOPPING",
    ReplicaState.STOPPED: "STOPPING",
    ReplicaState.FAILED: "STOPPING",
}
"""States of a replica that Ray Serve calls otherwise."""


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
class WorkerStatus:
    """Weights of a deployment that may be COLD: those that a process has, or is to have.

    Attributes:
        level: HOT: on GPUs; WARM: in the memory of a node; COLD: on disk.
        phase: What is going on with them (`rankcore.residency.levels.Phase`).
        node_id: Where they are, or have a place; None: nowhere.
        gpus, gpu_bytes: What they have there on GPUs.
        cpu_bytes: What a copy has in the memory of the node.
        percent: How much of a load has come; None: nothing is loaded.
        replica_id: Of the replica that the process is; None: it is none.
        version: Of the code that they are of.
        because: Why they are where they are.
    """

    worker_id: str
    level: str
    phase: str
    node_id: str | None
    gpus: tuple[int, ...]
    gpu_bytes: tuple[int, ...]
    cpu_bytes: int
    percent: int | None
    replica_id: str | None
    version: str
    because: str


@attrs.frozen(kw_only=True)
class NodeMemoryStatus:
    """A node's memory for weights that may be COLD: of each GPU its capacity and what is free, and the same of copies' room."""

    node_id: str
    gpus: tuple[tuple[int, int], ...]
    cpu_bytes: int
    cpu_free_bytes: int


@attrs.frozen(kw_only=True)
class ReplicaOnNode:
    """A replica that is on a node of which something was said.

    Attributes:
        rank: In the book; None: it has none (yet).
        what: What becomes of it, in words: "stays", "moves, once ...".
    """

    replica_id: str
    rank: int | None
    what: str


@attrs.frozen(kw_only=True)
class CordonedNode:
    """How it stands with a node that was cordoned, drained or uncordoned.

    Attributes:
        state: "open", "cordoned" or "draining".
        left_s: Nobody is to be there any more after so many seconds; None: there is time.
        reason: Of the drain.
        replicas: Who is there.
        is_head: Whether Ray's head is there, which stays.
    """

    node_id: str
    address: str
    state: str
    left_s: float | None = None
    reason: str = ""
    replicas: tuple[ReplicaOnNode, ...] = ()
    is_head: bool = False


@attrs.frozen(kw_only=True)
class DeploymentInfo:
    """One deployment.

    Attributes:
        name: `application/deployment`, with which the replicas' ids begin, but for those that are older than such names.
        message: What is wrong, with the traceback of the last failure; "": nothing.
        world_size: The target.
        replicas: In the order of their ranks, those without one last.
        spares: Processes that stand by and are up.
        class_name: Module and qualified name of what is deployed.
        has_residency: Whether its weights may be COLD.
        workers: Of these, where weights are.
        waiting: How many calls wait for a replica, as the processes that call have reported.
        standing: What such calls are told; None: nothing.
        rollout: How far an update has come, who is available, what is waited for: "rolling: 2 of 10 updated, 9 of 10 available,
            waits: no room, 9 of 10: rank 9 has no place"; "": all is well.
        status_for_s: For how long the status has been so, as far as the controller that runs has seen it.
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
    has_residency: bool = False
    workers: tuple[WorkerStatus, ...] = ()
    waiting: int = 0
    standing: CallStatus | None = None
    rollout: str = ""
    status_for_s: float = attrs.field(default=0.0, eq=False)  # two looks at the same are equal

    @property
    def own_name(self) -> str:
        """Of the deployment in its application."""
        return own_name(self.app_name, self.name)

    @property
    def replica_states(self) -> dict[str, int]:
        """How many replicas are in which state, by the names of Ray Serve."""
        return dict(Counter(SERVES_STATES.get(each.state, each.state.value) for each in self.replicas))

    @property
    def status_trigger(self) -> str:
        """What has led to its status, in the words of Ray Serve."""
        return DEPLOYMENTS[self.status][1]

    @property
    def is_settled(self) -> bool:
        """Whether it is healthy or was given up: there is nothing to wait for."""
        return self.status in SETTLED

    @property
    def ranks(self) -> dict[int, str]:
        """Who has which global rank."""
        return {each.rank.rank: each.replica_id for each in self.replicas if each.rank is not None}


@attrs.frozen(kw_only=True)
class ApplicationInfo:
    """One application.

    Attributes:
        deployments: By their names in it.
        last_deployed_time_s: When, in seconds since 1970; 0.0: that is not known.
    """

    name: str
    deployments: dict[str, DeploymentInfo]
    last_deployed_time_s: float = 0.0

    @property
    def status(self) -> ApplicationStatus:
        """How it is."""
        return ApplicationStatus(application_status({each.status for each in self.deployments.values()}))

    @property
    def message(self) -> str:
        """What is wrong with which deployment; "": nothing."""
        return "; ".join(f"{name}: {each.message}" for name, each in sorted(self.deployments.items()) if each.message)


class DeploymentInfos(dict[str, DeploymentInfo]):
    """Deployments by `application/deployment`; the bare name will do where it is that of one only."""

    def __missing__(self, name: str) -> DeploymentInfo:
        found = meant_by(name, self)
        if len(found) != 1:
            raise KeyError(not_one("deployment", name, found, self))
        return self[found[0]]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and len(meant_by(name, self)) == 1

    def get(self, name: str, default: Any = None) -> Any:
        """The one that is meant; `default` where none is, or several may be."""
        found = meant_by(name, self)
        return self[found[0]] if len(found) == 1 else default


@across_releases
@attrs.frozen(kw_only=True)
class Status:
    """Everything in one namespace.

    Attributes:
        epoch: Of the controller; grows with each of its restarts. 0: there is none, and nothing runs.
        controller_pid: Its process.
        journal: Where the controller writes what happens, on its node; None: nowhere.
        journal_problem: Why nothing is written there now, and whether that may change; None: it is, or there is none.
        deployments: By `application/deployment`, or the bare name where it is that of one only.
        proxy_infos: That serve HTTP, one for each node that should have one.
        left_alone: Why, by ids: deployments that the controller could not take over, with their replicas, which go on.
        memory: Of the nodes that weights which may be COLD can be on.
        cordons: Nodes that are cordoned or drained.
        routes: Which application requests reach over HTTP, by route prefix.
        deployed: When applications were deployed last, in seconds since 1970.
        target_capacity: How many percent of their replicas all deployments are to have (`capacity`); None: nobody has said so.
        revision: Of what users want (`executors.revisions`): `rankcore deploy --expect` and REST's If-Match take it; "": it is
            not kept here.
    """

    namespace: str
    epoch: int
    controller_pid: int
    journal: str | None
    deployments: dict[str, DeploymentInfo] = attrs.field(converter=DeploymentInfos)
    proxy_infos: tuple[ProxyInfo, ...] = ()
    left_alone: dict[str, str] = attrs.field(factory=dict)
    memory: tuple[NodeMemoryStatus, ...] = ()
    cordons: tuple[CordonedNode, ...] = ()
    revision: str = ""
    routes: dict[str, str] = attrs.field(factory=dict)
    deployed: dict[str, float] = attrs.field(factory=dict)
    target_capacity: float | None = None
    journal_problem: str | None = None

    @classmethod
    def of_nothing(cls, namespace: str) -> "Status":
        """Where no controller runs."""
        return cls(namespace=namespace, epoch=0, controller_pid=0, journal=None, deployments={})

    def only(self, name: str) -> "Status":
        """The same with the deployments of an application, else with the one deployment that has the name.

        Raises:
            UnknownNameError: There is neither, or there are several deployments of that name; says which.
        """
        found = [each for each, info in self.deployments.items() if info.app_name == name] or meant_by(name, self.deployments)
        alone = [each for each in self.left_alone if split(each)[0] == name] or meant_by(name, self.left_alone)
        if len({self.deployments[each].app_name for each in found} | {split(each)[0] for each in alone}) != 1:
            there_are = (*self.deployments, *self.left_alone)
            raise UnknownNameError(not_one("application or deployment", name, (*found, *alone), there_are))
        return attrs.evolve(
            self,
            deployments={each: self.deployments[each] for each in found},
            left_alone={each: self.left_alone[each] for each in alone},
        )

    @property
    def applications(self) -> dict[str, ApplicationInfo]:
        """By name, as in Ray Serve."""
        found: dict[str, dict[str, DeploymentInfo]] = {}
        for info in self.deployments.values():
            found.setdefault(info.app_name, {})[info.own_name] = info
        return {
            name: ApplicationInfo(name=name, deployments=deployments, last_deployed_time_s=self.deployed.get(name, 0.0))
            for name, deployments in sorted(found.items())
        }

    @property
    def proxies(self) -> dict[str, ProxyStatus]:
        """How proxies are, by the nodes that they are on, as in Ray Serve."""
        return {each.node_id: ProxyStatus(each.status) for each in self.proxy_infos}
