"""What processes that call deployments ask the controller: one question each, for all that they call.

A question is answered as soon as anything is new, else after a while, since callers die and Ray tells nobody. A process that
calls one more deployment asks anew, which ends the question before: so there is at most one of each process, however many
deployments there are. A change is looked at for those alone that ask for it, and a question says only what it adds to the one
before: of a thousand deployments to say all would take the controller 13 ms, for each process and each change.

Calls that wait are with the processes that call: what is asked about them, or told to do with them, goes there as news, and
what they say to that is passed on. Nothing of it stays here.

To whom a status goes, and how often, `rankcore.routing.statuses` says; in which processes calls wait, their own reports do.
"""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Protocol

import attrs

from executors.ray_gpu.messages import CallStatus, DeploymentNews, LoadReport, Routes, Seen, WaitingInquiry, WatchQuestion
from rankcore.routing.demand import COUNTS_S, DemandReport, Demands, demand_for, hear
from rankcore.routing.statuses import NEVER, TELL_EVERY_S, is_due

SILENT_S = 120.0
"""So long a process that asks nothing is remembered."""
INQUIRE_S = 1.5
"""So long what waits is waited for, of all processes together."""
DEAD_S = 5.0
"""A process that has asked nothing for so long is not waited for."""


class Callee(Protocol):
    """A deployment that is called."""

    deployment: str

    def routes(self) -> tuple[int, Routes] | None:
        """Where calls go, and the number of that in this epoch; None: not known yet."""

    def status(self) -> tuple[int, CallStatus] | None:
        """How it stands for those who wait for it, likewise; None: there is nothing to say."""


class _Process:
    """One that calls, as it has said by its questions.

    Attributes:
        process: Its name.
        number: Of its newest question.
        seen: What it knows of the deployments that it calls, by the names that it has of them.
        ids: What those were called by then.
        begun_at: Since when it has called each of them.
        to_look_at: Those of which something may be new.
        changed: Set when there is one, or another question.
        pending: How many of its questions are not answered.
        ended_at: When the last of them was.
        inquiries: What it is to be asked about calls that wait, by the name that it has of their deployment.
    """

    def __init__(self, process: str) -> None:
        self.process = process
        self.number = 0
        self.seen: dict[str, Seen] = {}
        self.ids: dict[str, str] = {}
        self.begun_at: dict[str, float] = {}
        self.to_look_at: set[str] = set()
        self.changed = asyncio.Event()
        self.pending = 0
        self.ended_at = 0.0
        self.inquiries: defaultdict[str, list[WaitingInquiry]] = defaultdict(list)

    def touch(self, name: str) -> None:
        """Something about a deployment may be new."""
        self.to_look_at.add(name)
        self.changed.set()


