"""How long a load will take, from how fast weights have come so far (D9)."""

from msgspec.structs import replace

from rankcore.residency.levels import Level
from rankcore.residency.spec import ModelSpec, ResidencyPolicy
from rankcore.residency.state import ResidencyNode

FADES = 0.5
"""What a load counts once another one has ended."""


def load_s(policy: ResidencyPolicy, node: ResidencyNode, weight_bytes: int, source: Level) -> float:
    """How long so many bytes are likely to take to a node; before any have come there, as the policy says."""
    rate = policy.host_bytes_per_s if source is Level.WARM else policy.disk_bytes_per_s
    seconds, size = (node.from_cpu if source is Level.WARM else node.from_disk) or (1.0, rate)
    return weight_bytes * seconds / size


def copy_s(policy: ResidencyPolicy, weight_bytes: int) -> float:
    """How long copies to CPU memory are likely to take, one after the other."""
    return weight_bytes / policy.host_bytes_per_s


def after_start(node: ResidencyNode, at: float) -> ResidencyNode:
    """What is known of a node when a load begins beside others: none of these says how fast one is that is alone."""
    return replace(node, shared_at=at)


def after_load(node: ResidencyNode, spec: ModelSpec, source: Level, began_at: float, at: float) -> ResidencyNode:
    """What is known of a node once a load has ended there."""
    if node.shared_at >= began_at or at <= began_at:
        return node
    took_s = at - began_at
    field = "from_cpu" if source is Level.WARM else "from_disk"
    seconds, size = getattr(node, field) or (0.0, 0.0)
    return replace(node, **{field: (seconds * FADES + took_s, size * FADES + spec.weight_bytes)})
