"""What no node could ever hold, not even an empty one (T18): waiting for room is no use to it.

**What.** A replica has no place as long as others are where it would go, and they leave some time: it waits (T7). That is of no
use where every node lacks its labels, or has GPUs that are too few or too small for it. Who is on a node now does not count,
dedicated replicas neither, since they are evicted and scaled down as well. CPU memory does not count, since nobody needs it to
be HOT. A node that may appear (`ExpectedShape`) counts as one that is there.

**What is not decided here.** When all nodes are known: whoever asks has to know that, since a planner has no idea which nodes
are yet to join.

**What it costs.** A look at each shape of nodes, and at the nodes of those shapes that are on the brink: sizes are in a shape
to five bits.
"""

from collections.abc import Mapping
from itertools import islice

from rankcore.residency.fit import degree_on
from rankcore.residency.index import Shape
from rankcore.residency.room import degrees_of, labels_of
from rankcore.residency.spec import ExpectedShape, ModelSpec
from rankcore.residency.state import Gpu, ResidencyNode, ResidencyState

CLOSEST_MAX = 3
"""Of so many nodes the reason is told."""


def why_never(planner: ResidencyState, spec: ModelSpec, total_bytes: int, expected: tuple[ExpectedShape, ...]) -> str:
    """Why no node that there is, or that may come, could ever hold a replica; "": one could.

    Args:
        planner: What knows the nodes.
        spec: Of its model.
        total_bytes: What it takes on all its GPUs together.
        expected: The nodes that may come.
    """
    shapes = planner.index.room.shapes
    for shape in shapes:
        if has_labels(dict(labels_of(shape)), spec) and degrees_of(shape, spec, total_bytes):
            if any(degree_on(planner.nodes[each], spec, total_bytes) is not None for each in shapes[shape]):
                return ""
    if any(why_not(_empty(each), spec, total_bytes) is None for each in expected):
        return ""
    closest = sorted(shapes, key=lambda each: _distance(each, spec))[:CLOSEST_MAX]
    shown = [(each, next(iter(shapes[each]))) for each in closest]
    reasons = [f"{node_id}: {why_not(planner.nodes[node_id], spec, total_bytes)}" for _, node_id in shown]
    others = len(planner.nodes) - len(shown)
    if others:
        reasons.append(f"{others} more could not either")
    return f"no node could ever hold it: {'; '.join(reasons) or 'there is none'}"


def why_not(node: ResidencyNode, spec: ModelSpec, total_bytes: int) -> str | None:
    """Why a node could not hold a replica, whoever else is there; None: it could."""
    missing = sorted(f"{key}={value}" for key, value in spec.node_labels.items() if node.labels.get(key) != value)
    if missing:
        return f"it is not labelled {', '.join(missing)}"
    if degree_on(node, spec, total_bytes) is not None:
        return None
    largest = max([gpu.real_bytes for gpu in node.gpus], default=0)
    over = "" if spec.gpus is None else f" over {_gpus(spec.gpus)}"
    parts = ", ".join(f"{in_words(size)} on each of {_gpus(degree)}" for degree, size in spec.shard_bytes if degree > 1)
    over += f" (or {parts})" if parts else ""
    return f"{in_words(total_bytes)}{over} do not fit: it has {_gpus(len(node.gpus))} of at most {in_words(largest)}"


def has_labels(labels: Mapping[str, str], spec: ModelSpec) -> bool:
    """Whether a node with these labels has those that a model asks for."""
    return spec.node_labels.items() <= labels.items()


def _empty(shape: ExpectedShape) -> ResidencyNode:
    gpus = tuple(Gpu(size, size) for size in shape.gpu_bytes)
    return ResidencyNode(node_id="", gpus=gpus, cpu_capacity_bytes=0, cpu_free_bytes=0, labels=shape.labels)


def _distance(shape: Shape, spec: ModelSpec) -> tuple[bool, int, Shape]:
    """Those with the labels first, and of these those whose GPUs hold most."""
    most = sum(islice(shape[1], spec.gpus))
    return not has_labels(dict(labels_of(shape)), spec), -most, shape


def _gpus(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs"


def in_words(size: int) -> str:
    """Bytes for people, in the unit of which there are some."""
    if size < 10**6:
        return f"{size} bytes"
    return f"{size / 1e9:.4g} GB" if size >= 10**9 else f"{size / 1e6:.4g} MB"
