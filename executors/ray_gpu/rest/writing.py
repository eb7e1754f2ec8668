"""What changes something: calls of the Python API, on threads.

One config at a time. Of two at once the first wins, and the other is told which revision did.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from executors.apps import packing
from executors.ray_gpu import api, changing
from executors.ray_gpu.errors import ConflictError, NotRunningError
from executors.ray_gpu.requests import under_way
from executors.ray_gpu.rest import bodies
from executors.ray_gpu.rest.cluster_view import ClusterView
from executors.ray_gpu.rest.problems import Problem
from rankcore.cluster import ClusterPlan

T = TypeVar("T")

SOURCE = "body"
SERVES_OWN = ("controller_options", "tracing_config", "target_capacity", "logging_config")
"""Keys of Ray Serve's config that may be there with nothing in them: some clients send all."""

OF_DEPLOYMENT: dict[str, tuple[type[Any], Callable[..., Any]]] = {
    "scale": (bodies.ScaleBody, lambda name, said, ns: changing.scale(
        name, said.target_num_replicas, stop_first=said.stop_first, namespace=ns)),
    "restart": (bodies.RestartBody, lambda name, said, ns: changing.restart(name, token=said.token, namespace=ns)),
    "pause": (bodies.EmptyBody, lambda name, said, ns: changing.pause(name, namespace=ns)),
    "promote": (bodies.PromoteBody, lambda name, said, ns: changing.promote(name, said.replicas, namespace=ns)),
    "resume": (bodies.EmptyBody, lambda name, said, ns: changing.resume(name, namespace=ns)),
    "rollback": (bodies.EmptyBody, lambda name, said, ns: changing.rollback(name, namespace=ns)),
    "retry": (bodies.RetryBody, lambda name, said, ns: changing.retry(name, ranks=said.ranks, namespace=ns)),
    "evict": (bodies.EvictBody, lambda name, said, ns: changing.evict(name, keep=said.keep, namespace=ns)),
    "update": (bodies.UpdateBody, lambda name, said, ns: changing.update(name, namespace=ns, **said.options)),
}  # fmt: skip
"""What can be asked of a deployment: its body, and what does it."""
OF_NODE: dict[str, tuple[type[Any], Callable[..., Any]]] = {
    "cordon": (bodies.EmptyBody, lambda node, said, ns: changing.cordon(node, namespace=ns)),
    "uncordon": (bodies.EmptyBody, lambda node, said, ns: changing.uncordon(node, namespace=ns)),
    "drain": (bodies.DrainBody, lambda node, said, ns: changing.drain(
        node, deadline_s=said.deadline_s, reason=said.reason, namespace=ns)),
}  # fmt: skip
OF_REPLICAS: dict[str, tuple[type[Any], Callable[..., Any]]] = {
    "stop": (bodies.ReplicasBody, lambda _, said, ns: changing.stop_replicas(said.replica_ids, namespace=ns)),
    "replace": (bodies.ReplaceBody, lambda _, said, ns: changing.replace_replicas(
        said.replica_ids, deadline_s=said.deadline_s, namespace=ns)),
}  # fmt: skip


def defragmentation(deployment: str | None, namespace: str) -> Any:
    """Moves that would let weights fit, which nobody makes."""
    return api.propose_defragmentation(deployment, namespace=namespace)


def cancel(request: str, namespace: str) -> None:
    """End a call that is under way."""
    under_way.cancel_request(request, namespace=namespace)


