"""What changes something: calls of the Python API, on threads of their own, so that slow ones keep no reader waiting.

One config at a time. Of two at once the first wins, and the other is told which revision did. Users' code is imported before
that, so an import that takes long keeps no other writer waiting. Whatever takes too long goes on, and its client gets 504.
"""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import msgspec

from executors.apps import packing
from executors.apps.file import AppsFile
from executors.ray_gpu import changing, deploying, inspecting, instance
from executors.ray_gpu.errors import ConflictError, NotRunningError
from executors.ray_gpu.packing import Package
from executors.ray_gpu.requests import under_way
from executors.ray_gpu.rest import bodies
from executors.ray_gpu.rest.cluster_view import ClusterView
from executors.ray_gpu.rest.problems import Problem
from rankcore.cluster import ClusterPlan

T = TypeVar("T")

SOURCE = "body"
ANSWER_S = 120.0
"""So long a client waits for a change: longer than the controller may be silent (`connection.ANSWER_S`)."""
BUILD_S = 300.0
"""So long users' code may take to be imported, its environment included."""
CHANGES_MAX = 32
"""So many changes at once, and so many applications files that are built."""
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
    "update": (bodies.UpdateBody, lambda name, said, ns: changing.update_options(name, said.options, namespace=ns)),
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
    return inspecting.propose_defragmentation(deployment, namespace=namespace)


def controller_health(namespace: str) -> dict[str, Any]:
    """How the controller keeps up."""
    return inspecting.controller_health(namespace=namespace)


def cancel(request: str, namespace: str) -> None:
    """End a call that is under way."""
    under_way.cancel_request(request, namespace=namespace)


def cancel_waiting(name: str, namespace: str) -> tuple[str, ...]:
    """End all that wait for an application or a deployment."""
    return under_way.cancel_waiting(name, namespace=namespace)


