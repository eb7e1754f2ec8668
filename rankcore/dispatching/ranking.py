"""The planner and the machine of ranks agree: one target, who is HOT has a seat, who leaves drains (D12).

Nothing here decides about ranks: `rankcore.core` does. What the planner has decided is told to it, and what it commands is
handed out to the replicas that sit on its seats.
"""

from collections.abc import Iterable

import attrs

from rankcore.commands import (
    AnnounceWorldSize,
    Command,
    InitializeReplica,
    KillReplica,
    QueryReplica,
    ReconfigureReplica,
    StartReplica,
    StopReplica,
)
from rankcore.core import deploy, recover, step
from rankcore.dispatching.commands import TellReplica
from rankcore.dispatching.events import RankNews
from rankcore.dispatching.seats import Ranking, RankSpec
from rankcore.draft import Step
from rankcore.events import (
    ClockAdvanced,
    Event,
    ReplicaDied,
    ReplicaMissing,
    ReplicaPlaced,
    ReplicaReported,
    ReplicaStartFailed,
    ReplicaStopped,
    SpecChanged,
    StopRequested,
)
from rankcore.notes import Note, NoteKind
from rankcore.residency import Phase, ResidencyState
from rankcore.state import Replica
from rankcore.takeover import outstanding
from rankcore.values import DRAINING, NodeId, ReplicaId

HOT = frozenset({Phase.SERVING, Phase.LEAVING})
_GROUPS = ("serving", "wanted", "placed")


def is_hot(residency: ResidencyState, replica_id: ReplicaId) -> bool:
    """Whether a replica is on GPUs, serving or leaving, so that it may have a rank; one whose record has ended is not."""
    resident = residency.replicas.get(replica_id)
    return resident is not None and resident.phase in HOT


def unchanged(now: ResidencyState, before: ResidencyState, model: str) -> bool:
    """Whether nobody of a model became HOT, left, was lost, or is wanted otherwise, as far as that is seen in O(1)."""
    ours, theirs = now.index.roster.groups, before.index.roster.groups
    return all(ours.get((model, group)) is theirs.get((model, group)) for group in _GROUPS)


