"""Ray Serve's names for what is here: config objects, options of proxies, properties of deployments, statuses, errors."""

import asyncio
import dataclasses
import logging
from types import SimpleNamespace

import pytest

pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install 'ray[serve]'")

from executors.ray_gpu import config, deploying, exceptions, inspecting, instance, schema
from executors.ray_gpu.context import ReplicaContext
from executors.ray_gpu.declaration import deployment
from executors.ray_gpu.errors import InvalidCallError, InvalidDeploymentError, OverloadedError, RayExecutorError
from executors.ray_gpu.grpc_proxy.options import GrpcOptions
from executors.ray_gpu.http.options import HttpOptions
from executors.ray_gpu.overview import ApplicationInfo, DeploymentInfo, ReplicaStatus, Status
from executors.ray_gpu.packing import autoscaling_of, pack, scaling_policy_of
from executors.ray_gpu.proxies.info import ProxyInfo
from executors.ray_gpu.proxies.options import ProxyOptions, chosen
from executors.ray_gpu.requests.call import Call
from executors.ray_gpu.requests.handle import DeploymentHandle
from executors.ray_gpu.requests.packing import About
from executors.ray_gpu.requests.response import DeploymentResponse, DeploymentResponseGenerator
from executors.ray_gpu.room import demands, fitting, obstacle, one_of_each_node
from executors.ray_gpu.serve_options import controller_options_of
from executors.ray_gpu.world import NodeInfo
from rankcore import DeploymentStatus, ReplicaState
from rankcore.autoscaling import AutoscalingSpec

SERVICE = "ray.serve.generated.serve_pb2_grpc.add_UserDefinedServiceServicer_to_server"


class Model:
    def __call__(self):
        return 1


def theirs(name):
    import ray.serve.config

    return getattr(ray.serve.config, name)


@pytest.mark.parametrize("kind", [config.AutoscalingConfig, theirs("AutoscalingConfig"), dict])
def test_an_autoscaling_config_may_be_an_object_of_either_or_a_dict(kind):
    declared = deployment(autoscaling_config=kind(min_replicas=1, max_replicas=4, upscale_delay_s=3.0))(Model)
    assert autoscaling_of(declared) == AutoscalingSpec(min_replicas=1, max_replicas=4, upscale_delay_s=3.0)
    assert declared.options(autoscaling_config=None).settings["autoscaling_config"] is None


@pytest.mark.parametrize(
    ("given", "up", "down"),
    [
        ({"smoothing_factor": 0.5}, 0.5, 0.5),
        ({"smoothing_factor": 0.5, "upscale_smoothing_factor": 2.0}, 2.0, 0.5),
        ({"upscaling_factor": 3.0, "upscale_smoothing_factor": 2.0, "downscale_smoothing_factor": 0.7}, 3.0, 0.7),
        ({}, 1.0, 1.0),
    ],
)
def test_older_names_of_the_factors_count_as_in_ray_serve(given, up, down):
    for kind in (config.AutoscalingConfig, theirs("AutoscalingConfig"), dict):
        spec = autoscaling_of(deployment(autoscaling_config=kind(max_replicas=4, **given))(Model))
        assert (spec.upscaling_factor, spec.downscaling_factor) == (up, down)
    assert autoscaling_of(deployment(autoscaling_config={"upscaling_factor": None})(Model)) == AutoscalingSpec()
    config_there = theirs("AutoscalingConfig")(max_replicas=4, **given)
    assert (config_there.get_upscaling_factor(), config_there.get_downscaling_factor()) == (up, down)


@pytest.mark.parametrize("how", ["mean", "max", "min", "MAX"])
def test_loads_are_put_together_as_in_ray_serve(how):
    for kind in (config.AutoscalingConfig, theirs("AutoscalingConfig"), dict):
        spec = autoscaling_of(deployment(autoscaling_config=kind(aggregation_function=how.lower()))(Model))
        assert spec == AutoscalingSpec(aggregation_function=how.lower())
    given = theirs("AutoscalingConfig")(aggregation_function=how).aggregation_function
    assert autoscaling_of(deployment(autoscaling_config={"aggregation_function": given})(Model)) == spec


