"""The decision: how many replicas a deployment should have, from what its handles and replicas report (A1 to A10)."""

import math
from typing import NamedTuple

import attrs

from rankcore import checks
from rankcore.autoscaling.load import IN_FLIGHT, QUEUED, hear
from rankcore.autoscaling.notes import AutoscalingNote, AutoscalingNoteKind
from rankcore.autoscaling.policies import Policy, View, ongoing_requests
from rankcore.autoscaling.reports import Metrics
from rankcore.autoscaling.spec import Aggregation, AutoscalingSpec
from rankcore.autoscaling.state import AutoscalerState, Direction, Experience, Wish, is_near
from rankcore.errors import InvalidEventError, PolicyError, shown
from rankcore.frozen import FrozenJson, freeze_json

DIGITS = 6
"""Of a wish that count: a mean that is off by the last bit of a float asks for no further replica."""
IN_WORDS: dict[Aggregation, str] = {"mean": "on average over", "max": "at most over", "min": "at least over"}
ELAPSED_SLACK_S = 1e-6
"""Times that were added up may be short by that much."""


class Decision(NamedTuple):
    """What one call leads to.

    Attributes:
        target: The new target; None: it stays as it is.
        notes: The decision log.
    """

    target: int | None
    state: AutoscalerState
    notes: tuple[AutoscalingNote, ...]


def autoscale(state: AutoscalerState, metrics: Metrics, at: float, policy: Policy = ongoing_requests) -> Decision:
    """Decide whether the target of a deployment should change. Changes nothing: the caller asks for the target it returns.

    Args:
        state: Of the last call; `AutoscalerState(spec=...)` at first, and after a restart of the controller.
        metrics: How the deployment is, and what has been reported since the last call.
        at: Now, in seconds; one that goes back counts as the time of the last call.
        policy: How many replicas a load calls for (A8).

    Raises:
        InvalidEventError: An argument is not what it may be; the state is as it was.
        PolicyError: The policy returned something else than a number of replicas; the state is as it was.
    """
    if not isinstance(state, AutoscalerState):
        raise InvalidEventError("autoscale.state", state, "an AutoscalerState")
    if not isinstance(metrics, Metrics):
        raise InvalidEventError("autoscale.metrics", metrics, "a Metrics")
    checks.seconds(InvalidEventError, "autoscale.at", at)
    return _Call(state, metrics, max(at, state.at), policy).decide()


def ongoing_now(state: AutoscalerState) -> float:
    """How many requests there are, as the last call has seen it: over the look-back, by the `aggregation_function`."""
    return state.load.over((QUEUED, IN_FLIGHT), state.spec.aggregation_function, _averaged_since(state), state.at)


def _settled_at(state: AutoscalerState) -> float:
    """By then everybody has had the time to report."""
    since = state.load.since
    return math.inf if since is None else since + state.spec.metrics_interval_s


def _averaged_since(state: AutoscalerState) -> float:
    """The look-back, as far as everybody has been heard in it."""
    return min(state.at, max(state.at - state.spec.look_back_period_s, _settled_at(state)))