class _Inquiring:
    """Somebody waits for what processes say of calls that wait.

    Attributes:
        missing: Of whom nothing has come yet: process, and the name that it has of the deployment.
        calls: What has come.
        complete: Set when nobody is missing.
    """

    def __init__(self) -> None:
        self.missing: set[tuple[str, str]] = set()
        self.calls: list[dict[str, Any]] = []
        self.complete = asyncio.Event()


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
        self._processes: dict[str, _Process] = {}
        self._callers: defaultdict[str, set[tuple[_Process, str]]] = defaultdict(set)  # by the deployment's id
        self._demands = Demands()
        self._told_at: dict[str, float] = {}
        self._numbers = itertools.count(epoch * 2**32 + 1)  # what a controller before was told answers nobody here
        self._inquiring: dict[int, _Inquiring] = {}

    @property
    def pending(self) -> int:
        """How many questions are not answered."""
        return sum(each.pending for each in self._processes.values())

    def touch(self, deployment: str) -> None:
        """Something about a deployment has changed."""
        for process, name in self._callers.get(deployment, ()):
            process.touch(name)

    def hear(self, report: LoadReport) -> None:
        """A process says where its calls wait."""
        waiting = {name: int(load.get("waiting", 0)) for name, load in report.entries.items()}
        demand = DemandReport(report.seq, waiting)
        self._demands = hear(self._demands, report.process, report.incarnation, demand, self._now())
        process = self._processes.get(report.process)
        for name, count in waiting.items():
            if count and process is not None and name in process.seen:
                process.touch(name)

    def waiting(self, deployment: str) -> int:
        """How many calls of a deployment wait, as far as those that call have said."""
        return demand_for(self._demands, deployment, self._now())

    async def inquire(
        self, deployments: Iterable[str], process: str | None, request: int | None, because: str | None
    ) -> dict[str, Any]:
        """Ask processes for their calls that wait for deployments, or have these end.

        Args:
            process: Only this one; None: all that call them.
            request: Only this call; None: all that wait.
            because: The calls end, and their callers are told this; None: nothing happens to them.

        Returns:
            `calls`: what `Router.asked` says of each, its `deployment` and its `process`; `silent`: how many processes have not
            answered of which the last that was heard is that calls wait there, or which have only just begun to call.
        """
        number, inquiring = next(self._numbers), _Inquiring()
        callers = [
            (each, name)
            for deployment in deployments
            for each, name in self._callers.get(self._id_of(deployment), ())
            if process in (None, each.process)
        ]
        asked = [each for each in callers if each[0].pending or each[0].ended_at > self._now() - DEAD_S]
        for each, name in asked:
            inquiring.missing.add((each.process, name))
            each.inquiries[name].append(WaitingInquiry(number, request, because))
            each.changed.set()
        if asked:
            self._inquiring[number] = inquiring
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(INQUIRE_S):
                        await inquiring.complete.wait()
            finally:
                del self._inquiring[number]
                for each, _ in asked:  # who has not been asked yet is not to end calls later
                    for name, inquiries in tuple(each.inquiries.items()):
                        each.inquiries[name] = [inquiry for inquiry in inquiries if inquiry.number != number]
        silent = {
            each.process
            for each, name in callers
            if ((each, name) not in asked or (each.process, name) in inquiring.missing) and self._may_wait(each, name)
        }
        return {"calls": inquiring.calls, "silent": len(silent)}

    def _may_wait(self, process: _Process, name: str) -> bool:
        """Whether calls may wait in a process that says nothing: as it has said last, or it has had no time to say."""
        reporter = self._demands.reporters.get(process.process)
        if reporter is not None and name in reporter.waiting:
            return True
        return process.begun_at.get(name, -NEVER) > self._now() - COUNTS_S

    def told(self, number: int, process: str, name: str, calls: list[dict[str, Any]]) -> None:
        """A process says what waits there; nobody may want to know it any more."""
        inquiring = self._inquiring.get(number)
        if inquiring is not None and (process, name) in inquiring.missing:
            inquiring.missing.discard((process, name))
            inquiring.calls += [{**each, "deployment": name, "process": process} for each in calls]
            if not inquiring.missing:
                inquiring.complete.set()

    async def ask(self, question: WatchQuestion, wait_s: float) -> dict[str, DeploymentNews | None] | None:
        """What is new of the deployments that a process calls, once something is; none, after a while or if it has asked anew.

        Returns:
            By deployment, None: there is no such deployment (any more). Or None: this question adds to one that is not known
            here, or not the newest: the process is to say all.
        """
        process = self._processes.get(question.process)
        if not question.since:
            self.forget(question.process)
            self._forget_silent()
            self._processes[question.process] = process = _Process(question.process)
        elif process is None or process.number != question.since:
            return None
        process.number = question.number
        for name in question.gone:
            self._drop(process, name)
        for name, seen in question.seen.items():
            if name not in process.seen:
                process.ids[name] = self._id_of(name)
                process.begun_at[name] = self._now()
                self._callers[process.ids[name]].add((process, name))
            process.seen[name] = seen
            process.touch(name)
        process.changed.set()  # the question before ends
        deadline = self._now() + wait_s
        process.pending += 1
        try:
            return await self._answer(question, process, deadline)
        finally:
            process.pending -= 1
            process.ended_at = self._now()

    async def _answer(self, question: WatchQuestion, process: _Process, deadline: float) -> dict[str, DeploymentNews | None]:
        while process.number == question.number:
            process.changed.clear()
            news, due_at = self._look(question.process, process)
            left_s = min(due_at, deadline) - self._now()
            if news or self._now() >= deadline:
                return news
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, left_s)):
                    await process.changed.wait()
        return {}

    def _id_of(self, name: str) -> str:
        return found.deployment if (found := self._find(name)) is not None else name

    def _drop(self, process: _Process, name: str) -> None:
        """A process calls a deployment no more."""
        if process.seen.pop(name, None) is not None:
            process.to_look_at.discard(name)
            deployment = process.ids.pop(name)
            del process.begun_at[name]
            self._callers[deployment].discard((process, name))
            if not self._callers[deployment]:
                del self._callers[deployment]

    def forget(self, name: str) -> None:
        """A process asks no more."""
        process = self._processes.pop(name, None)
        if process is not None:
            for each in tuple(process.seen):
                self._drop(process, each)
            process.number = -1
            process.changed.set()

    def _forget_silent(self) -> None:
        """Processes that have not asked for so long have ended, which Ray tells nobody."""
        until = self._now() - SILENT_S
        for name in [name for name, each in self._processes.items() if not each.pending and each.ended_at < until]:
            self.forget(name)

    def _look(self, process: str, known: _Process) -> tuple[dict[str, DeploymentNews | None], float]:
        """What is new, and when more will be, if nothing else changes."""
        names, known.to_look_at = known.to_look_at, set()
        inquiries, known.inquiries = known.inquiries, defaultdict(list)
        at, next_at = self._now(), NEVER
        found: dict[str, DeploymentNews | None] = {}
        for name in sorted(names):
            if self._is_gone(name):
                found[name] = None
                self._drop(known, name)  # if it is called all the same, it is asked for anew
                continue
            news, due_at = self._news(process, known.seen[name], name, at)
            if news is not None:
                found[name] = news
            elif due_at < NEVER:
                known.to_look_at.add(name)
                next_at = min(next_at, due_at)
        for name, asked in inquiries.items():
            before = found.get(name, DeploymentNews())
            if asked and before is not None:
                found[name] = attrs.evolve(before, inquiries=tuple(asked))
        if any(news is not None and news.status is not None for news in found.values()):
            self._told_at = {each: told_at for each, told_at in self._told_at.items() if told_at > at - TELL_EVERY_S}
            self._told_at[process] = at
        return found, next_at

    def _news(self, process: str, seen: Seen, name: str, at: float) -> tuple[DeploymentNews | None, float]:
        deployment = self._find(name)
        if deployment is None:  # it is left alone
            return None, NEVER
        routes, status = deployment.routes(), deployment.status()
        new_routes = None
        if routes is not None and (self._epoch, routes[0]) != seen.routes:
            new_routes = ((self._epoch, routes[0]), _asked_by(name, routes[1]))
        new_status = ((self._epoch, status[0]), status[1]) if status and (self._epoch, status[0]) != seen.status else None
        if new_status is None:
            return (DeploymentNews(new_routes), at) if new_routes is not None else (None, NEVER)
        told_at = self._told_at.get(process, -NEVER)
        due_at = is_due(self._waits(process, name, at), seen.refuses, new_routes is not None, told_at, at)
        return (DeploymentNews(new_routes, new_status), at) if due_at <= at else (None, due_at)

    def _waits(self, process: str, name: str, at: float) -> bool:
        reporter = self._demands.reporters.get(process)
        if reporter is None:
            return False
        count, heard_at = reporter.waiting.get(name, (0, -NEVER))
        return bool(count) and at < heard_at + COUNTS_S


def _asked_by(name: str, routes: Routes) -> Routes:
    """For a router that has the name that it asks by."""
    return routes if routes.spec.name == name else attrs.evolve(routes, spec=attrs.evolve(routes.spec, name=name))
