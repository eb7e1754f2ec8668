"""A cluster in this process's event loop: `cluster_step` decides, workers and callers here carry it out."""

import asyncio
import logging
from typing import Any, Self

from executors.engine.backend import ClusterBackend, Policies
from executors.engine.clusters import CLUSTER, ClusterRecovered
from executors.engine.journal import Journal
from executors.engine.loop import Loop
from executors.inproc.caller import CallerHere, OnStatus
from executors.inproc.node import WeightsNode
from executors.inproc.workers import RanksHere, WorkersHere
from executors.ray_gpu.errors import UnavailableError
from rankcore.cluster import ApplicationSpec, ClusterState, ClusterStep
from rankcore.cluster.events import ApplyRequested, ClusterEvent, LoadReported, ReportedLoad, WorkerLost
from rankcore.cluster.names import DeploymentId
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
        how: Where to begin: a new cluster, or `begin_again` of an earlier one.
        journal: Where every step is written before its commands are carried out (a `JournalWriter` with `kind=CLUSTER`).
        policies: Runs users' scaling policies; None: there are none.
    """

    def __init__(
        self,
        node: WeightsNode,
        *,
        how: ClusterRecovered = ClusterRecovered(),
        journal: Journal | None = None,
        policies: Policies | None = None,
    ) -> None:
        self._node, self._how, self._journal = node, how, journal
        self._workers = WorkersHere(
            node, lambda: self.state, lambda event: self._backend.tell(event), lambda each: self._stand(each.deployment), lambda: self.now
        )
        self._backend = ClusterBackend(
            self,  # of records: the journal has them
            lambda deployment: RanksHere(deployment, self._workers, lambda name, routes: self._caller(name).route(routes)),
            lambda: self.now,
            policies,
            self._on_news,
            self._workers,
        )
        self._callers: dict[DeploymentId, CallerHere] = {}
        self._reporting = Reporting()
        self._reports = 0
        self._asked: set[tuple[DeploymentId, int]] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._soon: set[str] = set()
        self._closed: Exception | None = None

    async def __aenter__(self) -> Self:
        self._event_loop = asyncio.get_running_loop()
        self._offset_s = self._how.at - self._event_loop.time()
        first = self._how.step()
        self._loop: Loop[ClusterState, ClusterEvent, ClusterStep] = Loop(CLUSTER, self._backend, first.state)
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
        return max(0.0, self._event_loop.time() + self._offset_s)

    def apply(self, *applications: ApplicationSpec, prune: bool = False) -> ClusterStep:
        """Have these applications; the same again changes nothing.

        Raises:
            InvalidSpecError: A deployment has no residency, or the machine refuses it. Nothing has changed.
        """
        for spec in (each for application in applications for each in application.deployments):
            if spec.residency is None:
                raise InvalidSpecError(f"EntrySpec.residency of {spec.deployment}", None, "a ResidencySpec: it runs in this process")
        return self.tell(ApplyRequested(applications=applications, prune=prune, at=self.now))

    def tell(self, event: ClusterEvent) -> ClusterStep:
        """Take one event through the machine; its commands are begun, not awaited. Of what is lost all work here ends.

        Raises:
            RankcoreError: The event is malformed, or refused. Nothing has changed.
            OSError: The journal cannot be written. Nothing has changed.
            UnavailableError: The cluster is closed.
        """
        if self._closed is not None:
            raise self._closed
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
        if self._closed is not None:
            raise self._closed
        found = self.state.find(deployment)
        if len(found) != 1:
            allowed = f"one of {', '.join(found or sorted(self.state.deployments)) or 'none: nothing is deployed'}"
            raise UnknownDeploymentError("deployment", deployment, allowed)
        return await self._caller(found[0]).call(payload, key, timeout_s, on_status)

    def save(self, record: Any, answer: Any) -> None:
        """A record is stored as soon as it is decided: its step stands in the journal before its commands are given out."""
        answer("")

    # -- what happens

    def _on_news(self) -> None:
        self._soonest("news", self._pump)

    def _soonest(self, what: str, act: Any) -> None:
        if what not in self._soon and self._closed is None:
            self._soon.add(what)
            self._event_loop.call_soon(act)

    def _pump(self) -> None:
        self._soon.discard("news")
        while self._closed is None:
            try:
                self._loop.deliver_all()
                return self._look()
            except PlannerFailedError as error:
                LOG.critical("the planner of weights has failed, and this cluster is closed: %s", error, exc_info=error)
                return self._close(error)
            except OSError as error:
                LOG.error("nothing changes until this can be written: %s", error)
                return self._set("alarm", self.now + AGAIN_S, self._on_news)
            except RankcoreError:  # the event is refused, and those behind it are not
                LOG.exception("the core refused an event")

    def _look(self) -> None:
        """Take from the new state what callers are to know, and be back when the machine wants to be woken."""
        deployments = self.state.deployments
        for deployment, caller in tuple(self._callers.items()):
            if deployment in deployments:
                caller.follow(deployments[deployment])
            else:
                del self._callers[deployment]
                self._backend.executors.pop(deployment, None)
                caller.close(UnavailableError(f"{deployment} is deleted"))
        self._set("alarm", self._backend.wake_at, self._on_news)
        self._soonest("load", self._report)

    def _caller(self, deployment: DeploymentId) -> CallerHere:
        if deployment not in self._callers:
            entry = self.state.deployments[deployment]
            self._callers[deployment] = CallerHere(
                entry,
                self._node,
                self._workers.serving,
                lambda: self.now,
                lambda at: at - self._offset_s,
                lambda: self._soonest("load", self._report),
            )
        return self._callers[deployment]

    def _stand(self, deployment: DeploymentId) -> None:
        if deployment in self.state.deployments:
            self._caller(deployment).stand(self.state.deployments[deployment])

    def _set(self, what: str, at: float, act: Any) -> None:
        if what in self._timers:
            self._timers.pop(what).cancel()
        if at < NEVER and self._closed is None:
            self._timers[what] = self._event_loop.call_at(at - self._offset_s, act)

    def _close(self, because: Exception) -> None:
        if self._closed is None:
            self._closed = because
            for timer in self._timers.values():
                timer.cancel()
            for caller in self._callers.values():
                caller.close(because)

    # -- who waits

    def _report(self) -> None:
        """Report how the calls of this process stand, when it is time."""
        self._soon.discard("load")
        waiting = {each: caller.unserved for each, caller in self._callers.items() if caller.unserved}
        samples = {
            each: WaitingSample(caller.waiting, scaling.metrics_interval_s)
            for each, caller in self._callers.items()
            if (scaling := self.state.deployments[each].spec.autoscaling) is not None
        }
        targets = {each: self.state.deployments[each].target for each in waiting}
        asked = {(each, target.number) for each, target in targets.items() if not target.replicas}
        if not asked <= self._asked:
            self._reporting = again(self._reporting)  # who waits for what nobody wants is heard at once: it costs no message
        self._asked = asked
        self._reporting, report, due_at = look(self._reporting, waiting, self.now, samples)
        self._set("load", due_at, self._report)
        if report is None:
            return
        known = {each: self._callers[each] for each in report.waiting if each in self._callers}
        self._tell_load(REPORTER, {each: caller.load for each, caller in known.items()})
        for deployment in samples.keys() & known.keys():
            for replica_id, in_flight in known[deployment].loads_of_replicas.items():
                self._tell_load(replica_id, {deployment: ReportedLoad(in_flight=in_flight)})

    def _tell_load(self, reporter: str, entries: dict[DeploymentId, ReportedLoad]) -> None:
        self._reports += 1
        epoch = self.state.epoch
        self._backend.tell(
            LoadReported(reporter=reporter, incarnation=epoch, seq=self._reports, entries=entries, at=self.now)
        )


def begin_again(state: ClusterState) -> ClusterRecovered:
    """What a cluster begins with whose process has ended, given the state that its journal came to.

    Callers and weights were in that process: what is wanted HOT is loaded again once its nodes have joined.
    """
    records = tuple(entry.outbox.record for _, entry in sorted(state.deployments.items()))
    recovering = tuple(record for _, record in sorted(state.weights.recovering.items()))
    return ClusterRecovered(records=records + recovering, at=state.clock, epoch=state.epoch + 1)
