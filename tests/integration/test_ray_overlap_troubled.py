"""Overlap on a real Ray cluster on a bad day: processes that stand still, controllers that die, others who deploy and call."""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack

import pytest

from tests.ray_load import Calls
from tests.ray_local import ANSWER_S, PATIENCE_S, eventually

pytestmark = [pytest.mark.slow, pytest.mark.night]

NAME = "ServesWithoutRank"
N = 2
OPTIONS = {
    "num_replicas": N,
    "max_surge": 1,
    "max_unavailable": 0,
    "hand_over": "overlap",
    "start_backoff_s": 0.05,
    "idempotent": True,
    "health_check_period_s": 0.2,
    "health_check_timeout_s": 2.0,
    "graceful_shutdown_timeout_s": 3.0,
}


def info(serve, name=NAME):
    return serve.status().deployments[name]


def reports(name=NAME):
    from executors.ray_gpu.observation import observe

    return observe(name, timeout_s=ANSWER_S)


def replicas(serve, version=None):
    return [each for each in info(serve).replicas if version in (None, each.version)]


def deploy(serve, folder, build, min_ready_s=0.0, wait=True, **options):
    from tests.ray_apps import ServesWithoutRank

    deployment = ServesWithoutRank.options(**{**OPTIONS, **options}, version=build, min_ready_s=min_ready_s)
    return serve.run(deployment.bind(str(folder), build), wait=wait, route_prefix=None)


def is_whole(serve, version):
    now = info(serve)
    ranks = sorted(each.rank.rank for each in now.replicas if each.state == "RUNNING" and each.version == version)
    return now.status == "HEALTHY" and ranks == list(range(N))


def whole(serve, version="b"):
    return eventually(lambda: is_whole(serve, version), f"all run version {version}")


class Stopped:
    """A process that stands still, from the beginning of a `with` to its end, if it is there by then."""

    def __init__(self, pid):
        self.pid = pid

    def __enter__(self):
        os.kill(self.pid, signal.SIGSTOP)

    def __exit__(self, *_):
        if os.path.exists(f"/proc/{self.pid}"):
            os.kill(self.pid, signal.SIGCONT)


def prepared(serve):
    return next((each for each in replicas(serve, "b") if each.state == "PREPARED"), None)


def test_a_successor_that_stands_still_on_the_routes_is_replaced_and_the_update_goes_on(serve, tmp_path):
    handle = deploy(serve, tmp_path, "a")
    before = {each.pid for each in replicas(serve)}
    deploy(serve, tmp_path, "b", min_ready_s=4.0, wait=False)
    stuck = eventually(lambda: prepared(serve), "a successor is prepared")
    eventually(lambda: handle.remote().result(ANSWER_S)["pid"] == stuck.pid, "it takes calls")
    with Calls(handle) as calls, Stopped(stuck.pid):
        eventually(lambda: stuck.replica_id not in {each.replica_id for each in replicas(serve)}, "it is replaced")
        assert "check_health has not answered for 2 s" in info(serve).message
        assert before <= {each.pid for each in replicas(serve)}, "nobody has gone for it"
        whole(serve)
    assert calls.failed == []


def test_a_successor_that_stands_still_while_it_is_told_its_rank_is_replaced(serve, tmp_path):
    handle = deploy(serve, tmp_path, "a")
    (tmp_path / "no-ranks").touch()
    deploy(serve, tmp_path, "b", wait=False)
    (report,) = eventually(lambda: [each for each in reports() if each.ranks and not each.ready], "the rank is handed over")
    stuck = report.endpoint.pid
    with Calls(handle) as calls, Stopped(stuck):
        (tmp_path / "no-ranks").unlink()
        eventually(lambda: stuck not in {each.pid for each in replicas(serve)}, "it is replaced")
        assert "check_health has not answered for 2 s" in info(serve).message
        whole(serve)
    assert calls.failed == []


def test_a_predecessor_that_stands_still_while_it_is_retired_holds_nothing_up(serve, tmp_path):
    handle = deploy(serve, tmp_path, "a")
    long_call = handle.options(rank=0).wait_for.remote("long")
    eventually((tmp_path / "long-begun").exists, "a call of a predecessor is under way")
    deploy(serve, tmp_path, "b", wait=False)
    leaving = eventually(lambda: PHASES["predecessor leaves"](serve), "who has the call is told to go")
    with Calls(handle) as calls, Stopped(leaving.pid):
        eventually(lambda: leaving.pid not in {each.pid for each in replicas(serve)}, "it has ended")
        whole(serve)
        (tmp_path / "long").touch()
        assert long_call.result(ANSWER_S)[0]["build"] == "b", "its call is done again by who has its rank"
    assert calls.failed == []


def test_a_successor_that_stands_still_before_its_user_code_is_up_is_replaced(serve, tmp_path):
    handle = deploy(serve, tmp_path, "a")
    with Calls(handle) as calls:
        deploy(serve, tmp_path, "b", wait=False, start_timeout_s=3.0)
        stuck = eventually(lambda: next((e for e in replicas(serve, "b") if e.pid is not None), None), "a successor is there")
        with Stopped(stuck.pid):
            eventually(lambda: stuck.replica_id not in {each.replica_id for each in replicas(serve)}, "it is replaced")
            assert stuck.replica_id in info(serve).message
            whole(serve)
    assert calls.failed == []


