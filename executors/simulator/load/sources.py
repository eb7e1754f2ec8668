"""Where a run comes from: the text of a scenario file, the settings that change it, and the folder its traces are in."""

import hashlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import attrs

from executors.simulator.fields import FieldProblem
from executors.simulator.load.arrivals import Arrivals
from executors.simulator.questions.settings import KeyPath, Setting, apply_settings
from executors.simulator.regularfile import open_regular
from executors.simulator.scenario.errors import ScenarioError, path_text
from executors.simulator.scenario.loading import load_arrivals, with_node_events, with_seed
from executors.simulator.scenario.model import Scenario
from executors.simulator.scenario.residency.arrivals import load_model_arrivals
from executors.simulator.scenario.residency.whole import KEYS_OF_THE_KIND, ResidencyScenario
from executors.simulator.scenario.structuring import structure_residency, structure_scenario
from executors.simulator.scenario.textfile import read_text
from executors.simulator.scenario.yamlfile import line_of, parse

T = TypeVar("T")


@attrs.frozen
class Source:
    """Everything that a run is made of but its seed: small, and handed from process to process.

    Attributes:
        name: Of the scenario file, as it was given.
        text: Of the file.
        folder: What its traces are relative to.
        settings: Values that replace those of the file, in this order.
    """

    name: str
    text: str
    folder: str
    settings: tuple[Setting, ...] = ()

    def scenario(self, seed: int | None = None) -> Scenario:
        """The scenario, with another seed than its own if one is given.

        Raises:
            ScenarioError: One line that says where, what was found and what is allowed.
        """
        if self.of_models:
            takers = "simulate, compare and sweep"
            raise ScenarioError(f"{self.name}: expected a scenario of deployments, found one of models, which {takers} take")
        return with_seed(_scenario(self.name, self.text, self.folder, self.settings), seed)

    @property
    def of_models(self) -> bool:
        """Whether it is about models and the memory of GPUs, and not about deployments and their ranks."""
        return _is_of_models(self.name, self.text, self.settings)

    def residency(self, seed: int | None = None) -> ResidencyScenario:
        """A scenario of models, as `scenario` does it for one of deployments.

        Raises:
            ScenarioError: Likewise.
        """
        found = _residency(self.name, self.text, self.folder, self.settings)
        return found if seed is None else attrs.evolve(found, seed=seed)

    def model_arrivals(self, scenario: ResidencyScenario) -> dict[str, Arrivals]:
        """The requests of each model."""
        return load_model_arrivals(scenario, Path(self.folder), scenario.seed)

    def either(self, seed: int | None = None) -> Scenario | ResidencyScenario:
        """The scenario, whichever kind it is.

        Raises:
            ScenarioError: As `scenario`.
        """
        return self.residency(seed) if self.of_models else self.scenario(seed)

    def check(self, seed: int | None = None) -> None:
        """Read all that a run would need.

        Raises:
            ScenarioError: Something of it cannot be used.
        """
        scenario = self.either(seed)
        if isinstance(scenario, ResidencyScenario):
            self.model_arrivals(scenario)
        else:
            self.arrivals(scenario)

    def arrivals(self, scenario: Scenario) -> dict[str, Arrivals]:
        """The requests of each deployment."""
        return load_arrivals(scenario, Path(self.folder), scenario.seed)

    def trace_digests(self) -> dict[str, str]:
        """Of every file that the scenario names, by the name that it has there.

        Raises:
            ScenarioError: One cannot be read.
        """
        return {name: _digest(Path(self.folder) / name, name) for name in self._files}

    @property
    def inputs(self) -> tuple[Path, ...]:
        """The scenario file, and every file that it names: what no output may be written to."""
        return (Path(self.name), *(Path(self.folder) / name for name in self._files))

    @property
    def _files(self) -> list[str]:
        data, _ = parse(self.text, self.name)
        apply_settings(data, self.settings)
        return _files(data)


def read_source(path: Path, settings: tuple[Setting, ...] = ()) -> Source:
    """A scenario file as it is now.

    Raises:
        ScenarioError: It cannot be read.
    """
    return Source(str(path), read_text(path), str(path.parent), settings)


@lru_cache(maxsize=8)
def _scenario(name: str, text: str, folder: str, settings: tuple[Setting, ...]) -> Scenario:
    return with_node_events(_structured(structure_scenario, name, text, folder, settings), Path(folder))


@lru_cache(maxsize=8)
def _residency(name: str, text: str, folder: str, settings: tuple[Setting, ...]) -> ResidencyScenario:
    return _structured(structure_residency, name, text, folder, settings)


@lru_cache(maxsize=8)
def _is_of_models(name: str, text: str, settings: tuple[Setting, ...]) -> bool:
    data, _ = parse(text, name)
    apply_settings(data, settings)
    return isinstance(data, dict) and any(key in data for key in KEYS_OF_THE_KIND)


def _structured(structure: Callable[[object, Path], T], name: str, text: str, folder: str, settings: tuple[Setting, ...]) -> T:
    data, lines = parse(text, name)
    placed = apply_settings(data, settings)
    try:
        return structure(data, Path(folder))
    except FieldProblem as problem:
        setting = _setting_at(problem.keys, placed)
        where = f"{name}:{line_of(problem.keys, lines)}" if setting is None else f"set by {setting}"
        raise ScenarioError(f"{path_text(problem.keys)}: {problem} ({where})") from None


def _setting_at(keys: KeyPath, placed: dict[KeyPath, Setting]) -> Setting | None:
    return next((placed[keys[:length]] for length in range(len(keys), 0, -1) if keys[:length] in placed), None)


def _files(data: Any) -> list[str]:
    """Every `file` that a scenario names, wherever it stands, each once."""
    inner = list(data.values()) if isinstance(data, dict) else data if isinstance(data, list) else []
    named = data.get("file") if isinstance(data, dict) else None
    found = dict.fromkeys([named] if isinstance(named, str) else [])
    for each in inner:
        found.update(dict.fromkeys(_files(each)))
    return list(found)


def _digest(path: Path, name: str) -> str:
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except (OSError, ValueError) as error:
        raise ScenarioError(f"{name}: {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
