"""The autoscaler of each deployment as a part of the cluster: loads come in, the target follows.

A user's policy is code that may do anything, so it is no part of this machine: it is asked with `AskPolicy`, and what it says
comes back as an event, which stands in the journal. The autoscaler (`rankcore.autoscaling`) asks its policy in the middle of a
decision. So a decision with a user's policy is made twice: once to see whether the policy would be asked, and what it would be
shown; once more, from the same state, reports and time, with the answer.

The answer carries the number of the target that it was shown. Where the target was written meanwhile, it is dropped, and what
was reported is looked at again the next time.
"""

from functools import partial
from typing import TypeAlias

import attrs
from msgspec import Struct
from msgspec.structs import replace

from rankcore.autoscaling.core import Decision, autoscale
from rankcore.autoscaling.policies import Policy, View, ongoing_requests
from rankcore.autoscaling.reports import HandleReport, Metrics, ReplicaReport
from rankcore.autoscaling.state import AutoscalerState
from rankcore.cluster import targets
from rankcore.cluster.commands import AskPolicy
from rankcore.cluster.draft import ClusterDraft
from rankcore.cluster.events import LoadReported, PolicyAnswered, ReportedLoad
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.notes import ClusterNoteKind
from rankcore.cluster.records import Cause
from rankcore.cluster.spec import EntrySpec
from rankcore.cluster.state import Entry, Question, Reporter, Scaler
from rankcore.frozen import EMPTY, FrozenJson, PMap

Reports: TypeAlias = tuple[HandleReport | ReplicaReport, ...]

POLICY_S = 5.0
"""How long a user's policy may take."""
REPORTER_KEPT_S = 600.0
"""A process that was silent for so long is gone: what still comes of it counts as the first of another one."""


class LookAtLoad(Struct, frozen=True, gc=False):
    """For the autoscaler of a deployment: it is time to decide, or a policy has not answered in time."""


def follow_spec(scaler: Scaler | None, spec: EntrySpec, at: float) -> Scaler | None:
    """The autoscaler of a deployment after another spec is applied; what it has heard is kept."""
    wanted = spec.autoscaling
    if wanted is None:
        return None
    if scaler is None:
        return Scaler(AutoscalerState(spec=wanted, at=at), at + wanted.metrics_interval_s)
    return scaler if scaler.core.spec == wanted else replace(scaler, core=scaler.core.with_spec(wanted), decides_at=at)


def due_of(scaler: Scaler) -> float:
    """When the autoscaler is to be asked next."""
    return scaler.decides_at if scaler.question is None else scaler.question.due_at


def on_load_reported(draft: ClusterDraft, event: LoadReported) -> bool:
    """Keep the newest of each reporter; look at it at once where nobody is there to take what waits (A5).

    Returns:
        Whether it is the newest.
    """
    known = draft.reporters.get(event.reporter)
    if known is not None:
        if (event.incarnation, event.seq) <= (known.incarnation, known.seq):
            draft.note(ClusterNoteKind.LATE, "A6", because=f"report {event.incarnation}.{event.seq} of {event.reporter}")
            return False
        draft.reporters_by_age = draft.reporters_by_age.discard((known.at, event.reporter))
    draft.reporters = draft.reporters.set(event.reporter, Reporter(event.incarnation, event.seq, draft.clock))
    draft.reporters_by_age = draft.reporters_by_age.add((draft.clock, event.reporter))
    _forget_silent(draft)
    for deployment, load in sorted(event.entries.items()):
        entry = draft.find(deployment)
        if entry is None:
            draft.note(ClusterNoteKind.UNKNOWN, "A6", deployment, f"load of {event.reporter}")
        elif entry.scaler is not None:
            draft.worklist.add(deployment, _report(deployment, event, load))
    return True


def _report(deployment: DeploymentId, event: LoadReported, load: ReportedLoad) -> HandleReport | ReplicaReport:
    if event.reporter.rpartition("#")[0] == deployment:
        return ReplicaReport(event.reporter, float(load.in_flight), event.at)
    return HandleReport(event.reporter, float(load.waiting), event.at)


def _forget_silent(draft: ClusterDraft) -> None:
    while draft.reporters_by_age.first()[0] < draft.clock - REPORTER_KEPT_S:
        oldest = draft.reporters_by_age.first()
        draft.reporters_by_age = draft.reporters_by_age.discard(oldest)
        draft.reporters = draft.reporters.delete(oldest[1])


def on_report(draft: ClusterDraft, deployment: DeploymentId, entry: Entry, report: HandleReport | ReplicaReport) -> None:
    """What one process says of one deployment: the newest counts at the next decision."""
    scaler = entry.scaler
    assert scaler is not None, f"{deployment} has no autoscaler"
    draft.put(deployment, replace(entry, scaler=replace(scaler, reports=scaler.reports.set(report[0], report))))
    asks = type(report) is HandleReport and report.queued and not entry.target.replicas
    if asks and entry.residency is None:  # else demand asks for the first (P3)
        draft.worklist.add(deployment, LookAtLoad())


