"""The number of HOT replicas of a model follows its load, down to none (D11)."""

from rankcore.autoscaling import AutoscalerState, AutoscalingSpec, HandleReport, Metrics, ReplicaReport, Report, autoscale
from rankcore.dispatching.alarms import AlarmKind
from rankcore.dispatching.draft import Draft
from rankcore.residency.events import ScaleRequested


def with_spec(before: AutoscalerState | None, spec: AutoscalingSpec | None) -> AutoscalerState | None:
    """The autoscaler that goes by another spec from now on, and keeps what it has heard."""
    if spec is None:
        return None
    return AutoscalerState(spec=spec) if before is None else before.with_spec(spec)


def watch(draft: Draft, model: str) -> None:
    """Look at a model's load again after a while, as long as there is anything to scale."""
    state = draft.models[model].autoscaler
    if state is None or not _is_live(draft, model, state):
        draft.set_alarm(AlarmKind.AUTOSCALER, model, None)
    elif (AlarmKind.AUTOSCALER, model) not in draft.alarms.times:
        draft.set_alarm(AlarmKind.AUTOSCALER, model, draft.clock + state.spec.metrics_interval_s)


def _is_live(draft: Draft, model: str, state: AutoscalerState) -> bool:
    if model not in draft.residency.models or model in draft.residency.removed:
        return False
    return bool(draft.models[model].waiting) or draft.residency.target(model) > 0 or state.spec.min_replicas > 0


def follow_load(draft: Draft, model: str) -> None:
    """Ask the autoscaler what the load calls for; the planner is asked for it as by a user."""
    served = draft.models[model]
    assert served.autoscaler is not None
    target = draft.residency.target(model)
    reports: list[Report] = [
        HandleReport(model, len(served.waiting), draft.clock),
        *(ReplicaReport(each, len(served.router.flights_on(each)), draft.clock) for each in served.routed),
    ]
    metrics = Metrics(target_replicas=target, running=served.routed, reports=reports, stops_move_ranks=False)
    wanted, autoscaler, notes = autoscale(served.autoscaler, metrics, draft.clock)
    draft.notes.extend(notes)
    draft.update(model, autoscaler=autoscaler)
    if wanted is not None and wanted != target:
        draft.update(model, demanded=False)
        draft.plan(ScaleRequested(model=model, replicas=wanted, at=draft.clock))
    draft.touched.add(model)
