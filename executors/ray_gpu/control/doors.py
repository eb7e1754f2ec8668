"""Requests from outside: which proxies there are, and what they reach."""

from typing import TYPE_CHECKING

import attrs

from executors.ray_gpu.control.named import LONG_POLL_S, NamesKnown
from executors.ray_gpu.errors import UnknownNameError, not_one
from executors.ray_gpu.messages import Ingress
from executors.ray_gpu.proxies.info import ProxyInfo
from executors.ray_gpu.proxies.keeper import ProxyKeeper

if TYPE_CHECKING:
    from executors.ray_gpu.proxies.options import ProxyOptions


class HasDoors(NamesKnown):
    """Keeps the proxies.

    Attributes:
        _proxies: Of the controller.
    """

    _proxies: ProxyKeeper

    async def serve_outside(self, options: "ProxyOptions", replace: bool, timeout_s: float) -> tuple[ProxyInfo, ...]:
        """Have proxies on the nodes that should have them, and wait until they are up. Repeatable.

        Args:
            replace: Whether other options take the place of those in force; else these stay.
        """
        if replace or self._proxies.options is None:
            await self._world.call(self._world.checkpoint.put_proxies, options)
            await self._proxies.keep(options)
        return await self._proxies.until_up(timeout_s)

    async def proxy_options(self) -> "ProxyOptions | None":
        """What proxies serve; None: there are none."""
        return self._proxies.options

    async def end_proxies(self) -> None:
        """End the proxies; what is under way is answered first."""
        await self._proxies.close()
        await self._world.call(self._world.checkpoint.put_proxies, None)

    async def ingress(self, seen: Ingress | None) -> Ingress:
        """Which deployments requests from outside reach, and which nodes are drained. Waits for others than those seen, for a
        while.
        """
        await self._cluster.applications.until(lambda: self._ingress_changed(seen), LONG_POLL_S)
        return self._ingress()

    def _ingress(self) -> Ingress:
        applications = {name: each for name, each in self._cluster.state.applications.items() if each.ingress is not None}
        return Ingress(
            {each.route_prefix: str(each.ingress) for each in applications.values() if each.route_prefix is not None},
            {name: str(each.ingress) for name, each in applications.items()},
            self._cluster.cordons.drained,
        )

    def _ingress_changed(self, seen: Ingress | None) -> bool:
        now = self._ingress()
        if seen is not None and seen.drained is None:
            now = attrs.evolve(now, drained=None)  # it is never seen by a proxy of before
        return now != seen

    async def ingress_of(self, application: str) -> str:
        """The full name of the deployment that `run` gave a handle of.

        Raises:
            UnknownNameError: There is no such application; says which there are.
        """
        found = self._ingress().applications
        if application not in found:
            raise UnknownNameError(not_one("application", application, (), found))
        return found[application]
