"""The links of one node, and what goes over them: each is shared evenly by all transfers that use it at the same time."""

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from executors.simulator.clock import EventLoop

DISK, TO_GPU, TO_CPU = "disk", "to_gpu", "to_cpu"
INSTANT_S = 1e-6
"""What has so little left to do is done: no clock could tell the difference."""


@attrs.define(eq=False)
class Transfer:
    """Bytes on their way.

    Attributes:
        uses: The links that it goes over, all at once: the one with least room for it sets its pace.
        size_bytes: All of it.
        left_bytes: What is still to come.
        rate: Bytes per second, at present.
    """

    uses: tuple[str, ...]
    size_bytes: int
    left_bytes: float
    action: Callable[..., None]
    arguments: tuple[Any, ...]
    rate: float = 0.0

    @property
    def moved_bytes(self) -> int:
        """What has come over."""
        return self.size_bytes - round(self.left_bytes)


class Links:
    """Moves bytes. A transfer gets an even share of each of its links, and no more than the scarcest of these shares.

    What a transfer leaves of a link because another one is scarcer for it goes to nobody: a node whose loads wait for
    the disk has room between CPU and GPU.
    """

    def __init__(self, loop: EventLoop, bytes_per_s: Mapping[str, float]) -> None:
        self._loop = loop
        self._bytes_per_s = dict(bytes_per_s)
        self._moving: list[Transfer] = []
        self._since = 0.0
        self._version = 0

    def begin(self, uses: tuple[str, ...], size_bytes: int, action: Callable[..., None], *arguments: object) -> Transfer:
        """Move so many bytes, and call `action` when they are there."""
        transfer = Transfer(uses, size_bytes, float(size_bytes), action, arguments)
        self._settle()
        self._moving.append(transfer)
        self._plan()
        return transfer

    def cancel(self, transfer: Transfer) -> None:
        """Stop one; what has come over has come over. One that is done already is left alone."""
        if transfer in self._moving:
            self._settle()
            self._moving.remove(transfer)
            self._plan()

    def _settle(self) -> None:
        """Bring what is left up to now."""
        passed_s = self._loop.now - self._since
        self._since = self._loop.now
        for transfer in self._moving:
            transfer.left_bytes = max(0.0, transfer.left_bytes - transfer.rate * passed_s)

    def _plan(self) -> None:
        """Share the links anew, and wake up when the first one is done."""
        self._version += 1
        if not self._moving:
            return
        users = {link: sum(link in transfer.uses for transfer in self._moving) for link in self._bytes_per_s}
        for transfer in self._moving:
            transfer.rate = min(self._bytes_per_s[link] / users[link] for link in transfer.uses)
        first_s = min(transfer.left_bytes / transfer.rate for transfer in self._moving)
        self._loop.after(first_s, self._wake, self._version)

    def _wake(self, version: int) -> None:
        if version != self._version:
            return
        self._settle()
        done = [transfer for transfer in self._moving if transfer.left_bytes <= transfer.rate * INSTANT_S]
        self._moving = [transfer for transfer in self._moving if transfer not in done]
        self._plan()
        for transfer in done:
            transfer.left_bytes = 0.0
            transfer.action(*transfer.arguments)
