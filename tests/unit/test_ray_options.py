"""Options of a deployment that exclude each other: the same verdict, in the same words, wherever each of them was given."""

from itertools import combinations

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from ray.util.placement_group import PlacementGroup

from executors.ray_gpu import run, static_placement
from executors.ray_gpu.declaration import deployment
from executors.ray_gpu.errors import InvalidDeploymentError
from executors.ray_gpu.packing import pack
from executors.ray_gpu.placement_groups import GroupInfo, GroupState
from executors.ray_gpu.static_placement import StaticPlacementConfig

BUNDLES = "_placement_info"
OPTIONS = (
    ("num_replicas", 3),
    ("num_replicas", "auto"),
    ("autoscaling_config", {"min_replicas": 1, "max_replicas": 4}),
    (BUNDLES, None),
    ("placement", "pack_ranks"),
    ("spares", 1),
    ("max_surge", 1),
    ("compaction", "immediate"),
    ("version", "a"),
)
PAIRS = [pair for pair in combinations(OPTIONS, 2) if pair[0][0] != pair[1][0]]
REFUSED = {
    ("num_replicas=3", "autoscaling_config"): "num_replicas=3 cannot be had with autoscaling_config",
    ("num_replicas=3", BUNDLES): "num_replicas must be 2",
    ("num_replicas=auto", BUNDLES): "autoscaling cannot be had with _placement_info",
    ("autoscaling_config", BUNDLES): "autoscaling cannot be had with _placement_info",
    (BUNDLES, "placement"): "placement of Model cannot be had with bundles",
    (BUNDLES, "spares"): "spares of Model cannot be had with bundles",
    (BUNDLES, "max_surge"): "max_surge must be 0 with a static placement",
    (BUNDLES, "compaction"): "compaction must be 'when_healthy' with a static placement",
}


class Model:
    def __call__(self):
        return 1


@pytest.fixture
def bundles(monkeypatch):
    info = GroupInfo("a" * 36, "pg", GroupState.CREATED, {0: {"CPU": 1.0}, 1: {"CPU": 1.0}}, {})
    monkeypatch.setattr(static_placement, "look_up", lambda group_id: info)
    return StaticPlacementConfig(PlacementGroup.empty(), {0: [0], 1: [1]})


def label(option):
    return f"{option[0]}={option[1]}" if option[0] == "num_replicas" else option[0]


def verdict(make):
    try:
        packed = pack(make().bind(), (), {}, "app")
    except InvalidDeploymentError as error:
        return str(error)
    return packed.spec, packed.autoscaling, packed.spares


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: " and ".join(map(label, pair)))
def test_options_exclude_each_other_wherever_they_were_given(bundles, pair):
    one, other = ({name: bundles if name == BUNDLES else value} for name, value in pair)
    found = [
        verdict(make)
        for make in (
            lambda: deployment(**one, **other)(Model),
            lambda: deployment(**other, **one)(Model),
            lambda: deployment(**one)(Model).options(**other),
            lambda: deployment(**other)(Model).options(**one),
            lambda: deployment(Model).options(**one).options(**other),
            lambda: deployment(Model).options(**other, **one),
        )
    ]
    assert all(each == found[0] for each in found)
    refused = REFUSED.get(tuple(map(label, pair)))
    assert isinstance(found[0], str) == (refused is not None)
    assert refused is None or found[0].startswith(refused)


@pytest.mark.parametrize("name", ["", None, 7, b"a"])
def test_an_application_has_a_name_since_nobody_would_own_what_it_has(name, monkeypatch):
    monkeypatch.setattr("executors.ray_gpu.connection.connect", lambda **_: pytest.fail("it is refused without a cluster"))
    with pytest.raises(InvalidDeploymentError, match="name must be a non-empty string"):
        run(deployment(Model).bind(), name=name)


def test_an_option_that_bundles_leave_no_room_for_can_be_taken_back(bundles):
    spread = deployment(placement="pack_ranks", spares=1)(Model)
    placed = pack(spread.options(placement=None, spares=None, _placement_info=bundles).bind(), (), {}, "app")
    assert (placed.spec.target_replicas, placed.spec.placement, placed.spares) == (2, bundles.placement, 0)


@pytest.mark.parametrize("number", [3, "auto"])
def test_what_excludes_another_option_can_be_taken_back(bundles, number):
    placed = deployment(num_replicas=number)(Model).options(num_replicas=None, _placement_info=bundles)
    assert pack(placed.bind(), (), {}, "app").spec.target_replicas == 2
    scaled = placed.options(_placement_info=None, autoscaling_config={"min_replicas": 2, "max_replicas": 4})
    assert pack(scaled.bind(), (), {}, "app").spec.target_replicas == 2
    assert pack(scaled.options(autoscaling_config=None).bind(), (), {}, "app").spec.target_replicas == 1
