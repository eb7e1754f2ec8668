"""Restarts, canaries, pauses, stalls, roll-backs and retries of deployments on a real Ray cluster."""

import re

import pytest

from tests.ray_local import ANSWER_S, eventually

pytestmark = pytest.mark.slow


def info(serve, name):
    return serve.status().deployments[name]


def reports(name):
    from executors.ray_gpu.observation import observe

    return {report.ranks[0]: report for report in observe(name, timeout_s=ANSWER_S) if report.ranks is not None}


def settled(serve, name, tokens):
    """Once it is healthy, and its replicas have these tokens by rank."""

    def there():
        found = reports(name)
        return (
            info(serve, name).status == "HEALTHY" and [found[rank].restart_token for rank in sorted(found)] == tokens and found
        )

    return eventually(there, f"{name} is healthy with the tokens {tokens}")


def test_a_restart_replaces_each_replica_once_and_the_same_application_again_none(serve):
    from tests.ray_apps import RankAware

    application = RankAware.options(num_replicas=3, max_unavailable=1).bind()
    handle = serve.run(application, route_prefix=None)
    before = reports("RankAware")
    serve.restart("RankAware", token="monday")
    while info(serve, "RankAware").status != "HEALTHY":
        assert handle.remote().result(ANSWER_S)[1] == 3, "two of three serve at every moment"
    after = settled(serve, "RankAware", ["monday"] * 3)
    assert not {each.endpoint.pid for each in before.values()} & {each.endpoint.pid for each in after.values()}
    serve.run(application, route_prefix=None)
    assert {rank: each.endpoint for rank, each in settled(serve, "RankAware", ["monday"] * 3).items()} == {
        rank: each.endpoint for rank, each in after.items()
    }


def test_a_canary_a_crash_below_it_a_restarted_controller_and_its_promotion(serve):
    import os
    import signal

    from tests.ray_apps import RankAware

    def builds():
        found = reports("RankAware")
        return [found[rank].version for rank in sorted(found)]

    serve.run(RankAware.options(num_replicas=4).bind("a"), route_prefix=None)
    (old,) = set(builds())
    serve.run(RankAware.options(num_replicas=4, partition=3).bind("b"), route_prefix=None)
    new = builds()[3]
    assert builds() == [old, old, old, new]
    assert info(serve, "RankAware").rollout == "partitioned: 1 of 4 updated, 4 of 4 available"
    os.kill(serve.status().controller_pid, signal.SIGKILL)
    crashed = reports("RankAware")[0].endpoint.pid
    os.kill(crashed, signal.SIGKILL)
    eventually(lambda: 0 in (found := reports("RankAware")) and found[0].endpoint.pid != crashed, "rank 0 is back")
    eventually(lambda: info(serve, "RankAware").status == "HEALTHY", "the next controller has taken over")
    assert builds() == [old, old, old, new]
    serve.promote("RankAware", "50%")
    eventually(
        lambda: info(serve, "RankAware").rollout == "partitioned: 2 of 4 updated, 4 of 4 available", "half of them are updated"
    )
    assert builds() == [old, old, new, new]
    serve.pause("RankAware")
    eventually(lambda: info(serve, "RankAware").rollout == "paused: 2 of 4 updated, 4 of 4 available", "it is paused")
    serve.resume("RankAware")
    eventually(lambda: builds() == [new] * 4, "all are updated")
    eventually(lambda: info(serve, "RankAware").status == "HEALTHY", "it is healthy")
    assert info(serve, "RankAware").rollout == ""


def test_a_stalled_update_says_what_it_waits_for_and_goes_back_when_asked(serve):
    from tests.ray_apps import RankAware

    options = {
        "num_replicas": 2,
        "max_unavailable": 1,
        "progress_deadline_s": 2.0,
        "repeat_period_s": 0.5,
        "scarcity_after_s": None,
    }
    handle = serve.run(RankAware.options(**options).bind("a"), route_prefix=None)
    before = reports("RankAware")
    with pytest.raises(serve.InvalidDeploymentError, match="was healthy with what is wanted now"):
        serve.rollback("RankAware")
    with pytest.raises(TimeoutError):
        serve.run(
            RankAware.options(**options, ray_actor_options={"num_cpus": 10_000}).bind("b"), timeout_s=1.0, route_prefix=None
        )
    waits = r"waits: no room, 1 of 2: rank 0 has no place \(.*CPU 10000.*\)"
    stalled = re.compile(rf"stalled for \d+ s: 0 of 2 updated, 1 of 2 available, {waits}")
    eventually(lambda: stalled.fullmatch(info(serve, "RankAware").rollout), "it is stalled, and says why")
    serve.rollback("RankAware")
    eventually(lambda: info(serve, "RankAware").status == "HEALTHY", "it is healthy")
    after = reports("RankAware")
    assert {each.version for each in after.values()} == {before[0].version}
    assert after[1].endpoint.pid == before[1].endpoint.pid, "who was not updated stays"
    assert info(serve, "RankAware").rollout == ""
    assert handle.remote().result(ANSWER_S)[1] == 2


def test_what_was_given_up_is_rolled_out_once_its_cause_is_mended(serve, tmp_path):
    from tests.ray_apps import NeedsFile

    there = tmp_path / "there"
    application = NeedsFile.options(num_replicas=2, max_start_failures=1).bind(str(there))
    with pytest.raises(serve.DeploymentFailedError):
        serve.run(application, route_prefix=None)
    there.touch()
    serve.retry("NeedsFile")
    eventually(lambda: info(serve, "NeedsFile").status == "HEALTHY", "it is healthy")
    with pytest.raises(serve.InvalidDeploymentError, match="waits for no back-off, and was not given up"):
        serve.retry("NeedsFile", ranks=[1])
    with pytest.raises(serve.InvalidDeploymentError, match="has no rank 2"):
        serve.retry("NeedsFile", ranks=[2])
