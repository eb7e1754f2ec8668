"""The controller is killed with SIGKILL at bad moments: replicas serve on, ranks are learnt again, nothing leaks."""

import os
import signal

import attrs
import pytest
from typer.testing import CliRunner

from executors.cli.app import app
from tests.ray_local import ANSWER_S, eventually

pytestmark = pytest.mark.slow


def info(serve, name):
    return serve.status().deployments[name]


def healthy(serve, name):
    return eventually(lambda: (now := info(serve, name)).status == "HEALTHY" and now, f"{name} is healthy")


def reports(name):
    from executors.ray_gpu.observation import observe

    return {report.ranks[0]: report for report in observe(name, timeout_s=ANSWER_S) if report.ranks is not None}


def crash_controller(serve):
    before = serve.status()
    os.kill(before.controller_pid, signal.SIGKILL)
    return before.epoch


def back(serve, epoch):
    return eventually(lambda: (now := serve.status()).epoch > epoch and now, "a new controller answers")


def settled_ranks(serve, name, world_size):
    healthy(serve, name)
    found = eventually(
        lambda: sorted(now := reports(name)) == list(range(world_size)) and now, f"replicas believe 0..{world_size - 1}"
    )
    assert {report.world_size for report in found.values()} == {world_size}
    assert {rank: report.endpoint.replica_id for rank, report in found.items()} == info(serve, name).ranks
    return found


def nothing_leaks(serve):
    from executors.ray_gpu.discovery import find_replicas

    wanted = {name: sorted(each.replica_id for each in one.replicas) for name, one in serve.status().deployments.items()}
    eventually(lambda: find_replicas("rankcore") == {name: ids for name, ids in wanted.items() if ids}, "only what is wanted")


def stored(name):
    from executors.ray_gpu.checkpoint import Checkpoint

    return next(found.record for found in Checkpoint("rankcore").records(2**31) if found.id_on_ray == name)


def test_replicas_serve_on_and_keep_their_ranks(serve):
    from tests.ray_apps import RankAware

    handle = serve.run(RankAware.options(num_replicas=3).bind(), route_prefix=None)
    before = settled_ranks(serve, "RankAware", 3)
    epoch = crash_controller(serve)
    assert {handle.remote().result(ANSWER_S)[1] for _ in range(6)} == {3}, "calls need no controller"
    back(serve, epoch)
    after = settled_ranks(serve, "RankAware", 3)
    assert {rank: report.endpoint for rank, report in after.items()} == {
        rank: report.endpoint for rank, report in before.items()
    }
    assert {report.epoch for report in after.values()} == {epoch + 1}
    for _ in range(3):
        assert len(handle.history.remote().result(ANSWER_S)[1]) == 1, "user code was not called again"
    nothing_leaks(serve)


def test_a_replica_that_died_meanwhile_is_replaced_with_its_rank(serve):
    from tests.ray_apps import RankAware

    serve.run(RankAware.options(num_replicas=3).bind(), route_prefix=None)
    before = settled_ranks(serve, "RankAware", 3)
    epoch = crash_controller(serve)
    os.kill(before[2].endpoint.pid, signal.SIGKILL)
    os.kill(before[0].endpoint.pid, signal.SIGKILL)
    back(serve, epoch)
    after = settled_ranks(serve, "RankAware", 3)
    assert after[1].endpoint == before[1].endpoint
    nothing_leaks(serve)


def test_an_update_under_way_is_finished(serve):
    from tests.ray_apps import RankAware

    app = RankAware.options(num_replicas=4, max_unavailable=1)
    handle = serve.run(app.bind("a"), route_prefix=None)
    serve.run(app.bind("b"), wait=False, route_prefix=None)
    eventually(lambda: len({each.version for each in info(serve, "RankAware").replicas}) == 2, "the update is half way")
    epoch = crash_controller(serve)
    back(serve, epoch)
    settled_ranks(serve, "RankAware", 4)
    eventually(lambda: {handle.which_build.remote().result(ANSWER_S) for _ in range(4)} == {"b"}, "all have the new build")
    nothing_leaks(serve)


