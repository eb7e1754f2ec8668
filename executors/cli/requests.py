"""`rankcore requests` and `rankcore cancel`: calls that replicas run, and the end of one."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import attrs
import typer

from executors.cli.asked import asked
from executors.cli.backends import Backend, api_of

if TYPE_CHECKING:
    from executors.ray_gpu.requests.under_way import CallsUnderWay


def requests(name: str | None, older_s: float, namespace: str | None, as_json: bool, executor: Backend = Backend.RAY) -> None:
    """Do what `commands/requests.py` says."""
    found: CallsUnderWay = asked(lambda: api_of(executor).requests_under_way(name, namespace=namespace))
    found = attrs.evolve(found, calls=tuple(each for each in found.calls if each.age_s >= older_s))
    if as_json:
        typer.echo(json.dumps(attrs.asdict(found), indent=2))
    else:
        for line in lines_of(found):
            typer.echo(line)


def lines_of(found: "CallsUnderWay") -> Iterator[str]:
    """For people."""
    if not found.calls:
        yield "no call is under way"
    for each in found.calls:
        named = f"  {each.request_id}" if each.request_id else ""
        yield f"{each.age_s:8.1f} s  {each.replica_id}  {each.method}{named}  {each.id}"
    if found.silent:
        yield f"did not answer: {', '.join(found.silent)}"


def cancel(
    request: str, reason: str | None, namespace: str | None, executor: Backend = Backend.RAY, as_json: bool = False
) -> None:
    """Do what `commands/requests.py` says."""
    told = {} if reason is None else {"reason": reason}
    asked(lambda: api_of(executor).cancel_request(request, namespace=namespace, **told))
    typer.echo(json.dumps({"cancelled": request}, indent=2) if as_json else "it is ended, and its caller is told")
