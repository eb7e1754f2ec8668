"""What processes that call deployments ask the controller: one question each, for all that they call.

A question is answered as soon as anything is new, else after a while, since callers die and Ray tells nobody. A process that
calls one more deployment asks anew, which ends the question before: so there is at most one of each process, however many
deployments there are. A change is looked at for those alone that ask for it, and of each question only what has changed.

To whom a status goes, and how often, `rankcore.routing.statuses` says; in which processes calls wait, their own reports do.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from typing import Protocol

import attrs

from executors.ray_gpu.messages import CallStatus, DeploymentNews, LoadReport, Routes, Seen
from rankcore.routing.demand import COUNTS_S, DemandReport, Demands, hear
from rankcore.routing.statuses import NEVER, TELL_EVERY_S, is_due


class Callee(Protocol):
    """A deployment that is called."""

    deployment: str

    def routes(self) -> tuple[int, Routes] | None:
        """Where calls go, and the number of that in this epoch; None: not known yet."""

    def status(self) -> tuple[int, CallStatus] | None:
        """How it stands for those who wait for it, likewise; None: there is nothing to say."""


class _Question:
    """One that is not answered yet."""

    def __init__(self, process: Hashable, seen: Mapping[str, Seen]) -> None:
        self.process = process
        self.seen = seen
        self.to_look_at = set(seen)
        self.changed = asyncio.Event()
        self.is_overtaken = False

    def touch(self, name: str) -> None:
        """Something about a deployment may be new."""
        self.to_look_at.add(name)
        self.changed.set()


class Watches:
    """Answers them. On the controller's event loop.

    Args:
        epoch: Of the controller.
        find: A deployment by the name that it is asked by; None: nothing is known of it.
        is_gone: Whether there is none of that name, nor will be without a deployment.
        now: Seconds on the controller's clock.
    """

    def __init__(
        self,
        epoch: int,
        find: Callable[[str], Callee | None],
        is_gone: Callable[[str], bool],
        now: Callable[[], float],
    ) -> None:
        self._epoch = epoch
        self._find = find
        self._is_gone = is_gone
        self._now = now
        self._open: dict[Hashable, _Question] = {}
        self._asking: defaultdict[str, set[tuple[_Question, str]]] = defaultdict(set)  # by the deployment's id
        self._demands = Demands()
        self._told_at: dict[Hashable, float] = {}

    @property
    def pending(self) -> int:
        """How many questions are not answered."""
        return len(self._open)

    def touch(self, deployment: str) -> None:
        """Something about a deployment has changed."""
        for question, name in self._asking.get(deployment, ()):
            question.touch(name)

    def hear(self, report: LoadReport) -> None:
        """A process says where its calls wait."""
        waiting = {name: int(load.get("waiting", 0)) for name, load in report.entries.items()}
        demand = DemandReport(report.seq, waiting)
        self._demands = hear(self._demands, report.process, report.incarnation, demand, self._now())
        question = self._open.get(report.process)
        for name, count in waiting.items():
            if count and question is not None and name in question.seen:
                question.touch(name)

    async def ask(self, process: Hashable, seen: Mapping[str, Seen], wait_s: float) -> dict[str, DeploymentNews | None]:
        """What is new of these deployments, once something is; none, after a while or where the process has asked anew.

        Returns:
            By deployment; None: there is no such deployment (any more).
        """
        if (before := self._open.get(process)) is not None:
            before.is_overtaken = True
            before.changed.set()
        self._open[process] = question = _Question(process, seen)
        ids = {name: found.deployment if (found := self._find(name)) is not None else name for name in seen}
        for name, deployment in ids.items():
            self._asking[deployment].add((question, name))
        deadline = self._now() + wait_s
        try:
            while not question.is_overtaken:
                question.changed.clear()
                news, due_at = self._look(question)
                left_s = min(due_at, deadline) - self._now()
                if news or self._now() >= deadline:
                    return news
                try:
                    async with asyncio.timeout(max(0.0, left_s)):
                        await question.changed.wait()
                except TimeoutError:
                    continue
        finally:
            if self._open.get(process) is question:
                del self._open[process]
            for name, deployment in ids.items():
                self._asking[deployment].discard((question, name))
                if not self._asking[deployment]:
                    del self._asking[deployment]
        return {}

    def _look(self, question: _Question) -> tuple[dict[str, DeploymentNews | None], float]:
        """What is new, and when more will be, if nothing else changes."""
        names, question.to_look_at = question.to_look_at, set()
        at, next_at = self._now(), NEVER
        found: dict[str, DeploymentNews | None] = {}
        for name in sorted(names):
            if self._is_gone(name):
                found[name] = None
                continue
            news, due_at = self._news(question, name, at)
            if news is not None:
                found[name] = news
            elif due_at < NEVER:
                question.to_look_at.add(name)
                next_at = min(next_at, due_at)
        if any(news is not None and news.status is not None for news in found.values()):
            self._told_at = {each: told_at for each, told_at in self._told_at.items() if told_at > at - TELL_EVERY_S}
            self._told_at[question.process] = at
        return found, next_at

    def _news(self, question: _Question, name: str, at: float) -> tuple[DeploymentNews | None, float]:
        deployment, seen = self._find(name), question.seen[name]
        if deployment is None:  # it is left alone
            return None, NEVER
        routes, status = deployment.routes(), deployment.status()
        new_routes = None
        if routes is not None and (self._epoch, routes[0]) != seen.routes:
            new_routes = ((self._epoch, routes[0]), _asked_by(name, routes[1]))
        new_status = ((self._epoch, status[0]), status[1]) if status and (self._epoch, status[0]) != seen.status else None
        if new_status is None:
            return (DeploymentNews(new_routes), at) if new_routes is not None else (None, NEVER)
        told_at = self._told_at.get(question.process, -NEVER)
        due_at = is_due(self._waits(question.process, name, at), seen.refuses, new_routes is not None, told_at, at)
        return (DeploymentNews(new_routes, new_status), at) if due_at <= at else (None, due_at)

    def _waits(self, process: Hashable, name: str, at: float) -> bool:
        reporter = self._demands.reporters.get(process) if isinstance(process, str) else None
        if reporter is None:
            return False
        count, heard_at = reporter.waiting.get(name, (0, -NEVER))
        return bool(count) and at < heard_at + COUNTS_S


def _asked_by(name: str, routes: Routes) -> Routes:
    """For a router that has the name that it asks by."""
    return routes if routes.spec.name == name else attrs.evolve(routes, spec=attrs.evolve(routes.spec, name=name))
