"""Ray Serve's names for options of a rollout mean here what they mean there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executors.ray_gpu.declaration import deployment
from executors.ray_gpu.errors import InvalidDeploymentError
from rankcore.spec import DeploymentSpec


def spec_of(target: int, **options: object) -> DeploymentSpec:
    return DeploymentSpec(name="llm", target_replicas=target, **deployment(**options)(max).spec_fields)


@given(st.integers(0, 300), st.integers(1, 100), st.integers(0, 100))
def test_as_many_replicas_as_in_serve(target: int, fraction: int, surge: int) -> None:
    """Serve computes max(int(fraction * target), 1) and ceil(percent * target / 100)."""
    spec = spec_of(target, rolling_update_percentage=fraction / 100, max_surge_percent=surge)
    assert spec.unavailable_max == max(fraction * target // 100, 1)
    assert spec.surge_max == -(-surge * target // 100)


@given(st.integers(1, 400), st.integers(1, 400), st.integers(0, 3000))
def test_any_fraction_gives_as_many_replicas_as_in_serve(part: int, of: int, target: int) -> None:
    fraction = min(part, of) / of
    spec = spec_of(target, rolling_update_percentage=fraction)
    # Serve's int() of a product of floats is one too few where that is 28.999999999999996.
    assert spec.unavailable_max in (max(int(fraction * target), 1), max(min(part, of) * target // of, 1))


def test_they_can_be_changed_later() -> None:
    declared = deployment(max_unavailable=1)(max).options(rolling_update_percentage=1)
    assert declared.spec_fields["max_unavailable"] == "100%"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rolling_update_percentage": 0}, "must be a fraction above 0"),
        ({"rolling_update_percentage": 20}, "must be a fraction above 0 and up to 1"),
        ({"rolling_update_percentage": True}, "got True"),
        ({"rolling_update_percentage": float("nan")}, "got nan"),
        ({"max_surge_percent": 101}, "max_surge_percent must be an integer from 0 to 100, got 101"),
        ({"max_surge_percent": "20%"}, "got '20%'"),
        ({"max_surge_percent": 20, "max_surge": 1}, "max_surge_percent cannot be had with max_surge"),
    ],
)
def test_what_is_none_of_serves_values_is_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidDeploymentError, match=said):
        deployment(**options)
