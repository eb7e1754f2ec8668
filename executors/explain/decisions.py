"""The core's side of a story: what each kind of note says, and what it follows from.

A teller gets what is remembered, the line, the note, and the facts of the line so far. It returns the fact, or None where
another fact says it already.
"""

from collections.abc import Callable
from typing import TypeAlias

from executors.engine.deployments import Entry
from executors.explain.facts import Fact
from executors.explain.memory import Memory
from executors.explain.wording import all_ranks, listed, move
from executors.simulator.times import TENTHS, moment
from rankcore.commands import KillReplica
from rankcore.events import ReplicasLeave, StopRequested
from rankcore.notes import Note, NoteKind
from rankcore.values import ReplicaId, ReplicaRank

Causes: TypeAlias = tuple[Fact | None, ...]
Teller: TypeAlias = Callable[[Memory, Entry, Note, list[Fact]], Fact | None]


def _fact(memory: Memory, entry: Entry, note: Note, text: str, causes: Causes, *, short: str = "", change: bool = True) -> Fact:
    ranks = {whole.rank for whole in (note.before, note.after) if whole is not None}
    ranks |= set() if note.rank is None else {note.rank}
    return Fact(
        line=entry.line,
        at=memory.clock,
        text=text,
        rule=note.rule,
        short=short,
        causes=tuple(dict.fromkeys(cause for cause in causes if cause is not None)),
        replica_ids=() if note.replica_id is None else (note.replica_id,),
        ranks=tuple(sorted(ranks)),
        is_change=change,
    )


def _subject(note: Note) -> ReplicaId:
    assert note.replica_id is not None, f"a note of kind {note.kind} is about a replica"
    return note.replica_id


def _trigger(done: list[Fact]) -> Fact | None:
    """What happened in the world in this line, where that is a fact of its own."""
    return next((fact for fact in done if fact.rule is None), None)


def _about(done: list[Fact], replica_id: ReplicaId | None) -> Fact | None:
    """The last thing that this line says of a replica."""
    return next((fact for fact in reversed(done) if replica_id in fact.replica_ids), None)


def _with_rank(memory: Memory, replica_id: ReplicaId, rank: int | None) -> str:
    if rank is None:
        return replica_id
    life = memory.lives.get(replica_id)
    has = life is not None and life.rank is not None
    return f"{replica_id}, which {'held' if has else 'was to have'} rank {rank},"


# -- ranks are given


def _rank_chosen(memory: Memory, entry: Entry, note: Note, done: list[Fact]) -> Fact:
    who, wanted = _subject(note), memory.wanted()
    if note.rule != "R4":  # a build that was given up is tried once more
        wanted = next((fact for fact in reversed(done) if fact.rule == "D7"), wanted)
    freed = () if note.rank is None else memory.freed_since(("rank", note.rank), wanted)
    text = f"{who} was requested for rank {note.rank}, {note.because}"
    fact = _fact(memory, entry, note, text, (wanted, *freed), short=f"the start of {who}")
    life = memory.life(who)
    life.slot, life.requested = note.rank, fact
    return fact


def _rank_inherited(memory: Memory, entry: Entry, note: Note, done: list[Fact]) -> Fact:
    who, rank = _subject(note), note.rank
    life, kept = memory.life(who), memory.kept.pop(rank, None) if rank is not None else None
    if note.rule != "R6":  # a successor, early
        text = f"{who} was requested to take over rank {rank} {note.because}"
        causes: Causes = (memory.updated,)
    elif life.requested is not None:
        text, causes = f"{who} takes over rank {rank}, since {note.because}", (*done[-1:], life.requested)
    else:
        gone = f" from {kept.replica_ids[0]}" if kept is not None and kept.replica_ids else ""
        text, causes = f"{who} was requested to take over rank {rank}{gone}", (kept or _trigger(done),)
        if kept is not None and kept.line != entry.line and rank in memory.failures:
            causes = (kept, memory.failures[rank])
    fact = _fact(memory, entry, note, text, causes, short=f"the start of {who}")
    life.slot, life.requested = rank, life.requested or fact
    return fact


