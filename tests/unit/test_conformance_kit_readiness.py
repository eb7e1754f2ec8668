"""The kit's line of readiness is skipped, and said so, where replicas cannot say that they take no requests."""

from types import SimpleNamespace
from typing import Any

import pytest

from rankcore.testing.conformance.contract import Line, Seat
from rankcore.testing.conformance.executor_lines import a_replica_that_takes_no_requests_is_told_and_lives_on
from rankcore.testing.conformance.running import NotTriedError


def test_a_bench_whose_replicas_cannot_tell_is_not_asked() -> None:
    bench: Any = SimpleNamespace(open=lambda epoch: None)
    with pytest.raises(NotTriedError, match="the bench has no `take_requests`"):
        a_replica_that_takes_no_requests_is_told_and_lives_on(Seat(bench, next(iter(Line))))
