"""`StaticPlacement`, and what a spec says to it: checked when it is made, and wrong ones are told in one line."""

import copy
import pickle

import attrs
import pytest

from rankcore import DeploymentSpec, StaticPlacement
from rankcore.codec import from_json, to_json
from rankcore.errors import CodecError, InvalidEventError, InvalidSpecError, PlacementError, RankcoreError
from rankcore.events import BundleLost, BundleRestored

PAIRS = StaticPlacement(bundles={0: [0, 1], 1: [2, 3]}, bundle_count=4, group="pg-llm")


def test_a_placement_is_plain_frozen_data() -> None:
    assert PAIRS.bundles == ((0, 1), (2, 3))
    assert PAIRS.bundles[1][0] == 2
    assert len(PAIRS) == 2
    assert hash(PAIRS) == hash(StaticPlacement(bundles=[(0, 1), (2, 3)], bundle_count=4, group="pg-llm"))
    assert StaticPlacement(bundles={1: [2, 3], 0: [0, 1]}, bundle_count=4, group="pg-llm") == PAIRS
    assert copy.deepcopy(PAIRS) == pickle.loads(pickle.dumps(PAIRS)) == PAIRS
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        PAIRS.bundle_count = 5  # type: ignore[misc]


def test_what_was_given_can_change_afterwards() -> None:
    given = {0: [0, 1], 1: [2, 3]}
    placement = StaticPlacement(bundles=given, bundle_count=4, group="pg-llm")
    given[1].append(7)
    given[2] = [5]
    assert placement == PAIRS


def test_a_placement_says_where_a_rank_belongs_and_whose_a_bundle_is() -> None:
    assert PAIRS.place_of(1) == ("pg-llm", (2, 3))
    assert PAIRS.place_of(2) == ("pg-llm", ())
    assert [PAIRS.owner_of(bundle) for bundle in (0, 1, 2, 3, 9)] == [0, 0, 1, 1, None]
    assert attrs.evolve(PAIRS, group_id="4f2a").identity == "4f2a"
    assert attrs.evolve(PAIRS, group=None).identity is None


@pytest.mark.parametrize(
    ("bundles", "complaint", "about"),
    [
        (
            {0: [0], 1: [1], 2: [5]},
            "bundle 5 of rank 2 is outside placement group 'pg-llm', which has bundles 0..3",
            (2, 5),
        ),
        ({0: [-1]}, "bundle -1 of rank 0 is outside placement group 'pg-llm', which has bundles 0..3", (0, -1)),
        (
            {0: [0, 1], 2: [2]},
            "rank 1 has no bundles in placement group 'pg-llm': ranks must be contiguous from 0, got [0, 2]",
            (1, None),
        ),
        ({1: [0]}, "rank 0 has no bundles in placement group 'pg-llm': ranks must be contiguous from 0, got [1]", (0, None)),
        ({}, "rank 0 has no bundles in placement group 'pg-llm': a static placement has at least one rank", (0, None)),
        (
            {0: [0], 1: []},
            "rank 1 has an empty list of bundles in placement group 'pg-llm': its replica runs on the first of them",
            (1, None),
        ),
        ({0: [0, 1, 0]}, "bundle 0 of rank 0 is listed twice on placement group 'pg-llm'", (0, 0)),
        (
            {0: [0, 1], 1: [2, 1]},
            "bundle 1 of rank 1 is rank 0's already on placement group 'pg-llm': a bundle serves one rank",
            (1, 1),
        ),
        ({"0": [0]}, "rank '0' on placement group 'pg-llm' must be an integer from 0", ("0", None)),
        ({True: [0]}, "rank True on placement group 'pg-llm' must be an integer from 0", (True, None)),
        ({-1: [0], 0: [1]}, "rank -1 on placement group 'pg-llm' must be an integer from 0", (-1, None)),
        ({0: ["1"]}, "bundle '1' of rank 0 on placement group 'pg-llm' must be an integer", (0, "1")),
        ({0: [True]}, "bundle True of rank 0 on placement group 'pg-llm' must be an integer", (0, True)),
        ({0: 3}, "rank 0 on placement group 'pg-llm' must have a list of bundle indices, got 3", (0, None)),
        ({0: {3}}, "rank 0 on placement group 'pg-llm' must have a list of bundle indices, got {3}", (0, None)),
        (7, "bundles of placement group 'pg-llm' must be a mapping of ranks to lists of bundle indices, got 7", (None, None)),
    ],
)
def test_a_mapping_that_does_not_fit_is_refused_in_one_line(bundles, complaint, about) -> None:
    with pytest.raises(PlacementError) as caught:
        StaticPlacement(bundles=bundles, bundle_count=4, group="pg-llm")
    assert str(caught.value) == complaint
    assert "\n" not in complaint
    assert (caught.value.rank, caught.value.bundle, caught.value.group) == (*about, "pg-llm")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.rank, again.bundle, again.group) == (complaint, *about, "pg-llm")


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"bundle_count": 0}, "bundle_count of the placement group must be an integer from 1 to 10000000, got 0"),
        ({"bundle_count": 2.0}, "bundle_count of the placement group must be an integer from 1 to 10000000, got 2.0"),
        ({"bundle_count": 1, "group": ""}, "group must be None or 1 to 253 printable characters, got ''"),
        ({"bundle_count": 1, "group": "a\nb"}, r"group must be None or 1 to 253 printable characters, got 'a\nb'"),
        ({"bundle_count": 1, "group_id": 7}, "group_id must be None or 1 to 253 printable characters, got 7"),
    ],
)
def test_a_group_that_cannot_be_is_refused(fields, complaint) -> None:
    with pytest.raises(PlacementError) as caught:
        StaticPlacement({0: [0]}, **fields)
    assert str(caught.value) == complaint


