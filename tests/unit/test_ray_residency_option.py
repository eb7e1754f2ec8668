"""The option residency=: what it is made to, and what it is refused with."""

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")
pytest.importorskip("torch", reason="torch is not installed: pip install 'rankcore[torch]'")

import torch
from safetensors.torch import save_file

from executors import ray_gpu as serve
from executors.ray_gpu.packing import pack
from rankcore.codec import from_json, to_json
from tests.fleet_models import WEIGHT_BYTES, write_weights


@serve.deployment
class Model:
    pass


def packed(**options):
    return pack(Model.options(**options).bind(), (), {}, "shop")


@pytest.fixture
def weights(tmp_path):
    return write_weights(tmp_path, "m", 1)[0]


def test_the_size_is_measured_and_what_is_loaded_has_to_have_the_same_contents(weights):
    package = packed(residency=serve.Residency(weights=weights, priority=3))
    assert (package.residency.weight_bytes, package.residency.priority) == (WEIGHT_BYTES, 3)
    assert package.code.weights == package.residency.weights == str(weights)
    assert package.code.weights_contents is not None
    assert package.spec.target_replicas == 0
    assert package.entry_spec.demand == {}
    assert from_json(to_json(package.entry_spec), type(package.entry_spec)) == package.entry_spec


def test_a_size_that_is_given_is_taken_and_nobody_looks_at_the_files():
    package = packed(residency=serve.Residency(weights="/nowhere", weight_bytes=7), num_replicas=2)
    assert (package.residency.weight_bytes, package.code.weights_contents) == (7, None)
    assert package.spec.target_replicas == 2


def test_other_weights_are_another_version(weights, tmp_path):
    first = packed(residency=serve.Residency(weights=weights)).spec.version
    assert packed(residency=serve.Residency(weights=weights, priority=5)).spec.version == first
    write_weights(tmp_path, "m", 2)
    assert packed(residency=serve.Residency(weights=weights)).spec.version != first


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_surge": 1}, "max_surge of Model cannot be had with residency: a replacement takes the memory"),
        ({"placement": "pack_ranks"}, "placement of Model cannot be had with residency: the planner of weights"),
        ({"spares": 1}, "spares of Model cannot be had with residency"),
        ({"ray_actor_options": {"num_gpus": 1}}, r"ray_actor_options\['num_gpus'\] of Model cannot be had with residency"),
        ({"residency": {"weights": "m"}}, "residency of Model must be a Residency, got"),
    ],
)
def test_what_it_cannot_be_had_with_is_named(options, named):
    residency = serve.Residency(weights="/nowhere", weight_bytes=7)
    with pytest.raises(serve.InvalidDeploymentError, match=named):
        packed(**{"residency": residency, **options})


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"weights": "/nowhere"}, "Residency.weights must be weights that can be read here, or have weight_bytes: .*nowhere"),
        ({"weights": 7}, "Residency.weights must be the path of a file or folder, got 7"),
        ({"weights": "/m", "weight_bytes": 0}, "Residency.weight_bytes must be .*, got 0"),
        ({"weights": "/m", "weight_bytes": 7, "priority": 101}, "Residency.priority must be .*, got 101"),
        ({"weights": "/m", "weight_bytes": 7, "load_timeout_s": 0.0}, "Residency.load_timeout_s must be .*, got 0.0"),
        ({"weights": "/m", "weight_bytes": 7, "load_timeout_s": float("inf")}, "Residency.load_timeout_s must be .*, got inf"),
        ({"weights": "/m", "weight_bytes": 7, "gpus": 0}, "Residency.gpus must be .*, got 0"),
        ({"weights": "/m", "weight_bytes": 7, "gpus": True}, "Residency.gpus must be .*, got True"),
        ({"weights": "/m", "weight_bytes": 7, "gpus": 2**53}, "Residency.gpus must be .*, got 9007199254740992"),
        ({"weights": "/m", "weight_bytes": 7, "shard_bytes": {"two": 7}}, "Residency.shard_bytes GPUs must be .*, got 'two'"),
        ({"weights": "/m", "weight_bytes": 7, "shard_bytes": 7}, "Residency.shard_bytes must be pairs .*, got 7"),
        (
            {"weights": "/m", "weight_bytes": 7, "gpus": 2, "shard_bytes": {2: 7}},
            "Residency.shard_bytes must be empty where gpus",
        ),
        ({"weights": "x" * 300}, "Residency.weights must be weights that can be read here"),
        ({"weights": "/m", "weight_bytes": 7, "node_labels": "a"}, "Residency.node_labels must be .*, got 'a'"),
    ],
)
def test_a_field_that_is_not_what_it_may_be_is_named(fields, named):
    with pytest.raises(serve.InvalidDeploymentError, match=named):
        packed(residency=serve.Residency(**fields))


def test_what_the_fullest_gpu_takes_is_measured_by_the_number_of_gpus(tmp_path):
    """Tensors are not cut: of one of 4 KiB and four of 1 KiB the fullest of two GPUs takes 4 KiB, and of three no less."""
    path = tmp_path / "uneven.safetensors"
    save_file({f"{index}.w": torch.zeros(size) for index, size in enumerate((1024, 256, 256, 256, 256))}, path)
    assert packed(residency=serve.Residency(weights=path)).residency.shard_bytes == ((1, 8192), (2, 4096))
    busy = packed(residency=serve.Residency(weights=path, working_bytes=600)).residency.shard_bytes
    assert busy[:3] == ((1, 8792), (2, 4396), (3, 4296))
    assert packed(residency=serve.Residency(weights=path, gpus=2)).residency.shard_bytes == ()


def test_what_the_fullest_gpu_takes_may_be_given():
    given = serve.Residency(weights="/m", weight_bytes=141, shard_bytes={"2": 80, 1: 141})
    package = packed(residency=given)
    assert package.residency.shard_bytes == ((1, 141), (2, 80))
    assert from_json(to_json(package.entry_spec), type(package.entry_spec)) == package.entry_spec


@pytest.mark.parametrize("gpus", [0, -1, 1025, 10**400, 1.0, "1"])
def test_a_number_of_gpus_that_no_node_has_is_refused_after_the_weights_were_looked_at_too(weights, gpus):
    with pytest.raises(serve.InvalidDeploymentError, match=r"Residency\.gpus must be"):
        packed(residency=serve.Residency(weights=weights, gpus=gpus))


def test_weights_have_the_path_that_they_have_where_they_are_declared(tmp_path, monkeypatch):
    """The processes that load them have other working folders."""
    monkeypatch.chdir(tmp_path)
    declared = serve.Residency(weights="weights/m.safetensors", weight_bytes=7)
    monkeypatch.chdir("/")
    assert packed(residency=declared).code.weights == str(tmp_path / "weights" / "m.safetensors")


def test_what_an_older_release_deploys_is_taken_without_the_fields_that_it_lacks():
    package = packed(residency=serve.Residency(weights="/m", weight_bytes=7, shard_bytes={2: 4}))
    state = package.residency.__getstate__()
    del state["shard_bytes"]
    found = object.__new__(type(package.residency))
    found.__setstate__(state)
    assert found == packed(residency=serve.Residency(weights="/m", weight_bytes=7)).residency
