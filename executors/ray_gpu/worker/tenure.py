"""One stay on the GPU: a replica like a pinned one, in a process that outlives it.

A tenure ends within its process, so that everything of it has to end there. Why nothing of it reaches the next one:

1. Routes are removed before the offload is commanded, so no call is on its way but from routers that do not know it yet.
2. The socket is closed and removed, callers are asked to part, and what they sent before is answered, as when a pinned replica
   drains. **Race:** a call that was sent before its caller heard of it is run; a later one is refused, and goes elsewhere.
3. What still runs at the end of its time is cut off with its connection: its caller takes it for lost, as at a process's end.
   **Race:** were it told that the call had ended, it would take the absence of an answer for one.
4. Credits belong to a connection, a connection to a tenure, and both end here. The next tenure has another socket; actor calls
   name the tenure with the connection's key. **Race:** four credits of a caller who has not heard of the end would let it send
   four calls above the limit to the next tenure, on ranks that are no longer so.
5. User code that changes ranks or user_config is waited for. One that does not end leaves a process that has to end: it would
   run beside the next tenure's start.
6. The rank is given up last (`leave` of the worker's half), when nothing runs any more that believes it.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from executors.ray_gpu.messages import Endpoint
from executors.ray_gpu.replica import Replica
from executors.ray_gpu.requests.server import CANCEL_S
from executors.ray_gpu.worker.messages import Leave
from executors.ray_gpu.worker.move_sequence import BusyError
from rankcore.replica import replica as half


class Tenure(Replica):
    """A replica of a worker. It is made when it is given to the worker, and serves once it is initialised."""

    @property
    def replica_id(self) -> str:
        """Which one."""
        return self.half.replica_id

    @property
    def endpoint(self) -> Endpoint:
        """Where it takes calls."""
        return self._endpoint

    def watch_errors(self, on_error: Callable[[BaseException], None]) -> None:
        """Have whatever user code raises told, on its thread."""
        self._server.on_error = on_error

    async def part(self) -> None:
        """Take leave of all callers: what they have sent is answered, for a second at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CANCEL_S):
                await self._user.run(self._server.drain())

    async def end(self, leave: Leave) -> None:
        """Finish what is under way for `timeout_s` at most, cut off the rest, and take nothing more.

        Raises:
            BusyError: It is to end only if it is idle, and a call is under way. Nothing has changed.
            RuntimeError: User code does not end.
        """
        if leave.if_idle and not await self._user.run(self._server.part_if_idle()):
            raise BusyError(f"{self.replica_id} has {self._server.under_way} calls under way")
        self.half, _ = half.stop(self.half, leave.epoch, leave.timeout_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(leave.timeout_s):
                await self._user.run(self._server.drain())  # 2
                while self.half.running is not None and self._working is not None:  # 5
                    await asyncio.wait([self._working])
        if not await self._user.run(self._server.close()):  # 3, 4
            calls = self._server.under_way
            raise RuntimeError(f"{calls} calls of {self.replica_id} still run {CANCEL_S:g} s after they were cut off")
        if self.half.running is not None:
            raise RuntimeError(f"the start or reconfigure of {self.replica_id} still runs after {leave.timeout_s:g} s")
