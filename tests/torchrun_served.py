"""A coordinator of torchrun's agents in a thread of this process, for agents that are here too."""

import asyncio
import threading

from executors.torchrun.coordinator import Coordinator
from executors.torchrun.server import GangServer

PATIENCE_S = 60.0


class Served:
    """A coordinator in a thread of this process."""

    def __init__(self, gang, port=0, lease_s=15.0, store_port=0, run_id=None):
        self.lines, self.port, self.status = [], port, None
        self.server = GangServer(Coordinator(gang, lease_s, run_id, store_port), self.lines.append)
        self._listens = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._listens.wait(PATIENCE_S)

    def _run(self):
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(self.server.serve("127.0.0.1", self.port, self._told))
        try:
            self.status = self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            for connection in [*self.server._connections.values()]:
                connection.transport.abort()
            self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def _told(self, port):
        self.port = port
        self._listens.set()

    def ends(self):
        self._thread.join(PATIENCE_S)
        return self.status

    def crash(self):
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(PATIENCE_S)
