"""`rankcore explain`: print why something happened, from a journal alone."""

import json
from pathlib import Path

import typer

from executors.cli.bars import bytes_bar
from executors.cli.moments import began_of, seconds_of
from executors.cli.problems import Refusal, told_in_one_line, warn
from executors.explain.stories import NothingToExplain, Question, Story
from executors.explain.stories import explain as explain_journal
from executors.explain.wording import RULES, rule_shown
from executors.simulator.times import TENTHS, moment


def run(
    journal: Path,
    replica: str | None,
    rank: int | None,
    at: str | None,
    deployment: str | None,
    as_json: bool,
) -> None:
    """What `rankcore explain` does, errors and exit status included."""
    with told_in_one_line("interrupted"):
        if replica is None and rank is None and at is None and deployment is None:
            raise Refusal("expected --deployment NAME, --replica ID, --rank K or --at TIME, found nothing to explain")
        seconds = seconds_of("--at", at, began_of(journal)) if at is not None else None
        question = Question(replica_id=replica, rank=rank, at=seconds, deployment=deployment)
        try:
            with bytes_bar("reading", journal.stat().st_size) as bar:
                story = explain_journal(journal, question, bar.show)
        except NothingToExplain as error:
            raise Refusal(f"{journal}: {error}") from None
        if story.warning is not None:
            warn(story.warning)
        if as_json:
            typer.echo(json.dumps(_as_json(story), indent=2))
        else:
            _print(story)


def _print(story: Story) -> None:
    typer.echo(f"{story.about}\n")
    for line in story.state:
        typer.echo(line)
    if story.state:
        typer.echo("")
    if story.left_out:
        typer.echo(f"({story.left_out} earlier lines are left out)")
    times = [moment(fact.at, TENTHS) for fact in story.facts]
    width = max((len(time) for time in times), default=0)
    for time, fact in zip(times, story.facts, strict=True):
        later = f"; {fact.later}" if fact.later else ""
        typer.echo(f"{time:>{width}}  {fact.text}{rule_shown(fact.rule)}{later}")
    if not story.facts:
        typer.echo("Nothing happened to it.")
    rules = dict.fromkeys(fact.rule for fact in story.facts if fact.rule in RULES)
    if rules:
        typer.echo("")
    for name in (each for each in RULES if each in rules):
        typer.echo(f"{name:>4}: {RULES[name]}")


def _as_json(story: Story) -> dict[str, object]:
    places = {id(fact): place for place, fact in enumerate(story.facts)}
    return {
        "about": story.about,
        "state": list(story.state),
        "left_out": story.left_out,
        "facts": [
            {
                "at": fact.at,
                "text": fact.text,
                "rule": fact.rule,
                "later": fact.later or None,
                "because_of": sorted(places[id(cause)] for cause in fact.causes),
                "deployments": list(fact.deployments),
                "replicas": list(fact.replica_ids),
                "ranks": list(fact.ranks),
                "line": fact.line,
            }
            for fact in story.facts
        ],
    }
