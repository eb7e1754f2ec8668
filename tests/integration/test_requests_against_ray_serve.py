"""What the pages say of Ray Serve, tried with it: the same program on one cluster, run by Ray Serve and by rankcore.

`tests/unit/test_claims_about_ray_serve.py` has the sentences, and which test stands for each.
"""

import asyncio
import os
import threading
import time
import urllib.error
import urllib.request

import pytest

from tests.free_ports import free_ports
from tests.ray_local import ANSWER_S, eventually, start_ray

pytestmark = [pytest.mark.slow, pytest.mark.night]  # five minutes, most of which Ray Serve takes to start and stop
pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install 'ray[serve]'")

HTTP_TIMEOUT_S = 2.0
QUICK = {"ray_actor_options": {"num_cpus": 0}}


class Subject:
    """What is asked of both."""

    async def __init__(self):
        self.ready = await asyncio.sleep(0, result=True)
        self.gate = threading.Event()

    async def pid(self):
        return os.getpid()

    async def loop(self):
        return type(asyncio.get_running_loop()).__module__

    def wait(self):
        return self.gate.wait(30)

    async def open(self):
        self.gate.set()

    async def echo(self, value):
        return value

    async def hold(self, path):
        if not os.path.exists(path):
            open(f"{path}.begun", "w").close()
        while not os.path.exists(path):
            await asyncio.sleep(0.01)
        return self.ready

    async def assigned(self):
        import ray

        return ray.get_runtime_context().get_assigned_resources()

    def die(self):
        os._exit(1)

    async def die_in(self, pid):
        if pid == os.getpid():
            os._exit(1)
        return os.getpid()

    async def fail_in(self, pid):
        if pid == os.getpid():
            raise ValueError("this one")
        return os.getpid()


class Web:
    """Answers HTTP requests, dies, or takes too long."""

    async def __call__(self, request):
        match request.url.path.rpartition("/")[2]:
            case "die":
                os._exit(1)
            case "wait":
                await asyncio.sleep(60)
        return "ok"


class Other:
    """Something else under the name of the first."""

    async def pid(self):
        return os.getpid()


def models(api):
    class Models:
        def __init__(self):
            self.loads = []
            self.unloads = 0

        @api.multiplexed(max_num_models_per_replica=2)
        async def model(self, model_id):
            self.loads.append(model_id)
            return f"model {model_id}"

        async def __call__(self):
            model = await self.model(api.get_multiplexed_model_id())
            return model, list(self.loads), os.getpid()

        @api.batch(max_batch_size=4, batch_wait_timeout_s=5.0)
        async def together(self, values):
            return [(api.get_multiplexed_model_id(), len(values), each) for each in values]

    return Models


