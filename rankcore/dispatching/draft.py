"""The working copy of one step: opened from a state, changed by the rules, closed into the next state.

All that goes to a router or to the planner goes through here, so that the three always agree: routes follow what is SERVING
at once (D6), whatever a router does with a request is entered with the request (D3), and the planner learns what each
replica has in flight (D8).
"""

from collections.abc import Callable
from typing import Any

import attrs

from rankcore import kernel
from rankcore.dispatching.alarms import AlarmKind
from rankcore.dispatching.commands import Command, Status, StatusKind, TellCaller, TellReplica
from rankcore.dispatching.notes import FleetNote, FleetNoteKind
from rankcore.dispatching.ranking import Seating, is_hot, unchanged
from rankcore.dispatching.state import FleetState, FleetStep, MoveUnderWay, Note, OpenRequest, Served
from rankcore.events import ClockAdvanced
from rankcore.residency import Phase, ResidencyNoteKind, ResidencyState, Resident, residency_step
from rankcore.residency.commands import WakeAt as WakePlannerAt
from rankcore.residency.events import Event as PlannerEvent
from rankcore.residency.events import ReplicaUsed
from rankcore.routing import RequestId, Route, RoutingNote, RoutingNoteKind, route_step
from rankcore.routing.commands import Dispatch, Fail, Forget, Retry, WakeAt
from rankcore.routing.events import Event as RouterEvent
from rankcore.routing.events import ReplicaLost, RequestCancelled, RoutesChanged
from rankcore.values import ReplicaId

_WAITS = frozenset({RoutingNoteKind.QUEUED, RoutingNoteKind.QUEUED_AGAIN})
_REMOVED = frozenset({ResidencyNoteKind.REMOVED, ResidencyNoteKind.ENDED})
_OVER = frozenset(
    {
        RoutingNoteKind.ANSWERED,
        RoutingNoteKind.REJECTED,
        RoutingNoteKind.FAILED,
        RoutingNoteKind.EXPIRED,
        RoutingNoteKind.CANCELLED,
    }
)


