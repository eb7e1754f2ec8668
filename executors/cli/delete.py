"""`rankcore delete`: end an application or a deployment on Ray."""

import typer

from executors.cli.run import BAD_INPUT, FAILED, end


def delete(name: str, namespace: str | None, timeout_s: float | None) -> None:
    """Do what `commands/delete.py` says."""
    from executors.ray_gpu import api
    from executors.ray_gpu.errors import RayExecutorError

    try:
        api.delete(name, namespace=namespace, timeout_s=timeout_s)
    except TimeoutError as error:
        end(f"{error}; it goes on, see `rankcore status`", FAILED)
    except RayExecutorError as error:
        end(str(error), BAD_INPUT)
    typer.echo(f"deleted {name}")
