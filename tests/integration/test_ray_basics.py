"""Deploying on a real Ray cluster: ranks, contexts, reconfigure, handles; what is wrong is said clearly."""

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from tests.ray_local import ANSWER_S, eventually

pytestmark = pytest.mark.slow


def ranks(serve, name):
    return sorted(serve.status().deployments[name].ranks)


def told(reports):
    return {report.ranks[0]: report for report in reports if report.ranks is not None}


def test_replicas_see_their_ranks_before_init_and_in_calls(serve):
    from tests.ray_apps import RankAware

    handle = serve.run(RankAware.options(num_replicas=4).bind(), route_prefix=None)
    seen = {}
    while len(seen) < 4:
        rank, world_size = handle.remote().result(ANSWER_S)
        seen[rank.rank] = (rank, world_size)
    assert sorted(seen) == [0, 1, 2, 3]
    assert sorted(rank.local_rank for rank, _ in seen.values()) == [0, 1, 2, 3]
    assert {(rank.node_rank, world_size) for rank, world_size in seen.values()} == {(0, 4)}
    (first_rank, first_world_size), calls = handle.history.remote().result(ANSWER_S)
    assert first_world_size == 4
    assert calls == [({"name": "v1"}, first_rank)], "reconfigure is called once, after __init__"


def test_the_example_of_ray_serve_runs_with_only_the_import_changed(serve):
    namespace = {}
    exec(  # as a user's main module would define it
        """
class ModelShard:
    def __init__(self):
        context = serve.get_replica_context()
        self.rank = context.rank.rank
        self.world_size = context.world_size

    async def reconfigure(self, user_config, rank):
        self.rank = rank.rank
        self.name = user_config["name"]

    async def __call__(self):
        return {"rank": self.rank, "name": self.name, "world_size": self.world_size}
""",
        {"serve": serve, "__name__": "__main__"},
        namespace,
    )
    options = {"num_replicas": 2, "user_config": {"name": "model_v1"}, "ray_actor_options": {"num_cpus": 0}}
    app = serve.deployment(**options)(namespace["ModelShard"]).bind()
    handle = serve.run(app, route_prefix=None)
    answers = set()
    eventually(lambda: answers.add(handle.remote().result()["rank"]) or answers == {0, 1}, "both have answered")


def test_an_application_takes_the_place_of_the_one_before_it_as_in_ray_serve(serve):
    from tests.ray_apps import ConfigOnly, RankAware

    # Four replicas with a processor each fill the cluster: the second application has room only where the first one was.
    serve.run(RankAware.options(num_replicas=4, ray_actor_options={"num_cpus": 1}).bind(), route_prefix=None)
    handle = serve.run(
        ConfigOnly.options(num_replicas=4, ray_actor_options={"num_cpus": 1}).bind(), timeout_s=ANSWER_S, route_prefix=None
    )
    answers = set()
    eventually(lambda: answers.add(handle.remote().result(ANSWER_S)[0]) or answers == {0, 1, 2, 3}, "all four have answered")
    eventually(lambda: sorted(serve.status().deployments) == ["default/ConfigOnly"], "the first one is gone")


def test_one_class_bound_twice_is_two_deployments_and_one_of_another_application_is_a_third(serve):
    @serve.deployment(ray_actor_options={"num_cpus": 0})
    class Part:
        def __init__(self, word):
            self.word = word

        def __call__(self):
            context = serve.get_replica_context()
            return self.word, context.app_name, context.deployment

    @serve.deployment(ray_actor_options={"num_cpus": 0})
    class Whole:
        def __init__(self, *parts):
            self.parts = parts

        async def __call__(self):
            return [await each.remote() for part in self.parts for each in (part if isinstance(part, list) else [part])]

        def found(self):
            own, far = serve.get_deployment_handle("Part"), serve.get_app_handle("other")
            return own.app_name, far.app_name

    def pids(name):
        return [each.pid for each in serve.status().deployments[name].replicas]

    far = serve.run(Part.bind("far"), name="other", route_prefix=None)
    before = pids("other/Part")
    handle = serve.run(Whole.bind(Part.bind("left"), [Part.bind("right")], far), name="both", route_prefix=None)
    said = [("left", "both", "Part"), ("right", "both", "Part_1"), ("far", "other", "Part")]
    assert handle.remote().result(ANSWER_S) == said
    assert handle.found.remote().result(ANSWER_S) == ("both", "other")
    status = serve.status()
    assert sorted(status.deployments) == ["both/Part", "both/Part_1", "both/Whole", "other/Part"]
    assert {name: sorted(each.deployments) for name, each in status.applications.items()} == {
        "both": ["Part", "Part_1", "Whole"],
        "other": ["Part"],
    }
    serve.scale("Part_1", 2)
    assert serve.status().deployments["both/Part"].world_size == 1
    os.kill(status.controller_pid, signal.SIGKILL)
    eventually(lambda: serve.status().epoch > status.epoch, "the next controller")
    assert handle.remote().result(ANSWER_S) == said
    serve.run(Whole.bind(Part.bind("left"), far), name="both", route_prefix=None)
    assert handle.remote().result(ANSWER_S) == [said[0], said[2]]
    eventually(
        lambda: sorted(serve.status().deployments) == ["both/Part", "both/Whole", "other/Part"], "the second part is gone"
    )
    serve.delete("both")
    assert (sorted(serve.status().deployments), pids("other/Part")) == (["other/Part"], before)


