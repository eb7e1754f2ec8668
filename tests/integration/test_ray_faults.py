"""Replicas that die, fail and hang on a real Ray cluster. Processes are killed with SIGKILL."""

import asyncio
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.ray_local import ANSWER_S, eventually

pytestmark = pytest.mark.slow


def info(serve, name):
    return serve.status().deployments[name]


def holder(serve, name, rank):
    return next((each for each in info(serve, name).replicas if each.rank is not None and each.rank.rank == rank), None)


def healthy(serve, name):
    return eventually(lambda: (now := info(serve, name)).status == "HEALTHY" and now, f"{name} is healthy")


def reports(name):
    from executors.ray_gpu.observation import observe

    return {report.ranks[0]: report for report in observe(name, timeout_s=ANSWER_S) if report.ranks is not None}


def test_a_killed_replica_is_replaced_with_its_rank_and_nobody_else_moves(serve):
    from tests.ray_apps import RankAware

    # Health checks are minutes away: nothing but Ray's word of the death can start the replacement.
    serve.run(RankAware.options(num_replicas=3, health_check_period_s=600).bind(), route_prefix=None)
    before = reports("RankAware")
    os.kill(before[1].endpoint.pid, signal.SIGKILL)
    eventually(lambda: reports("RankAware").get(1, before[1]).endpoint.pid != before[1].endpoint.pid, "rank 1 is back")
    healthy(serve, "RankAware")
    after = reports("RankAware")
    for rank in (0, 2):
        assert (after[rank].endpoint, after[rank].history) == (before[rank].endpoint, before[rank].history)
    assert sorted(report.ranks[2] for report in after.values()) == [0, 1, 2]


def test_several_that_die_at_once_get_their_own_ranks_back(serve):
    from tests.ray_apps import RankAware

    serve.run(RankAware.options(num_replicas=4).bind(), route_prefix=None)
    before = reports("RankAware")
    for rank in (1, 3):
        os.kill(before[rank].endpoint.pid, signal.SIGKILL)
    serve.scale("RankAware", 5)
    eventually(lambda: sorted(reports("RankAware")) == [0, 1, 2, 3, 4], "all five ranks are there")
    healthy(serve, "RankAware")
    after = reports("RankAware")
    assert (after[0].endpoint, after[2].endpoint) == (before[0].endpoint, before[2].endpoint)
    assert {report.world_size for report in after.values()} == {5}


def test_a_failing_init_shows_its_traceback_and_gives_up(serve):
    from executors.ray_gpu.errors import DeploymentFailedError
    from tests.ray_apps import Faulty

    with pytest.raises(DeploymentFailedError) as caught:
        serve.run(Faulty.options(start_backoff_s=0.1).bind("raise"), route_prefix=None)
    assert "ValueError: no such model: tiny" in str(caught.value)
    assert "in __init__" in str(caught.value)
    now = info(serve, "Faulty")
    assert now.status == "DEPLOY_FAILED"
    assert "no such model: tiny" in now.message
    eventually(lambda: reports("Faulty") == {}, "the last one that failed has ended")
    handle = serve.run(Faulty.options(start_backoff_s=0.1).bind(""), route_prefix=None)
    assert handle.remote("well").result(ANSWER_S) == "well", "a good version leaves the failure behind"


def test_code_that_cannot_be_loaded_is_a_failed_start(serve):
    from executors.ray_gpu.errors import DeploymentFailedError

    class Unloadable:
        def __reduce__(self):
            return exec, ("import no_such_module_anywhere",)

        def __call__(self): ...

    def use(_): ...

    with pytest.raises(DeploymentFailedError, match="no_such_module_anywhere"):
        serve.run(
            serve.deployment(start_backoff_s=0.1, ray_actor_options={"num_cpus": 0})(use).bind(Unloadable()), route_prefix=None
        )


def test_a_failed_update_keeps_what_ran_before(serve):
    from executors.ray_gpu.errors import DeploymentFailedError
    from tests.ray_apps import Faulty

    # One at a time, and the good ones stay until their successor is up.
    app = Faulty.options(num_replicas=2, start_backoff_s=0.1, max_surge=1)
    handle = serve.run(app.bind(""), route_prefix=None)
    with pytest.raises(DeploymentFailedError, match="no such model"):
        serve.run(app.bind("raise"), route_prefix=None)
    eventually(lambda: sorted(reports("Faulty")) == [0, 1], "both ranks are held")
    assert handle.remote("still here").result(ANSWER_S) == "still here"