class Seating:
    """The ranks of one model, open for change while a step runs.

    Attributes:
        commands: For its replicas.
        notes: Why, by the machine of ranks.
    """

    def __init__(self, ranking: Ranking, residency: ResidencyState, clock: float) -> None:
        self.ranking = ranking
        self.commands: list[TellReplica] = []
        self.notes: list[Note] = []
        self._residency = residency
        self._clock = clock

    @classmethod
    def begin(cls, spec: RankSpec, model: str, residency: ResidencyState, clock: float, epoch: int) -> "Seating":
        """A model is to have ranks from now on. Who serves already goes on."""
        first = deploy(spec.deployment(model, residency.target(model)), at=clock, epoch=epoch)
        seating = cls(Ranking(first.state, served_before=residency.hot_replicas(model)), residency, clock)
        seating._take(first)
        return seating

    # -- what happens

    def configure(self, spec: RankSpec) -> None:
        """Another user_config, or other time-outs."""
        deployment = self.ranking.deployment.spec
        self._tell(SpecChanged(spec=spec.deployment(deployment.name, deployment.target_replicas), at=self._clock))

    def pass_time(self) -> None:
        """What is due is done."""
        self._tell(ClockAdvanced(at=self._clock))

    def take_over(self, epoch: int) -> None:
        """Another controller: nothing is given out before the replicas have said which ranks they have (R10)."""
        old = self.ranking.deployment
        found = sorted(self.ranking.seats.values())
        self._take(recover(old.spec, found, at=self._clock, epoch=epoch, previous=old.previous))

    def hear(self, replica_id: ReplicaId, news: RankNews) -> None:
        """What a replica says about the seat that it has. One that knows of no rank gets a seat anew."""
        if isinstance(news, ReplicaStartFailed):
            self.ranking = attrs.evolve(self.ranking, because=news.reason)
        if isinstance(news, ReplicaReported) and news.rank is None:
            if news.epoch == self.ranking.deployment.epoch:
                self._end(replica_id, ReplicaMissing(replica_id=news.replica_id, at=self._clock))
        elif isinstance(news, (ReplicaStartFailed, ReplicaMissing)):
            self._end(replica_id, attrs.evolve(news, at=self._clock))
        elif isinstance(news, ReplicaReported):
            self._tell(attrs.evolve(news, node_id=self._node_of(replica_id), at=self._clock))
        else:
            self._tell(attrs.evolve(news, at=self._clock))

    # -- what follows

    def follow(self) -> None:
        """Bring the machine of ranks to what the planner has. Does nothing the second time."""
        self._see_off()
        self._resize()
        self._stop()
        self._seat()
        old = self.ranking.served_before
        if old:
            still = tuple(each for each in old if self._phase(each) is Phase.SERVING and not self.ranking.has_run(each))
            self.ranking = attrs.evolve(self.ranking, served_before=still)

    def _phase(self, replica_id: ReplicaId) -> Phase | None:
        resident = self._residency.replicas.get(replica_id)
        return None if resident is None else resident.phase

    def _node_of(self, replica_id: ReplicaId) -> NodeId:
        node_id = self._residency.replicas[replica_id].node_id
        assert node_id is not None, f"{replica_id} is HOT, and nowhere"
        return node_id

    def _see_off(self) -> None:
        """Who is off the GPU has no rank any more (R7), and who is wanted again has the same one (R6)."""
        for replica_id in sorted(self.ranking.seats):
            if not is_hot(self._residency, replica_id):
                seat = self.ranking.seat_of(replica_id)
                assert seat is not None
                kind = ReplicaStopped if seat.state is DRAINING else ReplicaDied
                self._end(replica_id, kind(replica_id=seat.replica_id, at=self._clock))

    def _end(self, replica_id: ReplicaId, news: Event) -> None:
        seat = self.ranking.seat_of(replica_id)
        assert seat is not None
        homes = self.ranking.homes if seat.slot is None else self.ranking.homes.set(replica_id, seat.slot)
        self.ranking = attrs.evolve(self.ranking, seats=self.ranking.seats.delete(replica_id), homes=homes)
        self._tell(news)

    def _resize(self) -> None:
        """The world size is the planner's target (R9). Nobody who is to stay is stopped for a smaller one."""
        spec = self.ranking.deployment.spec
        target = self._residency.target(spec.name)
        if target != spec.target_replicas:
            leaving = self._leaving(returns=False)
            unseated = [each.replica_id for each in reversed(self.ranking.open_seats())]
            smaller = attrs.evolve(spec, target_replicas=target)
            self._tell(SpecChanged(spec=smaller, stop_first=(*leaving, *unseated), at=self._clock))

    def _stop(self) -> None:
        leaving = (*self._leaving(returns=False), *self._leaving(returns=True))
        if leaving:
            self._tell(StopRequested(replica_ids=leaving, at=self._clock))

    def _leaving(self, *, returns: bool) -> tuple[ReplicaId, ...]:
        """The seats of who leaves the GPU, for good or to return, and is not draining yet."""
        residents, deployment = self._residency.replicas, self.ranking.deployment
        return tuple(
            seat
            for replica_id, seat in sorted(self.ranking.seats.items())
            if residents[replica_id].phase is Phase.LEAVING
            and residents[replica_id].returns is returns
            and deployment.replicas[seat].state is not DRAINING
        )

    def _seat(self) -> None:
        """Who is HOT takes a seat."""
        for replica_id in self._residency.hot_replicas(self.ranking.deployment.spec.name):
            seat = seat_for(self.ranking, self._residency, replica_id) if replica_id not in self.ranking.seats else None
            if seat is not None:
                self.ranking = attrs.evolve(self.ranking, seats=self.ranking.seats.set(replica_id, seat.replica_id))
                self._tell(ReplicaPlaced(replica_id=seat.replica_id, node_id=self._node_of(replica_id), at=self._clock))

    # -- the machine of ranks

    def _tell(self, event: Event) -> None:
        self._take(step(self.ranking.deployment, event))

    def _take(self, taken: Step) -> None:
        """Carry out what it commands: by the replicas, or here where nobody sits on the seat that it is about."""
        self.ranking = attrs.evolve(self.ranking, deployment=taken.state)
        self.notes.extend(note for note in taken.notes if note.kind is not NoteKind.REPEATED or self._is_taken(note.replica_id))
        self.commands.extend(handed_out(self.ranking, self._residency, taken.commands))
        for command in taken.commands:
            if isinstance(command, (StopReplica, KillReplica)) and not self._is_taken(command.replica_id):
                self._tell(ReplicaStopped(replica_id=command.replica_id, at=self._clock))

    def _is_taken(self, seat: ReplicaId | None) -> bool:
        return seat is not None and seat in self.ranking.seats.values()


