"""Runs the scenario files of this folder: events in, commands out, compared line by line. README.md has the format."""

import difflib
import json
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from rankcore import ReplicaRank, Step, events
from rankcore.commands import Command
from rankcore.events import Event
from rankcore.values import age_key
from tests.scenarios.expectations import Watch
from tests.scripted import Deployment

pytestmark = pytest.mark.traced

FOLDER = Path(__file__).parent
UPDATE = "UPDATE_SCENARIOS"
TEXT_FIELDS = {
    "version",
    "reason",
    "config_id",
    "name",
    "node_id",
    "replica_id",
    "placement",
    "victims",
    "compaction",
    "status",
}
LISTS = ("stop_first", "except_for", "nodes", "routes")
NOT_SHOWN = {"epoch", "revision", "version", "config_id"}
"""Fields that say nothing to a reader of a scenario; a version is shown where it is not "1"."""


class Recorder(Deployment):
    """A scripted world that writes down what it tells the core and what comes of it."""

    trace: Callable[[Event, Step], None] | None = None
    watch: Watch | None = None

    def _take(self, result: Step, *about: Any) -> Step:
        result = super()._take(result, *about)
        if self.watch is not None:
            self.watch.look()
        return result

    def send(self, event: Event) -> Step:
        result = super().send(event)
        if self.trace is not None:
            self.trace(event, result)
        return result


class Runner:
    """Plays one file."""

    def __init__(self) -> None:
        self.world: Recorder | None = None
        self.lines: list[str] = []

    def run(self, text: str) -> str:
        """The file as it should be: its own comments and `>` lines, with what comes of each."""
        for line in text.splitlines():
            if line.startswith(" "):
                continue
            self.lines.append(line)
            if line.startswith(">"):
                verb, *words = shlex.split(line[1:])
                self._play(verb, words)
        return "\n".join(self.lines) + "\n"

    def _play(self, verb: str, words: list[str]) -> None:
        positional = [word for word in words if not re.match(r"\w+=", word)]
        named = {key: _value(key, text) for key, _, text in (w.partition("=") for w in words if re.match(r"\w+=", w))}
        verbs = {
            "deploy": self._deploy,
            "running": self._running,
            "recover": self._recover,
            "restart": self._restart,
            "settle": self._settle,
            "wait": self._wait,
            "ranks": self._ranks,
            "notes": self._notes,
            "expect": self._expect,
            "from": self._from_here,
        }
        if verb in verbs:
            verbs[verb](positional, named)
        else:
            self._event(verb, positional, named)

    @property
    def there(self) -> Recorder:
        assert self.world is not None, "a scenario begins with deploy, running or recover"
        return self.world

    def _deploy(self, positional: list[str], named: dict[str, Any]) -> None:
        self.world = Recorder(int(positional[0]), nodes=named.pop("nodes", ("n0",)), **named)
        self._watch()
        self._show(self.world.last)

    def _running(self, positional: list[str], named: dict[str, Any]) -> None:
        self.world = Recorder(int(positional[0]), nodes=named.pop("nodes", ("n0",)), **named)
        self.world.settle()
        self._watch()

    def _recover(self, positional: list[str], named: dict[str, Any]) -> None:
        """What each replica believes is said when it reports."""
        found = dict.fromkeys(positional[1:])
        self.world = Recorder.recovered(int(positional[0]), found, **named)  # type: ignore[assignment]
        self._watch()
        self._show(self.there.last)

    def _restart(self, _positional: list[str], _named: dict[str, Any]) -> None:
        self._show(self.there.restart())

    def _settle(self, _positional: list[str], named: dict[str, Any]) -> None:
        self._traced(lambda: self.there.settle(except_for=named.get("except_for", ())))

    def _wait(self, positional: list[str], _named: dict[str, Any]) -> None:
        self._traced(lambda: self.there.wait(float(positional[0])))

    def _ranks(self, _positional: list[str], _named: dict[str, Any]) -> None:
        state = self.there.state
        self.lines.append(f"  {state.status} world_size={state.world_size}")
        for replica_id in sorted(state.replicas, key=age_key):
            replica = state.replicas[replica_id]
            rank = _plain(replica.rank) if replica.rank is not None else "-"
            self.lines.append(f"  {replica_id} {rank} {replica.state} version={replica.version} on {replica.node_id}")

    def _notes(self, _positional: list[str], _named: dict[str, Any]) -> None:
        for note in self.there.last.notes:
            about = [note.replica_id] if note.replica_id is not None else []
            about += [f"rank={note.rank}"] if note.rank is not None else []
            about += [f"{_plain(note.before)} -> {_plain(note.after)}"] if note.before and note.after else []
            self.lines.append("  " + " ".join([f"[{note.rule}]", f"{note.kind}:", *about, f"({note.because})"]))

    def _expect(self, positional: list[str], named: dict[str, Any]) -> None:
        assert self.there.watch is not None
        self.there.watch.expect(positional, named)

    def _from_here(self, _positional: list[str], _named: dict[str, Any]) -> None:
        self._watch()

    def _watch(self) -> None:
        self.there.watch = Watch(self.there)

    def _event(self, verb: str, positional: list[str], named: dict[str, Any]) -> None:
        world = self.there
        at = named.pop("at", world.now)
        match verb:
            case "SpecChanged":
                step = world.send(_spec_changed(world, named, at))
            case "StopRequested":
                step = world.stop_by_name(*positional, at=at)
            case "ReplicaReconfigured":
                step = world.acknowledge(*positional, at=at, **named)
            case "ReplicaReconfigureFailed":
                step = world.reconfigure_fails(*positional, at=at, **named)
            case "ReplicaReported":
                rank = {"rank": tuple(int(n) for n in named.pop("rank").split("/"))} if "rank" in named else {}
                step = world.report(*positional, at=at, **rank, **named)
            case _:
                kind = getattr(events, verb, None)
                assert isinstance(kind, type), f"neither an event nor a verb of README.md: {verb}"
                fields = [field.name for field in attrs.fields(kind) if field.name != "at"]
                step = world.send(kind(**dict(zip(fields, positional, strict=False)), **named, at=at))
        self._show(step)

    def _traced(self, run: Callable[[], None]) -> None:
        def trace(event: Event, step: Step) -> None:
            if step.commands or type(event).__name__ != "ClockAdvanced":
                self.lines.append("  " + _line(event))
                self._show(step, indent="    ")

        self.there.trace = trace
        run()
        self.there.trace = None

    def _show(self, step: Step, indent: str = "  ") -> None:
        self.lines.extend(indent + _line(command) for command in step.commands)


