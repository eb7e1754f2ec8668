"""What `torchrun --rdzv-backend rankcore` finds: the entry point of the group `torchrun.handlers`.

torchrun loads the entry points of all installed packages, also where another backend was asked for, so this imports nothing.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters


def rankcore() -> "Callable[[RendezvousParameters], RendezvousHandler]":
    """The function that makes a handler of a torchrun's parameters."""
    return _create


def _create(parameters: "RendezvousParameters") -> "RendezvousHandler":
    from executors.torchrun.handler import create

    return create(parameters)