@pytest.mark.parametrize("who", ["successor", "predecessor", "both"])
def test_a_controller_that_finds_processes_that_stand_still_goes_on_without_them(serve, tmp_path, who):
    handle = deploy(serve, tmp_path, "a")
    (tmp_path / "no-ranks").touch()
    held = handle.options(rank=0).wait_for.remote("held")
    eventually((tmp_path / "held-begun").exists, "a call holds a predecessor back")
    deploy(serve, tmp_path, "b", wait=False)
    leaving = eventually(lambda: PHASES["predecessor leaves"](serve), "it is told to go")
    successor = eventually(lambda: prepared(serve), "its successor is prepared")
    epoch = serve.status().epoch
    pids = {"successor": [successor.pid], "predecessor": [leaving.pid], "both": [successor.pid, leaving.pid]}[who]
    with ExitStack() as stack:
        calls = stack.enter_context(Calls(handle))
        for pid in pids:
            stack.enter_context(Stopped(pid))
        os.kill(serve.status().controller_pid, signal.SIGKILL)
        eventually(lambda: serve.status().epoch > epoch, "there is another controller")
        eventually(lambda: "reports are outstanding of" in info(serve).rollout, "what it waits for is said")
        (tmp_path / "held").touch()
        (tmp_path / "no-ranks").unlink()
        whole(serve)
        assert held.result(ANSWER_S)[0]["rank"] == 0
    assert calls.failed == []


PHASES = {
    "starting": lambda serve: next((e for e in replicas(serve, "b") if e.state in ("REQUESTED", "PLACED")), None),
    "preparing": lambda serve: next((e for e in replicas(serve, "b") if e.state == "PREPARING"), None),
    "on the routes": prepared,
    "predecessor leaves": lambda serve: next((e for e in replicas(serve, "a") if e.state == "DRAINING"), None),
    "told its rank": lambda serve: next((e for e in replicas(serve, "b") if e.state == "STARTING"), None),
    "first of two done": lambda serve: next((e for e in replicas(serve, "b") if e.state == "RUNNING"), None),
}


@pytest.mark.parametrize("phase", PHASES)
def test_a_controller_that_dies_in_any_phase_costs_no_call_and_the_update_ends(serve, tmp_path, phase):
    handle = deploy(serve, tmp_path, "a", health_check_timeout_s=30.0)
    with Calls(handle) as calls:
        (tmp_path / "no-ranks").touch()
        held = handle.options(rank=0).wait_for.remote("held") if phase == "predecessor leaves" else None
        if held is not None:
            eventually((tmp_path / "held-begun").exists, "a call holds a predecessor back")
        if phase not in ("told its rank", "predecessor leaves"):
            (tmp_path / "no-ranks").unlink()
        min_ready_s = 1.0 if phase == "on the routes" else 0.0
        deploy(serve, tmp_path, "b", min_ready_s=min_ready_s, wait=False, health_check_timeout_s=30.0)
        eventually(lambda: PHASES[phase](serve), phase)
        epoch = serve.status().epoch
        os.kill(serve.status().controller_pid, signal.SIGKILL)
        eventually(lambda: serve.status().epoch > epoch, "there is another controller")
        if held is not None:
            (tmp_path / "held").touch()
            held.result(ANSWER_S)
        (tmp_path / "no-ranks").unlink(missing_ok=True)
        whole(serve)
    assert calls.failed == []


SECOND = """
import sys, time, ray
from pathlib import Path
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="warning")
from executors import ray_gpu as serve
from tests.ray_apps import RankAware
folder = Path(sys.argv[2])
theirs = serve.get_deployment_handle("ServesWithoutRank")
answered, failed = 0, []
rounds = 0
(folder / "second-is-there").touch()
while not (folder / "second-ends").exists():
    rounds += 1
    mine = serve.run(RankAware.options(num_replicas=2, version=str(rounds)).bind(), name="second")
    for handle in (mine, theirs) * 20:
        try:
            handle.remote().result(60)
            answered += 1
        except Exception as error:
            failed.append(repr(error)[:300])
print(rounds, answered, failed)
serve.delete("second")
"""


def test_another_driver_deploys_its_own_and_calls_both_during_updates(serve, tmp_path):
    import ray

    handle = deploy(serve, tmp_path, "a")
    address = ray.get_runtime_context().gcs_address
    second = subprocess.Popen([sys.executable, "-c", SECOND, address, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        with Calls(handle) as calls:
            eventually((tmp_path / "second-is-there").exists, "the other driver is there")
            for build in "bcdef":
                deploy(serve, tmp_path, build)
                whole(serve, build)
            (tmp_path / "second-ends").touch()
            said, _ = second.communicate(timeout=PATIENCE_S)
        assert calls.failed == []
        assert second.returncode == 0
        rounds, answered, failed = said.split(maxsplit=2)
        assert (int(rounds) > 0, int(answered) > 0, failed.strip()) == (True, True, "[]")
    finally:
        second.kill()
        second.wait()
