"""What processes that call deployments are told, and tell: where calls go, which wait, and the ranks of a world."""

import time
import uuid
from collections.abc import Iterator
from typing import Any

import attrs

from executors.ray_gpu.control.named import LONG_POLL_S, NamesKnown
from executors.ray_gpu.membership import Membership
from executors.ray_gpu.messages import DeploymentNews, LoadReport, Routes, Seen, Version, WatchQuestion
from executors.ray_gpu.ray_deployment import RayDeployment
from executors.ray_gpu.watches import Watches
from rankcore.cluster.events import LoadReported, ReportedLoad
from rankcore.cluster.names import DeploymentId

LOAD_FIELDS = [field.name for field in attrs.fields(ReportedLoad)]


class TellsCallers(NamesKnown):
    """Answers those who call.

    Attributes:
        _reports: Numbers for reports of callers of before.
    """

    _reports: Iterator[int]

    def _watch_calls(self) -> None:
        """Know which processes call what."""

        def known(name: str) -> RayDeployment | None:
            return self._of_handle(name) if name not in self._cluster.left_alone else None

        def is_gone(name: str) -> bool:
            found = known(name)
            if found is not None:
                return self._deleted(found)
            return self._why_left_alone(name) is None and not self._cluster.is_recovering(name)

        self._watches = Watches(self._world.epoch, known, is_gone, self._world.now)
        self._cluster.on_change = self._watches.touch

    async def watch(self, question: WatchQuestion) -> dict[str, DeploymentNews | None] | None:
        """What is new of the deployments that a process calls. Waits until something is, for a while.

        Returns:
            By deployment, None: there is no such deployment (any more). Or None: the process is to say all that it knows.
        """
        return await self._watches.ask(question, LONG_POLL_S)

    async def report_load(self, report: LoadReport) -> None:
        """A process says how its calls stand."""
        began = time.monotonic()
        self._take_in(report)
        self._cluster.health.report(time.monotonic() - began)

    async def inquire_waiting(
        self, deployments: tuple[str, ...], process: str | None, request: int | None, because: str | None
    ) -> dict[str, Any]:
        """`Watches.inquire`: ask those that call about their calls that wait, or have these end."""
        return await self._watches.inquire(deployments, process, request, because)

    async def tell_waiting(self, number: int, process: str, name: str, calls: list[dict[str, Any]]) -> None:
        """A process says what waits there, for whoever has asked."""
        self._watches.told(number, process, name, calls)

    def _take_in(self, report: LoadReport) -> None:
        self._watches.hear(report)
        entries: dict[DeploymentId, ReportedLoad] = {}
        for name, load in report.entries.items():
            found = self._of_handle(name)
            if found is not None and (found.entry.scaler is not None or found.entry.residency is not None):
                entries[found.deployment] = ReportedLoad(**{key: load[key] for key in LOAD_FIELDS if key in load})
        if entries:
            event = LoadReported(
                reporter=report.process, incarnation=report.incarnation, seq=report.seq, entries=entries, at=self._world.now()
            )
            self._cluster.backend.tell(event)

    async def routes(
        self, name: str | WatchQuestion, seen: Version
    ) -> dict[str, DeploymentNews | None] | tuple[Version, Routes | None] | None:
        """`watch`, for callers of before it was there, each of which asks for one deployment; None: there is none (any more).

        Ray gives callers the methods that a controller was created with: those of now, of one that was upgraded in place,
        ask here as they do there.
        """
        if isinstance(name, WatchQuestion):
            return await self.watch(name)
        question = WatchQuestion(uuid.uuid4().hex, 1, 0, {name: Seen(seen)})
        try:
            news = await self._watches.ask(question, LONG_POLL_S)
        finally:
            self._watches.forget(question.process)
        found = (news or {}).get(name, DeploymentNews())
        if found is None:
            return None
        return found.routes if found.routes is not None else (seen, None)

    async def hear_load(self, name: str | LoadReport, handle_id: str, queued: int) -> None:
        """`report_load`, likewise."""
        report = name
        if not isinstance(report, LoadReport):
            report = LoadReport(handle_id, self._world.epoch, next(self._reports), {str(name): {"waiting": queued}})
        await self.report_load(report)

    async def world(self, name: str, seen: str | None, wait_s: float) -> Membership | None:
        """Wait until every rank has a holder, in another generation than the one seen; None: there is no such deployment.

        Raises:
            TimeoutError: Not for `wait_s`, or for so long that it is time to ask again.
        """
        found = self._of_handle(name)
        if found is None:
            return None

        def complete() -> bool:
            now = found.membership()
            return self._deleted(found) or (now is not None and now.generation != seen)

        if not await found.changes.until(complete, min(wait_s, LONG_POLL_S)):
            raise TimeoutError(f"the world of {name} is as it was")
        return found.membership() if not self._deleted(found) else None
