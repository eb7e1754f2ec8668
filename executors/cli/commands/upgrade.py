"""`rankcore upgrade`: its arguments and its help."""

from pathlib import Path
from typing import Annotated

import typer


def upgrade(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="Specs or records, each as one JSON object; scenarios.", show_default=False),
    ],
) -> None:
    """Rewrite stored specs and records, and scenario files, of an older release as this one has them.

    A spec (what rankcore.codec.to_json writes) and a record (what a controller keeps of a deployment) begin with their format:

    \b
      {"format":[4,0],"type":"DeploymentSpec","name":"llm",...}

    A newer minor has more fields, each with a default, so texts of all older minors are read as they are. Another major has to
    be upgraded first:

    \b
      rankcore upgrade llm.json
      rankcore upgrade ~/kept/*.json

    Each file is replaced whole, and none if one of them cannot be upgraded: all the new texts are on the disk before the first
    file is replaced. What is of this format already is left as it is.

    There is no need to where a controller keeps the record itself, on Ray or in the folder of `rankcore run --executor
    local`: it upgrades what it finds. A scenario of models (.yaml, .yml) becomes one of deployments with residency; it loses
    its comments but those at its beginning, and what cannot be said any more, such as policy.recent_use_s. A journal, a state,
    an event or a command belongs to the release that wrote it, whose `rankcore replay` reads it.

    Exit status: 0 all files are of this format now, 2 one of them cannot be upgraded or written, and none was changed
    but those that the error names.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    from executors.cli.upgrade import run

    run(files)
