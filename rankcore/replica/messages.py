"""The replica's half in commands and events: which message calls what, and what is said in which event.

    replica = started(command, node_id)                        # with the process
    replica, reactions = receive(replica, command, now)        # with each message for it, in the order in which they come
    replica, reactions = user_code_ended(replica, now, failure)
    replica, reactions = readiness_checked(replica, now, problem)  # where user code can say whether it takes requests
    for reaction in reactions:
        match reaction:
            case RunUserCode(): ...                            # run it, then user_code_ended
            case Drain() | End(): ...
            case ReplicaStartFailed(): ...                     # end the process, then tell it: it is final
            case Refused(): ...                                # nothing, or count it
            case _: ...                                        # tell it

Workers have the same, with `worker_receive`, `worker_user_code_ended` and `rankcore.replica.worker.leave`.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec.structs import replace

from rankcore.commands import (
    AnnounceWorldSize,
    InitializeReplica,
    KillReplica,
    PrepareReplica,
    QueryReplica,
    ReconfigureReplica,
    StartReplica,
    StopReplica,
)
from rankcore.events import (
    ReplicaMissing,
    ReplicaPrepared,
    ReplicaReady,
    ReplicaReconfigured,
    ReplicaReconfigureFailed,
    ReplicaReported,
    ReplicaStartFailed,
    ReplicaUnready,
)
from rankcore.replica import replica as half
from rankcore.replica import worker as workers
from rankcore.replica.replica import (
    BecameReady,
    BecameUnready,
    Done,
    Drain,
    End,
    Overtaken,
    Refused,
    ReplicaHalf,
    ReportBeliefs,
    RunUserCode,
    StartFailed,
)
from rankcore.replica.worker import NoSuchTenure, Worker
from rankcore.values import NodeId

ReplicaChange: TypeAlias = PrepareReplica | InitializeReplica | ReconfigureReplica
Message: TypeAlias = ReplicaChange | AnnounceWorldSize | QueryReplica | StopReplica | KillReplica
WorkerMessage: TypeAlias = StartReplica | ReplicaChange | AnnounceWorldSize | QueryReplica | KillReplica
Answer: TypeAlias = (
    ReplicaPrepared
    | ReplicaReady
    | ReplicaUnready
    | ReplicaReconfigured
    | ReplicaReconfigureFailed
    | ReplicaReported
    | ReplicaMissing
)
Reaction: TypeAlias = Answer | ReplicaStartFailed | RunUserCode | Drain | End | Refused
"""Events are to be told, the others to be done. `ReplicaStartFailed` is final: the process ends, and then it is told."""
Reply: TypeAlias = tuple[ReplicaHalf, tuple[Reaction, ...]]
WorkerReply: TypeAlias = tuple[Worker, tuple[Reaction, ...]]


def started(start: StartReplica, node_id: NodeId) -> ReplicaHalf:
    """The replica that a start makes."""
    return ReplicaHalf(
        epoch=start.epoch,
        replica_id=start.replica_id,
        version=start.version,
        node_id=node_id,
        bundles=start.bundles,
        group_id=start.group_id,
        restart_token=start.restart_token,
    )


def receive(replica: ReplicaHalf, message: Message, at: float) -> Reply:
    """A message has reached the process."""
    after, reactions = _RECEIVED[type(message)](replica, message)
    after = half.timed(replica, after, at)
    return after, _said(after, reactions, at) if reactions else ()


def user_code_ended(replica: ReplicaHalf, at: float, failure: str | None = None) -> Reply:
    """What `RunUserCode` began is over; `failure`: what went wrong, such as a traceback; None: nothing did."""
    after, reactions = half.ended(replica, failure)
    after = half.timed(replica, after, at)
    return after, _said(after, reactions, at)


def readiness_checked(replica: ReplicaHalf, at: float, problem: str | None = None) -> Reply:
    """Whether user code can take requests was looked at; `problem`: why it cannot; None: it can. A change is to be told."""
    after, reactions = half.readiness(replica, problem)
    after = half.timed(replica, after, at)
    return after, _said(after, reactions, at) if reactions else ()


def worker_receive(worker: Worker, message: WorkerMessage, at: float) -> WorkerReply:
    """A message for one of its tenures has reached the worker."""
    admitted = workers.admit(worker, message.epoch)
    if admitted is None:
        return worker, (Refused(worker.epoch),)
    if isinstance(message, StartReplica):
        return workers.take(admitted, started(message, worker.node_id)), ()
    if isinstance(message, AnnounceWorldSize):
        return workers.announce(admitted, message.epoch, message.revision, message.world_size), ()
    replica = admitted.replica
    if replica is not None and message.replica_id == replica.replica_id:
        replica, reactions = receive(replica, message, at)
        return replace(admitted, replica=replica), reactions
    if isinstance(message, (QueryReplica, KillReplica)):
        after, (missing,) = workers.deny(admitted, message.replica_id)
        assert isinstance(missing, NoSuchTenure)
        return after, (ReplicaMissing(replica_id=missing.replica_id, at=at),)
    return admitted, ()


def worker_user_code_ended(worker: Worker, ran: RunUserCode, at: float, failure: str | None = None) -> WorkerReply:
    """What a `RunUserCode` began is over; that of a tenure that it has left is of no interest any more."""
    replica = worker.replica
    if replica is None or replica.running is not ran.command:
        return worker, ()
    replica, reactions = user_code_ended(replica, at, failure)
    return replace(worker, replica=replica), reactions


def _said(replica: ReplicaHalf, reactions: tuple[half.Reaction, ...], at: float) -> tuple[Reaction, ...]:
    say = _SAID.get(type(reactions[0]))
    if say is None:  # it stands alone, and is to be done; or not to be said: the answer to the newest counts
        return () if type(reactions[0]) is Overtaken else reactions  # type: ignore[return-value]
    first = say(replica, reactions[0], at)
    if len(reactions) == 1:
        return (first,)
    second = reactions[1]
    say = _SAID.get(type(second))
    return first, second if say is None else say(replica, second, at)  # type: ignore[return-value]


def _done(replica: ReplicaHalf, done: Done, at: float) -> Answer:
    command = done.command
    if command.rank is None:
        return ReplicaPrepared(replica_id=replica.replica_id, revision=command.revision, at=at)
    if command.initialize:
        return ReplicaReady(replica_id=replica.replica_id, at=at)
    if done.failure is not None:
        return ReplicaReconfigureFailed(replica_id=replica.replica_id, revision=command.revision, reason=done.failure, at=at)
    return ReplicaReconfigured(replica_id=replica.replica_id, revision=command.revision, at=at)


def _start_failed(replica: ReplicaHalf, failed: StartFailed, at: float) -> ReplicaStartFailed:
    return ReplicaStartFailed(replica_id=replica.replica_id, reason=failed.reason, at=at)


def _became_unready(replica: ReplicaHalf, became: BecameUnready, at: float) -> ReplicaUnready:
    return ReplicaUnready(replica_id=replica.replica_id, reason=became.reason, at=at)


def _became_ready(replica: ReplicaHalf, _: BecameReady, at: float) -> ReplicaReady:
    return ReplicaReady(replica_id=replica.replica_id, at=at)


def _report(replica: ReplicaHalf, _: ReportBeliefs, at: float) -> ReplicaReported:
    return ReplicaReported(
        replica_id=replica.replica_id,
        node_id=replica.node_id,
        rank=replica.rank,
        version=replica.version,
        ready=replica.ready,
        unready=replica.unready,
        ready_for_s=half.ready_for_s(replica, at),
        prepared=replica.prepared,
        draining=replica.draining,
        config_id=replica.config_id,
        bundles=replica.bundles,
        group_id=replica.group_id,
        restart_token=replica.restart_token,
        epoch=replica.epoch,
        at=at,
    )


_SAID: dict[type[object], Callable[[ReplicaHalf, Any, float], Reaction]] = {
    Done: _done,
    StartFailed: _start_failed,
    BecameUnready: _became_unready,
    BecameReady: _became_ready,
    ReportBeliefs: _report,
}
_RECEIVED: dict[type[Message], Callable[[ReplicaHalf, Any], half.Reply]] = {
    PrepareReplica: half.change,
    InitializeReplica: half.change,
    ReconfigureReplica: half.change,
    AnnounceWorldSize: lambda replica, said: half.announce(replica, said.epoch, said.revision, said.world_size),
    QueryReplica: lambda replica, asked: half.query(replica, asked.epoch),
    StopReplica: lambda replica, told: half.stop(replica, told.epoch, told.timeout_s),
    KillReplica: lambda replica, told: half.kill(replica, told.epoch),
}
