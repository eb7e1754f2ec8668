"""A cluster in this process's event loop: `cluster_step` decides, workers and callers here carry it out.

Records are stored as soon as they are decided: a step stands in the journal before any of its commands is given out, so where
there is a journal, `begin_again` has them from there, and where there is none, nothing outlives the process anyway.
"""

import asyncio
import logging
from collections.abc import Callable
from copy import copy
from typing import Any, Self

from executors.engine.backend import ClusterBackend, Policies
from executors.engine.clusters import CLUSTER, ClusterBeginning, ClusterRecovered
from executors.engine.journal import Journal
from executors.engine.loop import ClusterLoop
from executors.inproc.caller import CallerHere, OnStatus
from executors.inproc.node import WeightsNode
from executors.inproc.workers import RanksHere, WorkersHere
from executors.ray_gpu.errors import UnavailableError
from rankcore.cluster import ApplicationSpec, ClusterState, ClusterStep
from rankcore.cluster.commands import PublishAvailability
from rankcore.cluster.events import ApplyRequested, ClusterEvent, LoadReported, ReportedLoad, WorkerLost
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.records import Record
from rankcore.commands import PublishRoutes
from rankcore.errors import InvalidSpecError, PlannerFailedError, RankcoreError, UnknownDeploymentError
from rankcore.events import NodeLost
from rankcore.routing.demand import NEVER, Reporting, WaitingSample, again, look

LOG = logging.getLogger(__name__)
AGAIN_S = 1.0
"""After which a step is tried again that the journal did not take."""
REPORTER = "this process"