def test_other_ways_to_put_loads_together_are_refused():
    with pytest.raises(InvalidDeploymentError, match=r"\['aggregation_function'\] must be one of 'mean', 'max'"):
        autoscaling_of(deployment(autoscaling_config={"aggregation_function": "sum"})(Model))


def test_a_policy_may_be_in_a_config_object():
    declared = deployment(autoscaling_config=config.AutoscalingConfig(max_replicas=2, policy=lambda view: 1))(Model)
    assert scaling_policy_of(declared).name == "<lambda>"


def test_options_of_a_deployment_by_the_names_of_ray_serve():
    declared = deployment(
        max_constructor_retry_count=3,
        graceful_shutdown_wait_loop_s=0.5,
        backpressure_config=config.BackpressureConfig(status_code=429, retry_after_s=7),
        request_router_config=theirs("RequestRouterConfig")(
            request_router_class="ray.serve._private.request_router:PowerOfTwoChoicesRequestRouter"
        ),
    )(Model)
    assert declared.settings == {
        "max_start_failures": 3,
        "retry_after_s": 7,
        "rejected_with": 429,
        "routing_policy": "power_of_two",
        "request_router": "",
    }
    assert declared.backpressure_config == config.BackpressureConfig(status_code=429, retry_after_s=7)
    assert pack(declared.bind(), (), {}, "default").rejected_with == 429
    nothing = deployment(backpressure_config=None, request_router_config=config.RequestRouterConfig())(Model)
    assert nothing.settings == {}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_constructor_retry_count": 0}, "max_constructor_retry_count must be an integer from 1 on, got 0"),
        ({"max_constructor_retry_count": 1, "max_start_failures": 1}, "cannot be had with max_start_failures"),
        ({"graceful_shutdown_wait_loop_s": -1}, "must be a number of seconds above 0, got -1"),
        ({"backpressure_config": {"status_code": 500}}, "status_code, which is 503 or 429, and retry_after_s"),
        ({"backpressure_config": {"retry_after_s": -1}}, "retry_after_s, a number of seconds from 0 on"),
        ({"backpressure_config": 3}, "backpressure_config must be"),
        (
            {"request_router_config": {"request_router_class": "mine"}},
            "request_router_class'\\] must be a class or 'module:Class'",
        ),
        ({"request_router_config": {"request_router_kwargs": {"a": {1}}}}, "request_router_config must be"),
        ({"max_replicas_per_node": 0}, "max_replicas_per_node must be an integer from 1 to 100"),
        ({"gang_scheduling_config": {}}, "'gang_scheduling_config' is unknown"),
    ],
)
def test_what_there_is_no_way_to_is_refused_and_not_ignored(options, said):
    with pytest.raises(InvalidDeploymentError, match=said):
        deployment(**options)(Model)


def test_proxies_take_the_options_of_ray_serve():
    both = ({"grpc_servicer_functions": [SERVICE], "enable_reflection": False}, config.gRPCOptions)
    found = chosen(GrpcOptions, both[0])
    assert found == both[1](**both[0]) == chosen(GrpcOptions, theirs("gRPCOptions")(**both[0]))
    assert (found.servicer_functions, found.enable_reflection) == ((SERVICE,), False)
    http = chosen(HttpOptions, theirs("HTTPOptions")(port=8001, root_path="/a", num_cpus=0))
    assert http == HttpOptions(port=8001, root_path="/a") == config.HTTPOptions(port=8001, root_path="/a", middlewares=[])
    assert chosen(HttpOptions, {"location": None}) == HttpOptions()
    named = chosen(HttpOptions, theirs("HTTPOptions")(root_url="https://example.com", port=8001))
    assert (named.shown_url, http.shown_url) == ("https://example.com", "http://127.0.0.1:8001/a")


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        (HttpOptions, {"root_path": "a"}, "root_path must be a path such as '/base', or '', got 'a'"),
        (HttpOptions, {"num_cpus": 1}, "no option 'num_cpus'"),
        (HttpOptions, {"middlewares": [object]}, "no option 'middlewares'"),
        (GrpcOptions, {"grpc_servicer_functions": [], "servicer_functions": []}, "cannot be had with servicer_functions"),
        (GrpcOptions, {"servicer_functions": [SERVICE], "enable_reflection": 1}, "enable_reflection must be True or False"),
    ],
)
def test_options_of_proxies_that_there_are_not_are_refused(kind, given, said):
    with pytest.raises(InvalidDeploymentError, match=said):
        chosen(kind, given)


