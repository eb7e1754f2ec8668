"""A plan in words: what a change would bring to one deployment, and to weights."""

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from executors.cli.problems import Refusal
from executors.deployment_ids import meant_by
from executors.simulator.times import TENTHS, moment
from rankcore import DeploymentSpec, DeploymentState, Plan
from rankcore.cluster import PlannedWeights
from rankcore.planning import PlannedStart

NEWS_S = 0.05
"""Times are shown with one digit: less than this is no difference."""
REASONS_MAX = 5
"""So many nodes are named of those where a worker would not fit."""
ID_OF_RAY = re.compile(r"\b([0-9a-f]{8})[0-9a-f]{48}\b")
"""A node's, of which `rankcore status` shows the beginning."""


def chosen(deployment: str | None, names: list[str]) -> str:
    """The deployment that is meant, of these; refuses where it is none, or several."""
    if deployment is None and len(names) > 1:
        raise Refusal(f"expected --deployment, since there are several: {', '.join(names)}")
    if deployment is None:
        return names[0]
    found = meant_by(deployment, names)
    if len(found) > 1:
        raise Refusal(f'--deployment: expected one of {", ".join(found)}, found "{deployment}"')
    if not found:
        raise Refusal(f"--deployment: {expected('deployment', deployment, names)}")
    return found[0]


def expected(what: str, found: str, known: Iterable[str]) -> str:
    """What was allowed, and what was found, in words."""
    names = list(known)
    near = difflib.get_close_matches(found, names, n=1, cutoff=0.5)
    allowed = f'a known {what} such as "{near[0]}"' if near else f"a {what}: {', '.join(names[:30]) or 'there is none'}"
    return f'expected {allowed}, found "{found}"'


def _places(state: DeploymentState) -> int | None:
    """How many replicas the nodes can hold, those that are there included; None: nobody ever said."""
    told = [node.capacity for node in state.nodes.values() if node.capacity is not None]
    return sum(told) if told else None


def _short_of(state: DeploymentState, planned: Plan) -> int:
    """For how many of the replicas that are wanted there is no place, as far as is known."""
    if any(each.bundles for each in planned.starts):
        return 0  # their places are reserved, whoever else fills the nodes
    places = _places(state)
    return max(0, planned.world_size_after - places) if places is not None else 0


def _when(state: DeploymentState, asked_at: float | None) -> str:
    last = moment(state.clock, TENTHS)
    if asked_at is None or asked_at - state.clock < NEWS_S:
        return f"at {last}"
    return f"at {moment(asked_at, TENTHS)} (its last news is of {last})"


def lines_of(state: DeploymentState, spec: DeploymentSpec, planned: Plan, asked_at: float | None) -> Iterator[str]:
    """What a change to this spec would bring, one line after the other."""
    before, after = planned.world_size_before, planned.world_size_after
    size = f"{before} -> {after}" if before != after else str(after)
    yield f"{state.spec.name}, {state.status} {_when(state, asked_at)}: world size {size}"
    if not (planned.starts or planned.stops or planned.moves or planned.reconfigured):
        yield "  nothing would start, stop, move or be reconfigured"
    if spec.generation != state.spec.generation:
        early = f", and {spec.surge_max} started early (max_surge)" if spec.surge_max else ""
        if state.previous is not None and spec.partition:
            yield f"  only ranks from {spec.partition} on (partition); those below stay as they are"
        yield f"  slot by slot: at most {spec.unavailable_max} at a time out of service (max_unavailable){early}"
    yield from _listed("stop", (f"{each.replica_id}{_rank(each.rank)}" for each in planned.stops))
    starts = [
        f"{number}. rank {each.rank}, version {each.version}" + _place(each)
        for number, each in enumerate(planned.starts, start=1)
    ]
    yield from _listed("start, in this order", starts)
    yield from _listed("move", (f"{each.replica_id}: rank {each.before} -> {each.after}" for each in planned.moves))
    yield from _listed("get the new user_config in place", planned.reconfigured)
    short = _short_of(state, planned)
    if short:
        yield f"  {short} would wait for room: the nodes can hold {_places(state)}"
    if state.message:
        yield f"  now {state.message}"
    yield f"  it would end up {planned.status}" + (" once there is room" if short else "")


def _place(start: PlannedStart) -> str:
    if start.bundles:
        return f", on bundle{'s' if len(start.bundles) > 1 else ''} {', '.join(map(str, start.bundles))}"
    return _short(f", on {start.node_id}") if start.node_id is not None else ""


def _rank(rank: int | None) -> str:
    return f" (rank {rank})" if rank is not None else ""


def _listed(what: str, items: Iterable[str]) -> Iterator[str]:
    found = list(items)
    if found:
        yield f"  {len(found)} would {what}:"
        yield from (f"    {item}" for item in found)


def plan_as_json(state: DeploymentState, planned: Plan, asked_at: float | None) -> dict[str, Any]:
    """The same for programs."""
    return {
        "deployment": state.spec.name,
        "at": state.clock if asked_at is None else max(asked_at, state.clock),
        "status_before": str(state.status),
        **attrs.asdict(planned),
        "waiting_for_room": _short_of(state, planned),
    }


def weights_lines(planned: Iterable[PlannedWeights]) -> Iterator[str]:
    """What would become of weights."""
    for each in planned:
        where = "" if each.node_id is None else f" {'to' if each.what == 'loaded' else 'from'} {each.node_id}"
        reasons = "; ".join(f"{node_id}: {why}" for node_id, why in each.reasons[:REASONS_MAX])
        because = reasons or each.because
        yield _short(f"{each.worker_id} would be {each.what}{where}{f': {because}' if because else ''}")


def _short(line: str) -> str:
    """With ids of nodes as people know them."""
    return ID_OF_RAY.sub(r"\1", line)
