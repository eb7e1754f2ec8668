"""What Slurm's word for a job is worth: a table, and the one question that goes with it, whether the node answers."""

from collections.abc import Mapping
from enum import StrEnum

from executors.slurm.scheduler import Job, NodeSeen


class Standing(StrEnum):
    """How it stands with a job."""

    WAITING = "it has not begun"
    RUNNING = "its process is there"
    CLOSING = "it is about to end"
    OVER = "it has ended, and so have its processes"
    DOUBTFUL = "Slurm does not know what there is of it"
    UNKNOWN = "Slurm does not list it"


STANDINGS: Mapping[str, Standing] = {
    **dict.fromkeys(("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"), Standing.WAITING),
    **dict.fromkeys(("RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"), Standing.RUNNING),
    "COMPLETING": Standing.CLOSING,
    **dict.fromkeys(
        ("COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "CANCELLED", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "REVOKED"),
        Standing.OVER,
    ),
    "NODE_FAIL": Standing.DOUBTFUL,
}


def standing(job: Job | None, nodes: Mapping[str, NodeSeen]) -> Standing:
    """How it stands with a job. A word that this table does not have is doubted, and so is one about a node that is silent."""
    if job is None:
        return Standing.UNKNOWN
    found = STANDINGS.get(job.state, Standing.DOUBTFUL)
    node = nodes.get(job.node_id)
    is_silent = bool(job.node_id) and (node is None or not node.is_responding)
    return Standing.DOUBTFUL if is_silent and found in (Standing.RUNNING, Standing.OVER, Standing.CLOSING) else found
