"""The kit's line of readiness is left out where replicas cannot say that they take no requests."""

from types import SimpleNamespace

from rankcore.testing.conformance.executor_lines import a_replica_that_takes_no_requests_is_told_and_lives_on


def test_a_bench_whose_replicas_cannot_tell_is_not_asked() -> None:
    a_replica_that_takes_no_requests_is_told_and_lives_on(SimpleNamespace(bench=object()))  # type: ignore[arg-type]
