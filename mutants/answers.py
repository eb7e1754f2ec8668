"""What is known already: build/mutants/results.json, so that an interrupted run goes on where it was."""

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mutants.asking import Answer, Outcome
from mutants.layers import Layer
from mutants.mutant import Mutant

NO_MUTANT = "(none)"
"""The name under which the layers' answers about the honest core are kept."""


class Answers:
    """Answers by mutant and layer, each with what it was an answer to."""

    def __init__(self, checkout: Path, path: Path) -> None:
        """Read what is kept; nothing is, where the file is not there or cannot be understood."""
        self._checkout, self._path = checkout, path
        self._tests: dict[str, str] = {}
        self._core = ""
        try:
            self._kept: dict[str, dict[str, dict[str, Any]]] = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            self._kept = {}

    def get(self, mutant: Mutant | None, layer: Layer) -> Answer | None:
        """What this layer has said of the mutant as it is now; None: it has not been asked.

        What was caught stays caught while mutant and layer are the same. What was not is asked again when the layer's tests
        have changed, since the missing one may have been written, and when the layer has more time.
        """
        kept = self._kept.get(_name(mutant), {}).get(layer.name)
        if kept is None or kept["of"] != self._of(mutant, layer):
            return None
        if kept["outcome"] != Outcome.CAUGHT:
            less = kept["outcome"] == Outcome.OUT_OF_TIME and kept["budget_s"] < layer.budget_s
            if less or kept["tests"] != self._tests_of(layer):
                return None
        return Answer(Outcome(kept["outcome"]), kept["by"], kept["cpu_s"])

    def last_caught_by(self, mutant: Mutant | None, layer: Layer) -> str:
        """The test of the layer that caught the mutant the last time, as either was then, if it can be run alone; else ""."""
        kept = self._kept.get(_name(mutant), {}).get(layer.name)
        return kept["by"] if layer.again and kept is not None and kept["outcome"] == Outcome.CAUGHT else ""

    def put(self, mutant: Mutant | None, layer: Layer, answer: Answer) -> None:
        """Keep an answer, on disk too: the file appears whole or not at all."""
        self._kept.setdefault(_name(mutant), {})[layer.name] = {
            "outcome": answer.outcome.value,
            "by": answer.by,
            "cpu_s": round(answer.cpu_s, 2),
            "of": self._of(mutant, layer),
            "tests": self._tests_of(layer),
            "budget_s": layer.budget_s,
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._path.with_suffix(".part")
        unfinished.write_text(json.dumps(self._kept, indent=1, sort_keys=True), encoding="utf-8")
        os.replace(unfinished, self._path)

    def forget(self, mutants: Iterable[Mutant], layers: Iterable[Layer]) -> None:
        """Keep these answers no longer; the next `put` says so on disk."""
        chosen = list(layers)
        for mutant in (None, *mutants):
            for layer in chosen:
                self._kept.get(_name(mutant), {}).pop(layer.name, None)

    def _of(self, mutant: Mutant | None, layer: Layer) -> str:
        if mutant is not None:
            return _short(mutant.path, mutant.source(self._checkout), layer.key())
        if not self._core:
            files = sorted((self._checkout / "rankcore").rglob("*.py"))
            self._core = _short(*(file.read_text(encoding="utf-8") for file in files))
        return _short(self._core, layer.key(), self._tests_of(layer))

    def _tests_of(self, layer: Layer) -> str:
        if layer.name not in self._tests:
            self._tests[layer.name] = layer.tests_key(self._checkout)
        return self._tests[layer.name]


def _name(mutant: Mutant | None) -> str:
    return mutant.name if mutant is not None else NO_MUTANT


def _short(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
