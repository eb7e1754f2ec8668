"""One replica: a message or the end of user code in, the next value and what is to be done about it out.

It knows no clock, no network and no process. Whoever owns it has to hand it each message once, in any order, let user code run
where a reaction says so, one at a time, and say how that ended.

**One change at a time.** User code that runs cannot be taken back, so at most one change runs (`running`) and at most one, the
newest, waits (`waiting`). What the replica *believes* is the newest one from the moment it was accepted, before user code runs:
two replicas may then believe the same rank only if a controller told them so, and no delay of user code can prolong that (R3).

1. A change that arrives with nothing running runs. One that arrives during another waits.
2. One that waits is dropped for a newer one: it never began, and nobody may act on it any more. It is not acknowledged:
   its sender looks to the answer of the newest. **Race:** two moves sent during one slow `reconfigure`, both acknowledged,
   would have user code run for ranks that another replica has been given meanwhile.
3. One that runs is acknowledged with its own revision when it has ended, although a newer one waits: user code has seen it.
4. **A repeated change** (its stamp is that of the newest) is never carried out again. While anything runs, the newest is under
   way, and its answer will come; else its answer is given again, *with the same outcome*. **Race:** the acknowledgement was
   lost. If a repetition ran user code again, a failure could become a success that the controller has counted already.
5. **A query** is answered at once, unless a change of ranks or user_config is under way: then when that is over. During the
   start-up alone it is answered at once, and says so: a start-up takes minutes, and a new controller asks everybody. **Race:**
   a report between acceptance and end would say that the replica is at rest, and the controller would send the next change
   into it. A query adopts its epoch first, so that after the answer nothing of an older controller changes what it said.
6. **Drain.** A replica that drains is told of its ranks, and answers queries, as before: a new controller has to learn that
   it still believes its rank. A repeated stop is answered by the end that is on its way.
7. **A preparation** is a change without a rank: user code comes up, and that is all. The first change with a rank (*adoption*)
   lets it have that, and runs no `__init__` again. After that a preparation is refused as older, whatever its stamp: a rank
   that is believed is not forgotten. Adoption is part of the start-up: a query is answered at once, and its failure is final.
8. **A start-up that has failed** is final: nothing of it can be used, the process ends, and every later change has the same
   answer, until it has. **Race:** the controller that was told may have died since, and its successor initialises again.
9. **Unready.** Whoever owns it looks now and then whether user code can take requests, and says what it found (`readiness`): a
   change is said once, and each report says how it is. Nothing ends for it. **Race:** a repeated initialization is answered as
   ever, which says that it is ready: that it is not is said once more, behind that.

Every message ends in at most three reactions, and nothing here repeats anything by itself: that user code ends, or that the
process is ended, is what brings each accepted change to its answer.

What it never does: give itself a rank, forget one, go back to an older stamp, obey an older epoch, run user code twice at the
same time or twice for one change, run `__init__` twice, or start without `Prepare` or `Initialize`.
"""

from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from rankcore.replica import beliefs
from rankcore.replica.beliefs import CARRY_OUT, REFUSED, REPEATED, Beliefs, RankChange, admit, adopt, verdict_on
from rankcore.values import NodeId, ReplicaId


class RunUserCode(Struct, frozen=True, gc=False):
    """To do: let user code run, then call `ended`.

    Attributes:
        starting: Whether `__init__` is to run: the first change. Else user code is up, and hears of what is other than before.
        command: What is carried out: ranks, if it has any, and user_config.
    """

    starting: bool
    command: RankChange


class Drain(Struct, frozen=True, gc=False):
    """To do: take no further request, finish those in flight for `timeout_s` at most, then end."""

    timeout_s: float


class End(Struct, frozen=True, gc=False):
    """To do: end the process now."""


class Done(Struct, frozen=True, gc=False):
    """To say: a change has been carried out. `failure`: what user code raised; None: nothing."""

    command: RankChange
    failure: str | None


class StartFailed(Struct, frozen=True, gc=False):
    """To say, once the process has ended: user code did not come up."""

    reason: str


class BecameUnready(Struct, frozen=True, gc=False):
    """To say: user code cannot take requests for now."""

    reason: str


class BecameReady(Struct, frozen=True, gc=False):
    """To say: it can take them again."""


class Overtaken(Struct, frozen=True, gc=False):
    """To say, where it is asked for: a change is not carried out, a newer one's answer counts."""

    command: RankChange


class Refused(Struct, frozen=True, gc=False):
    """To say, where it is asked for: the message is of an older epoch than this, and has changed nothing."""

    epoch: int


class ReportBeliefs(Struct, frozen=True, gc=False):
    """To say: what the replica believes now."""


ToDo: TypeAlias = RunUserCode | Drain | End
Reaction: TypeAlias = ToDo | Done | StartFailed | BecameUnready | BecameReady | Overtaken | Refused | ReportBeliefs
_END, _REPORT, _READY = End(), ReportBeliefs(), BecameReady()


