"""Autoscaling policies of users on Ray: carried to the controller, asked there, and never followed where they fail."""

import asyncio
import sys
import threading

import attrs
import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")


from executors import ray_gpu as serve
from executors.ray_gpu.errors import InvalidDeploymentError
from executors.ray_gpu.extras import extras_of
from executors.ray_gpu.packing import autoscaling_of, scaling_policy_of
from executors.ray_gpu.scaling_policy import PolicySource
from rankcore.autoscaling import AutoscalingSpec
from rankcore.cluster import scaling
from rankcore.cluster.records import Cause, Record
from rankcore.codec import from_json, to_json
from tests.ray_in_memory import a_controller, answer_at_once, of, package, until, without_actors

TIMEOUT_S = 30
SPEC = AutoscalingSpec(
    max_replicas=9, metrics_interval_s=0.01, look_back_period_s=0.01, upscale_delay_s=0.0, downscale_delay_s=0.0
)


def three(view):
    return 3


@pytest.fixture(autouse=True)
def replicas(monkeypatch):
    without_actors(monkeypatch)
    answer_at_once(monkeypatch)


def followed(policy, reached, *, later=None):
    """Follow a load by a policy until something is so; returns what was wanted, and what the problem is then."""

    async def play():
        wanted, problems = [], [""]

        async def deploy(policy):
            followed_by = attrs.evolve(package(target_replicas=1), autoscaling=SPEC, scaling_policy=PolicySource.of(policy))
            await controller.deploy((followed_by,), False)

        def look():
            entry = of(controller).entry
            if entry.target.cause is Cause.AUTOSCALER and entry.target.replicas not in wanted:
                wanted.append(entry.target.replicas)
            problems.append(entry.scaler.problem)
            assert entry.scaler.problem in "; ".join(entry.conditions)

        def is_reached():
            look()
            return reached(wanted, problems[-1])

        def is_mended():
            look()
            return problems[-1] == "" and wanted

        controller = await a_controller()
        await deploy(policy)
        await until(is_reached)
        if later is not None:
            await deploy(later)
            await until(is_mended)
        return wanted, problems[-1]

    return asyncio.run(play())


def test_a_policy_of_the_users_decides_how_many_there_are():
    wanted, _ = followed(three, lambda wanted, problem: wanted and not problem)
    assert wanted == [3]


def test_a_policy_may_be_named_as_in_ray_serve(tmp_path, monkeypatch):
    (tmp_path / "my_policies.py").write_text("def five(view):\n    return 5, {'seen': view.target_replicas}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for given in ("my_policies:five", "my_policies.five", {"policy_function": "my_policies:five"}):
        assert followed(given, lambda wanted, _: wanted)[0][0] == 5


def raises(view):
    raise KeyError("no idea")


def leaves(view):
    raise SystemExit("no more")


def two_arguments(view, more):
    return 1


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (raises, "raises raised KeyError: 'no idea'"),
        (leaves, "no more"),
        (lambda view: "many", "must return a number of replicas"),
        ("not_there_at_all:policy", "cannot be imported: ModuleNotFoundError"),
        ("tests.unit.test_ray_scaling:nothing", "cannot be imported: AttributeError"),
        ("tests.unit.test_ray_scaling:TIMEOUT_S", "is no function, but 30"),
        ("tests.unit.test_ray_scaling:two_arguments", "must be callable with one argument"),
    ],
)
def test_a_policy_that_fails_is_reported_and_the_target_stays_until_there_is_a_better_one(policy, why):
    wanted, _ = followed(policy, lambda wanted, problem: why in problem, later=three)
    assert set(wanted) == {3}


def test_a_policy_that_does_not_come_back_keeps_nobody_waiting(monkeypatch):
    monkeypatch.setattr(scaling, "POLICY_S", 0.05)
    monkeypatch.setattr(PolicySource, "load", lambda self: waits)
    gate = threading.Event()

    def waits(view):
        assert gate.wait(TIMEOUT_S)
        return 1

    seen = []

    def both(_, problem):
        seen.append(problem)
        if "three has not come back yet" in problem:  # it was waited for, and then asked again
            gate.set()
        return gate.is_set() and problem == ""

    followed(three, both)
    assert seen[-2].endswith("has not come back yet")


def options(**config):
    @serve.deployment(autoscaling_config={"max_replicas": 9, **config})
    def target():
        """Nothing."""

    return target


@pytest.mark.parametrize("wrong", [7, "", "nothing", ":f", {"other": raises}, two_arguments])
def test_what_is_no_policy_is_refused_when_it_is_deployed(wrong):
    with pytest.raises(InvalidDeploymentError, match=r"autoscaling_config\['policy'\]"):
        scaling_policy_of(options(policy=wrong))


def test_what_cannot_be_pickled_is_refused_when_it_is_deployed():
    lock = threading.Lock()
    with pytest.raises(InvalidDeploymentError, match="cannot be pickled"):
        scaling_policy_of(options(policy=lambda view: lock.locked()))


def test_a_policy_goes_with_the_other_options_and_outlives_the_controller():
    deployment = options(policy=three, min_replicas=2)
    assert autoscaling_of(deployment).min_replicas == 2
    source = scaling_policy_of(deployment)
    for policy in (source, None):
        spec = attrs.evolve(package(), scaling_policy=policy).entry_spec
        record = Record(deployment=spec.deployment, number=1, applied=spec, spec=spec.ranks)
        read = from_json(to_json(record), Record)
        assert (read, extras_of(read.applied).policy) == (record, policy)
        assert read.applied.policy == (policy.name if policy is not None else None)


def test_a_function_is_carried_with_its_module_which_need_not_be_there(tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("LEAST = 4\n\ndef policy(view):\n    return LEAST\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import only_here

    sources = [PolicySource.of(given) for given in (only_here.policy, "only_here:policy")]
    monkeypatch.delitem(sys.modules, "only_here")
    (tmp_path / "only_here.py").unlink()
    assert [source.load()(None) for source in sources] == [4, 4]