class InprocCluster:
    """One cluster, its callers, and the node that has the weights.

    Use it in one event loop, as a context manager. `tell` takes the events of `rankcore.cluster.events` that users and nodes
    have to tell; their `at` is `now`. Weights and callers end with the process, and what users want outlives it where a journal
    is kept: see `begin_again`. Every deployment has residency.

    Args:
        node: Has the weights.
        how: Where to begin: `begin_again` of an earlier cluster; None: a new one.
        journal: Where every step is written before its commands are carried out (a `JournalWriter` with `kind=CLUSTER`).
        policies: Runs users' scaling policies; None: there are none.
    """

    def __init__(
        self,
        node: WeightsNode,
        *,
        how: ClusterBeginning | None = None,
        journal: Journal | None = None,
        policies: Policies | None = None,
    ) -> None:
        self._node, self._journal = node, journal
        self._how = how if how is not None else ClusterRecovered()
        self._workers = WorkersHere(node, self._state_now, self._told, self._stand, self._now)
        self._backend = ClusterBackend(self, self._ranks_of, self._now, policies, self._on_news, self._workers)
        self._callers: dict[DeploymentId, CallerHere] = {}
        self._reporting = Reporting()
        self._reports = 0
        self._asked: set[tuple[DeploymentId, int]] = set()
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}
        self._soon: set[Callable[[], None]] = set()
        self._closed: Exception | None = None

    async def __aenter__(self) -> Self:
        self._event_loop = asyncio.get_running_loop()
        self._offset_s = self._how.at - self._event_loop.time()
        first = self._how.step()
        self._loop = ClusterLoop(CLUSTER, self._backend, first.state)
        self._loop.start(self._how, first, self._journal)
        self._look()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Calls that wait fail, and nothing goes on."""
        self._close(UnavailableError("the cluster was closed before there was an answer"))
        await self._workers.aclose()

    @property
    def state(self) -> ClusterState:
        """As the machine has it."""
        return self._loop.state

    @property
    def now(self) -> float:
        """Seconds on the cluster's clock, which goes on from that of `how`."""
        return self._event_loop.time() + self._offset_s

    def apply(self, *applications: ApplicationSpec, prune: bool = False) -> ClusterStep:
        """Have these applications; the same again changes nothing.

        Raises:
            InvalidSpecError: A deployment has no residency, or the machine refuses it. Nothing has changed.
        """
        for spec in (each for application in applications for each in application.deployments):
            if spec.residency is None:
                raise InvalidSpecError(f"EntrySpec.residency of {spec.deployment}", None, "a ResidencySpec, in one process")
        return self.tell(ApplyRequested(applications=applications, prune=prune, at=self.now))

    def tell(self, event: ClusterEvent) -> ClusterStep:
        """Take one event through the machine; its commands are begun, not awaited. Of what is lost all work here ends.

        Raises:
            RankcoreError: The event is malformed, or refused. Nothing has changed.
            OSError: The journal cannot be written. Nothing has changed.
            UnavailableError: The cluster is closed.
        """
        self._check_open()
        try:
            step = self._loop.deliver(event)
        except PlannerFailedError as error:
            self._close(error)
            raise
        if isinstance(event, NodeLost | WorkerLost):
            self._workers.lost(event)
        self._look()
        return step

    async def call(
        self,
        deployment: str,
        payload: Any,
        *,
        key: str | None = None,
        timeout_s: float | None = None,
        on_status: OnStatus | None = None,
    ) -> Any:
        """Ask a deployment, wherever its weights are. Cancelling it withdraws the call.

        Args:
            deployment: `application/deployment`, or the deployment's name alone where there is one only.
            key: Calls of one key go to one replica, where its routing says "affinity".
            timeout_s: When the caller no longer waits; None: as its routing says.
            on_status: Called with how it stands, and whenever that changes, until there is an answer.

        Raises:
            UnknownDeploymentError: There is none of this name, or there are several.
            OverloadedError: Too many wait.
            DeadlineError: It was not answered in time.
            UnavailableError: Nobody serves it, nor is about to; or the cluster was closed.
            ReplicaGoneError: Its replica was lost, or had to leave, while it ran.
            Exception: Whatever the model raised.
        """
        self._check_open()
        found = self.state.find(deployment)
        if len(found) != 1:
            allowed = f"one of {', '.join(found or sorted(self.state.deployments)) or 'none: nothing is deployed'}"
            raise UnknownDeploymentError("deployment", deployment, allowed)
        return await self._caller(found[0]).call(payload, key, timeout_s, on_status)

    def save(self, _: Record, answer: Callable[[str], None]) -> None:
        """Store a record: it is, with its step."""
        answer("")

    # -- what happens

    def _pump(self) -> None:
        self._soon.discard(self._pump)
        while self._closed is None:
            try:
                self._loop.deliver_all()
                return self._look()
            except PlannerFailedError as error:
                LOG.critical("the planner of weights has failed, and this cluster is closed: %s", error, exc_info=error)
                return self._close(error)
            except OSError as error:
                LOG.error("nothing changes until this can be written: %s", error)
                return self._act_at(self.now + AGAIN_S, self._pump)
            except RankcoreError:  # the event is refused, and those behind it are not
                LOG.exception("the core refused an event")

    def _look(self) -> None:
        """Take from the new state what callers are to know, and be back when the machine wants to be woken."""
        deployments = self.state.deployments
        for deployment in [each for each in self._callers if each not in deployments]:
            self._backend.executors.pop(deployment, None)
            self._callers.pop(deployment).close(UnavailableError(f"{deployment} is deleted"))
        for deployment, caller in self._callers.items():
            caller.follow(deployments[deployment])
        self._act_at(self._backend.wake_at, self._pump)
        self._act_soon(self._report)

    def _on_news(self) -> None:
        self._act_soon(self._pump)

    def _act_soon(self, act: Callable[[], None]) -> None:
        if act not in self._soon and self._closed is None:
            self._soon.add(act)
            self._event_loop.call_soon(act)

    def _act_at(self, at: float, act: Callable[[], None]) -> None:
        if act in self._timers:
            self._timers.pop(act).cancel()
        if at < NEVER and self._closed is None:
            self._timers[act] = self._event_loop.call_at(at - self._offset_s, act)

    def _check_open(self) -> None:
        if self._closed is not None:
            raise copy(self._closed)

    def _close(self, because: Exception) -> None:
        if self._closed is None:
            self._closed = because
            for timer in self._timers.values():
                timer.cancel()
            for caller in self._callers.values():
                caller.close(because)

    # -- for workers and callers

    def _now(self) -> float:
        return self.now

    def _state_now(self) -> ClusterState:
        return self.state

    def _told(self, event: ClusterEvent) -> None:
        self._backend.tell(event)

    def _ranks_of(self, deployment: DeploymentId) -> RanksHere:
        return RanksHere(deployment, self._workers, self._route)

    def _caller(self, deployment: DeploymentId) -> CallerHere:
        if deployment not in self._callers:
            entry = self.state.deployments[deployment]
            self._callers[deployment] = CallerHere(entry, self._node, self._workers.serving, self._now, self._on_unserved)
        return self._callers[deployment]

    def _route(self, deployment: DeploymentId, routes: PublishRoutes) -> None:
        if deployment in self.state.deployments:  # else it is gone with this very step
            self._caller(deployment).route(routes)

    def _stand(self, published: PublishAvailability) -> None:
        if published.deployment in self.state.deployments:
            self._caller(published.deployment).stand(self.state.deployments[published.deployment])

    # -- who waits

    def _on_unserved(self) -> None:
        self._act_soon(self._report)

    def _report(self) -> None:
        """Report how the calls of this process stand, when it is time."""
        self._soon.discard(self._report)
        deployments = self.state.deployments
        waiting, samples, asked = {}, {}, set()
        for deployment, caller in self._callers.items():
            entry = deployments[deployment]
            if caller.unserved:
                waiting[deployment] = caller.unserved
                if not entry.target.replicas:
                    asked.add((deployment, entry.target.number))
            if entry.spec.autoscaling is not None:
                samples[deployment] = WaitingSample(caller.waiting, entry.spec.autoscaling.metrics_interval_s)
        if not asked <= self._asked:
            self._reporting = again(self._reporting)  # who waits for what nobody wants is heard at once: it costs no message
        self._asked = asked
        self._reporting, report, due_at = look(self._reporting, waiting, self.now, samples)
        self._act_at(due_at, self._report)
        if report is None:
            return
        known = {each: self._callers[each] for each in report.waiting if each in self._callers}
        self._report_load(REPORTER, {each: caller.load for each, caller in known.items()})
        for deployment in samples.keys() & known.keys():
            for replica_id, in_flight in known[deployment].loads_of_replicas.items():
                self._report_load(replica_id, {deployment: ReportedLoad(in_flight=in_flight)})

    def _report_load(self, reporter: str, entries: dict[DeploymentId, ReportedLoad]) -> None:
        self._reports += 1
        incarnation, seq = self.state.epoch, self._reports
        self._told(LoadReported(reporter=reporter, incarnation=incarnation, seq=seq, entries=entries, at=self.now))


def begin_again(state: ClusterState) -> ClusterRecovered:
    """What a cluster begins with whose process has ended, given the state that its journal came to.

    Callers and weights were in that process: what is wanted HOT is loaded again once its nodes have joined.
    """
    records = tuple(entry.outbox.record for _, entry in sorted(state.deployments.items()))
    recovering = tuple(record for _, record in sorted(state.weights.recovering.items()))
    return ClusterRecovered(records=records + recovering, at=state.clock, epoch=state.epoch + 1)
