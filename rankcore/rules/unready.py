"""Readiness that is lost and comes back, without a kill (V16).

**What.** A replica may be well, and not be able to serve for a while: its cache is cold, what it calls is away, it waits for
a lock. `ReplicaUnready` says so. It leaves the routes in that step, keeps its rank and its process, and goes on with the
requests that it has; `ReplicaReady` with a later `at` brings it back in that step. Nothing else follows from it: nobody is
started for it, killed for it, or moved. Who is to be killed is for the health check to say.

**Counts.** It is not available, so the budget of what the core itself does has one less; the deployment is not HEALTHY. What
runs another generation than is wanted goes first and takes nothing from the budget (`roll`), as what it lacks is sent to it at
once (`configure`): it serves nobody as it is. Its `min_ready_s` begin anew when it is ready again, since a replica that just
came back has proven as little as one that just came up: an update that counted it at once would go on through replicas that
flap. What it has failed, and for how long it was ready for `stable_after_s`, ends when it became unready.

**The races.**

- *The two overtake each other.* Of one replica the newest news holds, by `at` (`Replica.readiness_at`), and at one moment that
  it is unready: so that the order in which they come does not matter. A `ReplicaReady` that brings nothing back is remembered
  too, since what it has overtaken may still come.
- *A repeated `InitializeReplica` is answered with `ReplicaReady`* by a replica that is unready: it says again that it is,
  behind that, with the same `at` (`rankcore/replica/messages.py`).
- *News of who does not run, or does no more*, is late: who starts is not on the routes, who leaves never comes back there.
- *A controller crash.* The report says it (`ReplicaReported.unready`), so it is not on the first routes.
"""

from msgspec.structs import replace

from rankcore.book import replicas, slots
from rankcore.draft import Draft
from rankcore.events import Event, ReplicaReady, ReplicaReported, ReplicaUnready
from rankcore.notes import LATE, NoteKind
from rankcore.rules.prove import prove
from rankcore.state import Replica, Unready
from rankcore.values import ReplicaState

RULE = "V16"


def late(draft: Draft, event: Event, replica: Replica) -> None:
    """News that no longer changes anything, or came before; it leaves a note and nothing else."""
    draft.note(LATE, "2", replica.replica_id, f"{type(event).__name__} while {replica.state}")
    draft.idle = True


def on_unready(draft: Draft, event: ReplicaUnready, replica: Replica) -> None:
    """A replica that serves takes no requests for now."""
    if replica.state not in slots.RUNNING or event.at < replica.readiness_at:
        return late(draft, event, replica)
    known = replica.unready
    if known is None:
        draft.note(NoteKind.REPLICA_UNREADY, RULE, replica.replica_id, event.reason, rank=replica.slot)
        return replicas.become_unready(draft, replica, Unready(event.at, event.reason), event.at)
    draft.note(LATE, RULE, replica.replica_id, f"ReplicaUnready of one that is unready since {known.since:g} s")
    replicas.change(draft, replica, readiness_at=event.at, unready=replace(known, reason=event.reason))


def on_ready_again(draft: Draft, event: ReplicaReady, replica: Replica) -> None:
    """A replica that has started before says that it is ready: one that was unready serves again."""
    if replica.state not in slots.RUNNING or event.at <= replica.readiness_at:
        return late(draft, event, replica)
    known = replica.unready
    if known is None:
        draft.note(LATE, "2", replica.replica_id, f"ReplicaReady while {replica.state}")
        replicas.change(draft, replica, readiness_at=event.at)
        return
    because = f"it was unready for {event.at - known.since:.1f} s"
    draft.note(NoteKind.REPLICA_READY_AGAIN, RULE, replica.replica_id, because, rank=replica.slot)
    ready = replicas.become_ready_again(draft, replica, event.at)
    if ready.ready_at is not None:
        prove(draft, ready)


def reported(event: ReplicaReported, state: ReplicaState) -> Unready | None:
    """Whether a replica that was found, and is in this state, is unready by its own report."""
    return Unready(event.at, event.unready) if event.unready is not None and state in slots.RUNNING else None
