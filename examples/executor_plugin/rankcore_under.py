"""An executor of one's own: replicas are processes of this machine that are started under another command.

`--option under=nice,-n,10` lets them be nice, `under=numactl,--cpunodebind=0,--membind=0` binds them to a socket, and so on:
any command that becomes the one which it is given. How they are started is all that is new, so all else is that of `local`.
One whose replicas are not processes of this machine has an executor and a fence of its own, and the same plugin around them.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec

from executors.local.bench import LocalBench
from executors.local.executor import LocalExecutor
from executors.local.process import Process, spawn
from executors.plugin import API, ControllerFence, ExecutorPlugin
from rankcore import DeploymentSpec
from rankcore.commands import StartReplica


class UnderOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What `--option NAME=VALUE` may set: words and names, with commas between them."""

    under: tuple[str, ...] = ("nice", "-n", "10")
    nodes: tuple[str, ...] = ("local",)


class UnderExecutor(LocalExecutor):
    """The local executor, but that each replica is started under a command."""

    under: tuple[str, ...] = UnderOptions().under

    def spawn(self, command: StartReplica, node_id: str) -> Process:
        """Start a replica's process."""
        return spawn(self.folder, self.application, command, node_id, self.under)


class UnderBench(LocalBench):
    """What the conformance kit tries it with: the local executor's bench, with this executor in it."""

    def executor(self, application: str, spec: Callable[[], DeploymentSpec], epoch: int) -> LocalExecutor:
        """That of a controller."""
        return UnderExecutor(self.folder, application, spec, epoch, self.there_are)


def check(options: UnderOptions) -> str | None:
    """Why it cannot run here; None: it can."""
    command = options.under[0] if options.under else ""
    return None if not command or shutil.which(command) else f"no {command} on PATH"


def begin(
    target: str, spec: Callable[[], DeploymentSpec], epoch: int, fence: ControllerFence, options: UnderOptions
) -> LocalExecutor:
    """The executor of a controller. The plugin brings no fence of its own, so this one is the folder of the deployment."""
    executor = UnderExecutor(fence.folder, target, spec, epoch, options.nodes, fence.raised)
    executor.under = options.under
    return executor


def bench(folder: Path, options: UnderOptions) -> LocalBench:
    """A fresh one."""
    return UnderBench(folder)


PLUGIN = ExecutorPlugin(api=API, options=UnderOptions, check=check, open=begin, bench=bench)
