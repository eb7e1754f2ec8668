"""What things are called in a cluster: the controller, the replicas' actors, and the keys in its key-value store."""

DEFAULT_NAMESPACE = "rankcore"
CONTROLLER = "rankcore-controller"
REST = "rankcore-rest"
WORKER = "rankcore-worker:"
"""No deployment's name begins so: it would have to hold a '#' too, for a replica's name to be taken for a worker's."""
KV_NAMESPACE = b"rankcore"
PROTOCOL = 3
"""Version of what drivers, controller and replicas say to each other, as tests/golden/schema.json has it.

Drivers and the controller need the same one. Replicas of an older one are taken over all the same, since what a controller
says to any replica never changes (query, announce, drain, watch, and the report): they are an outdated generation, which an
update replaces within `max_unavailable` (`generation`).
"""


def generation(version: str, protocol: int) -> str:
    """The version that the core is told of a replica: another protocol is another version, of which none is wanted."""
    return version if protocol == PROTOCOL else f"{version}@protocol-{protocol}"


def actor_name(deployment: str, replica_id: str) -> str:
    """The actor of a replica: the same for every controller, so that the next one finds it. Ray takes any text for it."""
    return f"{deployment}:{replica_id}"


def replica_of(name: str) -> tuple[str, str] | None:
    """The ids of the deployment and of the replica, from the name of its actor; None: the actor is no replica's."""
    # "<deployment>:<deployment>#<epoch>.<serial>"; the deployment's id may have colons, but no '#'.
    length = len(name.partition("#")[0]) // 2
    deployment = name[:length]
    if not deployment or not name.startswith(f"{deployment}:{deployment}#"):
        return None
    return deployment, name[length + 1 :]


def worker_name(worker_id: str) -> str:
    """The actor of a worker, which is several replicas one after the other: none of them is found by its name."""
    return f"{WORKER}{worker_id}"


def worker_of(name: str) -> str | None:
    """The id of the worker, from the name of its actor; None: the actor is no worker's."""
    return name.removeprefix(WORKER) if name.startswith(WORKER) else None


def proxy_name(node_id: str) -> str:
    """The actor of a node's proxy: the same for every controller."""
    return f"rankcore-proxy-{node_id}"


def proxies_key(namespace: str) -> bytes:
    """What proxies are to serve."""
    return f"{namespace}/proxies".encode()


def deployed_key(namespace: str) -> bytes:
    """When applications were deployed last."""
    return f"{namespace}/deployed".encode()


def memory_key(namespace: str) -> bytes:
    """Which memory of nodes weights may use."""
    return f"{namespace}/memory".encode()


def tracing_key(namespace: str) -> bytes:
    """Which spans there are to be."""
    return f"{namespace}/tracing".encode()


def maintenance_key(namespace: str, key: str) -> bytes:
    """What a user has asked of a node or a replica, by its key in `executors.maintenance`, or the beginning of such keys."""
    return f"{namespace}/{key}".encode()


def planner_failure_key(namespace: str, at: float) -> bytes:
    """A controller has ended because the planner of weights has failed."""
    return planner_failures_prefix(namespace) + f"{at:020.6f}".encode()


def planner_failures_prefix(namespace: str) -> bytes:
    """Of all such ends that count yet."""
    return f"{namespace}/planner-failure/".encode()


def epoch_key(namespace: str, epoch: int) -> bytes:
    """Claimed by the controller of this epoch; the newest one claimed is the fence."""
    return f"{namespace}/epoch/{epoch:010d}".encode()


def epoch_prefix(namespace: str) -> bytes:
    """Of all claimed epochs."""
    return f"{namespace}/epoch/".encode()


def record_key(namespace: str, id_on_ray: str, number: int) -> bytes:
    """One record of a deployment; of its keys the last in order is that of the newest."""
    return record_prefix(namespace, id_on_ray) + f"{number:016x}".encode()


def record_prefix(namespace: str, id_on_ray: str) -> bytes:
    """Of the records of one deployment, and of others where one of them has a '#' in an id of before that was refused."""
    return records_prefix(namespace) + f"{id_on_ray}#".encode()


def records_prefix(namespace: str) -> bytes:
    """Of the records of all deployments."""
    return f"{namespace}/record/".encode()


def older_record_key(namespace: str, id_on_ray: str) -> bytes:
    """The record of a deployment before records had numbers."""
    return older_records_prefix(namespace) + id_on_ray.encode()


def older_records_prefix(namespace: str) -> bytes:
    """Of the records of all deployments then."""
    return f"{namespace}/deployment/".encode()


def code_key(namespace: str, deployment: str, version: str) -> bytes:
    """The user's code of one version. A '/' in a deployment's name would make two keys equal, so its length is told too."""
    return f"{namespace}/code/{len(deployment)}/{deployment}/{version}".encode()


def code_prefix(namespace: str, deployment: str) -> bytes:
    """Of all versions of a deployment's code."""
    return f"{namespace}/code/{len(deployment)}/{deployment}/".encode()


def root_key(namespace: str, deployment: str, version: str) -> bytes:
    """Which bytes the weights of one version are; lengths as for `code_key`."""
    return f"{namespace}/root/{len(deployment)}/{deployment}/{version}".encode()


def origin_key(namespace: str) -> bytes:
    """When the first controller's clock stood at 0, in seconds since 1970."""
    return f"{namespace}/origin".encode()


def meeting_key(namespace: str, deployment: str) -> bytes:
    """Where the replicas of a deployment meet to form a process group."""
    return f"{namespace}/meeting/{deployment}".encode()