class Writer:
    """Makes the calls. On the REST server's loop."""

    def __init__(self, namespace: str, view: ClusterView) -> None:
        self._namespace = namespace
        self._view = view
        self._one_config = asyncio.Lock()
        self._written = 0
        self._last: tuple[bytes, str] | None = None  # the body, and the revision that it has brought
        self._going: set[asyncio.Task[Any]] = set()

    async def act(self, what: Callable[..., T], *args: object) -> T:
        """One call, with the namespace behind its arguments. It goes on where the client does not wait for its answer."""
        return await self._through(partial(what, *args, self._namespace))

    async def put(self, raw: bytes, expected: str | None) -> str:
        """Bring all applications to what a body says; those that it does not name go. Returns the revision.

        The same body as the last one, of which everything is still in force, is answered at once: a client that has not waited
        for the answer sends it again.

        Args:
            expected: The revision that is to be in force until then; None: any that no other body has brought meanwhile.

        Raises:
            Problem: Another writer was faster; nothing was changed.
            ScenarioError, RankcoreError: The body is not what it may be. Likewise.
        """
        file = packing.of_data(_data(raw), SOURCE)
        of_proxies = packing.of_proxies(file)
        arrived = self._written
        async with self._one_config:
            is_again = self._last is not None and self._last[0] == raw
            before = await self._revision()
            if is_again and expected is None and before == self._last_revision:
                return before
            if expected is None and arrived != self._written and not is_again:
                raise self._lost(before)

            def deploy() -> None:
                packages = packing.packages_of(file, self._namespace, in_task=True)
                how: dict[str, Any] = {**of_proxies, "expected": expected}
                done = partial(api.deploy_packages, packages, wait=False, prune=True, namespace=self._namespace, **how)
                packing.placed(file, packages, done)

            try:
                await self._through(deploy)
            except ConflictError as error:
                raise self._lost(error.revision) from None
            self._last = raw, await self._revision()
            self._written += self._last_revision != before  # who changes nothing takes nothing from others
            return self._last_revision

    @property
    def _last_revision(self) -> str:
        return self._last[1] if self._last is not None else ""

    async def _revision(self) -> str:
        """Of what is in force; "": the controller does not say so now."""
        try:
            return (await self._view.look()).status.revision
        except NotRunningError:
            return ""

    async def plan(self, raw: bytes) -> tuple[ClusterPlan, str]:
        """What `put` would bring, and the revision for which that holds; nothing changes.

        Raises:
            ScenarioError, RankcoreError: As `put`.
        """
        file = packing.of_data(_data(raw), SOURCE)
        outside = {key: value for key, value in packing.of_proxies(file).items() if key != "logging_config"}

        def plan() -> tuple[ClusterPlan, str | None]:
            packages = packing.packages_of(file, self._namespace, in_task=True)
            planned = partial(api.plan_packages, packages, replace=False, prune=True, namespace=self._namespace, **outside)
            return packing.placed(file, packages, planned)

        found, revision = await asyncio.to_thread(plan)
        return found, revision or ""

    async def end_all(self) -> None:
        """Delete all applications and end the controller; this server stays."""
        async with self._one_config:
            await self._through(partial(api.shutdown, namespace=self._namespace, keep_rest=True))
            self._written, self._last = self._written + 1, None

    async def delete(self, name: str) -> None:
        """Begin to delete an application or a deployment, which goes on.

        Raises:
            UnknownNameError: There is none.
        """
        going = asyncio.get_running_loop().create_task(self._through(partial(api.delete, name, namespace=self._namespace)))
        self._keep(going)
        await asyncio.wait([going], timeout=0.5)
        if going.done():
            going.result()

    async def _through(self, act: Callable[[], T]) -> T:
        task = asyncio.get_running_loop().create_task(asyncio.to_thread(act))
        self._keep(task)
        try:
            return await asyncio.shield(task)
        finally:
            self._view.forget()

    def _keep(self, task: "asyncio.Task[Any]") -> None:
        self._going.add(task)
        task.add_done_callback(self._going.discard)

    def _lost(self, revision: str) -> Problem:
        text = f"if-match: another writer came first, and revision {revision} is in force: read it, and ask again"
        return Problem(412, text, "if-match", {"etag": etag(revision)})


def etag(revision: str) -> str:
    """A revision as HTTP has it."""
    return f'"{revision}"'


def revision_in(header: str | None) -> str | None:
    """What `If-Match` says; None: nothing, or that any will do."""
    if header is None or header.strip() == "*":
        return None
    said = header.strip().removeprefix("W/")
    if len(said) < 2 or said[0] != '"' or said[-1] != '"' or "," in said:
        raise Problem(422, f"if-match: expected one ETag that this server gave, found {header!r:.80}", "if-match")
    return said[1:-1]


def _data(raw: bytes) -> Any:
    data = bodies.body_of(raw, dict[str, Any])
    return {key: value for key, value in data.items() if key not in SERVES_OWN or value is not None}
