"""What Slurm's word for a job is worth: a table, and the one question that goes with it, whether the node answers."""

from collections.abc import Mapping
from enum import StrEnum

from executors.slurm.scheduler import Job, NodeSeen


class JobStanding(StrEnum):
    """How it stands with a job."""

    WAITING = "it has not begun"
    RUNNING = "its process is there"
    CLOSING = "it is about to end"
    OVER = "it has ended, and so have its processes"
    DOUBTFUL = "Slurm does not know what there is of it"
    UNKNOWN = "Slurm does not list it"


STANDINGS: Mapping[str, JobStanding] = {
    **dict.fromkeys(
        ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"), JobStanding.WAITING
    ),
    **dict.fromkeys(("RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"), JobStanding.RUNNING),
    "COMPLETING": JobStanding.CLOSING,
    **dict.fromkeys(
        ("COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "CANCELLED", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "REVOKED"),
        JobStanding.OVER,
    ),
    "NODE_FAIL": JobStanding.DOUBTFUL,
}


def standing(job: Job | None, nodes: Mapping[str, NodeSeen]) -> JobStanding:
    """How it stands with a job. A word that this table does not have is doubted, and so is one about a node that is silent."""
    if job is None:
        return JobStanding.UNKNOWN
    found = STANDINGS.get(job.state, JobStanding.DOUBTFUL)
    node = nodes.get(job.node_id)
    is_silent = bool(job.node_id) and (node is None or not node.is_responding)
    depends_on_node = found in (JobStanding.RUNNING, JobStanding.OVER, JobStanding.CLOSING)
    return JobStanding.DOUBTFUL if is_silent and depends_on_node else found
