"""Where a run comes from: the text of a scenario file, the settings that change it, and the folder its traces are in."""

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Any

import attrs

from executors.simulator.fields import FieldProblem
from executors.simulator.load.arrivals import Arrivals
from executors.simulator.questions.settings import KeyPath, Setting, apply_settings
from executors.simulator.regularfile import open_regular
from executors.simulator.scenario import models
from executors.simulator.scenario.errors import ScenarioError, path_text
from executors.simulator.scenario.loading import load_arrivals, notes_of, with_node_events, with_seed
from executors.simulator.scenario.model import Scenario
from executors.simulator.scenario.structuring import structure_scenario
from executors.simulator.scenario.textfile import read_text
from executors.simulator.scenario.yamlfile import Lines, line_of, parse


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
        return with_seed(_scenario(self.name, self.text, self.folder, self.settings), seed)

    def pinned(self) -> Scenario:
        """The scenario, of which no deployment has residency.

        Raises:
            ScenarioError: As `scenario`; or some have.
        """
        scenario = self.scenario()
        if scenario.has_residency:
            problem = "expected deployments without residency: those with it are for simulate, compare and sweep"
            raise ScenarioError(f"{self.name}: {problem}")
        return scenario

    @property
    def is_old(self) -> bool:
        """Whether it is of the schema that scenarios of models had: it is read as `rankcore upgrade` writes it."""
        return _is_old(self.name, self.text)

    def check(self, seed: int | None = None) -> tuple[str, ...]:
        """Read all that a run would need; what has to be known of its traces.

        Raises:
            ScenarioError: Something of it cannot be used.
        """
        scenario = self.scenario(seed)
        return notes_of(scenario, self.arrivals(scenario))

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
        data, _, _ = _data(self.name, self.text, self.settings)
        return _files(data)


def read_source(path: Path, settings: tuple[Setting, ...] = ()) -> Source:
    """A scenario file as it is now.

    Raises:
        ScenarioError: It cannot be read.
    """
    return Source(str(path), read_text(path), str(path.parent), settings)


@lru_cache(maxsize=8)
def _scenario(name: str, text: str, folder: str, settings: tuple[Setting, ...]) -> Scenario:
    data, lines, placed = _data(name, text, settings)
    try:
        return with_node_events(structure_scenario(data, Path(folder)), Path(folder))
    except FieldProblem as problem:
        setting = _setting_at(problem.keys, placed)
        where = f"{name}:{line_of(problem.keys, lines)}" if setting is None else f"set by {setting}"
        raise ScenarioError(f"{path_text(problem.keys)}: {problem} ({where})") from None


@lru_cache(maxsize=8)
def _is_old(name: str, text: str) -> bool:
    return models.is_old(parse(text, name)[0])


def _data(name: str, text: str, settings: tuple[Setting, ...]) -> tuple[Any, Lines, dict[KeyPath, Setting]]:
    """What a file says with these settings, in this release's schema, and where each stands."""
    data, lines = parse(text, name)
    if models.is_old(data):
        data = models.upgraded(data)
    return data, lines, apply_settings(data, settings)


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
