"""A planner by brute force, for small clusters: every node, every choice of GPUs, every set of victims."""

from itertools import chain, combinations

from rankcore.residency import Level, Phase, ResidencyPolicy, residency_step
from rankcore.residency.commands import LoadToGpu, WakeAt
from rankcore.residency.events import LoadFinished, OffloadFinished

NOW = 100.0
POLICY = ResidencyPolicy(in_flight_cost_bytes=7, recent_use_s=50.0, recent_cost_bytes=20, warm_eviction="smallest")


def feed(state, event):
    """An event, and everything that is commanded carried out at once."""
    step = residency_step(state, event)
    state = step.state
    commands = list(step.commands)
    while commands:
        command = commands.pop(0)
        if isinstance(command, WakeAt):
            continue
        finished = LoadFinished if isinstance(command, LoadToGpu) else OffloadFinished
        step = residency_step(state, finished(replica_id=command.replica_id, move=command.move, at=event.at))
        state = step.state
        commands += step.commands
    return state


def uneven(fields, percents):
    """Fields of a `ModelSpec`, with the fullest of its parts so many hundredths of it by the number of GPUs."""
    if fields.get("gpus") is not None:
        return fields
    return {**fields, "shard_bytes": tuple((degree, -(-fields["weight_bytes"] * each // 100)) for degree, each in percents)}


def naive_cost(state, record):
    age = state.clock - record.last_used
    recent = int(20 * (50.0 - age) / 50.0) if age < 50.0 else 0
    return sum(record.gpu_bytes) * (1 + state.models[record.model].priority) + 7 * record.in_flight + recent


def naive_may_go(state, spec, record):
    theirs = state.models[record.model]
    if record.phase is not Phase.SERVING or theirs.dedicated or theirs.priority > spec.priority:
        return False
    return spec.dedicated or state.clock - record.hot_since >= theirs.min_hot_s


def naive_degree(node, spec):
    for degree in naive_degrees(node, spec):
        if sum(gpu.capacity_bytes >= naive_share(spec, spec.total_bytes, degree) for gpu in node.gpus) >= degree:
            return degree
    return None


def naive_degrees(node, spec):
    return [spec.gpus] if spec.gpus else sorted(dict(spec.shard_bytes)) or range(1, len(node.gpus) + 1)


def naive_share(spec, total, degree):
    return max(-(-total // degree), dict(spec.shard_bytes).get(degree, 0))


def choices(state, spec):
    """Every node, and every choice of GPUs that are large enough."""
    for node_id, node in sorted(state.nodes.items()):
        degree = naive_degree(node, spec)
        if degree is None:
            continue
        each = naive_share(spec, spec.total_bytes, degree)
        for gpus in combinations(range(len(node.gpus)), degree):
            if all(node.gpus[gpu].capacity_bytes >= each for gpu in gpus):
                yield node_id, node, gpus, each


def naive_fit(state, spec):
    found = [
        (sum(node.gpus[gpu].free_bytes - each for gpu in gpus), len(gpus), node_id, gpus)
        for node_id, node, gpus, each in choices(state, spec)
        if all(node.gpus[gpu].free_bytes >= each for gpu in gpus)
    ]
    return min(found)[2:] if found else None


def naive_displacement(state, spec):
    found = []
    for node_id, node, gpus, each in choices(state, spec):
        there = [record for _, record in sorted(state.replicas.items()) if record.node_id == node_id and record.gpus]
        may_go = [record for record in there if naive_may_go(state, spec, record)]
        for victims in chain.from_iterable(combinations(may_go, size) for size in range(1, len(may_go) + 1)):
            room = {gpu: node.gpus[gpu].free_bytes for gpu in gpus}
            for victim in victims:
                for gpu, held in zip(victim.gpus, victim.gpu_bytes, strict=True):
                    if gpu in room:
                        room[gpu] += held
            if all(size >= each for size in room.values()):
                cost = sum(naive_cost(state, victim) for victim in victims)
                found.append((cost, len(victims), node_id, gpus, tuple(victim.replica_id for victim in victims)))
    return min(found) if found else None


def naive_warm(state, node_id, victim_ids):
    """Of those that leave a node at once, who becomes WARM, and whose copies are dropped for them (T6).

    The largest first, as long as all copies at rest and all that is free would hold it beside those before it; the smallest
    copies go, as many as it takes for all together.
    """
    node = state.nodes[node_id]
    copies = sorted(
        (record.cpu_bytes, record.replica_id)
        for record in state.replicas.values()
        if record.copy_node_id == node_id and record.phase is Phase.RESTING
    )
    left = node.cpu_free_bytes + sum(size for size, _ in copies)
    warm, dropped, needed = set(), set(), -node.cpu_free_bytes
    for size, victim_id in sorted((-state.models[state.replicas[each].model].weight_bytes, each) for each in victim_ids):
        if -size <= left:
            left += size
            needed -= size
            warm.add(victim_id)
    for size, replica_id in copies:
        if needed > 0:
            dropped.add(replica_id)
            needed -= size
    return warm, dropped


def naive_fits_beside(state, record):
    """Whether a WARM replica fits on the GPUs beside its copy, with what it was measured to take, whoever rests or waits."""
    spec, node = state.models[record.model], state.nodes[record.copy_node_id]
    total = max(spec.total_bytes, record.size_bytes)
    for degree in naive_degrees(node, spec):
        each = naive_share(spec, total, degree)
        if sum(gpu.capacity_bytes >= each for gpu in node.gpus) >= degree:
            return sum(gpu.free_bytes >= each for gpu in node.gpus) >= degree
    return False


def at_rest(state, model):
    return [
        each for each in state.replicas.values() if (each.model, each.phase, each.level) == (model, Phase.RESTING, Level.WARM)
    ]
