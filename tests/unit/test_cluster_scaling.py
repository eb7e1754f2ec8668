"""The target has one writer; loads and policies come as events; an answer about an earlier target counts for nothing."""

from typing import Any

import pytest

from rankcore.autoscaling import AutoscalingSpec
from rankcore.cluster.events import DeploymentRetryRequested, LoadReported, PolicyAnswered, ReportedLoad
from rankcore.cluster.records import Cause
from rankcore.cluster.scaling import POLICY_S, REPORTER_KEPT_S
from rankcore.errors import InvalidEventError, UnknownDeploymentError
from rankcore.events import ReplicaDied, ReplicasLeave
from tests.clusters import Cluster, application, entry

SPEC = AutoscalingSpec(
    min_replicas=1,
    max_replicas=5,
    target_ongoing_requests=1.0,
    metrics_interval_s=1.0,
    look_back_period_s=2.0,
    upscale_delay_s=0.0,
    downscale_delay_s=2.0,
)
FROM_ZERO = AutoscalingSpec(min_replicas=0, max_replicas=2, metrics_interval_s=10.0)


class Loaded(Cluster):
    """A cluster whose callers and replicas say each second how many calls wait, and are worked on."""

    seq = 0

    def report(self, reporter: str, *, incarnation: int = 1, seq: int | None = None, **load: Any) -> None:
        self.seq += 1
        entries = {"a/d": ReportedLoad(**load)}
        number = self.seq if seq is None else seq
        self.tell(LoadReported(reporter=reporter, incarnation=incarnation, seq=number, entries=entries, at=self.now))

    def go_on(self, seconds: int, waiting: int, in_flight: int = 0) -> None:
        for _ in range(seconds):
            self.report("caller", waiting=waiting)
            for replica_id in sorted(self.processes):
                self.report(replica_id, in_flight=in_flight)
            self.wait(1.0)


def test_the_target_follows_what_waits_and_what_is_worked_on() -> None:
    cluster = Loaded()
    cluster.apply(application(entry("a/d", 1, autoscaling=SPEC)))
    cluster.go_on(5, waiting=3)
    assert cluster.target("a/d") == 3
    assert cluster.state.deployments["a/d"].target.cause is Cause.AUTOSCALER
    cluster.go_on(5, waiting=0, in_flight=1)
    assert cluster.target("a/d") == 3
    cluster.go_on(20, waiting=0)
    assert cluster.target("a/d") == 1
    assert cluster.ranks("a/d") == [0]


def test_who_waits_for_a_deployment_without_replicas_is_heard_at_once() -> None:
    cluster = Loaded()
    cluster.apply(application(entry("a/d", 1, autoscaling=FROM_ZERO)))
    assert cluster.target("a/d") == 0
    cluster.report("caller", waiting=0)
    assert cluster.target("a/d") == 0
    cluster.report("caller", waiting=1)
    assert cluster.target("a/d") == 1


def test_of_one_reporter_the_newest_report_counts() -> None:
    cluster = Loaded()
    cluster.apply(application(entry("a/d", 1, autoscaling=FROM_ZERO)))
    cluster.report("caller", incarnation=2, seq=5, waiting=0)
    for incarnation, seq in ((2, 5), (2, 4), (1, 9)):
        cluster.report("caller", incarnation=incarnation, seq=seq, waiting=1)
        assert cluster.notes[-1].kind == "late"
    assert cluster.target("a/d") == 0
    cluster.report("caller", incarnation=3, seq=0, waiting=1)
    assert cluster.target("a/d") == 1


def test_reporters_that_were_silent_for_long_are_forgotten() -> None:
    cluster = Loaded()
    cluster.apply(application(entry("a/d", 1)))
    cluster.report("first", waiting=1)
    cluster.wait(REPORTER_KEPT_S + 1.0)
    cluster.report("second", waiting=1)
    assert set(cluster.state.reporters) == {"second"}
    cluster.tell(LoadReported(reporter="x", incarnation=1, seq=1, entries={"b/d": ReportedLoad()}, at=cluster.now))
    assert cluster.notes[-1].kind == "unknown"