def test_a_version_that_was_given_up_is_not_tried_again(serve):
    from executors.ray_gpu.errors import DeploymentFailedError
    from tests.ray_apps import Faulty

    app = Faulty.options(num_replicas=2, start_backoff_s=0.1, max_surge=1)
    handle = serve.run(app.bind(""), route_prefix=None)
    with pytest.raises(DeploymentFailedError, match="no such model"):
        serve.run(app.bind("raise"), route_prefix=None)
    eventually(lambda: stored("default/Faulty").failed, "the checkpoint says so")
    eventually(lambda: [each.state for each in info(serve, "Faulty").replicas] == ["RUNNING"] * 2, "both ranks are held")
    before = {rank: report.endpoint for rank, report in reports("Faulty").items()}
    epoch = crash_controller(serve)
    back(serve, epoch)
    eventually(lambda: {report.epoch for report in reports("Faulty").values()} == {epoch + 1}, "all have been asked")
    assert info(serve, "Faulty").status == "DEPLOY_FAILED"
    assert {rank: report.endpoint for rank, report in reports("Faulty").items()} == before
    assert handle.remote("still here").result(ANSWER_S) == "still here"
    nothing_leaks(serve)


@pytest.mark.parametrize("moment", range(4))
def test_a_downscale_with_compaction_under_way_is_finished(serve, moment, tmp_path):
    from tests.ray_apps import FaultyConfig

    serve.run(FaultyConfig.options(num_replicas=4).bind(), route_prefix=None)
    by_rank = info(serve, "FaultyConfig").ranks
    serve.scale("FaultyConfig", 2, stop_first=[by_rank[0], by_rank[1]])
    for _ in range(moment):
        serve.status()  # some milliseconds more: draining, stopped, moving, moved
    epoch = crash_controller(serve)
    back(serve, epoch)
    found = settled_ranks(serve, "FaultyConfig", 2)
    # Killed before the spec was stored: the user is told nothing, and all four would be there.
    assert {report.endpoint.replica_id for report in found.values()} <= set(by_rank.values())
    nothing_leaks(serve)


def test_a_rank_move_that_user_code_delays_is_known_to_the_next_controller(serve, tmp_path):
    from tests.ray_apps import FaultyConfig

    gate = tmp_path / "gate"
    serve.run(FaultyConfig.options(num_replicas=2, user_config={"how": ""}, config_rollout="at_once").bind(), route_prefix=None)
    serve.update("FaultyConfig", user_config={"how": "wait", "gate": str(gate)})
    eventually(lambda: all((tmp_path / f"gate.{rank}").exists() for rank in (0, 1)), "both reconfigure")
    epoch = crash_controller(serve)
    assert back(serve, epoch).deployments["FaultyConfig"].status == "RECOVERING", "a query waits for user code"
    gate.touch()
    settled_ranks(serve, "FaultyConfig", 2)
    assert serve.get_deployment_handle("FaultyConfig").remote().result(ANSWER_S) == ["", "wait"], "carried out once"
    nothing_leaks(serve)


def test_starts_under_way_are_adopted_or_begun_again(serve, tmp_path):
    from tests.ray_apps import Faulty

    gate = tmp_path / "gate"
    serve.run(Faulty.options(num_replicas=3).bind("wait", str(gate)), wait=False, route_prefix=None)
    before = eventually(lambda: len(found := reports("Faulty")) == 3 and found, "all run their __init__")
    epoch = crash_controller(serve)
    back(serve, epoch)
    gate.touch()
    after = settled_ranks(serve, "Faulty", 3)
    assert {report.endpoint.pid for report in after.values()} == {report.endpoint.pid for report in before.values()}
    nothing_leaks(serve)


def test_a_start_that_fails_while_nobody_listens_is_told_afterwards(serve, tmp_path):
    from tests.ray_apps import Faulty

    gate = tmp_path / "gate"
    serve.run(Faulty.options(num_replicas=1, start_backoff_s=0.1).bind("raise-later", str(gate)), wait=False, route_prefix=None)
    eventually(lambda: (tmp_path / "gate.begun").exists(), "__init__ runs")
    epoch = crash_controller(serve)
    gate.touch()
    back(serve, epoch)
    eventually(lambda: "too late" in info(serve, "Faulty").message, "status has the traceback")


def test_a_deletion_under_way_is_finished(serve, tmp_path):
    from executors.ray_gpu.discovery import find_replicas
    from tests.ray_apps import Faulty

    handle = serve.run(Faulty.options(num_replicas=2).bind(), route_prefix=None)
    eventually(lambda: len({handle.pid.remote().result(ANSWER_S) for _ in range(2)}) == 2, "calls reach both")
    answers = [handle.slow.remote(str(tmp_path / f"go{number}")) for number in range(2)]
    eventually(lambda: len(list(tmp_path.glob("go?.begun"))) == 2, "both calls run")
    with pytest.raises(TimeoutError):
        serve.delete("Faulty", timeout_s=0.5)
    epoch = crash_controller(serve)
    back(serve, epoch)
    for number in range(2):
        (tmp_path / f"go{number}").touch()
    assert [answer.result(ANSWER_S) for answer in answers] == ["done", "done"]
    eventually(lambda: not serve.status().deployments, "it is deleted")
    eventually(lambda: not find_replicas("rankcore"), "its replicas are gone")


