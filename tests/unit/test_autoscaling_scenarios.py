"""`autoscaling:` in scenario files: what may be said, and what is told of a mistake in one line."""

import json

import pytest

from executors.simulator.fields import FieldProblem
from executors.simulator.scenario.structuring import structure_scenario
from rankcore.autoscaling import AutoscalingSpec

NODES = [{"name": "n", "count": 2, "gpus": 4}]
OPTIONS = {"max_replicas": 8}


def scenario(changes=(), groups=(), **fields):
    deployment = {"name": "app", "autoscaling": OPTIONS, **fields}
    data = {"nodes": NODES, "deployments": [deployment], "changes": list(changes), "placement_groups": list(groups)}
    return structure_scenario(data)


def test_all_options_are_those_of_the_core():
    options = {
        "min_replicas": 0,
        "max_replicas": 8,
        "initial_replicas": 2,
        "target_ongoing_requests": 1,
        "metrics_interval_s": 5,
        "look_back_period_s": 20,
        "upscale_delay_s": 1,
        "downscale_delay_s": 2,
        "downscale_to_zero_delay_s": 3,
        "upscaling_factor": 2,
        "downscaling_factor": 0.5,
        "max_rank_moves": 4,
    }
    (deployment,) = scenario(autoscaling=options).deployments
    assert deployment.autoscaling == AutoscalingSpec(**options)
    assert deployment.spec.target_replicas == 2
    assert deployment.most_replicas == 8


BUNDLES = {"group": "pg", "bundles": [[0], [1]]}
GROUP = {"name": "pg", "bundles": [{"node": "n-0", "count": 2}]}


@pytest.mark.parametrize(
    ("fields", "keys", "text"),
    [
        ({"target_replicas": 3}, ("target_replicas",), "expected nothing, as autoscaling says how many"),
        ({"autoscaling": {"max_replicas": 0}}, ("autoscaling", "max_replicas"), "expected an integer >= 1, found 0"),
        ({"autoscaling": {"min_replicas": 3}}, ("autoscaling", "min_replicas"), "expected an integer from 0 to 1, found 3"),
        ({"autoscaling": {"max_replica": 3}}, ("autoscaling", "max_replica"), 'a known key such as "max_replicas"'),
        ({"autoscaling": {"upscaling_factor": "2"}}, ("autoscaling", "upscaling_factor"), "expected a number above 0"),
        ({"autoscaling": [1]}, ("autoscaling",), "expected a mapping with min_replicas"),
        ({"autoscaling": {"max_replicas": 200_000}}, ("autoscaling", "max_replicas"), "expected at most 100000 replicas"),
        ({"placement": BUNDLES}, ("placement",), "with autoscaling: the number of replicas is that of the ranks in"),
        ({"placement": BUNDLES, "target_replicas": 2}, ("placement",), "with autoscaling"),
    ],
)
def test_what_cannot_be_is_told_where_it_stands(fields, keys, text):
    with pytest.raises(FieldProblem) as caught:
        scenario(groups=[GROUP] if "placement" in fields else [], **fields)
    assert caught.value.keys == ("deployments", 0, *keys)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("key", "value"), [("target_replicas", 4), ("placement", BUNDLES)])
def test_nobody_changes_by_hand_what_follows_the_load(key, value):
    with pytest.raises(FieldProblem) as caught:
        scenario(changes=[{"at": 5, "deployment": "app", key: value}], groups=[GROUP])
    assert caught.value.keys == ("changes", 0, key)
    assert "as the target of app follows its load" in str(caught.value)


def test_other_fields_may_change_and_no_autoscaling_is_none():
    assert scenario(changes=[{"at": 5, "deployment": "app", "version": "2"}]).changes[0].fields == {"version": "2"}
    assert scenario(autoscaling=None, target_replicas=2).deployments[0].autoscaling is None


def test_a_target_is_asked_for_where_there_is_no_autoscaling():
    with pytest.raises(FieldProblem, match="expected a value, which has no default"):
        scenario(autoscaling=None)


def test_the_schema_knows_autoscaling():
    jsonschema = pytest.importorskip("jsonschema")
    from executors.simulator.scenario.schema import scenario_schema

    check = jsonschema.Draft202012Validator(scenario_schema())
    good = {"nodes": NODES, "deployments": [{"name": "app", "autoscaling": OPTIONS}]}
    assert check.is_valid(good)
    for broken in ({"max_replicas": 0}, {"max_replica": 3}, {"upscaling_factor": 0}):
        bad = json.loads(json.dumps(good))
        bad["deployments"][0]["autoscaling"] = broken
        assert not check.is_valid(bad)
