"""The facts that answer a question, in the order of time."""

import difflib
import os
from collections import deque
from collections.abc import Callable

import attrs

from executors.deployment_ids import meant_by
from executors.engine.deployment_lines import is_of_cluster, refuse_difference, replay_deployments
from executors.engine.deployments import DEPLOYMENTS, Entry, Recovered, Resumed
from executors.engine.reading import JournalReader, located
from executors.explain.facts import Fact, with_causes
from executors.explain.pictures import picture
from executors.explain.tracing import Tracer
from executors.explain.wording import listed, plural
from executors.simulator.times import TENTHS, moment
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
        at: Seconds; without a replica or rank: what went on at that time.
        deployment: `application/deployment`, or the bare name of one only. May be None where the replica names it, or the
            journal has one only.
        model: Of a journal of a fleet, which has models and no deployments.
    """

    replica_id: ReplicaId | None = None
    rank: int | None = None
    at: float | None = None
    deployment: str | None = None
    model: str | None = None

    def is_about(self, fact: Fact) -> bool:
        """Whether a fact is about whom is asked."""
        if self.replica_id is not None and self.replica_id not in fact.replica_ids:
            return False
        if self.model is not None and self.model not in fact.models:
            return False
        return self.rank is None or self.rank in fact.ranks


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
    if question.model is not None:
        raise NothingToExplain(f"--model: expected a journal of models, found one of deployments with {question.model!r}")
    listener = _Listener(question)
    if is_of_cluster(path):
        result = replay_deployments(path, look=lambda entry, *_: listener.hear(entry), progress=progress)
        refuse_difference(result)
        return listener.story(result.warning)
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
        self._named = question.deployment or (question.replica_id or "").rpartition("#")[0] or None
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

    def hear(self, entry: Entry) -> None:
        is_new = entry.deployment not in self._deployments
        self._deployments.setdefault(entry.deployment)
        if is_new and (entry.deployment == self._named or (self._tracer is None and self._may_be_meant(entry.deployment))):
            self._follow(entry.deployment)
        if self._tracer is None or entry.deployment != self._tracer.memory.name:
            return
        at = entry.at
        if self._question.at is not None and self._then is None and at > self._question.at:
            self._take_picture()
        facts = self._tracer.facts_of(entry)
        self._learn(entry, facts)
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
        if question.replica_id is None and question.rank is None:
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

    def _learn(self, entry: Entry, facts: list[Fact]) -> None:
        assert self._tracer is not None, "it was made for the first line"
        memory = self._tracer.memory
        self._ended_at = max(self._ended_at, memory.clock)
        if memory.spec is not None:
            self._ranks = max(self._ranks, memory.spec.target_replicas)
        if isinstance(entry.cause, (Resumed, Recovered)):
            self._replicas.update(dict.fromkeys(memory.lives))
        for fact in facts:
            self._replicas.update(dict.fromkeys(fact.replica_ids))
            self._ranks = max(self._ranks, *(rank + 1 for rank in fact.ranks), 0)

    def _keep(self, fact: Fact) -> None:
        at = self._question.at
        if at is None:
            self._about.append(fact)
        elif fact.is_change:
            nearest = self._nearest[0] if self._nearest else None
            if nearest is not None and fact.line == nearest.line:
                self._nearest.append(fact)
            elif nearest is None or fits(fact, at) < fits(nearest, at):
                self._nearest = [fact]

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
        self._calm = self._calm or (healthy and not moving)

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
            return who
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
        ends = f"{known[0]} to {known[-1]}" if len(known) > 1 else known[0]
        wanted = f"one of the {plural(len(known), 'replica')} in the journal, {ends}"
        raise NothingToExplain(f"--replica: expected {wanted}, found {found!r}{near(found, known)}")


def fits(fact: Fact, at: float) -> tuple[int, float]:
    """How well a change answers for a moment: one at about that time, else the last before, else the first after."""
    away = abs(fact.at - at)
    return (0 if away <= ABOUT_S else 1 if fact.at < at else 2), away


def near(found: str, known: list[str]) -> str:
    """The name that may have been meant, in words; nothing where none is like it."""
    meant = difflib.get_close_matches(found, known, n=1, cutoff=0.5)
    return f" (did you mean {meant[0]}?)" if meant else ""


__all__ = ["NothingToExplain", "Question", "Story", "explain"]
