"""The requests of each model of a residency scenario, drawn or read before the run."""

from pathlib import Path

from executors.simulator.fields import FieldProblem
from executors.simulator.load.arrivals import Arrivals, TooManyRequestsError
from executors.simulator.load.csvfile import TraceError
from executors.simulator.scenario.errors import ScenarioError, path_text
from executors.simulator.scenario.requests import REQUEST_SOURCES, Requests
from executors.simulator.scenario.residency.whole import ResidencyScenario
from executors.simulator.scenario.workload import make_arrivals
from executors.simulator.streams import Streams


def load_model_arrivals(scenario: ResidencyScenario, folder: Path, seed: int) -> dict[str, Arrivals]:
    """The requests of each model, by its name; files are relative to `folder`.

    Each model draws from streams of its own, so that a change of one leaves the requests of the others alone.

    Raises:
        ScenarioError: A file cannot be used, or there is no end to the requests; names who wants them.
    """
    shares = _shares(scenario, folder)
    streams, found = Streams(seed), dict[str, Arrivals]()
    for index, model in enumerate(scenario.models):
        requests = model.requests or shares.get(model.name)
        key = f"models[{index}].requests.{_source(requests)}" if model.requests is not None else "traffic"
        try:
            found[scenario.id_of(model.name)] = Arrivals() if requests is None else make_arrivals(requests, model.name, folder, streams)
        except (TraceError, TooManyRequestsError) as error:
            raise ScenarioError(f"{key}: {error}") from None
    return found


def _shares(scenario: ResidencyScenario, folder: Path) -> dict[str, Requests]:
    if scenario.traffic is None:
        return {}
    without = [model.name for model in scenario.models if model.requests is None]
    try:
        return dict(scenario.traffic.of_models(without, folder))
    except TraceError as error:
        raise ScenarioError(f"traffic.clients.file: {error}") from None
    except FieldProblem as problem:
        raise ScenarioError(f"{path_text(('traffic', *problem.keys))}: {problem}") from None


def _source(requests: Requests | None) -> str:
    return next((key for key, cls in REQUEST_SOURCES.items() if isinstance(requests, cls)), "")
