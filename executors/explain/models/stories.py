"""The facts of a fleet's journal that answer a question, in the order of time."""

import os

from executors.engine.fleets import FLEET
from executors.engine.reading import JournalReader, located
from executors.explain.facts import Fact, with_causes
from executors.explain.models.places import UNSETTLED, node_lines, replica_lines
from executors.explain.models.telling import Teller
from executors.explain.stories import PROGRESS_EVERY, NothingToExplain, Progress, Question, Story, fits, near
from executors.explain.wording import listed, plural
from executors.simulator.times import TENTHS, moment


def explain_models(path: str | os.PathLike[str], question: Question, progress: Progress | None = None) -> Story:
    """Answer a question from a fleet's journal, in one pass.

    Raises:
        NothingToExplain: There is no such replica or model in it, or it is a question for a journal of deployments.
        JournalError: The file is no journal of a fleet, or a line before the last is broken.
        OSError: It cannot be read.
    """
    for option, found in (("--rank", question.rank), ("--deployment", question.deployment)):
        if found is not None:
            raise NothingToExplain(
                f"{option}: expected --model or --replica, since this is a journal of a fleet, found {found}"
            )
    reader = JournalReader(path, FLEET)
    listener = _Listener(question)
    for count, entry in enumerate(reader, start=1):
        if listener.is_past(entry.at):
            listener.take_picture()
        with located(reader.path, entry.line):
            listener.keep(listener.teller.facts_of(entry))
        if progress is not None and count % PROGRESS_EVERY == 0:
            progress(reader.position)
    return listener.story(reader.warning)


class _Listener:
    """Keeps what the question asks for."""

    def __init__(self, question: Question) -> None:
        self.teller = Teller()
        self._question = question
        self._about: list[Fact] = []
        self._nearest: list[Fact] = []
        self._then: list[Fact] = []
        self._state: tuple[str, ...] | None = None

    def is_past(self, at: float) -> bool:
        """Whether this is the first line after the moment that is asked about."""
        return self._question.at is not None and self._state is None and at > self._question.at

    def keep(self, facts: list[Fact]) -> None:
        """Of these what the question is about."""
        at = self._question.at
        for fact in facts:
            if not self._question.is_about(fact):
                continue
            if at is None:
                self._about.append(fact)
            elif fact.is_change:
                self._compare(fact, at)

    def take_picture(self) -> None:
        """How things stand now, and what is under way."""
        question, places = self._question, self.teller.places
        if question.replica_id is not None:
            whose = {each: place for each, place in places.replicas.items() if each == question.replica_id}
        elif question.model is not None:
            whose = places.of_model(question.model)
        else:
            whose = {}
            moving = [place.last for place in places.replicas.values() if place.stay in UNSETTLED and place.last is not None]
            self._then = [*moving, *self._nearest]
        self._state = tuple(replica_lines(whose.items()) if whose else node_lines(places))

    def story(self, warning: str | None) -> Story:
        """The answer, once the journal has ended."""
        question, places = self._question, self.teller.places
        self._check()
        if self._state is None:
            self.take_picture()
            if question.at is None or question.at > places.clock:
                self._state = (f"At the end of the journal, at {moment(places.clock, TENTHS)}:", *(self._state or ()))
        who = " and ".join(each for each in (question.replica_id, question.model) if each is not None) or "the fleet"
        alone = question.replica_id is None and question.model is None
        facts = self._about if question.at is None else self._then if alone else self._nearest
        return Story(
            about=who if question.at is None else f"{who} at {moment(question.at, TENTHS)}",
            state=self._state or (),
            facts=tuple(with_causes(facts)),
            left_out=0,
            warning=warning,
        )

    def _compare(self, fact: Fact, at: float) -> None:
        nearest = self._nearest[0] if self._nearest else None
        if nearest is not None and fact.line == nearest.line:
            self._nearest.append(fact)
        elif nearest is None or fits(fact, at) < fits(nearest, at):
            self._nearest = [fact]

    def _check(self) -> None:
        question, places = self._question, self.teller.places
        models, replicas = list(places.models), list(places.replicas)
        if question.model is not None and question.model not in places.models:
            text = (
                f"--model: expected one of {listed(models) or 'none'}, found {question.model!r}{near(question.model, models)}"
            )
            raise NothingToExplain(text)
        if question.replica_id is not None and question.replica_id not in places.replicas:
            wanted = f"one of the {plural(len(replicas), 'replica')} in the journal"
            found = f"{question.replica_id!r}{near(question.replica_id, replicas)}"
            raise NothingToExplain(f"--replica: expected {wanted}, found {found}")
