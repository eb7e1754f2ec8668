"""The user's code in a local replica: the `UserCode` of Ray's replicas, with an application that each imports for itself."""

import json
import os
from typing import Any

import attrs

from executors.deployment_ids import split
from executors.loading import ARGS_VARIABLE, load_application
from executors.ray_gpu import context
from executors.ray_gpu.changes import change_of
from executors.ray_gpu.messages import NO_RANKS
from executors.ray_gpu.user_code import Code, UserCode, traceback_of
from rankcore.replica.messages import ReplicaChange
from rankcore.replica.replica import ReplicaHalf, RunUserCode

RANK_VARIABLES = ("RANK", "GROUP_RANK", "LOCAL_RANK")


class LocalUser(UserCode):
    """The user's code of one replica.

    Attributes:
        applied: How many changes it has been through, its start included.
    """

    def __init__(self, application: str, replica: ReplicaHalf, namespace: str) -> None:
        deployment = replica.replica_id.rpartition("#")[0]
        app_name, name = split(deployment)
        self.applied = 0
        self._application = application
        self._context = context.ReplicaContext(
            app_name, name, replica.replica_id, NO_RANKS, 0, replica.node_id, namespace, code_version=replica.version
        )
        super().__init__(Code(deployment, replica.version, application, app_name, b"", (), {}))

    def unpack(self) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """The class or function, and its arguments: imported, where on Ray it is unpickled."""
        found = load_application(self._application, json.loads(os.environ.get(ARGS_VARIABLE, "{}")))
        return found.deployment.target, found.args, dict(found.kwargs)

    async def carry_out(self, work: RunUserCode) -> str | None:
        """Let it start, or reconfigure it (R12); returns what went wrong."""
        assert isinstance(work.command, ReplicaChange), f"{work.command} is no command of the core's"
        change = change_of(work.command)
        try:
            await self.run(self.start(change) if work.starting else self.change(change))
        except Exception as error:
            return traceback_of(error)
        finally:
            self.applied += 1
        return None

    def show(self, replica: ReplicaHalf) -> None:
        """Let it see what is believed: in its context, and in the variables that torchrun sets too."""
        if replica.world_size is None or not replica.begun:
            return
        rank = replica.rank
        ranks = NO_RANKS if rank is None else (rank.rank, rank.node_rank, rank.local_rank)
        self._context = attrs.evolve(self._context, ranks=ranks, world_size=replica.world_size, servable_object=self.instance)
        context.set_context(self._context)
        os.environ["WORLD_SIZE"] = str(replica.world_size)
        for name, number in zip(RANK_VARIABLES, ranks, strict=True):
            if rank is not None:
                os.environ[name] = str(number)
            else:  # nor one of whoever started the controller
                os.environ.pop(name, None)
