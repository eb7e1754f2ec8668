"""A cluster in one process: calls of models whose weights come and go, in an asyncio event loop.

    async with InprocCluster(node) as cluster:
        cluster.tell(NodeJoined(...))
        cluster.apply(ApplicationSpec(name="shop", deployments=(...,)))
        answer = await cluster.call("shop/llama", prompt, on_status=print)

`cluster` runs the machine, `workers` has what it says of weights and ranks, `caller` has the calls of a deployment, `node` says
what holds the weights, and `torch_node` holds weights that really move. Only that one needs torch.
"""

from executors.inproc.cluster import InprocCluster, begin_again
from executors.inproc.node import NotThereError, RankedNode, WeightsNode

__all__ = ["InprocCluster", "NotThereError", "RankedNode", "WeightsNode", "begin_again"]
