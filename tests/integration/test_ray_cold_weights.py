"""Deployments whose weights may be COLD, on Ray, in the same plane as all others: memory stands for the one GPU."""

import json
import os
import signal
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'rankcore[torch]'")

from tests.fleet_models import WEIGHT_BYTES, write_weights
from tests.free_ports import free_ports
from tests.ray_local import ANSWER_S, clean_up, eventually, ray_cluster  # noqa: F401 (a fixture)

pytestmark = pytest.mark.ray

ROOM_BYTES = WEIGHT_BYTES + WEIGHT_BYTES // 2


@pytest.fixture(scope="module")
def started(ray_cluster):  # noqa: F811
    """With one GPU that one model fits on, and memory for the others."""
    from executors import ray_gpu

    (port,) = free_ports(1)
    memory = {"device": "cpu", "stand_in_gpu_bytes": (ROOM_BYTES,), "cache_bytes": 4 * WEIGHT_BYTES}
    ray_gpu.start(http_options={"port": port}, memory=memory, proxy_location="HeadOnly")
    ray_gpu.port = port
    yield ray_gpu
    clean_up(ray_gpu)


@pytest.fixture
def serve(started):
    yield started
    for name in list(started.status().deployments):
        started.delete(name)
    eventually(lambda: not workers(), "all workers have ended")


def workers():
    from executors.ray_gpu.discovery import find_workers

    return find_workers("rankcore")


def levels():
    """Where the weights of each worker are."""
    import ray

    found = {}
    for worker_id, (_, actor) in workers().items():
        found[worker_id.partition("@")[0]] = str(ray.get(actor.describe.remote(), timeout=ANSWER_S).level)
    return found


def cold(serve, folder: Path, name: str, seed: int, **options):
    from tests.tenures import Tenured

    path, answer = write_weights(folder, name, seed)
    residency = serve.Residency(weights=path, min_hot_s=0.0)
    deployment = Tenured.options(name=name, residency=residency, user_config="v1", **options)
    return deployment.bind(str(folder)), answer


def test_a_cold_model_answers_by_handle_and_over_http_with_a_stream(serve, tmp_path):
    application, answer = cold(serve, tmp_path, "m", 1)
    handle = serve.run(application, name="shop", route_prefix="/m")
    assert levels() == {}
    assert handle.total.remote().result(ANSWER_S) == pytest.approx(answer)
    assert levels() == {"shop/m": "HOT"}
    assert handle.standing.remote().result(ANSWER_S)[1:4] == ("shop/m#1.0", 0, 1)
    with urllib.request.urlopen(f"http://127.0.0.1:{serve.port}/m?upto=3", timeout=ANSWER_S) as response:
        assert response.read().decode() == "".join(f"{number}: {answer:.3f}\n" for number in range(3))


def test_a_cold_model_answers_over_http_though_nobody_has_called_it_before(serve, tmp_path):
    application, answer = cold(serve, tmp_path, "m", 2)
    serve.run(application, name="shop", route_prefix="/m")
    with urllib.request.urlopen(f"http://127.0.0.1:{serve.port}/m?upto=1", timeout=ANSWER_S) as response:
        assert response.read().decode() == f"0: {answer:.3f}\n"


def test_who_calls_weights_that_cannot_be_loaded_is_told_why_over_http(serve, tmp_path):
    application, _ = cold(serve, tmp_path, "m", 3, max_start_failures=1)
    serve.run(application, name="shop", route_prefix="/m")
    (tmp_path / "m.safetensors").unlink()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{serve.port}/m?upto=1", timeout=ANSWER_S)
    told = refused.value.read().decode()
    assert (refused.value.code, "m.safetensors" in told) == (503, True), told
    assert "shop/m is DEPLOY_FAILED" in told or "shop/m is UNAVAILABLE" in told, told
    application, _ = cold(serve, tmp_path, "m", 3, max_start_failures=2)
    serve.run(application, name="shop", route_prefix="/m")
    with urllib.request.urlopen(f"http://127.0.0.1:{serve.port}/m?upto=1", timeout=ANSWER_S) as response:
        assert response.status == 200, "what is applied anew is tried at once"


