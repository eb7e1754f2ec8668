"""Ids of records: a model's name and a number that grows, so that ids of one model sort by age.

The numbers of a planner that begins with an epoch are above `epoch << 32`, and are written `epoch.number`: what an earlier
planner has named is never named again.
"""

from rankcore.values import ReplicaId

EPOCH_BITS = 32


def serial_of(replica_id: ReplicaId) -> int:
    """The number in an id: ids of one model in the order in which they were made."""
    epoch, separator, serial = replica_id[replica_id.rindex("#") + 1 :].partition(".")
    return (int(epoch) << EPOCH_BITS) + int(serial) if separator else int(epoch)


def replica_id_of(model: str, serial: int) -> ReplicaId:
    """The id with a number."""
    epoch = serial >> EPOCH_BITS
    return f"{model}#{epoch}.{serial - (epoch << EPOCH_BITS)}" if epoch else f"{model}#{serial}"
