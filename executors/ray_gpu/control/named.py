"""Whom names mean: what every part of the controller goes by."""

from executors.deployment_ids import deployment_id, meant_by, split
from executors.ray_gpu.cluster import ClusterOnRay
from executors.ray_gpu.deployment_info import info_of
from executors.ray_gpu.errors import InvalidDeploymentError, UnknownNameError, not_one
from executors.ray_gpu.overview import DeploymentInfo, WorkerStatus
from executors.ray_gpu.ray_deployment import RayDeployment
from executors.ray_gpu.watches import Watches
from executors.ray_gpu.world import NodeInfo, World
from rankcore.cluster.names import application_of

LONG_POLL_S = 30.0
"""Whoever waits for something is told after this long that it has not happened, and may ask again. Callers die, and Ray tells
nobody: their questions would stay for ever, and an actor answers so many at a time."""


class NamesKnown:
    """Finds what is meant by a name.

    Attributes:
        _world, _cluster, _watches: Of the controller.
    """

    _world: World
    _cluster: ClusterOnRay
    _watches: Watches

    async def require(self, name: str, application: str | None = None) -> str:
        """The full name of a deployment, perhaps of one that is being deleted.

        Args:
            name: Full, or bare where no other application has a deployment of that name.
            application: Whose is meant where it has one of that bare name.

        Raises:
            UnknownNameError: There is none, or there are several; says which.
        """
        preferred = deployment_id(application, name) if application is not None else name
        there, left_alone = self._cluster.deployments, self._cluster.left_alone
        found = [preferred] if preferred in there else meant_by(name, there)
        if len(found) == 1:
            return found[0]
        of_application = (each for each in left_alone if split(each)[0] == name)
        for left in () if found else (preferred, *meant_by(name, left_alone), *of_application):
            if (why := self._why_left_alone(left)) is not None:
                raise UnknownNameError(f"{left} is left alone: {why}; shutdown() removes it, with all else")
        raise UnknownNameError(not_one("deployment", name, found, there))

    async def find_all(self, name: str) -> tuple[str, ...]:
        """The full names of an application's deployments, else of the one deployment that has the name.

        Raises:
            UnknownNameError: There is neither, or there are several deployments of the name; says which.
        """
        of_application = tuple(sorted(each for each in self._cluster.deployments if application_of(each) == name))
        return of_application or (await self.require(name),)

    def _host(self, deployment: str) -> RayDeployment:
        """A deployment that is to stay."""
        found = self._cluster.deployments[deployment]
        if found.entry.deleting or found.is_gone:
            raise InvalidDeploymentError(f"{deployment} is being deleted")
        return found

    def _why_left_alone(self, name: str) -> str | None:
        return self._cluster.why_left_alone(name)

    def _deleted(self, found: RayDeployment) -> bool:
        """Whether nothing is left of a deployment."""
        return self._cluster.is_gone(found)

    def _of_handle(self, name: str) -> RayDeployment | None:
        """By the full name that handles have, or by the bare one that those have which are older."""
        there = self._cluster.deployments
        if (found := there.get(name) or self._with_id_on_ray(name)) is not None:
            return found
        meant = meant_by(name, there)
        return there[meant[0]] if len(meant) == 1 else None

    def _with_id_on_ray(self, name: str) -> RayDeployment | None:
        return next((found for found in self._cluster.deployments.values() if found.id_on_ray == name), None)

    def _info(self, found: RayDeployment, nodes: dict[str, NodeInfo], workers: tuple[WorkerStatus, ...] = ()) -> DeploymentInfo:
        return info_of(found, self._cluster, self._world, nodes, workers, self._watches.waiting(found.deployment))
