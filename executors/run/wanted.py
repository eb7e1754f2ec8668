"""What an application file wants, as far as processes of one machine can give it: one deployment, without handles."""

import hashlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from executors.deployment_ids import DEFAULT_APPLICATION
from executors.ray_gpu.declaration import Application, option_of
from executors.ray_gpu.errors import InvalidDeploymentError
from rankcore import DeploymentSpec
from rankcore.errors import InvalidSpecError


def spec_of(application: Application, app_name: str = DEFAULT_APPLICATION) -> DeploymentSpec:
    """The spec of an application. `ray_actor_options`, `spares` and `logging_config` mean nothing here.

    Raises:
        InvalidDeploymentError: An option is not what it may be, or needs Ray.
    """
    deployment = application.deployment
    for value in (*application.args, *application.kwargs.values()):
        if any(isinstance(each, Application) for each in _flat(value)):
            raise InvalidDeploymentError(
                f"{deployment.name} is given the handle of another deployment, which needs --executor ray"
            )
    if deployment.settings.get("_placement_info") is not None:
        raise InvalidDeploymentError(
            f"_placement_info of {deployment.name} needs --executor ray: there is no placement group here"
        )
    if deployment.settings.get("deployment_actors"):
        raise InvalidDeploymentError(f"deployment_actors of {deployment.name} need --executor ray: there are no actors here")
    name = deployment.id_in(app_name)
    fields = {"target_replicas": 1, "version": version_of(deployment.target), **deployment.spec_fields, "name": name}
    try:
        return DeploymentSpec(**fields)
    except InvalidSpecError as error:
        raise option_of(error) from None


def version_now(application: Application) -> Callable[[], str] | None:
    """Says which version the file of an application is by now; None: its user calls versions otherwise."""
    deployment = application.deployment
    return None if "version" in deployment.spec_fields else lambda: version_of(deployment.target)


def version_of(target: Any) -> str:
    """The same for the same file: an edited one is a new version."""
    source = getattr(sys.modules.get(target.__module__), "__file__", None)
    return hashlib.sha256(Path(source).read_bytes()).hexdigest()[:12] if source is not None else "1"


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from _flat(each)
    else:
        yield value