def test_an_upscale_reaches_everybody_at_once_and_calls_no_user_code(serve):
    from executors.ray_gpu.observation import observe
    from tests.ray_apps import RankAware

    handle = serve.run(RankAware.options(num_replicas=2).bind(), route_prefix=None)
    before = {report.ranks: report.endpoint.pid for report in observe("RankAware")}
    serve.scale("RankAware", 3)
    eventually(
        lambda: all(report.world_size == 3 for report in observe("RankAware") if report.endpoint.pid in before.values()),
        "the old replicas know the new world size",
    )
    eventually(lambda: ranks(serve, "RankAware") == [0, 1, 2], "the newcomer has the lowest free rank")
    after = {report.ranks: report.endpoint.pid for report in observe("RankAware")}
    assert before.items() <= after.items(), "an upscale moves nobody"
    for _ in range(6):
        _, calls = handle.history.remote().result(ANSWER_S)
        assert len(calls) == 1


def test_a_downscale_closes_gaps_and_tells_those_who_moved(serve):
    from executors.ray_gpu.observation import observe
    from tests.ray_apps import RankAware

    handle = serve.run(RankAware.options(num_replicas=4).bind(), route_prefix=None)
    by_rank = serve.status().deployments["RankAware"].ranks
    serve.scale("RankAware", 2, stop_first=[by_rank[0], by_rank[1]])
    eventually(lambda: ranks(serve, "RankAware") == [0, 1], "ranks are contiguous")
    # A rank is in the book when it is sent, and believed when it arrives.
    reports = eventually(
        lambda: (found := observe("RankAware")) and sorted(report.ranks[0] for report in found) == [0, 1] and found, "two left"
    )
    assert {report.endpoint.replica_id for report in reports} == {by_rank[2], by_rank[3]}
    assert {report.world_size for report in reports} == {2}
    for _ in range(4):
        (first, _), calls = handle.history.remote().result(ANSWER_S)
        assert first.rank in (2, 3)
        assert calls[-1][1].rank in (0, 1)
        assert calls[-1][0] == {"name": "v1"}, "a rank change comes with the config that is there"


def test_a_new_user_config_reaches_all_in_place(serve):
    from tests.ray_apps import RankAware

    handle = serve.run(RankAware.options(num_replicas=2).bind(), route_prefix=None)
    pids = {each.pid for each in serve.status().deployments["RankAware"].replicas}
    serve.update("RankAware", user_config={"name": "v2", "layers": [1, 2]})

    def all_have_it():
        histories = [handle.history.remote().result(ANSWER_S)[1] for _ in range(4)]
        return all(calls[-1][0] == {"name": "v2", "layers": [1, 2]} for calls in histories)

    eventually(all_have_it, "both replicas have the new config")
    assert {each.pid for each in serve.status().deployments["RankAware"].replicas} == pids


