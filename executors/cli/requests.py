"""`rankcore requests` and `rankcore cancel`: calls that replicas run, calls that wait, and their end."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import attrs
import typer

from executors.cli.asked import asked
from executors.cli.backends import RAY, api_of

if TYPE_CHECKING:
    from executors.ray_gpu.requests.under_way import CallsUnderWay


def requests(name: str | None, older_s: float, namespace: str | None, as_json: bool, executor: str = RAY) -> None:
    """Do what `commands/requests.py` says."""
    found: CallsUnderWay = asked(lambda: api_of(executor).requests_under_way(name, namespace=namespace))
    found = attrs.evolve(
        found,
        calls=tuple(each for each in found.calls if each.age_s >= older_s),
        waiting=tuple(each for each in found.waiting if each.age_s >= older_s),
    )
    if as_json:
        typer.echo(json.dumps(attrs.asdict(found), indent=2))
    else:
        for line in lines_of(found):
            typer.echo(line)


def lines_of(found: "CallsUnderWay") -> Iterator[str]:
    """For people."""
    if not found.calls and not found.waiting:
        yield "no call is under way"
    for each in found.calls:
        named = f"  {each.request_id}" if each.request_id else ""
        yield f"{each.age_s:8.1f} s  {each.replica_id}  {each.method}{named}  {each.id}"
    for wait in found.waiting:
        named = f"  {wait.request_id}" if wait.request_id else ""
        stands = f"waits for {wait.deployment}  {wait.status}, place {wait.position}"
        yield f"{wait.age_s:8.1f} s  {stands}  {wait.method}{named}  {wait.id}"
    if found.silent_callers:
        yield f"did not answer: {found.silent_callers} process{'es' * (found.silent_callers > 1)} in which calls may wait"
    if found.silent:
        yield f"did not answer: {', '.join(found.silent)}"


def cancel(
    request: str | None,
    waiting_for: str | None,
    reason: str | None,
    namespace: str | None,
    executor: str = RAY,
    as_json: bool = False,
) -> None:
    """Do what `commands/requests.py` says."""
    if (request is None) == (waiting_for is None):
        raise typer.BadParameter("give the ID of a request, or --waiting-for the name of what is called")
    told = {} if reason is None else {"reason": reason}
    if waiting_for is not None:
        ended = asked(lambda: api_of(executor).cancel_waiting(waiting_for, namespace=namespace, **told))
        said = (
            json.dumps({"cancelled": list(ended)}, indent=2) if as_json else f"ended, and their callers are told: {len(ended)}"
        )
        return typer.echo(said)
    asked(lambda: api_of(executor).cancel_request(request, namespace=namespace, **told))
    typer.echo(json.dumps({"cancelled": request}, indent=2) if as_json else "it is ended, and its caller is told")
