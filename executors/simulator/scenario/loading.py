"""From a scenario file to a `Scenario` and the requests of its traces, all of it checked before anything runs."""

from pathlib import Path

import attrs

from executors.simulator.arrivals import Arrivals, TokenTimes, TraceColumns, TraceError, draw_poisson, read_trace
from executors.simulator.fields import FieldProblem
from executors.simulator.scenario.errors import ScenarioError
from executors.simulator.scenario.model import Deployment, PoissonRequests, Scenario, TraceRequests
from executors.simulator.scenario.structuring import structure_scenario
from executors.simulator.scenario.yamlfile import line_of, parse, path_text, read_text
from executors.simulator.streams import Streams


def load_scenario(path: Path) -> Scenario:
    """Read a scenario file.

    Raises:
        ScenarioError: One line that says where, what was found and what is allowed.
    """
    return parse_scenario(read_text(path), str(path))


def parse_scenario(text: str, source: str) -> Scenario:
    """Read a scenario of a text; `source` is what errors call the file."""
    data, lines = parse(text, source)
    try:
        return structure_scenario(data)
    except FieldProblem as problem:
        where = f"{source}:{line_of(problem.keys, lines)}"
        raise ScenarioError(f"{path_text(problem.keys)}: {problem} ({where})") from None


def load_arrivals(scenario: Scenario, folder: Path, seed: int) -> dict[str, Arrivals]:
    """The requests of each deployment, by its name; trace files are relative to `folder`.

    Each deployment draws from streams of its own, so that a change of one leaves the requests of the others alone.

    Raises:
        ScenarioError: A trace cannot be used; names its file and line, and who wants it.
    """
    streams = Streams(seed)
    found = {}
    for index, deployment in enumerate(scenario.deployments):
        try:
            found[deployment.spec.name] = _arrivals(deployment, folder, streams)
        except TraceError as error:
            raise ScenarioError(f"deployments[{index}].requests.trace.file: {error}") from None
    return found


def _arrivals(deployment: Deployment, folder: Path, streams: Streams) -> Arrivals:
    requests = deployment.requests
    match requests:
        case TraceRequests():
            columns = TraceColumns(
                time=requests.time_column,
                prompt_tokens=requests.prompt_tokens_column,
                output_tokens=requests.output_tokens_column,
            )
            times = TokenTimes(
                base_s=requests.base_s,
                prompt_s_per_token=requests.prompt_s_per_token,
                output_s_per_token=requests.output_s_per_token,
            )
            return read_trace(folder / requests.file, columns, times, requests.begin_s)
        case PoissonRequests():
            stream = streams.once("requests", deployment.spec.name)
            return draw_poisson(requests.rate_per_s, requests.begin_s, requests.for_s, requests.service_s, stream)
        case None:
            return Arrivals()


def with_seed(scenario: Scenario, seed: int | None) -> Scenario:
    """The same scenario with another seed; None keeps its own."""
    return scenario if seed is None else attrs.evolve(scenario, seed=seed)
