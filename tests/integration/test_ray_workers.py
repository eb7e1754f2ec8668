"""A worker is one replica after another, for as long as its weights are on a GPU; the test stands in the controller's place."""

import contextlib
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")
pytest.importorskip("torch", reason="torch is not installed: pip install 'rankcore[torch]'")

import ray

from executors.ray_gpu.errors import ReplicaGoneError
from executors.ray_gpu.messages import Outcome
from executors.ray_gpu.requests.frames import CALL, CONNECTION, HEADER, HELLO, NEED, REFUSED, Frames, counts, key_of
from executors.ray_gpu.requests.packing import pack_call
from executors.torch_weights import Level
from tests.fleet_models import WEIGHT_BYTES, write_weights
from tests.free_ports import free_ports
from tests.ray_local import ANSWER_S, eventually, ray_cluster  # noqa: F401 (a fixture)
from tests.tenures import NAMESPACE, ROOM_BYTES, TenureWorld

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def only_world(ray_cluster, tmp_path_factory):  # noqa: F811
    return TenureWorld(tmp_path_factory.mktemp("tenures"))


@pytest.fixture
def world(only_world):
    """With nothing in memory, nobody routed, and nothing held; likewise at the end."""
    yield only_world
    for name in ("hold", "ended"):
        (only_world.folder / name).unlink(missing_ok=True)
    only_world.route()
    for each in workers:
        ray.kill(each.actor)
    workers.clear()
    eventually(lambda: (only_world.free_bytes, only_world.warm_bytes) == (ROOM_BYTES, 0), "all memory is free")


workers = []
serials = iter(range(1, 1000))


@pytest.fixture
def weights(only_world):
    return write_weights(only_world.folder, "m", 1)


@pytest.fixture
def worker(world, weights):
    workers.append(world.worker(next(serials), weights[0]))
    return workers[-1]


@pytest.fixture(scope="module")
def http(only_world):
    from executors.ray_gpu.http.options import HttpOptions
    from executors.ray_gpu.proxies.options import ProxyOptions
    from executors.ray_gpu.proxies.proxy import Proxy

    (port,) = free_ports(1)
    proxy = ray.remote(Proxy).options(num_cpus=0, namespace=NAMESPACE, max_concurrency=100)
    proxy = proxy.remote(NAMESPACE, ProxyOptions(http=HttpOptions(port=port)))
    ray.get(proxy.describe.remote())
    yield f"http://127.0.0.1:{port}"
    ray.kill(proxy)


def streamed(handle, *arguments):
    return handle.options(method_name="count", stream=True).remote(*arguments)


def test_a_tenure_answers_over_every_way_and_the_next_one_in_the_same_process_has_another_rank(world, worker, weights, http):
    line = "{}: " + f"{weights[1]:.3f}\n"
    waiting = world.handle.total.remote()  # before there is anybody
    first = worker.open(0, rank=1)
    assert waiting.result(ANSWER_S) == pytest.approx(weights[1])
    assert first.socket_path
    pid, *standing = world.handle.standing.remote().result(ANSWER_S)
    assert standing == [worker.tenure(0), 1, 2, [("v1", 1)], [worker.tenure(0)]]
    assert world.handle.when_built.remote().result(ANSWER_S) is None
    assert list(streamed(world.handle, 3)) == [line.format(number) for number in range(3)]
    with urllib.request.urlopen(f"{http}/?upto=3", timeout=ANSWER_S) as answer:
        assert answer.read().decode() == "".join(line.format(number) for number in range(3))
    together = [world.handle.together.remote(number) for number in range(3)]
    assert [each.result(ANSWER_S)[:2] for each in together] == [(0, 3), (1, 3), (2, 3)]
    large = b"x" * 5_000_000
    assert world.handle.echo.remote(large).result(ANSWER_S) == large

    gate = world.folder / "gate"
    stream = streamed(world.handle, 3, str(gate))
    assert next(stream) == line.format(0)
    world.route()
    leaving = worker.begin_leave()
    eventually(lambda: worker.report().tenure.draining, "it drains")
    gate.touch()
    assert list(stream) == [line.format(1), line.format(2)]
    assert ray.get(leaving).failed_because is None
    report = worker.report()
    assert (report.level, report.tenure, report.pid) == (Level.WARM, None, pid)
    assert report.host_bytes == WEIGHT_BYTES
    assert (world.free_bytes, WEIGHT_BYTES <= world.warm_bytes < 2 * WEIGHT_BYTES) == (ROOM_BYTES, True)

    waiting = world.handle.standing.remote()
    second = worker.open(1, rank=0)
    assert waiting.result(ANSWER_S) == (
        pid,
        worker.tenure(1),
        0,
        2,
        [("v1", 1), ("v1", 0)],
        [worker.tenure(0), worker.tenure(1)],
    )
    assert second.socket_path != first.socket_path
    assert list(streamed(world.handle, 1)) == [line.format(0)]