@pytest.mark.night
def test_a_hanging_init_is_ended_by_the_start_time_out_and_delays_nobody(serve):
    from tests.ray_apps import Faulty, double

    serve.run(
        Faulty.options(start_timeout_s=10.0, max_start_failures=2, start_backoff_s=0.1).bind("hang"),
        wait=False,
        route_prefix=None,
    )
    eventually(lambda: reports("Faulty"), "it has its rank, and answers while __init__ hangs")
    first = reports("Faulty")[0].endpoint.pid
    assert serve.run(double.bind(), name="other", route_prefix=None).remote(3).result(ANSWER_S) == 6, (
        "another deployment starts meanwhile"
    )
    eventually(lambda: "not ready 10 s after it was placed" in info(serve, "Faulty").message, "status says why")
    eventually(lambda: not os.path.exists(f"/proc/{first}"), "the process is gone")
    eventually(lambda: info(serve, "Faulty").status == "DEPLOY_FAILED", "it is given up after two times")


def test_a_failing_reconfigure_replaces_the_replica(serve):
    from tests.ray_apps import FaultyConfig

    serve.run(FaultyConfig.options(num_replicas=2, start_backoff_s=0.1).bind(), route_prefix=None)
    serve.update("FaultyConfig", user_config={"how": "raise"})
    eventually(lambda: "this config is bad" in info(serve, "FaultyConfig").message, "status has the traceback")
    eventually(lambda: info(serve, "FaultyConfig").status == "DEPLOY_FAILED", "the config is given up")
    serve.update("FaultyConfig", user_config={"how": "fine"})
    healthy(serve, "FaultyConfig")
    assert sorted(reports("FaultyConfig")) == [0, 1]


def test_a_bad_user_config_takes_one_of_four_and_run_says_so_while_calls_go_on(serve):
    """V5, V6."""
    from executors.ray_gpu.errors import DeploymentFailedError
    from tests.ray_apps import FaultyConfig

    four = FaultyConfig.options(num_replicas=4, max_unavailable=1, start_backoff_s=0.1, idempotent=True)
    handle = serve.run(four.bind(), route_prefix=None)
    before = reports("FaultyConfig")
    ended, answers, serving = threading.Event(), [], []

    def call():
        while not ended.is_set():
            answers.append(handle.remote().result(ANSWER_S))
            replicas = info(serve, "FaultyConfig").replicas
            serving.append(sum(each.state in ("RUNNING", "RECONFIGURING") for each in replicas))

    with ThreadPoolExecutor() as threads:
        calls = threads.submit(call)
        try:
            with pytest.raises(DeploymentFailedError, match="this config is bad"):
                serve.run(four.options(user_config={"how": "raise"}).bind(), route_prefix=None)
            eventually(lambda: sorted(reports("FaultyConfig")) == [0, 1, 2, 3], "the proven one is back on rank 0")
        finally:
            ended.set()
        calls.result()
    assert min(serving) >= 3
    assert all(answer == [""] for answer in answers)
    assert info(serve, "FaultyConfig").status == "DEPLOY_FAILED"
    after = reports("FaultyConfig")
    assert [after[rank].endpoint for rank in (1, 2, 3)] == [before[rank].endpoint for rank in (1, 2, 3)]


@pytest.mark.parametrize("how", ["raise", "hang"])
def test_an_unhealthy_replica_is_replaced_with_its_rank(serve, tmp_path, how):
    from tests.ray_apps import Sickly

    sick = tmp_path / "sick"
    handle = serve.run(Sickly.options(num_replicas=1).bind(str(sick), how), route_prefix=None)
    first = handle.remote().result(ANSWER_S)
    sick.touch()
    eventually(lambda: not os.path.exists(f"/proc/{first}"), "the sick process is gone")
    sick.unlink()
    eventually(lambda: reports("Sickly").get(0) and reports("Sickly")[0].ready, "rank 0 is held again")
    assert handle.remote().result(ANSWER_S) != first


