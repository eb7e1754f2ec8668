"""Which copies stay in CPU memory where not all can: those that save most (T17).

**What.** A replica leaves the GPUs, and the free bytes do not hold its copy. A copy saves the time by which a load from it is
shorter than one from disk, if it is wanted again in time: `p * (L_cold - L_warm)`, where `p = rate * H / (1 + rate * H)` for a
rate of uses and a horizon H. Nobody knows rates here, so a replica that was used a while ago is taken for one that is used once
in such a while: `p = H / (H + unused_s)`. Both loads take as long as there are bytes, at two rates that are the same for all
copies of a node, so savings of copies there compare as `p * bytes`.

**How.** The copies that are dropped for a newcomer are those that save least per byte, less those that can be spared then; or
one alone that suffices, where that loses less. They are dropped only if the newcomer saves at least as much as they do. Of
several that leave at once the one that saves most comes first.

**How good it is.** For one newcomer at least half of what the best choice saves: that either does without it, and then saves no
more than all copies at rest, or has it, and then saves no more than it and all of them; and what is chosen here saves no less
than the newcomer alone, and no less than all of them at rest. An exact solver would have a budget, and a case beyond it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from rankcore.residency.spec import ResidencyPolicy
from rankcore.values import ReplicaId


class Copy(NamedTuple):
    """A copy, there or to be made.

    Attributes:
        saving: What it saves, as `saving_of` has it.
    """

    replica_id: ReplicaId
    size: int
    saving: float


def saving_of(policy: ResidencyPolicy, size: int, unused_s: float) -> float:
    """What a copy of so many bytes saves whose replica was used so long ago; compares on one node."""
    return size * policy.reuse_horizon_s / (policy.reuse_horizon_s + unused_s)


def cheapest_to_drop(copies: Sequence[Copy], missing: int, saving: float) -> tuple[Copy, ...] | None:
    """The copies that are dropped so that so many bytes become free for one that saves this; None: it is not worth it."""
    chosen, freed = [], 0
    for copy in sorted(copies, key=lambda each: (each.saving / each.size, each.size, each.replica_id)):
        if freed >= missing:
            break
        chosen.append(copy)
        freed += copy.size
    if freed < missing:
        return None
    for copy in tuple(reversed(chosen)):
        if freed - copy.size >= missing:
            chosen.remove(copy)
            freed -= copy.size
    alone = [each for each in copies if each.size >= missing]
    found = [tuple(chosen), *((each,) for each in alone)]
    least = min(found, key=lambda each: (sum([copy.saving for copy in each]), [copy.replica_id for copy in each]))
    return least if sum([copy.saving for copy in least]) <= saving else None