def test_two_models_take_turns_on_one_place(serve, tmp_path):
    built = [cold(serve, tmp_path, name, seed) for seed, name in enumerate(("a", "b"))]
    handles = [serve.run(application, name=f"app{number}", route_prefix=None) for number, (application, _) in enumerate(built)]
    for turn in range(4):
        handle, (_, answer) = handles[turn % 2], built[turn % 2]
        assert handle.total.remote().result(ANSWER_S) == pytest.approx(answer)
    assert levels() == {"app0/a": "WARM", "app1/b": "HOT"}
    pids = [handles[number].standing.remote().result(ANSWER_S)[0] for number in (0, 1)]
    assert len(set(pids)) == 2


def test_a_worker_that_is_killed_is_replaced_and_who_calls_then_is_answered(serve, tmp_path):
    application, answer = cold(serve, tmp_path, "m", 3, idempotent=True)
    handle = serve.run(application, name="shop", route_prefix=None)
    pid = handle.standing.remote().result(ANSWER_S)[0]
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text(), "it is gone")
    assert handle.total.remote().result(ANSWER_S) == pytest.approx(answer)


def test_a_controller_that_is_killed_in_the_middle_of_a_load_loads_on(serve, tmp_path):
    application, answer = cold(serve, tmp_path, "m", 4)
    handle = serve.run(application, name="shop", route_prefix=None)
    hold = tmp_path / "hold"
    hold.touch()
    waiting = handle.total.remote()
    eventually(lambda: reports() and reports()[0].moving and reports()[0].progress.bytes_done, "it loads")
    (before,) = reports()
    epoch = crash_controller(serve)
    eventually(lambda: serve.status().epoch > epoch, "a new controller answers")
    hold.unlink()
    assert waiting.result(ANSWER_S) == pytest.approx(answer)
    (after,) = reports()
    assert (after.pid, after.move) == (before.pid, before.move), "nothing was loaded again"


def test_a_controller_that_is_killed_while_a_model_is_hot_finds_it(serve, tmp_path):
    application, answer = cold(serve, tmp_path, "m", 5)
    handle = serve.run(application, name="shop", route_prefix=None)
    before = handle.standing.remote().result(ANSWER_S)
    epoch = crash_controller(serve)
    assert handle.total.remote().result(ANSWER_S) == pytest.approx(answer), "calls need no controller"
    eventually(lambda: "shop/m" in (now := serve.status()).deployments and now.epoch > epoch, "it is adopted")
    eventually(lambda: serve.status().deployments["shop/m"].status == "HEALTHY", "it is healthy")
    assert handle.standing.remote().result(ANSWER_S) == before


def reports():
    import ray

    found = []
    for _, actor in workers().values():
        with suppress(ray.exceptions.RayActorError):  # it has ended meanwhile
            found.append(ray.get(actor.describe.remote(), timeout=ANSWER_S))
    return found


def crash_controller(serve):
    before = serve.status()
    os.kill(before.controller_pid, signal.SIGKILL)
    return before.epoch


# -- the same from a shell

MODULE = """
from executors import ray_gpu as serve


@serve.deployment(ray_actor_options={"num_cpus": 0})
class Pinned:
    def __init__(self, other=None): ...
    def __call__(self):
        return "pinned"


@serve.deployment(ray_actor_options={"num_cpus": 0})
class Elsewhere:
    def __call__(self):
        return float(self.weights["weight"].double().sum())


app = Pinned.bind(Elsewhere.bind())
pair = [Pinned.options(name="one").bind(), Pinned.options(name="two").bind()]
"""
FILE = """
applications:
  - name: shop
    route_prefix: null
    import_path: apps_elsewhere:app
    deployments:
      - name: Elsewhere
        residency: {{weights: {weights}, min_hot_s: 0}}
  - name: other
    route_prefix: null
    import_path: apps_elsewhere:app
    runtime_env: {{env_vars: {{PYTHONPATH: "{folder}"}}}}
    deployments:
      - name: Pinned
        num_replicas: {replicas}
      - name: Elsewhere
        num_replicas: 0
"""


def rankcore(*arguments):
    from typer.testing import CliRunner

    from executors.cli.app import app

    return CliRunner().invoke(app, arguments)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a module and a file of applications; what the file's model answers."""
    path, answer = write_weights(tmp_path, "elsewhere", 11)
    (tmp_path / "apps_elsewhere.py").write_text(MODULE)
    (tmp_path / "apps.yaml").write_text(FILE.format(weights=path, folder=tmp_path, replicas=1))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path, path, answer


