"""`rankcore run` with any executor that has no controller of its own: this process is the controller."""

import json
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import typer

from executors.cli.asked import BAD_INPUT, FAILED, asked, end
from executors.cli.backends import LOCAL
from executors.cli.run import INTERRUPTED, STOP_TIMEOUT_S, load, watch
from executors.deployment_ids import DEFAULT_APPLICATION
from executors.loading import ARGS_VARIABLE
from executors.plugin import ControllerFence, OpenExecutor, PluginError, checked, named, options_of
from rankcore import DeploymentSpec


@attrs.frozen
class RunHere:
    """What `rankcore run` was asked for.

    Attributes:
        options: Of the executor, each NAME=VALUE.
        args: For a function that returns the application.
        import_timeout_s: So long each import of code may take; None: as long as it takes.
    """

    executor: str
    options: tuple[str, ...]
    target: str
    namespace: str
    journal: Path | None = None
    name: str | None = None
    args: Mapping[str, Any] = attrs.Factory(dict)
    import_timeout_s: float | None = None


def run_here(wanted: RunHere) -> None:
    """Do what `commands/run.py` says."""
    begin, fence_of = asked(partial(_executor, wanted))
    application = load(wanted.target, wanted.args, wanted.import_timeout_s)
    os.environ[ARGS_VARIABLE] = json.dumps(dict(wanted.args))  # for the replicas, each of which loads it
    from executors.controller import Controller
    from executors.engine.clusters import CLUSTER
    from executors.engine.journal import LenientJournal
    from executors.private_folder import PlaceError
    from executors.ray_gpu.errors import InvalidDeploymentError
    from executors.run.fence import FenceError
    from executors.run.folder_fence import FolderFence
    from executors.run.folders import folder_of
    from executors.run.wanted import spec_of, version_now
    from rankcore.errors import RankcoreError

    journal = wanted.journal
    try:
        spec = spec_of(application, DEFAULT_APPLICATION if wanted.name is None else wanted.name)
        folder = folder_of(wanted.namespace, spec.name)
        fence = fence_of(spec) or FolderFence(folder)
        open_journal = None if journal is None else lambda: LenientJournal.resume(journal, kind=CLUSTER)
        now_is, name = version_now(application), wanted.executor
        controller = Controller(folder, wanted.target, spec, fence, begin, open_journal, now_is, name)
    except (InvalidDeploymentError, RankcoreError, PlaceError) as error:
        end(str(error), BAD_INPUT)
    except OSError as error:
        end(f"{error.filename} cannot be written: {error.strerror}" if error.filename is not None else str(error), BAD_INPUT)
    try:
        here = "processes of this machine" if wanted.executor == LOCAL else f"those of executor {wanted.executor!r}"
        prints = f"; what they print is in {_log(folder, fence.folder)}" if isinstance(fence, FolderFence) else ""
        typer.echo(f"replicas are {here}{prints}", err=True)
        failure = watch(controller.status, [spec.name], controller.run_for)
        typer.echo("stopping: replicas may finish what they do; Ctrl-C again to end them at once", err=True)
    except FenceError as error:
        controller.leave()
        end(f"{error}: this one ends, and leaves them to it", FAILED)
    except BaseException:  # such as a closed pipe: nobody is left to look after them
        controller.kill()
        raise
    try:
        controller.stop(spec.graceful_shutdown_timeout_s + STOP_TIMEOUT_S)
    except FenceError as error:
        controller.leave()
        end(f"{error}: this one ends, and leaves them to it", FAILED)
    except KeyboardInterrupt:
        controller.kill()
        typer.echo("rankcore: interrupted while stopping: all replicas are ended", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except TimeoutError as error:
        controller.kill()
        end(f"{error}: they are ended", FAILED)
    typer.echo("stopped", err=True)
    if failure is not None:
        end(failure, FAILED)


def _log(folder: Path, of_replicas: Path) -> Path:
    """Where replicas print; whoever asks for their lines asks in the folder of this machine."""
    from executors.run.files import LOG

    if of_replicas != folder:
        (folder / LOG).unlink(missing_ok=True)
        (folder / LOG).symlink_to(of_replicas / LOG)
    return of_replicas / LOG


def _executor(wanted: RunHere) -> tuple[Any, Any]:
    """How the executor is made, and the fence of a deployment.

    Raises:
        PluginError: There is none of this name, it cannot run here, or an option is not what it may be.
    """
    one, plugin = named(wanted.executor)
    if plugin.open is None:
        raise PluginError(f"executor {one} has a controller of its own, and no `open`: nothing here can run it")
    options = options_of(one.name, plugin, wanted.options)
    if (problem := checked(plugin, options)) is not None:
        raise PluginError(f"executor {one} cannot run here: {problem}")
    opens, makes_fence = plugin.open, plugin.fence

    def begin(target: str, spec: Any, epoch: int, fence: ControllerFence) -> OpenExecutor:
        return opens(target, spec, epoch, fence, options)

    def fence_of(spec: DeploymentSpec) -> ControllerFence | None:
        return makes_fence(wanted.namespace, spec.name, options) if makes_fence is not None else None

    return begin, fence_of
