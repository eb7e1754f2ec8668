"""A place at a replica that is taken before the call is sent: `handle.choose_replica`, `handle.dispatch`.

The core sees one request: it is dispatched when the place is there, and the router keeps it instead of sending it. So the place
counts against the replica's limit, and nobody else gets it. `dispatch` sends what is kept; leaving the context without it gives
the call up, and the place is free. A replica that dies meanwhile fails the call, whatever else the deployment allows: it was
this replica that was wanted.
"""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future, InvalidStateError
from contextlib import asynccontextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import attrs
import ray

from executors.ray_gpu.errors import InvalidCallError
from executors.ray_gpu.requests.arrivals import until_done
from executors.ray_gpu.requests.call import Call, Wishes
from executors.ray_gpu.requests.composition import submit
from executors.ray_gpu.requests.packing import About

if TYPE_CHECKING:
    from executors.ray_gpu.requests.router import Router


class ReservedCall(Call):
    """A call that has a place, or waits for one, and is sent later.

    Attributes:
        place: Will have the replica's id.
        is_ready: Whether it is to be sent.
    """

    __slots__ = ("is_ready", "place")

    def __init__(self, method: str, about: About, wishes: Wishes) -> None:
        super().__init__(method, about, wishes)
        self.place: Future[str] = Future()
        self.is_ready = False

    def fail(self, error: Exception) -> None:
        """There will be no answer; nor a place, if there is none yet."""
        with suppress(InvalidStateError):
            self.place.set_exception(error)
        super().fail(error)
        self.tell_given_up()


@attrs.define(kw_only=True)
class ReplicaSelection:
    """A replica that has a place for one call, as `handle.choose_replica` has found it.

    Attributes:
        replica_id: Its id.
        node_id, node_ip: Of its node, in Ray's words.
        port: None: calls need none.
        availability_zone: None: nobody says.
        replica_metadata: What its `record_replica_metadata` has returned; empty: it has none.
    """

    replica_id: str
    node_ip: str
    port: int | None = None
    node_id: str
    availability_zone: str | None = None
    replica_metadata: dict[str, Any] = attrs.Factory(dict)
    _deployment: str
    _call: ReservedCall
    _router: "Router"

    @property
    def address(self) -> str:
        """Of its node."""
        return self.node_ip

    def to_dict(self) -> dict[str, Any]:
        """All that it says."""
        names = ("replica_id", "node_ip", "port", "node_id", "availability_zone", "replica_metadata")
        return {name: getattr(self, name) for name in names}


class _Sends:
    """Takes a call whose arguments are there, and sends it where it has its place."""

    has_replicas = True

    def __init__(self, router: "Router") -> None:
        self._router = router

    def submit(self, call: Call) -> None:
        """Send it."""
        assert isinstance(call, ReservedCall)
        self._router.release(call)


@asynccontextmanager
async def chosen(
    router: Any, deployment: str, method: str, about: About, wishes: Wishes, arguments: tuple[Any, Any]
) -> AsyncIterator[ReplicaSelection]:
    """A place for a call, as long as the context lasts.

    Raises:
        InvalidCallError: The deployment runs in this process, where there is nothing to choose.
        CallError: As of a call that finds no replica.
    """
    if not hasattr(router, "release"):
        raise InvalidCallError(f"choose_replica: {deployment} runs in this process alone, where there is nothing to choose")
    call = ReservedCall(method, about, attrs.evolve(wishes, reserves=True))
    try:
        submit(call, arguments, router)
        await until_done(call.place)
        replica_id = call.place.result()
        node_id = router.node_of(replica_id)
        selection = ReplicaSelection(
            replica_id=replica_id,
            node_ip=await asyncio.to_thread(_ip_of, node_id),
            node_id=node_id,
            replica_metadata=await router.metadata_of(replica_id),
            deployment=deployment,
            call=call,
            router=router,
        )
        yield selection
    finally:
        if not call.is_ready:
            call.cancel()


def dispatched(selection: object, deployment: str, arguments: tuple[Any, Any]) -> Call:
    """Send a call where it has its place.

    Raises:
        InvalidCallError: It is no selection, of another deployment, or was dispatched before.
        Exception: The arguments cannot be pickled; the place is free.
    """
    if not isinstance(selection, ReplicaSelection) or selection._deployment != deployment:
        raise InvalidCallError(f"dispatch takes what choose_replica of a handle of {deployment} yields, got {selection!r:.80}")
    call = selection._call
    if call.is_ready or call.given_up:
        raise InvalidCallError(f"the place at {selection.replica_id} was used already, or given up")
    call.is_ready = True
    try:
        submit(call, arguments, _Sends(selection._router))
    except Exception:  # they cannot be pickled
        call.cancel()
        raise
    return call


def _ip_of(node_id: str) -> str:
    return _ips().get(node_id) or _ips(fresh=True).get(node_id, "")


def _ips(fresh: bool = False) -> dict[str, str]:
    if fresh:
        _known_ips.cache_clear()
    return _known_ips()


@cache
def _known_ips() -> dict[str, str]:
    return {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()} if ray.is_initialized() else {}
