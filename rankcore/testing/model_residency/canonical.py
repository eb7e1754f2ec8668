"""When two worlds of models are the same: they differ only in the numbers of commands and requests, and in when they are."""

import msgspec
from msgspec.structs import replace

from rankcore.residency import Phase, ResidencyState, Resident
from rankcore.residency.state import Reservation, ResidencyNode
from rankcore.testing.model_residency.world import ResidencyWorld, until_waking

_encode = msgspec.msgpack.Encoder().encode


def canonical(world: ResidencyWorld) -> bytes:
    """Everything that tells a world from others."""
    state = world.state
    asked = sorted(set(state.asked.values()))
    owed = {(each.replica_id, each.move) for each in world.given}
    return _encode(
        (
            [_plain(state.clock, state.replicas[each], owed) for each in sorted(state.replicas)],
            [_plain_node(state, each) for each in sorted(state.nodes)],
            None if state.head is None else _plain_head(state.clock, state.head),
            [(model, asked.index(state.asked[model])) for model in sorted(state.asked)],
            [(type(each).__name__, replace(each, move=0)) for each in world.given],
            until_waking(state),
            [(model, world.called_for[model].replicas) for model in sorted(world.called_for)],
            [(model, state.broken_off[model] - state.clock) for model in sorted(state.broken_off)],
            state.serial,
            world.memory,
            world.spent,
            world.ticks,
            world.replaced,
        )
    )


def _plain_head(now: float, head: Reservation) -> Reservation:
    begins_by = None if head.begins_by is None else round(head.begins_by - now, 6)
    return replace(head, since=head.since - now, begins_by=begins_by)


def _plain(now: float, resident: Resident, owed: set[tuple[str, int]]) -> Resident:
    """Without the number of its newest command, but for whether it is still to be answered; with times as they are now."""
    return replace(
        resident,
        move=(resident.move > 0) + ((resident.replica_id, resident.move) in owed),
        since=resident.since - now,
        last_used=resident.last_used - now,
        due_at=None if resident.due_at is None else round(resident.due_at - now, 6),
        hot_by=round(resident.hot_by - now, 6) if resident.phase is Phase.LOADING else 0.0,
        hot_since=None if resident.hot_since is None else resident.hot_since - now,
        because="because" if resident.because else "",
    )


def _plain_node(state: ResidencyState, node_id: str) -> tuple[ResidencyNode, float | None]:
    """When a load last began beside another one counts for those that were under way then, and for nobody else."""
    node = state.nodes[node_id]
    began = [each.since for each in state.replicas.values() if each.node_id == node_id and each.phase is Phase.LOADING]
    shared_at = node.shared_at - state.clock if began and node.shared_at >= min(began) else None
    return replace(node, joined_at=0.0, shared_at=-1.0), shared_at
