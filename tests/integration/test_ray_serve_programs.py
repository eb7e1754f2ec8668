"""Small programs in the style of Ray Serve's documentation: the same text runs on Ray Serve and here, with other imports.

Each has a `main`, what it returns here (`EXPECTED`), and, where Ray Serve returns something else, what that is and why. The
table in docs/serve-compatibility.md is made of them.
"""

import os
import signal
from pathlib import Path

import pytest

from tests.free_ports import free_ports
from tests.ray_local import ANSWER_S, eventually, start_ray

pytestmark = pytest.mark.slow
pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install 'ray[serve]'")

PROGRAMS = sorted(Path(__file__).with_name("serve_programs").glob("*.py"))
IMPORTS = (
    ("from ray import serve", "from executors import ray_gpu as serve"),
    ("from ray.serve.config import", "from executors.ray_gpu.config import"),
    ("from ray.serve.exceptions import", "from executors.ray_gpu.exceptions import"),
    ("from ray.serve.handle import", "from executors.ray_gpu.handle import"),
    ("from ray.serve.request_router import", "from executors.ray_gpu.request_router import"),
    ("from ray.serve.schema import", "from executors.ray_gpu.schema import"),
)
"""All that differs between the two."""
SERVICE = "ray.serve.generated.serve_pb2_grpc.add_UserDefinedServiceServicer_to_server"
REQUEST_TIMEOUT_S = 4.0
BY_DAY = {
    "backpressure", "broadcast_without_one", "bundles", "cancelled_call", "choose_replica", "config_objects",
    "default_route", "fails_to_start", "grpc_service", "handle_ends", "http_class", "local_testing", "log_files",
    "made_up_ids", "models_where_they_are", "multiplexed_models", "replica_context", "replicas_per_node",
    "router_by_arguments", "router_by_stats", "router_uniform", "run_many", "serializations", "shared_actor",
    "shutdown_async", "status", "task_errors", "trace_context", "user_config",
}  # fmt: skip
"""Programs that `make test` runs; of the others other tests there try the same."""


@pytest.fixture(scope="module")
def cluster():
    import ray

    start_ray(num_cpus=16)
    try:
        yield
    finally:
        ray.shutdown()


def ran(path, serve, ports, *, ours):
    """What `main` of a program returns; it is read as `__main__`, as it is when it is run by itself."""
    http, grpc = ports
    os.environ |= {"SERVE_URL": f"http://127.0.0.1:{http}", "SERVE_GRPC": f"127.0.0.1:{grpc}"}
    served = {"host": "127.0.0.1", "port": http, "request_timeout_s": REQUEST_TIMEOUT_S}
    serve.start(
        proxy_location="HeadOnly",
        http_options=served,
        grpc_options={"port": grpc, "grpc_servicer_functions": [SERVICE]},
    )
    text = path.read_text()
    for theirs, here in IMPORTS if ours else ():
        text = text.replace(theirs, here)
    program = {"__name__": "__main__"}
    exec(compile(text, str(path), "exec"), program)
    try:
        return program["main"](), program
    finally:
        if path.stem != "shutdown_async":
            for name in serve.status().applications:
                serve.delete(name)


@pytest.fixture(scope="module")
def ours(cluster):
    from executors import ray_gpu

    ports = free_ports(2)
    try:
        yield ray_gpu, ports
    finally:
        ray_gpu.shutdown(timeout_s=10)


@pytest.fixture(scope="module")
def theirs(cluster):
    from ray import serve

    ports = free_ports(2)
    try:
        yield serve, ports
    finally:
        serve.shutdown()


@pytest.mark.parametrize(
    "path",
    [each if each.stem in BY_DAY else pytest.param(each, marks=pytest.mark.night) for each in PROGRAMS],
    ids=lambda path: path.stem,
)
def test_here(path, ours):
    found, program = ran(path, *ours, ours=True)
    assert found == program["EXPECTED"]


@pytest.mark.night
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_on_ray_serve(path, theirs):
    found, program = ran(path, *theirs, ours=False)
    assert found == program.get("IN_RAY_SERVE", program["EXPECTED"])


class Grouped:
    def __call__(self):
        return os.getpid()


