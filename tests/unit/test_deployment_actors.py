"""Actors that the replicas of a deployment share: what may be asked for, their names, and who ends which."""

import json
import pickle
from types import SimpleNamespace

import pytest

pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install 'ray[serve]'")

import ray

from executors.ray_gpu import config, deployment_actors
from executors.ray_gpu.declaration import deployment
from executors.ray_gpu.deployment_actor_config import DeploymentActorConfig, actors_of, said
from executors.ray_gpu.deployment_actors import VARIABLE, name_of, whose
from executors.ray_gpu.errors import InvalidDeploymentError, NotInReplicaError
from executors.ray_gpu.names import replica_of, worker_of
from executors.ray_gpu.packing import pack
from executors.run.wanted import spec_of


@ray.remote(num_cpus=0)
class Tree:
    def __init__(self, depth=1):
        self.depth = depth


class Plain:
    pass


class Model:
    def __call__(self):
        return 1


def packed(**options):
    return pack(deployment(**options)(Model).bind(), (), {}, "a").code


def test_an_actor_may_be_said_by_an_object_of_either_or_a_dict():
    from ray.serve.config import DeploymentActorConfig as Theirs

    fields = {"name": "tree", "actor_class": Tree, "init_kwargs": {"depth": 3}, "actor_options": {"num_cpus": 0}}
    for kind in (DeploymentActorConfig, config.DeploymentActorConfig, Theirs, dict):
        (actor,) = pickle.loads(packed(deployment_actors=[kind(**fields)]).actors)
        target, args, kwargs = pickle.loads(actor.blob)
        assert (actor.name, actor.options, args, kwargs) == ("tree", {"num_cpus": 0}, (), {"depth": 3})
        assert hasattr(target, "remote")


def test_a_class_may_be_a_plain_one_or_an_import_path_which_a_file_can_say_again():
    (actor,) = pickle.loads(packed(deployment_actors=[{"name": "p", "actor_class": Plain}]).actors)
    assert pickle.loads(actor.blob)[0].__name__ == "Plain"
    path = {"name": "q", "actor_class": "collections:Counter", "init_args": [[1, 2]]}
    code = packed(deployment_actors=[path])
    assert (code.actor_names, code.actors_said) == (("q",), [path])
    assert said(actors_of([{"name": "p", "actor_class": Plain}])) is None
    assert packed().actors == b""


def test_other_actors_are_another_version_and_the_controller_keeps_no_code_of_them():
    before = packed(deployment_actors=[{"name": "tree", "actor_class": Tree}])
    other = packed(deployment_actors=[{"name": "tree", "actor_class": Tree, "init_args": (2,)}])
    assert len({before.version, other.version, packed().version}) == 3
    assert (before.without_code.actors, before.without_code.actor_names) == (b"", ("tree",))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("tree", "must be a list of DeploymentActorConfigs"),
        ([{"name": "tree"}], "name and actor_class are needed"),
        ([{"name": "t", "actor_class": Tree, "num_cpus": 1}], "may have name, actor_class"),
        ([{"name": "", "actor_class": Tree}], "DeploymentActorConfig.name must be a non-empty text"),
        ([{"name": "t", "actor_class": 3}], "DeploymentActorConfig.actor_class must be a class"),
        ([{"name": "t", "actor_class": Tree, "init_kwargs": [1]}], "DeploymentActorConfig.init_kwargs must be a dict"),
        ([{"name": "t", "actor_class": Tree}] * 2, "names of their own, got 't' more than once"),
    ],
)
def test_what_is_no_such_actor_is_refused(given, problem):
    with pytest.raises(InvalidDeploymentError, match=problem):
        deployment(deployment_actors=given)(Model)


def test_a_class_that_cannot_be_imported_is_refused_before_anything_is_deployed():
    with pytest.raises(InvalidDeploymentError, match="deployment_actors: actor_class of t"):
        packed(deployment_actors=[{"name": "t", "actor_class": "nowhere:Tree"}])


