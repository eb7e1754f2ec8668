"""The facts that answer a question, in the order of time."""

import difflib
import os
from collections import deque
from collections.abc import Callable

import attrs

from executors.deployment_ids import meant_by
from executors.engine.clusters import ClusterEntry
from executors.engine.deployment_lines import Part, is_of_cluster, refuse_difference, replay_cluster
from executors.engine.deployments import DEPLOYMENTS, Entry, Recovered, Resumed
from executors.engine.reading import JournalReader, located
from executors.explain.facts import Fact, with_causes
from executors.explain.pictures import deployment_lines, node_lines, picture, worker_lines
from executors.explain.tracing import Tracer
from executors.explain.weights import ClusterTracer
from executors.explain.wording import listed, plural
from executors.simulator.times import TENTHS, moment
from rankcore.cluster import ClusterState, ClusterStep
from rankcore.cluster.residency import deployment_of
from rankcore.values import ReplicaId, age_key

EPISODE_MAX = 60
"""So many facts of what went on at a moment are told; the start of a thousand replicas is not a story."""

ABOUT_S = 2.0
"""Times are read off a page in whole seconds, and told from memory."""

PROGRESS_EVERY = 256

Progress = Callable[[int], None]


class NothingToExplain(ValueError):
    """A journal has no such deployment, replica or rank; the text names the nearest that it has."""


@attrs.frozen(kw_only=True)
class Question:
    """What is to be explained. With `at`, the change of the replica or rank at that time, or the last before it; else all.

    Attributes:
        replica_id: A replica, or a worker, which has weights.
        at: Seconds; without a replica or rank: what went on at that time.
        deployment: `application/deployment`, or the bare name of one only. May be None where the replica names it, or the
            journal has one only. Alone: what became of it as a whole, and of its weights.
    """

    replica_id: ReplicaId | None = None
    rank: int | None = None
    at: float | None = None
    deployment: str | None = None

    def is_about(self, fact: Fact) -> bool:
        """Whether a fact about the deployment that is meant is about whom is asked."""
        if self.replica_id is not None and self.replica_id not in fact.replica_ids:
            return False
        if self.rank is not None:
            return self.rank in fact.ranks
        return self.replica_id is not None or self.at is not None or not fact.is_detail


@attrs.frozen(kw_only=True)
class Story:
    """An answer.

    Attributes:
        about: What it explains, in words.
        state: How things stood at the moment that was asked about, in lines; empty where none was.
        facts: In the order of time.
        left_out: How many earlier facts of the same episode are not told.
        warning: What is wrong with the journal, without making it useless; None: nothing.
    """

    about: str
    state: tuple[str, ...]
    facts: tuple[Fact, ...]
    left_out: int
    warning: str | None


def explain(path: str | os.PathLike[str], question: Question, progress: Progress | None = None) -> Story:
    """Answer a question from a journal, in one pass and in memory for what is alive, not for what is past.

    Raises:
        NothingToExplain: There is no such deployment, replica or rank in it.
        JournalError: The file is not a journal, or a line before the last is broken.
        OSError: It cannot be read.
    """
    if is_of_cluster(path):
        of_cluster = _ClusterListener(question)
        result = replay_cluster(path, of_cluster.hear_line, progress=progress)
        refuse_difference(result)
        return of_cluster.story(result.warning)
    listener = _Listener(question)
    reader = JournalReader(path, DEPLOYMENTS)
    for count, entry in enumerate(reader, start=1):
        with located(reader.path, entry.line):
            listener.hear(entry)
        if progress is not None and count % PROGRESS_EVERY == 0:
            progress(reader.position)
    return listener.story(reader.warning)


