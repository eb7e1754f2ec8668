"""docs/routing.md: its program runs, and its picture is that of the table, which requests really follow."""

import re
from itertools import pairwise
from pathlib import Path

from rankcore.routing import FailureKind, Route, RoutingSpec, open_router, route_step
from rankcore.routing.commands import Dispatch, Retry
from rankcore.routing.events import AnswerBegun, ReplicaLost, RequestArrived, RequestDone, RequestFailed, RoutesChanged
from rankcore.routing.life import ROWS, RequestState, mermaid, state_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "routing.md"


def test_the_program_on_the_page_gives_the_answers_that_it_says():
    program = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)[0]
    names: dict[str, object] = {}
    exec(program, names)
    assert names["answers"] == {"second": 200, "fourth": 503, "early": 200, "third": 200}
    assert ("llm#1.1", "early", 2) in names["work"]


def test_the_picture_on_the_page_is_the_table():
    drawn = re.search(r"<!-- life:begin -->\n```mermaid\n(.*?)\n```\n<!-- life:end -->", PAGE.read_text(), re.DOTALL)
    assert drawn is not None
    assert drawn[1] == mermaid(), "docs/routing.md is old: paste rankcore.routing.life.mermaid()"


def test_every_state_of_a_request_is_one_of_the_table():
    state, *_ = open_router(RoutingSpec(name="llm", max_ongoing_requests=1, request_timeout_s=5.0)), None
    seen = [RequestState.NEW]

    def tell(event):
        nonlocal state
        state, commands, _ = route_step(state, event)
        found = [each for each in state.image.requests if each.request_id == 1]
        seen.append(state_of(found[0] if found else None))
        return [each for each in commands if isinstance(each, (Dispatch, Retry))]

    tell(RequestArrived(request_id=1, at=0.0))
    tell(RoutesChanged(added=(Route("a"), Route("b")), at=1.0))
    tell(RequestFailed(request_id=1, kind=FailureKind.REFUSED, at=1.5))
    tell(RequestFailed(request_id=1, attempt=2, kind=FailureKind.REFUSED, at=1.5))
    (again,) = tell(RoutesChanged(added=(Route("a"), Route("b")), at=1.6))
    tell(AnswerBegun(request_id=1, attempt=again.attempt, at=2.0))
    tell(RequestArrived(request_id=2, at=6.0))
    tell(ReplicaLost(replica_id=again.replica_id, at=7.0))
    tell(RequestDone(request_id=2, at=7.0))
    moves = {(before, after) for before, _, after in ROWS} | {(RequestState.IN_FLIGHT, RequestState.IN_FLIGHT)}
    assert set(seen) == set(RequestState)
    assert {pair for pair in pairwise(seen) if pair[0] is not pair[1]} <= moves
