"""What a step has come to for each deployment that it touched: its record, what goes out, when to look again."""

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

import attrs
from msgspec.structs import replace

from rankcore.cluster import availability, demand, nodes, outbox, scaling, tenures
from rankcore.cluster.commands import (
    CarryOut,
    ForDeployment,
    KillWorker,
    MoveWeights,
    PublishAvailability,
    SaveRecord,
    Standing,
)
from rankcore.cluster.draft import ClusterDraft
from rankcore.cluster.events import RecordSaved
from rankcore.cluster.names import DeploymentId, application_of
from rankcore.cluster.notes import ClusterNoteKind
from rankcore.cluster.records import Record
from rankcore.cluster.state import Application, Entry, Outbox, Residency
from rankcore.routing.demand import forget
from rankcore.values import DELETED, DEPLOY_FAILED

RECORDED = tuple(each.name for each in attrs.fields(Record) if each.name not in ("deployment", "number"))
recorded = attrgetter(*RECORDED)
"""What a record says of its deployment."""


def to_record(entry: Entry) -> tuple[Any, ...]:
    """What the record of a deployment has to say of it as it is now: the values of `RECORDED`."""
    ranks, failed = entry.ranks, entry.ranks.status is DEPLOY_FAILED
    return (
        entry.spec,
        ranks.spec,
        entry.target.cause,
        ranks.previous,
        entry.deleting,
        ranks.status is DELETED,
        failed,
        entry.trouble if failed else "",
        entry.route_prefix,
        entry.is_ingress,
    )


def conclude(draft: ClusterDraft, deployment: DeploymentId) -> None:
    """Number the record if it has changed, hold back what needs it, and say when to look again."""
    entry = draft.entries[deployment]
    box, given = entry.outbox, draft.given.pop(deployment, [])
    now = to_record(entry)
    if now != recorded(box.record):
        numbered = attrs.evolve(box.record, number=draft.next_number(), **dict(zip(RECORDED, now, strict=True)))
        box = outbox.write(box, numbered, draft.clock)
        waits = "saved lazily"
        if box.needed == numbered.number:  # what this very step has let go before waits too
            waits, given = "its commands wait for it", [*draft.released.pop(deployment, []), *given]
        draft.note(ClusterNoteKind.RECORD_NUMBERED, "P2", deployment, f"record {numbered.number}, {waits}")
    if box.due_at is not None and box.due_at <= draft.clock:
        box = _send(draft, deployment, box)
    if given:
        if box.is_open:
            _let_go(draft, deployment, entry, given)
        else:
            box = outbox.hold(box, given)
            draft.note(ClusterNoteKind.COMMANDS_HELD, "P2", deployment, f"{len(given)} wait for record {box.needed}")
    entry = replace(entry, outbox=box)
    if entry.residency is not None:
        entry = _published(draft, deployment, entry, entry.residency)
    draft.entries[deployment] = _with_alarm(draft, deployment, entry)


def _let_go(draft: ClusterDraft, deployment: DeploymentId, entry: Entry, commands: Iterable[ForDeployment]) -> None:
    """What leaves the outbox of a deployment goes up, or sideways; moves of who was lost meanwhile come to nothing."""
    for command in commands:
        if entry.residency is not None and type(command) is CarryOut and type(command.command) in tenures.SIDEWAYS:
            draft.sideways.append((deployment, command.command))
        elif type(command) is not MoveWeights or command.command.replica_id in draft.weights.planner.replicas:
            draft.released.setdefault(deployment, []).append(command)


def _published(draft: ClusterDraft, deployment: DeploymentId, entry: Entry, residency: Residency) -> Entry:
    """With how it stands for those who call it, told where it has changed."""
    residency = demand.follow(draft, deployment, entry, residency)
    before, found = residency.availability, availability.availability_of(draft, deployment, entry, residency)
    lasts = before is not None and found is not None and before.standing is found.standing is Standing.UNAVAILABLE
    if found is not None and found != before and not lasts:  # what is left of its time falls all the while
        draft.published = [each for each in draft.published if each.deployment != deployment]
        draft.published.append(PublishAvailability(deployment, found, draft.epoch))
        residency = replace(residency, availability=found)
    return entry if residency is entry.residency else replace(entry, residency=residency)


