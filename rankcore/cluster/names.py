"""Names: a deployment is `application/deployment`, and its replicas are `application/deployment#epoch.serial`."""

from typing import TypeAlias

from rankcore import checks
from rankcore.errors import InvalidEventError, InvalidSpecError, UnknownDeploymentError
from rankcore.values import ReplicaId

DeploymentId: TypeAlias = str
"""`application/deployment`; also the name of the deployment's `DeploymentSpec`."""

SEPARATORS = "/#@"


def deployment_id(application: str, deployment: str) -> DeploymentId:
    """The id of a deployment of an application.

    Raises:
        InvalidSpecError: A name is empty, too long, or has one of `/ # @` in it.
    """
    check_name("ApplicationSpec.name", application)
    check_name("EntrySpec.ranks.name", deployment)
    return f"{application}/{deployment}"


def check_name(field: str, name: object) -> None:
    """Raise `InvalidSpecError` unless this can be the name of an application, or of a deployment in one."""
    checks.identifier(InvalidSpecError, field, name)
    assert isinstance(name, str), "an identifier is a string"
    if any(each in name for each in SEPARATORS):
        raise InvalidSpecError(field, name, "free of '/', '#' and '@', which separate the parts of ids")


def application_of(deployment: DeploymentId) -> str:
    """The application that a deployment is of."""
    return deployment.partition("/")[0]


def owner_of(field: str, replica_id: ReplicaId) -> DeploymentId:
    """The deployment that a replica is of.

    Raises:
        UnknownDeploymentError: The id says none.
    """
    owner, separator, _ = replica_id.rpartition("#")
    if not separator:
        raise UnknownDeploymentError(field, replica_id, "an id such as 'application/deployment#epoch.serial'")
    return owner


def check_id(field: str, deployment: object) -> None:
    """Raise `InvalidEventError` unless this can be the id of a deployment."""
    checks.identifier(InvalidEventError, field, deployment)
