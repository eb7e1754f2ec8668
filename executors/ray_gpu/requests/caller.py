"""This process as a controller knows it: one question about all that it calls, and one report of how its calls stand.

The question waits at the controller until something is new. One that is asked since another deployment is called ends the one
before; whatever comes late is told apart by its version. What is reported when, `rankcore.routing.demand` says. Nobody waits
for what becomes of a report: what waits is reported again, and at once to a controller that has begun again.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from executors.ray_gpu import names
from executors.ray_gpu.errors import CallError, NoAnswerError, NotRunningError, UnknownNameError
from executors.ray_gpu.messages import NEVER_SEEN, DeploymentNews, LoadReport, Seen, WatchQuestion
from executors.ray_gpu.requests.actors import connection, find_actor
from executors.ray_gpu.requests.router import Router
from rankcore.routing.demand import NEVER, Reporting, WaitingSample, again, look

LOG = logging.getLogger(__name__)

RETRY_S = 0.1
LOOK_S = 1.0
"""So often it is looked whether Ray was shut down meanwhile."""
SILENT_S = 60.0
"""A controller that has not answered for so long, twice as long as it may think, is asked anew: it may be another by now."""
MISSING_MAX = 10
"""A controller that Ray has not known for so many tries was shut down."""

News = Mapping[str, DeploymentNews | None]


class Questions:
    """What a process asks next: what it has not said yet."""

    def __init__(self, process: str) -> None:
        self._process = process
        self._number = 0
        self._said: dict[str, Seen] | None = None

    def following(self, seen: dict[str, Seen]) -> WatchQuestion:
        """The next one, of a process that knows so much."""
        said, since = self._said or {}, self._number if self._said is not None else 0
        changed = {deployment: each for deployment, each in seen.items() if said.get(deployment) != each}
        self._number += 1
        self._said = seen
        return WatchQuestion(self._process, self._number, since, changed, tuple(each for each in said if each not in seen))

    def forget(self, deployment: str) -> None:
        """It is gone, as the controller has answered: whoever calls it again asks about it anew."""
        if self._said is not None:
            self._said = {each: seen for each, seen in self._said.items() if each != deployment}

    def say_all(self) -> None:
        """The controller may not know what was said."""
        self._said = None


class CallingProcess:
    """Follows what a process's routers are to know, and reports for them. On the routers' event loop.

    Args:
        cluster: The connection to Ray that they belong to: they end with that.
    """

    def __init__(self, namespace: str, cluster: Any) -> None:
        self._namespace = namespace
        self._cluster = cluster
        self._name = uuid.uuid4().hex
        self._routers: dict[str, Router] = {}
        self._is_followed = False
        self._one_more = asyncio.Event()
        self._epoch = -1
        self._questions = Questions(self._name)
        self._reporter = LoadReporter(self._name, self._routers, self._send)
        self._tasks: set[asyncio.Task[None]] = set()

    async def add(self, deployment: str, router: Router) -> None:
        """It is called from now on; returns when nothing is to be followed any more, if nobody did so yet."""
        self._routers[deployment] = router
        router.when_unserved = self._reporter.look_soon
        self._reporter.look_soon()
        self._one_more.set()
        if not self._is_followed:
            self._is_followed = True
            await self._follow()

    def remove(self, deployment: str, router: Router) -> None:
        """It is called no more, by this router."""
        if self._routers.get(deployment) is router:
            del self._routers[deployment]
            self._one_more.set()

    async def _follow(self) -> None:
        """Ask the controller what is new, again and again."""
        missing = 0
        while True:
            try:
                await self._ask()
            except Exception as error:  # the controller is down, or Ray is
                if connection() is not self._cluster:
                    return self.close(CallError("Ray was shut down"))
                # Ray knows the name of a controller as long as it restarts it.
                missing = missing + 1 if isinstance(error, ValueError) else 0
                if missing > MISSING_MAX:
                    missing = 0
                    self.close(NotRunningError(f"nothing runs in namespace {self._namespace!r} any more"))
                self._questions.say_all()
                LOG.debug("no news of %s: %s", ", ".join(self._routers), error)
                await asyncio.sleep(RETRY_S)
            else:
                missing = 0

    async def _ask(self) -> None:
        """Ask, and learn the answer; or return since there is more to ask for.

        Raises:
            NotRunningError: Ray was shut down.
            NoAnswerError: The controller is silent.
            Exception: It is down.
        """
        if not self._routers:
            self._one_more.clear()
            return await self._until_looked(None)
        controller = await find_actor(names.CONTROLLER, self._namespace, self._cluster)
        self._one_more.clear()
        question = self._questions.following({deployment: router.seen for deployment, router in self._routers.items()})
        # Not repeated by Ray, which says so aloud: we ask again ourselves.
        if hasattr(controller, "watch"):
            future = controller.watch.options(max_task_retries=0).remote(question).future()
        else:  # it was created without it
            future = controller.routes.options(max_task_retries=0).remote(question, NEVER_SEEN).future()
        answer: asyncio.Future[News | None] = asyncio.wrap_future(future)
        answer.add_done_callback(self._answered)
        began = time.monotonic()
        while not answer.done() and not self._one_more.is_set():
            if time.monotonic() - began > SILENT_S:
                raise NoAnswerError(f"the controller of namespace {self._namespace!r} has not answered for {SILENT_S:g} s")
            await self._until_looked(answer)
        if answer.done():
            answer.result()

    async def _until_looked(self, answer: "asyncio.Future[News | None] | None") -> None:
        """Wait for the answer, or for more to ask for, but not for so long that the end of Ray is overlooked."""
        if connection() is not self._cluster:
            raise NotRunningError("Ray was shut down")  # which tells nobody who waits for an answer
        more = asyncio.get_running_loop().create_task(self._one_more.wait())
        either: list[asyncio.Future[Any]] = [more] if answer is None else [more, answer]
        await asyncio.wait(either, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
        more.cancel()

    def _answered(self, answer: "asyncio.Future[News | None]") -> None:
        """An answer has come, perhaps long after we gave up."""
        if answer.cancelled() or answer.exception() is not None or (news := answer.result()) is None:
            self._questions.say_all()
        else:
            self._learn(news)

    def _learn(self, news: News) -> None:
        for deployment, each in news.items():
            router = self._routers.get(deployment)
            if router is None:
                continue
            if each is None:
                del self._routers[deployment]
                self._questions.forget(deployment)
                router.close(UnknownNameError(f"deployment {deployment} does not exist (any more)"))
                continue
            try:
                router.learn(each)
            except Exception:  # a mistake of ours: the next news may be better
                LOG.exception("%s: the news cannot be followed", deployment)
            for inquiry in each.inquiries:
                self._later(self._tell_waiting(inquiry.number, deployment, router.asked(inquiry)))
            epoch = max(router.seen.routes, router.seen.status)[0]
            if epoch > self._epoch:
                self._epoch = epoch
                self._reporter.begin_again()

    def close(self, error: Exception) -> None:
        """There is nobody to call any more, or this process ends: its calls fail with this error."""
        for router in self._routers.values():
            router.close(error)
        self._routers.clear()

    async def _tell_waiting(self, number: int, deployment: str, calls: list[dict[str, Any]]) -> None:
        """What somebody wanted to know of the calls that wait here."""
        try:
            controller = await find_actor(names.CONTROLLER, self._namespace, self._cluster)
            controller.tell_waiting.options(max_task_retries=0).remote(number, self._name, deployment, calls)
        except Exception as error:  # the controller is down, or Ray is: whoever asked gives up
            LOG.debug("what waits for %s was not told: %s", deployment, error)

    def _send(self, report: LoadReport) -> None:
        self._later(self._send_now(report))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_now(self, report: LoadReport) -> None:
        try:
            controller = await find_actor(names.CONTROLLER, self._namespace, self._cluster)
            if hasattr(controller, "report_load"):
                controller.report_load.options(max_task_retries=0).remote(report)
            else:  # it was created without it
                controller.hear_load.options(max_task_retries=0).remote(report, report.process, 0)
        except Exception as error:  # the controller is down, or Ray is
            LOG.debug("the load was not reported: %s", error)


class LoadReporter:
    """Says how the calls of a process stand, when it is time. On the routers' event loop.

    Args:
        process: Its name.
        routers: Those of the process, by deployment.
    """

    def __init__(self, process: str, routers: Mapping[str, Router], send: Callable[[LoadReport], None]) -> None:
        self._process = process
        self._routers = routers
        self._send = send
        self._reporting = Reporting()
        self._is_soon = False
        self._alarm: asyncio.TimerHandle | None = None

    def look_soon(self) -> None:
        """Something has changed; what changes in the same turn of the loop is looked at together."""
        if not self._is_soon:
            self._is_soon = True
            asyncio.get_running_loop().call_soon(self._look)

    def begin_again(self) -> None:
        """The controller is another one: what waits is reported at once."""
        self._reporting = again(self._reporting)
        self.look_soon()

    def _look(self) -> None:
        self._is_soon = False
        loop = asyncio.get_running_loop()
        waiting, samples = {}, {}
        for deployment, router in self._routers.items():
            if router.unserved:
                waiting[deployment] = router.unserved
            if router.report_every_s is not None:
                samples[deployment] = WaitingSample(router.waiting, router.report_every_s)
        self._reporting, report, due_at = look(self._reporting, waiting, loop.time(), samples)
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if due_at < NEVER:
            self._alarm = loop.call_at(due_at, self._look)
        if report is not None:
            entries = {each: self._entry(each, count) for each, count in report.waiting.items()}
            self._send(LoadReport(self._process, 1, report.seq, entries))

    def _entry(self, deployment: str, waiting: int) -> dict[str, float]:
        router = self._routers.get(deployment)
        return {**(router.load if router is not None else {}), "waiting": waiting}
