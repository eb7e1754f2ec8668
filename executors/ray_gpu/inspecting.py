"""What a user asks of that which runs: its status, its configuration, its notes, and handles to call it with."""

from collections.abc import Iterator
from typing import Any

from executors.deployment_ids import deployment_id
from executors.notes_followed import followed
from executors.ray_gpu import connection
from executors.ray_gpu.capacity import ShareInForce
from executors.ray_gpu.connection import ask
from executors.ray_gpu.context import get_replica_context
from executors.ray_gpu.errors import (
    NotInReplicaError,
)
from executors.ray_gpu.overview import Status
from executors.ray_gpu.requests.handle import DeploymentHandle
from rankcore.residency.defragmentation import Proposal


def status(*, namespace: str | None = None, timeout_s: float = connection.ANSWER_S) -> Status:
    """What runs, and how it is; of epoch 0, and empty, where no controller runs.

    Args:
        timeout_s: So long the controller may be silent.

    Raises:
        NotRunningError: Ray does not run.
        NoAnswerError: The controller has not answered in time, nor has another taken its place.
    """
    connection.connect(start=False)
    namespace = namespace or connection.default_namespace()
    return running_status(namespace, timeout_s) if connection.is_there(namespace) else Status.of_nothing(namespace)


def running_status(namespace: str | None = None, timeout_s: float = connection.ANSWER_S) -> Status:
    """The same of what runs.

    Raises:
        NotRunningError: Neither Ray nor a controller runs.
        NoAnswerError: As `status`.
    """
    found: Status = ask(connection.running(namespace, timeout_s), "status", timeout_s=timeout_s)
    return found


def controller_health(*, namespace: str | None = None) -> dict[str, Any]:
    """How the controller keeps up, in the fields of Ray Serve's `ControllerHealthMetrics`; what is not measured is None.

    Raises:
        NotRunningError, NoAnswerError: As `running_status`.
    """
    found: dict[str, Any] = ask(connection.running(namespace), "health")
    return found


def config_in_force(*, namespace: str | None = None) -> dict[str, Any]:
    """What is in force, as a file of applications says it: options that are as they are by default are left out.

    Raises:
        NotRunningError, NoAnswerError: As `running_status`.
    """
    found: dict[str, Any] = ask(connection.running(namespace), "config")
    return found


def share_in_force(namespace: str) -> ShareInForce:
    """Of their replicas that all deployments are to have (`capacity`).

    Raises:
        NotRunningError, NoAnswerError: As `status`.
    """
    found: ShareInForce = ask(connection.running(namespace), "share")
    return found


def notes(*, follow: bool = False, namespace: str | None = None) -> Iterator[dict[str, Any]]:
    """What was decided lately, and why: notes as JSON-like data, the oldest first, each with its `time` in seconds since 1970.

    Args:
        follow: Whether to wait for more, for ever.

    Raises:
        NotRunningError, NoAnswerError: As `running_status`.
    """
    controller = connection.running(namespace)
    yield from followed(lambda: {"": lambda after: ask(controller, "notes", after)}, follow)


def propose_defragmentation(name: str | None = None, *, namespace: str | None = None) -> Proposal:
    """Moves that would let weights which may be COLD fit without displacing anybody, with what they cost. Nothing is moved.

    Args:
        name: Of the deployment; None: the largest that waits.

    Raises:
        UnknownNameError: There is no such deployment.
        InvalidDeploymentError: It has no residency.
    """
    found: Proposal = ask(connection.running(namespace), "propose_defragmentation", name)
    return found


def get_app_handle(name: str, *, namespace: str | None = None) -> DeploymentHandle:
    """The handle that `run` returned for an application; works in drivers and in replicas.

    Raises:
        UnknownNameError: There is no such application.
    """
    found = ask(connection.running(namespace), "ingress_of", name)
    return DeploymentHandle(found, namespace=namespace or connection.default_namespace())


def get_deployment_handle(
    deployment_name: str, app_name: str | None = None, *, namespace: str | None = None
) -> DeploymentHandle:
    """A handle to call a deployment with; works in drivers and in replicas.

    Args:
        app_name: Of its application. None: the one that this replica is of, where it has such a deployment, else any.

    Raises:
        UnknownNameError: There is no such deployment, or several applications have one.
    """
    asked = deployment_name if app_name is None else deployment_id(app_name, deployment_name)
    found = ask(connection.running(namespace), "require", asked, _own_application() if app_name is None else None)
    return DeploymentHandle(found, namespace=namespace or connection.default_namespace())


def _own_application() -> str | None:
    try:
        return get_replica_context().app_name
    except NotInReplicaError:
        return None