def _rank_given(memory: Memory, entry: Entry, note: Note, done: list[Fact]) -> Fact:
    who = _subject(note)
    assert note.after is not None, "a rank that is given is a rank"
    text = f"{who} was {note.because} and given {all_ranks(note.after)}"
    life = memory.life(who)
    life.given = _fact(memory, entry, note, text, (life.requested, _about(done, who)))
    memory.rank(who, note.after, life.given)
    return life.given


def _slot_changed(memory: Memory, entry: Entry, note: Note, done: list[Fact]) -> Fact:
    who = _subject(note)
    wanted = {"V2": memory.updated, "V18": memory.life(who).requested}
    causes: Causes = (wanted.get(note.rule, memory.resized),)
    fact = _fact(memory, entry, note, f"{who} is to have rank {note.rank} instead: {note.because}", causes)
    memory.life(who).slot = note.rank
    return fact


def _rank_moved(memory: Memory, entry: Entry, note: Note, done: list[Fact]) -> Fact:
    who, before, after = _subject(note), note.before, note.after
    assert before is not None, "a move has a beginning"
    assert after is not None, "a move has an end"
    words = f"{who} moved {move(before, after)}"
    if note.rule == "R8":
        causes = _why_compacted(memory, who, before, after)
        main = next((cause for cause in causes if cause is not None), None)
        since = f" after {main.short} at {moment(main.at, TENTHS)}" if main is not None else ""
        text = f"{words}: compaction{since}, because {note.because}"
        causes = (*causes, _about(done, getattr(entry.cause, "replica_id", None)))  # why it was time for it
    else:
        text = f"{words}: {note.because}"
        causes = (memory.duplicates.get(before.rank), memory.recovered)
        if note.rule == "V18":
            causes = tuple(life.requested for life in memory.lives.values() if life.slot == after.rank)
    fact = _fact(memory, entry, note, text, causes, short=f"the move of {who}")
    life = memory.life(who)
    life.moving = fact
    memory.rank(who, after, fact, (*life.given_up, before))
    return fact


def _why_compacted(memory: Memory, who: ReplicaId, before: ReplicaRank, after: ReplicaRank) -> Causes:
    """Why the new number is free, and why the old one is beyond its bound; for ranks the other way round."""
    causes: list[Fact | None] = []
    node_id = memory.life(who).node_id
    if before.rank != after.rank:
        causes += [memory.resized, *memory.freed_since(("rank", after.rank), memory.resized)]
    if before.node_rank != after.node_rank:
        causes += [memory.freed_last(("node_rank", after.node_rank)), memory.emptied]
    if before.local_rank != after.local_rank and node_id is not None:
        causes += [memory.freed_last(("local_rank", node_id, after.local_rank)), memory.departed.get(node_id)]
    return tuple(causes)


def _move_acknowledged(memory: Memory, entry: Entry, note: Note, done: list[Fact]) -> None:
    life = memory.life(_subject(note))
    moving, life.moving = life.moving, None
    if moving is not None:
        moving.later = f"acknowledged at {moment(memory.clock, TENTHS)}"
        memory.acknowledge(life, moving)


# -- ranks are kept and released


def _replica_lost(memory: Memory, entry: Entry, note: Note, done: list[Fact]) -> Fact:
    who = _subject(note)
    text = f"{_with_rank(memory, who, note.rank)} {_ended(note.because)}"
    return _fact(memory, entry, note, text, (_about(done, who) or _trigger(done),), short=f"the end of {who}")


def _ended(because: str) -> str:
    """`died: crashed`; what happened to its node, or to its start, ended it too."""
    return because if because.startswith(("died", "stopped")) else f"ended: {because}"


def _rank_kept(memory: Memory, entry: Entry, note: Note, done: list[Fact]) -> Fact:
    who, life = _subject(note), memory.lives.get(_subject(note))
    end = _about(done, who)
    leaving = life.leaving if life is not None else None
    ended = "" if end is not None else f"{who} stopped, and "
    text = f"{ended}rank {note.rank} is kept for the replacement of {who}"
    fact = _fact(memory, entry, note, text, (end, leaving), short=f"the end of {who}")
    if note.rank is not None:
        memory.kept[note.rank] = fact
    return fact


