"""An application of which nobody says where HTTP reaches it is at "/", as in Ray Serve; None is no HTTP."""

import pytest

from executors.cli import deploy as command
from executors.cli.deploy import DeployAsked
from executors.cli.deploy_by_rest import _config
from executors.cli.run_options import prefix_of
from executors.ray_gpu import deploying, deployment, ingress, instance
from executors.ray_gpu.errors import InvalidDeploymentError


@deployment
class Model: ...


async def asgi(scope, receive, send): ...


@deployment
@ingress(asgi)
class Web: ...


def routes_of(target):
    return [each.route_prefix for each in deploying.packages_of(target, "test")[0]]


@pytest.mark.parametrize("kind", [Model, Web])
def test_the_default_is_the_root_and_none_is_no_http(kind):
    assert routes_of(deploying.RunTarget(kind.bind())) == ["/"]
    assert routes_of(deploying.RunTarget(kind.bind(), route_prefix="/x/")) == ["/x"]
    assert routes_of(deploying.RunTarget(kind.bind(), route_prefix=None)) == [None]


def test_without_what_http_needs_only_a_route_that_was_asked_for_is_an_error(monkeypatch, caplog):
    def missing():
        raise InvalidDeploymentError("HTTP needs more packages")

    assert instance.wants_proxies([None, "/", "/a"]) is True
    monkeypatch.setattr(instance, "check_http_can_be_served", missing)
    assert instance.wants_proxies([None]) is False
    assert (instance.wants_proxies(["/", None]), caplog.text) == (False, "")
    assert instance.wants_proxies(["/"], warns=True) is False
    assert "there is no HTTP: HTTP needs more packages" in caplog.text
    with pytest.raises(InvalidDeploymentError):
        instance.wants_proxies(["/", "/a"])


@pytest.mark.parametrize(("said", "route"), [(None, "/"), ("none", None), ("/a", "/a")])
def test_a_command_says_a_route_or_none(said, route):
    assert prefix_of(said) == route
    wanted = DeployAsked("m:app", route_prefix=said)
    assert [each.route_prefix for each in command._of_module([Model.bind()], wanted, "test")] == [route]
    (config,) = _config(wanted)["applications"]
    assert config.get("route_prefix", "not said") == ("not said" if said is None else route)


def test_several_applications_of_a_module_are_at_their_names():
    apps = [Model.options(name=name).bind() for name in ("a", "b")]
    assert [each.route_prefix for each in command._of_module(apps, DeployAsked("m:apps"), "test")] == ["/a", "/b"]
    with pytest.raises(InvalidDeploymentError, match="--route-prefix is for one application, and there are 2"):
        command._of_module(apps, DeployAsked("m:apps", route_prefix="/a"), "test")