@pytest.mark.parametrize("how", ["false", "raise", "hang"])
def test_a_replica_that_is_not_ready_gets_no_calls_until_it_is_and_lives_on(serve, tmp_path, how):
    """V16: off and on the routes, 0 kills, 0 moves; the call that it has is answered."""
    from tests.ray_apps import Moody

    handle = serve.run(Moody.options(num_replicas=2).bind(str(tmp_path)), route_prefix=None)
    before = reports("Moody")
    gate = tmp_path / "gate"
    under_way = handle.options(rank=1).slow.remote(str(gate))
    eventually(lambda: Path(f"{gate}.begun").exists(), "the call runs")
    closed = tmp_path / "closed-1"
    closed.write_text(how)
    eventually(lambda: "unready for" in holder(serve, "Moody", 1).message, "rank 1 is unready")
    assert {handle.remote().result(ANSWER_S) for _ in range(20)} == {0}
    described = info(serve, "Moody")
    assert described.status == "UNHEALTHY"
    assert "rank 1 unready for" in str(described.rollout)
    gate.touch()
    assert under_way.result(ANSWER_S) == 1
    closed.unlink()
    eventually(lambda: info(serve, "Moody").status == "HEALTHY", "it is back")
    assert {handle.remote().result(ANSWER_S) for _ in range(40)} == {0, 1}
    after = reports("Moody")
    assert [after[rank].endpoint for rank in (0, 1)] == [before[rank].endpoint for rank in (0, 1)]
    assert [len(after[rank].history) for rank in (0, 1)] == [1, 1]


@pytest.mark.night
def test_calls_that_run_longer_than_the_health_check_harm_nobody(serve, tmp_path):
    from tests.ray_apps import Faulty

    handle = serve.run(Faulty.options(health_check_period_s=0.1, health_check_timeout_s=10.0).bind(), route_prefix=None)
    begun = handle.slow.remote(str(tmp_path / "go"))
    eventually((tmp_path / "go.begun").exists, "the call runs")
    pid = reports("Faulty")[0].endpoint.pid
    with pytest.raises(TimeoutError):
        begun.result(timeout_s=12.0)
    (tmp_path / "go").touch()
    assert begun.result(ANSWER_S) == "done"
    assert reports("Faulty")[0].endpoint.pid == pid


def test_any_number_of_callers_on_other_nodes_leaves_room_for_the_controllers_own(serve):
    import ray

    from tests.ray_apps import Faulty

    serve.run(Faulty.options(graceful_shutdown_timeout_s=0.1).bind(), route_prefix=None)
    replica = ray.get_actor(reports("Faulty")[0].endpoint.actor_name, namespace="rankcore")
    under_way = [replica.hear.remote(f"caller {number}", 0) for number in range(1200)]
    assert ray.get(replica.beliefs.remote(), timeout=ANSWER_S).ready
    assert len(under_way) == 1200, "and none has ended"


def test_a_call_that_its_caller_gives_up_harms_no_later_one(serve):
    from tests.ray_apps import Faulty

    handle = serve.run(Faulty.bind(), route_prefix=None)

    async def give_up():
        await asyncio.wait_for(handle.doze.remote(3600), 0.1)

    with pytest.raises(TimeoutError):
        asyncio.run(give_up())
    handle.doze.remote(0.5).result(ANSWER_S)
    assert handle.remote("here").result(ANSWER_S) == "here"


def test_a_downscale_waits_for_the_calls_that_run(serve, tmp_path):
    from tests.ray_apps import Faulty

    handle = serve.run(Faulty.options(num_replicas=1, graceful_shutdown_timeout_s=ANSWER_S).bind(), route_prefix=None)
    answers = [handle.slow.remote(str(tmp_path / f"go{number}")) for number in range(5)]
    eventually(lambda: len(list(tmp_path.glob("go*.begun"))) == 5, "all calls run")
    serve.scale("Faulty", 0)
    eventually(lambda: [each.state for each in info(serve, "Faulty").replicas] == ["DRAINING"], "it drains")
    assert not any(answer.done() for answer in answers)
    for number in range(5):
        (tmp_path / f"go{number}").touch()
    assert [answer.result(ANSWER_S) for answer in answers] == ["done"] * 5
    eventually(lambda: info(serve, "Faulty").replicas == (), "it has ended")


