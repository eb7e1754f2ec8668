"""`rankcore config`: what is in force, as a file of applications."""

import json
from typing import Any

import typer

from executors.cli.asked import BAD_INPUT, asked, end
from executors.cli.backends import api_of

HEAD = "# As `rankcore config` found it; `rankcore deploy FILE --dry-run` says what deploying it would change.\n"
NOBODY_SAID = "# {name}: it was deployed in Python, so write its import_path here\n"


def config(name: str | None, as_json: bool, namespace: str | None, executor: str) -> None:
    """Do what `commands/config.py` says."""
    found: dict[str, Any] = asked(lambda: api_of(executor).config_in_force(namespace=namespace))
    there_are = [each["name"] for each in found["applications"]]
    if name is not None:
        if name not in there_are:
            end(f"there is no application {name!r}; there is: {', '.join(there_are) or 'none'}", BAD_INPUT)
        found = {"applications": [each for each in found["applications"] if each["name"] == name]}
    typer.echo(json.dumps(found, indent=2) if as_json else _yaml(found), nl=as_json)


def _yaml(found: dict[str, Any]) -> str:
    import yaml

    unsaid = [each["name"] for each in found["applications"] if "import_path" not in each]
    comments = "".join(NOBODY_SAID.format(name=name) for name in unsaid)
    return HEAD + comments + yaml.safe_dump(found, sort_keys=False, allow_unicode=True, width=120)