def asked(*, policy: str = "mine") -> Loaded:
    """A deployment whose policy has just been asked."""
    cluster = Loaded()
    cluster.apply(application(entry("a/d", 3, autoscaling=SPEC, policy=policy)))
    cluster.tell(ReplicasLeave(replica_ids=(), at=0.0))
    cluster.go_on(3, waiting=1)
    assert cluster.asked
    return cluster


def answer(cluster: Loaded, **fields: Any) -> None:
    question = cluster.asked[-1]
    known = {"deployment": "a/d", "ask": question.ask, "target_number": question.target_number, "at": cluster.now}
    cluster.tell(PolicyAnswered(**{**known, **fields}))


def test_a_users_policy_is_asked_and_its_answer_followed() -> None:
    cluster = asked()
    assert cluster.asked[-1].policy == "mine"
    assert cluster.asked[-1].view.queued_now == 1.0
    answer(cluster, wanted=3.0, memory={"seen": [1]})
    assert cluster.target("a/d") == 3
    cluster.go_on(3, waiting=1)
    assert cluster.asked[-1].view.memory == {"seen": (1,)}
    assert len(cluster.asked) == 2, "nobody is asked twice at a time"


def test_an_answer_about_a_target_that_was_written_since_is_dropped() -> None:
    cluster = asked()
    answer(cluster, wanted=3.0)
    cluster.go_on(3, waiting=1)
    cluster.tell(ReplicasLeave(replica_ids=("a/d#1.0",), at=cluster.now))
    assert cluster.target("a/d") == 2
    answer(cluster, wanted=3.0)
    assert cluster.target("a/d") == 2, "the one that was taken is not asked for at once"
    assert any(each.kind == "target refused" for each in cluster.notes)
    asked_before = len(cluster.asked)
    cluster.wait(1.0)
    assert len(cluster.asked) == asked_before + 1, "what was reported is looked at again"


def test_an_answer_to_another_question_is_late() -> None:
    cluster = asked()
    answer(cluster, ask=cluster.asked[-1].ask - 1, wanted=5.0)
    assert cluster.target("a/d") == 1
    answer(cluster, wanted=1.0)
    answer(cluster, wanted=5.0)
    assert cluster.target("a/d") == 1
    cluster.tell(PolicyAnswered(deployment="b/d", ask=1, target_number=1, wanted=1.0, at=cluster.now))
    assert cluster.notes[-1].kind == "unknown"


@pytest.mark.parametrize("problem", ["it raised", ""])
def test_a_policy_that_fails_leaves_the_target_and_says_so(problem: str) -> None:
    cluster = asked()
    answer(cluster, problem=problem)
    assert cluster.target("a/d") == 1
    assert (problem or "mine has failed") in cluster.state.deployments["a/d"].conditions[0]
    cluster.go_on(2, waiting=1)
    answer(cluster, wanted=2.0)
    assert cluster.state.deployments["a/d"].conditions == ()


def test_a_policy_that_does_not_answer_counts_as_failed() -> None:
    cluster = asked()
    cluster.wait(POLICY_S + 0.5)
    assert "has not answered" in cluster.state.deployments["a/d"].scaler.problem  # type: ignore[union-attr]
    assert cluster.target("a/d") == 1


def test_who_waits_for_what_was_taken_away_waits_for_the_answer_too() -> None:
    cluster = asked()
    cluster.tell(ReplicasLeave(replica_ids=("a/d#1.0",), at=cluster.now))
    before = len(cluster.asked)
    cluster.report("caller", waiting=2)
    assert cluster.target("a/d") == 0
    assert len(cluster.asked) == before
    answer(cluster, wanted=3.0)
    cluster.wait(1.0)
    assert cluster.target("a/d") == 1, "from zero it is one, and nobody is asked"


def test_a_policy_is_not_asked_where_the_bounds_decide() -> None:
    cluster = Loaded()
    cluster.apply(application(entry("a/d", 1, autoscaling=FROM_ZERO, policy="mine")))
    cluster.report("caller", waiting=1)
    assert cluster.target("a/d") == 1
    assert cluster.asked == []


