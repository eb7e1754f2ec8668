"""`rankcore deploy`, `scale`, `evict` and `where`: models of a fleet on Ray."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import attrs
import typer
from rich.console import Console

from executors.cli.fleet_view import view, view_of_model

if TYPE_CHECKING:
    from executors.ray_gpu.residency import Model

BAD_INPUT = 2

T = TypeVar("T")


def deploy(target: str, replicas: int, namespace: str | None) -> None:
    """Do what `commands/deploy.py` says."""
    models = _asked(lambda: _models(target))
    names = [model.name for model in models]
    _asked(lambda: _residency().deploy(*models, replicas=replicas, namespace=namespace))
    for name in names:
        typer.echo(f"{name}: wanted HOT {replicas} times; `rankcore where {name}` shows where it is")


def scale(model: str, replicas: int, namespace: str | None) -> None:
    """Do what `commands/scale.py` says."""
    _asked(lambda: _residency().scale(model, replicas, namespace=namespace))
    typer.echo(f"{model}: wanted HOT {replicas} times")


def evict(model: str | None, replica_id: str | None, keep: str, namespace: str | None) -> None:
    """Do what `commands/evict.py` says."""
    _asked(lambda: _residency().evict(model, replica_id=replica_id, keep=keep.upper(), namespace=namespace))
    typer.echo(f"{model or replica_id}: leaves the GPU once its requests are finished")


def where(model: str | None, namespace: str | None, as_json: bool) -> None:
    """Do what `commands/where.py` says."""
    found: Any = _asked(
        lambda: _residency().standing(namespace=namespace) if model is None else _residency().where(model, namespace=namespace)
    )
    if as_json:
        typer.echo(json.dumps(attrs.asdict(found), indent=2))
    else:
        Console(highlight=False).print(view(found) if model is None else view_of_model(found))


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