def _rank_released(memory: Memory, entry: Entry, note: Note, done: list[Fact]) -> Fact:
    who, life = _subject(note), memory.lives.get(_subject(note))
    if note.rule == "R6":
        text = f"rank {note.rank} is not kept for a replacement of {who}: {note.because}"
        causes: Causes = (_about(done, who), memory.resized)
    else:
        free = "" if note.rank is None else f", and rank {note.rank} is free"
        text = f"{who} {note.because if note.because == 'stopped' else _ended(note.because)}{free}"
        causes = (life.leaving if life is not None else None, _about(done, who) or _trigger(done))
    fact = _fact(memory, entry, note, text, causes, short=f"the end of {who}")
    if note.rank is not None:
        memory.freed["rank", note.rank] = entry.line, fact
    return fact


def _slot_given_up(memory: Memory, entry: Entry, note: Note, done: list[Fact]) -> Fact:
    kept = memory.kept.pop(note.rank, None) if note.rank is not None else None
    cause = memory.deleted or memory.resized
    if note.replica_id is None:
        fact = _fact(memory, entry, note, f"rank {note.rank} is kept no longer: {note.because}", (cause, kept))
        if note.rank is not None:
            memory.freed["rank", note.rank] = entry.line, fact
        return fact
    life = memory.life(note.replica_id)
    text = f"{note.replica_id} is not to be replaced: {note.because}"
    return _fact(memory, entry, note, text, (cause, life.leaving))


def _waiting(memory: Memory, entry: Entry, note: Note, done: list[Fact]) -> Fact:
    text = note.because if note.rank is None else f"rank {note.rank} waits: {note.because}"
    causes = (memory.wanted(), None if note.rank is None else memory.lost.get(note.rank))
    return _fact(memory, entry, note, text, causes, change=False)


# -- bundles of a static placement


def _bundle_lost(memory: Memory, entry: Entry, note: Note, done: list[Fact]) -> Fact:
    whose = "" if note.rank is None else f", of rank {note.rank},"
    bundle, _, reason = note.because.partition(": ")
    text = f"{bundle}{whose} was lost" + (f": {reason}" if reason else "")
    fact = _fact(memory, entry, note, text, (_trigger(done),), short=f"the loss of {bundle}", change=False)
    if note.rank is not None:
        memory.lost[note.rank] = fact
    return fact


def _bundle_restored(memory: Memory, entry: Entry, note: Note, done: list[Fact]) -> Fact:
    whose = "" if note.rank is None else f", of rank {note.rank},"
    fact = _fact(memory, entry, note, f"{note.because}{whose} is there again", (), change=False)
    if note.rank is not None:
        memory.restored[note.rank] = fact
    return fact


def _replica_failed(memory: Memory, entry: Entry, note: Note, done: list[Fact]) -> Fact:
    who, life = _subject(note), memory.lives.get(_subject(note))
    assert note.rank is not None, "a replica fails in its rank"
    end = _about(done, who)
    ended = "" if end is not None else f"{who} stopped, and "
    text = f"{ended}rank {note.rank} has FAILED: nothing takes the place of {who} while {note.because}"
    return _fact(memory, entry, note, text, (end, life.leaving if life is not None else None, memory.lost.get(note.rank)))


def _failure_over(memory: Memory, entry: Entry, note: Note, done: list[Fact]) -> Fact:
    assert note.rank is not None, "a failure is that of a rank"
    cause = _trigger(done) or memory.restored.get(note.rank)
    fact = _fact(memory, entry, note, f"rank {note.rank} can be filled again: {note.because}", (cause,))
    memory.kept[note.rank] = fact
    return fact


# -- replicas run, stop and fail


def _replica_running(memory: Memory, entry: Entry, note: Note, done: list[Fact]) -> Fact:
    who = _subject(note)
    rank = f" with rank {note.after.rank}" if note.after is not None else ""
    life = memory.life(who)
    return _fact(memory, entry, note, f"{who} is ready and runs{rank}", (life.given or life.requested,))


