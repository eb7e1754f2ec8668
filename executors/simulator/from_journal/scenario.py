"""A scenario of what a journal says: its nodes, its deployments, how long things take there, and what happens later."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from executors.simulator.fields import FieldProblem
from executors.simulator.from_journal.history import History
from executors.simulator.from_journal.specs import fields_of
from executors.simulator.questions.settings import Setting, apply_settings
from executors.simulator.scenario.errors import ScenarioError, path_text
from executors.simulator.scenario.model import POLICY, ROUTING, SPEC_FIELDS, Scenario
from executors.simulator.scenario.structuring import structure_scenario
from executors.simulator.times import moment
from rankcore.state import Node
from rankcore.values import NodeId

Plain: TypeAlias = dict[str, Any]

ANY_NUMBER = 1024
"""GPUs of a node whose capacity the journal does not say. Each replica takes one GPU: more is not known of it."""
DURATIONS = ("start_s", "init_s", "reconfigure_s", "drain_s")


def scenario_of(
    path: Path,
    history: History,
    at: float,
    seed: int,
    settings: tuple[Setting, ...],
    room: Mapping[NodeId, int] | None = None,
) -> Scenario:
    """The scenario of a run that goes on from a moment of a journal.

    Args:
        path, history, at: The journal, what it says, and the moment.
        seed: Of what is drawn from then on.
        settings: What is to be otherwise.
        room: How many replicas each node holds in all, where somebody knows better than the journal.

    Raises:
        ScenarioError: A setting does not fit, no node is known yet, or a deployment is placed statically.
    """
    for name, state in sorted(history.states.items()):
        if state.spec.static_placement is not None:
            problem = f"{name} stands on a placement group, and a journal does not say where its bundles are"
            raise ScenarioError(f"{path}: {problem}: write a scenario with placement_groups instead")
    data = _plain(path, history, at, seed, room or {})
    if not data["nodes"]:
        raise ScenarioError(
            f"{path}: expected a time at which a replica has a place, found {moment(at, None)}: no node is known yet"
        )
    placed = apply_settings(data, settings)
    if any("requests" in deployment for deployment in data["deployments"]):
        raise ScenarioError("--set: expected no requests, since a journal says nothing of those that were under way")
    try:
        scenario = structure_scenario(data, by_id=True)
    except FieldProblem as problem:
        setting = next((placed[keys] for keys in placed if problem.keys[: len(keys)] == keys), None)
        where = f"recorded in {path}" if setting is None else f"set by {setting}"
        raise ScenarioError(f"{path_text(problem.keys)}: {problem} ({where})") from None
    _check_that_all_are_there(scenario, history)
    return scenario


def _check_that_all_are_there(scenario: Scenario, history: History) -> None:
    """The recorded replicas live on in this world: it needs their deployments, and their nodes.

    Raises:
        ScenarioError: Settings have left one out, or renamed it.
    """
    names, recorded = (sorted(each) for each in ([part.spec.name for part in scenario.deployments], history.states))
    if names != recorded:
        raise ScenarioError(f"--set: expected the deployments of the journal, {', '.join(recorded)}, found {', '.join(names)}")
    used = {each.node_id for state in history.states.values() for each in state.replicas.values() if each.node_id is not None}
    lacking = sorted(used - scenario.node_gpus.keys())
    if lacking:
        found = ", ".join(scenario.node_gpus)
        raise ScenarioError(f"--set: expected nodes with {', '.join(lacking)}, where recorded replicas are, found {found}")


def _plain(path: Path, history: History, at: float, seed: int, room: Mapping[NodeId, int]) -> Plain:
    nodes = nodes_of(history, room)
    faults = [fault for fault in history.aftermath.faults if fault.get("node", next(iter(nodes), "")) in nodes]
    return {
        "name": f"{path.name} from {moment(at, None)} on",
        "seed": seed,
        "nodes": [{"name": node_id, "gpus": gpus} for node_id, gpus in nodes.items()],
        "deployments": [
            {**fields_of(state.spec, SPEC_FIELDS), **routing_of(history, name), **_durations(history, name)}
            for name, state in sorted(history.states.items())
        ],
        "faults": [fault for fault in faults if fault.get("deployment", next(iter(history.states))) in history.states],
        "changes": [change for change in history.aftermath.changes if change["deployment"] in history.states],
    }


def routing_of(history: History, deployment: str) -> Plain:
    """How its calls are routed; sessions are those of calls, of which a journal says nothing."""
    wanted = history.wanted.get(deployment)
    if wanted is None or wanted.routing is None:
        return {}
    routing = wanted.routing
    found = {field: getattr(routing, field) for field in ROUTING}
    return found if routing.policy == "affinity" else {**found, POLICY: routing.policy}


def _durations(history: History, deployment: str) -> Plain:
    measured = history.durations.get(deployment, {})
    return {field: {"empirical": list(measured[field])} for field in DURATIONS if measured.get(field)}


def not_measured(history: History) -> dict[str, tuple[str, ...]]:
    """By deployment: how long what takes is not in the journal, so that a scenario's default stands for it."""
    found = {
        name: tuple(field for field in DURATIONS if not history.durations.get(name, {}).get(field)) for name in history.states
    }
    return {name: fields for name, fields in found.items() if fields}


def nodes_of(history: History, room: Mapping[NodeId, int]) -> dict[NodeId, int]:
    """The nodes that are there, each with its GPUs; one that the journal names later only was there, for all it says."""
    known: dict[NodeId, list[Node]] = {node_id: [node] for node_id, node in history.later_nodes.items()}
    for _, state in sorted(history.states.items()):
        for node_id, node in state.nodes.items():
            known.setdefault(node_id, []).append(node)
    return {
        node_id: min(ANY_NUMBER, max(1, room[node_id])) if node_id in room else _gpus(known[node_id])
        for node_id in sorted((known.keys() - history.lost) | room.keys())
    }


def _gpus(known: list[Node]) -> int:
    capacities = [node.capacity for node in known if node.capacity is not None]
    members = sum(len(node.members) for node in known)
    return max(1, members, min(ANY_NUMBER, max(capacities, default=ANY_NUMBER)))