def test_reconfigure_without_a_rank_is_not_called_on_rank_changes(serve):
    from tests.ray_apps import ConfigOnly, NoConfig

    config_only = serve.run(ConfigOnly.options(num_replicas=3).bind(), route_prefix=None)
    no_config = serve.run(NoConfig.options(num_replicas=3).bind(), name="other", route_prefix=None)
    for name in ("ConfigOnly", "NoConfig"):
        by_rank = serve.status().deployments[name].ranks
        serve.scale(name, 2, stop_first=[by_rank[0]])
        eventually(lambda name=name: ranks(serve, name) == [0, 1], "ranks are contiguous")
    for _ in range(4):
        rank, world_size, calls = config_only.remote().result(ANSWER_S)
        assert rank in (0, 1)
        assert world_size == 2
        assert calls == [{}], "an empty user_config counts, and is given once"
        rank, calls = no_config.remote().result(ANSWER_S)
        assert rank in (0, 1), "the context shows the new rank all the same"
        assert calls == 0


def test_functions_and_handles_within_replicas_work(serve):
    from tests.ray_apps import Caller, double

    handle = serve.run(Caller.bind(double.bind()), route_prefix=None)
    assert handle.remote(20).result(ANSWER_S) == 41
    assert serve.get_deployment_handle("double").remote(x=4).result(ANSWER_S) == 8


def test_the_same_run_again_changes_nothing_and_new_code_replaces_all(serve):
    from tests.ray_apps import RankAware

    serve.run(RankAware.options(num_replicas=2).bind("a"), route_prefix=None)
    before = serve.status().deployments["RankAware"]
    serve.run(RankAware.options(num_replicas=2).bind("a"), route_prefix=None)
    assert serve.status().deployments["RankAware"] == before
    handle = serve.run(RankAware.options(num_replicas=2).bind("b"), route_prefix=None)
    after = serve.status().deployments["RankAware"]
    assert sorted(after.ranks) == [0, 1]
    assert not {each.pid for each in before.replicas} & {each.pid for each in after.replicas}
    assert {handle.which_build.remote().result(ANSWER_S) for _ in range(4)} == {"b"}