def _readiness(memory: Memory, entry: Entry, note: Note, done: list[Fact]) -> Fact:
    who = _subject(note)
    lost = note.kind is NoteKind.REPLICA_UNREADY
    what = "takes no requests for now" if lost else "takes requests again"
    text = f"{_with_rank(memory, who, note.rank)} {what}"
    return _fact(memory, entry, note, f"{text}: {note.because}" if note.because else text, (memory.life(who).given,))


def _preparation(memory: Memory, entry: Entry, note: Note, done: list[Fact]) -> Fact:
    who = _subject(note)
    what = "is up" if note.kind is NoteKind.REPLICA_PREPARED else "is told to come up without a rank"
    return _fact(memory, entry, note, f"{who} {what}, {note.because}", (memory.life(who).requested,))


def _stop_chosen(memory: Memory, entry: Entry, note: Note, done: list[Fact]) -> Fact:
    who = _subject(note)
    killed = note.kind is NoteKind.KILL_CHOSEN
    cause: Fact | None
    text = f"{_with_rank(memory, who, note.rank)} was {'killed' if killed else 'told to stop'}: {note.because}"
    if killed and note.rule == "S5" and note.rank in memory.lost:
        cause = memory.lost[note.rank]
    elif killed:
        cause = _about(done, who) or _trigger(done)
    elif isinstance(entry.cause, (StopRequested, ReplicasLeave)):
        cause = _about(done, who)
    else:
        cause = {"R11": memory.resized, "2.3": memory.deleted or memory.updated, "S7": memory.updated}.get(note.rule)
    fact = _fact(memory, entry, note, text, (cause,), short=f"the stop of {who}")
    memory.life(who).leaving = fact
    return fact


def _start_failed(memory: Memory, entry: Entry, note: Note, done: list[Fact]) -> Fact:
    who = _subject(note)
    cause = _about(done, who) or memory.life(who).requested
    what = "counts as a failed start" if note.kind is NoteKind.START_FAILED else "has failed again"
    fact = _fact(memory, entry, note, f"{who} {what}: {note.because}", (cause,))
    if note.rank is not None:
        memory.failures[note.rank] = fact
    return fact


def _version_failed(memory: Memory, entry: Entry, note: Note, done: list[Fact]) -> Fact:
    what = "went back" if note.kind is NoteKind.ROLLED_BACK else "gave up"
    failures = [fact for fact in done if fact.rule == "2.3" and fact.replica_ids]
    fact = _fact(memory, entry, note, f"{memory.name} {what}: {note.because}", (*failures[-1:], memory.updated))
    fact.short = "the roll-back" if note.kind is NoteKind.ROLLED_BACK else "the failure of the version"
    memory.updated = fact
    return fact


def _stalled(memory: Memory, entry: Entry, note: Note, done: list[Fact]) -> Fact:
    what = "is stalled" if note.kind is NoteKind.STALLED else "is stalled no longer"
    return _fact(memory, entry, note, f"{memory.name} {what}: {note.because}", (memory.updated,), change=False)


def _retried(memory: Memory, entry: Entry, note: Note, done: list[Fact]) -> Fact:
    what = memory.name if note.rank is None else f"rank {note.rank}"
    fact = _fact(memory, entry, note, f"{what} is tried again: {note.because}", (_trigger(done),), short="the retry")
    if note.rank is None:
        memory.updated = fact
    else:
        memory.failures[note.rank] = fact
    return fact


def _config_sent(memory: Memory, entry: Entry, note: Note, done: list[Fact]) -> Fact:
    return _fact(memory, entry, note, f"{_subject(note)} was sent another user_config: {note.because}", (memory.updated,))


# -- a controller comes back


def _report_adopted(memory: Memory, entry: Entry, note: Note, done: list[Fact]) -> Fact:
    who = _subject(note)
    assert note.after is not None, "a report that is adopted has a rank"
    fact = _fact(memory, entry, note, f"{who} reported {all_ranks(note.after)}: {note.because}", (memory.recovered,))
    memory.report(who, note.after, fact)
    return fact


