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
        options["bearer_token"] = token_in(token_file)
    options |= {name: str(file) for name, file in (("ssl_certfile", certificate), ("ssl_keyfile", key)) if file is not None}
    url = url_of(asked(partial(starting().start_rest, options, namespace=namespace)))
    typer.echo(f"{url}/openapi.json says what there is, {url}/dashboard shows it live; `rankcore rest --stop` ends it")


def url_of(served: Any) -> str:
    """Where a REST server is, by its `RestOptions`."""
    scheme = "http" if served.ssl_certfile is None else "https"
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(served.host, served.host)
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{served.port}"


def stop_rest(namespace: str | None) -> None:
    """End it."""
    found = asked(partial(starting().stop_rest, namespace=namespace))
    typer.echo("the REST server has ended" if found else "there was no REST server")


def token_in(file: Path) -> str:
    """The first line of a file."""
    try:
        return (file.expanduser().read_text().splitlines() or [""])[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        end(f"--token-file: {file} cannot be read: {getattr(error, 'strerror', None) or error}", BAD_INPUT)


def starting() -> Any:
    """What starts and ends it."""
    from executors.ray_gpu.rest import starting

    return starting
