"""What workers report after the controller was restarted: the books are learnt, never saved (T11).

A node is taken up together with all that was found on it, in one step, so nothing is placed on it before its books say what
is held there. Who knows nothing of a node places nothing there: until the last process that was found on it has reported or
ended, the node is not told of. What is held may be more than there is: that is an excess, as where a node turns out to hold
less than it said, and the cheapest leave until the rest fits.
"""

from msgspec import Struct
from msgspec.structs import replace

from rankcore.errors import InvalidEventError
from rankcore.residency import estimates
from rankcore.residency.events import NodeJoined
from rankcore.residency.fit import share
from rankcore.residency.ledger import Ledger
from rankcore.residency.levels import Level, Phase
from rankcore.residency.machines import on_node_joined, shed
from rankcore.residency.notes import ResidencyNoteKind
from rankcore.residency.spec import ModelSpec
from rankcore.residency.state import Gpu, Resident
from rankcore.values import ReplicaId

FOUND = (Phase.RESTING, Phase.LOADING, Phase.SERVING, Phase.LEAVING, Phase.DROPPING)


class FoundReplica(Struct, frozen=True, kw_only=True, gc=False):
    """What a process that was found holds.

    Attributes:
        spec: Of what it has.
        phase: RESTING: a copy in CPU memory; LOADING, LEAVING, DROPPING: its newest move is under way; SERVING: it is HOT.
        gpus, gpu_bytes: What it takes on GPUs.
        cpu_bytes: What it takes in CPU memory: its copy, or the room for the one that is being made.
        move: The newest that it was given.
    """

    replica_id: ReplicaId
    spec: ModelSpec
    phase: Phase
    gpus: tuple[int, ...] = ()
    gpu_bytes: tuple[int, ...] = ()
    cpu_bytes: int = 0
    move: int = 0


def check_held(of: str, phase: Phase, gpus: tuple[int, ...], gpu_bytes: tuple[int, ...], cpu_bytes: int) -> None:
    """Raise `InvalidEventError` unless a process that is about this can hold that."""
    if phase not in FOUND:
        raise InvalidEventError(f"{of}.phase", phase, f"one of {', '.join(FOUND)}")
    on_gpus = phase in (Phase.LOADING, Phase.SERVING, Phase.LEAVING)
    if bool(gpus) is not on_gpus or list(gpus) != sorted(set(gpus)):
        raise InvalidEventError(f"{of}.gpus", gpus, "GPUs in order where it is on any, else none")
    if len(gpus) != len(gpu_bytes):
        raise InvalidEventError(f"{of}.gpu_bytes", gpu_bytes, f"{len(gpus)} numbers, one for each GPU")
    if cpu_bytes if phase is Phase.SERVING else not (cpu_bytes or on_gpus):
        raise InvalidEventError(f"{of}.cpu_bytes", cpu_bytes, f"what its copy takes, which is {phase.value}")


class NodeAdopted(Struct, frozen=True, kw_only=True, gc=False):
    """A node is there, with all that was found on it."""

    joined: NodeJoined
    found: tuple[FoundReplica, ...]
    at: float


def on_node_adopted(ledger: Ledger, event: NodeAdopted) -> None:
    """Take a node up with what is held on it; it is news of no other than this."""
    on_node_joined(ledger, event.joined)
    node_id = event.joined.node_id
    node = ledger.nodes[node_id]
    held = [0] * len(node.gpus)
    for each in event.found:
        for gpu, size in zip(each.gpus, each.gpu_bytes, strict=True):
            held[gpu] += size
    copied = sum(each.cpu_bytes for each in event.found)
    cpu_bytes = max(node.cpu_capacity_bytes, copied)
    gpus = [_holding(gpu, size) for gpu, size in zip(node.gpus, held, strict=True)]
    excess_bytes = max(0, copied - node.cpu_capacity_bytes)
    ledger.set_node(
        replace(node, gpus=tuple(gpus), cpu_capacity_bytes=cpu_bytes, cpu_free_bytes=cpu_bytes, cpu_excess_bytes=excess_bytes)
    )
    for each in event.found:
        _adopt(ledger, each, node_id)
    shed(ledger, node_id)


def _holding(gpu: Gpu, held: int) -> Gpu:
    size = max(gpu.capacity_bytes, held)
    return Gpu(size, size, max(0, held - gpu.capacity_bytes))


def _adopt(ledger: Ledger, found: FoundReplica, node_id: str) -> None:
    model, copied = found.spec.model, found.cpu_bytes > 0
    if model not in ledger.models:
        ledger.set_spec(found.spec)
        ledger.ask(model, 0)
    hot = found.phase is Phase.SERVING or found.phase is Phase.LEAVING
    most = max(found.gpu_bytes, default=0)
    spec = ledger.models[model]
    load_s = 0.0
    if found.phase is Phase.LOADING:  # its turn is yet to come
        source = Level.WARM if copied else Level.COLD
        load_s = estimates.load_s(ledger.policy, ledger.nodes[node_id], spec.weight_bytes, source)
    grown = hot and most > share(spec, spec.total_bytes, len(found.gpus))  # it was measured before (T8)
    record = Resident(
        replica_id=found.replica_id,
        model=model,
        level=Level.HOT if hot else Level.WARM if copied else Level.COLD,
        phase=found.phase,
        node_id=node_id,
        gpus=found.gpus,
        gpu_bytes=found.gpu_bytes,
        need_bytes=found.gpu_bytes,
        copy_node_id=node_id if copied else None,
        cpu_bytes=found.cpu_bytes,
        cpu_need_bytes=found.cpu_bytes if found.phase is Phase.LEAVING else 0,
        since=ledger.clock,
        hot_since=ledger.clock if hot else None,
        last_used=ledger.clock,
        load_s=load_s,
        move=found.move,
        dropping=found.phase is Phase.DROPPING,
        size_bytes=most * len(found.gpus) if grown else 0,
        because="it was found",
    )
    ledger.note(ResidencyNoteKind.PLACED, "T11", record, f"it was found {found.phase.value}", size=sum(found.gpu_bytes))
    ledger.put(record)