def test_a_replica_that_nobody_wants_is_stopped(serve):
    import ray

    from executors.ray_gpu import names
    from executors.ray_gpu.checkpoint import Checkpoint
    from executors.ray_gpu.discovery import find_replicas
    from tests.ray_apps import RankAware

    serve.run(RankAware.options(num_replicas=2).bind(), route_prefix=None)
    epoch = serve.status().epoch
    stray = names.actor_name("Stray", f"Stray#{epoch}.0")
    code = Checkpoint("rankcore").code("default/RankAware", info(serve, "RankAware").version)
    Checkpoint("rankcore").put_code(type(code)("Stray", *(getattr(code, field) for field in code.__slots__[1:7])))
    from executors.ray_gpu.replica import Replica

    actor = (
        ray.remote(Replica)
        .options(name=stray, namespace="rankcore", lifetime="detached", num_cpus=0)
        .remote("rankcore", "Stray", f"Stray#{epoch}.0", code.version, epoch)
    )
    ray.get(actor.describe.remote())
    assert "Stray" in find_replicas("rankcore")
    back(serve, crash_controller(serve))
    eventually(lambda: "Stray" not in find_replicas("rankcore"), "the stray is stopped")
    settled_ranks(serve, "RankAware", 2)


def test_an_older_controller_is_refused_by_replicas_and_can_start_none(serve):
    import ray
    from ray.exceptions import ActorDiedError

    from executors.ray_gpu import names
    from executors.ray_gpu.messages import Change
    from executors.ray_gpu.replica import Replica
    from tests.ray_apps import RankAware

    serve.run(RankAware.options(num_replicas=1).bind(), route_prefix=None)
    version = info(serve, "RankAware").version
    epoch = back(serve, crash_controller(serve)).epoch
    healthy(serve, "RankAware")
    endpoint = reports("RankAware")[0].endpoint
    actor = ray.get_actor(endpoint.actor_name, namespace="rankcore")
    old = epoch - 1
    assert ray.get(actor.change.remote(Change(old, 10**9, False, (7, 7, 7), 9, None))).kind == "refused"
    assert ray.get(actor.drain.remote(old, 1.0)).kind == "refused"
    assert ray.get(actor.query.remote(old)).kind == "refused"
    assert ray.get(actor.announce.remote(old, 10**9, 9)) is False
    assert reports("RankAware")[0].ranks == (0, 0, 0)
    late_id = f"default/RankAware#{old}.99"
    late = (
        ray.remote(Replica)
        .options(name=names.actor_name("default/RankAware", late_id), namespace="rankcore", lifetime="detached", num_cpus=0)
        .remote("rankcore", "default/RankAware", late_id, version, old)
    )
    with pytest.raises(ActorDiedError, match="was started in epoch"):
        ray.get(late.describe.remote())


SILENT_AND_ENDED = "ended the controller of 'rankcore', its proxies, and what it has: it does not answer\n"


@pytest.mark.night
def test_what_was_shut_down_does_not_come_back_though_the_controller_hung(serve):
    from executors.ray_gpu.errors import NoAnswerError, NotRunningError
    from tests.ray_apps import double

    handle = serve.run(double.bind(), route_prefix=None)
    assert handle.remote(1).result(ANSWER_S) == 2
    (replica,) = (each.pid for each in serve.status().deployments["double"].replicas)
    hung = serve.status().controller_pid
    os.kill(hung, signal.SIGSTOP)
    try:
        with pytest.raises(NoAnswerError, match=r"has not answered 'status' within 0\.[5-9] s"):
            serve.status(timeout_s=0.5)
        done = CliRunner().invoke(app, ["shutdown", "--yes", "--timeout", "0.5"])
        assert (done.exit_code, done.stdout.endswith(SILENT_AND_ENDED)) == (0, True), done.output
        eventually(lambda: not os.path.exists(f"/proc/{replica}"), "its replica is gone")
        with pytest.raises(NotRunningError, match="nothing runs in namespace 'rankcore' any more"):
            handle.remote(1).result(ANSWER_S)
    finally:
        if os.path.exists(f"/proc/{hung}"):
            os.kill(hung, signal.SIGCONT)
    serve.start(proxy_location="Disabled")
    assert serve.status().deployments == {}