@pytest.mark.parametrize("has_socket", [True, False], ids=["by a socket", "by actor calls"])
def test_each_call_is_answered_once_while_tenures_come_and_go_and_the_routes_are_late(world, worker, has_socket):
    ended = threading.Event()
    answers = []

    def call_again_and_again():
        number = 0
        while not ended.is_set():
            number += 1
            batch = [world.handle.echo.remote((number, each)) for each in range(6)]  # more than it takes at once
            answers.extend(each.result(ANSWER_S) == (number, place) for place, each in enumerate(batch))

    with ThreadPoolExecutor(1) as pool:
        calling = pool.submit(call_again_and_again)
        try:
            for serial in range(3):
                worker.open(serial, rank=serial, has_socket=has_socket)
                before = len(answers)
                eventually(lambda: len(answers) > before + 12 or calling.done(), "it answers")  # noqa: B023
                assert worker.leave().failed_because is None  # it is routed yet
                world.route()
            worker.open(3, rank=3, has_socket=has_socket)
        finally:
            ended.set()
        calling.result(ANSWER_S)
    assert answers == [True] * len(answers)


def frame(call_id, kind, body=b""):
    return HEADER.pack(len(body), call_id, kind) + body


def test_a_late_frame_of_an_ended_tenure_is_refused_and_takes_nothing_from_the_next_one(world, worker):
    worker.open(0, rank=1)
    assert worker.leave().failed_because is None
    worker.open(1, rank=0)
    key = key_of(worker.tenure(0), "caller", "late")
    call = pack_call("echo", (("hello",), {}))
    said = frame(CONNECTION, HELLO, key.encode()) + frame(CONNECTION, NEED, counts(4, 0)) + frame(1, CALL, call)
    ray.get(worker.actor.say.remote(key, 0, said))
    answers, heard = [], 0
    cut = Frames(lambda call_id, kind, _: answers.append((call_id, kind)))
    while (1, REFUSED) not in answers:
        heard, data = ray.get(worker.actor.hear.remote(key, heard))
        cut.feed(data)
    assert worker.leave().failed_because is None
    with pytest.raises(ray.exceptions.RayTaskError, match=f"is not {worker.tenure(0)}"):
        ray.get(worker.actor.hear.remote(key, heard))


def test_a_load_says_how_far_it_is_and_who_asks_in_a_newer_epoch_fences_the_older(world, worker):
    (world.folder / "hold").touch()
    words = worker.begin_load()
    report = eventually(lambda: said if (said := worker.report()).progress.bytes_done else None, "some of it has arrived")
    assert (report.level, report.move, report.moving, report.ended, report.tenure) == (Level.COLD, 1, True, None, None)
    assert 0 < report.progress.bytes_done < report.progress.bytes_total == WEIGHT_BYTES
    assert report.progress.percent == 100 * report.progress.bytes_done // WEIGHT_BYTES
    asked = ray.get(worker.actor.query.remote(2, worker.tenure(0)))
    assert (asked.epoch, asked.moving) == (2, True)
    (world.folder / "hold").unlink()
    *_, end = (ray.get(each) for each in words)
    assert (end.failed_because, end.gpu_bytes) == (None, (WEIGHT_BYTES,))
    assert worker.take(0) == Outcome("refused", "2"), "it is of the older epoch"
    assert ray.get(worker.actor.take.remote(2, worker.tenure(0))).kind == "overtaken", "it was asked for, and denied"
    assert ray.get(worker.actor.take.remote(2, worker.tenure(1))).replica_id == worker.tenure(1)


def test_a_worker_that_is_killed_in_the_middle_of_a_load_leaves_nothing_and_another_one_loads(world, worker, weights):
    (world.folder / "hold").touch()
    words = worker.begin_load()
    eventually(lambda: worker.report().progress.bytes_done, "some of it has arrived")
    assert world.free_bytes == ROOM_BYTES - WEIGHT_BYTES
    ray.kill(worker.actor)
    with pytest.raises(ray.exceptions.RayActorError):
        [ray.get(each) for each in words]
    eventually(lambda: world.free_bytes == ROOM_BYTES, "its memory is free")
    (world.folder / "hold").unlink()
    workers.append(other := world.worker(next(serials), weights[0]))
    other.open(0, rank=0)
    assert world.handle.total.remote().result(ANSWER_S) == pytest.approx(weights[1])


def test_a_load_that_is_called_off_gives_its_memory_back(world, worker):
    (world.folder / "hold").touch()
    words = worker.begin_load()
    eventually(lambda: worker.report().progress.bytes_done, "some of it has arrived")
    leaving = worker.begin_leave(keep_copy=False)
    eventually(lambda: worker.report().move == worker.moves, "it was told to leave")
    (world.folder / "hold").unlink()
    *_, end = (ray.get(each) for each in words)
    assert end.failed_because == "it was broken off"
    assert ray.get(leaving).failed_because is None
    assert (worker.report().level, world.free_bytes, world.warm_bytes) == (Level.COLD, ROOM_BYTES, 0)


