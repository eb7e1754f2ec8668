"""Processes of a fleet are killed in the middle of moves, on a real cluster: each request has one answer, the books balance."""

import os
import signal
import subprocess
import sys

import pytest

from executors.ray_gpu.errors import CallError, ReplicaGoneError
from executors.ray_gpu.os_processes import stat_of
from tests.fleet_models import WEIGHT_BYTES, Held, Stuck, write_weights
from tests.ray_local import ANSWER_S, PATIENCE_S, eventually, ray_cluster  # noqa: F401 (a fixture)

pytestmark = pytest.mark.ray

ROOM_BYTES = WEIGHT_BYTES + WEIGHT_BYTES // 2
CASES = {
    "from disk to the GPU": ("COLD", None, "copies"),
    "from memory to the GPU": ("WARM", None, "copies"),
    "from the GPU to memory": ("HOT", "WARM", "copies"),
    "out of memory": ("WARM", "COLD", "frees"),
}
"""Where a replica is, what it is evicted to (None: requests have it loaded), and what it is doing when somebody dies."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fleet")


@pytest.fixture(scope="module")
def fleet(ray_cluster, folder):  # noqa: F811
    """One GPU on which one model fits; a replica that leaves has little time for what it has in flight."""
    from executors.ray_gpu import residency
    from rankcore.dispatching import DispatchPolicy
    from rankcore.residency import ResidencyPolicy

    residency.start(
        residency.FleetOptions(
            device="cpu",
            stand_in_gpu_bytes=(ROOM_BYTES,),
            cache_bytes=2 * WEIGHT_BYTES,
            dispatch=DispatchPolicy(turn_s=0.01, failed_for_s=0.01),
            residency=ResidencyPolicy(retry_s=0.05, drain_timeout_s=0.2),
        )
    )
    path, _ = write_weights(folder, "m", 1)
    try:
        for name, idempotent in (("m", False), ("twice", True)):
            model = residency.Model(name=name, code=Held, args=(str(folder),), weights=path, idempotent=idempotent)
            residency.deploy(model, replicas=0)
        yield residency
    finally:
        (folder / "hold").unlink(missing_ok=True)
        residency.shutdown()


@pytest.fixture(autouse=True)
def all_balances(fleet, folder):
    """What a test leaves in memory goes to disk; then nobody has anything, and no process is there."""
    yield
    (folder / "hold").unlink(missing_ok=True)
    for each in fleet.standing().models:
        fleet.evict(each.model, keep="COLD")
    eventually(lambda: levels(fleet) <= {"COLD"}, "nothing is in memory")
    eventually(lambda: not processes(), "no process is left")
    eventually(lambda: taken(fleet) == books(fleet) == (0, 0), "nothing is taken")


def levels(fleet, name=None):
    found = fleet.standing().models
    return {replica.level for each in found for replica in each.replicas if name in (None, each.model)}


def processes():
    """The actors that there are: replica and node."""
    import ray

    from executors.ray_gpu.residency.hosts import PREFIX

    found = [each["name"] for each in ray.util.list_named_actors(all_namespaces=True)]
    return sorted(each.removeprefix(PREFIX) for each in found if each.startswith(PREFIX))


def books(fleet):
    """Bytes on the GPU, and copies in memory, as the controller has them."""
    (node,) = fleet.standing().nodes
    ((capacity, free),) = node.gpus
    return capacity - free, (node.cpu_bytes - node.cpu_free_bytes) // WEIGHT_BYTES


def taken(fleet):
    """The same as living processes have taken it."""
    from executors.ray_gpu.worker.places import NodeMemory, Places

    (node,) = fleet.standing().nodes
    memory = NodeMemory((ROOM_BYTES,), node.cpu_bytes)
    places = Places(fleet.FleetOptions(device="cpu"), "rankcore", node.node_id, memory)
    return ROOM_BYTES - places.device(0).memory().free_bytes, places.warm_store().used_bytes() // WEIGHT_BYTES


def in_memory(fleet):
    """The processes that there should be."""
    found = [replica for each in fleet.standing().models for replica in each.replicas if replica.level != "COLD"]
    return sorted(f"{each.replica_id}@{each.node_id}" for each in found)


def bring(fleet, level):
    if level == "COLD":
        return
    fleet.scale("m", 1)
    eventually(lambda: levels(fleet, "m") - {"COLD"} == {"HOT"}, "it is HOT")
    if level == "WARM":
        fleet.evict("m")
        eventually(lambda: levels(fleet, "m") - {"COLD"} == {"WARM"}, "it is WARM")


def send(fleet, method, *arguments, name="m"):
    return fleet.ModelHandle(name).options(method=method).remote(*map(str, arguments))


KILLS = [(move, "its process") for move in CASES] + [
    ("from disk to the GPU", "the controller"),
    ("from the GPU to memory", "the controller"),
]


@pytest.mark.parametrize(("move", "killed"), KILLS)
def test_a_kill_in_the_middle_of_a_move_costs_no_request_and_no_memory(fleet, folder, tmp_path, move, killed):
    level, evicted_to, doing = CASES[move]
    bring(fleet, level)
    for path in folder.glob("*-*"):
        path.unlink()
    controller = fleet.standing().controller_pid
    (folder / "hold").touch()
    if evicted_to is not None:
        fleet.evict("m", keep=evicted_to)
        eventually(lambda: list(folder.glob(f"{doing}-*")), "it is in the middle of it")
    traces = tmp_path / "traces"
    responses = [send(fleet, "write_down", traces, word) for word in "abc"]
    (marker,) = eventually(lambda: list(folder.glob(f"{doing}-*")), "it is in the middle of it")
    process = int(marker.name.rpartition("-")[2])
    os.kill(process if killed == "its process" else controller, signal.SIGKILL)
    if killed == "the controller":
        eventually(lambda: fleet.standing().controller_pid != controller, "another controller is there")
    (folder / "hold").unlink()
    assert [each.result(ANSWER_S) for each in responses] == list("abc")
    assert sorted(traces.read_text()) == list("abc")
    eventually(lambda: taken(fleet) == books(fleet), "the books say what processes have")
    eventually(lambda: processes() == in_memory(fleet), "there is a process for each replica in memory, and no other")
    if killed == "its process":
        eventually(lambda: (stat_of(process) or "Z")[0] == "Z", "it has ended")


@pytest.mark.parametrize("method", ["write_and_wait_where_it_can_be_cancelled", "write_and_wait"])
def test_a_request_that_is_cut_off_since_its_replica_has_to_leave_is_told_so(fleet, tmp_path, method):
    begun = tmp_path / "begun"
    running = send(fleet, method, begun, tmp_path / "never")
    eventually(begun.exists, "it runs")
    fleet.evict("m")
    with pytest.raises(ReplicaGoneError, match="left the GPU"):
        running.result(ANSWER_S)


def test_a_request_that_is_cut_off_is_done_again_where_that_does_no_harm(fleet, tmp_path):
    begun, until = tmp_path / "begun", tmp_path / "until"
    running = send(fleet, "write_and_wait_where_it_can_be_cancelled", begun, until, name="twice")
    eventually(begun.exists, "it runs")
    fleet.evict("twice")
    eventually(lambda: begun.read_text() == "xx", "it runs again")
    until.touch()
    assert running.result(ANSWER_S) == "done"


def test_a_constructor_that_never_returns_is_a_failed_load_and_whoever_waits_is_told(fleet, folder):
    path, _ = write_weights(folder, "stuck", 2)
    fleet.deploy(fleet.Model(name="stuck", code=Stuck, weights=path, load_timeout_s=0.5), replicas=0)
    with pytest.raises(CallError, match=r"nothing arrived for 0\.5 s"):
        fleet.ModelHandle("stuck").remote().result(ANSWER_S)


PROGRAM = """
import sys
from executors.ray_gpu import residency
response = residency.ModelHandle("m").options(method="write_and_wait").remote(*sys.argv[1:])
response.result()
"""


def test_a_program_that_is_interrupted_ends_though_a_request_of_it_is_unanswered(fleet, tmp_path):
    import ray

    begun, until = tmp_path / "begun", tmp_path / "until"
    environment = {
        **os.environ,
        "PYTHONPATH": os.getcwd(),
        "RAY_ADDRESS": ray.get_runtime_context().gcs_address,
    }
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, str(begun), str(until)], env=environment, stderr=subprocess.PIPE)
    try:
        eventually(begun.exists, "its request runs")
        program.send_signal(signal.SIGINT)
        _, said = program.communicate(timeout=PATIENCE_S)
    finally:
        program.kill()
        until.touch()
    assert program.returncode not in (0, -signal.SIGKILL)
    assert b"KeyboardInterrupt" in said