class _Listener:
    """Follows one deployment, and keeps what the question asks for."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._named = question.deployment or self.owner_of(question.replica_id or "") or None
        self._deployments: dict[str, None] = {}
        self._follow(None)

    def _follow(self, deployment: str | None) -> None:
        """Begin with the first line of a deployment; None: it has not come yet."""
        self._tracer = Tracer(deployment) if deployment is not None else None
        self._replicas: dict[ReplicaId, None] = {}
        self._ranks = 0
        self._ended_at = 0.0
        self._about: list[Fact] = []
        self._nearest: list[Fact] = []
        self._episode: deque[Fact] = deque(maxlen=EPISODE_MAX)
        self._episode_size = 0
        self._calm = False
        self._then: tuple[tuple[Fact, ...], int] | None = None
        self._state: tuple[str, ...] = ()

    def owner_of(self, replica_id: ReplicaId) -> str:
        """The deployment that a replica is of."""
        return replica_id.rpartition("#")[0]

    def hear(self, entry: Entry) -> None:
        """The next line of a journal of deployments."""
        self._meet(entry)
        if self._tracer is None or entry.deployment != self._tracer.memory.name:
            return
        self._pass(entry.at)
        facts = self._tracer.facts_of(entry)
        self._learn([entry], facts)
        self._take(facts)

    def _meet(self, entry: Entry) -> None:
        """A deployment that comes for the first time may be the one that is meant."""
        is_new = entry.deployment not in self._deployments
        self._deployments.setdefault(entry.deployment)
        if is_new and (entry.deployment == self._named or (self._tracer is None and self._may_be_meant(entry.deployment))):
            self._follow(entry.deployment)

    def _pass(self, at: float) -> None:
        """Time goes on to this, perhaps past the moment that is asked about."""
        if self._question.at is not None and self._then is None and at > self._question.at:
            self._take_picture()

    def _take(self, facts: list[Fact]) -> None:
        """What a line tells of the deployment that is meant."""
        for fact in facts:
            if self._question.is_about(fact):
                self._keep(fact)
        if self._question.at is not None and self._then is None:
            self._follow_episode(facts)

    def _may_be_meant(self, deployment: str) -> bool:
        """Until one comes that has the very name."""
        return self._named is None or bool(meant_by(self._named, [deployment]))

    def story(self, warning: str | None) -> Story:
        question = self._question
        self._check()
        assert self._tracer is not None, "a journal that passed the check has a deployment"
        if question.at is not None and self._then is None:
            self._take_picture()
        if question.at is not None and question.at > self._ended_at:
            end = (
                f"The journal ends at {moment(self._ended_at, TENTHS)}: if nothing has happened since, this is how things are."
            )
            self._state = (end, *self._state)
        left_out = 0
        if question.replica_id is None and question.rank is None and question.at is not None:
            assert self._then is not None, "the picture is taken at the end at the latest"
            facts, left_out = self._then
        elif question.at is not None:
            facts = tuple(self._nearest)
        else:
            facts = tuple(self._about)
        return Story(
            about=self._words(),
            state=self._state,
            facts=tuple(with_causes(facts)),
            left_out=left_out,
            warning=warning,
        )

    def _learn(self, entries: list[Entry], facts: list[Fact]) -> None:
        assert self._tracer is not None, "it was made for the first line"
        memory = self._tracer.memory
        self._ended_at = max(self._ended_at, memory.clock)
        if memory.spec is not None:
            self._ranks = max(self._ranks, memory.spec.target_replicas)
        if any(isinstance(entry.cause, (Resumed, Recovered)) for entry in entries):
            self._replicas.update(dict.fromkeys(memory.lives))
        for fact in facts:
            self._replicas.update(dict.fromkeys(each for each in fact.replica_ids if self.owner_of(each) == memory.name))
            self._ranks = max(self._ranks, *(rank + 1 for rank in fact.ranks), 0)

    def _keep(self, fact: Fact) -> None:
        at = self._question.at
        if at is None:
            self._about.append(fact)
        elif fact.is_change:
            self._nearest = nearer(self._nearest, fact, at)

    def _follow_episode(self, facts: list[Fact]) -> None:
        """An episode lasts from the first fact after a calm until the deployment is healthy again."""
        assert self._tracer is not None, "it was made for the first line"
        for fact in facts:
            if self._calm:
                self._episode.clear()
                self._episode_size, self._calm = 0, False
            self._episode.append(fact)
            self._episode_size += 1
        healthy = self._tracer.memory.status in ("HEALTHY", "DELETED")
        moving = any(life.moving is not None for life in self._tracer.memory.lives.values()) if healthy and facts else False
        self._calm = self._calm or (healthy and not moving and self._is_at_rest())

    def _is_at_rest(self) -> bool:
        """Whether nothing but ranks is under way."""
        return True

    def _take_picture(self) -> None:
        assert self._tracer is not None, "there is a line before the moment"
        memory = self._tracer.memory
        self._then = tuple(self._episode), self._episode_size - len(self._episode)
        at = self._question.at
        assert at is not None, "a picture is of a moment"
        self._state = tuple(picture(memory, at, self._question.replica_id, self._question.rank))

    def _words(self) -> str:
        assert self._tracer is not None, "a journal that passed the check has a deployment"
        question, name = self._question, self._tracer.memory.name
        who = " and ".join(
            ([question.replica_id] if question.replica_id is not None else [])
            + ([f"rank {question.rank} of {name}"] if question.rank is not None else [])
        )
        if question.at is None:
            return who or name
        return f"{who or name} at {moment(question.at, TENTHS)}"

    def _check(self) -> None:
        question, deployments = self._question, list(self._deployments)
        if not deployments:
            raise NothingToExplain("expected a journal with a deployment, found one without")
        if question.deployment is not None and len(found := meant_by(question.deployment, deployments)) != 1:
            meant = near(question.deployment, deployments)
            text = f"--deployment: expected one of {listed(found or deployments)}, found {question.deployment!r}{meant}"
            raise NothingToExplain(text)
        if question.deployment is None and question.replica_id is None and len(deployments) > 1:
            raise NothingToExplain(f"expected --deployment, since the journal has several: {listed(deployments)}")
        if question.replica_id is not None and question.replica_id not in self._replicas:
            self._refuse_replica(question.replica_id, deployments)
        if question.rank is not None and question.rank >= self._ranks:
            most = f"a rank from 0 to {self._ranks - 1}" if self._ranks else "nothing: it never had a replica"
            raise NothingToExplain(f"--rank: expected {most}, found {question.rank}")

    def _refuse_replica(self, found: ReplicaId, deployments: list[str]) -> None:
        known = sorted(self._replicas, key=age_key)
        if not known:
            raise NothingToExplain(f"--replica: expected a replica of {listed(deployments)}, found {found!r}")
        sorts = (("replica", [each for each in known if not is_worker(each)]), ("worker", [*filter(is_worker, known)]))
        wanted = ", or ".join(one_of(sort, ids) for sort, ids in sorts if ids)
        raise NothingToExplain(f"--replica: expected {wanted}, found {found!r}{near(found, known)}")


class _ClusterListener(_Listener):
    """Follows a cluster, one deployment of it above all, and the memory of all nodes."""

    def __init__(self, question: Question) -> None:
        super().__init__(question)
        self._cluster = ClusterTracer()
        self._is_of_memory = False
        self._memory: tuple[list[str], list[Fact]] | None = None
        self._near_in_memory: list[Fact] = []
        self._clock = 0.0

    def owner_of(self, replica_id: ReplicaId) -> str:
        """The deployment that a replica, or a worker, is of."""
        return deployment_of(replica_id).rpartition("#")[0] or deployment_of(replica_id)

    def hear_line(self, line: ClusterEntry, before: ClusterState | None, step: ClusterStep, parts: list[Part]) -> None:
        """The next line of a cluster's journal."""
        for part in parts:
            self._meet(part.entry)
            entry = step.state.deployments.get(part.entry.deployment)
            self._is_of_memory = self._is_of_memory or (entry is not None and entry.residency is not None)
        self._cluster.ranks = self._tracer
        if before is not None:
            self._pass_cluster(step.state.clock)
            if self._tracer is not None:
                self._pass(step.state.clock)
        facts = self._cluster.facts_of(line, before, step, parts)
        self._clock = step.state.clock
        at = self._question.at
        if at is not None:
            for fact in facts:
                if fact.is_change and all(is_worker(each) for each in fact.replica_ids[:1]):
                    self._near_in_memory = nearer(self._near_in_memory, fact, at)
        if self._tracer is not None:
            mine = [fact for fact in facts if self._tracer.memory.name in fact.deployments]
            self._learn([part.entry for part in parts if part.entry.deployment == self._tracer.memory.name], mine)
            self._take(mine)

    def story(self, warning: str | None) -> Story:
        """The answer, once the journal has ended."""
        question = self._question
        if question == Question(at=question.at) and self._is_of_memory and len(self._deployments) > 1:
            return self._story_of_memory(warning)
        found = super().story(warning)
        if question.at is None and question.rank is None and (lines := self._weights_lines()):
            end = f"At the end of the journal, at {moment(self._clock, TENTHS)}:"
            return attrs.evolve(found, state=(end, *lines))
        return found

    def _story_of_memory(self, warning: str | None) -> Story:
        at = self._question.at
        assert at is not None, "the question is what went on at a moment"
        ended = [f"At the end of the journal, at {moment(self._clock, TENTHS)}:"] if at > self._clock else []
        if self._memory is None:
            self._take_picture_of_memory()
        assert self._memory is not None, "it has just been taken"
        state, facts = self._memory
        return Story(
            about=f"the cluster at {moment(at, TENTHS)}",
            state=(*ended, *state),
            facts=tuple(with_causes(facts)),
            left_out=0,
            warning=warning,
        )

    def _pass_cluster(self, at: float) -> None:
        if self._question.at is not None and self._memory is None and at > self._question.at:
            self._take_picture_of_memory()

    def _take_picture_of_memory(self) -> None:
        state = self._cluster.state
        assert state is not None, "there is a line before the moment"
        self._memory = node_lines(state), [*self._cluster.unsettled, *self._near_in_memory]

    def _take_picture(self) -> None:
        super()._take_picture()
        self._state = (*self._state, *self._weights_lines())

    def _weights_lines(self) -> list[str]:
        """How the workers that are asked about stand."""
        assert self._tracer is not None, "there is a line before the moment"
        state, asked = self._cluster.state, self._question.replica_id
        assert state is not None, "there is a line before the moment"
        if self._question.rank is not None:
            return []
        if asked is None:
            return deployment_lines(state, self._tracer.memory.name)
        entry = state.deployments.get(self._tracer.memory.name)
        tenures = entry.residency.tenures if entry is not None and entry.residency is not None else {}
        return worker_lines(state, lambda each: each in (asked, tenures.get(asked)))

    def _is_at_rest(self) -> bool:
        assert self._tracer is not None, "it was made for the first line"
        assert self._cluster.state is not None, "there is a line"
        return self._cluster.is_at_rest(self._tracer.memory.name)