class _Call:
    """One decision on its way. It lives only while `autoscale` runs."""

    def __init__(self, state: AutoscalerState, metrics: Metrics, at: float, policy: Policy) -> None:
        self.spec = state.spec
        self.metrics = metrics
        self.at = at
        self.target = metrics.target_replicas
        self.policy = policy
        self.notes: list[AutoscalingNote] = []
        self.load, ignored = hear(state.load, state.spec, metrics, at)
        self.state = attrs.evolve(state, at=at, load=self.load)
        for reason, sources in ignored.items():
            some = ", ".join(sources[:4]) + (", ..." if len(sources) > 4 else "")
            self._note(AutoscalingNoteKind.IGNORED, "A6", because=f"reports of {len(sources)} sources are {reason}: {some}")

    def decide(self) -> Decision:
        bounded = self.spec.within_bounds(self.target)
        if bounded > self.target:
            why = f"min_replicas is {self.spec.min_replicas}"
            return self._to(bounded, AutoscalingNoteKind.BOUNDED, "A1", why, Experience())
        if bounded < self.target:
            return self._to_fewer(bounded)
        if self.target == 0:
            return self._from_zero()
        if not self.metrics.running:
            return self._stay()  # what waits for the first replica says nothing of how many it takes (A5)
        if self.load.since is None:
            return self._stay(AutoscalingNoteKind.NO_REPORTS, "A6", "nobody's report is recent enough to count")
        if self.at < self._settled_at:
            why = f"everybody may report until {self._settled_at:g} s"
            return self._stay(AutoscalingNoteKind.LISTENING, "A10", why)
        return self._follow_the_load()

    @property
    def _settled_at(self) -> float:
        return _settled_at(self.state)

    @property
    def _averaged_since(self) -> float:
        return _averaged_since(self.state)

    def _from_zero(self) -> Decision:
        waiting = self.load.now(QUEUED)
        if not waiting:
            return self._stay()
        first = self.spec.within_bounds(max(1, math.ceil(self.spec.upscaling_factor)))
        why = f"{waiting:g} requests wait and there is no replica"
        return self._to(first, AutoscalingNoteKind.FROM_ZERO, "A5", why, Experience())

    def _to_fewer(self, bounded: int) -> Decision:
        """The bounds are below the target: nothing is waited for but ranks that move."""
        goal = max(bounded, self.target - self._room_for_moves)
        if goal < self.target:
            why = f"max_replicas is {self.spec.max_replicas}"
            return self._to(goal, AutoscalingNoteKind.BOUNDED, "A1", why, Experience())
        return self._stay(AutoscalingNoteKind.CAPPED, "A9", self._moves_in_words)

    def _follow_the_load(self) -> Decision:
        view = self._view()
        wanted, memory = asked(self.policy, view)
        self.state = attrs.evolve(self.state, memory=memory)
        busy = view.queued_now > 0 or view.in_flight_now > 0
        need = self.spec.within_bounds(max(_ceil(wanted), int(busy)))
        why = _load_in_words(view, self.at - self._averaged_since, need)
        if need > self.target:
            return self._upwards(wanted, need, why)
        if need < self.target:
            return self._downwards(wanted, need, why)
        if self.state.wish is not None:
            self._note(AutoscalingNoteKind.SATISFIED, "A3", need, why)
        return self._stay()

    def _view(self) -> View:
        begin, how = self._averaged_since, self.spec.aggregation_function
        return View(
            at=self.at,
            spec=self.spec,
            target_replicas=self.target,
            running_replicas=len(self.metrics.running),
            ongoing_requests=ongoing_now(self.state),
            queued_requests=self.load.over((QUEUED,), how, begin, self.at),
            queued_now=self.load.now(QUEUED),
            in_flight_now=self.load.now(IN_FLIGHT),
            memory=self.state.memory,
        )

    def _upwards(self, wanted: float, need: int, why: str) -> Decision:
        experience = self.state.experience
        goal = self.spec.within_bounds(_raised(self.spec, wanted, self.target, experience.peak))
        wish = self._wish(Direction.UP)
        if not _has_passed(self.at, wish.since, self.spec.upscale_delay_s):
            return self._wait(wish, AutoscalingNoteKind.UPSCALE_WANTED, goal, why, self.spec.upscale_delay_s)
        return self._to(goal, AutoscalingNoteKind.UPSCALED, "A4" if goal != need else "A3", why, experience.raised(need))

    def _downwards(self, wanted: float, need: int, why: str) -> Decision:
        spec, experience = self.spec, self.state.experience
        goal = max(need, _reduced(spec, wanted, self.target))
        if self.target > 1:
            goal = max(1, goal)
        wish = self._wish(Direction.DOWN)
        far_since = self.at if wish.far_since is None else wish.far_since
        wish = attrs.evolve(wish, far_since=None if is_near(wanted, experience.peak) else far_since)
        delay_s = spec.downscale_delay_from(self.target)
        if not _has_passed(self.at, wish.since, delay_s):
            return self._wait(wish, AutoscalingNoteKind.DOWNSCALE_WANTED, goal, why, delay_s)
        silent = self.load.silent(self.metrics.running)
        if silent:
            shown = ", ".join(silent[:4]) + (", ..." if len(silent) > 4 else "")
            return self._block(wish, AutoscalingNoteKind.UNKNOWN_LOAD, "A6", goal, f"nothing is known of {shown}")
        near = wish.far_since is None or not _has_passed(self.at, wish.far_since, delay_s)
        if near:
            goal = max(goal, experience.floor)
        if goal >= self.target:
            because = f"a downscale from {experience.peak} was taken back, and the load was near that until now: {why}"
            return self._block(wish, AutoscalingNoteKind.HELD, "A7", goal, because)
        least = self.target - self._room_for_moves
        if least >= self.target:
            return self._block(wish, AutoscalingNoteKind.CAPPED, "A9", goal, self._moves_in_words)
        decision = self._to(max(goal, least), AutoscalingNoteKind.DOWNSCALED, "A3", why, experience.lowered(need, near=near))
        if least <= goal:
            return decision
        # The rest follows as soon as ranks have moved: it has been wanted for long enough.
        return decision._replace(state=attrs.evolve(decision.state, wish=wish, experience=experience))

    def _wish(self, direction: Direction) -> Wish:
        before = self.state.wish
        return before if before is not None and before.direction is direction else Wish(direction, self.at)

    def _wait(self, wish: Wish, kind: AutoscalingNoteKind, goal: int, why: str, delay_s: float) -> Decision:
        if wish.since == self.at:
            self._note(kind, "A3", goal, f"{why}; followed after {delay_s:g} s")
        self.state = attrs.evolve(self.state, wish=wish)
        return Decision(None, self.state, tuple(self.notes))

    def _block(self, wish: Wish, kind: AutoscalingNoteKind, rule: str, goal: int, why: str) -> Decision:
        if wish.blocked is not kind:
            self._note(kind, rule, goal, why)
        self.state = attrs.evolve(self.state, wish=attrs.evolve(wish, blocked=kind))
        return Decision(None, self.state, tuple(self.notes))

    def _stay(self, kind: AutoscalingNoteKind | None = None, rule: str = "", why: str = "") -> Decision:
        """Nothing is wanted, or nothing can be said: who wants something later begins to wait then."""
        if kind is not None:
            self._note(kind, rule, because=why)
        return Decision(None, attrs.evolve(self.state, wish=None), tuple(self.notes))

    def _to(self, goal: int, kind: AutoscalingNoteKind, rule: str, why: str, experience: Experience) -> Decision:
        self._note(kind, rule, goal, why)
        state = attrs.evolve(self.state, wish=None, experience=experience)
        up = goal > self.target
        return Decision(
            goal,
            attrs.evolve(state, upscaled_at=self.at) if up else attrs.evolve(state, downscaled_at=self.at),
            tuple(self.notes),
        )

    def _note(self, kind: AutoscalingNoteKind, rule: str, wanted: int | None = None, because: str = "") -> None:
        self.notes.append(AutoscalingNote(kind, rule, self.target, wanted, because=because))

    @property
    def _room_for_moves(self) -> int:
        """How many replicas may be stopped: each of them leaves a rank that another one may have to take (A9)."""
        if self.spec.max_rank_moves is None or not self.metrics.stops_move_ranks:
            return self.target
        return max(0, self.spec.max_rank_moves - self.metrics.rank_moves)

    @property
    def _moves_in_words(self) -> str:
        return f"{self.metrics.rank_moves} ranks are moving, and max_rank_moves is {self.spec.max_rank_moves}"