def test_a_call_that_never_ends_is_cut_off_by_the_time_out(serve, tmp_path):
    from executors.ray_gpu.errors import ReplicaGoneError
    from tests.ray_apps import Faulty

    handle = serve.run(Faulty.options(num_replicas=1, graceful_shutdown_timeout_s=0.5).bind(), route_prefix=None)
    answer = handle.hang.remote(str(tmp_path / "begun"))
    eventually((tmp_path / "begun").exists, "it runs")
    serve.scale("Faulty", 0)
    eventually(lambda: info(serve, "Faulty").replicas == (), "it has ended")
    with pytest.raises(ReplicaGoneError):
        answer.result(ANSWER_S)


def test_no_call_is_lost_while_replicas_come_and_go(serve):
    from tests.ray_apps import double

    handle = serve.run(double.options(num_replicas=3).bind(), route_prefix=None)
    answers = []
    for wanted in (1, 3, 2, 4, 1):
        serve.scale("double", wanted)
        answers += [handle.remote(len(answers) + index) for index in range(100)]
    assert [answer.result(ANSWER_S) for answer in answers] == [2 * index for index in range(500)]


@pytest.mark.parametrize("state", ["STARTING", "RUNNING", "RECONFIGURING", "DRAINING"])
def test_a_replica_killed_in_any_phase_keeps_the_promises(serve, tmp_path, state):
    from executors.ray_gpu.errors import ReplicaGoneError
    from tests.ray_apps import Faulty, FaultyConfig

    gate = tmp_path / "gate"
    name = "FaultyConfig" if state == "RECONFIGURING" else "Faulty"
    if state == "STARTING":
        serve.run(Faulty.options(num_replicas=2).bind("wait", str(gate)), wait=False, route_prefix=None)
        eventually(lambda: len(reports(name)) == 2, "both have their ranks")
    elif state == "RECONFIGURING":
        serve.run(FaultyConfig.options(num_replicas=2, config_rollout="at_once").bind(), route_prefix=None)
        serve.update(name, user_config={"how": "wait", "gate": str(gate)})
        eventually(lambda: all((tmp_path / f"gate.{rank}").exists() for rank in (0, 1)), "both reconfigure")
    else:
        handle = serve.run(Faulty.options(num_replicas=2).bind(), route_prefix=None)
    if state == "DRAINING":
        eventually(lambda: len({handle.pid.remote().result(ANSWER_S) for _ in range(2)}) == 2, "calls reach both")
        answers = [handle.slow.remote(str(gate)) for _ in range(4)]
        eventually(lambda: len(list(tmp_path.glob("gate.begun.*"))) == 2, "calls run on both")
        by_rank = info(serve, name).ranks
        serve.stop_replicas([by_rank[1]])
    eventually(lambda: (held := holder(serve, name, 1)) is not None and held.state == state, f"rank 1 is {state}")
    other, victim = reports(name)[0].endpoint.pid, reports(name)[1].endpoint.pid
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: reports(name).get(1) is not None and reports(name)[1].endpoint.pid != victim, "rank 1 is held again")
    gate.touch()
    healthy(serve, name)
    after = reports(name)
    assert sorted(after) == [0, 1]
    assert after[0].endpoint.pid == other
    if state == "DRAINING":
        for answer in answers:
            try:
                assert answer.result(ANSWER_S) == "done"
            except ReplicaGoneError:
                continue  # it was the victim's


def test_a_replica_killed_before_it_is_placed_is_started_again(serve):
    import ray

    from executors.ray_gpu import names
    from tests.ray_apps import double

    # One processor is busy with the first, so that the second waits for room.
    serve.run(double.options(num_replicas=2, ray_actor_options={"num_cpus": 3}).bind(), wait=False, route_prefix=None)
    waiting = eventually(
        lambda: next((each for each in info(serve, "double").replicas if each.message.startswith("it waits for room")), None),
        "one waits for room",
    )
    ray.kill(ray.get_actor(names.actor_name("default/double", waiting.replica_id), namespace="rankcore"))
    again = eventually(
        lambda: next(
            (each for each in info(serve, "double").replicas if each.node_id is None and each.replica_id != waiting.replica_id),
            None,
        ),
        "another one waits in its place",
    )
    assert again.state == "REQUESTED"
    serve.delete("double", timeout_s=ANSWER_S)


