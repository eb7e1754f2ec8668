"""Scenarios drawn from a seed, as the plain data that stands in a scenario file."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from executors.swarm.drawing import chance_of, some_of, swarm_weights

CALM_FROM_S = 400.0
"""No fault begins later; no repair takes longer than `REPAIRS_S`, no lease, health check or back-off longer than a minute."""
ENDS_AT_S = 1_200.0
REPAIRS_S = (0.25, 8.0, 60.0)
SECONDS = (0.001, 0.4, 2.5)
SHARES = (0.05, 0.3)
NODES, GPUS_PER_NODE = 4, 12
"""All replicas fit, whatever their number: what waits for room would be no fault of the core's."""
TARGET_MAX = 6
BUNDLES = 8
FAULTS_MAX = 8
MTBF_S = (60.0, 300.0)
REQUESTS_PER_S = 0.5
STATIC = 0.25
TWO_DEPLOYMENTS = 0.2


def draw_scenario(seed: int) -> dict[str, Any]:
    """What this seed does to a simulated cluster. The same seed gives the same data; it is valid, and can heal."""
    chance = chance_of("scenario", seed)
    static, network = chance.random() < STATIC, _network(chance)
    names = ["llm", "tts"] if not static and chance.random() < TWO_DEPLOYMENTS else ["llm"]
    data: dict[str, Any] = {
        "name": f"swarm seed {seed}",
        "seed": seed,
        "duration_s": ENDS_AT_S,
        "nodes": [{"name": "n", "count": NODES, "gpus": GPUS_PER_NODE}],
        "network": network,
        "deployments": [
            _deployment(chance, name, static, "loss" in network) | _rollout(chance_of(f"rollout of {name}", seed), static)
            for name in names
        ],
        "faults": _faults(chance, names, static),
        "fault_rates": _rates(chance, names),
        "changes": sorted(_changes(chance, names, static), key=lambda change: float(change["at"])),
    }
    if static:
        data["placement_groups"] = [{"name": "pg", "bundles": [{"nodes": "n", "count": 2}]}]
    return {key: value for key, value in data.items() if value not in ({}, [])}


def _exponential(mean: float) -> dict[str, Any]:
    return {"exponential": {"mean": mean}}


def _time(chance: Random) -> float:
    return round(chance.uniform(0.0, CALM_FROM_S), 3)


def _network(chance: Random) -> dict[str, Any]:
    network: dict[str, Any] = {
        "latency_s": _exponential(chance.choice(SECONDS)),
        "retry_s": chance.choice((0.5, 5.0)),
        "lease_s": chance.choice((3.0, 15.0, 60.0)),
    }
    for fault in some_of(chance, ("loss", "duplication", "reorder")):
        network[fault] = chance.choice(SHARES)
    if "reorder" in network:
        network["reorder_s"] = _exponential(chance.choice(SECONDS) * 10)
    return network


def _deployment(chance: Random, name: str, static: bool, lossy: bool) -> dict[str, Any]:
    pick = chance.choice
    fields: dict[str, Any] = {
        "name": name,
        "target_replicas": chance.randint(1, TARGET_MAX),
        "compaction": pick(("when_healthy", "immediate")),
        "victims": pick(("any", "highest_rank", "newest")),
        "placement": pick((None, "pack_ranks")),
        "max_surge": chance.randint(0, 2),
        "max_unavailable": pick((None, 1, 3)),
        "rollback": pick((True, False)),
        "user_config": pick((None, {"a": 1})),
        **{key: _exponential(pick(SECONDS)) for key in ("start_s", "init_s", "reconfigure_s", "drain_s")},
        "graceful_shutdown_timeout_s": pick((0.0, 10.0)),
        "health_check_period_s": pick((3.0, 10.0)),
        "health_check_timeout_s": pick((5.0, 30.0)),
        "start_timeout_s": 60.0,
        # Where messages go on being lost, an update with rare repeats would take longer than the run.
        "repeat_period_s": pick((1.0, 5.0) if lossy else (1.0, 5.0, 90.0)),
        "gpus_per_replica": 1 if static else chance.randint(1, 2),
    }
    if chance.random() < 0.5:
        poisson = {"rate_per_s": REQUESTS_PER_S, "for_s": CALM_FROM_S, "service_s": _exponential(2.0)}
        fields["requests"] = {"poisson": poisson}
    if static:
        del fields["target_replicas"]
        fields |= {"placement": _mapping(chance), "max_surge": 0, "compaction": "when_healthy"}
    return fields


def _rollout(chance: Random, static: bool) -> dict[str, Any]:
    """How changes reach a deployment. None has a budget of 0: without room for one more such an update never ends."""
    pick = chance.choice
    fields: dict[str, Any] = {
        "config_rollout": pick(("rolling", "at_once")),
        "update_order": pick(("lowest_rank", "highest_rank")),
        "min_ready_s": pick((0.0, 2.0)),
        "surge_patience_s": pick((5.0, 30.0)),
        "scarcity_after_s": pick((None, 10.0)),
    }
    hand_over = pick(("none", "none", "prepared", "overlap"))
    return fields if static or hand_over == "none" else {**fields, "hand_over": hand_over, "max_surge": chance.randint(1, 2)}