class Writer:
    """Makes the calls. On the REST server's loop."""

    def __init__(self, namespace: str, view: ClusterView) -> None:
        self.namespace = namespace
        self._view = view
        self._one_config = asyncio.Lock()
        self._written = 0
        self._last: tuple[bytes, str] | None = None  # the body, and the revision that it has brought
        self._going: set[asyncio.Task[Any]] = set()
        self._builds: dict[bytes, asyncio.Task[tuple[Package, ...]]] = {}
        self._changers = ThreadPoolExecutor(CHANGES_MAX, "rest-changes")
        self._builders = ThreadPoolExecutor(CHANGES_MAX, "rest-builds")

    async def act(self, what: Callable[..., T], *args: object) -> T:
        """One call, with the namespace behind its arguments. It goes on where the client does not wait for its answer.

        Raises:
            Problem: It takes too long, or too many are under way.
        """
        return await _in_time(self._begun(self._through(partial(what, *args, self.namespace))))

    async def put(self, raw: bytes, how: bodies.ChangeQuery, expected: str | None) -> str:
        """Bring all applications to what a body says; those that it does not name go, unless `how` says otherwise.
        Returns the revision.

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
        sent = raw if how == bodies.ChangeQuery() else raw + msgspec.json.encode(how)  # what makes a request another one
        if expected is None and (in_force := await self._again(sent)) is not None:
            return in_force
        packages = await self._built(raw, file)

        def deploy() -> str | None:
            asked: dict[str, Any] = {**of_proxies, "expected": expected, "prune": how.prune, "replace": how.replace}
            done = partial(deploying.deploy_packages, packages, wait=False, **asked, namespace=self.namespace)
            return packing.placed(file, packages, done)

        await self._alone()
        return await _in_time(self._begun(self._put(sent, expected, arrived, deploy)))

    async def _put(self, raw: bytes, expected: str | None, arrived: int, deploy: Callable[[], str | None]) -> str:
        """The rest of it, which goes on where nobody waits for it; `_one_config` is held, and is let go here."""
        try:
            if expected is None and (in_force := await self._again(raw)) is not None:
                return in_force
            before = await self._revision()
            if expected is None and arrived != self._written and not (self._last is not None and self._last[0] == raw):
                raise self._lost(before or "")
            self._last = None
            try:
                brought = await self._through(deploy)
            except ConflictError as error:
                raise self._lost(error.revision) from None
            if brought is None:  # a controller of an older release does not say
                brought = await self._revision()
            self._last = (raw, brought) if brought is not None else None
            self._written += brought is None or brought != before  # who changes nothing takes nothing from others
            return brought or ""
        finally:
            self._one_config.release()

    async def _again(self, raw: bytes) -> str | None:
        """The revision that this body has brought, where it was the last one and all of it is in force still."""
        if self._last is None or self._last[0] != raw:
            return None
        brought = self._last[1]
        self._view.forget()  # another process may have changed something
        return brought if await self._revision() == brought else None

    async def _built(self, raw: bytes, file: AppsFile) -> tuple[Package, ...]:
        """What a body says, packed. Who sends it again meanwhile waits for the same."""
        if raw not in self._builds:
            build = partial(packing.packages_of, file, self.namespace, in_task=True, timeout_s=BUILD_S)
            self._check_room(len(self._builds))
            task = self._begun(self._on(self._builders, build))
            self._builds[raw] = task
            task.add_done_callback(lambda _: self._builds.pop(raw, None))
        return await asyncio.shield(self._builds[raw])

    async def _alone(self) -> None:
        """Wait until no other config is being taken; then none is until `_one_config` is let go."""
        try:
            await asyncio.wait_for(self._one_config.acquire(), ANSWER_S)
        except TimeoutError:
            raise Problem(504, f"another config is being taken since {ANSWER_S:g} s: nothing has changed; ask again") from None

    async def _revision(self) -> str | None:
        """Of what is in force; None: the controller does not say so now."""
        try:
            return (await self._view.look()).status.revision or None
        except NotRunningError:
            return None

    async def plan(self, raw: bytes, how: bodies.ChangeQuery) -> tuple[ClusterPlan, str]:
        """What `put` would bring, and the revision for which that holds; nothing changes.

        Raises:
            Problem, ScenarioError, RankcoreError: As `put`.
        """
        file = packing.of_data(_data(raw), SOURCE)
        outside = packing.of_plan(file)
        packages = await self._built(raw, file)

        def plan() -> tuple[ClusterPlan, str | None]:
            planned = partial(
                deploying.plan_packages, packages, **msgspec.to_builtins(how), namespace=self.namespace, **outside
            )
            return packing.placed(file, packages, planned)

        self._check_room(len(self._going) - len(self._builds))
        found, revision = await _in_time(self._begun(self._on(self._changers, plan)))
        return found, revision or ""

    async def end_all(self) -> None:
        """Delete all applications and end the controller; this server stays.

        Raises:
            Problem: It takes long, and goes on; no config is taken until it is done.
        """
        await self._alone()
        await _in_time(self._begun(self._end_all()))

    async def _end_all(self) -> None:
        try:
            await self._through(partial(instance.shutdown, namespace=self.namespace, keep_rest=True))
            self._written, self._last = self._written + 1, None
        finally:
            self._one_config.release()

    async def delete(self, application: str, deployment: str | None) -> None:
        """Begin to delete an application, or one of its deployments. Of what is being deleted already likewise.

        Raises:
            UnknownNameError: There is none.
        """
        await self.act(lambda namespace: deploying.begin_deletion(application, deployment, namespace=namespace))

    async def _through(self, act: Callable[[], T]) -> T:
        """A change, after which readers are shown what came of it."""
        self._check_room(len(self._going) - len(self._builds) - 1)
        try:
            return await self._on(self._changers, act)
        finally:
            self._view.forget()

    async def _on(self, threads: ThreadPoolExecutor, act: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(threads, act)

    def _check_room(self, under_way: int) -> None:
        if under_way >= CHANGES_MAX:
            raise Problem(503, f"{CHANGES_MAX} changes are under way already", None, {"retry-after": "1"})

    def _begun(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """It goes on, whoever waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._going.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._going.discard(task)
        if not task.cancelled():
            task.exception()  # perhaps nobody waits for it any more

    def _lost(self, revision: str) -> Problem:
        text = f"if-match: another writer came first, and revision {revision} is in force: read it, and ask again"
        return Problem(412, text, "if-match", {"etag": etag(revision)})


async def _in_time(going: "asyncio.Task[T]") -> T:
    """What comes of it; it goes on where that takes too long."""
    await asyncio.wait([going], timeout=ANSWER_S)
    if not going.done():
        raise Problem(504, f"it is not done within {ANSWER_S:g} s and goes on: look what is in force before you ask again")
    return going.result()


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
