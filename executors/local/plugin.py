"""`--executor local`, as `executors.plugin` finds it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from executors.local.executor import ONE_NODE, LocalExecutor
from executors.plugin import API, ControllerFence, ExecutorPlugin
from executors.run.folder_fence import FolderFence
from rankcore import DeploymentSpec


class LocalOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What `--option` may set.

    Attributes:
        nodes: Names of the parts that this machine is divided into, to be cordoned and drained; `--node` says them too.
    """

    nodes: tuple[str, ...] = ONE_NODE


def check(options: LocalOptions) -> str | None:
    """Why there can be no replicas that are processes of this machine; None: there can be."""
    return None if hasattr(os, "pidfd_open") else "it needs Linux: it tells the ends of processes by pidfd"


def begin(
    target: str, spec: Callable[[], DeploymentSpec], epoch: int, fence: ControllerFence, options: LocalOptions
) -> LocalExecutor:
    """The executor of a controller that has raised its fence."""
    assert isinstance(fence, FolderFence), "replicas of this machine meet in a folder"
    return LocalExecutor(fence.folder, target, spec, epoch, options.nodes, fence.raised)


def bench(folder: Path, options: LocalOptions) -> Any:
    """Real processes, which do what files in a folder say."""
    from executors.local.bench import LocalBench

    return LocalBench(folder)


PLUGIN = ExecutorPlugin(api=API, options=LocalOptions, check=check, open=begin, bench=bench)