def test_a_replica_that_dies_while_the_controller_is_away_leaves_no_placement_group(ours):
    from executors.ray_gpu.own_groups import groups_of

    serve, _ = ours
    options = {"ray_actor_options": {"num_cpus": 0}, "placement_group_bundles": [{"CPU": 1}]}
    handle = serve.run(serve.deployment(Grouped).options(**options).bind(), name="grouped", route_prefix=None)
    pid = handle.remote().result(timeout_s=ANSWER_S)
    (before,) = groups_of("rankcore")
    os.kill(serve.status().controller_pid, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)

    def answers():
        try:
            return handle.remote().result(timeout_s=ANSWER_S) != pid
        except serve.ReplicaGoneError:
            return False

    eventually(answers, "another replica answers")
    (after,) = eventually(lambda: len(found := groups_of("rankcore")) == 1 and found, "the group of before is gone")
    assert after != before
    serve.delete("grouped")
    eventually(lambda: not groups_of("rankcore"), "no group is left")


def test_a_controller_has_the_variables_that_it_is_started_with_and_is_not_started_again_for_others(ours, caplog):
    serve, _ = ours
    try:
        serve.start(
            namespace="other", controller_options={"runtime_env": {"env_vars": {"SAID": "first"}}}, proxy_location="Disabled"
        )
        pid = serve.status(namespace="other").controller_pid
        assert "SAID=first" in Path(f"/proc/{pid}/environ").read_text().split("\0")
        serve.start(
            namespace="other", controller_options={"runtime_env": {"env_vars": {"SAID": "second"}}}, proxy_location="Disabled"
        )
        assert "controller_options have no effect: the controller of namespace 'other' runs already" in caplog.text
        assert serve.status(namespace="other").controller_pid == pid
    finally:
        serve.shutdown(namespace="other")


class Asks:
    def __init__(self):
        self.first = self.add()

    def add(self):
        import ray

        from executors.ray_gpu import get_deployment_actor

        return ray.get(get_deployment_actor("counter").add.remote())

    def pid(self):
        return os.getpid()

    def kill(self):
        import ray

        from executors.ray_gpu import get_deployment_actor

        ray.kill(get_deployment_actor("counter"))


class Counter:
    def __init__(self, start=0):
        if start is None:
            raise ValueError("no number to begin with")
        self.count = start

    def add(self):
        self.count += 1
        return self.count


def test_a_deployment_actor_outlives_controller_and_replicas_and_is_never_anothers(ours):
    import ray

    from executors.ray_gpu import deployment_actors

    serve, _ = ours

    def there():
        names = [each["name"] for each in ray.util.list_named_actors(all_namespaces=True)]
        return [name for name in names if deployment_actors.whose(name) is not None]

    def deployed(start, **options):
        actor = {"name": "counter", "actor_class": Counter, "init_args": (start,), "actor_options": {"num_cpus": 0}}
        declared = serve.deployment(Asks).options(ray_actor_options={"num_cpus": 0}, deployment_actors=[actor], **options)
        return serve.run(declared.bind(), name="counted", route_prefix=None)

    def adds(handle):
        try:
            return handle.add.remote().result(timeout_s=ANSWER_S)
        except (serve.ReplicaGoneError, ValueError, ray.exceptions.RayActorError):
            return None

    handle = deployed(10)
    assert adds(handle) == 12, "its __init__ has counted too"
    (name,) = there()
    os.kill(serve.status().controller_pid, signal.SIGKILL)
    eventually(lambda: adds(handle) == 13, "it goes on without the controller")
    os.kill(handle.pid.remote().result(timeout_s=ANSWER_S), signal.SIGKILL)
    eventually(lambda: (adds(handle) or 0) >= 15, "another replica finds the same")
    handle.kill.remote().result(timeout_s=ANSWER_S)
    eventually(lambda: adds(handle) in range(11, 15), "one that was killed is made anew")
    deployed(100)
    eventually(lambda: there() not in ([name], []) and len(there()) == 1, "the other version has its own alone")
    assert adds(handle) == 102
    with pytest.raises(serve.DeploymentFailedError, match=r"the deployment actor 'counter' does not come up(.|\n)*no number"):
        deployed(None, max_constructor_retry_count=1, rollback=False)
    serve.delete("counted")
    eventually(lambda: not there(), "none is left")
