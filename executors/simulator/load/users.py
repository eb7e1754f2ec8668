"""A closed loop: so many users, each of whom asks, waits for the answer, thinks, and asks again.

An open source of requests says when each comes, whatever becomes of those before. Here an answer that is late makes the next
request late: there are never more requests than users, and a fleet that is too small is slow and has no growing queue. That is
what a benchmark with a fixed concurrency measures, and what people at screens do.

Who was turned away asks again when he was told to, after he has thought; a deployment that is deleted he leaves. What requests
are (how long they take, how many tokens they have) and how long is thought after each are drawn before the run, by the number
of the request, so that runs on one seed have the same requests whenever these come.
"""

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from executors.simulator.clock import EventLoop

if TYPE_CHECKING:
    from executors.simulator.load.arrivals import Arrivals


@attrs.frozen
class Users:
    """The users of a deployment.

    Attributes:
        count: How many.
        begin_s: When all of them ask for the first time.
        think_s: How long a user thinks after what became of each request; as many as all users ask for together.
    """

    count: int
    begin_s: float
    think_s: "array[float]"


class UserLoop:
    """The users of a run: each is in one of two places, thinking here or waiting for an answer there.

    Args:
        arrivals: Whose times are put down as requests come.
        ask: Called with the number of each request as it comes.

    """

    def __init__(self, loop: EventLoop, users: Users, arrivals: "Arrivals", ask: Callable[[int], object]) -> None:
        self._loop = loop
        self._users = users
        self._at_s = arrivals.at_s
        self._ask = ask
        self._thinking = 0
        self._latest = users.begin_s
        for _ in range(users.count):
            self._think(users.begin_s)

    @property
    def has_ended(self) -> bool:
        """Whether nobody asks any more."""
        return not self._thinking or len(self._at_s) == len(self._users.think_s)

    @property
    def last_at(self) -> float:
        """When the last request comes, as far as is known."""
        return self._at_s[-1] if self.has_ended and self._at_s else self._latest

    def answered(self, index: int) -> None:
        """A request is over, one way or another: its user thinks, and asks again."""
        self._think(self._loop.now + self._users.think_s[index])

    def turned_away(self, index: int, retry_after_s: float | None) -> None:
        """A request was not taken: its user asks again after that time, or, without one, never."""
        if retry_after_s is not None:
            self._think(self._loop.now + self._users.think_s[index] + retry_after_s)

    def _think(self, until: float) -> None:
        self._thinking += 1
        self._latest = max(self._latest, until)
        self._loop.at_with(until, self._come, None)

    def _come(self, _: None) -> None:
        index = len(self._at_s)
        self._thinking -= 1
        if index < len(self._users.think_s):
            self._at_s.append(self._loop.now)
            self._ask(index)
