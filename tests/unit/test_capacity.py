"""`target_capacity`: as many replicas as Ray Serve would have, and a file of what is in force that brings the same."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install 'ray[serve]'")

from executors.apps import packing
from executors.ray_gpu.capacity import Capacity, ShareInForce, grows, share_in_force, unscaled
from executors.ray_gpu.declaration import deployment
from executors.ray_gpu.extras import extras_of
from executors.ray_gpu.packing import pack
from executors.simulator.scenario.errors import ScenarioError

PERCENT = st.one_of(st.sampled_from([0.0, 0.1, 12.5, 50.0, 99.5, 100.0]), st.floats(0, 100, allow_nan=False))
SCALING = {"min_replicas": 2, "initial_replicas": 6, "max_replicas": 10}


def packed(**options):
    return pack(deployment(**options)(max).bind(), (), {}, "a")


@given(st.integers(0, 10_000), PERCENT)
def test_a_share_is_as_many_replicas_as_in_serve(replicas, percent):
    from ray.serve._private.utils import get_capacity_adjusted_num_replicas

    assert Capacity(percent).of(replicas) == get_capacity_adjusted_num_replicas(replicas, percent)


@given(st.integers(0, 10_000), PERCENT, st.one_of(st.none(), st.integers(0, 10_000)))
def test_for_any_number_in_force_there_is_one_of_which_it_is_the_share(replicas, percent, said):
    share = Capacity(percent)
    if percent > 0:
        assert share.of(share.whole(replicas, said)) == replicas


def test_what_was_asked_for_is_said_again_as_long_as_it_is_in_force():
    assert Capacity(30).whole(Capacity(30).of(4), 4) == 4
    assert Capacity(30).whole(2, 4) == 7, "somebody has scaled to 2"
    assert Capacity(0).whole(0, 4) == 4


@given(st.lists(st.tuples(st.sampled_from(["a", "ab"]), st.one_of(st.none(), st.sampled_from([0.0, 20.0, 50.0, 100.0])))))
def test_a_share_grows_whenever_it_does_in_serve(deployed):
    """One file after the other, each with its applications and its share."""
    from ray.serve._private.common import TargetCapacityDirection
    from ray.serve._private.controller import calculate_target_capacity_direction
    from ray.serve.schema import ServeDeploySchema

    theirs, direction, ours = None, None, None
    for names, percent in deployed:
        applications = [{"name": each, "import_path": "m:app", "route_prefix": f"/{each}"} for each in names]
        config = ServeDeploySchema(applications=applications, target_capacity=percent)
        direction = calculate_target_capacity_direction(theirs, config, direction)
        up = percent is not None and grows(percent, names, ours)
        assert up is (direction is TargetCapacityDirection.UP)
        theirs, ours = config, ShareInForce(tuple(names), percent, up)


@pytest.mark.parametrize(
    ("options", "share", "target", "bounds"),
    [
        ({"num_replicas": 5}, Capacity(50), 3, None),
        ({"num_replicas": 5}, Capacity(0), 0, None),
        ({"autoscaling_config": SCALING}, Capacity(50), 3, (1, 5, 3)),
        ({"autoscaling_config": SCALING}, Capacity(50, grows=True), 3, (3, 5, 3)),
        ({"autoscaling_config": SCALING}, Capacity(0), 0, None),
        ({"autoscaling_config": {"max_replicas": 4}}, Capacity(50, grows=True), 1, (1, 2, None)),
        ({"num_replicas": "auto"}, Capacity(10), 1, (1, 10, None)),
    ],
)
def test_numbers_and_bounds_of_a_deployment_are_the_share_and_a_file_says_what_was_asked_for(options, share, target, bounds):
    before = packed(**options)
    found = share.of_package(before)
    scaling = found.autoscaling
    assert found.spec.target_replicas == target
    shown = (scaling.min_replicas, scaling.max_replicas, scaling.initial_replicas) if scaling is not None else None
    assert shown == bounds
    said = {"num_replicas": target} if scaling is None else {"autoscaling_config": {"max_replicas": scaling.max_replicas}}
    unscaled(found.capacity, said, target)
    if before.autoscaling is None:
        assert said == {"num_replicas": 5}
    else:
        again = share.of_package(packed(**said))
        assert (again.spec.target_replicas, again.autoscaling) == (target, scaling)
    kept = SimpleNamespace(extras=extras_of(found.entry_spec))
    assert share_in_force(["a"], {"a/max": kept}) == ShareInForce(("a",), share.percent, share.grows)


def test_nobody_has_asked_for_a_share_where_there_is_none():
    nothing = SimpleNamespace(extras=extras_of(packed().entry_spec))
    assert share_in_force(["b", "a"], {"a/max": nothing}) == ShareInForce(("a", "b"), None, False)


@pytest.mark.parametrize(
    ("more", "own", "said"),
    [
        ({"target_capacity": 101}, {}, "target_capacity: expected a number of percent from 0 to 100, found 101"),
        ({"target_capacity": "half"}, {}, "target_capacity: expected"),
        ({}, {"host": "0.0.0.0"}, r"applications\[0\].host: expected host in http_options"),
        ({}, {"port": 8000}, r"applications\[0\].port: expected port in http_options"),
        ({"controller_options": {"num_cpus": 1}}, {}, "controller_options: controller_options must be"),
        ({"tracing_config": {"sampling_ratio": 2}}, {}, "tracing_config.sampling_ratio: TracingConfig.sampling_ratio must be"),
        ({"tracing_config": {"ratio": 2}}, {}, "tracing_config.ratio: tracing_config has no 'ratio'"),
    ],
)
def test_what_serve_refuses_of_a_file_is_refused_with_its_place(more, own, said):
    with pytest.raises(ScenarioError, match=said):
        packing.of_proxies(packing.of_data({"applications": [{"import_path": "m:app", **own}], **more}, "test"))


def test_options_of_the_controller_and_of_traces_are_read_from_a_file():
    options = {"runtime_env": {"env_vars": {"A": "b"}}}
    data = {"applications": [], "controller_options": options, "tracing_config": {"enabled": True}, "target_capacity": 50}
    found = packing.of_proxies(packing.of_data(data, "test"))
    assert found["controller_options"].env_vars == {"A": "b"}
    assert (found["tracing_config"].enabled, found["tracing_config"].sampling_ratio) == (True, 0.01)
    assert packing.of_plan(packing.of_data(data, "test")).keys() == {"http_options", "grpc_options"}