def test_a_busy_worker_leaves_for_somebody_else_only_if_it_need_not_be_idle(world, worker):
    gate = world.folder / "busy"
    worker.open(0, rank=0)
    stream = streamed(world.handle, 2, str(gate))
    next(stream)
    end = worker.leave(if_idle=True)
    assert (end.busy, end.failed_because) == (True, f"{worker.tenure(0)} has 1 calls under way")
    assert world.handle.echo.remote("as before").result(ANSWER_S) == "as before"
    gate.touch()
    list(stream)
    end = eventually(lambda: None if (said := worker.leave(if_idle=True)).busy else said, "it is idle")
    assert (end.failed_because, worker.report().level) == (None, Level.WARM)


def test_what_runs_for_too_long_is_lost_for_its_caller_and_does_not_reach_the_next_tenure(world, worker):
    worker.open(0, rank=0)
    begun = world.folder / "for-ever"
    running = world.handle.for_ever.remote(str(begun))
    eventually(begun.exists, "it runs")
    world.route()
    assert worker.leave(timeout_s=0.1).failed_because is None
    with pytest.raises(ReplicaGoneError):
        running.result(ANSWER_S)
    worker.open(1, rank=0)
    for _ in range(8):  # twice its limit: no place was lost
        assert world.handle.echo.remote("well").result(ANSWER_S) == "well"
    assert ray.get(worker.actor.load.remote()) == 0


def test_user_code_that_cannot_be_cancelled_is_a_failed_move_and_the_rank_is_kept_until_the_process_ends(world, worker):
    worker.open(0, rank=0)
    begun, gate = world.folder / "blocks", world.folder / "unblocked"
    running = world.handle.blocks.remote(str(begun), str(gate))
    eventually(begun.exists, "it runs")
    world.route()
    end = worker.leave(timeout_s=0.1)
    assert end.failed_because == f"RuntimeError: 1 calls of {worker.tenure(0)} still run 1 s after they were cut off"
    assert worker.report().tenure.ranks == (0, 0, 0)
    gate.touch()
    with contextlib.suppress(ReplicaGoneError):
        running.result(ANSWER_S)


def test_moves_are_repeatable_and_older_ones_refused(world, worker):
    worker.load()
    worker.moves -= 1
    worker.load()
    assert worker.leave() == worker_said_again(worker)
    worker.moves = 0
    with pytest.raises(ray.exceptions.RayTaskError, match="move 1 is older than the newest"):
        worker.leave()


def worker_said_again(worker):
    worker.moves -= 1
    return worker.leave()


def test_a_worker_takes_a_tenure_only_while_it_is_hot_and_one_with_a_rank_is_not_replaced(world, worker):
    assert worker.take(0).kind == "failed"
    worker.load()
    assert worker.take(0) == worker.take(0)
    assert worker.change(3, rank=0) == Outcome("refused", f"{worker.report().worker_id} is not {worker.tenure(3)}")
    assert worker.take(1).replica_id == worker.tenure(1), "nobody believed a rank as the former one"
    assert worker.take(0).kind == "overtaken"
    assert worker.change(1, rank=0).kind == "done"
    assert worker.take(2) == Outcome("failed", f"{worker.report().worker_id} is {worker.tenure(1)} still")


def test_a_start_that_fails_leaves_a_worker_whose_next_tenure_may_start(world, worker):
    worker.load()
    worker.take(0)
    failed = worker.change(0, rank=0, user_config="fail", config_id="2")
    assert failed.kind == "failed"
    assert "this config is bad" in failed.detail
    assert worker.leave().failed_because is None
    worker.open(1, rank=0)
    assert world.handle.standing.remote().result(ANSWER_S)[1:3] == (worker.tenure(1), 0)


def test_a_worker_that_has_dropped_its_weights_has_ended_its_user_code_and_loads_no_more(world, worker):
    worker.open(0, rank=0)
    world.route()
    assert worker.leave(keep_copy=False).failed_because is None
    assert (world.folder / "ended").exists()
    assert (worker.report().level, world.free_bytes, world.warm_bytes) == (Level.COLD, ROOM_BYTES, 0)
    *_, end = (ray.get(each) for each in worker.begin_load())
    assert "another process has to load them again" in end.failed_because


def test_world_size_and_limit_reach_the_tenures_to_come(world, worker):
    assert ray.get(worker.actor.announce.remote(1, 5, 7))
    ray.get(worker.actor.limit.remote((1, 1), 1))
    worker.open(0, rank=0)
    assert world.handle.standing.remote().result(ANSWER_S)[3] == 7, "newer than what the initialization said"
    gate = world.folder / "limited"
    stream = streamed(world.handle, 2, str(gate))
    next(stream)
    waits = world.handle.echo.remote("second")
    assert ray.get(worker.actor.load.remote()) == 1
    gate.touch()
    list(stream)
    assert waits.result(ANSWER_S) == "second"
