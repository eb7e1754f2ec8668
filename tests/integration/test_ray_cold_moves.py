"""Weights that move between files, memory and what stands for a GPU, on a real cluster: as asked, and with processes killed
in the middle of it. Each call has one answer, and the books say what processes hold.
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'rankcore[torch]'")

from executors.ray_gpu.errors import CallCancelledError, InvalidDeploymentError, ReplicaGoneError, UnavailableError
from executors.ray_gpu.os_processes import stat_of
from tests.fleet_models import WEIGHT_BYTES, Held, Ranked, Stuck, write_weights
from tests.ray_local import ANSWER_S, PATIENCE_S, clean_up, eventually, ray_cluster  # noqa: F401 (a fixture)

pytestmark = pytest.mark.ray

ROOM_BYTES = WEIGHT_BYTES + WEIGHT_BYTES // 2
CACHE_BYTES = 2 * WEIGHT_BYTES
CASES = {
    "from disk to the GPU": ("COLD", None, "copies"),
    "from memory to the GPU": ("WARM", None, "copies"),
    "from the GPU to memory": ("HOT", "WARM", "copies"),
    "out of memory": ("WARM", "COLD", "frees"),
}
"""Where weights are, what they are evicted to (None: calls have them loaded), and what is being done when somebody dies."""
KILLS = [(move, "its process") for move in CASES] + [
    ("from disk to the GPU", "the controller"),
    ("from the GPU to memory", "the controller"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("weights")


@pytest.fixture(scope="module")
def started(ray_cluster, folder):  # noqa: F811
    """One GPU on which one model fits. What leaves has little time for what it has in flight; "twice" may be done twice."""
    from executors import ray_gpu

    memory = {"device": "cpu", "stand_in_gpu_bytes": (ROOM_BYTES,), "cache_bytes": CACHE_BYTES}
    ray_gpu.start(memory=memory, journal=str(folder / "cluster.jsonl"), proxy_location="Disabled")
    path, answer = write_weights(folder, "m", 1)
    ray_gpu.answer = answer
    ray_gpu.run_many([cold(ray_gpu, name, Held, path, str(folder), idempotent=name == "twice") for name in ("m", "twice")])
    yield ray_gpu
    (folder / "hold").unlink(missing_ok=True)
    clean_up(ray_gpu)


def cold(serve, name, code, path, *args, residency=(), **options):
    """An application of that name with one deployment of that name."""
    options = {"graceful_shutdown_timeout_s": 0.2, "start_backoff_s": 0.05, "max_ongoing_requests": 1, **options}
    weights = serve.Residency(**{"weights": path, "min_hot_s": 0.0, **dict(residency)})
    return serve.RunTarget(
        serve.deployment(code).options(name=name, residency=weights, **options).bind(*args), name, route_prefix=None
    )


@pytest.fixture
def serve(started, folder):
    """What a test leaves in memory goes to disk; then nobody has anything, and no process is there."""
    yield started
    (folder / "hold").unlink(missing_ok=True)
    for name in started.status().deployments:
        if name not in ("m/m", "twice/twice"):
            started.delete(name)
    eventually(lambda: all_evicted(started), "nothing is in memory")
    eventually(lambda: not processes(), "no process is left")
    eventually(lambda: taken(started) == books(started) == (0, 0), "nothing is taken")


def all_evicted(serve):
    """Whether nothing is in memory; what a call that still waits has loaded is evicted too."""
    found = serve.status().deployments
    for name, info in found.items():
        if any(each.phase in ("serving", "resting", "waiting") for each in info.workers):
            serve.evict(name, keep="COLD")
    return not any(info.workers for info in found.values())


def workers(serve, name=None):
    """What has weights, or is to have some."""
    found = serve.status().deployments
    return [each for info in found.values() if name in (None, info.name) for each in info.workers]


def levels(serve, name="m/m"):
    return [(each.level, each.phase) for each in workers(serve, name)]


def processes():
    from executors.ray_gpu.discovery import find_workers

    return sorted(find_workers("rankcore"))


def books(serve):
    """Bytes on the GPU, and copies in memory, as the controller has them."""
    (node,) = serve.status().memory
    ((capacity, free),) = node.gpus
    return capacity - free, (node.cpu_bytes - node.cpu_free_bytes) // WEIGHT_BYTES


def taken(serve):
    """The same as living processes have taken it."""
    from executors.ray_gpu.worker.options import MemoryOptions
    from executors.ray_gpu.worker.places import NodeMemory, Places

    (node,) = serve.status().memory
    memory = NodeMemory((ROOM_BYTES,), node.cpu_bytes)
    places = Places(MemoryOptions(device="cpu"), "rankcore", node.node_id, memory)
    return ROOM_BYTES - places.device(0).memory().free_bytes, places.warm_store().used_bytes() // WEIGHT_BYTES


def send(serve, method, *arguments, name="m"):
    return serve.get_deployment_handle(name).options(method_name=method).remote(*map(str, arguments))


def ask(serve, name="m", method="__call__"):
    return send(serve, method, name=name).result(ANSWER_S)


def bring(serve, level):
    if level == "COLD":
        return
    serve.scale("m", 1)
    eventually(lambda: levels(serve) == [("HOT", "serving")], "it is HOT")
    if level == "WARM":
        serve.evict("m")
        eventually(lambda: levels(serve) == [("WARM", "resting")], "it is WARM")


@pytest.mark.parametrize(
    ("move", "killed"),
    [each if each in KILLS[::3] else pytest.param(*each, marks=pytest.mark.night) for each in KILLS],
)
def test_a_kill_in_the_middle_of_a_move_costs_no_call_and_no_memory(serve, folder, tmp_path, move, killed):
    level, evicted_to, doing = CASES[move]
    bring(serve, level)
    for path in folder.glob("*-*"):
        path.unlink()
    controller = serve.status().controller_pid
    (folder / "hold").touch()
    if evicted_to is not None:
        serve.evict("m", keep=evicted_to)
        eventually(lambda: list(folder.glob(f"{doing}-*")), "it is in the middle of it")
    traces = tmp_path / "traces"
    responses = [send(serve, "write_down", traces, word) for word in "abc"]
    (marker,) = eventually(lambda: list(folder.glob(f"{doing}-*")), "it is in the middle of it")
    process = int(marker.name.rpartition("-")[2])
    os.kill(process if killed == "its process" else controller, signal.SIGKILL)
    if killed == "the controller":
        eventually(lambda: serve.status().controller_pid != controller, "another controller is there")
    (folder / "hold").unlink()
    assert [each.result(ANSWER_S) for each in responses] == list("abc")
    assert sorted(traces.read_text()) == list("abc")
    eventually(lambda: taken(serve) == books(serve), "the books say what processes have")
    eventually(lambda: processes() == sorted(each.worker_id for each in workers(serve)), "a process for each, and no other")
    if killed == "its process":
        eventually(lambda: (stat_of(process) or "Z")[0] == "Z", "it has ended")


def test_who_calls_is_told_how_it_comes_on_and_all_calls_together_load_it_once(serve, folder):
    (folder / "hold").touch()
    responses = [send(serve, "__call__") for _ in range(8)]
    statuses = responses[0].statuses()
    assert next(each for each in statuses if each.state == "LOADING").percent < 100
    eventually(lambda: serve.status().deployments["m"].waiting == 8, "all of them are known of")
    (shown,) = workers(serve, "m/m")
    assert (shown.phase, shown.percent) == ("loading", 0)
    assert str(serve.status().deployments["m"].standing).startswith("LOADING")
    (folder / "hold").unlink()
    assert {each.state for each in statuses} <= {"LOADING", "READY"}
    assert [each.result(ANSWER_S) for each in responses] == [pytest.approx(serve.answer)] * 8
    (hot,) = workers(serve, "m/m")
    assert (hot.level, hot.worker_id, hot.gpu_bytes) == ("HOT", shown.worker_id, (WEIGHT_BYTES,))
    assert books(serve) == (WEIGHT_BYTES, 0)


def test_what_leaves_finishes_its_calls_first_and_comes_back_from_memory(serve, folder, tmp_path):
    serve.update("m", graceful_shutdown_timeout_s=PATIENCE_S)
    begun, until = tmp_path / "begun", tmp_path / "until"
    running = send(serve, "write_and_wait", begun, until)
    eventually(begun.exists, "the call runs")
    before = workers(serve, "m/m")[0].worker_id
    serve.evict("m")
    eventually(lambda: levels(serve) == [("HOT", "leaving")], "it leaves")
    until.touch()
    assert running.result(ANSWER_S) == "done"
    eventually(lambda: levels(serve) == [("WARM", "resting")], "it is in memory")
    serve.update("m", graceful_shutdown_timeout_s=0.2)
    assert ask(serve) == pytest.approx(serve.answer)
    assert [each.worker_id for each in workers(serve, "m/m")] == [before], "by the same process"


@pytest.mark.parametrize("method", ["write_and_wait_where_it_can_be_cancelled", "write_and_wait"])
def test_a_call_that_is_cut_off_since_its_replica_has_to_leave_is_told_so(serve, tmp_path, method):
    begun = tmp_path / "begun"
    running = send(serve, method, begun, tmp_path / "never")
    eventually(begun.exists, "it runs")
    serve.evict("m")
    with pytest.raises(ReplicaGoneError):
        running.result(ANSWER_S)


def test_a_call_that_is_cut_off_is_done_again_where_that_does_no_harm(serve, tmp_path):
    begun, until = tmp_path / "begun", tmp_path / "until"
    running = send(serve, "write_and_wait_where_it_can_be_cancelled", begun, until, name="twice")
    eventually(begun.exists, "it runs")
    serve.evict("twice")
    eventually(lambda: begun.read_text() == "xx", "it runs again")
    until.touch()
    assert running.result(ANSWER_S) == "done"


def test_a_call_that_is_given_up_while_it_waits_is_over(serve, tmp_path):
    begun, until = tmp_path / "begun", tmp_path / "until"
    running = send(serve, "write_and_wait", begun, until)
    eventually(begun.exists, "the call runs")
    waits = send(serve, "__call__")
    waits.cancel()
    with pytest.raises(CallCancelledError):
        waits.result(ANSWER_S)
    until.touch()
    assert running.result(ANSWER_S) == "done"


def test_what_user_code_raises_arrives_as_itself(serve):
    with pytest.raises(ValueError, match="as asked") as raised:
        ask(serve, method="raise_value_error")
    assert "raise_value_error" in str(raised.value.__cause__)


def test_a_gpu_that_can_be_used_no_more_costs_the_process_and_nothing_else(serve):
    before = ask(serve, "twice", "process_id")
    with pytest.raises(RuntimeError, match="device-side assert"):
        ask(serve, "twice", "break_the_gpu")
    eventually(lambda: (stat_of(before) or "Z")[0] == "Z", "its process ends")
    assert ask(serve, "twice", "process_id") != before
    assert ask(serve, "twice") == pytest.approx(serve.answer)


def test_a_constructor_that_never_returns_is_a_failed_load_and_whoever_waits_is_told(serve, folder):
    path, _ = write_weights(folder, "stuck", 2)
    serve.run_many([cold(serve, "stuck", Stuck, path, residency={"load_timeout_s": 0.5}, max_start_failures=1)])
    with pytest.raises(UnavailableError, match=r"its load has not ended for 0\.5 s"):
        ask(serve, "stuck")


def test_weights_that_cannot_be_read_are_refused_or_fail_with_the_reason(serve, tmp_path):
    path = Path(write_weights(tmp_path, "broken", 5)[0])
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(InvalidDeploymentError, match=r"broken\.safetensors"):
        serve.run_many([cold(serve, "broken", Ranked, str(path))])
    assert "broken/broken" not in serve.status().deployments
    path.write_bytes(whole)
    serve.run_many([cold(serve, "broken", Ranked, str(path), max_start_failures=1)])
    path.write_bytes(whole[:-100])
    with pytest.raises(UnavailableError, match=r"broken\.safetensors"):
        ask(serve, "broken")


def test_weights_that_fit_nowhere_are_unavailable_with_the_reason_and_disturb_nobody(serve, tmp_path):
    path, _ = write_weights(tmp_path, "large", 9)
    before = ask(serve, method="process_id")
    huge = {"working_bytes": 10 * ROOM_BYTES, "wait_for_room_s": 1000.0}
    serve.run_many([cold(serve, "large", Ranked, path, residency=huge)])
    with pytest.raises(
        UnavailableError, match=r"large/large is UNAVAILABLE: no node could ever hold it: .* do not fit: it has"
    ):
        send(serve, "__call__", name="large").result(ANSWER_S)
    assert ask(serve, method="process_id") == before


def test_weights_that_change_under_a_model_are_served_once_deployed_and_by_nobody_before(serve, tmp_path):
    path, former = write_weights(tmp_path, "changed", 5)
    target = cold(serve, "changed", Ranked, path)
    serve.run_many([target])
    assert ask(serve, "changed") == pytest.approx(former)
    times = os.stat(path)
    new_path, new = write_weights(tmp_path, "new", 6)
    shutil.copyfile(new_path, path)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # of the same size too: only its contents are others
    assert ask(serve, "changed") == pytest.approx(former)
    serve.evict("changed", keep="COLD")
    eventually(lambda: not workers(serve, "changed/changed"), "it is on disk only")
    waits = send(serve, "__call__", name="changed")
    eventually(lambda: "deploy the model again" in serve.status().deployments["changed"].message, "why it is not loaded")
    serve.run_many([target])
    assert waits.result(ANSWER_S) == pytest.approx(new)
    before = ask(serve, "changed", "process_id")
    serve.run_many([target])
    assert ask(serve, "changed", "process_id") == before, "the same again changes nothing"


PROGRAM = """
import sys
from executors import ray_gpu as serve
serve.get_deployment_handle("m").options(method_name="write_and_wait").remote(*sys.argv[1:]).result()
"""


def test_a_program_that_is_interrupted_ends_though_a_call_of_it_is_unanswered(serve, tmp_path):
    import ray

    begun, until = tmp_path / "begun", tmp_path / "until"
    environment = {**os.environ, "PYTHONPATH": os.getcwd(), "RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    arguments = [sys.executable, "-c", PROGRAM, str(begun), str(until)]
    program = subprocess.Popen(arguments, env=environment, stderr=subprocess.PIPE)
    try:
        eventually(begun.exists, "its call runs")
        program.send_signal(signal.SIGINT)
        _, said = program.communicate(timeout=PATIENCE_S)
    finally:
        program.kill()
        until.touch()
    assert program.returncode not in (0, -signal.SIGKILL)
    assert b"KeyboardInterrupt" in said


AT_EXIT = """
import atexit, threading
atexit.register(lambda: print("runs after Ray:", [thread.name for thread in threading.enumerate()]))
from executors import ray_gpu as serve
responses = [serve.get_deployment_handle("m").process_id.remote() for _ in range(50)]
print(responses[0].result())
"""


def test_no_call_of_a_program_that_ends_meets_a_ray_that_is_torn_down(serve, tmp_path):
    import ray

    environment = {**os.environ, "PYTHONPATH": os.getcwd(), "RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    options = {"env": environment, "capture_output": True, "text": True, "timeout": PATIENCE_S}
    done = subprocess.run([sys.executable, "-c", AT_EXIT], check=False, **options)
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert "runs after Ray: ['MainThread'" in done.stdout
    assert "calls" not in done.stdout


def test_the_program_on_the_page_answers(serve, tmp_path):
    import ray

    page = (Path(__file__).parents[2] / "docs" / "residency.md").read_text(encoding="utf-8")
    (tmp_path / "program.py").write_text(page.partition("```python\n")[2].partition("```")[0])
    environment = {**os.environ, "PYTHONPATH": os.getcwd(), "RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    options = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True, "timeout": PATIENCE_S}
    done = subprocess.run([sys.executable, "program.py"], check=False, **options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("[1.0, 2.0, 3.0, 4.0]\n")


def test_the_journal_of_all_controllers_can_be_run_again(serve, folder):
    from executors.engine.clusters import CLUSTER
    from executors.engine.replay import replay

    replayed = replay(folder / "cluster.jsonl", CLUSTER)
    assert replayed.difference is None
    assert replayed.steps > 0


# -- from here on with two GPUs, and nothing else deployed


@pytest.fixture
def ranked(started, folder):
    """Two replicas of one deployment on two GPUs, and how to run it with another user_config."""
    for name in started.status().deployments:
        started.delete(name)
    eventually(lambda: not processes(), "nobody uses memory")
    memory = {"device": "cpu", "stand_in_gpu_bytes": (WEIGHT_BYTES, WEIGHT_BYTES), "cache_bytes": CACHE_BYTES}
    started.start(memory=memory)

    def run(user_config):
        options = {"num_replicas": 2, "user_config": user_config, "idempotent": True}
        started.run_many([cold(started, "ranked", Ranked, str(folder / "m.safetensors"), **options)])

    run({"step": 1})
    return run


def shown(serve):
    """The ranks as `status` shows them."""
    return serve.status().deployments["ranked"].ranks


def believed(serve, replicas):
    """What each process answers, by process, once so many have."""
    found = {}

    def ask_together():
        responses = [send(serve, "standing", name="ranked") for _ in range(8)]
        for pid, *rest in (each.result(ANSWER_S) for each in responses):
            found[pid] = rest
        return len(found) == replicas

    eventually(ask_together, f"{replicas} processes answer")
    return found


def ranks(serve, replicas):
    return {pid: (rank, size) for pid, (rank, size, _) in believed(serve, replicas).items()}


def test_hot_replicas_have_ranks_and_keep_them(ranked, started):
    serve, run = started, ranked
    eventually(lambda: sorted(shown(serve)) == [0, 1], "both have a rank")
    before = ranks(serve, 2)
    assert sorted(before.values()) == [(0, 2), (1, 2)]

    # Another user_config is told to the processes that there are.
    run({"step": 2})
    eventually(lambda: all(told[-1] == ({"step": 2}, rank) for rank, _, told in believed(serve, 2).values()), "both are told")
    assert ranks(serve, 2) == before

    # Whoever takes the place of one that is killed has its rank.
    killed = next(pid for pid, (rank, _) in before.items() if rank == 0)
    other = next(pid for pid in before if pid != killed)
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: killed not in ranks(serve, 2), "another process answers")
    after = ranks(serve, 2)
    assert sorted(after.values()) == [(0, 2), (1, 2)]
    assert after[other] == (1, 2)

    # A controller that comes after one that was killed learns the ranks from the processes.
    at_last, controller = shown(serve), serve.status().controller_pid
    os.kill(controller, signal.SIGKILL)
    eventually(lambda: serve.status().controller_pid != controller, "another controller is there")
    eventually(lambda: "ranked/ranked" in serve.status().deployments and shown(serve) == at_last, "it knows the ranks")
    assert ranks(serve, 2) == after

    # Of two, rank 0 is left.
    serve.scale("ranked", 1)
    eventually(lambda: list(shown(serve)) == [0], "one has a rank, and it is 0")
    eventually(lambda: list(ranks(serve, 1).values()) == [(0, 1)], "and its process knows that")
    serve.scale("ranked", 2)
    eventually(lambda: sorted(shown(serve)) == [0, 1], "both have a rank")
    eventually(lambda: sorted(ranks(serve, 2).values()) == [(0, 2), (1, 2)], "and know that")