def test_a_deployment_may_have_another_class_and_knows_what_it_was_bound_to():
    class Other:
        pass

    declared = deployment(name="m")(Model)
    assert declared.options(Other).func_or_class is Other
    bound = declared.bind(1, a=2)
    assert (bound.deployment.init_args, bound.deployment.init_kwargs) == ((1,), {"a": 2})
    assert (declared.init_args, declared.init_kwargs) == ((), {})


def test_as_many_replicas_as_may_come_to_a_node_and_no_more():
    package = pack(deployment(max_replicas_per_node=3, ray_actor_options={"num_cpus": 0})(Model).bind(), (), {}, "app")
    asked = demands(package.code.actor_options)
    name = one_of_each_node("app/Model")
    assert asked == {name: pytest.approx(1 / 3)}

    def node(taken):
        free = {name: 1.0 - taken * 0.3333} if taken else {}  # said from the first on; Ray keeps four digits
        return {"a": NodeInfo("a", "here", {"CPU": 1.0}, {"CPU": 1.0, **free})}

    assert [fitting(node(taken)["a"], asked) for taken in range(4)] == [3, 2, 1, 0]
    assert obstacle(node(2), asked) == ""
    assert obstacle(node(3), asked).startswith("it waits for room")
    with pytest.raises(InvalidDeploymentError, match="max_replicas_per_node cannot be had with residency"):
        deployment(max_replicas_per_node=3, residency=object())


@pytest.mark.parametrize(
    ("statuses", "status"),
    [
        (["HEALTHY", "HEALTHY"], "RUNNING"),
        (["HEALTHY", "UPDATING"], "DEPLOYING"),
        (["UNHEALTHY", "UPDATING"], "UNHEALTHY"),
        (["UNHEALTHY", "DEPLOY_FAILED"], "DEPLOY_FAILED"),
        (["UPSCALING", "HEALTHY"], "RUNNING"),
        (["DELETING", "HEALTHY"], "RUNNING"),  # a deployment that the application no longer has
        (["DELETING", "DELETING"], "DELETING"),
    ],
)
def test_an_application_is_as_its_deployments_are(statuses, status):
    deployments = {f"d{number}": info(DeploymentStatus(each)) for number, each in enumerate(statuses)}
    assert ApplicationInfo(name="app", deployments=deployments).status == status


def test_status_has_the_attributes_of_ray_serves_with_its_words():
    from ray.serve._private.common import DeploymentStatusTrigger
    from ray.serve.schema import ApplicationStatusOverview, DeploymentStatusOverview, ProxyStatus, ServeStatus

    def up(node_id, pid, problem=""):
        return ProxyInfo(node_id, "127.0.0.1", 8000, None, pid, problem)

    found = Status(
        namespace="n",
        epoch=1,
        controller_pid=1,
        journal=None,
        deployments={"app/m": info(DeploymentStatus.HEALTHY)},
        proxy_infos=(up("a", 7), up("b", None), up("c", None, "port in use")),
        deployed={"app": 1_790_000_000.5},
        target_capacity=50.0,
    )
    application = found.applications["app"]
    for ours, theirs in (
        (found, ServeStatus),
        (application, ApplicationStatusOverview),
        (application.deployments["m"], DeploymentStatusOverview),
    ):
        assert {each.name for each in dataclasses.fields(theirs)} <= set(dir(ours))
    assert found.proxies == {"a": ProxyStatus.HEALTHY, "b": ProxyStatus.STARTING, "c": ProxyStatus.UNHEALTHY}
    assert application.last_deployed_time_s == 1_790_000_000.5
    assert found.target_capacity == 50.0
    triggers = {info(each).status_trigger for each in DeploymentStatus}
    assert triggers <= {each.value for each in DeploymentStatusTrigger}


def test_where_no_controller_runs_status_is_empty(monkeypatch):
    from executors.ray_gpu import connection

    monkeypatch.setattr(connection, "connect", lambda **_: None)
    monkeypatch.setattr(connection, "is_there", lambda namespace: False)
    found = inspecting.status()
    assert (found.applications, found.proxies, found.epoch) == ({}, {}, 0)


