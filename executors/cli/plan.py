"""`rankcore plan`: print what a change would bring."""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import typer

from executors.cli.bars import bytes_bar
from executors.cli.moments import seconds_of
from executors.cli.plan_words import chosen, expected, lines_of, plan_as_json, weights_lines
from executors.cli.problems import Refusal, told_in_one_line, warn
from executors.engine.clusters import CLUSTER
from executors.engine.deployment_lines import is_of_cluster
from executors.engine.deployments import DEPLOYMENTS
from executors.engine.replay import ReplayResult, replay
from executors.simulator.fields import FieldProblem
from executors.simulator.load.sources import read_source
from executors.simulator.questions.settings import parse_setting
from executors.simulator.questions.settled import NeverHealthy, settled_state
from executors.simulator.scenario.errors import path_text
from executors.simulator.scenario.model import CHANGEABLE, with_target
from executors.simulator.scenario.placements import static_placement
from rankcore import DeploymentSpec, DeploymentState
from rankcore import plan as dry_run
from rankcore.cluster import ClusterState, plan_cluster
from rankcore.cluster.events import ChangeRequested, DeletionRequested, ScaleRequested
from rankcore.cluster.planning import Request
from rankcore.errors import RankcoreError
from rankcore.residency.events import EvictRequested
from rankcore.residency.levels import Level


@attrs.frozen
class PlanAsked:
    """What is to be planned for a deployment of a cluster.

    Attributes:
        fields: Of its spec, that are to change.
        evict: To which level its weights are to be brought; None: they are not.
    """

    fields: dict[str, Any]
    stop_first: tuple[str, ...]
    delete: bool
    evict: str | None

    def request(self, state: ClusterState, deployment: str, at: float) -> Request:
        """As the cluster is asked for it."""
        spec = state.deployments[deployment].spec
        if self.delete:
            return DeletionRequested(deployments=(deployment,), at=at)
        if self.evict is not None:
            if self.evict.upper() not in (Level.WARM, Level.COLD):
                raise Refusal(f'--evict: expected WARM or COLD, found "{self.evict}"')
            return EvictRequested(model=deployment, keep=Level(self.evict.upper()), at=at)
        if self.fields.keys() == {"target_replicas"}:
            target = self.fields["target_replicas"]
            return ScaleRequested(deployment=deployment, target_replicas=target, stop_first=self.stop_first, at=at)
        if self.stop_first:
            raise Refusal("--stop-first: expected --target alone with it, in a cluster")
        return ChangeRequested(spec=attrs.evolve(spec, ranks=_wanted(spec.ranks, self.fields, _groups(spec.ranks))), at=at)


def run(
    scenario: Path | None,
    target: int | None,
    deployment: str | None,
    changes: list[str],
    stop_first: tuple[str, ...],
    journal: Path | None,
    at: str | None,
    delete: bool,
    evict: str | None,
    as_json: bool,
) -> None:
    """What `rankcore plan` does, errors and exit status included."""
    with told_in_one_line("interrupted"):
        is_gone = delete or evict is not None
        if is_gone and (target is not None or changes or stop_first or (delete and evict is not None)):
            raise Refusal("--delete, --evict: expected one of them, and nothing else that is to change")
        fields = {} if is_gone else _fields(target, changes)
        if (scenario is None) == (journal is None):
            raise Refusal("expected a scenario file or --from JOURNAL, and not both")
        if at is not None and journal is None:
            raise Refusal("--at: expected --from JOURNAL with it; a scenario is planned from when it has come up")
        asked_at = None if at is None else seconds_of("--at", at)
        if journal is not None and is_of_cluster(journal):
            asked = PlanAsked(fields, stop_first, delete, evict)
            return _plan_in_cluster(journal, asked, deployment, asked_at, as_json)
        if is_gone:
            raise Refusal("--delete, --evict: expected the journal of a cluster with it (--from)")
        if journal is not None:
            state = _recorded_state(journal, asked_at, deployment)
            groups = _groups(state.spec)
        else:
            assert scenario is not None, "one of the two is there"
            state, groups = _settled_state(scenario, deployment)
        for replica_id in stop_first:
            if replica_id not in state.replicas:
                raise Refusal(f"--stop-first: {expected('replica', replica_id, sorted(state.replicas))}")
        try:
            spec = _wanted(state.spec, fields, groups)
            planned = dry_run(state, spec, stop_first=stop_first)
        except RankcoreError as error:
            raise Refusal(f"--set: {error}") from None
        if as_json:
            typer.echo(json.dumps(plan_as_json(state, planned, asked_at), indent=2))
        else:
            for line in lines_of(state, spec, planned, asked_at):
                typer.echo(line)