@pytest.mark.night
def test_many_crashes_in_a_row_leave_everything_as_it_was(serve):
    from tests.ray_apps import RankAware

    serve.run(RankAware.options(num_replicas=2).bind(), route_prefix=None)
    before = settled_ranks(serve, "RankAware", 2)
    for _ in range(3):
        back(serve, crash_controller(serve))
    after = settled_ranks(serve, "RankAware", 2)
    assert {rank: report.endpoint for rank, report in after.items()} == {
        rank: report.endpoint for rank, report in before.items()
    }
    nothing_leaks(serve)


def test_the_journal_goes_on_over_crashes_and_replays(serve, tmp_path):
    import shutil

    from executors.engine.deployment_lines import replay_cluster
    from executors.engine.replay import replay
    from tests.ray_apps import RankAware

    serve.start(journal=str(tmp_path / "run.jsonl"), proxy_location="Disabled")
    serve.run(RankAware.options(num_replicas=2).bind(), route_prefix=None)
    os.kill(reports("RankAware")[1].endpoint.pid, signal.SIGKILL)
    eventually(lambda: sorted(reports("RankAware")) == [0, 1], "both ranks are there")
    back(serve, crash_controller(serve))
    settled_ranks(serve, "RankAware", 2)
    serve.scale("RankAware", 1)
    settled_ranks(serve, "RankAware", 1)
    serve.delete("RankAware")
    shutil.copy(tmp_path / "run.jsonl", tmp_path / "copy.jsonl")
    result = replay(tmp_path / "copy.jsonl", None)
    assert result.difference is None
    assert result.kind.name == "cluster"
    assert dict(result.state.deployments) == {}
    assert result.steps > 10
    last = {}
    replay_cluster(
        tmp_path / "copy.jsonl",
        lambda _line, _before, _step, parts: last.update({part.entry.deployment: part.step.state for part in parts}),
    )
    assert last["default/RankAware"].status == "DELETED"
    goes_on_in_the_simulator(tmp_path / "copy.jsonl")


def goes_on_in_the_simulator(journal):
    """From a moment at which two replicas run on Ray: one of them crashes, and its replacement has its rank."""
    import json

    from typer.testing import CliRunner

    from executors.cli.app import app
    from executors.engine.reading import JournalReader
    from rankcore.cluster.events import ScaleRequested

    scaled_at = next(entry.at for entry in JournalReader(journal, None) if isinstance(entry.cause, ScaleRequested))
    at, answer, page = str(scaled_at - 0.001), journal.with_suffix(".answer.json"), journal.with_suffix(".html")
    what_if = ["--at", at, "--fault", "rank 1 of RankAware crashes", "--json", str(answer), "--report", str(page)]
    done = CliRunner().invoke(app, ["simulate", "--from", str(journal), *what_if])
    assert done.exit_code == 0, done.stderr
    found = json.loads(answer.read_text())
    went_on, forked = (found[which]["deployments"][0] for which in ("recorded", "forked"))
    assert (went_on["replica_crashes"], forked["replica_crashes"]) == (0, 1)
    assert (forked["ranks_moved"], forked["status"]) == (0, "DELETED")  # as it was in the journal


def test_a_checkpoint_that_cannot_be_read_harms_nobody(serve):
    from ray.experimental import internal_kv

    from executors.ray_gpu import names
    from executors.ray_gpu.discovery import find_replicas
    from tests.ray_apps import RankAware, double

    handle = serve.run(RankAware.options(num_replicas=1).bind(), route_prefix=None)
    assert handle.remote().result(ANSWER_S)[1] == 1
    serve.run(double.bind(), name="other", route_prefix=None)
    key = names.record_key("rankcore", "default/RankAware", stored("default/RankAware").number)
    good = internal_kv._internal_kv_get(key, namespace=names.KV_NAMESPACE)
    internal_kv._internal_kv_put(key, b"{", overwrite=True, namespace=names.KV_NAMESPACE)
    now = back(serve, crash_controller(serve))
    assert sorted(now.deployments) == ["other/double"]
    assert handle.remote().result(ANSWER_S)[1] == 1, "its replica goes on"
    assert len(find_replicas("rankcore")["default/RankAware"]) == 1
    internal_kv._internal_kv_put(key, good, overwrite=True, namespace=names.KV_NAMESPACE)
    back(serve, crash_controller(serve))
    settled_ranks(serve, "RankAware", 1)


