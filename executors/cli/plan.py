"""`rankcore plan`: print what a change would bring."""

import difflib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import typer

from executors.cli.bars import bytes_bar
from executors.cli.moments import seconds_of
from executors.cli.problems import Refusal, told_in_one_line, warn
from executors.deployment_ids import meant_by
from executors.engine.deployment_lines import replay_deployments
from executors.simulator.fields import FieldProblem
from executors.simulator.load.sources import read_source
from executors.simulator.questions.settings import parse_setting
from executors.simulator.questions.settled import NeverHealthy, settled_state
from executors.simulator.scenario.errors import path_text
from executors.simulator.scenario.model import CHANGEABLE, with_target
from executors.simulator.scenario.placements import static_placement
from executors.simulator.times import TENTHS, moment
from rankcore import DeploymentSpec, DeploymentState, Plan
from rankcore import plan as dry_run
from rankcore.errors import RankcoreError
from rankcore.planning import PlannedStart

NEWS_S = 0.05
"""Times are shown with one digit: less than this is no difference."""


def run(
    scenario: Path | None,
    target: int | None,
    deployment: str | None,
    changes: list[str],
    stop_first: tuple[str, ...],
    journal: Path | None,
    at: str | None,
    as_json: bool,
) -> None:
    """What `rankcore plan` does, errors and exit status included."""
    with told_in_one_line("interrupted"):
        fields = _fields(target, changes)
        if (scenario is None) == (journal is None):
            raise Refusal("expected a scenario file or --from JOURNAL, and not both")
        if at is not None and journal is None:
            raise Refusal("--at: expected --from JOURNAL with it; a scenario is planned from when it has come up")
        if journal is not None:
            asked_at = None if at is None else seconds_of("--at", at)
            state = _recorded_state(journal, math.inf if asked_at is None else asked_at, deployment)
            static = state.spec.static_placement
            groups: Mapping[str, int] = {static.group or "": static.bundle_count} if static is not None else {}
        else:
            assert scenario is not None, "one of the two is there"
            asked_at = None
            state, groups = _settled_state(scenario, deployment)
        for replica_id in stop_first:
            if replica_id not in state.replicas:
                raise Refusal(f"--stop-first: {_expected('replica', replica_id, sorted(state.replicas))}")
        try:
            spec = _wanted(state.spec, fields, groups)
            planned = dry_run(state, spec, stop_first=stop_first)
        except RankcoreError as error:
            raise Refusal(f"--set: {error}") from None
        if as_json:
            typer.echo(json.dumps(_as_json(state, planned, asked_at), indent=2))
        else:
            for line in _lines(state, spec, planned, asked_at):
                typer.echo(line)


def _fields(target: int | None, changes: Iterable[str]) -> dict[str, Any]:
    """The fields of the spec that are to change."""
    fields: dict[str, Any] = {}
    for text in changes:
        setting = parse_setting("--set", text)
        if setting.key not in CHANGEABLE:
            raise Refusal(f"--set: {_expected('field of a deployment', setting.key, CHANGEABLE)}")
        if setting.key in fields or (setting.key == "target_replicas" and target is not None):
            raise Refusal(f"--set: expected {setting.key} once, found it again")
        # A version is a word, also where it looks like a number.
        fields[setting.key] = setting.text if setting.key == "version" else setting.value
    if target is not None:
        fields["target_replicas"] = target
    if not fields:
        raise Refusal("expected --target N or --set KEY=VALUE, found nothing to plan")
    return fields


def _wanted(spec: DeploymentSpec, fields: dict[str, Any], groups: Mapping[str, int]) -> DeploymentSpec:
    """The spec with these fields; `groups`: how many bundles each placement group has, as far as is known."""
    if isinstance(fields.get("placement"), Mapping):
        try:
            fields = {**fields, "placement": static_placement(fields["placement"], groups)}
        except FieldProblem as problem:
            raise Refusal(f"--set: {path_text(('placement', *problem.keys))}: {problem}") from None
    return attrs.evolve(spec, **with_target(fields))


def _settled_state(path: Path, deployment: str | None) -> tuple[DeploymentState, Mapping[str, int]]:
    scenario = read_source(path).scenario()
    name = _chosen(deployment, [each.spec.name for each in scenario.deployments])
    try:
        return settled_state(scenario, name), scenario.bundle_counts
    except NeverHealthy as error:
        raise Refusal(f"{path}: {error}") from None


def _recorded_state(path: Path, at: float, deployment: str | None) -> DeploymentState:
    with bytes_bar("reading", path.stat().st_size) as bar:
        result = replay_deployments(path, until=at, progress=bar.show)
    if result.difference is not None:
        raise Refusal(f"{result.difference}: this core decides otherwise, so it cannot plan from there")
    if result.warning is not None:
        warn(result.warning)
    if not result.states:
        raise Refusal(f"{path}: expected a journal that has begun by then, found no deployment yet")
    state: DeploymentState = result.states[_chosen(deployment, sorted(result.states))]
    return state


def _chosen(deployment: str | None, names: list[str]) -> str:
    if deployment is None and len(names) > 1:
        raise Refusal(f"expected --deployment, since there are several: {', '.join(names)}")
    if deployment is None:
        return names[0]
    found = meant_by(deployment, names)
    if len(found) > 1:
        raise Refusal(f'--deployment: expected one of {", ".join(found)}, found "{deployment}"')
    if not found:
        raise Refusal(f"--deployment: {_expected('deployment', deployment, names)}")
    return found[0]


def _expected(what: str, found: str, known: Iterable[str]) -> str:
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


def _lines(state: DeploymentState, spec: DeploymentSpec, planned: Plan, asked_at: float | None) -> Iterator[str]:
    before, after = planned.world_size_before, planned.world_size_after
    size = f"{before} -> {after}" if before != after else str(after)
    yield f"{state.spec.name}, {state.status} {_when(state, asked_at)}: world size {size}"
    if not (planned.starts or planned.stops or planned.moves or planned.reconfigured):
        yield "  nothing would start, stop, move or be reconfigured"
    updated = spec.version != state.spec.version
    if updated:
        early = f", and {spec.max_surge} started early (max_surge)" if spec.max_surge else ""
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
    return f", on {start.node_id}" if start.node_id is not None else ""


def _rank(rank: int | None) -> str:
    return f" (rank {rank})" if rank is not None else ""


def _listed(what: str, items: Iterable[str]) -> Iterator[str]:
    found = list(items)
    if found:
        yield f"  {len(found)} would {what}:"
        yield from (f"    {item}" for item in found)


def _as_json(state: DeploymentState, planned: Plan, asked_at: float | None) -> Mapping[str, Any]:
    return {
        "deployment": state.spec.name,
        "at": state.clock if asked_at is None else max(asked_at, state.clock),
        "status_before": str(state.status),
        **attrs.asdict(planned),
        "waiting_for_room": _short_of(state, planned),
    }