def one_of(sort: str, ids: list[ReplicaId]) -> str:
    """In words, with the oldest and the newest."""
    if len(ids) == 1:
        return f"the {sort} {ids[0]}"
    return f"one of the {plural(len(ids), sort)} in the journal, {ids[0]} to {ids[-1]}"


def is_worker(replica_id: ReplicaId) -> bool:
    """Whether this is the id of a worker, which holds weights, and not that of a replica."""
    return deployment_of(replica_id) != replica_id


def fits(fact: Fact, at: float) -> tuple[int, float]:
    """How well a change answers for a moment: one at about that time, else the last before, else the first after."""
    away = abs(fact.at - at)
    return (0 if away <= ABOUT_S else 1 if fact.at < at else 2), away


def nearer(found: list[Fact], fact: Fact, at: float) -> list[Fact]:
    """The changes of the line that answers best for a moment, now that there is another one."""
    if found and fact.line == found[0].line:
        return [*found, fact]
    return [fact] if not found or fits(fact, at) < fits(found[0], at) else found


def near(found: str, known: list[str]) -> str:
    """The name that may have been meant, in words; nothing where none is like it."""
    meant = difflib.get_close_matches(found, known, n=1, cutoff=0.5)
    return f" (did you mean {meant[0]}?)" if meant else ""


__all__ = ["NothingToExplain", "Question", "Story", "explain"]
