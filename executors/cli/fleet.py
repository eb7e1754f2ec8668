"""`rankcore deploy`, `scale`, `evict` and `where`: models of a fleet on Ray; `scale` takes deployments too."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import attrs
import typer

from executors.cli.fleet_view import line_of, view, view_of_model
from executors.cli.screen import answers
from executors.deployment_ids import meant_by

if TYPE_CHECKING:
    from executors.ray_gpu.residency import FleetStanding, Model

BAD_INPUT = 2
KEPT = ("WARM", "COLD")

T = TypeVar("T")


def deploy(target: str, replicas: int, namespace: str | None, *, replace: bool = False) -> None:
    """Do what `commands/deploy.py` says."""
    models = _asked(lambda: _models(target))
    _asked(_be_connected)  # a cluster that this process starts would end with it
    _asked(lambda: _residency().deploy(*models, replicas=replicas, replace=replace, namespace=namespace))
    _tell([model.name for model in models], namespace)


def scale(name: str, replicas: int, namespace: str | None) -> None:
    """Do what `commands/scale.py` says."""
    if _asked(lambda: _scaled_deployment(name, replicas, namespace)):
        return
    _asked(lambda: _residency().scale(name, replicas, namespace=namespace))
    _tell([name], namespace)


def _scaled_deployment(name: str, replicas: int, namespace: str | None) -> bool:
    """Scale the deployment that has a name; False: none has."""
    from executors.ray_gpu import api
    from executors.ray_gpu.errors import NoAnswerError, NotRunningError, UnknownNameError, not_one

    try:
        status = api.status(namespace=namespace)
    except NoAnswerError:
        raise
    except NotRunningError:
        return False
    there_are = (*status.deployments, *status.left_alone)
    found = meant_by(name, there_are)
    if not found and there_are and name not in _models_there(namespace):
        raise UnknownNameError(not_one("deployment or model", name, (), there_are))
    if not found:
        return False
    if len(found) > 1:
        raise UnknownNameError(not_one("deployment", name, found, there_are))
    if name != found[0] and name in _models_there(namespace):
        raise UnknownNameError(not_one("deployment or model", name, [*found, f"the model {name}"], ()))
    api.scale(found[0], replicas, namespace=namespace)
    typer.echo(f"{found[0]}: {replicas} replicas are wanted; `rankcore status {found[0]}` shows how that comes on")
    return True


def _models_there(namespace: str | None) -> list[str]:
    from executors.ray_gpu.errors import NotRunningError

    try:
        return [each.model for each in _residency().standing(namespace=namespace).models]
    except (NotRunningError, ModuleNotFoundError):
        return []


def evict(model: str | None, replica_id: str | None, keep: str, namespace: str | None) -> None:
    """Do what `commands/evict.py` says."""
    if (model is None) == (replica_id is None):
        end(f"expected a MODEL, or --replica ID, found {'neither' if model is None else 'both'}")
    if keep.upper() not in KEPT:
        end(f"--keep: expected one of {', '.join(KEPT)}, found {keep!r}")
    _asked(lambda: _residency().evict(model, replica_id=replica_id, keep=keep.upper(), namespace=namespace))
    _tell([model or (replica_id or "").rpartition("#")[0]], namespace)


def where(model: str | None, namespace: str | None, as_json: bool) -> None:
    """Do what `commands/where.py` says."""
    found: Any = _asked(
        lambda: _residency().standing(namespace=namespace) if model is None else _residency().where(model, namespace=namespace)
    )
    if as_json:
        typer.echo(json.dumps(attrs.asdict(found), indent=2))
    elif model is None:
        answers().print(view(found))
    else:
        answers().print(view_of_model(found), soft_wrap=True)


def _tell(names: list[str], namespace: str | None) -> None:
    """Say how these models stand, and how to see what becomes of them."""
    found: FleetStanding = _asked(lambda: _residency().standing(namespace=namespace))
    for model in found.models:
        if model.model in names:
            typer.echo(line_of(model, nodes=len(found.nodes)))
    typer.echo(f"`rankcore where{' ' + names[0] if len(names) == 1 else ''}` shows how that comes on")


def _be_connected() -> None:
    from executors.ray_gpu.connection import connect

    connect(start=False)


def _residency() -> Any:
    from executors.ray_gpu import residency

    return residency


def _models(target: str) -> "list[Model]":
    from executors.loading import load_object

    found = load_object(target)
    model_class = _residency().Model
    models = list(found) if isinstance(found, (list, tuple)) else [found]
    if not models or not all(isinstance(each, model_class) for each in models):
        end(f"{target} must be a Model of executors.ray_gpu.residency, or a list of some; found {found!r:.80}")
    return models


def _asked(act: Callable[[], T]) -> T:
    """What it returns; what goes wrong ends the command with one line that says what to do."""
    from executors.loading import LoadError

    try:
        from executors.ray_gpu.errors import RayExecutorError
        from rankcore.errors import RankcoreError
    except ModuleNotFoundError as error:
        end(f"{error.name} is not installed: pip install 'rankcore[ray,torch]'")
    try:
        return act()
    except ModuleNotFoundError as error:
        end(f"{error.name} is not installed: pip install 'rankcore[ray,torch]'")
    except (LoadError, RayExecutorError, RankcoreError, TimeoutError) as error:
        end(str(error))


def end(problem: str) -> NoReturn:
    """Say what is wrong, and end."""
    typer.echo(f"rankcore: error: {problem}", err=True)
    raise typer.Exit(BAD_INPUT)
