"""A fleet in one process: requests for models whose weights come and go, in an asyncio event loop.

    async with FleetRunner(open_fleet(), node) as fleet:
        fleet.tell(DeployRequested(...))
        answer = await fleet.request("llama", prompt, on_status=print)

`runner` carries out what `rankcore.dispatching` decides, `node` says what holds the weights, `ranks` has
what their replicas believe of their ranks, `journal` keeps what happened and
runs it again, `errors` is what callers are told, and `torch_node` holds weights that really move. Only that one needs torch.
"""

from executors.fleet.errors import FleetClosedError, RequestError, RequestExpiredError, RequestRejectedError
from executors.fleet.journal import FleetJournal, FleetReplay, replay_fleet
from executors.fleet.node import NotThereError, RankedNode, WeightsNode
from executors.fleet.runner import FleetRunner, begin_again

__all__ = [
    "FleetClosedError",
    "FleetJournal",
    "FleetReplay",
    "FleetRunner",
    "NotThereError",
    "RankedNode",
    "RequestError",
    "RequestExpiredError",
    "RequestRejectedError",
    "WeightsNode",
    "begin_again",
    "replay_fleet",
]
