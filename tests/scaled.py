"""A deployment in small, for tests of the autoscaler: replicas that start and stop after a while, and a load shared by them."""

from collections.abc import Callable
from itertools import pairwise

import attrs

from rankcore.autoscaling import (
    AutoscalerState,
    AutoscalingSpec,
    HandleReport,
    Metrics,
    ReplicaReport,
    autoscale,
    ongoing_requests,
)
from rankcore.autoscaling.invariants import check_decision


@attrs.define
class Deployment:
    """All of its requests are in flight where a replica runs, and wait in one handle where none does.

    Attributes:
        load: How many requests there are at a time; need not be whole.
        report_age_s: How old each report is when the autoscaler hears it.
        lag_s: From a target to the replicas that it asks for.
        targets: (since, target), as they came.
    """

    spec: AutoscalingSpec
    load: Callable[[float], float]
    lag_s: float = 0.0
    target: int | None = None
    period_s: float | None = None
    policy: Callable = ongoing_requests
    now: float = 0.0
    report_age_s: float = 0.0
    state: AutoscalerState = attrs.field(init=False)
    targets: list[tuple[float, int]] = attrs.Factory(list)
    notes: list = attrs.Factory(list)
    violations: list = attrs.Factory(list)

    def __attrs_post_init__(self):
        self.state = AutoscalerState(spec=self.spec)
        self.target = self.spec.first_target if self.target is None else self.target
        self.targets.append((0.0, self.target))

    @property
    def running(self):
        """Starts and stops take `lag_s`."""
        before = [target for since, target in self.targets if since + self.lag_s <= self.now]
        return [f"app#1.{index}" for index in range(before[-1] if before else self.targets[0][1])]

    def tick(self, reports=None):
        """Everybody reports, and the autoscaler decides."""
        running, load, said_at = self.running, self.load(self.now), self.now - self.report_age_s
        if reports is None:
            reports = [HandleReport("handle", 0.0 if running else load, said_at)]
            reports += [ReplicaReport(each, load / len(running), said_at) for each in running]
        metrics = Metrics(target_replicas=self.target, running=running, reports=reports)
        decision = autoscale(self.state, metrics, self.now, self.policy)
        self.violations += check_decision(self.state, metrics, decision)
        self.state = decision.state
        self.notes += [(self.now, note) for note in decision.notes]
        if decision.target is not None:
            self.target = decision.target
            self.targets.append((self.now, self.target))
        self.now += self.period_s or self.spec.metrics_interval_s
        return decision

    def run(self, until):
        while self.now <= until:
            self.tick()
        return self

    @property
    def sizes(self):
        return [target for _, target in self.targets]

    @property
    def reversals(self):
        ways = [later > earlier for earlier, later in pairwise(self.sizes)]
        return sum(1 for earlier, later in pairwise(ways) if earlier != later)

    def kinds(self):
        return [str(note.kind) for _, note in self.notes]
