"""`rankcore run --executor local`: the same, with processes of this machine, and this one as their controller."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from executors.cli.asked import BAD_INPUT, FAILED, end
from executors.cli.run import INTERRUPTED, STOP_TIMEOUT_S, load, watch
from executors.deployment_ids import DEFAULT_APPLICATION
from executors.loading import ARGS_VARIABLE


def run_locally(
    target: str,
    namespace: str,
    journal: Path | None,
    name: str | None = None,
    nodes: tuple[str, ...] = (),
    args: Mapping[str, Any] | None = None,
    import_timeout_s: float | None = None,
) -> None:
    """Do what `commands/run.py` says."""
    if not hasattr(os, "pidfd_open"):
        end("--executor local needs Linux: it tells the ends of processes by pidfd", BAD_INPUT)
    application = load(target, args or {}, import_timeout_s)
    os.environ[ARGS_VARIABLE] = json.dumps(dict(args or {}))  # for the replicas, each of which loads it
    from executors.engine.clusters import CLUSTER
    from executors.engine.journal import LenientJournal
    from executors.local.controller import Controller
    from executors.local.executor import ONE_NODE
    from executors.local.fence import FenceError
    from executors.local.folders import folder_of
    from executors.local.places import LOG
    from executors.local.wanted import spec_of, version_now
    from executors.private_folder import PlaceError
    from executors.ray_gpu.errors import InvalidDeploymentError
    from rankcore.errors import RankcoreError

    try:
        spec = spec_of(application, DEFAULT_APPLICATION if name is None else name)
        folder = folder_of(namespace, spec.name)
        open_journal = None if journal is None else lambda: LenientJournal.resume(journal, kind=CLUSTER)
        controller = Controller(folder, target, spec, open_journal, nodes or ONE_NODE, version_now(application))
    except (InvalidDeploymentError, RankcoreError, PlaceError) as error:
        end(str(error), BAD_INPUT)
    except OSError as error:
        end(f"{error.filename} cannot be written: {error.strerror}" if error.filename is not None else str(error), BAD_INPUT)
    try:
        typer.echo(f"replicas are processes of this machine; what they print is in {folder / LOG}", err=True)
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
