"""The layers of tests that are asked, the cheapest first. A new layer is one row of `LAYERS`."""

import hashlib
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import attrs

OTHERS = re.compile(r"^\s*(?:from|import) (?:bench|executors|mutants|tests\.ray_\w+|ray)\b|\bexecutors\.\w+", re.MULTILINE)
"""What a test file of something else than the core imports, or runs."""
NOT_ABOUT_RULES = {"test_checks_elsewhere.py", "test_codec.py", "test_import_boundaries.py", "test_lean_import.py"}
"""Tests of what the mutants leave alone: what is imported and written down, and how."""
STATES = 150
"""Of each small system, breadth first: what is wrong in one of them shows early, and all of them whole take half a minute."""
PYTEST = ("pytest", "-q", "-x", "--tb=no", "-rfE", "-p", "no:cacheprovider", "-p", "_hypothesis_pytestplugin")
PYTEST_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
CHECK_FAILED = re.compile(r"^BROKEN after [^:]*: ([^:]+):", re.MULTILINE)


@attrs.frozen
class Layer:
    """Tests that are run against each mutant until one of them fails.

    Attributes:
        name: The column in the table.
        about: What it is, in a few words.
        command: A module and its arguments, run like `python -m` at the top of a copy of the tree.
        sources: The files that are its tests, from the top of the tree: with others, what survived is asked again.
        caught: Exit statuses that say that something is wrong with the core. 0 says that nothing is; any other that the layer
            itself could not be run.
        found_by: Finds in the output which test, or which system, it was.
        again: The command that runs this one test alone; None: what `found_by` finds, a promise, cannot be run.
        budget_s: CPU time, in whole seconds, that it may take for one mutant. What it has not caught by then, it has not.
    """

    name: str
    about: str
    command: tuple[str, ...]
    sources: Callable[[Path], Iterable[Path]]
    caught: frozenset[int]
    found_by: "re.Pattern[str]"
    again: Callable[[str], tuple[str, ...]] | None
    budget_s: int

    def key(self) -> str:
        """What tells an answer of this layer from one that it gave when it was another."""
        return "\0".join(self.command)

    def tests_key(self, checkout: Path) -> str:
        """A short name for what the tests are now."""
        found = hashlib.sha256()
        for path in sorted(self.sources(checkout)):
            found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
        return found.hexdigest()[:16]


def _pytest(name: str, about: str, tests: Callable[[Path], Iterable[str]], budget_s: int) -> Callable[[Path], Layer]:
    def layer(checkout: Path) -> Layer:
        chosen = tuple(tests(checkout))

        def sources(tree: Path) -> Iterable[Path]:
            for each in chosen:
                path = tree / each
                yield from (file for file in path.glob("*") if file.is_file()) if path.is_dir() else (path,)

        # 2: a test file that cannot even be loaded, since it uses the core while it is.
        return Layer(
            name, about, (*PYTEST, *chosen), sources, frozenset({1, 2}), PYTEST_FAILED, lambda by: (*PYTEST, by), budget_s
        )

    return layer


def _files(*paths: str) -> Callable[[Path], Iterable[str]]:
    return lambda checkout: paths


def _unit_tests_of_the_core(checkout: Path) -> Iterable[str]:
    for path in sorted((checkout / "tests/unit").glob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if path.name not in NOT_ABOUT_RULES and not OTHERS.search(text):
            yield path.relative_to(checkout).as_posix()


def _unit_tests_of(*subjects: str) -> Callable[[Path], Iterable[str]]:
    begins = tuple(f"test_{subject}" for subject in subjects)
    return lambda checkout: [each for each in _unit_tests_of_the_core(checkout) if Path(each).name.startswith(begins)]


def _checker(name: str, folder: str, *asked: str) -> Callable[[Path], Layer]:
    def layer(checkout: Path) -> Layer:
        def sources(tree: Path) -> Iterable[Path]:
            return (tree / folder).glob("*.py")

        command = ("executors.cli", "check", *asked, "--quiet", "--states", str(STATES))
        about = f"the first {STATES} reachable states of each small system"
        return Layer(name, about, command, sources, frozenset({1}), CHECK_FAILED, None, 30)

    return layer


_ROWS: tuple[Callable[[Path], Layer], ...] = (
    _pytest("unit", "example tests of the core", _unit_tests_of_the_core, 60),
    _pytest("scenarios", "incidents, event in, command out", _files("tests/scenarios/test_scenarios.py"), 10),
    _pytest(
        "properties",
        "adversarial schedules, promises checked after each step",
        _files(
            "tests/property/test_rank_machine.py",
            "tests/property/test_schedules.py",
            "tests/property/test_unruly_news.py",
        ),
        6,
    ),
    _checker("checker", "rankcore/testing/model"),
    _pytest("simulator", "simulated worlds with faults", _files("tests/property/test_simulated_worlds.py"), 60),
    _pytest("conformance", "the conformance suite", _files("tests/conformance/test_simulator_conforms.py"), 60),
    _pytest("model-unit", "example tests of the planner", _unit_tests_of("residency_"), 20),
    _pytest("model-cases", "cases calculated by hand", _files("tests/scenarios/residency/test_worked_cases.py"), 10),
    _pytest(
        "model-properties",
        "random news, brute force and slow ways, promises checked after each step",
        _files(
            "tests/property/test_residency.py",
            "tests/property/test_residency_brute_force.py",
            "tests/property/test_residency_many_nodes.py",
            "tests/property/test_residency_waking.py",
        ),
        60,
    ),
    _checker("model-checker", "rankcore/testing/model_residency", "--residency"),
    _pytest(
        "plane-unit", "example tests of clusters and routers", _unit_tests_of("cluster", "rout", "availability", "worker"), 60
    ),
    _pytest(
        "plane-properties",
        "clusters against single deployments, routers against a naive one, reports and statuses in any order",
        _files(
            "tests/property/test_cluster_differential.py",
            "tests/property/test_router.py",
            "tests/property/test_demand.py",
            "tests/property/test_statuses.py",
        ),
        60,
    ),
    _checker("cluster-checker", "rankcore/testing/model_cluster", "--cluster"),
    _checker("router-checker", "rankcore/testing/model_routing", "--router"),
    _pytest("gang-unit", "example tests of gangs", _unit_tests_of("gang"), 20),
    _pytest(
        "gang-properties", "any order of events, promises checked after each step", _files("tests/property/test_gang.py"), 60
    ),
    _pytest("kit", "the conformance kit on a small executor", _files("tests/conformance/test_memory_conforms.py"), 60),
    _checker("gang-checker", "rankcore/testing/model_gang", "--gang"),
)


def layers(checkout: Path) -> dict[str, Layer]:
    """All layers by name, as they are in this checkout."""
    return {layer.name: layer for layer in (row(checkout) for row in _ROWS)}
