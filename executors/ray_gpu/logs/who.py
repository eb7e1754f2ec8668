"""Who writes a line of a replica's log, at this moment: ranks change, and a worker is one replica after the other."""

from typing import Any

import attrs

from executors.ray_gpu import context
from executors.ray_gpu.errors import NotInReplicaError
from executors.ray_gpu.messages import NO_RANKS
from executors.ray_gpu.requests.request_context import current_request_id


@attrs.frozen
class Writer:
    """A process of a deployment.

    Attributes:
        process: The replica's id, or the worker's, which stands for it while it is no replica.
    """

    application: str
    deployment: str
    process: str

    def said(self) -> dict[str, Any]:
        """What each line has."""
        said: dict[str, Any] = {"application": self.application, "deployment": self.deployment, "replica": self.process}
        try:
            now = context.get_replica_context()
        except NotInReplicaError:
            pass
        else:
            said["replica"] = now.replica_id
            if now.ranks != NO_RANKS:
                said["rank"] = now.ranks[0]
        if request_id := current_request_id():
            said["request_id"] = request_id
        return said