def info(status, replicas=(), message=""):
    return DeploymentInfo(
        name="app/m",
        status=status,
        message=message,
        world_size=1,
        version="1",
        class_name="m.Model",
        app_name="app",
        replicas=replicas,
    )


def test_replicas_are_counted_by_the_states_of_ray_serve():
    replicas = tuple(
        ReplicaStatus(replica_id=f"m#{number}.0", state=state, rank=None, node_id=None, pid=None, version="1")
        for number, state in enumerate(ReplicaState)
    )
    found = info(DeploymentStatus.UPDATING, replicas, "why").replica_states
    from ray.serve._private.common import ReplicaState as Theirs

    assert sum(found.values()) == len(ReplicaState)
    assert set(found) <= {each.value for each in Theirs}
    application = ApplicationInfo(name="app", deployments={"m": info(DeploymentStatus.UPDATING, (), "why")})
    assert application.message == "m: why"


def test_errors_have_the_names_of_ray_serve():
    import ray.serve.exceptions as there

    for name in exceptions.__all__:
        assert issubclass(getattr(exceptions, name), RayExecutorError)
        assert issubclass(getattr(there, name), there.RayServeException)
    error = exceptions.BackPressureError("too many", retry_after_s=3.0)
    assert isinstance(error, OverloadedError)
    assert (error.message, error.status_code, error.retry_after_s) == ("too many", 503, 3.0)


def test_a_replica_id_is_a_string_with_the_attributes_of_ray_serves():
    context = ReplicaContext("app", "m", "app/m#3.1", (0, 0, 0), 1, "node", "ns", code_version="v")
    assert context.replica_id == "app/m#3.1" == context.replica_tag == context.replica_id.unique_id
    assert (context.replica_id.deployment_id.name, context.replica_id.deployment_id.app_name) == ("m", "app")
    assert (context.deployment_id, context.code_version, context.gang_context) == ("app/m", "v", None)


def test_a_response_has_the_id_that_its_request_was_given_and_a_stream_no_result():
    assert DeploymentResponse(Call("m", About("r-1"))).request_id == "r-1"
    stream = DeploymentResponseGenerator(Call("m", About("r-2", stream=True)))
    assert stream.request_id == "r-2"
    with pytest.raises(TypeError, match="a stream has items and no result: iterate over it"):
        stream.result()


def test_shutdown_in_asynchronous_code_does_not_block_it(monkeypatch):

    seen = []
    monkeypatch.setattr(instance, "shutdown", lambda **options: seen.append(options))

    async def program():
        await instance.shutdown_async(timeout_s=3)

    asyncio.run(program())
    assert seen == [{"namespace": None, "timeout_s": 3}]


def actor_options(**options):
    return pack(deployment(**options)(Model).bind(), (), {}, "app").code.actor_options


def test_a_replica_with_bundles_asks_for_the_first_or_for_all_that_have_to_be_on_one_node():
    bundles = [{"CPU": 1, "GPU": 1}, {"GPU": 2}]
    assert demands(actor_options(placement_group_bundles=bundles)) == {"CPU": 1.0, "GPU": 1.0}
    packed = actor_options(placement_group_bundles=bundles, placement_group_strategy="STRICT_PACK")
    assert demands(packed) == {"CPU": 1.0, "GPU": 3.0}
    labelled = actor_options(placement_group_bundles=bundles, placement_group_bundle_label_selector=[{"zone": "a"}])
    assert labelled["own_placement_group"]["labels"] == [{"zone": "a"}] * 2
    assert "own_placement_group" not in actor_options()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"placement_group_bundles": []}, "placement_group_bundles: "),
        ({"placement_group_bundles": [{"CPU": "1"}]}, "placement_group_bundles"),
        (
            {"placement_group_bundles": [{"CPU": 1}], "placement_group_strategy": "NEAR"},
            "Invalid placement group strategy NEAR",
        ),
        ({"placement_group_strategy": "PACK"}, "placement_group_strategy needs placement_group_bundles beside it"),
        (
            {"placement_group_bundles": [{"GPU": 1}]},
            r"bundles\[0\] must have room for the replica's actor, which asks for CPU 1",
        ),
        ({"placement_group_bundles": [{"CPU": 1}], "max_replicas_per_node": 1}, "cannot be had with max_replicas_per_node"),
        ({"placement_group_bundles": [{"CPU": 1}], "placement": "pack_ranks"}, "cannot be had with placement"),
    ],
)
def test_bundles_that_cannot_be_are_refused(options, said):
    with pytest.raises(InvalidDeploymentError, match=said):
        actor_options(**options)