class Theirs:
    """Ray Serve."""

    def __init__(self, port):
        from ray import serve

        self.api = serve
        self.port = port
        serve.start(
            proxy_location="HeadOnly",
            http_options={"host": "127.0.0.1", "port": port, "request_timeout_s": HTTP_TIMEOUT_S},
            logging_config={"log_level": "ERROR"},
        )

    def run(self, target, *, app="default", route_prefix=None, **options):
        deployed = self.api.deployment(target).options(graceful_shutdown_timeout_s=0.1, **{**QUICK, **options})
        return self.api.run(deployed.bind(), name=app, route_prefix=route_prefix)

    def get(self, path):
        """Status of an HTTP request; None: nobody listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=ANSWER_S) as found:
                return found.status
        except urllib.error.HTTPError as error:
            return error.code
        except urllib.error.URLError:
            return None

    def shutdown(self):
        self.api.shutdown()


class Ours(Theirs):
    """Rankcore."""

    def __init__(self, port):
        from executors import ray_gpu

        self.api = ray_gpu
        self.port = port

    def run(self, target, *, app="default", route_prefix=None, **options):
        if route_prefix is not None:
            self.api.start(http_options={"port": self.port, "request_timeout_s": HTTP_TIMEOUT_S}, proxy_location="HeadOnly")
        deployed = self.api.deployment(**{**QUICK, **options})(target)
        return self.api.run(deployed.bind(), name=app, route_prefix=route_prefix)


@pytest.fixture(scope="module")
def cluster():
    import ray
    from ray import serve

    start_ray()
    try:
        yield
        serve.shutdown()
    finally:
        ray.shutdown()


@pytest.fixture(scope="module", params=[Theirs, Ours], ids=["Ray Serve", "rankcore"])
def side(cluster, request):
    made = request.param(free_ports(1)[0])
    yield made
    made.shutdown()


@pytest.fixture
def theirs(side):
    return isinstance(side, Theirs) and not isinstance(side, Ours)


@pytest.fixture(scope="module")
def subject(side):
    return side.run(Subject, app="subject", max_ongoing_requests=100)


def answer(response):
    return response.result(timeout_s=ANSWER_S)


# -- the same in both


def test_user_code_runs_on_uvloop(subject):
    pytest.importorskip("uvloop", reason="uvloop is not installed: pip install 'rankcore[http]'")
    assert answer(subject.loop.remote()).startswith("uvloop")


def test_a_synchronous_method_blocks_no_asynchronous_one(subject):
    waiting = subject.wait.remote()
    answer(subject.open.remote())
    assert answer(waiting)


def test_an_init_may_be_asynchronous(subject, tmp_path):
    (tmp_path / "go").touch()
    assert answer(subject.hold.remote(str(tmp_path / "go")))


def test_waiting_with_result_in_asynchronous_code_is_an_error_that_says_await(side, subject):
    async def wait():
        response = subject.echo.remote(1)
        with pytest.raises(side.api.InvalidCallError if isinstance(side, Ours) else RuntimeError, match="await"):
            response.result(timeout_s=ANSWER_S)
        return await response

    assert asyncio.run(wait()) == 1


def test_a_response_inside_a_list_is_an_error(subject):
    with pytest.raises(Exception, match=r"(?i)response|pickle|serializ"):
        answer(subject.echo.remote([subject.echo.remote(1)]))


def test_models_are_kept_by_how_lately_they_were_asked_for(side):
    handle = side.run(models(side.api), app="models")
    loads = [answer(handle.options(multiplexed_model_id=each).remote())[1] for each in "abacb"]
    assert loads == [["a"], ["a", "b"], ["a", "b"], ["a", "b", "c"], ["a", "b", "c", "b"]]


def test_a_batch_has_one_model_which_user_code_can_ask_for(side):
    handle = side.run(models(side.api), app="models", max_ongoing_requests=10)
    calls = [handle.options(multiplexed_model_id=each).together.remote(at) for at, each in enumerate("abab")]
    assert [answer(each) for each in calls] == [("a", 2, 0), ("b", 2, 1), ("a", 2, 2), ("b", 2, 3)]


def test_references_to_objects_of_ray_are_objects_in_the_replica(side):
    import ray

    @ray.remote(num_cpus=0)
    def fails():
        raise ValueError("no object")

    handle = side.run(Subject, app="subject")
    assert answer(handle.echo.remote(ray.put({"a": 1}))) == {"a": 1}
    assert answer(handle.echo.remote(value=ray.put(2))) == 2
    (inside,) = answer(handle.echo.remote([ray.put(3)]))
    assert ray.get(inside) == 3, "what is inside of another value stays a reference"
    with pytest.raises(Exception, match="no object"):
        answer(handle.echo.remote(fails.remote()))


# -- otherwise


def test_to_one_rank_there_is_no_option_there(side, theirs):
    handle = side.run(Subject, app="subject", num_replicas=2)
    if theirs:
        with pytest.raises(TypeError, match="rank"):
            handle.options(rank=0)
    else:
        every = answer(handle.options(broadcast=True).pid.remote())
        assert [answer(handle.options(rank=rank).pid.remote()) for rank in (0, 1)] == every


def test_to_all_and_what_one_of_them_raises(side):
    handle = side.run(Subject, app="subject", num_replicas=2)
    pids = handle.broadcast("pid").results(timeout_s=ANSWER_S)
    assert len(set(pids)) == 2
    assert asyncio.run(awaited(handle)) == sorted(pids)
    raised = handle.broadcast("fail_in", pids[0]).results(timeout_s=ANSWER_S, return_exceptions=True)
    assert pids[1] in raised
    assert [isinstance(each, ValueError) for each in raised].count(True) == 1
    with pytest.raises(ValueError, match="this one"):
        handle.broadcast("fail_in", pids[0]).results(timeout_s=ANSWER_S)


def test_to_all_of_whom_one_dies(side):
    handle = side.run(Subject, app="subject", num_replicas=2)
    pids = handle.broadcast("pid").results(timeout_s=ANSWER_S)
    found = handle.broadcast("die_in", pids[0]).results(timeout_s=ANSWER_S, return_exceptions=True)
    assert pids[1] in found
    assert [isinstance(each, Exception) for each in found].count(True) == 1


async def awaited(handle):
    return sorted(await handle.broadcast("pid").results_async(timeout_s=ANSWER_S))


def test_what_waits_is_limited_per_handle_there_and_per_process_here(side, theirs, tmp_path):
    first = side.run(Subject, app="subject", max_ongoing_requests=1, max_queued_requests=1)
    second = side.api.get_deployment_handle("Subject", "subject")
    assert answer(first.pid.remote()) == answer(second.pid.remote())
    path = tmp_path / "go"
    calls = [first.hold.remote(str(path))]
    eventually(lambda: len(list(tmp_path.iterdir())) == 1, "it has begun")
    calls += [first.hold.remote(str(path)), second.hold.remote(str(path))]
    time.sleep(0.5 if theirs else 0)  # Ray Serve counts a call that waits once its router has looked for a replica
    calls += [first.hold.remote(str(path)), second.hold.remote(str(path))]
    path.touch()
    assert [answer_or_limit(each) for each in calls].count("too many") == (2 if theirs else 3)


def answer_or_limit(response):
    try:
        return response.result(timeout_s=ANSWER_S)
    except Exception as error:
        if type(error).__name__ not in ("BackPressureError", "OverloadedError"):
            raise
        return "too many"


def test_a_call_whose_replica_dies_is_an_error_unless_it_is_said_to_be_idempotent_here(side, theirs):
    handle = side.run(Subject, app="subject")
    answer(handle.pid.remote())
    with pytest.raises(Exception, match=r"(?i)died|dead") as caught:
        answer(handle.die.remote())
    assert type(caught.value).__name__ == ("ActorDiedError" if theirs else "ReplicaGoneError")


# -- docs/ray.md: names, applications, and what is deployed again


def pid_of(handle):
    return answer(handle.pid.remote())


def test_what_is_deployed_again_unchanged_is_replaced_there_and_stays_here(side, theirs):
    before = pid_of(side.run(Subject, app="subject"))
    assert (pid_of(side.run(Subject, app="subject")) == before) != theirs


def test_another_class_under_the_name_replaces_it_there_and_is_refused_here(side, theirs):
    before = pid_of(side.run(Subject, app="subject"))
    if theirs:
        assert pid_of(side.run(Other, app="subject", name="Subject")) != before
    else:
        with pytest.raises(side.api.InvalidDeploymentError, match="replace=True"):
            side.run(Other, app="subject", name="Subject")


def test_an_application_replaces_the_one_of_its_name_and_its_deployments_go(side):
    side.run(Subject, app="subject")
    side.run(Other, app="subject")

    def deployments():
        return set(side.api.status().applications["subject"].deployments)

    eventually(lambda: deployments() == {"Other"}, "what the first one had is gone")


def test_names_belong_to_their_application(side):
    one, other = (side.run(Other, app=name) for name in ("one", "other"))
    pids = {"one": pid_of(one), "other": pid_of(other)}
    assert len(set(pids.values())) == 2
    found = side.api.status().applications
    assert [list(found[name].deployments) for name in pids] == [["Other"], ["Other"]]
    assert {name: pid_of(side.api.get_app_handle(name)) for name in pids} == pids
    assert {name: pid_of(side.api.get_deployment_handle("Other", name)) for name in pids} == pids
    assert {name: pid_of(side.api.get_deployment_handle("Other", app_name=name)) for name in pids} == pids
    side.api.delete("one")
    eventually(lambda: "one" not in side.api.status().applications, "it is deleted")
    assert pid_of(other) == pids["other"]
    with pytest.raises(Exception, match="one"):
        side.api.get_app_handle("one")
    side.api.delete("other")


def test_a_class_that_is_bound_twice_is_two_deployments(side):
    api = side.api

    class Pair:
        def __init__(self, *parts):
            self.parts = parts

        async def pids(self):
            return [await part.pid.remote() for part in self.parts]

        def own(self):
            return api.get_deployment_handle("Other").app_name

    part = side.api.deployment(**QUICK)(Other)
    pair = side.api.deployment(**QUICK)(Pair).bind(part.bind(), part.bind())
    handle = side.api.run(pair, name="pair", route_prefix=None)
    assert sorted(side.api.status().applications["pair"].deployments) == ["Other", "Other_1", "Pair"]
    assert answer(handle.pids.remote()) == [
        pid_of(side.api.get_deployment_handle(name, "pair")) for name in ("Other", "Other_1")
    ]
    side.api.delete("pair")


def test_a_bare_name_is_no_name_outside_an_application_there_and_is_enough_here_where_one_has_it(side, theirs):
    side.run(Other, app="subject")
    if theirs:
        with pytest.raises(Exception, match=r"(?i)app"):
            side.api.get_deployment_handle("Other")
    else:
        assert isinstance(pid_of(side.api.get_deployment_handle("Other")), int)
        side.run(Other, app="second")
        with pytest.raises(side.api.UnknownNameError, match="may be any of: second/Other, subject/Other"):
            side.api.get_deployment_handle("Other")
        side.api.delete("second")


def test_a_replica_asks_for_one_processor_where_nothing_is_said(side):
    handle = side.run(Subject, app="subject", ray_actor_options={})
    assert answer(handle.assigned.remote()).get("CPU") == 1


# -- docs/http.md


def test_http_is_always_on_there_and_with_the_first_route_here(side, theirs):
    side.run(Subject, app="subject")
    assert side.get("/nothing") == (404 if theirs else None)
    side.run(Web, app="web", route_prefix="/web")
    eventually(lambda: side.get("/web") == 200, "the application answers")
    assert side.get("/nothing") == 404


@pytest.fixture(scope="module")
def web(side):
    side.run(Web, app="web", route_prefix="/web")
    eventually(lambda: side.get("/web") == 200, "the application answers")
    return side


def test_over_http_a_request_that_takes_too_long_is_408_there_and_504_here(web, theirs):
    assert web.get("/web/wait") == (408 if theirs else 504)


def test_over_http_a_replica_that_dies_is_500_there_and_502_here(web, theirs):
    assert web.get("/web/die") == (500 if theirs else 502)


def test_a_handle_of_an_ingress_runs_its_methods(web):
    fastapi = pytest.importorskip("fastapi", reason="FastAPI is not installed: pip install 'rankcore[test]'")
    application = fastapi.FastAPI()

    @web.api.ingress(application)
    class Ingress:
        @application.get("/page")
        def page(self):
            return self.name()

        def name(self):
            return "ingress"

    handle = web.run(Ingress, app="ingress", route_prefix="/ingress")
    eventually(lambda: web.get("/ingress/page") == 200, "the application answers")
    assert answer(handle.name.remote()) == "ingress"