def is_gone(pid):
    """Whether it does nothing any more; its parent may not have taken notice yet."""
    from executors.ray_gpu.os_processes import ended

    return ended(pid, None, force=False)


def test_a_replica_that_somebody_else_kills_is_gone_before_its_rank_is_held_again(serve):
    import ray

    from tests.ray_apps import Faulty

    serve.run(Faulty.options(spares=1, health_check_period_s=600).bind(), route_prefix=None)
    eventually(lambda: info(serve, "Faulty").spares == 1, "a spare could take over at once")
    victim = reports("Faulty")[0].endpoint
    os.kill(victim.pid, signal.SIGSTOP)
    try:
        ray.kill(ray.get_actor(victim.actor_name, namespace="rankcore"))
        eventually(
            lambda: (found := holder(serve, "Faulty", 0)) is not None and found.pid not in (None, victim.pid), "replaced"
        )
        assert is_gone(victim.pid)
    finally:
        if os.path.exists(f"/proc/{victim.pid}"):
            os.kill(victim.pid, signal.SIGCONT)


def test_a_stopped_process_is_unhealthy_and_gone_before_its_rank_is_held_again(serve):
    from tests.ray_apps import Faulty

    serve.run(Faulty.options(num_replicas=2, health_check_period_s=0.2, health_check_timeout_s=10.0).bind(), route_prefix=None)
    victim = reports("Faulty")[1].endpoint.pid
    os.kill(victim, signal.SIGSTOP)
    try:
        # Ray calls an actor dead as soon as it has told its process so, which a stopped one does not hear for seconds.
        replacement = eventually(
            lambda: (found := holder(serve, "Faulty", 1)) is not None and found.pid not in (None, victim) and found, "replaced"
        )
        assert is_gone(victim)
        assert replacement.rank.rank == 1
    finally:
        if os.path.exists(f"/proc/{victim}"):
            os.kill(victim, signal.SIGCONT)


def test_a_spare_takes_over_with_the_rank_and_another_one_comes(serve):
    from executors.ray_gpu.discovery import find_replicas
    from tests.ray_apps import RankAware

    serve.run(RankAware.options(num_replicas=2, spares=1).bind("a"), route_prefix=None)
    eventually(lambda: info(serve, "RankAware").spares == 1, "a spare stands by")
    ours = {each.replica_id for each in info(serve, "RankAware").replicas}
    (spare,) = set(find_replicas("rankcore")["default/RankAware"]) - ours
    os.kill(reports("RankAware")[1].endpoint.pid, signal.SIGKILL)
    eventually(lambda: 1 in (now := reports("RankAware")) and now[1].endpoint.replica_id == spare, "the spare has rank 1")
    eventually(lambda: info(serve, "RankAware").spares == 1, "another one stands by")
    serve.run(RankAware.options(num_replicas=2, spares=1).bind("b"), route_prefix=None)
    assert serve.get_deployment_handle("RankAware").which_build.remote().result(ANSWER_S) == "b"
    eventually(lambda: info(serve, "RankAware").spares == 1, "one of the new version stands by")
    serve.delete("RankAware")
    assert find_replicas("rankcore") == {}, "spares go with their deployment"


@pytest.mark.night
def test_spares_of_an_older_controller_are_not_taken_for_replicas(serve):
    from executors.ray_gpu.discovery import find_replicas
    from tests.ray_apps import RankAware

    serve.run(RankAware.options(num_replicas=1, spares=1).bind(), route_prefix=None)
    eventually(lambda: info(serve, "RankAware").spares == 1, "a spare stands by")
    before = serve.status()
    os.kill(before.controller_pid, signal.SIGKILL)
    eventually(lambda: serve.status().epoch > before.epoch, "a new controller")
    healthy(serve, "RankAware")
    eventually(lambda: info(serve, "RankAware").spares == 1, "a new spare stands by")
    assert sorted(info(serve, "RankAware").ranks) == [0]
    eventually(lambda: len(find_replicas("rankcore")["default/RankAware"]) == 2, "the old spare is gone")
