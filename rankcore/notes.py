"""Why: one short record per decision, enough to explain a run from its journal alone."""

from enum import StrEnum

from rankcore import kernel
from rankcore.values import ReplicaId, ReplicaRank


class NoteKind(StrEnum):
    """What a note is about."""

    # decisions about the whole deployment
    SPEC_APPLIED = "spec applied"
    WORLD_SIZE_CHANGED = "world size changed"
    STATUS_CHANGED = "status changed"
    DEPLOY_FAILED = "deploy failed"
    ROLLED_BACK = "rolled back"
    STALLED = "stalled"
    STALL_OVER = "stall over"
    RECOVERY_STARTED = "recovery started"
    RECOVERY_COMPLETE = "recovery complete"
    # decisions about ranks
    RANK_CHOSEN = "rank chosen"
    RANK_GIVEN = "rank given"
    RANK_KEPT = "rank kept"
    RANK_INHERITED = "rank inherited"
    RANK_MOVED = "rank moved"
    RANK_RELEASED = "rank released"
    MOVE_ACKNOWLEDGED = "move acknowledged"
    SLOT_CHANGED = "slot changed"
    SLOT_GIVEN_UP = "slot given up"
    WAITING = "waiting"
    # decisions about replicas
    REPLICA_LOST = "replica lost"
    REPLICA_RUNNING = "replica running"
    REPLICA_UNREADY = "replica unready"
    REPLICA_READY_AGAIN = "replica ready again"
    PREPARATION_ASKED = "preparation asked"
    REPLICA_PREPARED = "replica prepared"
    STOP_CHOSEN = "stop chosen"
    KILL_CHOSEN = "kill chosen"
    START_FAILED = "start failed"
    BACKED_OFF = "backed off"
    RETRIED = "retried"
    CONFIG_SENT = "config sent"
    REPORT_ADOPTED = "report adopted"
    DUPLICATE_FOUND = "duplicate found"
    REPEATED = "repeated"
    NODE_LOST = "node lost"
    NODE_CHANGED = "node changed"
    NODE_CORDONED = "node cordoned"
    NODE_UNCORDONED = "node uncordoned"
    NODE_DRAINED = "node to be drained"
    NODE_FORGOTTEN = "node forgotten"
    EVICTION_ASKED = "eviction asked"
    BUNDLE_LOST = "bundle lost"
    BUNDLE_RESTORED = "bundle restored"
    REPLICA_FAILED = "replica failed"
    FAILURE_OVER = "failure over"
    # news that changes nothing
    LATE = "late"
    UNKNOWN_REPLICA = "unknown replica"
    STALE_EPOCH = "stale epoch"


SPEC_APPLIED, WORLD_SIZE_CHANGED, STATUS_CHANGED = NoteKind.SPEC_APPLIED, NoteKind.WORLD_SIZE_CHANGED, NoteKind.STATUS_CHANGED
RANK_CHOSEN, RANK_GIVEN, RANK_KEPT = NoteKind.RANK_CHOSEN, NoteKind.RANK_GIVEN, NoteKind.RANK_KEPT
RANK_INHERITED, RANK_MOVED, RANK_RELEASED = NoteKind.RANK_INHERITED, NoteKind.RANK_MOVED, NoteKind.RANK_RELEASED
REPLICA_LOST, REPLICA_RUNNING, REPORT_ADOPTED = NoteKind.REPLICA_LOST, NoteKind.REPLICA_RUNNING, NoteKind.REPORT_ADOPTED
STOP_CHOSEN, KILL_CHOSEN, MOVE_ACKNOWLEDGED = NoteKind.STOP_CHOSEN, NoteKind.KILL_CHOSEN, NoteKind.MOVE_ACKNOWLEDGED
REPEATED, LATE = NoteKind.REPEATED, NoteKind.LATE
"""The most frequent ones, for the rules: see the names of the states in `rankcore.values` for why."""


class RankNote(kernel.Note, frozen=True, gc=False):
    """One decision of the machine of ranks.

    Attributes:
        kind: What was decided.
        rule: The promise (R1..R12, S1..S8) or the section of the design (2.3, 2.4) that it follows.
        replica_id: Whom it concerns; None: the deployment.
        before: The replica's ranks before.
        after: The replica's ranks after.
        rank: The global rank that it is about, where there is no full `ReplicaRank`.
    """

    kind: NoteKind
    rule: str
    replica_id: ReplicaId | None = None
    before: ReplicaRank | None = None
    after: ReplicaRank | None = None
    rank: int | None = None


Note = RankNote
