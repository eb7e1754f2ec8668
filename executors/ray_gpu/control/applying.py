"""What users want of applications: deployed, planned, and said as it is in force."""

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from executors.ray_gpu import traces
from executors.ray_gpu.capacity import ShareInForce, share_in_force
from executors.ray_gpu.control.named import NamesKnown
from executors.ray_gpu.environment import refer_to, uploaded
from executors.ray_gpu.errors import InvalidDeploymentError, NameInUseError
from executors.ray_gpu.proxies.keeper import ProxyKeeper
from executors.ray_gpu.ray_deployment import environment_of
from executors.revisions import check_revision, revision_of
from rankcore.cluster.events import ApplyRequested
from rankcore.errors import InvalidEventError, InvalidSpecError, RankcoreError

if TYPE_CHECKING:
    from executors.ray_gpu.packing import Package
    from rankcore.cluster.planning import ClusterPlan

LOG = logging.getLogger(__name__)


class AppliesApplications(NamesKnown):
    """Deploys applications.

    Attributes:
        _proxies, _deployed, _deploying: Of the controller.
    """

    _proxies: ProxyKeeper
    _deployed: dict[str, float]
    _deploying: asyncio.Lock

    async def deploy(self, packages: "tuple[Package, ...]", replace: bool) -> None:
        """`apply`, of one application."""
        await self.apply(packages, replace, False)

    async def apply(self, packages: "tuple[Package, ...]", replace: bool, prune: bool, expected: str | None = None) -> str:
        """Deploy applications, or change what there is to them; what these no longer have is deleted. One request: all of it is
        taken, or nothing. Repeatable. Waits until that is stored.

        Args:
            replace: Whether a deployment may replace one of another class that has its name.
            prune: Whether all other applications are deleted.
            expected: The revision that is to be in force until then; None: any may be.

        Returns:
            The revision that this has brought.

        Raises:
            ConflictError: Another one is. Nothing was deployed.
            NameInUseError: A name belongs to another class, or to something that is being deleted, or a prefix to another
                application. Likewise.
            RankcoreError: A spec is not allowed here. Likewise.
        """
        async with self._deploying:  # two applications at once could both find a name free
            self._check_revision(expected)
            for package in packages:
                self._check_name(package, replace)
            await self._world.call(refer_to, frozenset().union(*(uploaded(environment_of(each.code)) for each in packages)))
            await self._deploy(packages, prune, expected)
            brought = self._revision()
            await self._note_time({each.code.app_name for each in packages})
        await self._cluster.until_saved(package.spec.name for package in packages)
        return brought

    async def _note_time(self, deployed: set[str]) -> None:
        """Applications are deployed now, which is only shown: it is no mistake where it cannot be stored."""
        there_are = self._cluster.state.applications
        times = self._deployed | dict.fromkeys(deployed, time.time())
        self._deployed = {name: at for name, at in times.items() if name in there_are}
        try:
            await self._world.call(self._world.checkpoint.put_deployed, self._deployed)
        except Exception:  # it raises whatever its connection raises
            LOG.exception("when applications were deployed could not be stored")

    async def plan(self, packages: "tuple[Package, ...]", replace: bool, prune: bool) -> "ClusterPlan":
        """What `apply` would bring, if nothing failed. Nothing changes.

        Raises:
            NameInUseError, RankcoreError: As `apply`.
        """
        from rankcore.cluster.planning import plan_cluster

        for package in packages:
            self._check_name(package, replace)
        try:
            return plan_cluster(self._cluster.state, self._wanted(packages, prune)[1])
        except RankcoreError as error:
            self._check_prefix(error)
            raise

    async def revision(self) -> str:
        """Of what users want, for `apply`."""
        return self._revision()

    async def config(self) -> dict[str, Any]:
        """What is in force, as a file of applications says it."""
        from executors.ray_gpu.in_force import config_of

        spans = await self._world.call(traces.kept, self._world.namespace)
        return config_of(self._cluster.state.applications, self._cluster.deployments, self._proxies.options, spans)

    async def share(self) -> ShareInForce:
        """Of their replicas that all deployments are to have."""
        return share_in_force(self._cluster.state.applications, self._cluster.deployments)

    def _check_name(self, package: "Package", replace: bool) -> None:
        code, name = package.code, package.spec.name
        if (why := self._why_left_alone(name)) is not None:
            raise NameInUseError(f"{name} is left alone: {why}; shutdown() removes it, with all else")
        found = self._cluster.deployments.get(name)
        if found is None:
            if (other := self._with_id_on_ray(name)) is not None:
                raise NameInUseError(f"{name} is the id of {other.deployment}, which is older: delete that first")
        elif found.extras.class_name != code.class_name and not replace and not found.entry.deleting:
            raise NameInUseError(
                f"{name} is the name of a deployment of {found.extras.class_name} already: delete that first, or "
                f"deploy {code.class_name} under another name with .options(name=...), or pass replace=True to run()"
            )

    def _wanted(self, packages: "tuple[Package, ...]", prune: bool) -> "tuple[list[Package], ApplyRequested]":
        from executors.ray_gpu.packing import wanted_of

        ids_on_ray = {name: found.id_on_ray for name, found in self._cluster.deployments.items() if not found.is_gone}
        wanted = [package.on_ray(ids_on_ray.get(package.spec.name)) for package in packages]
        for each in wanted:
            if each.residency is not None and each.code.deployment != each.spec.name:
                raise InvalidDeploymentError(
                    f"residency of {each.spec.name} cannot be had while {each.code.deployment} has its place, which is from "
                    "before deployments were called after their applications: delete that first"
                )
        return wanted, wanted_of(wanted, prune, self._world.now())

    async def _deploy(self, packages: "tuple[Package, ...]", prune: bool, expected: str | None) -> None:
        wanted, event = self._wanted(packages, prune)
        try:
            codes = {each.spec.name: each.code for each in wanted}
            await self._cluster.request_with_code(event, codes, lambda: self._check_revision(expected))
        except RankcoreError as error:
            self._check_prefix(error)
            raise

    def _revision(self) -> str:
        return revision_of(self._cluster.state, self._outside_said())

    def _check_revision(self, expected: str | None) -> None:
        check_revision(self._cluster.state, expected, self._outside_said())

    def _outside_said(self) -> dict[str, Any]:
        """What writers have said of proxies: those that the first route has started are as nobody has said."""
        options = self._proxies.options
        if options is None:
            return {}
        from executors.ray_gpu.in_force import outside_of
        from executors.ray_gpu.proxies.options import ProxyOptions

        return {} if options == ProxyOptions() else outside_of(options)

    def _check_prefix(self, error: RankcoreError) -> None:
        """Say in the words of users what the machine has refused."""
        if isinstance(error, InvalidEventError):  # it is being deleted, or frozen
            raise NameInUseError(f"{error.found} cannot be deployed now: {error.allowed}") from None
        if isinstance(error, InvalidSpecError) and error.field.endswith(".route_prefix"):
            raise NameInUseError(
                f"route_prefix {error.found!r} must be {error.allowed}: give this application another, or None for no HTTP"
            ) from None