def asked(policy: Policy, view: View) -> tuple[float, FrozenJson]:
    """What the policy wants, and what it wants to remember.

    Raises:
        PolicyError: It has failed, or what it returned is neither.
    """
    name = getattr(policy, "__name__", type(policy).__name__)
    try:
        answer = policy(view)
    except Exception as error:  # whatever a user's function raises
        raise PolicyError(name, f"raised {type(error).__name__}: {error}") from error
    wanted, memory = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, None)
    if isinstance(wanted, bool) or not isinstance(wanted, (int, float)) or not 0.0 <= wanted <= checks.COUNT_MAX:
        allowed = f"a number of replicas from 0 to {checks.COUNT_MAX}, alone or with what it wants to remember"
        raise PolicyError(name, f"must return {allowed}, got {shown(answer)}")
    try:
        return float(wanted), freeze_json(memory)
    except TypeError as error:
        raise PolicyError(name, f"can remember only JSON-like data, and {error}") from None


def _load_in_words(view: View, averaged_s: float, need: int) -> str:
    """What counts over the look-back, and what is so at present: the second need not be a part of the first."""
    if averaged_s <= 0.0:  # the newest values stand for the mean
        return f"{view.ongoing_requests:.4g} ongoing requests now, {view.queued_now:g} of them queued, call for {need} replicas"
    how = IN_WORDS[view.spec.aggregation_function]
    load = f"{view.ongoing_requests:.4g} ongoing requests {how} {averaged_s:.4g} s"
    return f"{load}, with {view.queued_now:g} queued and {view.in_flight_now:g} in flight now, call for {need} replicas"


def _raised(spec: AutoscalingSpec, wanted: float, target: int, peak: int) -> int:
    """A4: what is added is multiplied; beyond what is wanted, only as far as the load has never been there before (A7)."""
    factor = spec.upscaling_factor
    if factor < 1.0:
        return _ceil(target + factor * (wanted - target))
    return _ceil(wanted + (factor - 1.0) * max(0.0, wanted - max(target, peak)))


def _reduced(spec: AutoscalingSpec, wanted: float, target: int) -> int:
    """A4: what is taken away is multiplied; at least one replica goes."""
    return min(target - 1, _ceil(target + spec.downscaling_factor * (wanted - target)))


def _has_passed(at: float, since: float, delay_s: float) -> bool:
    return at - since + ELAPSED_SLACK_S >= delay_s


def _ceil(wanted: float) -> int:
    return math.ceil(round(wanted, DIGITS))