def _spec_changed(world: Deployment, named: dict[str, Any], at: float) -> Event:
    stop_first = named.pop("stop_first", ())
    return events.SpecChanged(spec=attrs.evolve(world.state.spec, **named), stop_first=stop_first, at=at)


def _value(key: str, text: str) -> Any:
    if key in LISTS:
        return tuple(text.split(","))
    if key in TEXT_FIELDS or key == "rank":
        return text
    return json.loads(text)


def _line(value: Event | Command) -> str:
    """`StartReplica llm#1.4 rank=1`: whom it is about, then what there is to know."""
    words = [type(value).__name__]
    for field in attrs.fields(type(value)):
        found = getattr(value, field.name)
        if field.name in ("replica_id", "node_id") and found is not None:
            words.append(found)
        elif field.name == "version" and found != "1":
            words.append(f"version={found}")
        elif field.name not in NOT_SHOWN and found is not None and found != () and found != "":
            words.append(f"{field.name}={_plain(found)}")
    return " ".join(words)


def _plain(value: Any) -> str:
    if isinstance(value, ReplicaRank):
        return f"{value.rank}/{value.node_rank}/{value.local_rank}"
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, float):
        return f"{value:g}"
    return json.dumps(value) if not isinstance(value, str) or " " in value else value


def difference(name: str, expected: str, actual: str) -> str:
    lines = difflib.unified_diff(
        expected.splitlines(), actual.splitlines(), f"{name} (file)", f"{name} (what came)", lineterm=""
    )
    return "\n".join(lines)


FILES = sorted([*FOLDER.glob("*.txt"), *FOLDER.glob("incidents/*.txt")])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    expected = path.read_text(encoding="utf-8")
    actual = Runner().run(expected)
    if os.environ.get(UPDATE):
        path.write_text(actual, encoding="utf-8")
        return
    if actual != expected:
        pytest.fail(f"{UPDATE}=1 accepts what came\n{difference(path.name, expected, actual)}", pytrace=False)


def test_every_scenario_says_what_it_is_about_and_ends_with_the_ranks() -> None:
    assert len(FILES) >= 10
    for path in FILES:
        lines = path.read_text(encoding="utf-8").splitlines()
        assert lines[0].startswith("# "), path.name
        assert [line for line in lines if line.startswith(">")][-1] == "> ranks", path.name


def test_a_mismatch_is_shown_as_a_unified_diff() -> None:
    text = "# One replica.\n> deploy 1\n  StartReplica llm#1.0 rank=7\n"
    actual = Runner().run(text)
    shown = difference("one.txt", text, actual)
    assert "-  StartReplica llm#1.0 rank=7" in shown
    assert "+  StartReplica llm#1.0 rank=0" in shown


def test_a_verb_that_does_not_exist_is_named() -> None:
    with pytest.raises(AssertionError, match=r"neither an event nor a verb of .*: ReplicaDide"):
        Runner().run("> running 1\n> ReplicaDide llm#1.0\n")


def test_a_scenario_that_begins_in_the_middle_is_refused() -> None:
    with pytest.raises(AssertionError, match="a scenario begins with"):
        Runner().run("> ReplicaDied llm#1.0\n")