def test_replicas_that_were_taken_are_not_asked_for_by_the_lower_bound() -> None:
    cluster = Loaded()
    spec = AutoscalingSpec(min_replicas=2, max_replicas=4, metrics_interval_s=1.0, upscale_delay_s=2.0, look_back_period_s=1.0)
    cluster.apply(application(entry("a/d", 2, autoscaling=spec)))
    cluster.tell(ReplicasLeave(replica_ids=("a/d#1.0",), at=0.0))
    cluster.go_on(5, waiting=0)
    assert cluster.target("a/d") == 1
    cluster.go_on(8, waiting=7)
    assert cluster.target("a/d") > 1, "what waits still counts"


def test_another_spec_keeps_what_was_heard() -> None:
    cluster = Loaded()
    cluster.apply(application(entry("a/d", 1, autoscaling=SPEC)))
    cluster.go_on(2, waiting=1)
    core = cluster.state.deployments["a/d"].scaler.core  # type: ignore[union-attr]
    cluster.apply(application(entry("a/d", 1, autoscaling=AutoscalingSpec(max_replicas=3))))
    assert cluster.state.deployments["a/d"].scaler.core.load == core.load  # type: ignore[union-attr]
    cluster.apply(application(entry("a/d", 1, autoscaling=AutoscalingSpec(max_replicas=3), version="2")))
    assert cluster.state.deployments["a/d"].scaler.core.load == core.load  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "make",
    [
        lambda: LoadReported(reporter="x", incarnation=1, seq=1, entries=3, at=0.0),  # type: ignore[arg-type]
        lambda: LoadReported(reporter="x", incarnation=1, seq=1, entries={"": ReportedLoad()}, at=0.0),
        lambda: LoadReported(reporter="x", incarnation=1, seq=1, entries={"a": 3}, at=0.0),  # type: ignore[dict-item]
        lambda: LoadReported(reporter="", incarnation=1, seq=1, entries={}, at=0.0),
        lambda: LoadReported(reporter="x", incarnation=-1, seq=1, entries={}, at=0.0),
        lambda: ReportedLoad(waiting=-1),
        lambda: ReportedLoad(oldest_age_s=-1.0),
        lambda: PolicyAnswered(deployment="a", ask=1, target_number=1, wanted=-1.0, at=0.0),
        lambda: PolicyAnswered(deployment="a", ask=1, target_number=1, wanted="x", at=0.0),  # type: ignore[arg-type]
        lambda: PolicyAnswered(deployment="a", ask=1, target_number=1, memory={1: 2}, at=0.0),
        lambda: PolicyAnswered(deployment="a", ask=1, target_number=1, problem=3, at=0.0),  # type: ignore[arg-type]
    ],
)
def test_news_of_loads_that_cannot_be_is_refused(make: Any) -> None:
    with pytest.raises(InvalidEventError):
        make()


def test_what_rests_in_one_deployment_is_tried_again_there_alone() -> None:
    """V19."""
    cluster = Cluster()
    cluster.apply(application(*(entry(name, 1, start_backoff_s=60.0) for name in ("a/d", "a/e"))))
    for deployment in ("a/d", "a/e") * 2:
        (replica_id,) = cluster.state.deployments[deployment].ranks.replicas
        cluster.tell(ReplicaDied(replica_id=replica_id, reason="no luck", at=cluster.now))
    assert (cluster.ranks("a/d"), cluster.ranks("a/e")) == ([], [])
    cluster.tell(DeploymentRetryRequested(deployment="a/d", ranks=[0], at=cluster.now))
    assert (cluster.ranks("a/d"), cluster.ranks("a/e")) == ([0], [])


def test_a_retry_names_a_deployment_that_there_is_and_ranks() -> None:
    with pytest.raises(UnknownDeploymentError, match=r"DeploymentRetryRequested\.deployment"):
        Cluster().tell(DeploymentRetryRequested(deployment="a/d", at=0.0))
    with pytest.raises(InvalidEventError, match="ranks"):
        DeploymentRetryRequested(deployment="a/d", ranks=["0"], at=0.0)