class ReplicaHalf(Beliefs, frozen=True, gc=False, kw_only=True):
    """One replica at one moment.

    Attributes:
        replica_id, version, node_id: Which it is, what it runs, and where.
        bundles, group_id: What it was started on; empty: no static placement.
        restart_token: What it was started with.
        constructed: Whether user code is up, with a rank or without.
        ready: Whether start-up is over: user code is up, and has its rank.
        draining: Whether it was told to stop.
        running: The change for which user code runs; None: none does, and the newest one is over.
        waiting: The newest change, if an older one runs.
        failure: What went wrong with the newest change, once it is over; None: nothing did.
        asked: Whether a query waits for its answer.
        unready: Why user code cannot take requests for now; None: it can, or has not started.
        ready_since: Since when user code has been up on this user_config, ready or prepared, by its owner's clock; None:
            it is not.
    """

    replica_id: ReplicaId
    version: str
    node_id: NodeId
    bundles: tuple[int, ...] = ()
    group_id: str | None = None
    restart_token: str = ""
    constructed: bool = False
    ready: bool = False
    draining: bool = False
    running: RankChange | None = None
    waiting: RankChange | None = None
    failure: str | None = None
    asked: bool = False
    unready: str | None = None
    ready_since: float | None = None

    @property
    def starting(self) -> bool:
        """Whether its start-up runs."""
        return self.running is not None and not self.ready

    @property
    def begun(self) -> bool:
        """Whether user code has been let run."""
        return self.constructed or self.running is not None

    @property
    def prepared(self) -> bool:
        """Whether user code is up, and no preparation is under way."""
        return self.constructed and (self.running is None or self.running.rank is not None)

    @property
    def changing(self) -> bool:
        """Whether a change other than the start-up is under way, so that a query has to wait."""
        return self.waiting is not None or (self.running is not None and self.ready)

    @property
    def failed_to_start(self) -> bool:
        """Whether its start-up has failed."""
        return self.failure is not None and not self.ready


Reply: TypeAlias = tuple[ReplicaHalf, tuple[Reaction, ...]]


def change(replica: ReplicaHalf, command: RankChange) -> Reply:
    """A change of ranks or user_config has come."""
    verdict = verdict_on(replica, command)
    if verdict is REFUSED:
        return replica, (Refused(replica.epoch),)
    if verdict is REPEATED and not replica.failed_to_start:  # 4
        return replica, () if replica.running is not None else _answered(replica, command)
    if verdict is CARRY_OUT and replica.running is None and not replica.failed_to_start:  # 1
        return replace(adopt(replica, command), running=command, failure=None), (RunUserCode(not replica.constructed, command),)
    if verdict is CARRY_OUT and replica.running is not None:  # 2
        dropped = replica.waiting
        return replace(adopt(replica, command), waiting=command), () if dropped is None else (Overtaken(dropped),)
    after = beliefs.announce(replica, command.epoch, command.revision, command.world_size)
    assert after is not None, "its epoch was looked at above"
    return after, (StartFailed(after.failure or ""),) if after.failed_to_start else (Overtaken(command),)  # 8


def ended(replica: ReplicaHalf, failure: str | None = None) -> Reply:
    """The user code that ran is over; `failure`: what went wrong, such as a traceback; None: nothing did."""
    done, following = replica.running, replica.waiting
    assert done is not None, f"{replica.replica_id}: no user code was running"
    if failure is not None and not replica.ready:  # 8
        return replace(replica, running=None, waiting=None, failure=failure), (StartFailed(failure),)
    ready = replica.ready or done.rank is not None  # 7
    if following is not None:  # 3
        after = replace(replica, constructed=True, ready=ready, running=following, waiting=None)
        return after, (Done(done, failure), RunUserCode(False, following))
    after = replace(replica, constructed=True, ready=ready, running=None, failure=failure, asked=False)
    return after, (Done(done, failure), _REPORT) if replica.asked else (Done(done, failure),)  # 5


def _answered(replica: ReplicaHalf, command: RankChange) -> tuple[Reaction, ...]:
    done = Done(command, replica.failure)
    if replica.unready is None or not command.initialize or command.rank is None:
        return (done,)
    return done, BecameUnready(replica.unready)  # 9


def readiness(replica: ReplicaHalf, problem: str | None) -> Reply:
    """Whether user code can take requests was looked at; `problem`: why it cannot; None: it can."""
    if not replica.ready or replica.draining:
        return replica, ()
    known, after = replica.unready, replace(replica, unready=problem)
    if (known is None) is (problem is None):
        return after, ()
    return after, (_READY if problem is None else BecameUnready(problem),)


def timed(before: ReplicaHalf, after: ReplicaHalf, at: float) -> ReplicaHalf:
    """Follow since when user code has been up, over any step; `at`: on a clock that never goes back in the process's life.

    It counts anew with another user_config, with the first rank, and after each time of unreadiness; a change of ranks alone
    does not end it.
    """
    since = before.ready_since
    if after.config_id != before.config_id or after.ready is not before.ready:
        since = None
    if not after.constructed or after.failure is not None or after.unready is not None:
        since = None
    elif since is None and after.running is None:
        since = at
    return after if since == after.ready_since else replace(after, ready_since=since)


def ready_for_s(replica: ReplicaHalf, at: float) -> float | None:
    """For how long that has been so now; None: it is not."""
    return None if replica.ready_since is None else max(0.0, at - replica.ready_since)


def announce(replica: ReplicaHalf, epoch: int, revision: int, world_size: int) -> Reply:
    """A world size has come; user code is not called."""
    after = beliefs.announce(replica, epoch, revision, world_size)
    return (replica, (Refused(replica.epoch),)) if after is None else (after, ())


def query(replica: ReplicaHalf, epoch: int) -> Reply:
    """A controller asks what the replica believes."""
    after = admit(replica, epoch)
    if after is None:
        return replica, (Refused(replica.epoch),)
    return (replace(after, asked=True), ()) if after.changing else (after, (_REPORT,))  # 5


def stop(replica: ReplicaHalf, epoch: int, timeout_s: float) -> Reply:
    """The replica is to finish what it is doing, and end."""
    after = admit(replica, epoch)
    if after is None:
        return replica, (Refused(replica.epoch),)
    return (after, ()) if after.draining else (replace(after, draining=True), (Drain(timeout_s),))  # 6


def kill(replica: ReplicaHalf, epoch: int) -> Reply:
    """The replica is to end at once."""
    after = admit(replica, epoch)
    return (replica, (Refused(replica.epoch),)) if after is None else (after, (_END,))
