"""What an executor is: two methods, and the half of the contract that goes with them."""

from typing import Protocol

from rankcore.commands import Command
from rankcore.events import Event


class Executor(Protocol):
    """Carries out the commands of one deployment and tells what happened. It decides nothing.

    Commands do not name their deployment, so an executor of several hands out one of these for each.

    What it keeps (section 2.4 of the design): it refuses every command of an epoch older than the newest that it has
    seen; it never loses final news, nor news of bundles and of lost readiness (`rankcore.events.NEVER_LOST`), and
    never reports it unless it is true, while all other news may come late, twice, in another order or not at all; it
    answers a Stop or Kill of something unknown with `ReplicaStopped`, a Query of it with `ReplicaMissing`; it keeps
    the newest `AnnounceWorldSize` and delivers it to every replica that exists or comes to exist; it sends
    `ClockAdvanced` when the newest `WakeAt` is due.
    """

    def execute(self, command: Command) -> None:
        """Begin to carry out a command, without waiting for its outcome.

        A command that fails comes back as an event, from `poll`; this method neither raises because of the world nor
        calls the driver. Commands come one at a time, in the order in which the core gave them.
        """

    def poll(self) -> Event | None:
        """Hand over the next thing that happened, or None when there is nothing to tell now. Never blocks.

        What was handed over is the caller's: it is not told again. A simulator moves its clock to the event that it
        returns, and its None means that nothing will ever happen again; an asyncio executor takes from its queue.
        """
