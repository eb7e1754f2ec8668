"""How deployments and applications stand in the words and numbers of Ray Serve: for its CLI, and for metrics of its names."""

from collections.abc import Set

from rankcore import DeploymentStatus as Ours

DEPLOYMENTS = {
    Ours.UPDATING: ("UPDATING", "CONFIG_UPDATE_STARTED"),
    Ours.UPSCALING: ("UPSCALING", "CONFIG_UPDATE_STARTED"),
    Ours.DOWNSCALING: ("DOWNSCALING", "CONFIG_UPDATE_STARTED"),
    Ours.RECOVERING: ("UPDATING", "UNSPECIFIED"),
    Ours.HEALTHY: ("HEALTHY", "CONFIG_UPDATE_COMPLETED"),
    Ours.UNHEALTHY: ("UNHEALTHY", "HEALTH_CHECK_FAILED"),
    Ours.DEPLOY_FAILED: ("DEPLOY_FAILED", "REPLICA_STARTUP_FAILED"),
    Ours.DELETING: ("UPDATING", "DELETING"),
    Ours.DELETED: ("UPDATING", "DELETING"),
}
"""Serve's status of a deployment, and its word for what has led there."""
APPLICATIONS = (
    ("DELETING", frozenset({Ours.DELETING, Ours.DELETED})),
    ("DEPLOY_FAILED", frozenset({Ours.DEPLOY_FAILED})),
    ("UNHEALTHY", frozenset({Ours.UNHEALTHY})),
    ("DEPLOYING", frozenset({Ours.UPDATING, Ours.RECOVERING})),
)
"""An application's status is the first of these that one of its deployments has, else RUNNING; a healthy one that is scaled is
RUNNING, as in Serve. It is DELETING once all of its deployments are.
"""
DEPLOYMENT_NUMBERS = {
    name: number
    for number, name in enumerate(("DEPLOY_FAILED", "UNHEALTHY", "UPDATING", "UPSCALING", "DOWNSCALING", "HEALTHY"), start=1)
}
APPLICATION_NUMBERS = {
    name: number
    for number, name in enumerate(("DEPLOY_FAILED", "UNHEALTHY", "NOT_STARTED", "DELETING", "DEPLOYING", "RUNNING"), start=1)
}
PROXY_NUMBERS = {
    name: number for number, name in enumerate(("STARTING", "HEALTHY", "UNHEALTHY", "DRAINING", "DRAINED"), start=1)
}
"""As metrics have them."""


def application_status(statuses: Set[Ours]) -> str:
    """Of an application, by those of its deployments."""
    for name, which in APPLICATIONS:
        if statuses <= which if name == "DELETING" else statuses & which:
            return name
    return "RUNNING"
