"""From a journal, line by line, to facts that know their causes."""

from executors.engine.deployments import Deployed, Entry, Recovered, Resumed
from executors.explain.causes import tell_cause
from executors.explain.decisions import ENDED, REPEATED, TELLERS
from executors.explain.facts import Fact
from executors.explain.memory import Memory
from executors.simulator.times import TENTHS, moment
from rankcore.events import ReplicaDied, ReplicaMissing, ReplicaPlaced, ReplicaReported, ReplicaStartFailed, ReplicaStopped
from rankcore.notes import Note, NoteKind
from rankcore.values import ReplicaId

FINAL = (ReplicaDied, ReplicaStopped, ReplicaStartFailed, ReplicaMissing)
SLOW = ("StartReplica", "PrepareReplica", "InitializeReplica", "StopReplica")


class Tracer:
    """Follows one deployment through its journal. Feed it every line of the deployment, in order.

    Attributes:
        memory: What is known after the last line.
    """

    def __init__(self, deployment: str) -> None:
        self.memory = Memory(deployment)
        self._repeated: dict[ReplicaId, tuple[str, Fact]] = {}

    def facts_of(self, entry: Entry, done: list[Fact] | None = None) -> list[Fact]:
        """What one line tells.

        Args:
            done: What the line has told before, which this may follow from; it is added to.
        """
        done = [] if done is None else done
        first = len(done)
        memory, cause = self.memory, entry.cause
        memory.line = entry.line
        if isinstance(cause, Resumed):
            memory.clock = cause.state.clock
        else:
            begins = isinstance(cause, (Deployed, Recovered))
            memory.clock = cause.at if begins else max(memory.clock, cause.at)
        if isinstance(cause, Recovered):
            found = "DEPLOY_FAILED" if cause.failed else "RECOVERING"
            memory.status, memory.status_since = "DELETING" if cause.deleting else found, cause.at
        elif isinstance(cause, Deployed):
            memory.status, memory.status_since = "UPDATING", cause.at
        if isinstance(cause, (ReplicaPlaced, ReplicaReported)) and cause.replica_id in memory.lives:
            memory.place(cause.replica_id, cause.node_id)
        done += tell_cause(memory, entry, done)
        ended = self._tell_end(entry, done)
        for note in entry.notes:
            if note.kind is NoteKind.RANK_MOVED:  # what ended in this very line may have freed the number
                self._end(ended)
            fact = self._tell(entry, note, done)
            if fact is None:
                continue
            done.append(fact)
            if note.kind in ENDED and note.replica_id is not None:
                ended[note.replica_id] = fact
        if isinstance(cause, ReplicaPlaced) and cause.replica_id in memory.lives:
            if not any(cause.replica_id in fact.replica_ids for fact in done[first:]):
                text = f"{cause.replica_id} was placed on {cause.node_id}"
                done.append(Fact(line=entry.line, at=cause.at, text=text, replica_ids=(cause.replica_id,)))
        for place, fact in enumerate(done[first:], first):
            fact.place = place
            fact.deployments = (memory.name,)
            fact.is_detail = fact is not memory.resized and bool(fact.replica_ids or fact.ranks)
        self._end(ended)
        return done

    def _end(self, ended: dict[ReplicaId, Fact]) -> None:
        """These replicas are gone; each is ended once."""
        for replica_id, fact in ended.items():
            self.memory.end(replica_id, fact)
            self._repeated.pop(replica_id, None)
        ended.clear()

    def _tell_end(self, entry: Entry, done: list[Fact]) -> dict[ReplicaId, Fact]:
        """The end of a replica, where no note tells it; what is decided in this line follows from it."""
        cause, lives = entry.cause, self.memory.lives
        if not isinstance(cause, FINAL) or cause.replica_id not in lives:
            return {}
        who = cause.replica_id
        if any(note.replica_id == who and note.kind in ENDED for note in entry.notes):
            return {}
        leaving = lives[who].leaving
        causes = () if leaving is None else (leaving,)
        text, short = f"{who} has stopped", f"the end of {who}"
        fact = Fact(line=entry.line, at=cause.at, text=text, short=short, causes=causes, replica_ids=(who,))
        done.append(fact)
        return {who: fact}

    def _tell(self, entry: Entry, note: Note, done: list[Fact]) -> Fact | None:
        if note.kind is REPEATED and note.replica_id is not None:
            return self._tell_repeated(entry, note, note.replica_id)
        teller = TELLERS.get(note.kind)
        return teller(self.memory, entry, note, done) if teller is not None else None

    def _tell_repeated(self, entry: Entry, note: Note, replica_id: ReplicaId) -> Fact | None:
        """One line for all repeats of one command; starts and stops take long by nature, and say nothing by it."""
        if note.because.startswith(SLOW):
            return None
        what, fact = self._repeated.get(replica_id, ("", None))
        if fact is not None and what == note.because:
            fact.again += 1
            fact.later = f"and {fact.again} more, the last at {moment(self.memory.clock, TENTHS)}"
            return None
        fact = Fact(
            line=entry.line,
            at=self.memory.clock,
            text=f"{replica_id}: {note.because}, so it was sent once more",
            rule=note.rule,
            replica_ids=(replica_id,),
        )
        self._repeated[replica_id] = note.because, fact
        return fact
