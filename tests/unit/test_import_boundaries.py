"""The core touches nothing: what its files import is a short list, and importing it brings in no extra."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALLOWED = {
    "rankcore",
    "attrs",
    "msgspec",
    # of the standard library, what computes and nothing that acts
    "abc",
    "base64",
    "binascii",
    "bisect",
    "collections",
    "dataclasses",
    "enum",
    "functools",
    "hashlib",
    "heapq",
    "itertools",
    "json",
    "math",
    "operator",
    "re",
    "types",
    "typing",
}
ALLOWED_IN = {
    "immutables": {"rankcore/frozen.py"},
    # Packages load their own modules when they are first used.
    "importlib": {"rankcore/homes.py"},
}
FORBIDDEN_CALLS = {"open", "print", "input", "exec", "eval", "__import__", "breakpoint", "id"}
FILES = sorted(path for path in (ROOT / "rankcore").rglob("*.py") if "testing" not in path.relative_to(ROOT).parts)


def imported_by(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "a relative import" if node.level else node.module.partition(".")[0]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_file_of_the_core_imports_only_what_is_allowed(path):
    name = path.relative_to(ROOT).as_posix()
    allowed = ALLOWED | {module for module, files in ALLOWED_IN.items() if name in files}
    assert set(imported_by(ast.parse(path.read_text()))) <= allowed


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_file_of_the_core_calls_no_builtin_that_acts_or_depends_on_the_process(path):
    calls = {
        node.func.id
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert calls & FORBIDDEN_CALLS == set()


def modules_after(statement):
    """Names of the modules that a fresh interpreter has after a statement."""
    program = f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


EXTRAS = {"typer", "rich", "yaml", "cattrs", "plotly", "ray", "torch", "numpy", "hypothesis", "pytest", "executors"}


def test_importing_rankcore_brings_in_no_extra():
    modules = modules_after("import rankcore; rankcore.step, rankcore.plan, rankcore.codec, rankcore.invariants")
    assert "rankcore.core" in modules
    assert modules & EXTRAS == set()


def test_the_driver_needs_no_extra():
    assert modules_after("import executors.engine.loop, executors.engine.replay") & (EXTRAS - {"executors"}) == set()


def test_the_replay_command_needs_no_cluster_library():
    assert modules_after("import executors.cli.replay") & {"ray", "torch", "hypothesis"} == set()


def test_nothing_that_runs_imports_what_draws_the_life_cycles():
    """On Ray, on local processes, and in the core itself."""
    modules = modules_after(
        "import rankcore\n"
        "state = rankcore.deploy(rankcore.DeploymentSpec(name='llm', target_replicas=2, version='1')).state\n"
        "state = rankcore.step(state, rankcore.events.ReplicaDied(replica_id='llm#1.0', reason='', at=1.0)).state\n"
        "import executors.local.executor, executors.controller, executors.local.replica\n"
        "import executors.ray_gpu.executor, executors.ray_gpu.controller, executors.ray_gpu.replica\n"
    )
    assert {"rankcore.lifecycle", "executors.local.executor", "executors.ray_gpu.controller"} <= modules
    assert "transitions" not in modules