def _send(draft: ClusterDraft, deployment: DeploymentId, box: Outbox) -> Outbox:
    if box.sent == box.record.number:
        because = f"record {box.sent} is not acknowledged since {box.unsaved_since or 0.0:g} s"
        draft.note(ClusterNoteKind.RECORD_REPEATED, "P2", deployment, because)
    draft.saves.append(SaveRecord(box.record, draft.epoch))
    return outbox.send(box, draft.clock)


def due_of(entry: Entry) -> float | None:
    """When a deployment wants to be looked at next; None: never."""
    times = [entry.outbox.due_at]
    if not entry.frozen:
        times.append(entry.ranks.wake_at)
        if entry.residency is not None:
            times.append(entry.residency.look_at)
        if entry.scaler is not None:
            times.append(scaling.due_of(entry.scaler))
    return min((each for each in times if each is not None), default=None)


def _with_alarm(draft: ClusterDraft, deployment: DeploymentId, entry: Entry) -> Entry:
    due = due_of(entry)
    if due == entry.alarm_at:
        return entry
    if entry.alarm_at is not None:
        draft.alarms = draft.alarms.discard((entry.alarm_at, deployment))
    if due is not None:
        draft.alarms = draft.alarms.add((due, deployment))
    return replace(entry, alarm_at=due)


def on_record_saved(draft: ClusterDraft, event: RecordSaved) -> None:
    """The store has a record: what waited for it goes out. A deployment whose deletion is recorded is gone."""
    entry = draft.find(event.deployment)
    if entry is None or event.number > entry.outbox.sent or event.number <= entry.outbox.saved:
        draft.note(ClusterNoteKind.LATE, "P2", event.deployment, f"RecordSaved of record {event.number}")
        return
    box, released = outbox.acknowledge(entry.outbox, event.number)
    if entry.ranks.status is DELETED and box.is_open:
        # Its workers outlive it until they have ended: what the planner has commanded about them goes out.
        about_workers = [each for each in released if isinstance(each, (KillWorker, MoveWeights))]
        draft.released.setdefault(event.deployment, []).extend(about_workers)
        return _forget(draft, event.deployment, entry)
    if released:
        draft.note(ClusterNoteKind.COMMANDS_RELEASED, "P2", event.deployment, f"{len(released)} by record {event.number}")
        _let_go(draft, event.deployment, entry, released)
    draft.put(event.deployment, replace(entry, outbox=box))


def _forget(draft: ClusterDraft, deployment: DeploymentId, entry: Entry) -> None:
    """All that is left is its record, which stays: a late put of an earlier one would bring it back."""
    draft.note(ClusterNoteKind.DEPLOYMENT_GONE, "P2", deployment, "deleted")
    draft.gone.append(deployment)
    assert entry.alarm_at is not None, f"{deployment} waited for its record, and nothing was due"
    draft.alarms = draft.alarms.discard((entry.alarm_at, deployment))
    nodes.follow_spec(draft, deployment, None)
    draft.weights = replace(draft.weights, demands=forget(draft.weights.demands, deployment))
    # A deployment of this name may begin in this epoch: its replicas and messages are others.
    draft.first_serial = max(draft.first_serial, entry.ranks.tables.next_serial)
    draft.first_revision = max(draft.first_revision, entry.ranks.tables.revision)
    name = application_of(deployment)
    before = draft.applications[name]
    rest = tuple(each for each in before.deployments if each != deployment)
    if rest:
        draft.applications = draft.applications.set(name, Application(rest, before.ingress, before.route_prefix))
    else:
        draft.applications = draft.applications.delete(name)
