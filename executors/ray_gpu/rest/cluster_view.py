"""What readers are shown: what the controller said last. It is asked anew for all of them at once, at most twice a second.

So ten thousand readers cost the controller as much as one does, and where nobody reads it is asked for the live page alone,
once in five seconds. Whoever has written
sees what came of it: a write ends what was said before it (`forget`), so writers are what it is asked for more often. What one
path alone needs is asked for as seldom, once for all its readers (`shared`).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import attrs
import ray
from ray.exceptions import ActorDiedError, RayError

from executors.ray_gpu import names
from executors.ray_gpu.errors import NoAnswerError, NotRunningError
from executors.ray_gpu.messages import Ingress
from executors.ray_gpu.overview import Status
from executors.ray_gpu.proxies.options import ProxyOptions

T = TypeVar("T")

FRESH_S = 0.5
NO_NOTES = 1 << 62
"""A number that no note has."""
ANSWER_S = 10.0
"""So long the controller may take; it is up again 30 s after it hangs, and whoever asks may ask again."""


@attrs.frozen(eq=False)
class ClusterSeen:
    """What the controller said.

    Attributes:
        config: What is in force, as a file of applications says it.
        node_id: Of the controller, and of this server.
        asked_at: On this process's monotonic clock: nothing in it is older.
        made: What was made of it for readers, by what made it.
    """

    status: Status
    ingress: Ingress
    proxies: ProxyOptions | None
    config: dict[str, Any]
    node_id: str
    asked_at: float
    made: dict[Any, bytes] = attrs.field(factory=dict)

    def once(self, make: Callable[["ClusterSeen"], bytes]) -> bytes:
        """What `make` makes of it, made for the first reader."""
        if make not in self.made:
            self.made[make] = make(self)
        return self.made[make]


class NothingRunsError(NotRunningError):
    """There is no controller: nothing is deployed."""


def controller_of(namespace: str) -> Any:
    """Its handle. Blocks for a round trip.

    Raises:
        NothingRunsError: There is none.
    """
    try:
        return ray.get_actor(names.CONTROLLER, namespace=namespace)
    except ValueError:
        raise NothingRunsError(f"nothing runs in namespace {namespace!r}: PUT applications, or run()") from None


class ClusterView:
    """On the REST server's loop.

    Args:
        find: The controller's handle; may block.
        node_id: Of this server's node.
    """

    def __init__(self, find: Callable[[], Any], node_id: str) -> None:
        self._find = find
        self._node_id = node_id
        self._controller: Any = None
        self._seen: ClusterSeen | None = None
        self._asking: asyncio.Task[ClusterSeen] | None = None
        self._shared: dict[object, tuple[float, asyncio.Future[Any]]] = {}  # each with when it is too old

    def forget(self) -> None:
        """Somebody has changed something."""
        self._seen, self._asking = None, None
        self._shared.clear()

    async def shared(self, what: object, ask: Callable[[], Awaitable[T]], fresh_s: float = FRESH_S) -> T:
        """What `ask` says, asked once for all who want it within so many seconds."""
        now = time.monotonic()
        self._shared = {key: each for key, each in self._shared.items() if each[0] > now or not each[1].done()}
        if what not in self._shared:
            asking = asyncio.ensure_future(ask())
            asking.add_done_callback(_heard)
            self._shared[what] = now + fresh_s, asking
        found: T = await asyncio.shield(self._shared[what][1])
        return found

    async def look(self) -> ClusterSeen:
        """What there is, half a second old at most.

        Raises:
            NotRunningError: There is no controller, or it does not answer.
        """
        if self._seen is not None and time.monotonic() - self._seen.asked_at < FRESH_S:
            return self._seen
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self._ask())
            self._asking.add_done_callback(_heard)
        return await asyncio.shield(self._asking)

    async def now(self) -> float | None:
        """What the controller's clock says; None: it does not answer, or is of an older release."""
        if not hasattr(self._controller, "notes"):
            return None
        try:
            async with asyncio.timeout(ANSWER_S):
                found = await self._controller.notes.remote(NO_NOTES)
        except (TimeoutError, RayError):
            return None
        return found.now or None

    async def _ask(self) -> ClusterSeen:
        this, asked_at = asyncio.current_task(), time.monotonic()
        try:
            async with asyncio.timeout(ANSWER_S):
                try:
                    said = await self._answers()
                except ActorDiedError:  # there may be another one, or none
                    self._controller = None
                    said = await self._answers()
        except TimeoutError:
            raise NoAnswerError(f"the controller has not answered within {ANSWER_S:g} s: ask again") from None
        except RayError as error:
            self._controller = None
            raise NotRunningError(f"the controller is away: {' '.join(str(error).split())[:200]}") from None
        seen = ClusterSeen(*said, self._node_id, asked_at)
        if self._asking is this:
            self._seen = seen
        return seen

    async def _answers(self) -> tuple[Status, Ingress, ProxyOptions | None, dict[str, Any]]:
        if self._controller is None:
            self._controller = await asyncio.to_thread(self._find)
        controller = self._controller
        asked = [controller.status.remote(), controller.ingress.remote(None), controller.proxy_options.remote()]
        if hasattr(controller, "config"):  # one of an older release has none
            asked.append(controller.config.remote())
        status, ingress, proxies, *configs = await asyncio.gather(*asked)
        return status, ingress, proxies, configs[0] if configs else {}


def _heard(asking: "asyncio.Future[Any]") -> None:
    """What it raised is told to whoever waits; perhaps nobody does any more."""
    if not asking.cancelled():
        asking.exception()