def _mapping(chance: Random) -> dict[str, Any]:
    ranks, width = chance.randint(1, 4), chance.randint(1, 2)
    bundles = chance.sample(range(BUNDLES), ranks * width)
    return {"group": "pg", "bundles": [bundles[rank * width : (rank + 1) * width] for rank in range(ranks)]}


def _at_a_replica(chance: Random, name: str) -> dict[str, Any]:
    fault: dict[str, Any] = {"at": _time(chance), "deployment": name}
    return {**fault, "rank": chance.randint(0, TARGET_MAX)} if chance.random() < 0.5 else fault


def _at_a_node(chance: Random) -> dict[str, Any]:
    return {"at": _time(chance), "node": f"n-{chance.randrange(NODES)}"}


FAULTS: dict[str, Callable[[Random, str], dict[str, Any]]] = {
    "replica_crash": _at_a_replica,
    "replica_hang": lambda chance, name: (
        {**_at_a_replica(chance, name), **({"for_s": chance.choice(REPAIRS_S)} if chance.random() < 0.5 else {})}
    ),
    "replica_unready": lambda chance, name: {**_at_a_replica(chance, name), "for_s": chance.choice(REPAIRS_S)},
    "start_failure": lambda chance, name: (
        {"at": _time(chance), "deployment": name, "count": chance.randint(1, 4), "for_s": REPAIRS_S[-1]}
    ),
    "slow_start": lambda chance, _: {**_at_a_node(chance), "factor": 20, "for_s": chance.choice(REPAIRS_S)},
    "node_loss": lambda chance, _: {**_at_a_node(chance), "back_after_s": chance.choice(REPAIRS_S)},
    "node_partition": lambda chance, _: {**_at_a_node(chance), "for_s": chance.choice(REPAIRS_S)},
    "bundle_loss": lambda chance, _: {
        "at": _time(chance),
        "group": "pg",
        "bundles": sorted(chance.sample(range(BUNDLES), chance.randint(0, 3))),
        "back_after_s": chance.choice(REPAIRS_S),
    },
    "controller_crash": lambda chance, _: {"at": _time(chance), "restart_after_s": chance.choice(REPAIRS_S)},
}


def _faults(chance: Random, names: list[str], static: bool) -> list[dict[str, Any]]:
    weights = swarm_weights(chance, {kind: 1.0 for kind in FAULTS if static or kind != "bundle_loss"})
    if not weights:
        return []
    kinds = chance.choices(list(weights), list(weights.values()), k=chance.randint(0, FAULTS_MAX))
    found = [{"kind": kind, **FAULTS[kind](chance, chance.choice(names))} for kind in kinds]
    return list(_apart(sorted(found, key=lambda fault: float(fault["at"]))))


def _apart(faults: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Without slow starts on a node that has one: their factors multiply, and a start would take longer than the run."""
    slow_until: dict[str, float] = {}
    for fault in faults:
        if fault["kind"] == "slow_start":
            if fault["at"] < slow_until.get(fault["node"], 0.0):
                continue
            slow_until[fault["node"]] = fault["at"] + fault["for_s"]
        yield fault


def _rates(chance: Random, names: list[str]) -> list[dict[str, Any]]:
    repair = {"mttr_s": {"uniform": {"low": 0.0, "high": REPAIRS_S[-1]}}}
    kinds: dict[str, dict[str, Any]] = {
        "replica_crash": {"deployment": chance.choice(names)},
        "replica_hang": {"deployment": chance.choice(names), **repair},
        "node_loss": {"nodes": "n", **repair},
        "node_partition": {"nodes": "n", **repair},
        "controller_crash": repair,
    }
    return [
        {"kind": kind, **kinds[kind], "mtbf_s": chance.choice(MTBF_S), "end_s": CALM_FROM_S}
        for kind in some_of(chance, kinds, 0.25)
    ]


def _changes(chance: Random, names: list[str], static: bool) -> list[dict[str, Any]]:
    wishes: list[dict[str, Any]] = [{"version": "2"}, {"version": "3"}, {"user_config": {"a": 2}}]
    if static:
        wishes += [{"placement": _mapping(chance)}, {"placement": None}]
    else:
        wishes += [{"target_replicas": target} for target in (0, 1, 3, TARGET_MAX)] + [{"compaction": "immediate"}]
    wishes += [{"delete": True}] if chance.random() < 0.05 else []
    some = [chance.choice(wishes) for _ in range(chance.randint(0, 4))]
    return [{"at": _time(chance), "deployment": chance.choice(names), **wish} for wish in some]
