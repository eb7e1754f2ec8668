"""A fleet of models on a real cluster: weights that move between files, memory and what stands for a GPU."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from executors.ray_gpu.errors import CallCancelledError, CallError, ReplicaGoneError, UnknownNameError
from executors.torch_weights import WeightsFileError
from tests.fleet_models import WEIGHT_BYTES, Probe, write_weights
from tests.ray_local import ANSWER_S, eventually, ray_cluster, start_ray  # noqa: F401 (a fixture)

pytestmark = pytest.mark.ray

ROOM_BYTES = 2 * WEIGHT_BYTES + WEIGHT_BYTES // 2
NAMES = ("a", "b", "c")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("weights")


@pytest.fixture(scope="module")
def running_fleet(ray_cluster, folder):  # noqa: F811
    """A fleet with one GPU on which two of three models fit, and memory for the third."""
    from executors.ray_gpu import residency
    from rankcore.dispatching import DispatchPolicy
    from rankcore.residency import ResidencyPolicy

    options = residency.FleetOptions(
        device="cpu",
        stand_in_gpu_bytes=(ROOM_BYTES,),
        cache_bytes=ROOM_BYTES,
        dispatch=DispatchPolicy(turn_s=0.01),
        residency=ResidencyPolicy(retry_s=0.1),
    )
    residency.start(options, journal=str(folder / "fleet.jsonl"))
    try:
        yield residency
    finally:
        residency.shutdown()


@pytest.fixture(scope="module")
def answers(running_fleet, folder):
    """What each model answers. Requests for "b" may be done twice."""
    files = {name: write_weights(folder, name, seed) for seed, name in enumerate(NAMES)}
    models = [model(running_fleet, name, files[name][0], idempotent=name == "b") for name in NAMES]
    running_fleet.deploy(*models, replicas=0)
    return {name: answer for name, (_, answer) in files.items()}


@pytest.fixture
def fleet(running_fleet, answers):
    """With all weights on disk, and there again in the end."""
    yield running_fleet
    for each in running_fleet.standing().models:
        running_fleet.evict(each.model, keep="COLD")
    eventually(lambda: levels(running_fleet) <= {"COLD"}, "nothing is in memory")


def levels(fleet):
    return {replica.level for each in fleet.standing().models for replica in each.replicas}


def model(fleet, name, path, **options):
    return fleet.Model(name=name, code=Probe, weights=path, **options)


def ask(fleet, name, method="__call__", *args):
    return fleet.ModelHandle(name).options(method=method).remote(*args).result(ANSWER_S)


def hot(fleet, name):
    return [each for each in fleet.where(name).replicas if each.phase == "serving"]


def test_every_model_answers_though_only_two_are_hot_at_once(fleet, answers):
    for name in (*NAMES, *NAMES):
        assert ask(fleet, name) == pytest.approx(answers[name])
    found = sorted(each.level for name in NAMES for each in fleet.where(name).replicas)
    assert found == ["HOT", "HOT", "WARM"]
    for node in fleet.standing().nodes:
        assert [(capacity, free) for capacity, free in node.gpus] == [(ROOM_BYTES, ROOM_BYTES - 2 * WEIGHT_BYTES)]


def test_a_request_is_told_what_it_waits_for(fleet, answers):
    response = fleet.ModelHandle("a").remote()
    told = [str(status.kind) for status in response.statuses()]
    assert response.result(ANSWER_S) == pytest.approx(answers["a"])
    assert told
    assert set(told) <= {"provisioning", "loading", "queued", "ready"}


def test_several_requests_for_a_cold_model_load_it_once(fleet, answers):
    responses = [fleet.ModelHandle("b").remote() for _ in range(8)]
    assert [each.result(ANSWER_S) for each in responses] == [pytest.approx(answers["b"])] * 8
    assert len(fleet.where("b").replicas) == 1


def test_what_leaves_finishes_its_requests_first(fleet, answers, tmp_path):
    begun, until = tmp_path / "begun", tmp_path / "until"
    running = fleet.ModelHandle("a").options(method="write_and_wait").remote(str(begun), str(until))
    eventually(begun.exists, "the request runs")
    fleet.evict("a")
    eventually(lambda: [each.phase for each in fleet.where("a").replicas] == ["leaving"], "it leaves")
    until.touch()
    assert running.result(ANSWER_S) == "done"
    eventually(lambda: [each.level for each in fleet.where("a").replicas] == ["WARM"], "it is in memory")
    assert ask(fleet, "a") == pytest.approx(answers["a"])


def test_what_user_code_raises_arrives_as_itself(fleet, answers):
    with pytest.raises(ValueError, match="as asked") as raised:
        ask(fleet, "a", "raise_value_error")
    assert "raise_value_error" in str(raised.value.__cause__)


def test_a_replica_whose_process_is_killed_is_loaded_again(fleet, answers):
    before = ask(fleet, "b", "process_id")
    os.kill(before, signal.SIGKILL)
    eventually(lambda: ask(fleet, "b", "process_id") != before, "another process answers")
    assert ask(fleet, "b") == pytest.approx(answers["b"])
    assert len(hot(fleet, "b")) == 1


def test_a_gpu_that_can_be_used_no_more_costs_the_process_and_nothing_else(fleet, answers):
    before = ask(fleet, "a", "process_id")
    with pytest.raises(RuntimeError, match="device-side assert"):
        ask(fleet, "a", "break_the_gpu")
    eventually(lambda: ask(fleet, "a", "process_id") != before, "another process answers")
    assert ask(fleet, "a") == pytest.approx(answers["a"])


def test_a_controller_that_is_killed_costs_no_replica_and_no_request_that_waits(fleet, answers, tmp_path):
    import ray

    from executors.ray_gpu.residency.client import CONTROLLER

    begun, until = tmp_path / "begun", tmp_path / "until"
    before = ask(fleet, "b", "process_id")
    running = fleet.ModelHandle("a").options(method="write_and_wait").remote(str(begun), str(until))
    eventually(begun.exists, "the request runs")
    waits = fleet.ModelHandle("a").remote()
    eventually(lambda: fleet.where("a").waiting == 1, "another one waits")
    ray.kill(ray.get_actor(CONTROLLER, namespace="rankcore"), no_restart=False)
    eventually(lambda: fleet.standing().nodes, "the next controller is there")
    until.touch()
    with pytest.raises(ReplicaGoneError, match="may have had its effect"):
        running.result(ANSWER_S)
    assert waits.result(ANSWER_S) == pytest.approx(answers["a"])
    assert ask(fleet, "b", "process_id") == before
    assert begun.read_text() == "x"


def test_weights_that_cannot_be_read_are_refused_or_fail_with_the_reason(fleet, answers, tmp_path):
    path = Path(write_weights(tmp_path, "broken", 5)[0])
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(WeightsFileError, match=r"broken\.safetensors"):
        fleet.deploy(model(fleet, "broken", str(path)))
    path.write_bytes(whole)
    fleet.deploy(model(fleet, "broken", str(path)), replicas=0)
    path.write_bytes(whole[:-100])
    with pytest.raises(CallError, match=r"broken\.safetensors"):
        ask(fleet, "broken")


def test_weights_that_change_under_a_model_are_served_by_all_replicas_once_deployed_and_by_none_before(
    fleet, answers, tmp_path
):
    path, former = write_weights(tmp_path, "changed", 5)
    fleet.deploy(model(fleet, "changed", path))
    assert ask(fleet, "changed") == pytest.approx(former)
    process = ask(fleet, "changed", "process_id")
    times = os.stat(path)
    new_path, new = write_weights(tmp_path, "new", 6)
    shutil.copyfile(new_path, path)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # of the same size too: only its contents are others

    fleet.scale("changed", 2)
    eventually(
        lambda: [each.because for each in fleet.where("changed").replicas if "deploy the model again" in each.because],
        "the second replica says why it is not loaded",
    )
    assert [ask(fleet, "changed") for _ in range(8)] == [pytest.approx(former)] * 8
    fleet.deploy(model(fleet, "changed", path), replicas=2)
    eventually(lambda: len(hot(fleet, "changed")) == 2, "both are HOT")
    responses = [fleet.ModelHandle("changed").remote() for _ in range(8)]
    assert [each.result(ANSWER_S) for each in responses] == [pytest.approx(new)] * 8

    before = {ask(fleet, "changed", "process_id") for _ in range(20)}
    assert process not in before
    fleet.deploy(model(fleet, "changed", path), replicas=2)
    assert {ask(fleet, "changed", "process_id") for _ in range(20)} <= before
    fleet.scale("changed", 0)


def test_a_model_that_fits_nowhere_says_so(fleet, answers, tmp_path):
    large = model(fleet, "large", write_weights(tmp_path, "large", 9)[0], working_bytes=10 * ROOM_BYTES)
    fleet.deploy(large)
    (replica,) = fleet.where("large").replicas
    assert replica.phase == "waiting"
    assert replica.because
    with pytest.raises(CallError):
        fleet.ModelHandle("large", timeout_s=1.0).remote().result(ANSWER_S)
    assert ask(fleet, "a") == pytest.approx(answers["a"])


def test_a_request_that_is_given_up_while_it_waits_is_over(fleet, answers, tmp_path):
    begun, until = tmp_path / "begun", tmp_path / "until"
    running = fleet.ModelHandle("a").options(method="write_and_wait").remote(str(begun), str(until))
    eventually(begun.exists, "the request runs")
    waits = fleet.ModelHandle("a").remote()
    eventually(lambda: fleet.where("a").waiting == 1, "another one waits")
    waits.cancel()
    with pytest.raises(CallCancelledError):
        waits.result(ANSWER_S)
    until.touch()
    assert running.result(ANSWER_S) == "done"


def test_the_journal_of_every_controller_can_be_run_again(fleet, answers, folder):
    from executors.fleet import replay_fleet

    journals = sorted(folder.glob("fleet.jsonl.*"))
    assert journals
    for path in journals:
        replayed = replay_fleet(path)
        assert replayed.difference is None
        assert replayed.steps > 0


def test_the_command_line_scales_evicts_and_shows(fleet, answers):
    from executors.cli.app import app

    def rankcore(*arguments):
        return CliRunner().invoke(app, arguments)

    assert rankcore("scale", "a", "1").exit_code == 0
    eventually(lambda: hot(fleet, "a"), "it is HOT")
    shown = json.loads(rankcore("where", "--json").stdout)
    assert set(NAMES) <= {each["model"] for each in shown["models"]}
    assert "why:" in rankcore("where", "a").stdout
    assert rankcore("evict", "a", "--keep", "COLD").exit_code == 0
    eventually(lambda: [each.level for each in fleet.where("a").replicas] == ["COLD"], "it is on disk only")
    refused = rankcore("scale", "nobody", "1")
    assert refused.exit_code == 2
    assert "there is no model 'nobody'" in refused.stderr
    with pytest.raises(UnknownNameError):
        fleet.where("nobody")


def test_the_command_line_deploys_a_file_from_any_folder(fleet, answers, tmp_path):
    from executors.cli.app import app

    path, answer = write_weights(tmp_path, "elsewhere", 11)
    (tmp_path / "models_elsewhere.py").write_text(
        "from executors.ray_gpu.residency import Model\n\n\n"
        "class Elsewhere:\n    def __call__(self):\n        return float(self.weights['weight'].double().sum())\n\n\n"
        f"model = Model(name='elsewhere', code=Elsewhere, weights={path!r})\n"
    )
    deployed = CliRunner().invoke(app, ["deploy", f"{tmp_path}/models_elsewhere.py:model", "--replicas", "0"])
    assert deployed.exit_code == 0, deployed.stderr
    assert ask(fleet, "elsewhere") == pytest.approx(answer)
