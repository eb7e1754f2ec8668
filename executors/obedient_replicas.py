"""Replicas of an executor that is tried by the conformance kit: they do what files in a folder say, wherever they are."""

import json
import socket
from pathlib import Path
from typing import Any

from executors.local.replica import OBSERVE
from rankcore import ReplicaRank
from rankcore.frozen import freeze_json
from rankcore.testing.conformance.system import Belief, SelfReport

APPLICATION = """
import tempfile
import time
from pathlib import Path
from executors.ray_gpu import deployment

FOLDER = Path({folder!r})

def wait():
    begun = time.monotonic()
    while (FOLDER / "slow").exists() and time.monotonic() < begun + float((FOLDER / "slow").read_text() or 0.0):
        time.sleep(0.01)

@deployment
class Obedient:
    def __init__(self):
        wait()
        for order in sorted(FOLDER.glob("fail.*")):
            try:
                order.unlink()
            except FileNotFoundError:
                continue  # another replica has failed for it
            raise RuntimeError("told to fail")

    def reconfigure(self, user_config, rank):
        wait()

    def check_ready(self):
        return not (FOLDER / "closed").exists()

    def __del__(self):
        wait()

app = Obedient.bind()
"""


class ObedientReplicas:
    """The half of a bench that is the same wherever replicas run: what it has their user code do.

    Args:
        folder: That the replicas see too.

    Attributes:
        application: MODULE:APP, for the executor.
    """

    def __init__(self, folder: Path) -> None:
        self._orders = folder / "orders"
        self._orders.mkdir()
        source = folder / "obedient.py"
        source.write_text(APPLICATION.format(folder=str(self._orders)))
        self.application = f"{source}:app"

    def fail_starts(self, count: int) -> None:
        """A file for each."""
        for number in range(count):
            (self._orders / f"fail.{number}").touch()

    def slow(self, by_s: float) -> None:
        """A file that says for how long."""
        (self._orders / "slow").write_text(str(by_s))

    def take_requests(self, yes: bool) -> None:
        """A file says no."""
        closed = self._orders / "closed"
        closed.unlink(missing_ok=True) if yes else closed.touch()


def ask(connection: socket.socket) -> SelfReport | None:
    """What a replica says of itself; None: it has not come up yet, or is gone."""
    try:
        with connection, connection.makefile("rwb") as conversation:  # whose end sends what a dead replica has not taken
            connection.settimeout(60.0)
            conversation.write(OBSERVE.encode() + b"\n")
            conversation.flush()
            line = conversation.readline()
    except OSError:
        return None
    if not line:
        return None
    said: dict[str, Any] = json.loads(line)
    history = said.pop("history")
    beliefs = tuple(Belief(since, ReplicaRank(*ranks)) for since, ranks in history)
    return SelfReport(**{**said, "beliefs": beliefs, "user_config": freeze_json(said["user_config"])})
