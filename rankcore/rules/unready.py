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
- *It overtakes the `ReplicaReady` or the report before it.* Who starts, or has not reported, is not on the routes, so it is
  late; but it is remembered, and counts when the other comes, whichever is newer. Of who was never initialised, or leaves, it
  is nothing but late.
- *A controller crash.* The report says it (`ReplicaReported.unready`), so it is not on the first routes.
"""

from typing import Any

from msgspec.structs import replace

from rankcore.book import replicas, slots
from rankcore.draft import Draft
from rankcore.events import Event, ReplicaReady, ReplicaUnready
from rankcore.notes import LATE, NoteKind
from rankcore.rules.prove import prove
from rankcore.state import Replica, Unready
from rankcore.values import STARTING, ReplicaState

RULE = "V16"
HEARD = slots.RUNNING | {STARTING, ReplicaState.RECOVERING}
"""Of whom news of its readiness counts, now or once it runs."""


def late(draft: Draft, event: Event, replica: Replica) -> None:
    """News that no longer changes anything, or came before; it leaves a note and nothing else."""
    draft.note(LATE, "2", replica.replica_id, f"{type(event).__name__} while {replica.state}")
    draft.idle = True


def on_unready(draft: Draft, event: ReplicaUnready, replica: Replica) -> None:
    """A replica that serves takes no requests for now."""
    if replica.state not in HEARD or event.at < replica.readiness_at:
        return late(draft, event, replica)
    newest = newest_of(replica, event.at, event.reason)
    if replica.state not in slots.RUNNING or replica.unready is not None:
        draft.note(LATE, RULE, replica.replica_id, f"ReplicaUnready while {replica.state} and not on the routes")
        replicas.write(draft, replace(replica, **newest))
        return
    draft.note(NoteKind.REPLICA_UNREADY, RULE, replica.replica_id, event.reason, rank=replica.slot)
    replicas.become_unready(draft, replica, **newest)


def on_ready_again(draft: Draft, event: ReplicaReady, replica: Replica) -> None:
    """A replica that does not start now says that it is ready: one that was unready serves again."""
    if replica.state not in HEARD or event.at <= replica.readiness_at:
        return late(draft, event, replica)
    known = replica.unready
    if replica.state not in slots.RUNNING or known is None:
        draft.note(LATE, "2", replica.replica_id, f"ReplicaReady while {replica.state}")
        replicas.write(draft, replace(replica, **newest_of(replica, event.at, None)))
        return
    because = f"it was unready for {event.at - known.since:.1f} s"
    draft.note(NoteKind.REPLICA_READY_AGAIN, RULE, replica.replica_id, because, rank=replica.slot)
    ready = replicas.become_ready_again(draft, replica, event.at)
    if ready.ready_at is not None:
        prove(draft, ready)


def newest_of(replica: Replica, at: float, reason: str | None) -> dict[str, Any]:
    """What its record says of its readiness once this is heard: it is unready for a reason, or, without one, ready."""
    known = replica.unready
    if at < replica.readiness_at or (reason is None and at == replica.readiness_at):
        return {"unready": known, "readiness_at": replica.readiness_at}
    unready = None if reason is None else Unready(at if known is None else known.since, reason)
    return {"unready": unready, "readiness_at": at}
