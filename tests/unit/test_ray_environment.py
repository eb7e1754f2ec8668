"""The environment of a program's code: how it is put together, what it keeps on the cluster, and where modules are found."""

import asyncio
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.ray_gpu import detached, environment
from executors.ray_gpu.declaration import deployment
from executors.ray_gpu.packing import pack

JOB = {"working_dir": "gcs://_ray_pkg_1.zip", "env_vars": {"A": "job", "B": "job"}}


@deployment(ray_actor_options={"num_cpus": 0, "runtime_env": {"env_vars": {"B": "own"}}})
class Model:
    pass


@deployment
class Plain:
    pass


def packed(each, job, monkeypatch):
    monkeypatch.setattr(environment, "of_job", lambda: job)
    return pack(each.bind(), (), {}, "app").code


def test_the_jobs_environment_travels_with_the_package_and_the_deployments_own_fields_hold(monkeypatch):
    code = packed(Model, JOB, monkeypatch)
    assert code.actor_options["runtime_env"] == {**JOB, "env_vars": {"A": "job", "B": "own"}}
    assert packed(Plain, JOB, monkeypatch).actor_options == {"runtime_env": JOB}


def test_another_environment_is_another_version_and_none_is_the_one_that_it_was(monkeypatch):
    jobs = ({}, JOB, {**JOB, "working_dir": "gcs://_ray_pkg_2.zip"}, {**JOB, "env_vars": {"A": "other"}})
    versions = [packed(Plain, job, monkeypatch).version for job in jobs]
    assert len(set(versions)) == len(versions)
    assert [packed(Plain, job, monkeypatch).version for job in jobs] == versions
    assert packed(Plain, {}, monkeypatch).actor_options == {}
    assert packed(Plain, {"env_vars": {"A": "1", "B": "2"}}, monkeypatch).version == (
        packed(Plain, {"env_vars": {"B": "2", "A": "1"}}, monkeypatch).version
    )


def test_only_what_ray_deletes_by_itself_is_held():
    environments = {
        "py_modules": ["gcs://a.zip", "s3://bucket/b.zip"],
        "working_dir": "https://somewhere/c.zip",
        "java_jars": ["gcs://d.jar"],
        "pip": {"packages": ["gcs"]},
    }
    assert environment.uploaded(environments) == {"gcs://a.zip", "gcs://d.jar"}
    assert environment.uploaded({}) == environment.uploaded(None) == frozenset()


def test_packages_are_held_again_and_again_whatever_the_cluster_says(monkeypatch):
    asked, needed = [], ["gcs://a.zip"]

    def refer_to(uris):
        asked.append(sorted(uris))
        if len(asked) == 1:
            raise ConnectionError("the cluster does not answer")
        if len(asked) == 3:
            needed.append("gcs://b.zip")

    monkeypatch.setattr(environment, "refer_to", refer_to)
    monkeypatch.setattr(environment, "RENEW_S", 0.001)

    async def held():
        task = asyncio.create_task(environment.hold(lambda: needed))
        async with asyncio.timeout(60):
            while len(asked) < 4:
                await asyncio.sleep(0.001)
        task.cancel()

    asyncio.run(held())
    assert asked[:4] == [["gcs://a.zip"]] * 3 + [["gcs://a.zip", "gcs://b.zip"]]


def test_modules_are_found_as_by_the_program_that_deploys_after_what_was_uploaded(monkeypatch):
    uploaded = f"/session{environment.UNPACKED}working_dir_files/_ray_pkg_1"
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((uploaded, "/of/the/node")))
    monkeypatch.setattr(environment, "_of_the_controllers_job", lambda: frozenset(("/first/program",)))
    monkeypatch.setattr(sys, "path", ["/first/program", "/ray", uploaded, "/of/the/node", "/lib", "/lib/site-packages"])
    environment.find_modules(("/script", "/of/the/node"), ("/lib", "/appended"))
    expected = [uploaded, "/script", "/of/the/node", "/ray", "/lib", "/lib/site-packages", "/appended", "/first/program"]
    assert sys.path == expected


def test_where_a_program_finds_modules_is_told_in_its_order(monkeypatch):
    library = os.path.dirname(os.__file__)
    installed = os.path.join(library, "site-packages")
    monkeypatch.setattr(sys, "path", [f"{installed}/ray/thirdparty_files", "/script", "", library, installed, "/appended"])
    before, behind = environment.module_path()
    assert before == ("/script", os.getcwd())
    assert behind == (f"{installed}/ray/thirdparty_files", library, installed, "/appended")


@pytest.mark.parametrize("can_live_without", [True, False])
def test_a_job_with_an_environment_has_another_process_start_the_controller_or_does_it_with_a_warning(
    monkeypatch, caplog, can_live_without
):
    there, created = [], []

    def run(command, *, env, **_):
        assert not set(env) & set(detached.ENVIRONMENT_VARIABLES)
        if not can_live_without:
            raise subprocess.CalledProcessError(1, command, stderr="Traceback\nModuleNotFoundError: no rankcore there\n")
        there.append("by the other process")

    def get_actor(*_, **__):
        raise ValueError("there is none")

    worker = SimpleNamespace(core_worker=SimpleNamespace(get_job_config=lambda: SimpleNamespace(py_driver_sys_path=["/a"])))
    monkeypatch.setattr(detached.subprocess, "run", run)
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    monkeypatch.setattr(environment, "of_job", lambda: JOB)
    monkeypatch.setattr(detached.ray, "get_actor", get_actor)
    monkeypatch.setattr(detached.ray, "get_runtime_context", lambda: SimpleNamespace(gcs_address="127.0.0.1:1"))
    monkeypatch.setattr(detached.ray._private.worker, "global_worker", worker)
    monkeypatch.setattr(detached, "_create", lambda *of: created.append(of[:3]))
    detached.started("module:Class", "controller", "test", {}, "argument", b"bytes", None)
    assert created == [("module:Class", "controller", "test")]  # which takes the one that is there
    assert there == ["by the other process"] * can_live_without
    assert ("ModuleNotFoundError: no rankcore there" in caplog.text) is not can_live_without


def test_what_was_uploaded_anew_takes_the_place_of_what_the_job_has(monkeypatch):
    import ray._private.runtime_env.working_dir as of_ray

    heard = []

    def upload(runtime_env, include_gitignore):
        heard.append((runtime_env, include_gitignore))
        return {**runtime_env, "working_dir": "gcs://_ray_pkg_2.zip"}

    monkeypatch.setattr(of_ray, "upload_working_dir_if_needed", upload)
    monkeypatch.setattr(environment, "_uploaded_anew", {})
    assert environment.of_job() == {}
    environment.upload_anew({"working_dir": "code", "excludes": ["data"]})
    assert heard == [({"working_dir": "code", "excludes": ["data"]}, True)]
    assert environment.of_job() == {"working_dir": "gcs://_ray_pkg_2.zip"}