class Draft:
    """A state, open for change, with what a step gives out.

    Attributes:
        touched: Models of which something has changed that the rules have not looked at yet.
        changed: Models that were touched in this step.
        used: Replicas of which the planner is to hear what they have in flight.
        asked: Models that were asked for anew in this step.
        ended: Models that were removed, and of which nothing is left.
        newcomers: Serials of the requests that began to wait in this step, by model: they know nothing of it yet.
    """

    def __init__(self, state: FleetState) -> None:
        self.policy = state.policy
        self.residency = state.residency
        self.models = state.models
        self.requests = state.requests
        self.moves = state.moves
        self.bandwidths = state.bandwidths
        self.alarms = state.alarms
        self.clock = state.clock
        self.serial = state.serial
        self.revision = state.revision
        self.wake_at = state.wake_at
        self.epoch = state.epoch
        self.commands: list[Command] = []
        self.notes: list[Note] = []
        self.touched: set[str] = set()
        self.changed: set[str] = set()
        self.used: set[ReplicaId] = set()
        self.asked: set[str] = set()
        self.ended: set[str] = set()
        self.newcomers: dict[str, set[int]] = {}

    def close(self) -> FleetStep:
        """The next state. Asks for the clock where something is due before it was asked for."""
        next_at = self.alarms.next_at
        if next_at is not None and (self.wake_at is None or next_at < self.wake_at or self.wake_at <= self.clock):
            self.wake_at = next_at
            self.commands.append(WakeAt(next_at))
        state = FleetState(
            policy=self.policy,
            residency=self.residency,
            models=self.models,
            requests=self.requests,
            moves=self.moves,
            bandwidths=self.bandwidths,
            alarms=self.alarms,
            clock=self.clock,
            serial=self.serial,
            revision=self.revision,
            wake_at=self.wake_at,
            epoch=self.epoch,
        )
        return kernel.Step(state, tuple(each for each in self.commands if self._reaches(each)), tuple(self.notes))

    def _reaches(self, command: Command) -> bool:
        """Whether somebody is there to be told: who was HOT earlier in this step may be lost by now."""
        return not isinstance(command, TellReplica) or is_hot(self.residency, command.replica_id)

    def note(
        self,
        kind: FleetNoteKind,
        rule: str,
        model: str | None = None,
        *,
        request_id: RequestId | None = None,
        replica_id: ReplicaId | None = None,
        because: str = "",
    ) -> None:
        """Record one decision and its cause."""
        self.notes.append(FleetNote(kind, rule, model, request_id, replica_id, because=because))

    def update(self, model: str, **changes: Any) -> Served:
        """Change how a model stands."""
        served: Served = attrs.evolve(self.models[model], **changes)
        self.models = self.models.set(model, served)
        return served

    def set_alarm(self, kind: AlarmKind, model: str, at: float | None) -> None:
        """Look at something at this time; None: at no time."""
        self.alarms = self.alarms.set(kind, model, at)

    # -- the routers

    def route(self, model: str, event: RouterEvent, instead: Fail | None = None) -> None:
        """Tell the router of a model; what it does with each request is entered with the request.

        Args:
            instead: The final answer to a request that is taken away from its router, in place of Forget.
        """
        before = self.models[model].router
        about = [event.request_id] if hasattr(event, "request_id") else []
        if isinstance(event, ReplicaLost):
            about += before.flights_on(event.replica_id)
        self.used.update(each for each in map(before.replica_of, about) if each is not None)
        router, commands, notes = route_step(before, event)
        self.update(model, router=router)
        for command in commands:
            if isinstance(command, WakeAt):
                self.set_alarm(AlarmKind.ROUTER, model, command.at)
                continue
            if isinstance(command, (Dispatch, Retry)):
                self.used.add(command.replica_id)
            self.commands.append(instead if instead is not None and isinstance(command, Forget) else command)  # type: ignore[arg-type]
        for note in notes:
            if instead is None or note.kind is not RoutingNoteKind.CANCELLED:
                self.notes.append(note)
            if note.request_id is not None:
                about.append(note.request_id)
                self._follow(model, note)
        for request_id in about:
            if request_id in self.requests and not router.knows(request_id):
                self.requests = self.requests.delete(request_id)
        self.touched.add(model)

    def _follow(self, model: str, note: RoutingNote) -> None:
        """Enter what a router did with a request."""
        request_id = note.request_id
        assert request_id is not None
        request = self.requests[request_id]
        if note.kind in _WAITS:
            self._enter(request_id, attrs.evolve(request, waits=True))
        elif note.kind is RoutingNoteKind.CHOSEN:
            knows_that_it_waits = request.waits and request.serial not in self.newcomers.get(model, ())
            self._enter(request_id, attrs.evolve(request, waits=False))
            if knows_that_it_waits:
                self.tell(request_id, Status(StatusKind.READY, model, because=f"{note.replica_id} has it"))
        elif note.kind in _OVER:
            self._enter(request_id, attrs.evolve(request, waits=False, answered=True))

    def _enter(self, request_id: RequestId, request: OpenRequest) -> None:
        self.requests = self.requests.set(request_id, request)
        waiting = self.models[request.model].waiting
        if request.waits:
            self.newcomers.setdefault(request.model, set()).add(request.serial)
            self.update(request.model, waiting=waiting.set(request.serial, request_id))
        elif request.serial in waiting:
            self.newcomers.get(request.model, set()).discard(request.serial)
            self.update(request.model, waiting=waiting.delete(request.serial))

    def tell(self, request_id: RequestId, status: Status) -> None:
        """Tell a caller how its request stands (D5)."""
        self.revision += 1
        self.requests = self.requests.set(request_id, attrs.evolve(self.requests[request_id], revision=self.revision))
        self.commands.append(TellCaller(request_id, self.revision, status))

    def fail_waiting(self, model: str, because: str) -> None:
        """Nothing comes of what waits for a model: each is told so, and why (D7)."""
        waiting = self.models[model].waiting
        for serial in sorted(waiting):
            request_id = waiting[serial]
            final = Fail(request_id, None, because)
            self.note(FleetNoteKind.FAILED, "D7", model, request_id=request_id, because=because)
            self.route(model, RequestCancelled(request_id=request_id, at=self.clock), instead=final)

    # -- the planner

    def plan(self, event: PlannerEvent, because: str = "") -> None:
        """Tell the planner; the routes follow at once, before anything else is dispatched (D6).

        Args:
            because: What has become of replicas that are gone now, for those whose requests they had.
        """
        before = self.residency
        # News may be late: what follows from it is decided now, and who became HOT becomes so now. Else its time as HOT would
        # have passed before it served anybody.
        planner = before if event.at >= self.clock else attrs.evolve(before, clock=max(before.clock, self.clock))
        self.residency, commands, notes = residency_step(planner, event)
        self.notes.extend(notes)
        for note in notes:
            if note.cant is not None:
                self.update(note.cant.model, cant=note.cant)
            if note.model is not None and note.kind in _REMOVED:
                self.touched.add(note.model)
                if note.kind is ResidencyNoteKind.ENDED:
                    self.ended.add(note.model)
        for command in commands:
            if isinstance(command, WakePlannerAt):
                self.set_alarm(AlarmKind.PLANNER, "", command.at)
            else:
                self.moves = self.moves.set(command.replica_id, MoveUnderWay(command, self.clock))
                self.commands.append(command)
        if commands or notes or not isinstance(event, ReplicaUsed):
            for model in self._concerned(before):
                self.sync(model, because)

    def _concerned(self, before: ResidencyState) -> list[str]:
        """Models whose routes may have to change, and those that somebody waits for. Looks at every model."""
        return sorted(
            model
            for model, served in self.models.items()
            if not self.residency.serves_as(before, model)
            or served.draining
            or served.demanded
            or (served.waiting and not served.routed)
            or (served.ranking is not None and not unchanged(self.residency, before, model))
        )

    def sync(self, model: str, because: str = "") -> None:
        """Let the routes of a model be its replicas that are SERVING; what those who are gone had in flight is lost.

        Where they have ranks, those that know theirs and run (D12).
        """
        self.touched.add(model)
        self.rank(model)
        served = self.models[model]
        hot, routed = set(self.residency.hot_replicas(model)), set(served.routed)
        if served.ranking is not None:
            hot = {each for each in hot if served.ranking.takes_requests(each, routed=each in routed)}
        if hot != routed:
            added, removed = sorted(hot - routed), sorted(routed - hot)
            draining = sorted({*served.draining, *removed})
            self.update(model, routed=tuple(sorted(hot)), draining=tuple(draining))
            if added:
                self.update(model, failed_until=0.0, failed_because="", cant=None)
            routes = tuple(Route(each) for each in added)
            self.route(model, RoutesChanged(added=routes, removed=tuple(removed), at=self.clock))
        self.see_off(model, because)

    def see_off(self, model: str, because: str = "") -> None:
        """Replicas that are leaving may finish what they have; those that are gone cannot."""
        for replica_id in self.models[model].draining:
            self._see_off(model, replica_id, because)

    def _see_off(self, model: str, replica_id: ReplicaId, because: str) -> None:
        in_flight = len(self.models[model].router.flights_on(replica_id))
        resident = self.residency.replicas.get(replica_id)
        if in_flight and resident is not None and resident.phase is Phase.LEAVING:
            return
        self.update(model, draining=tuple(each for each in self.models[model].draining if each != replica_id))
        if in_flight:
            ends = resident is not None and resident.phase is Phase.SERVING
            reason = because or ("its process is to be ended" if ends else "it has left the GPU")
            why = f"{in_flight} requests were in flight: {reason}"
            self.note(FleetNoteKind.CUT_LOOSE, "D6", model, replica_id=replica_id, because=why)
            self.route(model, ReplicaLost(replica_id=replica_id, reason=reason, at=self.clock))

    # -- the ranks

    def rank(self, model: str, change: Callable[[Seating], None] | None = None) -> None:
        """Let the ranks of a model follow its replicas, and whatever else has happened to them (D12).

        Args:
            change: What has happened. Where it may have changed who runs, `sync` comes next.
        """
        ranking = self.models[model].ranking
        if ranking is None:
            return
        seating = Seating(ranking, self.residency, self.clock)
        if change is not None:
            change(seating)
        self.take_seating(model, seating)

    def take_seating(self, model: str, seating: Seating) -> None:
        """What has become of the ranks of a model."""
        seating.follow()
        self.update(model, ranking=seating.ranking)
        self.set_alarm(AlarmKind.RANKS, model, seating.ranking.deployment.wake_at)
        self.commands.extend(seating.commands)
        self.notes.extend(seating.notes)

    # -- moves and time

    def forget_move(self, replica_id: ReplicaId) -> None:
        """What was answered, or will never be, is forgotten once the planner does not wait for it any more."""
        under_way = self.moves.get(replica_id)
        resident = self.residency.replicas.get(replica_id)
        if under_way is None or (resident is not None and is_moving(resident) and resident.move == under_way.command.move):
            return
        self.moves = self.moves.delete(replica_id)

    def report_use(self) -> None:
        """Tell the planner what replicas have in flight that it counts on (D8)."""
        used, self.used = sorted(self.used), set()
        for replica_id in used:
            resident = self.residency.replicas.get(replica_id)
            if resident is not None and resident.phase is Phase.SERVING:
                in_flight = len(self.models[resident.model].router.flights_on(replica_id))
                self.plan(ReplicaUsed(replica_id=replica_id, in_flight=in_flight, at=self.clock))

    def end_models(self) -> None:
        """Models that were removed, and of which nothing is left, are served no more."""
        for model in sorted(self.ended):
            self.models = self.models.delete(model)
            for kind in AlarmKind:
                self.set_alarm(kind, model, None)
        self.changed -= self.ended

    def pass_time(self, kind: AlarmKind, model: str) -> None:
        """A router, a machine of ranks, or the planner, does what is due."""
        advanced = ClockAdvanced(at=self.clock)
        if kind is AlarmKind.ROUTER:
            self.route(model, advanced)
        elif kind is AlarmKind.RANKS:
            self.rank(model, Seating.pass_time)
            self.sync(model)
        else:
            self.plan(advanced)


def is_moving(resident: Resident) -> bool:
    """Whether its node was told to do something with it, and has not answered."""
    if resident.phase is Phase.LEAVING:
        return not resident.waits_for  # else it is told once there is room for its copy
    return resident.phase is Phase.LOADING or resident.dropping


def model_of(replica_id: ReplicaId) -> str:
    """Whose replica an id of the planner names."""
    return replica_id.rpartition("#")[0]
