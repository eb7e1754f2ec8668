"""The machine: what becomes of a fleet when something has happened. One function an event; the rules have modules."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from rankcore import kernel
from rankcore.dispatching import loads, scaling
from rankcore.dispatching.alarms import Alarm, AlarmKind
from rankcore.dispatching.draft import Draft, model_of
from rankcore.dispatching.events import (
    AttemptNews,
    ControllerTookOver,
    Event,
    LoadProgressed,
    ModelRequested,
    Placing,
    ReplicaSaid,
    ServingChanged,
)
from rankcore.dispatching.notes import FleetNoteKind
from rankcore.dispatching.provisioning import REMOVED, provide, try_again
from rankcore.dispatching.ranking import Seating
from rankcore.dispatching.spec import ServingSpec
from rankcore.dispatching.standing import tell_waiting
from rankcore.dispatching.state import FleetState, FleetStep, OpenRequest, Served
from rankcore.errors import InvalidEventError
from rankcore.events import ClockAdvanced, ReplicaStartFailed
from rankcore.residency.events import (
    DeployRequested,
    EvictRequested,
    LoadFailed,
    LoadFinished,
    MemoryMeasured,
    NodeJoined,
    NodeLost,
    OffloadFailed,
    OffloadFinished,
    RemoveRequested,
    ReplicaLost,
    ScaleRequested,
    UsageReported,
)
from rankcore.routing import FailureKind, RoutingSpec, open_router
from rankcore.routing.commands import Fail
from rankcore.routing.events import AnswerBegun, RequestCancelled, RequestDone, RequestFailed, RoutingSpecChanged


def fleet_step(state: FleetState, event: Event) -> FleetStep:
    """Apply one event: a request, news of one, of a node or of a load, or what somebody wants.

    A request costs O(log N) plus the size of what it changes: those who wait for a model whose status changes. Other news
    looks at each model once.

    Raises:
        InvalidEventError: It is no event of a fleet, or speaks of a model that nobody has deployed. `state` is as it was.
    """
    handler = kernel.handler_of(HANDLERS, event, "an event of rankcore.dispatching.events")
    draft = Draft(state)
    draft.clock = max(draft.clock, event.at)
    _do_what_is_due(draft)
    handler(draft, event)
    _settle(draft)
    return draft.close()


def _do_what_is_due(draft: Draft) -> None:
    """Time first: deadlines, room, loads to be tried again, idle replicas."""
    due: list[Alarm] = []
    for alarm in draft.alarms.order:
        if alarm.at > draft.clock:
            break
        due.append(alarm)
    for alarm in due:
        if alarm.kind is AlarmKind.ROOM:
            draft.touched.add(alarm.model)  # `provide` sees that it is due
            continue
        draft.set_alarm(alarm.kind, alarm.model, None)
        if alarm.kind is AlarmKind.AUTOSCALER:
            scaling.follow_load(draft, alarm.model)
        else:
            draft.pass_time(alarm.kind, alarm.model)


def _settle(draft: Draft) -> None:
    """Let routers and planner agree, and ask for what requests wait for, until nothing changes; then tell who waits."""
    while draft.touched or draft.used:
        draft.report_use()
        models, draft.touched = sorted(draft.touched), set()
        draft.changed.update(models)
        for model in models:
            draft.see_off(model)
            provide(draft, model)
    draft.end_models()
    for model in sorted(draft.changed):
        scaling.watch(draft, model)
        tell_waiting(draft, model)


# -- requests


def _on_model_requested(draft: Draft, event: ModelRequested) -> None:
    if event.request_id in draft.requests:
        why = "a request of this id is known"
        draft.note(FleetNoteKind.LATE, "D1", event.model, request_id=event.request_id, because=why)
        return
    served = draft.models.get(event.model)
    if event.begun and served is not None and not served.spec.routing.idempotent:
        why = "the fleet was lost while the request ran; it may have had its effect"
        draft.note(FleetNoteKind.FAILED, "D6", event.model, request_id=event.request_id, because=why)
        draft.commands.append(Fail(event.request_id, FailureKind.LOST, why))
        return
    because = _why_not(draft, event.model)
    if because is not None:
        draft.note(FleetNoteKind.FAILED, "D7", event.model, request_id=event.request_id, because=because)
        draft.commands.append(Fail(event.request_id, None, because))
        return
    draft.serial += 1
    draft.requests = draft.requests.set(event.request_id, OpenRequest(event.model, draft.serial))
    draft.route(event.model, event.arrival())
    if not draft.models[event.model].routed:
        try_again(draft, event.model)


def _why_not(draft: Draft, model: str) -> str | None:
    """Why nothing is even tried for a request; None: it may wait."""
    if model in draft.residency.removed:
        return REMOVED.format(model)
    if model not in draft.residency.models:
        return f"there is no model {model!r}: nobody has deployed it"
    served = draft.models[model]
    if draft.clock < served.failed_until:
        return served.failed_because
    return None


def _on_attempt_news(draft: Draft, event: AttemptNews) -> None:
    request = draft.requests.get(event.request_id)
    if request is None:
        why = f"{type(event).__name__} of a request that is over, or never was"
        draft.note(FleetNoteKind.LATE, "D1", request_id=event.request_id, because=why)
        return
    draft.route(request.model, event)


# -- what somebody wants


def _on_deploy_requested(draft: Draft, event: DeployRequested) -> None:
    """As the planner does it, with `turn_s` as the least time that a model has the GPU."""
    least_s = draft.policy.turn_s
    wanted = tuple(
        each if each.spec.min_hot_s >= least_s else replace(each, spec=replace(each.spec, min_hot_s=least_s))
        for each in event.wanted
    )
    for each in wanted:
        if each.spec.model not in draft.models:
            _serve(draft, ServingSpec(routing=RoutingSpec(name=each.spec.model)))
        _is_wanted(draft, each.spec.model)
    _on_placing(draft, replace(event, wanted=wanted))


def _on_scale_requested(draft: Draft, event: ScaleRequested) -> None:
    _on_placing(draft, event)
    _is_wanted(draft, event.model)


def _is_wanted(draft: Draft, model: str) -> None:
    """Somebody has said how many there should be: they are not there for who waits alone, and failures count anew."""
    draft.update(model, demanded=False, failed_until=0.0, failed_because="")
    draft.touched.add(model)


def _on_remove_requested(draft: Draft, event: RemoveRequested) -> None:
    """Whoever waits for the model is told so; what its replicas have in flight may be finished, and then all of it ends."""
    _on_placing(draft, event)
    if event.model in draft.models and event.model not in draft.residency.models:
        draft.ended.add(event.model)


def _on_serving_changed(draft: Draft, event: ServingChanged) -> None:
    spec = event.spec
    served = draft.models.get(spec.model)
    if served is not None and served.ranking is not None and spec.ranks is None:
        allowed = f"a RankSpec: the replicas of {spec.model!r} have ranks, and keep them"
        raise InvalidEventError("ServingChanged.spec.ranks", None, allowed)
    if served is None:
        _serve(draft, spec)
    else:
        draft.update(spec.model, spec=spec, autoscaler=scaling.with_spec(served.autoscaler, spec.autoscaling))
        _rank_otherwise(draft, served.ranking is not None, spec)
        draft.route(spec.model, RoutingSpecChanged(spec=spec.routing, at=draft.clock))


def _serve(draft: Draft, spec: ServingSpec) -> None:
    served = Served(spec, open_router(spec.routing, at=draft.clock), scaling.with_spec(None, spec.autoscaling))
    draft.models = draft.models.set(spec.model, served)
    draft.touched.add(spec.model)
    _rank_otherwise(draft, False, spec)


def _rank_otherwise(draft: Draft, has_ranks: bool, spec: ServingSpec) -> None:
    """The replicas of a model get ranks, or other settings of them."""
    ranks = spec.ranks
    if ranks is None:
        return
    if has_ranks:
        draft.rank(spec.model, lambda seating: seating.configure(ranks))
    else:
        draft.take_seating(spec.model, Seating.begin(ranks, spec.model, draft.residency, draft.clock, draft.epoch))
    draft.sync(spec.model)


# -- news of nodes and weights


def _on_load_finished(draft: Draft, event: LoadFinished) -> None:
    loads.measure(draft, event)
    _on_move_answered(draft, event)


def _on_move_answered(draft: Draft, event: LoadFinished | LoadFailed | OffloadFinished | OffloadFailed) -> None:
    draft.plan(event)
    draft.forget_move(event.replica_id)


def _on_placing(draft: Draft, event: Placing) -> None:
    """Some moves may never be answered then, or are not waited for any more."""
    draft.plan(event, _why_gone(event))
    for replica_id in tuple(draft.moves):
        draft.forget_move(replica_id)


def _why_gone(event: Placing) -> str:
    """What has become of replicas that were routed before."""
    if isinstance(event, NodeLost):
        return f"node {event.node_id} was lost"
    return event.reason if isinstance(event, ReplicaLost) else ""


# -- news of ranks


def _on_replica_said(draft: Draft, event: ReplicaSaid) -> None:
    """About the seat that it has; whose start has failed is gone, and planned anew."""
    replica_id, news = event.replica_id, event.news
    model = model_of(replica_id)
    served = draft.models.get(model)
    if served is None or served.ranking is None or served.ranking.seats.get(replica_id) != news.replica_id:
        why = f"{type(news).__name__} of {news.replica_id}, which is not its seat"
        draft.note(FleetNoteKind.LATE, "D12", model, replica_id=replica_id, because=why)
        return
    draft.rank(model, lambda seating: seating.hear(replica_id, news))
    draft.sync(model)
    if isinstance(news, ReplicaStartFailed):
        _on_placing(draft, ReplicaLost(replica_id=replica_id, reason=news.reason, at=draft.clock))


def _on_controller_took_over(draft: Draft, event: ControllerTookOver) -> None:
    """Ranks are learnt from the replicas (R10); who has had requests goes on with them."""
    if event.epoch <= draft.epoch:
        why = f"epoch {event.epoch}, and it is {draft.epoch} already"
        draft.note(FleetNoteKind.LATE, "D12", because=why)
        return
    draft.epoch = event.epoch
    for model in sorted(draft.models):
        if draft.models[model].ranking is not None:
            draft.rank(model, lambda seating: seating.take_over(event.epoch))
            draft.sync(model)


def _on_clock_advanced(_draft: Draft, _event: ClockAdvanced) -> None:
    """All is done by then: a step begins with what is due."""


HANDLERS: dict[type[Any], Callable[[Draft, Any], None]] = {
    ModelRequested: _on_model_requested,
    AnswerBegun: _on_attempt_news,
    RequestDone: _on_attempt_news,
    RequestFailed: _on_attempt_news,
    RequestCancelled: _on_attempt_news,
    DeployRequested: _on_deploy_requested,
    ScaleRequested: _on_scale_requested,
    ServingChanged: _on_serving_changed,
    EvictRequested: _on_placing,
    RemoveRequested: _on_remove_requested,
    NodeJoined: _on_placing,
    NodeLost: _on_placing,
    MemoryMeasured: _on_placing,
    UsageReported: _on_placing,
    ReplicaLost: _on_placing,
    LoadProgressed: loads.progressed,
    LoadFinished: _on_load_finished,
    LoadFailed: _on_move_answered,
    OffloadFinished: _on_move_answered,
    OffloadFailed: _on_move_answered,
    ReplicaSaid: _on_replica_said,
    ControllerTookOver: _on_controller_took_over,
    ClockAdvanced: _on_clock_advanced,
}
