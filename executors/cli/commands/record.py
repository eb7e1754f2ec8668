"""`rankcore record`: its arguments and its help."""

from pathlib import Path
from typing import Annotated

import typer

from executors.cli.backends import RayAddress, choose_cluster

NAMESPACE = "rankcore-record"


def record(
    target: Annotated[str, typer.Argument(metavar="APP", help="MODULE:APP, or FILE.py:APP, as for `run`.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where the journal goes.")],
    requests: Annotated[
        Path | None,
        typer.Option(metavar="TRACE", help="Call at these times, .csv or .jsonl. [default: nobody calls]"),
    ] = None,
    preset: Annotated[str | None, typer.Option(metavar="NAME", help="It is a published one.", show_default=False)] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="How the trace is read: a key of requests.trace; repeatable."),
    ] = None,
    namespace: Annotated[str, typer.Option(help="Of the controller; nothing may run there.")] = NAMESPACE,
    address: RayAddress = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was recorded as JSON.")] = False,
) -> None:
    """Record a run on Ray, for `calibrate` and `fidelity`.

    Deploys APP in a namespace of its own, calls it at the times of the trace, and deletes it once all is answered. FILE is
    the controller's journal; beside it, FILE.requests.jsonl has what became of each call of this process: when it came, was
    sent to a replica, was answered. Each call has one argument, {"service_s": S}: the column `service` of the trace, or what
    follows from its tokens, or 0. What answers say of tokens (prompt_tokens and output_tokens, or OpenAI's usage) stands there
    too. Without --requests nobody calls, and the journal alone goes on until Ctrl-C.

    Calls are never held up by that: what cannot be written in time is dropped, and counted. Both files have the id of the run,
    by which `calibrate` and `fidelity` refuse those of another one.

    \b
      rankcore record my_package.models:app --requests trace.csv --set 'columns={time: at, service: service}' -o run.jsonl
      rankcore record my_package.models:app --requests azure.csv --preset azure-llm-2023 --set limit=1000 -o run.jsonl
      rankcore fidelity run.jsonl

    Exit status: 0 recorded, 1 it did not come up, or calls were dropped, 2 bad input, 130 interrupted.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    from executors.cli.record import run

    choose_cluster(address)
    run(target, output, requests, preset, settings or [], namespace, as_json)
