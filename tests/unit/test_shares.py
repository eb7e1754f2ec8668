"""Section 2.3: max_unavailable and max_surge as shares of the target: the first rounded down and at least 1, the second up."""

import pytest

from rankcore import DeploymentSpec, StaticPlacement
from rankcore.amounts import is_share
from rankcore.commands import StartReplica, StopReplica
from rankcore.errors import InvalidSpecError
from tests.scripted import Deployment


@pytest.mark.parametrize(
    ("target", "share", "unavailable", "surge"),
    [
        (0, "25%", 1, 0),
        (1, "25%", 1, 1),
        (4, "25%", 1, 1),
        (7, "25%", 1, 2),
        (10, "25%", 2, 3),
        (10, "1%", 1, 1),
        (10, "100%", 10, 10),
        (10_000_000, "33%", 3_300_000, 3_300_000),
        (16, "12.5%", 2, 2),
        (17, "12.5%", 2, 3),
        (6, "33.33333333333333%", 2, 2),
        (9, "66.66666666666666%", 6, 6),
        (100, "0.5%", 1, 1),
    ],
)
def test_a_share_is_rounded_to_the_safe_side_of_availability(target: int, share: str, unavailable: int, surge: int) -> None:
    spec = DeploymentSpec(name="llm", target_replicas=target, max_unavailable=share, max_surge=share)
    assert (spec.unavailable_max, spec.surge_max) == (unavailable, surge)


def test_no_surge_may_be_a_share_of_nothing() -> None:
    assert DeploymentSpec(name="llm", target_replicas=9, max_surge="0%").surge_max == 0


def test_a_share_follows_the_target() -> None:
    d = Deployment.running(2, max_unavailable="50%", max_surge="50%")
    d.resize(8)
    d.settle()
    d.forget()
    d.change(version="2")
    assert (len(d.sent(StartReplica)), len(d.sent(StopReplica))) == (4, 4)


NO_SHARES = ("", "5", "5 %", "101%", "-1%", "05%", "1.50%", "0.0%", "100.5%", ".5%", "1.%", "%", "\u0665%", 1.5, True)


@pytest.mark.parametrize("field", ["max_unavailable", "max_surge"])
@pytest.mark.parametrize("value", NO_SHARES)
def test_what_is_no_share_is_refused(field: str, value: object) -> None:
    assert not is_share(value)
    allowed = "from '0%' to '100%'" if isinstance(value, str) else "integer"
    with pytest.raises(InvalidSpecError, match=rf"DeploymentSpec\.{field} must be .*{allowed}"):
        DeploymentSpec(name="llm", target_replicas=4, **{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, "0%"])
def test_an_update_without_anybody_out_of_service_is_refused(value: int | str) -> None:
    with pytest.raises(InvalidSpecError, match=r"DeploymentSpec\.max_unavailable"):
        DeploymentSpec(name="llm", target_replicas=4, max_unavailable=value)


def test_a_static_placement_takes_no_share_of_a_surge() -> None:
    placement = StaticPlacement([[0], [1]], 2)
    assert DeploymentSpec(name="llm", placement=placement, max_surge="0%").surge_max == 0
    with pytest.raises(InvalidSpecError, match="predecessor's bundles"):
        DeploymentSpec(name="llm", placement=placement, max_surge="50%")