def _fields(target: int | None, changes: Iterable[str]) -> dict[str, Any]:
    """The fields of the spec that are to change."""
    fields: dict[str, Any] = {}
    for text in changes:
        setting = parse_setting("--set", text)
        if setting.key not in CHANGEABLE:
            raise Refusal(f"--set: {expected('field of a deployment', setting.key, CHANGEABLE)}")
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


def _groups(spec: DeploymentSpec) -> Mapping[str, int]:
    static = spec.static_placement
    return {static.group or "": static.bundle_count} if static is not None else {}


def _plan_in_cluster(path: Path, asked: PlanAsked, deployment: str | None, asked_at: float | None, as_json: bool) -> None:
    """From the journal of a cluster: what the request would bring, to whomever it concerns."""
    state: ClusterState = _replayed(path, asked_at, partial(replay, kind=CLUSTER)).state
    if state is None or not state.deployments:
        raise Refusal(f"{path}: expected a journal that has begun by then, found no deployment yet")
    name = chosen(deployment, sorted(state.deployments))
    for replica_id in asked.stop_first:
        if replica_id not in state.deployments[name].ranks.replicas:
            raise Refusal(f"--stop-first: {expected('replica', replica_id, sorted(state.deployments[name].ranks.replicas))}")
    try:
        planned = plan_cluster(state, asked.request(state, name, state.clock))
    except RankcoreError as error:
        raise Refusal(f"{name}: {error}") from None
    plans = {each.deployment: each.plan for each in planned.changes if each.plan is not None}
    ranks = {each: state.deployments[each].ranks for each in dict.fromkeys((name, *plans))}
    wanted = {each: attrs.evolve(ranks[each].spec, **with_target(asked.fields if each == name else {})) for each in ranks}
    plans = {each: plans[each] if each in plans else dry_run(ranks[each], ranks[each].spec) for each in ranks}
    now = state.clock if asked_at is None else max(asked_at, state.clock)
    if as_json:
        own, *others = (plan_as_json(ranks[each], plans[each], now) for each in ranks)
        weights = [attrs.asdict(each) for each in planned.weights]
        typer.echo(json.dumps({**own, "others": others, "weights": weights}, indent=2))
        return
    for each in ranks:
        for line in lines_of(ranks[each], wanted[each], plans[each], now):
            typer.echo(line)
    for line in weights_lines(planned.weights):
        typer.echo(line)


def _settled_state(path: Path, deployment: str | None) -> tuple[DeploymentState, Mapping[str, int]]:
    scenario = read_source(path).pinned()
    name = chosen(deployment, [each.spec.name for each in scenario.deployments])
    try:
        return settled_state(scenario, name), scenario.bundle_counts
    except NeverHealthy as error:
        raise Refusal(f"{path}: {error}") from None


def _recorded_state(path: Path, asked_at: float | None, deployment: str | None) -> DeploymentState:
    states = _replayed(path, asked_at, partial(replay, kind=DEPLOYMENTS)).states
    if not states:
        raise Refusal(f"{path}: expected a journal that has begun by then, found no deployment yet")
    state: DeploymentState = states[chosen(deployment, sorted(states))]
    return state


def _replayed(path: Path, asked_at: float | None, run_again: Callable[..., ReplayResult]) -> ReplayResult:
    with bytes_bar("reading", path.stat().st_size) as bar:
        result = run_again(path, until=math.inf if asked_at is None else asked_at, progress=bar.show)
    if result.difference is not None:
        raise Refusal(f"{result.difference}: this core decides otherwise, so it cannot plan from there")
    if result.warning is not None:
        warn(result.warning)
    return result
