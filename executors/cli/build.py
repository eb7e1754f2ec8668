"""`rankcore build`: applications of modules, as a file of them."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import typer

from executors.cli.asked import BAD_INPUT, asked, end
from executors.cli.outputs import OutputError, Outputs
from executors.deployment_ids import DEFAULT_PREFIX

HEAD = "# Written by `rankcore build {targets}`; `rankcore deploy FILE --dry-run` says what deploying it would change.\n"
PLAIN = (str, int, float, bool, type(None))


class NoPlaceInFileError(Exception):
    """A value that a file cannot hold."""


def build(
    targets: list[str], output: Path | None, grpc: dict[str, Any] | None = None, import_timeout_s: float | None = None
) -> None:
    """Do what `commands/build.py` says; `grpc`: the `grpc_options` of the file, None for none."""
    applications: list[dict[str, Any]] = []
    left_out: list[str] = []
    for target in targets:
        name, found, without = asked(partial(_application, target, import_timeout_s))
        if name in [each["name"] for each in applications]:
            end(f"{target}: expected an application with a name of its own, found {name!r}, which another has", BAD_INPUT)
        prefix = DEFAULT_PREFIX if len(targets) == 1 else f"/{name}"
        applications.append({"name": name, "route_prefix": prefix, **found})
        left_out += without
    text = _text(targets, ({} if grpc is None else {"grpc_options": grpc}) | {"applications": applications}, left_out)
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        with Outputs() as outputs:
            outputs.write(outputs.open("--output-path", output), text)
            outputs.keep()
    except OutputError as error:
        end(str(error), BAD_INPUT)
    typer.echo(f"{output}: {len(applications)} {'application' if len(applications) == 1 else 'applications'}")


def _application(target: str, timeout_s: float | None) -> tuple[str, dict[str, Any], list[str]]:
    """Its name, what a file says of its code, and which options that leaves out."""
    from executors.import_time import within
    from executors.loading import load_application
    from executors.ray_gpu.applications import in_order

    with within(timeout_s, target):
        application = load_application(target)
    name, deployments, left_out = application.deployment.name, [], []
    for each, bound in in_order(application).items():
        options, without = _options(bound.deployment.settings)
        deployments.append({"name": each, **options})
        left_out += [f"{name}/{each}: {option} stays as the code has it" for option in without]
    return name, {"import_path": target, "deployments": deployments}, left_out


def _options(settings: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What a file can say of these, and the names of the others."""
    from executors.ray_gpu.building import OPTIONS

    found, left_out = {}, []
    for option, value in settings.items():
        if option == "name":
            continue
        try:
            if option not in OPTIONS:
                raise NoPlaceInFileError(option)
            found[option] = _in_file(value)
        except NoPlaceInFileError:
            left_out.append(option)
    return found, left_out


def _in_file(value: Any) -> Any:
    """A value as a file has it.

    Raises:
        NoPlaceInFileError: No file can hold it.
    """
    if type(value) in PLAIN:
        return value
    if isinstance(value, Mapping) and all(type(key) is str for key in value):
        return {key: _in_file(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_in_file(each) for each in value]
    if attrs.has(type(value)):  # a Residency; what is as it is by default is left out
        return _in_file(attrs.asdict(value, filter=lambda field, found: found not in (field.default, {})))
    if callable(value) and getattr(value, "__qualname__", ".").isidentifier():
        return f"{value.__module__}:{value.__qualname__}"
    raise NoPlaceInFileError(value)


def _text(targets: list[str], file: dict[str, Any], left_out: list[str]) -> str:
    import yaml

    comments = "".join(f"# {each}\n" for each in left_out)
    body = yaml.safe_dump(file, sort_keys=False, allow_unicode=True, width=120)
    return HEAD.format(targets=" ".join(targets)) + comments + body
