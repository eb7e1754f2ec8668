"""The names of before models were deployments: each warns, says what it is called now, and does that."""

import warnings

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")
pytest.importorskip("torch", reason="torch is not installed: pip install 'rankcore[torch]'")

from executors.ray_gpu import changing, deploying, inspecting, instance, residency
from executors.ray_gpu.errors import InvalidCallError, InvalidDeploymentError
from executors.ray_gpu.packing import pack
from executors.ray_gpu.worker.options import MemoryOptions
from tests.fleet_models import WEIGHT_BYTES, Probe, write_weights

pytestmark = pytest.mark.filterwarnings("ignore:executors.ray_gpu.residency:DeprecationWarning")


@pytest.fixture
def weights(tmp_path):
    return write_weights(tmp_path, "m", 1)[0]


def test_a_model_is_a_deployment_with_residency_in_the_application_of_its_name(weights, monkeypatch):
    sent = {}
    monkeypatch.setattr(deploying, "run_many", lambda targets, **options: sent.update(targets=targets, **options))
    fields = {"priority": 3, "gpus": 1, "load_timeout_s": 5.0, "idempotent": True, "user_config": {"a": 1}}
    residency.deploy(residency.Model(name="m", code=Probe, weights=weights, **fields), replicas=2, replace=True)
    (target,) = sent["targets"]
    assert (target.name, sent["wait"], sent["replace"]) == ("m", False, True)
    package = pack(target.target, (), {}, target.name)
    assert (package.spec.name, package.spec.target_replicas, dict(package.spec.user_config)) == ("m/m", 2, {"a": 1})
    assert (package.residency.weight_bytes, package.residency.priority, package.residency.gpus) == (WEIGHT_BYTES, 3, 1)
    assert (package.residency.min_hot_s, package.residency.load_timeout_s) == (0.0, 5.0)
    assert (package.routing.max_ongoing_requests, package.routing.idempotent) == (1, True)


def test_a_model_that_follows_its_load_has_no_number_of_replicas(weights):
    autoscaling = {"min_replicas": 0, "max_replicas": 3}
    model = residency.Model(name="m", code=Probe, weights=weights, autoscaling=autoscaling)
    package = pack(residency._with_replicas(model, 2), (), {}, "m")
    assert (package.autoscaling.max_replicas, package.spec.target_replicas) == (3, 0)


@pytest.mark.parametrize("name", [each for each in residency.__all__ if callable(getattr(residency, each))])
def test_each_name_warns_and_says_what_it_is_called_now(name, weights, monkeypatch):
    called = {
        changing: ("scale", "evict"),
        deploying: ("run_many", "delete_all"),
        inspecting: ("status", "get_deployment_handle"),
        instance: ("start",),
    }
    for module, functions in called.items():
        for function in functions:
            monkeypatch.setattr(module, function, lambda *_, **__: None)
    arguments = {
        "Model": lambda: residency.Model(name="m", code=Probe, weights=weights),
        "FleetOptions": lambda: residency.FleetOptions(device="cpu"),
        "ModelHandle": lambda: residency.ModelHandle("m"),
        "deploy": residency.deploy,
        "evict": lambda: residency.evict("m"),
        "scale": lambda: residency.scale("m", 1),
        "start": residency.start,
        "standing": residency.standing,
        "where": lambda: residency.where("m"),
        "shutdown": residency.shutdown,
    }
    if name not in arguments:
        assert isinstance(getattr(residency, name), type), "a class of now"
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            arguments[name]()
        except AttributeError:  # nothing is there that would answer
            assert name in ("where", "shutdown")
    (warning,) = caught
    assert warning.category is DeprecationWarning
    assert f"residency.{name} goes with the next release: it is executors.ray_gpu's " in str(warning.message)
    assert warning.filename == __file__


@pytest.mark.parametrize("field", ["dispatch", "residency"])
def test_what_deployments_say_by_now_is_named(field):
    assert residency.FleetOptions(device="cpu", cache_bytes=5) == MemoryOptions(device="cpu", cache_bytes=5)
    with pytest.raises(InvalidDeploymentError, match=rf"FleetOptions\.{field} is gone: Residency\("):
        residency.FleetOptions(**{field: object()})


def test_what_cannot_be_meant_is_refused(weights):
    for each in (None, 5, "m", Probe, []):
        with pytest.raises(InvalidDeploymentError, match="takes models"):
            residency.deploy(each)
    model = residency.Model(name="m", code=Probe, weights=weights)
    with pytest.raises(InvalidDeploymentError, match="applications must have names of their own, got 'm' 2 times"):
        residency.deploy(model, model)
    with pytest.raises(InvalidDeploymentError, match="either a model or a replica_id"):
        residency.evict()
    with pytest.raises(InvalidCallError, match="keep must be"):
        residency.evict("m", keep=5)
    with pytest.raises(InvalidDeploymentError, match="'wieghts' is unknown"):
        residency.Model(name="m", code=Probe, weights=weights, wieghts=1)