def test_many_callers_at_once_get_their_own_answers(serve):
    from tests.ray_apps import double

    handle = serve.run(double.options(num_replicas=2).bind(), route_prefix=None)
    wrong = []

    def call(base):
        for x in range(base, base + 50):
            if handle.remote(x).result(ANSWER_S) != 2 * x:
                wrong.append(x)

    threads = [threading.Thread(target=call, args=(1000 * index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_deleting_ends_calls_with_a_clear_error(serve):
    from executors.ray_gpu.errors import UnknownNameError
    from tests.ray_apps import double

    handle = serve.run(double.bind(), route_prefix=None)
    assert handle.remote(1).result(ANSWER_S) == 2
    serve.delete("double")
    assert serve.status().deployments == {}
    with pytest.raises(UnknownNameError, match="default/double does not exist"):
        handle.remote(1).result(ANSWER_S)
    with pytest.raises(UnknownNameError, match="there is no deployment 'double'"):
        serve.get_deployment_handle("double")


def test_stop_replicas_replaces_each_with_its_rank(serve):
    from executors.ray_gpu.errors import UnknownNameError
    from tests.ray_apps import RankAware

    serve.run(RankAware.options(num_replicas=3).bind(), route_prefix=None)
    before = serve.status().deployments["RankAware"].ranks
    serve.stop_replicas([before[1]])

    def replaced():
        now = serve.status().deployments["RankAware"]
        return now.status == "HEALTHY" and now.ranks.get(1) not in (None, before[1]) and now.ranks

    after = eventually(replaced, "rank 1 has another holder")
    assert (after[0], after[2]) == (before[0], before[2])
    with pytest.raises(UnknownNameError, match="there is no replica"):
        serve.stop_replicas(["RankAware#9.9"])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_replicas": -1}, "num_replicas must be an integer from 0 to 10000000, got -1"),
        ({"health_check_period_s": 0}, "health_check_period_s must be a finite number of seconds, above 0"),
        ({"ray_actor_options": {"num_gpus": -1}}, "num_gpus cannot be negative"),
    ],
)
def test_bad_options_are_refused_before_anything_runs(serve, options, text):
    from executors.ray_gpu.errors import InvalidDeploymentError
    from tests.ray_apps import double

    with pytest.raises(InvalidDeploymentError, match=text):
        serve.run(double.options(**options).bind(), route_prefix=None)


def test_what_cannot_be_pickled_is_named(serve):
    from executors.ray_gpu.errors import InvalidDeploymentError
    from tests.ray_apps import Caller

    with pytest.raises(InvalidDeploymentError, match=r"argument 0 of Caller.bind cannot be pickled"):
        serve.run(Caller.bind(threading.Lock()), route_prefix=None)

    lock = threading.Lock()

    class Holder:
        def __call__(self):
            return lock

    with pytest.raises(InvalidDeploymentError, match=r"Holder.*cannot be pickled"):
        serve.run(serve.deployment(Holder).bind(), route_prefix=None)


def test_a_name_in_use_by_another_class_is_refused(serve):
    from executors.ray_gpu.errors import NameInUseError
    from tests.ray_apps import NoConfig, double

    serve.run(double.bind(), route_prefix=None)
    with pytest.raises(NameInUseError, match=r"default/double is the name of a deployment of tests\.ray_apps\.double already"):
        serve.run(NoConfig.options(name="double").bind(), route_prefix=None)
    serve.run(NoConfig.options(name="double").bind(), replace=True, route_prefix=None)
    assert serve.status().deployments["double"].class_name == "tests.ray_apps.NoConfig"


def test_an_update_that_is_not_allowed_changes_nothing(serve):
    from executors.ray_gpu.errors import InvalidDeploymentError
    from tests.ray_apps import double

    serve.run(double.bind(), route_prefix=None)
    with pytest.raises(InvalidDeploymentError, match="num_replicas must be an integer"):
        serve.scale("double", -2)
    with pytest.raises(InvalidDeploymentError, match="update cannot change 'ray_actor_options'"):
        serve.update("double", ray_actor_options={})
    assert serve.status().deployments["double"].world_size == 1


def test_a_request_that_no_node_can_meet_is_told_in_status(serve):
    from tests.ray_apps import double

    serve.run(double.options(ray_actor_options={"num_cpus": 0, "num_gpus": 8}).bind(), wait=False, route_prefix=None)
    info = serve.status().deployments["double"]
    assert info.message == "no node can ever hold it: it asks for GPU 8; the largest node has GPU 0"
    assert [each.state for each in info.replicas] == ["REQUESTED"]
    serve.delete("double", timeout_s=ANSWER_S)


def test_exceptions_of_calls_come_back_and_the_replica_lives_on(serve):
    from tests.ray_apps import Faulty

    handle = serve.run(Faulty.bind(), route_prefix=None)
    with pytest.raises(KeyError, match="not here") as caught:
        handle.remote("raise").result(ANSWER_S)
    assert "in __call__" in str(caught.value.__cause__)
    assert "ray_apps.py" in str(caught.value.__cause__)
    with pytest.raises(AttributeError, match="Faulty has no method 'fly'"):
        handle.fly.remote().result(ANSWER_S)
    assert handle.remote("ok").result(ANSWER_S) == "ok"


def test_a_call_whose_replica_dies_fails_and_says_so(serve):
    from executors.ray_gpu.errors import ReplicaGoneError
    from tests.ray_apps import Faulty

    handle = serve.run(Faulty.bind(), route_prefix=None)
    with pytest.raises(ReplicaGoneError, match=r"replica default/Faulty#\d+\.0 died while it ran this call"):
        handle.remote("exit").result(ANSWER_S)
    assert handle.remote("ok").result(ANSWER_S) == "ok", "a call waits for the replacement"


def test_nothing_listens_beyond_this_machine(serve):
    from tests.ray_apps import double

    serve.run(double.bind(), route_prefix=None)
    ours = {str(os.getpid())}
    pids = {int(each) for each in os.listdir("/proc") if each.isdigit()}
    family = _descendants(int(next(iter(ours))), pids)
    sockets = {socket for pid in family for socket in _open_files(pid)}
    open_to_all = [
        line
        for path in ("/proc/net/tcp", "/proc/net/tcp6")
        for line in Path(path).read_text().splitlines()[1:]
        if line.split()[3] == "0A" and f"socket:[{line.split()[9]}]" in sockets and not _is_loopback(line.split()[1])
    ]
    assert open_to_all == []


def _descendants(root, pids):
    parents = {}
    for pid in pids:
        try:
            parents[pid] = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    family = {root}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return family


def _open_files(pid):
    """What a process has open, as far as it still has it when it is looked at."""
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return
    for number in numbers:
        with suppress(OSError):
            yield os.readlink(f"/proc/{pid}/fd/{number}")


def _is_loopback(local_address):
    address = local_address.partition(":")[0]
    return address.endswith("0100007F") or address == "00000000000000000000000001000000"