def seat_for(ranking: Ranking, residency: ResidencyState, replica_id: ReplicaId) -> Replica | None:
    """The seat that a HOT replica takes: that of the rank it had last, else the lowest that nobody comes back for (R6).

    There are as many seats as replicas that are wanted, so that one which finds none has it once somebody's end is told.
    """
    free = ranking.open_seats()
    if not free:
        return None
    home = ranking.homes.get(replica_id)
    others = [each for each in residency.wanted_replicas(ranking.deployment.spec.name) if each != replica_id]
    kept = {_returns_to(ranking, each) for each in others} - {None}
    own = (each for each in free if each.slot == home)
    return next(own, None) or next((each for each in free if each.slot not in kept), None)


def _returns_to(ranking: Ranking, replica_id: ReplicaId) -> int | None:
    """The rank that a replica which is wanted will have again; None: it has one, or never had."""
    seat = ranking.seat_of(replica_id)
    if seat is None:
        return ranking.homes.get(replica_id)
    return seat.slot if seat.state is DRAINING else None


def handed_out(ranking: Ranking, residency: ResidencyState, commands: Iterable[Command]) -> tuple[TellReplica, ...]:
    """What the machine of ranks commands, for the replicas that sit on its seats, and are not gone as well."""
    residents = residency.replicas
    phases = {replica_id: residents[replica_id].phase for replica_id in ranking.seats if replica_id in residents}
    replica_of = {seat: replica_id for replica_id, seat in ranking.seats.items() if phases.get(replica_id) in HOT}
    told: list[TellReplica] = []
    for command in commands:
        if isinstance(command, AnnounceWorldSize):
            told.extend(TellReplica(replica_id, command) for replica_id in sorted(replica_of.values()))
        elif isinstance(command, (InitializeReplica, ReconfigureReplica, QueryReplica, StopReplica, KillReplica)):
            replica_id = replica_of.get(command.replica_id)
            if replica_id is not None:
                leaves = phases[replica_id] is Phase.LEAVING
                told.extend(TellReplica(replica_id, each) for each in _for_replica(ranking, command, leaves=leaves))
    return tuple(told)


def _for_replica(
    ranking: Ranking,
    command: InitializeReplica | ReconfigureReplica | QueryReplica | StopReplica | KillReplica,
    *,
    leaves: bool,
) -> tuple[StartReplica | InitializeReplica | ReconfigureReplica | QueryReplica | KillReplica, ...]:
    """A first rank comes with the seat that it is for. Who leaves the GPU anyway is told so by the planner alone."""
    if isinstance(command, (StopReplica, KillReplica)):
        return () if leaves else (KillReplica(command.replica_id, command.epoch),)
    if not isinstance(command, InitializeReplica):
        return (command,)
    version = ranking.deployment.replicas[command.replica_id].version
    return StartReplica(command.replica_id, command.rank.rank, version, None, (), command.epoch), command


def told_again(ranking: Ranking, residency: ResidencyState) -> tuple[TellReplica, ...]:
    """What the replicas of a model have not acknowledged, for an executor that takes over (D10)."""
    return handed_out(ranking, residency, outstanding(ranking.deployment))