def test_a_long_complaint_stays_short() -> None:
    with pytest.raises(PlacementError) as caught:
        StaticPlacement({rank: [rank] for rank in range(1, 5000)}, 5000)
    assert len(str(caught.value)) < 250


def test_a_group_without_a_name_is_called_the_placement_group() -> None:
    with pytest.raises(PlacementError, match=r"^bundle 4 of rank 0 is outside the placement group, which has bundles 0\.\.3$"):
        StaticPlacement({0: [4]}, 4)


def test_the_target_is_the_number_of_ranks() -> None:
    """S1."""
    assert DeploymentSpec(name="llm", placement=PAIRS).target_replicas == 2
    assert DeploymentSpec(name="llm", placement=PAIRS, target_replicas=2) == DeploymentSpec(name="llm", placement=PAIRS)
    assert DeploymentSpec(name="llm", placement=PAIRS).unavailable_max == 1


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        (
            {"target_replicas": 3},
            "DeploymentSpec.target_replicas must be 2, the number of ranks that have bundles in placement group 'pg-llm', "
            "or left out, got 3",
        ),
        (
            {"max_surge": 1},
            "DeploymentSpec.max_surge must be 0 with a static placement: a replacement has to wait for its predecessor's "
            "bundles in placement group 'pg-llm', got 1",
        ),
        (
            {"compaction": "immediate"},
            "DeploymentSpec.compaction must be 'when_healthy' with a static placement: ranks are bound to bundles in "
            "placement group 'pg-llm', and never move, got 'immediate'",
        ),
    ],
)
def test_what_a_static_placement_excludes_is_refused_and_says_why(fields, complaint) -> None:
    """S1: the mapping says how many there are; a surge has no place; and ranks stay where their bundles are."""
    with pytest.raises(InvalidSpecError) as caught:
        DeploymentSpec(name="llm", placement=PAIRS, **fields)
    assert str(caught.value) == complaint


def test_a_target_may_be_left_out_only_with_a_static_placement() -> None:
    with pytest.raises(InvalidSpecError, match=r"DeploymentSpec\.target_replicas must be an integer .* got None"):
        DeploymentSpec(name="llm")
    with pytest.raises(InvalidSpecError, match=r"one of None, 'pack_ranks', or a StaticPlacement, got 7"):
        DeploymentSpec(name="llm", target_replicas=1, placement=7)  # type: ignore[arg-type]


def test_a_placement_comes_back_from_its_text_inside_its_spec() -> None:
    for placement in (PAIRS, attrs.evolve(PAIRS, group_id="4f2a"), StaticPlacement({0: [7]}, 8)):
        spec = DeploymentSpec(name="llm", placement=placement)
        again = from_json(to_json(spec), DeploymentSpec)
        assert again == spec
        assert again.static_placement == placement
        assert again.place_of(0) == spec.place_of(0)
        assert from_json(to_json(placement), StaticPlacement) == placement


def test_a_text_with_a_bad_placement_is_refused() -> None:
    text = to_json(DeploymentSpec(name="llm", placement=PAIRS)).replace('"bundle_count":4', '"bundle_count":3')
    with pytest.raises(CodecError, match=r"placement: bundle 3 of rank 1 is outside placement group 'pg-llm'"):
        from_json(text, DeploymentSpec)


@pytest.mark.parametrize("kind", [BundleLost, BundleRestored])
@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"bundles": 3}, "bundles must be a list or tuple of bundle indices, got 3"),
        ({"bundles": [0, -1]}, "bundles[1] must be an integer from 0 to 10000000, got -1"),
        ({"bundles": [0], "group_id": 7}, "group_id must be a string, got 7"),
        ({"bundles": [0], "at": -1.0}, "at must be a finite number of seconds, at least 0, got -1.0"),
    ],
)
def test_malformed_news_of_bundles_is_refused(kind, fields, complaint) -> None:
    with pytest.raises(InvalidEventError) as caught:
        kind(**{"at": 0.0, **fields})
    assert str(caught.value) == f"{kind.__name__}.{complaint}"
    assert isinstance(caught.value, RankcoreError)