def test_local_processes_have_no_actors_and_say_so():
    with pytest.raises(InvalidDeploymentError, match="deployment_actors of Model need --executor ray"):
        spec_of(deployment(deployment_actors=[{"name": "t", "actor_class": Tree}])(Model).bind())


@pytest.mark.parametrize("parts", [("a/b", "v1", "tree"), ("a/b:c", "v/1", "a/b"), ("a/b%2F", "v", "t#1")])
def test_a_name_says_whose_actor_it_is_and_is_no_replicas(parts):
    name = name_of(*parts)
    assert whose(name) == parts[:2]
    assert (replica_of(name), worker_of(name)) == (None, None)
    assert whose(f"{name}/more") is None
    assert whose("a/b:a/b#1.0") is None


def test_only_actors_of_versions_that_nobody_starts_are_swept(monkeypatch):
    names = [name_of("a/b", "old", "t"), name_of("a/b", "new", "t"), name_of("a/left", "1", "t"), "a/b:a/b#1.0", "somebody"]
    there = [{"namespace": "n", "name": each} for each in names]
    there.append({"namespace": "other", "name": name_of("a/b", "old", "t")})
    killed = []
    monkeypatch.setattr(ray.util, "list_named_actors", lambda all_namespaces: there)
    monkeypatch.setattr(ray, "get_actor", lambda name, namespace: (namespace, name))
    monkeypatch.setattr(ray, "kill", killed.append)
    deployment_actors.sweep("n", {"a/b": ["new"]}, ["a/left"])
    assert killed == [("n", name_of("a/b", "old", "t"))]
    killed.clear()
    deployment_actors.end("n", "a/b", "new", ["t", "u"])
    assert killed == [("n", name_of("a/b", "new", each)) for each in "tu"]


def test_outside_of_replicas_and_of_such_actors_both_questions_are_refused(monkeypatch):
    with pytest.raises(NotInReplicaError, match="outside a replica"):
        deployment_actors.get_deployment_actor("tree")
    with pytest.raises(NotInReplicaError, match="outside of a deployment actor"):
        deployment_actors.get_deployment_actor_context()
    monkeypatch.setenv(VARIABLE, json.dumps(["app", "Model", "tree", "v1"]))
    found = deployment_actors.get_deployment_actor_context()
    assert (found.app_name, found.deployment, found.actor_name, found.code_version) == ("app", "Model", "tree", "v1")


def test_who_asks_for_an_actor_that_is_not_there_gets_one_in_the_environment_of_the_replicas(monkeypatch):
    asked = {}

    def options(**given):
        asked.update(given)
        return SimpleNamespace(remote=lambda *args, **kwargs: (args, kwargs))

    blob = pickle.dumps((SimpleNamespace, (1,), {"a": 2}))
    actor = deployment_actors.Packed("tree", blob, {"num_cpus": 0, "runtime_env": {"env_vars": {"A": "b"}}})
    shared = deployment_actors.Shared("n", "app/Model", "v1", "app", "Model", {"tree": actor}, "/srv")
    monkeypatch.setattr(ray, "get_actor", lambda name, namespace: (_ for _ in ()).throw(ValueError("nobody")))
    monkeypatch.setattr(ray, "remote", lambda target: SimpleNamespace(options=options))
    deployment_actors.share(shared)
    try:
        assert deployment_actors.get_deployment_actor("tree") == ((1,), {"a": 2})
        with pytest.raises(ValueError, match="app/Model has no deployment actor 'bush'; there are: tree"):
            deployment_actors.get_deployment_actor("bush")
    finally:
        deployment_actors.share(None)
    variables = asked.pop("runtime_env")["env_vars"]
    assert variables == {VARIABLE: json.dumps(["app", "Model", "tree", "v1"]), "PYTHONPATH": "/srv", "A": "b"}
    own = {"namespace": "n", "lifetime": "detached", "get_if_exists": True, "max_restarts": -1}
    assert asked == {"num_cpus": 0, "scheduling_strategy": "DEFAULT", "name": name_of("app/Model", "v1", "tree"), **own}