def test_a_file_brings_the_cluster_to_what_it_says_and_the_same_again_changes_nothing(serve, place):
    folder, path, answer = place
    planned = rankcore("deploy", "apps.yaml", "--dry-run")
    assert planned.exit_code == 0, planned.stderr
    assert [line.split()[:2] for line in planned.stdout.splitlines()] == [
        ["new", f"{app}/{name}:"] for app in ("other", "shop") for name in ("Elsewhere", "Pinned")
    ]
    assert not serve.status().deployments

    done = rankcore("deploy", "apps.yaml", "--wait")
    assert done.exit_code == 0, done.stderr
    there = ["other/Elsewhere", "other/Pinned", "shop/Elsewhere", "shop/Pinned"]
    assert sorted(serve.status().deployments) == there
    assert serve.get_deployment_handle("Elsewhere", "shop").remote().result(ANSWER_S) == pytest.approx(answer)
    assert serve.get_app_handle("other").remote().result(ANSWER_S) == "pinned", "built on the cluster"

    def there_now():
        return {name: (each.version, each.replicas) for name, each in serve.status().deployments.items()}

    before = there_now()
    assert rankcore("deploy", "apps.yaml", "--dry-run").stdout == "nothing would change\n"
    assert rankcore("deploy", "apps.yaml").exit_code == 0
    assert there_now() == before

    (folder / "apps.yaml").write_text(FILE.format(weights=path, folder=folder, replicas=-1))
    refused = rankcore("deploy", "apps.yaml")
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert "applications[1].deployments[0].num_replicas: num_replicas must be" in refused.stderr
    assert "(apps.yaml:15)" in refused.stderr
    assert there_now() == before, "all or nothing"

    pair = rankcore("deploy", "apps_elsewhere:pair", "--prune")
    assert pair.exit_code == 0, pair.stderr
    eventually(lambda: sorted(serve.status().deployments) == ["one/one", "two/two"], "the others are gone")

    (folder / "apps.yaml").write_text("applications: []\n")
    assert rankcore("deploy", "apps.yaml", "--no-prune", "--dry-run").stdout == "nothing would change\n", (
        "nothing is said of others"
    )
    planned = rankcore("deploy", "apps.yaml", "--prune", "--dry-run").stdout.splitlines()
    assert [line.split()[:2] for line in planned] == [["deleted", "one/one:"], ["deleted", "two/two:"]]
    none = rankcore("deploy", "apps.yaml")
    assert none.exit_code == 0, none.stderr
    eventually(lambda: not serve.status().deployments, "all are gone")


def test_the_shell_shows_scales_evicts_and_deletes_by_bare_and_by_full_names(serve, place):
    assert rankcore("deploy", "apps.yaml", "--wait").exit_code == 0
    scaled = rankcore("scale", "shop/Elsewhere", "1")
    assert scaled.exit_code == 0, scaled.stderr
    assert scaled.stdout.splitlines()[0].startswith("shop/Elsewhere ")
    eventually(lambda: levels().get("shop/Elsewhere") == "HOT", "it is HOT")
    shown = json.loads(rankcore("status", "--json").stdout)
    assert [each["level"] for each in shown["deployments"]["shop/Elsewhere"]["workers"]] == ["HOT"]
    assert "0: 1.05 MB" in rankcore("status", "shop").stdout
    where = rankcore("where", "shop/Elsewhere")
    assert (where.exit_code, "it is `rankcore status` now" in where.stderr, "HOT" in where.stdout) == (0, True, True)
    for command in (("scale", "Elsewhere", "1"), ("evict", "Elsewhere"), ("delete", "Elsewhere")):
        refused = rankcore(*command)
        assert refused.exit_code == 2
        assert "'Elsewhere' may be any of: other/Elsewhere, shop/Elsewhere" in refused.stderr
    assert "has no residency" in rankcore("evict", "shop/Pinned").stderr
    assert rankcore("evict", "shop/Elsewhere", "--keep", "COLD").exit_code == 0
    eventually(lambda: "shop/Elsewhere" not in levels(), "it is on disk only")
    assert rankcore("delete", "shop").stdout == "deleted shop\n"
    assert sorted(serve.status().deployments) == ["other/Elsewhere", "other/Pinned"]
