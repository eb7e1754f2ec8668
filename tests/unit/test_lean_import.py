"""A process that wants a small part of the core loads no more than that."""

import subprocess
import sys

import pytest

import rankcore

LOADED = "import sys; print(*sorted(name for name in sys.modules if name.partition('.')[0] in {roots!r}))"


def loaded(statement, *roots):
    code = f"{statement}\n{LOADED.format(roots=roots)}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_the_ranks_of_a_replica_come_without_the_machine():
    assert loaded("from rankcore import ReplicaRank", "rankcore", "msgspec", "immutables") == [
        "rankcore",
        "rankcore.homes",
        "rankcore.values",
    ]


@pytest.mark.parametrize("name", rankcore.__all__)
def test_every_public_name_can_be_had_first(name):
    assert "rankcore" in loaded(f"from rankcore import {name}", "rankcore")


def test_an_unknown_name_is_refused():
    with pytest.raises(AttributeError, match="module 'rankcore' has no attribute 'nothing'"):
        _ = rankcore.nothing


def test_a_replica_on_ray_brings_its_half_of_the_contract_and_nothing_that_decides():
    pytest.importorskip("ray")
    values = ["rankcore", "rankcore.errors", "rankcore.homes", "rankcore.values"]
    half = ["rankcore.replica", "rankcore.replica.beliefs", "rankcore.replica.replica"]
    assert loaded("import executors.ray_gpu.replica", "rankcore", "immutables", "torch") == sorted(values + half)


def test_a_warm_worker_has_what_a_replica_on_ray_needs_and_nothing_more():
    pytest.importorskip("ray")
    warmed = loaded("from executors.ray_gpu.warming import REPLICA, bring; bring(REPLICA)", "rankcore", "executors")
    own = ["executors.ray_gpu.warming"]
    assert warmed == sorted(loaded("import executors.ray_gpu.replica", "rankcore", "executors") + own)


def test_a_replica_that_is_a_process_of_this_machine_brings_nothing_of_who_begins_one():
    found = loaded("import executors.local.replica", "executors")
    assert [name for name in found if name.startswith(("executors.local.executor", "executors.line_executor"))] == []


ONLY_WHERE_WANTED = (
    "executors.ray_gpu.building",
    "executors.ray_gpu.connection",
    "executors.ray_gpu.declaration",
    "executors.ray_gpu.deploying",
    "executors.ray_gpu.grpc_proxy",
    "executors.ray_gpu.http.options",
    "executors.ray_gpu.http.proxy_app",
    "executors.ray_gpu.in_force",
    "executors.ray_gpu.logs",
    "executors.ray_gpu.packing",
    "executors.ray_gpu.proxies.options",
    "executors.ray_gpu.proxies.proxy",
    "executors.ray_gpu.replica",
    "executors.ray_gpu.requests.handle",
    "executors.ray_gpu.requests.router",
    "executors.ray_gpu.requests.server",
    "executors.ray_gpu.rest",
    "executors.ray_gpu.serve_options",
    "executors.simulator",
    "executors.torch_weights",
    "rankcore.cluster.planning",
    "rankcore.planning",
    "rankcore.residency.defragmentation",
    "rankcore.routing.router",
    *("grpc_health", "opentelemetry", "ray.autoscaler", "rich", "starlette", "torch", "typer", "uvicorn", "yaml"),
)
"""Of callers, proxies and tools, and of what deploys: a controller that is started anew would have to load them before it knows
its ranks. A module costs 0.7 ms there, half of which is what attrs compiles for its classes."""
CONTROLLER_MODULES_MAX = 257


def test_a_controller_on_ray_starts_with_what_it_decides_with_and_nothing_of_those_who_ask_it():
    pytest.importorskip("ray")
    code = (
        "import ray, sys; before = set(sys.modules); import executors.ray_gpu.controller; "
        "print(*sorted(set(sys.modules) - before))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in found if name.startswith(ONLY_WHERE_WANTED)] == []
    ours = [name for name in found if name.partition(".")[0] in ("rankcore", "executors")]
    assert len(ours) <= CONTROLLER_MODULES_MAX


def test_the_half_of_a_worker_needs_the_values_alone():
    half = [f"rankcore.replica{part}" for part in ("", ".beliefs", ".replica", ".worker")]
    assert loaded("import rankcore.replica.worker", "rankcore", "immutables", "attrs", "ray") == sorted(
        ["attrs", *loaded("import attrs", "attrs")[1:], "rankcore", "rankcore.homes", "rankcore.values", *half]
    )
