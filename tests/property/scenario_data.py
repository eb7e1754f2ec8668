"""Random scenarios as plain data, drawn from the descriptions of the classes: most are valid, some break a rule of two keys."""

from collections.abc import Mapping
from typing import Any, get_args, get_origin

import attrs
from hypothesis import strategies as st

from executors.simulator.fields import Amounts, Check, Choice, FileTime, Flag, Integer, Number, Optional, Text, TrueOr
from executors.simulator.load.distributions import Distribution
from executors.simulator.scenario.describe import Key, keys_of, without_none
from executors.simulator.scenario.faults import FAULTS, OF_WEIGHTS, WITH_RESIDENCY, Fault
from executors.simulator.scenario.model import Scenario
from executors.simulator.scenario.moments import Moment
from executors.simulator.scenario.placements import POLICY, Placement, PlacementGroup
from executors.simulator.scenario.requests import REQUEST_SOURCES, Requests

NAMES = st.sampled_from(["llm", "n", "n-0", "Ä b", "1", "yes", "x.csv"])
SMALL = st.sampled_from([0, 1, 2, 3, 0.5, 7.25, 60])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63) + 1, 2**63 - 1) | st.floats(-1e300, 1e300) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
# Files are read together with the scenario, and there are none here.
WITHOUT = {"fault_trace", "where", "columns", "node_list", "weight_sizes", "applications", "every_deployment"}
WITHOUT |= {"gpu_prices_per_hour", "slo", "billing"}  # mappings and texts with forms of their own, and what needs them


def of_check(check: Check) -> st.SearchStrategy[Any]:
    match check:
        case Integer(least, most):
            return st.integers(least, min(most, least + 5)) | st.just(most)
        case Number(least, above, most):
            low = least or 0.0 if above is None else above + 1e-3
            whole = st.integers(int(low) + 1, int(low) + 50) if int(low) + 50 <= most else st.nothing()
            return st.floats(low, min(most, low + 100.0)) | whole
        case Amounts(least):
            return st.integers(least, least + 5) | st.integers(least, 100).map("{}%".format)
        case Flag():
            return st.booleans()
        case Choice(options):
            return st.sampled_from(options)
        case TrueOr(word):
            return st.sampled_from([True, word])
        case FileTime(words):
            return SMALL | st.sampled_from(["2023-11-16T18:17:03", *words])
        case Text():
            return NAMES
        case Placement():
            return st.sampled_from([None, POLICY])
        case Optional(inner):
            return st.none() | of_check(inner)
    raise TypeError(check)


def of_type(annotation: Any) -> st.SearchStrategy[Any]:
    only, optional = without_none(annotation)
    found = st.deferred(lambda: _of_plain_type(only))
    return st.none() | found if optional else found


def _of_plain_type(annotation: Any) -> st.SearchStrategy[Any]:
    if annotation == Distribution:
        return SMALL | st.sampled_from(
            [
                {"uniform": {"low": 1, "high": 2}},
                {"exponential": {"mean": 0.5}},
                {"lognormal": {"median": 1, "p99": 3}},
                {"gamma": {"mean": 2, "shape": 2}},
                {"empirical": [1, 2.5]},
            ]
        )
    if annotation == Requests:
        return st.one_of([of_class(cls).map(lambda data, name=name: {name: data}) for name, cls in REQUEST_SOURCES.items()])
    if annotation == Fault:
        return st.one_of([of_class(cls) for cls in FAULTS.values()])
    if annotation == Moment:
        return SMALL | st.sampled_from(["busiest_minute", "busiest_minute + 15", "busiest_minute-2.5"])
    if annotation is PlacementGroup:
        return st.builds(lambda count: {"name": "pg", "bundles": [{"node": "n-0", "count": count}]}, st.integers(1, 3))
    if annotation is int:
        return st.integers(0, 3)
    if get_origin(annotation) is tuple:
        return st.lists(of_type(get_args(annotation)[0]), max_size=2)
    if isinstance(annotation, type) and attrs.has(annotation):
        return of_class(annotation)
    if get_origin(annotation) is Mapping:
        return st.dictionaries(NAMES, NAMES, max_size=2)
    return JSON


def of_key(key: Key) -> st.SearchStrategy[Any]:
    return of_check(key.check) if key.check is not None else of_type(key.annotation)


def of_class(cls: type) -> st.SearchStrategy[dict[str, Any]]:
    keys = [key for key in keys_of(cls) if key.name not in WITHOUT]
    required = {key.name: of_key(key) for key in keys if key.required}
    return st.fixed_dictionaries(required, optional={key.name: of_key(key) for key in keys if not key.required})


def _as_residency_has_it(data: dict[str, Any], deployment: dict[str, Any], has_residency: bool) -> None:
    """Leave out what only goes with weights that may be COLD, or only without."""
    kinds = {cls.kind for cls in (WITH_RESIDENCY if has_residency else FAULTS.values())}
    if has_residency:
        deployment["residency"] = {**(deployment.get("residency") or {}), "weight_gb": 5, "kv_cache_tokens": 0}
        deployment.update(placement=None, max_surge=0)
        for key in ("network", "placement_groups", "fault_rates"):
            data.pop(key, None)
    else:
        deployment.pop("residency", None)
        kinds -= {cls.kind for cls in OF_WEIGHTS} | {"replica_slow"}  # only an engine is slow
    data["faults"] = [fault for fault in data.get("faults", ()) if fault["kind"] in kinds]
    for about in (*data["faults"], *data.get("changes", ())):
        for key in ("rank", "replica_id") if has_residency else ("evict",):
            about.pop(key, None)


@st.composite
def scenarios(draw: st.DrawFn) -> dict[str, Any]:
    """Plain data of a scenario; its names fit together, so that most of them are valid."""
    data = draw(of_class(Scenario))
    data["nodes"] = [{"name": "n", "count": draw(st.integers(1, 3)), "gpus": 8, "gpu_gb": 80}]
    data["deployments"] = data.get("deployments", [])[:1] or [{"name": "llm", "target_replicas": 2}]
    deployment = data["deployments"][0]
    deployment.update(name="llm", gpus_per_replica=1, memory_gb_per_replica=0)
    _as_residency_has_it(data, deployment, draw(st.booleans()))
    groups = data.pop("placement_groups", [])[:1]
    if groups and draw(st.booleans()):
        ranks = draw(st.integers(1, groups[0]["bundles"][0]["count"]))
        bundles: Any = [[rank] for rank in range(ranks)]
        bundles = bundles if draw(st.booleans()) else {str(rank): bundle for rank, bundle in enumerate(bundles)}
        data["deployments"][0].update(placement={"group": "pg", "bundles": bundles}, max_surge=0, compaction="when_healthy")
        del data["deployments"][0]["target_replicas"]
        data["placement_groups"] = groups
    else:
        data["faults"] = [fault for fault in data.get("faults", ()) if fault["kind"] != "bundle_loss"]
    for about in data.get("faults", ()):
        if about["kind"] == "bundle_loss":
            about.update(group="pg")
    for about in (*data.get("faults", ()), *data.get("changes", ())):
        about.update({key: value for key, value in (("deployment", "llm"), ("node", "n-0")) if about.get(key) is not None})
    if draw(st.booleans()):
        data = {key: value for key, value in data.items() if key not in ("faults", "fault_rates", "changes")}
    return data
