"""What the core lets users ask for, Python and the shell can ask: whoever adds an event has to say how it is reached."""

import inspect

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

import typer

from executors import ray_gpu
from executors.cli.app import app
from executors.run import api as local
from rankcore import events, residency
from rankcore.cluster import events as cluster_events
from rankcore.residency import events as residency_events

REACHED = {
    # of a cluster
    "ApplyRequested": ("run_many", "deploy"),
    "ScaleRequested": ("scale", "scale"),
    "ChangeRequested": ("update", "update"),
    "DeploymentRetryRequested": ("retry", "retry"),
    "DeletionRequested": ("delete", "delete"),
    # of ranks
    "StopRequested": ("stop_replicas", "stop"),
    "ReplaceRequested": ("replace_replicas", "replace"),
    "NodeDrainRequested": ("drain", "drain"),
    "NodeCordoned": ("cordon", "cordon"),
    "NodeUncordoned": ("uncordon", "uncordon"),
    # of weights
    "EvictRequested": ("evict", "evict"),
    "propose_defragmentation": ("propose_defragmentation", "defragment"),
}
"""By the event, or the function of the core: the name in Python, and the command."""

BY_THE_CLUSTER = {
    "DeleteRequested": "DeletionRequested",
    "RetryRequested": "DeploymentRetryRequested",
    "DeployRequested": "ApplyRequested",
    "SpecChanged": "ChangeRequested",
}
"""What the cluster's machine asks of its parts, and of which request of a user's it comes."""

BY_ITSELF = {"TrialRequested": "the cluster tries what was given up when calls wait for it; a user says `retry`"}

VERBS = ("restart", "pause", "promote", "resume", "rollback", "evict")
"""In Python and in the shell, beside those of `REACHED`: each is a change of a spec, or an eviction."""

OF_CALLS = {"requests_under_way": "requests", "cancel_request": "cancel", "cancel_waiting": "cancel"}
"""Functions, and the commands beside them."""

NOT_LOCAL = {"run_many": "a local deployment is what `rankcore run --executor local` runs"}


def requests() -> set[str]:
    """What users may ask of the core, by the names that its events have."""
    found = {
        name for module in (events, cluster_events, residency_events) for name, _ in inspect.getmembers(module, inspect.isclass)
    }
    return {name for name in found if name.endswith("Requested")}


def commands() -> set[str]:
    return set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def test_every_request_of_the_core_has_a_way_to_it() -> None:
    assert requests() - set(REACHED) - set(BY_THE_CLUSTER) - set(BY_ITSELF) == set(), (
        "say how users reach it, in Python and shell"
    )
    assert {each for each in residency.__all__ if each.startswith("propose")} <= set(REACHED)
    for event, (function, command) in REACHED.items():
        assert callable(getattr(ray_gpu, function)), event
        assert command in commands(), event
    assert set(BY_THE_CLUSTER.values()) <= set(REACHED)


@pytest.mark.parametrize("verb", sorted({*VERBS, *OF_CALLS, *(function for function, _ in REACHED.values())} - set(NOT_LOCAL)))
def test_local_processes_have_the_same_verbs(verb: str) -> None:
    on_ray, here = (inspect.signature(getattr(each, verb)).parameters for each in (ray_gpu, local))
    assert list(here) == list(on_ray)


def test_the_shell_has_every_verb_with_json_and_with_local_processes() -> None:
    known = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    asking = {
        *VERBS,
        *OF_CALLS.values(),
        *(command for _, command in REACHED.values()),
        "status",
        "logs",
        "notes",
        "config",
        "shutdown",
    }
    without = {"deploy": {"--executor"}}  # the application of a local run is that of its command
    for name in asking:
        there = {option for each in known[name].params for option in each.opts}
        assert {"--json", "--executor"} - there == without.get(name, set()), name