def _duplicate_found(memory: Memory, entry: Entry, note: Note, done: list[Fact]) -> Fact:
    who = _subject(note)
    text = f"{who} reported rank {note.rank}, but {note.because}"
    fact = _fact(memory, entry, note, text, (memory.recovered,), short=f"the duplicate of rank {note.rank}")
    if note.rank is not None:
        memory.duplicates[note.rank] = fact
        sharers = [other for other, life in memory.lives.items() if life.rank is not None and life.rank.rank == note.rank]
        fact.replica_ids = tuple(sorted({who, *sharers}))
    return fact


def _recovery_complete(memory: Memory, entry: Entry, note: Note, done: list[Fact]) -> Fact:
    return _fact(memory, entry, note, f"all have reported: {note.because}", (memory.recovered,), change=False)


# -- the deployment, and news


def _status_changed(memory: Memory, entry: Entry, note: Note, done: list[Fact]) -> Fact:
    move_text, _, because = note.because.partition(": ")
    memory.status, memory.status_since = move_text.rpartition(" ")[2], memory.clock
    return _fact(memory, entry, note, f"{memory.name} is {memory.status}: {because}", (), change=False)


def _unknown_replica(memory: Memory, entry: Entry, note: Note, done: list[Fact]) -> Fact:
    killed = any(isinstance(each, KillReplica) and each.replica_id == note.replica_id for each in entry.commands)
    end = "; it was killed" if killed else ""
    return _fact(memory, entry, note, f"{listed((_subject(note),))}: {note.because}{end}", (_trigger(done),))


TELLERS: dict[NoteKind, Teller] = {
    NoteKind.STATUS_CHANGED: _status_changed,
    NoteKind.DEPLOY_FAILED: _version_failed,
    NoteKind.ROLLED_BACK: _version_failed,
    NoteKind.STALLED: _stalled,
    NoteKind.STALL_OVER: _stalled,
    NoteKind.RETRIED: _retried,
    NoteKind.RECOVERY_COMPLETE: _recovery_complete,
    NoteKind.RANK_CHOSEN: _rank_chosen,
    NoteKind.RANK_GIVEN: _rank_given,
    NoteKind.RANK_KEPT: _rank_kept,
    NoteKind.RANK_INHERITED: _rank_inherited,
    NoteKind.RANK_MOVED: _rank_moved,
    NoteKind.RANK_RELEASED: _rank_released,
    NoteKind.MOVE_ACKNOWLEDGED: _move_acknowledged,
    NoteKind.SLOT_CHANGED: _slot_changed,
    NoteKind.SLOT_GIVEN_UP: _slot_given_up,
    NoteKind.WAITING: _waiting,
    NoteKind.BUNDLE_LOST: _bundle_lost,
    NoteKind.BUNDLE_RESTORED: _bundle_restored,
    NoteKind.REPLICA_FAILED: _replica_failed,
    NoteKind.FAILURE_OVER: _failure_over,
    NoteKind.REPLICA_LOST: _replica_lost,
    NoteKind.REPLICA_RUNNING: _replica_running,
    NoteKind.REPLICA_UNREADY: _readiness,
    NoteKind.REPLICA_READY_AGAIN: _readiness,
    NoteKind.PREPARATION_ASKED: _preparation,
    NoteKind.REPLICA_PREPARED: _preparation,
    NoteKind.STOP_CHOSEN: _stop_chosen,
    NoteKind.KILL_CHOSEN: _stop_chosen,
    NoteKind.START_FAILED: _start_failed,
    NoteKind.BACKED_OFF: _start_failed,
    NoteKind.CONFIG_SENT: _config_sent,
    NoteKind.REPORT_ADOPTED: _report_adopted,
    NoteKind.DUPLICATE_FOUND: _duplicate_found,
    NoteKind.UNKNOWN_REPLICA: _unknown_replica,
}
"""The others are told with the event that brought them, or change nothing."""

REPEATED = NoteKind.REPEATED
ENDED = frozenset({NoteKind.REPLICA_LOST, NoteKind.RANK_RELEASED, NoteKind.RANK_KEPT, NoteKind.REPLICA_FAILED})
