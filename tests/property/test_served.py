"""V7: of any row of tenures in one slot, their ready times since the last failure prove the build, and nothing else does."""

from hypothesis import given
from hypothesis import strategies as st

from tests.scripted import Deployment

MIN_READY_S = 10.0
TENURES = st.lists(
    st.tuples(st.integers(0, 9).map(float), st.sampled_from(("scaled away", "stopped", "stopped", "died", "unhealthy"))),
    max_size=12,
)
TOLD_TO_GO = ("scaled away", "stopped")


def end(d: Deployment, how: str) -> None:
    holder = d.state.holder_of(0)
    if how == "stopped":
        d.stop_by_name(holder)
    elif how == "died":
        d.die(holder)
    elif how == "unhealthy":
        d.unhealthy(holder)
    else:
        d.resize(0)
        d.settle()
        d.resize(1)
    d.settle()
    d.wait(4.0)  # the longest back-off; who waits for it is started then
    d.settle()


@given(TENURES)
def test_a_build_is_proven_by_ready_times_in_a_row_that_no_failure_ends(tenures: list[tuple[float, str]]) -> None:
    d = Deployment(1, min_ready_s=MIN_READY_S, start_backoff_s=1.0, start_backoff_max_s=4.0, max_start_failures=1_000)
    d.settle()
    served_s, proven = 0.0, False
    for wanted_s, how in tenures:
        holder = d.state.replicas[d.state.holder_of(0)]
        d.wait(max(0.0, holder.ready_at + wanted_s - d.now))
        proven = proven or d.now - holder.ready_at >= MIN_READY_S
        served_s = served_s + d.now - holder.ready_at if how in TOLD_TO_GO else 0.0
        end(d, how)
        proven = proven or served_s >= MIN_READY_S
        assert (d.state.proven is not None) == proven, (tenures, served_s)
