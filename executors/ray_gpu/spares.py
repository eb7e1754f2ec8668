"""Spare processes: started, with the user's code loaded, without a rank. One becomes a replica in milliseconds.

Replica ids are never reused and count up, so a spare is started under the name that the next replica will have.
"""

import asyncio
from collections.abc import Callable

from executors.ray_gpu.process import Process
from rankcore import DeploymentSpec
from rankcore.commands import StartReplica
from rankcore.values import ReplicaId, age_key

REFILL_AFTER_S = 0.5
"""A spare is started when the replicas that were asked for had this long to take the processors first."""
RETRY_AFTER_S = 5.0
"""A spare that dies by itself is not replaced at once: its code may not load."""


class Spares:
    """The pool of one deployment.

    Args:
        wanted: How many stand by.
        epoch: Of this controller; it is part of the names.
        start: Creates one.
        end: Ends one that is not needed.
    """

    def __init__(
        self,
        wanted: int,
        epoch: int,
        start: Callable[[ReplicaId, DeploymentSpec], Process],
        end: Callable[[Process], None],
    ) -> None:
        self.wanted = wanted
        self._epoch = epoch
        self._start = start
        self._end = end
        self._pool: dict[ReplicaId, Process] = {}
        self._next_serial = 0
        self._spec: DeploymentSpec | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def ready(self) -> int:
        """How many stand by and are up."""
        return sum(1 for spare in self._pool.values() if spare.endpoint is not None)

    def take(self, command: StartReplica) -> Process | None:
        """The spare that has a replica's name, whether it fits or not: nobody else can have that name before it is gone."""
        self._next_serial = max(self._next_serial, age_key(command.replica_id)[1] + 1)
        self._later(REFILL_AFTER_S)
        return self._pool.pop(command.replica_id, None)

    def keep(self, spec: DeploymentSpec | None) -> None:
        """Have as many as are wanted of this version and restart token; None: no more, the deployment is not at rest."""
        self._spec = spec
        self._later(REFILL_AFTER_S)

    def look_again(self) -> None:
        """Other nodes are cordoned than before: who stands by there is ended, and started elsewhere."""
        self._later(REFILL_AFTER_S)

    def lost(self, process: Process) -> bool:
        """Whether a process that has ended was a spare; if so, another one comes later."""
        if self._pool.get(process.replica_id) is not process:
            return False
        del self._pool[process.replica_id]
        self._later(RETRY_AFTER_S)
        return True

    async def close(self) -> None:
        """End them all, and wait until they are gone."""
        self.wanted, self._spec = 0, None
        if self._timer is not None:
            self._timer.cancel()
        ending = tuple(self._pool.values())
        for spare in ending:
            self._end(spare)
        await asyncio.gather(*(spare.gone.wait() for spare in ending))

    def _later(self, delay_s: float) -> None:
        if self._timer is None and (self.wanted or self._pool):
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._refill)

    def _refill(self) -> None:
        self._timer = None
        spec = self._spec
        serials = range(self._next_serial, self._next_serial + self.wanted)
        for spare in tuple(self._pool.values()):
            is_next = age_key(spare.replica_id)[1] in serials
            fits = spec is None or ((spare.version, spare.restart_token) == spec.generation and is_next)
            if not (fits and spare.may_stay):
                self._end(spare)
        if spec is None:
            return
        for serial in serials:
            replica_id = f"{spec.name}#{self._epoch}.{serial}"
            if replica_id not in self._pool:
                self._pool[replica_id] = self._start(replica_id, spec)
