"""`rankcore rest`: the REST server of a cluster is started or ended."""

from functools import partial
from pathlib import Path
from typing import Any

import typer

from executors.cli.asked import BAD_INPUT, asked, end


def rest(
    host: str, port: int, token_file: Path | None, certificate: Path | None, key: Path | None, namespace: str | None
) -> None:
    """Do what `commands/rest.py` says."""
    options: dict[str, Any] = {"host": host, "port": port}
    if token_file is not None:
        options["bearer_token"] = _token_in(token_file)
    options |= {name: str(file) for name, file in (("ssl_certfile", certificate), ("ssl_keyfile", key)) if file is not None}
    asked(partial(_starting().start_rest, options, namespace=namespace))
    scheme = "http" if certificate is None else "https"
    shown = f"[{host}]" if ":" in host else host
    typer.echo(f"{scheme}://{shown}:{port}/openapi.json says what there is; `rankcore rest --stop` ends it")


def stop_rest(namespace: str | None) -> None:
    """End it."""
    found = asked(partial(_starting().stop_rest, namespace=namespace))
    typer.echo("the REST server has ended" if found else "there was no REST server")


def _token_in(file: Path) -> str:
    try:
        return (file.expanduser().read_text().splitlines() or [""])[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        end(f"--token-file: {file} cannot be read: {getattr(error, 'strerror', None) or error}", BAD_INPUT)


def _starting() -> Any:
    from executors.ray_gpu.rest import starting

    return starting
