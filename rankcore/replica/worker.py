"""A process that outlives its replicas: each stay on the GPU is a tenure, which is one replica, and none is had twice.

A process of a model with residency lives on while its weights are WARM. A replica, with its ranks, exists from the end of a
load to the end of the offload: the *tenure*, named by the replica's id. Between two of them the worker believes no rank.

1. A tenure is given by a start, and only if it is younger than every one that the worker has had or has said to be missing.
   **Race:** a start is late, and arrives after the worker left that tenure (or, asked, denied it): the controller has given
   the rank away. Were it taken, two would believe it (R3). Ids sort by age (`age_key`), so one number is enough to remember.
2. A message for another tenure than the present one changes nothing. A query or kill of it is answered with `NoSuchTenure`, and
   from then on it is one that the worker will never take: the answer stays true.
3. A world size may come before the tenure does: the newest is kept for it.
4. Leaving forgets the replica, and what its user code still does changes nothing: it is not what the present replica runs.
"""

from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from rankcore.replica import replica as replicas
from rankcore.replica.beliefs import NEVER, Stamp
from rankcore.replica.replica import Reaction, ReplicaHalf
from rankcore.values import NodeId, ReplicaId, ReplicaRank, age_key


class NoSuchTenure(Struct, frozen=True, gc=False):
    """To say: the worker does not have this tenure, and never will."""

    replica_id: ReplicaId


class Worker(Struct, frozen=True, gc=False):
    """One process that may hold tenures.

    Attributes:
        worker_id, node_id: Which it is, and where.
        epoch: The newest seen.
        replica: Its tenure; None: it has none.
        newest: The age of the youngest tenure that it had or denied.
        world_size: The newest announced; None: none was.
        world_stamp: Of that announcement.
    """

    worker_id: str
    node_id: NodeId
    epoch: int = 0
    replica: ReplicaHalf | None = None
    newest: tuple[int, int, str] = (-1, -1, "")
    world_size: int | None = None
    world_stamp: Stamp = NEVER

    @property
    def tenure(self) -> ReplicaId | None:
        """The id of its replica; None: it has none."""
        return None if self.replica is None else self.replica.replica_id

    @property
    def rank(self) -> ReplicaRank | None:
        """What it believes; None: it has no rank."""
        return None if self.replica is None else self.replica.rank


WorkerReply: TypeAlias = tuple[Worker, tuple[Reaction | NoSuchTenure, ...]]


def admit(worker: Worker, epoch: int) -> Worker | None:
    """The worker once a message of this epoch has come, which is adopted; None: the message is refused."""
    if epoch < worker.epoch:
        return None
    return worker if epoch == worker.epoch else replace(worker, epoch=epoch)


def take(worker: Worker, replica: ReplicaHalf) -> Worker:
    """It is given a tenure."""
    age = age_key(replica.replica_id)
    if age <= worker.newest:  # 1
        return worker
    if worker.world_size is not None:  # 3
        replica, _ = replicas.announce(replica, *worker.world_stamp, worker.world_size)
    return replace(worker, replica=replica, newest=age)


def announce(worker: Worker, epoch: int, revision: int, world_size: int) -> Worker:
    """A world size has come."""
    if (epoch, revision) > worker.world_stamp:
        worker = replace(worker, world_size=world_size, world_stamp=(epoch, revision))
    if worker.replica is None:
        return worker
    replica, _ = replicas.announce(worker.replica, epoch, revision, world_size)
    return replace(worker, replica=replica)


def deny(worker: Worker, replica_id: ReplicaId) -> WorkerReply:
    """It is asked for a tenure that it does not have, or is to end it."""
    return replace(worker, newest=max(worker.newest, age_key(replica_id))), (NoSuchTenure(replica_id),)  # 2


def leave(worker: Worker) -> Worker:
    """It is off the GPU: it has no rank any more."""
    return worker if worker.replica is None else replace(worker, replica=None)  # 4
