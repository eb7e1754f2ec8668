"""The save barrier: what outlives a controller is saved before anything is done that depends on it (P2).

What. Each deployment has a record (`records`) and an outbox. When a step changes the record in a way that a successor must know
(an apply, a scale, a deletion, a rollback, a build that is given up, the first health of a spec: *awaited* records), the
commands of that step, and those of all later steps of this deployment behind them, wait in the outbox until the store has
acknowledged a record at least as new. A target that follows load, or that falls because replicas leave, is saved *lazily*: at
most a second later, the newest wins, nothing waits; a successor that does not know it works it out again.

The barrier is in the machine and not in the loop that runs it, so that the checker proves it for every executor: a loop
carries out what it is given, in order, and says `RecordSaved`. It is for one deployment: others never wait for it.

Why it is right. Let a command *need* the number of the newest awaited record when it was given out.
1. Numbers grow, in an epoch and from epoch to epoch, and a successor adopts the greatest that the store has. So once a record
   of number n has landed, every successor adopts n or a later one.
2. A command leaves the outbox only when a record of its need or a greater number has landed. A record is whole: a greater one
   of the same controller holds what the earlier ones did, so one acknowledgement stands for all before it. (An
   acknowledgement of a *smaller* one stands for nothing: that is how one of two saves would be lost.)
3. So whatever the world has seen of a decision, no crash loses the decision. What is lost is commands, and those a successor
   works out again.
4. What an earlier controller put may land at any time, also after this one has read the store. Its number is smaller, and what
   this one adopted is saved again under its own epoch before anything depends on it. A deletion is a record too (`deleted`),
   or a late put would bring a deployment back.

Why it ends. A record that is not acknowledged is given to the store again, `REPEAT_S` after it was given last, the newest
instead of all before it, for ever: the store is out of reach for a while, or the whole cluster is lost anyway. Meanwhile the
deployment's condition says so (`Entry.conditions`), and what it serves goes on as it was. It is no reason to end the
controller: where the store is what restarts controllers, none would be left.

What it costs. One round trip to the store for an awaited record, in which a deployment's commands wait; a comparison of some
fields for a step that changes no record.
"""

import attrs
from msgspec.structs import replace

from rankcore.cluster.commands import ForDeployment
from rankcore.cluster.records import Cause, Record
from rankcore.cluster.state import Held, Outbox
from rankcore.spec import DeploymentSpec

REPEAT_S = 5.0
LAZY_S = 1.0


def begin(record: Record, at: float) -> Outbox:
    """The outbox of a deployment that begins or is adopted: everything waits for its record."""
    return Outbox(record, needed=record.number, due_at=at)


def write(outbox: Outbox, record: Record, at: float) -> Outbox:
    """With a newer record."""
    if is_lazy(outbox.record, record):
        due_at = at + LAZY_S if outbox.due_at is None else min(outbox.due_at, at + LAZY_S)
        return replace(outbox, record=record, due_at=due_at)
    return replace(outbox, record=record, needed=record.number, due_at=at)


def is_lazy(before: Record, after: Record) -> bool:
    """Whether nothing has to wait for this change: a target that no user wrote, and what follows from it."""
    if after.spec.target_replicas != before.spec.target_replicas and after.cause is Cause.USER:
        return False
    same = attrs.evolve(after, number=before.number, cause=before.cause, spec=before.spec, previous=before.previous)
    return same == before and _same_but_target(before.spec, after.spec) and _same_but_target(before.previous, after.previous)


def _same_but_target(before: DeploymentSpec | None, after: DeploymentSpec | None) -> bool:
    if before is None or after is None or before.target_replicas == after.target_replicas:
        return before == after
    # With another placement the target may be one that cannot be had; and with a static one it is the number of ranks.
    return before.placement == after.placement and attrs.evolve(before, target_replicas=after.target_replicas) == after


def hold(outbox: Outbox, commands: list[ForDeployment]) -> Outbox:
    """With more that waits for the newest awaited record, but for what only repeats a command that waits already."""
    waiting = {each.command for each in outbox.held}
    fresh = tuple(Held(outbox.needed, command) for command in commands if command not in waiting)
    return replace(outbox, held=outbox.held + fresh)


def send(outbox: Outbox, at: float) -> Outbox:
    """The newest record is given to the store, for the first time or again."""
    since = at if outbox.unsaved_since is None else outbox.unsaved_since
    return replace(outbox, sent=outbox.record.number, due_at=at + REPEAT_S, unsaved_since=since)


def acknowledge(outbox: Outbox, number: int) -> tuple[Outbox, list[ForDeployment]]:
    """The store has a record: what needed that, or an earlier one, goes out in its order."""
    saved = max(outbox.saved, number)
    held = outbox.held
    ready = sum(1 for each in held if each.needs <= saved)  # 2: needs never fall
    rest = replace(outbox, saved=saved, held=held[ready:])
    if saved >= outbox.sent:
        rest = replace(rest, unsaved_since=None, due_at=None if saved >= outbox.record.number else rest.due_at)
    return rest, [each.command for each in held[:ready]]
