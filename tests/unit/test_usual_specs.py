"""A spec that is taken for a usual one at first sight is right in every field."""

from typing import Any

import attrs
import pytest

from rankcore import DeploymentSpec, StaticPlacement
from rankcore import spec as specs
from rankcore.errors import InvalidSpecError

USUAL = DeploymentSpec(name="llm", target_replicas=3)
STATIC = DeploymentSpec(name="llm", placement=StaticPlacement([[0], [1]], 2))


class Word(str):
    """Not exactly a string."""


TRIED: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        "",
        " ",
        "a b",
        "a\n",
        "a#b",
        "x" * 213,
        "x" * 214,
        "x" * 253,
        "x" * 254,
        Word("any"),
        "any",
        "newest",
        "pack_ranks",
    ),
    *("when_healthy", "immediate", -1, 0, 1, 2, 10_000_000, 10_000_001, -0.5, 0.0, 1e-9, 1.5, 1e12, 2e12),
    *(float("inf"), float("nan"), [], (), {}, b"any"),
)
FIELDS = [field.name for field in attrs.fields(DeploymentSpec) if field.init and field.name != "user_config"]


def is_right(spec: DeploymentSpec) -> bool:
    try:
        specs._check_each(spec)
    except InvalidSpecError:
        return False
    return True


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("base", [USUAL, STATIC], ids=["anywhere", "static"])
def test_what_one_look_lets_pass_is_right_in_every_field(base: DeploymentSpec, field: str) -> None:
    for value in TRIED:
        tried = attrs.evolve(base)
        object.__setattr__(tried, field, value)  # past the checks of the constructor
        placement = tried.placement
        object.__setattr__(tried, "static_placement", placement if isinstance(placement, StaticPlacement) else None)
        assert not specs._is_usual(tried) or is_right(tried), (field, value)


def test_nearly_all_specs_need_no_more_than_one_look() -> None:
    known = (USUAL, STATIC, attrs.evolve(USUAL, placement="pack_ranks", max_unavailable=2, target_replicas=0))
    assert all(specs._is_usual(spec) for spec in known)
    assert not specs._is_usual(attrs.evolve(USUAL, version="one two")), "right, and looked at field by field"
