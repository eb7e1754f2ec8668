"""The groups of mutants, each with layers and a published table of its own: a new group is one row."""

from collections.abc import Mapping

import attrs

from mutants import catalogue
from mutants.mutant import Mutant


@attrs.frozen
class Group:
    """Mutants that are asked of the same layers.

    Attributes:
        option: What chooses them on the command line; empty: they are meant where nothing else is said.
        about: What they are of, in a few words.
        mutants: By name.
        layers: Names of the layers that every one is asked with: the columns of the published table.
    """

    option: str
    about: str
    mutants: Mapping[str, Mutant]
    layers: tuple[str, ...]

    @property
    def markers(self) -> tuple[str, str]:
        """The lines of the page that its table stands between."""
        command = " ".join(filter(None, ("python -m mutants", self.option, "--publish")))
        return f"<!-- written by `{command}`: begin -->", f"<!-- written by `{command}`: end -->"


RANKS = Group("", "ranks, placement and requests", catalogue.ALL, ("unit", "scenarios", "properties", "checker"))
GROUPS = {
    "ranks": RANKS,
    "models": Group(
        "--models",
        "the planner of weights",
        catalogue.MODELS,
        ("model-unit", "model-cases", "model-properties", "model-checker"),
    ),
    "plane": Group(
        "--plane",
        "clusters and routers",
        catalogue.PLANE,
        ("plane-unit", "plane-properties", "cluster-checker", "router-checker"),
    ),
    "gangs": Group("--gangs", "gangs", catalogue.GANGS, ("gang-unit", "gang-properties", "gang-checker")),
    "executors": Group("--executors", "executors and replicas", catalogue.OF_EXECUTORS, ("kit",)),
}
EVERY = {name: mutant for group in GROUPS.values() for name, mutant in group.mutants.items()}
"""All mutants by name."""
