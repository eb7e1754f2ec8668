"""The promises of a cluster, checked on states and on steps, beside those of its parts.

    P2  durable before effect: no command leaves before what it depends on is saved
    P5  calls are routed to who is ready, and to nobody before
    P6  a step touches only the deployments that its event concerns; a frozen one decides nothing
    R9  the target is what the ranks have, and each write of it has a number of its own

Both functions look at everything, so they are for tests and audits, not for a hot path.
"""

from collections.abc import Iterator

from rankcore import invariants
from rankcore.book.slots import UNSTARTED
from rankcore.cluster import nodes
from rankcore.cluster.commands import CarryOut, SaveRecord
from rankcore.cluster.conclude import due_of, recorded, to_record
from rankcore.cluster.events import ClusterEvent, PolicyAnswered, RecordSaved
from rankcore.cluster.invariants_weights import check_weights
from rankcore.cluster.names import application_of
from rankcore.cluster.records import EPOCH_BITS
from rankcore.cluster.residency import deployment_of
from rankcore.cluster.state import ClusterState, ClusterStep, Entry
from rankcore.commands import PublishRoutes
from rankcore.kernel import Violation
from rankcore.residency.events import EvictRequested
from rankcore.values import NodeId, ReplicaState

UNROUTED = UNSTARTED | {ReplicaState.RECOVERING}
"""What a replica is before anybody knows that it is ready."""


def check(state: ClusterState) -> list[Violation]:
    """Check a state against the promises; empty when all hold."""
    return list(_broken(state))


def _broken(state: ClusterState) -> Iterator[Violation]:
    for deployment, entry in sorted(state.deployments.items()):
        if not entry.frozen:
            for each in invariants.check(entry.ranks):
                yield Violation(each.rule, f"{deployment}: {each.detail}")
        if {entry.spec.deployment, entry.ranks.spec.name, entry.outbox.record.deployment} != {deployment}:
            yield Violation("index", f"{deployment} is about {entry.spec.deployment} and {entry.ranks.spec.name}")
        if entry.ranks.epoch != state.epoch or entry.outbox.record.epoch != state.epoch:
            yield Violation("2.4", f"{deployment} is of another epoch than {state.epoch}")
        if not entry.frozen and entry.target.replicas != entry.ranks.spec.target_replicas:
            yield Violation("R9", f"{deployment} has target {entry.target}, its ranks {entry.ranks.spec.target_replicas}")
        yield from _outbox(deployment, entry)
        if due_of(entry) != entry.alarm_at:
            yield Violation("index", f"{deployment} is due at {due_of(entry)}, and its alarm is at {entry.alarm_at}")
    yield from _tables(state)
    yield from check_weights(state)


def _outbox(deployment: str, entry: Entry) -> Iterator[Violation]:
    box = entry.outbox
    if to_record(entry) != recorded(box.record):
        yield Violation("P2", f"{deployment} is not as its record says: {to_record(entry)}, {box.record}")
    if box.held and box.held[0].needs <= box.saved:
        yield Violation("P2", f"{deployment} holds back what needs record {box.held[0].needs}, and {box.saved} is saved")
    if box.needed > box.sent:
        yield Violation("P2", f"{deployment} waits for record {box.needed}, and only {box.sent} was sent")
    if box.saved < box.record.number and box.due_at is None:
        yield Violation("P2", f"record {box.record.number} of {deployment} is not saved, and never will be")


def _tables(state: ClusterState) -> Iterator[Violation]:
    alarms = sorted((entry.alarm_at, each) for each, entry in state.deployments.items() if entry.alarm_at is not None)
    if list(state.alarms) != alarms:
        yield Violation("index", f"alarms are {list(state.alarms)}, expected {alarms}")
    if alarms and (state.wake_at is None or state.wake_at > alarms[0][0]):
        yield Violation("2.4", f"the first alarm is {alarms[0]}, and the executor was asked for {state.wake_at}")
    named: dict[str, list[str]] = {}
    for deployment in sorted(state.deployments):
        named.setdefault(application_of(deployment), []).append(deployment)
    listed = {name: list(application.deployments) for name, application in state.applications.items()}
    if listed != named:
        yield Violation("index", f"applications are {listed}, expected {named}")
    prefixes: dict[str, str] = {}
    for name, application in sorted(state.applications.items()):
        if application.route_prefix is not None and prefixes.setdefault(application.route_prefix, name) != name:
            other = prefixes[application.route_prefix]
            yield Violation("P6", f"{other} and {name} both have the route_prefix {application.route_prefix}")
    members: dict[NodeId, dict[str, int]] = {}
    for deployment, entry in state.deployments.items():
        for node_id, node in entry.ranks.nodes.items():
            if node.members:
                members.setdefault(node_id, {})[deployment] = len(node.members)
    found = {node_id: dict(here) for node_id, here in state.members.items()}
    if found != members:
        yield Violation("index", f"members are {found}, expected {members}")
    placed = {each for each, entry in state.deployments.items() if entry.spec.ranks.placement is not None}
    ranked = tuple(sorted(placed | {each for each, entry in state.deployments.items() if nodes.has_group(entry)}))
    if state.ranked != ranked:
        yield Violation("index", f"ranked are {state.ranked}, expected {ranked}")
    if sorted((each.at, name) for name, each in state.reporters.items()) != list(state.reporters_by_age):
        yield Violation("index", "reporters and their ages differ")
    if state.revision >> EPOCH_BITS != state.epoch:
        yield Violation("2.1", f"revision {state.revision} is not of epoch {state.epoch}")


