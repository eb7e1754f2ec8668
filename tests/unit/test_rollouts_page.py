"""What docs/rollouts.md shows of the shell is what the commands print, of a controller with no Ray below it."""

import asyncio
import re
import shlex
import threading
from pathlib import Path
from typing import ClassVar

import attrs
import pytest
from typer.testing import CliRunner

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.cli.app import app
from executors.ray_gpu import changing, connection, cordons, deploying, inspecting, instance
from executors.ray_gpu import controller as controllers
from executors.ray_gpu import ray_deployment as deployments
from executors.ray_gpu.control import of_nodes
from executors.ray_gpu.world import NodeInfo
from rankcore import DeploymentSpec
from rankcore.commands import InitializeReplica, KillReplica, ReconfigureReplica, StartReplica, StopReplica
from rankcore.events import ReplicaPlaced, ReplicaReady, ReplicaReconfigured, ReplicaStartFailed, ReplicaStopped
from tests.ray_in_memory import a_controller, package, until, without_actors

PAGE = (Path(__file__).parents[2] / "docs" / "rollouts.md").read_text(encoding="utf-8")
MODEL = "shop/Model"
NODES = {"3f2a91bc04d7e5a1": "10.0.0.7", "a047857d93c41bbc": "10.0.0.8"}
DEPLOYED = {
    "apps.yaml": {"version": "a"},
    "canary.yaml": {"version": "b", "partition": 3},
    "broken.yaml": {"version": "broken", "start_backoff_s": 0.001},
}
"""What these files say of the deployment, whose code is not packed here."""

LASTED = (
    (re.compile(r"\bfor [0-9.]+ s"), "for some time"),
    (re.compile(r"\b\d\d:\d\d:\d\d, in 1[12]\d s"), "then"),
)
"""What is another time in every run."""


class Obeying(deployments.RayExecutor):
    """Replicas do what they are told once they may, each on a node that is not cordoned."""

    may = threading.Event()
    waiting: ClassVar[list] = []
    versions: ClassVar[dict] = {}

    def execute(self, command):
        if self.may.is_set():
            self.obey(command)
        else:
            self.waiting.append((self, command))

    def obey(self, command):
        about = {"replica_id": getattr(command, "replica_id", None), "at": self._world.now()}
        node_id = next(each for each in NODES if each not in self._world.cordoned)
        match command:
            case StartReplica():
                self.versions[command.replica_id] = command.version
                self.tell(ReplicaPlaced(node_id=node_id, **about))
            case InitializeReplica() if self.versions[command.replica_id] == "broken":
                self.tell(ReplicaStartFailed(reason="RuntimeError: no such weights", **about))
            case InitializeReplica():
                self.tell(ReplicaReady(**about))
            case ReconfigureReplica():
                self.tell(ReplicaReconfigured(revision=command.revision, **about))
            case StopReplica() | KillReplica():
                self.tell(ReplicaStopped(**about))

    async def loads(self, replica_ids):
        return dict.fromkeys(replica_ids, 1)


@pytest.fixture
def type_in(monkeypatch):
    """Type a command, and see what it prints; what it sets going goes on after that, to its end."""
    without_actors(monkeypatch)
    monkeypatch.setattr(deployments, "RayExecutor", Obeying)
    alive = {node_id: NodeInfo(node_id, address, {"CPU": 9.0}, {"CPU": 9.0}) for node_id, address in NODES.items()}
    for module in (cordons, controllers, of_nodes):
        monkeypatch.setattr(module, "live_nodes", lambda: dict(alive))
    monkeypatch.setattr(cordons, "draining_nodes", dict)
    monkeypatch.setenv("COLUMNS", "200")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def run(coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(60)

    async def begin():
        return await a_controller()

    controller = run(begin())
    monkeypatch.setattr(connection, "running", lambda *_: controller)
    monkeypatch.setattr(connection, "connect", lambda **_: None)
    monkeypatch.setattr(connection, "is_there", lambda _: True)
    monkeypatch.setattr(connection, "default_namespace", lambda: "rankcore")
    for module in (deploying, inspecting, instance, changing):
        monkeypatch.setattr(module, "ask", lambda actor, method, *args, **_: run(getattr(actor, method)(*args)))

    async def ended():
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def is_at_rest():
        ranks = controller._cluster.deployments[MODEL].entry.ranks
        running = [each for each in ranks.replicas.values() if each.state == "RUNNING"]
        return ranks.status in ("HEALTHY", "DEPLOY_FAILED") and len(running) == len(ranks.replicas) == ranks.world_size

    async def at_rest():
        Obeying.may.set()
        while Obeying.waiting:
            executor, command = Obeying.waiting.pop(0)
            executor.obey(command)
        await until(is_at_rest)

    def type_in(command):
        Obeying.may.clear()
        _, verb, *arguments = shlex.split(command)
        if verb == "deploy":
            code = package("Model", "shop", target_replicas=4, max_unavailable=1, **DEPLOYED[arguments[0]])
            run(controller.deploy((code,), False))
            printed = ""
        else:
            done = CliRunner().invoke(app, [verb, *arguments])
            assert done.exit_code == 0, done.output
            printed = done.stdout
        run(at_rest())
        return printed

    Obeying.waiting.clear()
    yield type_in
    run(ended())
    loop.call_soon_threadsafe(loop.stop)
    thread.join(60)
    loop.close()


def plain(line):
    for pattern, word in LASTED:
        line = pattern.sub(word, line)
    return " ".join(line.split())


def sessions():
    """Commands of the page, each with the lines that it shows, in the order in which somebody types them."""
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            yield command, [plain(line) for line in shown.splitlines()]


def test_commands_print_what_the_page_says(type_in):
    for command, shown in sessions():
        printed = [plain(line) for line in type_in(command).splitlines()]
        left = iter(printed)
        for line in shown:
            begins = line.removesuffix("...")
            found = line == "..." or any(each == line or (begins != line and each.startswith(begins)) for each in left)
            assert found, f"$ {command}\n{line}\nis not in what is printed:\n" + "\n".join(printed)
        assert "..." in shown or len(shown) == len(printed), f"$ {command}: not all of it is shown:\n" + "\n".join(printed)


def test_options_that_the_page_speaks_of_are_there_with_these_defaults():
    fields = {each.name: each.default for each in attrs.fields(DeploymentSpec)}
    assert set(re.findall(r"`(\w+)=", PAGE)) - {*fields} == set()
    promised = PAGE.partition("## What is promised\n")[2].partition("\n## ")[0]
    said = dict(re.findall(r"`(\w+)` \(([^()]*)\)", promised))
    found = {name: f"{fields[name]:g}" if isinstance(fields[name], float) else str(fields[name]) for name in said}
    assert said == found | {"max_unavailable": '"20%"'}
    assert DeploymentSpec(name="llm", target_replicas=100).unavailable_max == 20


def test_the_page_speaks_of_every_promise_of_availability():
    design = (Path(__file__).parents[2] / "docs" / "design.md").read_text(encoding="utf-8")
    promised = set(re.findall(r"^\| (V\d+) \|", design, re.MULTILINE))
    assert promised - set(re.findall(r"\bV\d+\b", PAGE)) == set()
