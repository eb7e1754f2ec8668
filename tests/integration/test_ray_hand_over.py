"""V4 on a real Ray cluster: with `hand_over="prepared"` a successor's user code is up before its predecessor goes."""

import os
import signal

import pytest

from tests.ray_load import Calls
from tests.ray_local import ANSWER_S, eventually

pytestmark = pytest.mark.slow

HANDING_OVER = {"num_replicas": 3, "max_surge": 1, "max_unavailable": 1, "hand_over": "prepared"}


def info(serve, name):
    return serve.status().deployments[name]


def reports(name):
    from executors.ray_gpu.observation import observe

    return observe(name, timeout_s=ANSWER_S)


def by_rank(name):
    return {report.ranks[0]: report.endpoint.pid for report in reports(name) if report.ranks is not None}


def prepared(name):
    return [report.endpoint.pid for report in reports(name) if report.ranks is None and report.prepared]


def life(folder, pid):
    """What a replica wrote down, in order: when, and what."""
    lines = (line.split(maxsplit=1) for line in (folder / str(pid)).read_text().splitlines())
    return [(float(at), what) for at, what in lines]


def test_each_successor_is_up_before_its_predecessor_ends_and_only_its_reconfigure_runs_after(serve, tmp_path):
    from tests.ray_apps import ComesUpWithoutRank

    deployment = ComesUpWithoutRank.options(**HANDING_OVER, min_ready_s=0.2)
    handle = serve.run(deployment.bind(str(tmp_path), "a"), route_prefix=None)
    before = by_rank("ComesUpWithoutRank")
    for rank, pid in before.items():
        assert [what for _, what in life(tmp_path, pid)] == ["begins True", "up a", f"given {rank}"], (
            "who succeeds nobody has a rank"
        )
    with Calls(handle) as calls:
        serve.run(deployment.bind(str(tmp_path), "b"), route_prefix=None)
    assert calls.failed == []
    after = by_rank("ComesUpWithoutRank")
    assert sorted(after) == sorted(before) == [0, 1, 2]
    for rank, pid in after.items():
        (_, began), (up_at, up), (given_at, given) = life(tmp_path, pid)
        assert (began, up, given) == ("begins False", "up b", f"given {rank}")
        ended_at, ended = life(tmp_path, before[rank])[-1]
        assert ended == "ends"
        assert up_at < ended_at < given_at, f"rank {rank}"


def test_while_a_successor_does_not_come_up_everybody_serves(serve, tmp_path):
    from tests.ray_apps import ComesUpWithoutRank

    deployment = ComesUpWithoutRank.options(**HANDING_OVER, min_ready_s=0.0)
    handle = serve.run(deployment.bind(str(tmp_path), "a"), route_prefix=None)
    before = by_rank("ComesUpWithoutRank")
    closed = tmp_path / "closed-b"
    closed.touch()
    with pytest.raises(TimeoutError):
        serve.run(deployment.bind(str(tmp_path), "b"), timeout_s=5.0, route_prefix=None)
    assert by_rank("ComesUpWithoutRank") == before
    with Calls(handle) as calls:
        closed.unlink()
        eventually(lambda: not set(by_rank("ComesUpWithoutRank").values()) & set(before.values()), "all are updated")
        eventually(lambda: info(serve, "ComesUpWithoutRank").status == "HEALTHY", "it is healthy")
    assert calls.failed == []


def test_a_restarted_controller_finds_who_is_prepared_and_lets_it_succeed(serve, tmp_path):
    from tests.ray_apps import ComesUpWithoutRank

    def deploy(build, min_ready_s, **options):
        deployment = ComesUpWithoutRank.options(**{**HANDING_OVER, "num_replicas": 1}, min_ready_s=min_ready_s)
        return serve.run(deployment.bind(str(tmp_path), build), **options, route_prefix=None)

    deploy("a", 0.0)
    before = by_rank("ComesUpWithoutRank")
    with pytest.raises(TimeoutError):
        deploy("b", 3600.0, timeout_s=1.0)
    (successor,) = eventually(lambda: prepared("ComesUpWithoutRank"), "its successor is prepared")
    os.kill(serve.status().controller_pid, signal.SIGKILL)
    eventually(lambda: info(serve, "ComesUpWithoutRank").status == "UPDATING", "the next controller has taken over")
    assert by_rank("ComesUpWithoutRank") == before
    deploy("b", 0.0)
    assert by_rank("ComesUpWithoutRank") == {0: successor}
    assert [what for _, what in life(tmp_path, successor)] == ["begins False", "up b", "given 0"]


def test_a_class_that_reads_its_rank_in_init_fails_with_what_to_do_and_all_old_ones_serve(serve):
    from tests.ray_apps import RankAware

    deployment = RankAware.options(**HANDING_OVER, max_start_failures=1, start_backoff_s=0.05)
    handle = serve.run(deployment.bind("a"), route_prefix=None)
    before = by_rank("RankAware")
    with Calls(handle) as calls, pytest.raises(serve.DeploymentFailedError) as failed:
        serve.run(deployment.bind("b"), route_prefix=None)
    assert "has no rank yet: with hand_over='prepared' or 'overlap' user code starts while its predecessor has it." in str(
        failed.value
    )
    assert "Ask in reconfigure(self, user_config, rank) or in a call, use rank_or_none, or leave hand_over" in str(failed.value)
    assert by_rank("RankAware") == before
    assert calls.failed == []