@pytest.mark.night
def test_what_was_deployed_before_ids_were_full_keeps_its_id_and_its_replicas(serve):
    """Its code and its record are put into the store under the bare name, as a controller of then has put them."""
    from ray.experimental import internal_kv

    from executors.ray_gpu import names
    from executors.ray_gpu.checkpoint import Checkpoint
    from executors.ray_gpu.requests.handle import DeploymentHandle
    from rankcore.codec import to_plain, write_object
    from tests.ray_apps import RankAware

    def replicas():
        return [(each.rank, each.replica_id, each.pid) for each in info(serve, "default/RankAware").replicas]

    serve.run(RankAware.options(num_replicas=2).bind(), route_prefix=None)
    store = Checkpoint("rankcore")
    eventually(lambda: stored("default/RankAware").previous is not None, "that it was healthy is stored")
    record = stored("default/RankAware")
    code = store.code("default/RankAware", record.spec.version)
    serve.delete("RankAware")
    store.put_code(attrs.evolve(code, deployment="RankAware"))
    spec, previous, routing = (
        {field: value for field, value in to_plain(attrs.evolve(each, name="RankAware")).items() if field != "type"}
        for each in (record.spec, record.previous, record.applied.routing)
    )
    class_name = record.applied.extras["class_name"]
    then = {"spec": spec, "previous": previous, "routing": routing, "class_name": class_name, "app_name": "default"}
    text = write_object({"format": [4, 0], "type": "Record", **then})
    key = names.older_record_key("rankcore", "RankAware")
    internal_kv._internal_kv_put(key, text.encode(), overwrite=True, namespace=names.KV_NAMESPACE)
    back(serve, crash_controller(serve))
    settled_ranks(serve, "RankAware", 2)
    before = replicas()
    assert {replica_id.partition("#")[0] for _, replica_id, _ in before} == {"RankAware"}
    older = DeploymentHandle("RankAware")
    serve.run(RankAware.bind("other"), name="other", route_prefix=None)
    back(serve, crash_controller(serve))
    healthy(serve, "default/RankAware")
    assert replicas() == before
    assert older.which_build.remote().result(ANSWER_S) == "a"
    handle = serve.run(RankAware.options(num_replicas=2).bind("b"), route_prefix=None)
    assert (handle.which_build.remote().result(ANSWER_S), older.which_build.remote().result(ANSWER_S)) == ("b", "b")
    assert {replica_id.partition("#")[0] for _, replica_id, _ in replicas()} == {"RankAware"}
    serve.delete("default")
    assert sorted(serve.status().deployments) == ["other/RankAware"]


def test_a_record_that_the_core_refuses_is_left_alone_and_all_else_is_looked_after(serve):
    from executors.ray_gpu.checkpoint import Checkpoint
    from tests.ray_apps import RankAware

    odd = serve.run(RankAware.bind("odd"), name="odd", route_prefix=None)
    fine = serve.run(RankAware.bind("fine"), name="fine", route_prefix=None)
    pid = odd.pid.remote().result(ANSWER_S)
    record = stored("odd/RankAware")
    Checkpoint("rankcore").put_record(
        attrs.evolve(record, number=record.number + 1, previous=attrs.evolve(record.spec, name="another/RankAware"))
    )
    status = back(serve, crash_controller(serve))
    assert "'another/RankAware'" in status.left_alone["odd/RankAware"]
    assert list(status.deployments) == ["fine/RankAware"]
    healthy(serve, "fine/RankAware")
    os.kill(fine.pid.remote().result(ANSWER_S), signal.SIGKILL)
    successor = f"#{status.epoch}.0"
    eventually(lambda: info(serve, "fine/RankAware").replicas[0].replica_id.endswith(successor), "the replica is replaced")
    assert fine.which_build.remote().result(ANSWER_S) == "fine"
    assert odd.pid.remote().result(ANSWER_S) == pid
    with pytest.raises(serve.UnknownNameError, match="odd/RankAware is left alone: "):
        serve.delete("odd")


def test_a_journal_that_cannot_be_opened_stops_nobody(serve, tmp_path):
    from tests.ray_apps import double

    (tmp_path / "other.txt").write_text("no journal\n")
    serve.start(journal=str(tmp_path / "other.txt"), proxy_location="Disabled")
    assert serve.run(double.bind(), route_prefix=None).remote(2).result(ANSWER_S) == 4
    assert (tmp_path / "other.txt").read_text() == "no journal\n"


def test_another_protocol_or_python_is_refused_with_both_versions(serve, monkeypatch):
    from executors.ray_gpu import connection
    from executors.ray_gpu.errors import VersionMismatchError

    serve.start(proxy_location="Disabled")
    monkeypatch.setattr(connection, "versions", lambda: {"Python": "2.7"})
    connection._known.clear()
    with pytest.raises(VersionMismatchError, match=r"this process has Python 2\.7, the controller Python 3\."):
        serve.status()