def test_a_controller_is_given_variables_of_its_environment():
    given = {"runtime_env": {"env_vars": {"A": "1"}}}
    for each in (given, config.ControllerOptions(**given), theirs("ControllerOptions")(**given)):
        assert controller_options_of(each).env_vars == {"A": "1"}
    assert controller_options_of(None).env_vars == controller_options_of({"runtime_env": None}).env_vars == {}


@pytest.mark.parametrize(
    "given",
    [
        {"runtime_env": {"pip": []}},
        {"runtime_env": {"env_vars": {"A": 1}}},
        {"runtime_env": {"env_vars": [1]}},
        {"other": 1},
        3,
    ],
)
def test_other_options_of_a_controller_are_refused(given):
    with pytest.raises(InvalidDeploymentError, match="controller_options"):
        controller_options_of(given)


def test_a_handle_says_whether_its_process_has_called_and_knows_replicas():
    import executors.ray_gpu as serve

    assert not DeploymentHandle("nobody/knows").is_initialized
    assert not DeploymentHandle("nobody/knows").running_replicas_populated()
    handle = serve.run(deployment(Model).bind(), _local_testing_mode=True)
    assert handle.is_initialized
    assert handle.running_replicas_populated()


def test_how_calls_are_serialized_may_be_said_where_it_is_so():
    handle = DeploymentHandle("app/Model")
    assert handle.options(request_serialization="pickle")._wishes == handle._wishes
    assert handle.options(request_serialization="orjson")._wishes.encoding == "orjson"
    assert handle.options(response_serialization="msgpack")._about.encoding == "msgpack"
    with pytest.raises(InvalidCallError, match=r"request_serialization must be one of cloudpickle, .*, got 'json'"):
        handle.options(request_serialization="json")


def test_a_deployment_says_how_it_logs_with_all_fields_and_a_wrong_change_leaves_it_as_it_was():
    from ray import serve as there

    for given in ({"log_level": "ERROR"}, schema.LoggingConfig(log_level=40), there.schema.LoggingConfig(log_level="ERROR")):
        ours, theirs_too = (
            deployment(logging_config=given)(Model),
            there.deployment(logging_config={"log_level": "ERROR"})(Model),
        )
        assert ours.logging_config == theirs_too.logging_config
        for each in (ours, theirs_too):
            each.set_logging_config({"log_level": "DEBUG"})
            assert each.logging_config["log_level"] == "DEBUG"
    with pytest.raises(InvalidDeploymentError, match="log_level must be one of"):
        ours.set_logging_config({"log_level": "loud"})
    assert ours.logging_config["log_level"] == "DEBUG"
    assert deployment(Model).logging_config is None


def test_a_log_line_says_where_an_application_is_ready(monkeypatch, caplog):
    ingress = SimpleNamespace(is_ingress=True, route_prefix="/shop", code=SimpleNamespace(app_name="shop"))
    inner = SimpleNamespace(is_ingress=False, route_prefix=None, code=SimpleNamespace(app_name="shop"))
    silent = SimpleNamespace(is_ingress=True, route_prefix=None, code=SimpleNamespace(app_name="quiet"))
    options = ProxyOptions(http=HttpOptions(root_url="https://example.com"))
    monkeypatch.setattr(deploying, "ask", lambda controller, method: {"proxy_options": options}[method])
    with caplog.at_level(logging.INFO):
        deploying._say_what_is_ready(None, [inner, ingress, silent])
    assert caplog.messages == ["application 'shop' is ready at https://example.com/shop", "application 'quiet' is ready"]


def test_no_public_name_is_hidden_by_a_module():
    """A module that is imported becomes an attribute of its package, in the place of a name that is loaded when it is used."""
    import pkgutil

    from executors import ray_gpu

    assert {each.name for each in pkgutil.iter_modules(ray_gpu.__path__)} & set(ray_gpu.__all__) == set()
