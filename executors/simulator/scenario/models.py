"""Scenarios of models, as releases before one plane wrote them: rewritten as scenarios of deployments with residency."""

from collections.abc import Mapping
from itertools import takewhile
from typing import Any

import yaml

from executors.simulator.scenario.yamlfile import parse

OLD_KEYS = ("models", "model_sizes", "every_model")
"""A scenario with one of these is of the old schema."""
MODEL_GOES_TO = {
    "replicas": "target_replicas",
    **{
        key: key
        for key in ("name", "autoscaling", "max_ongoing_requests", "max_queued_requests", "request_timeout_s", "requests")
    },
}
POLICY_GOES_TO = {"retry_s": "start_backoff_s", "max_load_failures": "max_start_failures"}
RESIDENCY_OF_ALL = {"policy": ("idle_to_warm_s", "idle_to_cold_s"), "dispatch": ("wait_for_room_s", "failed_for_s")}
TURN_S = 5.0
"""What `dispatch.turn_s` was where it was left out."""
NO_MORE = {"in_flight_cost_gb", "recent_use_s", "recent_cost_gb", "drain_timeout_s"}
"""Options of the planner that are the same for every cluster now."""


def is_old(data: object) -> bool:
    """Whether a scenario is of the old schema."""
    return isinstance(data, Mapping) and any(key in data for key in OLD_KEYS)


def upgraded(data: Mapping[str, Any]) -> dict[str, Any]:
    """The same scenario in the schema of this release; what cannot be said any more, such as weights of the planner, goes."""
    policy, dispatch = _mapping(data.get("policy")), _mapping(data.get("dispatch"))
    turn_s = dispatch.get("turn_s", TURN_S)
    every = _deployment(_mapping(data.get("every_model")), turn_s)
    every = {"idempotent": True} | {new: policy[old] for old, new in POLICY_GOES_TO.items() if old in policy} | every
    said = {"policy": policy, "dispatch": dispatch}
    shared = {key: said[part][key] for part, keys in RESIDENCY_OF_ALL.items() for key in keys if key in said[part]}
    every["residency"] = shared | {"min_hot_s": turn_s} | every.get("residency", {})
    new: dict[str, Any] = {}
    for key, value in data.items():
        match key:
            case "every_model" | "policy" | "dispatch":
                pass
            case "model_sizes":
                new["weight_sizes"] = _renamed(value, {"model_column": "name_column"})
            case "models" if "deployments" not in data:  # beside them it is refused, as any key that nobody knows
                new["every_deployment"] = every
                new["deployments"] = [_deployment(each, turn_s) for each in value] if isinstance(value, list) else value
            case "faults":
                new[key] = [_renamed(each, {"model": "deployment"}) for each in value] if isinstance(value, list) else value
            case "changes":
                words = {"model": "deployment", "replicas": "target_replicas"}
                new[key] = [_renamed(each, words) for each in value] if isinstance(value, list) else value
            case _:
                new[key] = value
    new.setdefault("every_deployment", every)
    unknown = {part: rest for part, rest in (("policy", _unknown(policy)), ("dispatch", _unknown(dispatch))) if rest}
    return new | unknown


def upgraded_text(text: str, source: str) -> str:
    """The text of an old file as one of this release, with the comments that it begins with and no others."""
    head = "".join(f"{line}\n" for line in takewhile(lambda line: line.startswith("#") or not line.strip(), text.splitlines()))
    return head + yaml.safe_dump(upgraded(parse(text, source)[0]), sort_keys=False, allow_unicode=True, width=120)


def _deployment(model: Any, turn_s: Any) -> Any:
    if not isinstance(model, Mapping):
        return model
    residency = {key: value for key, value in model.items() if key not in MODEL_GOES_TO}
    if isinstance(residency.get("min_hot_s"), int | float) and isinstance(turn_s, int | float):
        residency["min_hot_s"] = max(residency["min_hot_s"], turn_s)
    found = {MODEL_GOES_TO[key]: value for key, value in model.items() if key in MODEL_GOES_TO}
    if found.get("autoscaling") is not None:
        found.pop("target_replicas", None)
    return found | ({"residency": residency} if residency else {})


def _unknown(options: Mapping[str, Any]) -> dict[str, Any]:
    """What was never an option: it is refused, as any key that nobody knows."""
    known = {*POLICY_GOES_TO, *NO_MORE, "turn_s", *(key for keys in RESIDENCY_OF_ALL.values() for key in keys)}
    return {key: value for key, value in options.items() if key not in known}


def _renamed(data: Any, names: Mapping[str, str]) -> Any:
    return {names.get(key, key): value for key, value in data.items()} if isinstance(data, Mapping) else data


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
