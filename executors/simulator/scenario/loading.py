"""From a scenario file to a `Scenario` and the requests of its traces, all of it checked before anything runs."""

from collections.abc import Mapping
from pathlib import Path

import attrs

from executors.simulator.faults.node_trace import read_node_trace
from executors.simulator.fields import FieldProblem
from executors.simulator.load.arrivals import Arrivals, TooManyRequestsError
from executors.simulator.load.csvfile import TraceError
from executors.simulator.scenario.errors import ScenarioError, path_text
from executors.simulator.scenario.model import Scenario
from executors.simulator.scenario.requests import REQUEST_SOURCES, Requests
from executors.simulator.scenario.structuring import structure_scenario
from executors.simulator.scenario.textfile import read_text
from executors.simulator.scenario.workload import make_arrivals
from executors.simulator.scenario.yamlfile import line_of, parse
from executors.simulator.streams import Streams


def load_scenario(path: Path) -> Scenario:
    """Read a scenario file.

    Raises:
        ScenarioError: One line that says where, what was found and what is allowed.
    """
    return with_node_events(parse_scenario(read_text(path), str(path)), path.parent)


def parse_scenario(text: str, source: str) -> Scenario:
    """Read a scenario of a text; `source` is what errors call the file."""
    data, lines = parse(text, source)
    try:
        return structure_scenario(data, Path(source).parent)
    except FieldProblem as problem:
        raise ScenarioError.at(str(problem), source, line_of(problem.keys, lines), problem.keys) from None


def with_node_events(scenario: Scenario, folder: Path) -> Scenario:
    """The same scenario with the events of its fault trace, which do not depend on the seed, read into it.

    Raises:
        ScenarioError: The trace cannot be used; names its file and line.
    """
    trace = scenario.fault_trace
    if trace is None:
        return scenario
    try:
        events = read_node_trace(folder / trace.file, trace.form, scenario.node_ids_of(trace.group))
    except TraceError as error:
        raise ScenarioError(f"fault_trace.file: {error}") from None
    return attrs.evolve(scenario, fault_trace=attrs.evolve(trace, events=events))


def load_arrivals(scenario: Scenario, folder: Path, seed: int) -> dict[str, Arrivals]:
    """The requests of each deployment, by its name; trace files are relative to `folder`.

    Each deployment draws from streams of its own, so that a change of one leaves the requests of the others alone.

    Raises:
        ScenarioError: A trace cannot be used; names its file and line, and who wants it. Or faults without end would come
            while requests do.
    """
    streams = Streams(seed)
    shares = _shares(scenario, folder)
    found = {}
    for index, deployment in enumerate(scenario.deployments):
        name = deployment.spec.name
        requests = deployment.served_requests or shares.get(name)
        try:
            arrivals = Arrivals()
            if requests is not None:
                arrivals = make_arrivals(requests, name, folder, streams)
            # Of a share the others are left out of course.
            found[name] = arrivals if deployment.requests is not None else attrs.evolve(arrivals, notes=())
        except (TraceError, TooManyRequestsError) as error:
            source = next(key for key, cls in REQUEST_SOURCES.items() if isinstance(requests, cls))
            key = f"{source}.file" if isinstance(error, TraceError) else source
            whose = f"deployments[{index}].requests.{key}" if deployment.requests is not None else "traffic"
            raise ScenarioError(f"{whose}: {error}") from None
        except FieldProblem as problem:
            whose = path_text(("deployments", index, "requests", "trace", *problem.keys))
            raise ScenarioError(f"{whose}: {problem}") from None
    try:
        scenario.check_rates(max((each.at_s[-1] for each in found.values() if each.at_s), default=0.0))
    except FieldProblem as problem:
        raise ScenarioError(f"{path_text(problem.keys)}: {problem}") from None
    return found


def notes_of(scenario: Scenario, arrivals: Mapping[str, Arrivals]) -> tuple[str, ...]:
    """What a reader of the figures has to know of the traces, each thing once."""
    events = scenario.fault_trace.events if scenario.fault_trace is not None else None
    found = [note for each in arrivals.values() for note in each.notes]
    return tuple(dict.fromkeys((*found, *(events.notes if events is not None else ()))))


def _shares(scenario: Scenario, folder: Path) -> dict[str, Requests]:
    """What `traffic` has for those that have no requests of their own."""
    if scenario.traffic is None:
        return {}
    without = [each.spec.name for each in scenario.deployments if each.requests is None]
    try:
        return dict(scenario.traffic.of_deployments(without, folder))
    except TraceError as error:
        raise ScenarioError(f"traffic.clients.file: {error}") from None
    except FieldProblem as problem:
        raise ScenarioError(f"{path_text(('traffic', *problem.keys))}: {problem}") from None


def with_seed(scenario: Scenario, seed: int | None) -> Scenario:
    """The same scenario with another seed; None keeps its own."""
    return scenario if seed is None else attrs.evolve(scenario, seed=seed)