def check_step(before: ClusterState, event: ClusterEvent, step: ClusterStep) -> list[Violation]:
    """Check a step against the promises.

    Args:
        before: The state that the event was applied to.
        event: The event.
        step: What `cluster_step(before, event)` returned.

    Returns:
        What is broken; empty when all promises hold.
    """
    return [*_commands(before, step), *_changes(before, event, step), *_concerned(before, event, step)]


def _commands(before: ClusterState, step: ClusterStep) -> Iterator[Violation]:
    acting = False
    for command in step.commands:
        if command.epoch != step.state.epoch:
            yield Violation("2.4", f"{command} is not of epoch {step.state.epoch}")
        if isinstance(command, SaveRecord) and acting:
            yield Violation("P2", f"record {command.record.number} is saved behind other commands")
        acting = acting or not isinstance(command, SaveRecord)
        if isinstance(command, CarryOut) and not _may_go_out(before, step.state, command):
            needed = step.state.deployments[command.deployment].outbox.needed
            yield Violation("P2", f"{command} goes out before record {needed} is saved")
        if isinstance(command, CarryOut) and isinstance(command.command, PublishRoutes):
            entry = step.state.deployments.get(command.deployment)
            known = [entry.ranks.replicas.get(each) for each in command.command.added] if entry is not None else []
            for replica in known:
                if replica is not None and replica.state in UNROUTED and not replica.routed:
                    yield Violation("P5", f"{replica.replica_id} is routed to, and it is {replica.state}")


def _may_go_out(before: ClusterState, after: ClusterState, command: CarryOut) -> bool:
    new = after.deployments.get(command.deployment)
    if new is None or new.outbox.is_open:
        return True
    old = before.deployments.get(command.deployment)
    held = old.outbox.held if old is not None else ()
    return any(each.command == command and each.needs <= new.outbox.saved for each in held)


def _changes(before: ClusterState, event: ClusterEvent, step: ClusterStep) -> Iterator[Violation]:
    state = step.state
    if state.epoch != before.epoch or state.clock < before.clock or state.revision < before.revision:
        yield Violation("2.1", f"{type(event).__name__}: epoch, clock or revision have gone back")
    for deployment, entry in sorted(state.deployments.items()):
        old = before.deployments.get(deployment)
        if old is None or entry is old:
            continue
        if old.frozen and entry.frozen and entry.ranks is not old.ranks:
            yield Violation("P6", f"{deployment} is frozen, and its ranks have changed")
        acknowledged = event.number if isinstance(event, RecordSaved) and event.deployment == deployment else 0
        if entry.outbox.saved not in (old.outbox.saved, acknowledged) or entry.outbox.saved < old.outbox.saved:
            yield Violation("P2", f"{deployment}: saved {old.outbox.saved} -> {entry.outbox.saved}")
        if entry.outbox.record.number < old.outbox.record.number:
            yield Violation("P2", f"the record of {deployment} has gone back")
        answer = event if isinstance(event, PolicyAnswered) and event.deployment == deployment else None
        late = answer is not None and answer.target_number != old.target.number
        if late and entry.target != old.target and deployment not in _due(before, state):
            yield Violation("A8", f"an answer about an earlier target of {deployment} writes {entry.target}")
        if entry.target != old.target and entry.target.number <= old.target.number:
            yield Violation("R9", f"{deployment}: target {old.target} -> {entry.target}")


def _due(before: ClusterState, after: ClusterState) -> set[str]:
    return {deployment for at, deployment in before.alarms if at <= after.clock}


def _concerned(before: ClusterState, event: ClusterEvent, step: ClusterStep) -> Iterator[Violation]:
    """P6: an event of one deployment touches that one, those that are due, and those that share its nodes by room."""
    owner = getattr(event, "deployment", None) or deployment_of((getattr(event, "replica_id", None) or "").rpartition("#")[0])
    if not owner or isinstance(event, EvictRequested):
        return
    residents = {each for each, entry in before.deployments.items() if entry.residency is not None}
    if owner in residents:  # memory is everybody's
        return
    concerned = {owner, *_due(before, step.state), *before.ranked}
    changed = {each for each, entry in step.state.deployments.items() if entry is not before.deployments.get(each)}
    commanded = {command.deployment for command in step.commands if isinstance(command, CarryOut)}
    for deployment in sorted((changed | commanded) - concerned):
        yield Violation("P6", f"{type(event).__name__} of {owner} touches {deployment}")