def on_look(draft: ClusterDraft, deployment: DeploymentId, entry: Entry, _: LookAtLoad) -> None:
    """Decide, ask the user's policy, or wait for it no longer."""
    scaler = entry.scaler
    assert scaler is not None, f"{deployment} has no autoscaler"
    question = scaler.question
    if question is not None:
        if draft.clock >= question.due_at:
            problem = f"{entry.spec.policy} has not answered for {POLICY_S:g} s"
            _failed(draft, deployment, entry, question, problem)
        return
    reports = _in_order(scaler.reports)
    scaler = replace(scaler, reports=EMPTY, decides_at=draft.clock + scaler.core.spec.metrics_interval_s)
    shown: list[View] = []
    policy = ongoing_requests if entry.spec.policy is None else partial(_show, shown)
    decision = _decision(entry, scaler.core, reports, draft.clock, policy)
    if entry.spec.policy is None or not shown:
        return _follow(draft, deployment, entry, scaler, decision)
    ask = draft.next_number()
    question = Question(ask, entry.target.number, reports, draft.clock, draft.clock + POLICY_S)
    draft.put(deployment, replace(entry, scaler=replace(scaler, question=question)))
    draft.questions.append(AskPolicy(deployment, ask, entry.target.number, entry.spec.policy, shown[0], draft.epoch))
    draft.note(ClusterNoteKind.POLICY_ASKED, "A8", deployment, f"{entry.spec.policy} about target {entry.target.replicas}")


def on_answered(draft: ClusterDraft, deployment: DeploymentId, entry: Entry, event: PolicyAnswered) -> None:
    """The user's policy has answered: an answer about a target that is no more counts for nothing."""
    scaler = entry.scaler
    question = scaler.question if scaler is not None else None
    if scaler is None or question is None or question.ask != event.ask:
        draft.note(ClusterNoteKind.LATE, "A8", deployment, f"an answer to question {event.ask}")
        return
    if not targets.is_about(entry.target, event.target_number):
        because = f"an answer about target number {event.target_number}, which was written since"
        draft.note(ClusterNoteKind.TARGET_REFUSED, "A8", deployment, because)
        reports = PMap({report[0]: report for report in question.reports}).update(scaler.reports)
        draft.put(deployment, replace(entry, scaler=replace(scaler, question=None, reports=reports)))
    elif event.wanted is None:
        _failed(draft, deployment, entry, question, event.problem or f"{entry.spec.policy} has failed")
    else:
        answer = event.wanted, event.memory
        settled = replace(scaler, question=None, problem="")
        decision = _decision(entry, scaler.core, question.reports, question.at, lambda _: answer)
        _follow(draft, deployment, entry, settled, decision)


def _failed(draft: ClusterDraft, deployment: DeploymentId, entry: Entry, question: Question, problem: str) -> None:
    assert entry.scaler is not None, f"{deployment} has no autoscaler"
    draft.note(ClusterNoteKind.POLICY_FAILED, "A8", deployment, f"{problem}; the target stays")
    scaler = replace(entry.scaler, question=None, problem=problem)
    _follow(draft, deployment, entry, scaler, _decision(entry, scaler.core, question.reports, question.at, _as_it_is))


def _as_it_is(view: View) -> tuple[float, FrozenJson]:
    """The policy where the user's own has failed: the target stays."""
    return view.target_replicas, view.memory


def _show(shown: list[View], view: View) -> float:
    shown.append(view)
    return view.target_replicas


def _in_order(reports: PMap[str, HandleReport | ReplicaReport]) -> Reports:
    return tuple(report for _, report in sorted(reports.items()))


def _decision(entry: Entry, core: AutoscalerState, reports: Reports, at: float, policy: Policy) -> Decision:
    """What the autoscaler makes of what was reported, within the bounds that hold now."""
    bounded = attrs.evolve(core, spec=targets.bounds(entry.target, core.spec))
    decision = autoscale(bounded, Metrics.of(entry.ranks, reports), at, policy)
    return decision._replace(state=attrs.evolve(decision.state, spec=core.spec))


def _follow(draft: ClusterDraft, deployment: DeploymentId, entry: Entry, scaler: Scaler, decision: Decision) -> None:
    for note in decision.notes:
        draft.note(ClusterNoteKind.AUTOSCALER, note.rule, deployment, note.because, note)
    entry = replace(entry, scaler=replace(scaler, core=decision.state))
    if decision.target is None:
        draft.put(deployment, entry)
    else:
        targets.write(draft, deployment, entry, decision.target, Cause.AUTOSCALER)
