"""What a deployment's controller is told of the placement group that it is in: which bundles are lost, and which are back."""

from collections.abc import Callable, Iterable

from executors.simulator.clock import EventLoop
from executors.simulator.cluster.bundles import PlacementGroups, SimulatedBundle
from executors.simulator.cluster.network import Link, Network
from rankcore.events import BundleLost, BundleRestored

UNKNOWN = "it was lost before"


class BundleNews:
    """Tells of one group at a time, over a lasting connection, and never loses it.

    Attributes:
        group: The one that the controller's spec names; None: none.
    """

    def __init__(
        self,
        name: str,
        loop: EventLoop,
        network: Network,
        groups: PlacementGroups,
        arrive: Callable[[BundleLost | BundleRestored], None],
    ) -> None:
        self.group: str | None = None
        self._loop = loop
        self._network = network
        self._groups = groups
        self._arrive = arrive
        self._link = Link((name, "bundles"))
        self._lost: set[int] = set()

    def forget(self) -> None:
        """A new controller has not heard of any bundle."""
        self.group = None

    def follow(self, group: str | None) -> None:
        """The controller's spec names this group: of another one it is told at once what is lost."""
        if group == self.group or group is None:
            return  # what was told of the last group stays true, should it be named again
        self.group = group
        self._lost = set()
        self.tell_lost([bundle for bundle in self._groups.of(group) if not bundle.there], self._loop.now, UNKNOWN)

    def tell_lost(self, bundles: Iterable[SimulatedBundle], lost_at: float, reason: str) -> None:
        """Bundles are gone since then."""
        lost = [bundle.index for bundle in bundles]
        if self.group is None or not lost:
            return
        self._lost.update(lost)
        news = BundleLost(bundles=lost, reason=reason, group_id=self.group, at=lost_at)
        self._network.send_in_order(self._link, self._arrive, news)

    def tell_restored(self, bundles: Iterable[SimulatedBundle]) -> None:
        """Those of them that were lost, as far as anybody knew, and are there now."""
        back = [bundle.index for bundle in bundles if bundle.there and bundle.index in self._lost]
        if self.group is None or not back:
            return
        self._lost.difference_update(back)
        news = BundleRestored(bundles=back, group_id=self.group, at=self._loop.now)
        self._network.send_in_order(self._link, self._arrive, news)
