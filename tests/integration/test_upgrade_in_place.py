"""A cluster that runs an older release, upgraded in place: the code is replaced under it, and its controller ended.

The older release is a commit of this repository, so the test needs its history.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from tests.free_ports import free_ports
from tests.ray_local import PATIENCE_S

pytestmark = pytest.mark.ray

ROOT = Path(__file__).parents[2]
OLD = "3c02872"
"""Format 3, protocol 1; main of 2026-11-22."""

APP = """
import os
from executors import ray_gpu as serve

@serve.deployment(num_replicas=3, user_config={"greeting": "hello"}, max_unavailable=1, ray_actor_options={"num_cpus": 0.1})
class Model:
    def reconfigure(self, config, rank):
        self.greeting = config["greeting"]
    def __call__(self, x):
        return self.greeting, x, os.getpid()

@serve.deployment(num_replicas=2, max_unavailable=1, ray_actor_options={"num_cpus": 0.1})
class Front:
    def __init__(self, model):
        self.model = model
    async def __call__(self, request):
        greeting, x, pid = await self.model.remote(int(request.query_params["x"]))
        return {"greeting": greeting, "x": x, "pid": pid}

app = Front.bind(Model.bind())
"""

CALLER = """
import json, sys, time, urllib.request
from executors import ray_gpu as serve
import ray
from upgraded_app import app
port, end = int(sys.argv[1]), sys.argv[2]
serve.start(http_options={"host": "127.0.0.1", "port": port})
serve.run(app, route_prefix="/front")
handle = serve.get_deployment_handle("Model")
pid = serve.status().controller_pid

def ask_over_http():
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/front?x=7", timeout=60) as answer:
        return json.load(answer)

for _ in range(8):  # by now this process and the replicas have imported what they need, and from one release
    handle.remote(0).result(60), ask_over_http()
print(json.dumps({"address": ray.get_runtime_context().gcs_address, "controller": pid}), flush=True)
import os
calls, problems = 0, []
while not os.path.exists(end):
    try:
        greeting, x, _ = handle.remote(calls).result(60)
        assert (greeting, x) == ("hello", calls), (greeting, x)
    except Exception as error:
        problems.append(repr(error)[:300])
    calls += 1
    time.sleep(0.02)
told = ask_over_http()
print(json.dumps({"calls": calls, "problems": problems, "http": [told["greeting"], told["x"]]}), flush=True)
"""

LOOK = """
import json
from executors import ray_gpu as serve
status = serve.status()
proxies = getattr(status, "proxy_infos", None) or status.proxies  # the older release has the latter alone
print(json.dumps({"epoch": status.epoch, "proxies": [[each.pid, each.problem] for each in proxies], "deployments": {
    name: [one.status, one.version, [[each.replica_id, each.state, each.version] for each in one.replicas]]
    for name, one in status.deployments.items()
}}), flush=True)
"""


@pytest.fixture
def live(tmp_path):
    """A folder that holds the code, by now the old one."""
    old = tmp_path / "old"
    old.mkdir()
    packed = subprocess.run(["git", "archive", OLD], cwd=ROOT, capture_output=True, check=False)
    if packed.returncode != 0:
        pytest.skip(f"commit {OLD} is not here")
    subprocess.run(["tar", "-x"], cwd=old, input=packed.stdout, check=True)
    (tmp_path / "upgraded_app.py").write_text(APP)
    link = tmp_path / "live"
    link.symlink_to(old)
    return link


def python(live, program, *arguments, **environment):
    path = os.pathsep.join([str(live), str(live.parent)])
    return subprocess.Popen(
        [sys.executable, "-P", "-c", program, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": path, **environment},
        cwd=live.parent,
        stdout=subprocess.PIPE,
        text=True,
    )


def line_of(process):
    for line in process.stdout:
        if line.startswith("{"):
            return json.loads(line)
    raise AssertionError("it has ended")


def test_a_cluster_of_an_older_release_is_taken_over_and_rolled_while_it_serves(live, tmp_path):
    (port,) = free_ports(1)
    end = tmp_path / "end"
    caller = python(live, CALLER, port, end, RAY_ADDRESS="local")
    try:
        here = line_of(caller)
        live.unlink()
        live.symlink_to(ROOT)
        os.kill(here["controller"], signal.SIGKILL)
        seen, deadline = set(), time.monotonic() + PATIENCE_S
        while True:
            with python(live, LOOK, RAY_ADDRESS=here["address"]) as look:
                found = line_of(look)
            deployments = found["deployments"]
            assert {name.rpartition("/")[2] for name in deployments} == {"Model", "Front"}
            for status, _, replicas in deployments.values():
                seen.add(status)
                running = [each for each in replicas if each[1] in ("RUNNING", "RECONFIGURING")]
                assert status == "RECOVERING" or len(running) >= len(replicas) - 1, "max_unavailable"
            if all(each[0] == "HEALTHY" for each in deployments.values()) and all(pid for pid, _ in found["proxies"]):
                break
            assert time.monotonic() < deadline, found
        assert found["epoch"] == 2
        for _, version, replicas in deployments.values():
            assert {each[2] for each in replicas} == {version}
            assert {each[0].partition("#")[2].partition(".")[0] for each in replicas} == {"2"}, "none of before is left"
        assert len(found["proxies"]) == 1
        end.touch()
        done = line_of(caller)
        assert done["problems"] == []
        assert done["calls"] > 0
        assert done["http"] == ["hello", 7]
        caller.wait(60)
    finally:
        end.touch()
        caller.terminate()
        caller.communicate()
