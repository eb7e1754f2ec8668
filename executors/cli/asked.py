"""Questions to what runs on Ray: what goes wrong ends the command with one line that says what to do."""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

import typer

FAILED = 1
BAD_INPUT = 2

T = TypeVar("T")


def asked(act: Callable[[], T], statuses: Mapping[type[BaseException], int] | None = None) -> T:
    """What it returns.

    Args:
        statuses: Exit statuses by error, the first that fits; of all other errors it is that of bad input.
    """
    from executors.loading import LoadError
    from executors.simulator.scenario.errors import ScenarioError
    from rankcore.errors import RankcoreError

    try:
        return act()
    except ModuleNotFoundError as error:
        end(f"{error.name} is not installed: pip install 'rankcore[ray,torch]'", BAD_INPUT)
    except (LoadError, ScenarioError, RankcoreError, TimeoutError) as error:
        end(str(error), next((status for kind, status in (statuses or {}).items() if isinstance(error, kind)), BAD_INPUT))


def status_of(api: Any, namespace: str | None, **options: Any) -> Any:
    """What an executor's `status` says of what runs.

    Raises:
        NotRunningError: Nothing does.
    """
    from executors.ray_gpu.errors import NotRunningError

    found = api.status(namespace=namespace, **options)
    if not found.epoch:
        where = f"in namespace {found.namespace!r} of this cluster" if found.namespace else "there"
        raise NotRunningError(f"nothing runs {where}: `rankcore run module:app` deploys something")
    return found


def end(problem: str, status: int) -> NoReturn:
    """One line, and out."""
    typer.echo(f"rankcore: error: {problem}", err=True)
    raise typer.Exit(status)
