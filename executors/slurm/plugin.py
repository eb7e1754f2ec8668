"""`--executor slurm`, as `executors.plugin` finds it."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from executors.deployment_ids import escaped
from executors.plugin import API, ControllerFence, ExecutorPlugin
from executors.private_folder import checked
from executors.run.folder_fence import FolderFence
from executors.slurm.executor import SlurmExecutor
from executors.slurm.options import SlurmOptions, problem_of
from executors.slurm.scheduler import probe
from rankcore import DeploymentSpec


def fence(namespace: str, deployment: str, options: SlurmOptions) -> FolderFence:
    """The folder of a deployment that all nodes share, and that no other user can get at: it has the tokens of replicas.

    Raises:
        PlaceError: Others could.
    """
    return FolderFence(_shared(options, escaped(namespace), escaped(deployment)))


def begin(
    target: str, spec: Callable[[], DeploymentSpec], epoch: int, fence: ControllerFence, options: SlurmOptions
) -> SlurmExecutor:
    """The executor of a controller that has raised its fence."""
    assert isinstance(fence, FolderFence), "replicas and controllers meet in a folder"
    probe(options, fence.folder)
    return SlurmExecutor(fence.folder, target, spec, epoch, options, fence.raised)


def bench(_: Path, options: SlurmOptions) -> Any:
    """Jobs of the Slurm that is here, for the conformance kit; below the option `folder`, since nodes see that."""
    from executors.slurm.bench import SlurmBench

    return SlurmBench(_tried(options), options)


@cache
def _tried(options: SlurmOptions) -> Path:
    """The shared folder; once for all cases a job has written there."""
    shared = _shared(options)
    probe(options, shared)
    return shared


def _shared(options: SlurmOptions, *below: str) -> Path:
    folder = Path(options.folder).expanduser().joinpath(*below)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return checked(folder)


PLUGIN = ExecutorPlugin(api=API, options=SlurmOptions, check=problem_of, open=begin, bench=bench, fence=fence)
