"""Stories of models told from a journal alone, each worked out by hand: who went where, by which rule, because of what."""

from pathlib import Path

import pytest

from executors.engine.fleets import FLEET
from executors.engine.kinds import JournalLine
from executors.engine.reading import JournalError, JournalReader
from executors.explain.models.stories import explain_models
from executors.explain.stories import NothingToExplain, Question, explain
from executors.explain.wording import RULES
from executors.fleet.journal import FleetJournal, is_of_fleet
from rankcore.dispatching import FleetImage, fleet_of, fleet_step, open_fleet
from rankcore.dispatching.events import Event
from rankcore.residency import ModelSpec, Wanted
from rankcore.residency.commands import LoadToGpu
from rankcore.residency.events import (
    DeployRequested,
    LoadFinished,
    MemoryMeasured,
    NodeJoined,
    OffloadFinished,
    RemoveRequested,
    ScaleRequested,
    UsageReported,
)
from tests.model_runs import EVERYTHING, run_of

# A GPU of 80 GB: code is loaded in 5 s and 60 GB / 2 GB/s = 35 s, and takes 6 s to CPU memory when chat comes.
TWO = {
    "models": [{"name": "code", "weight_gb": 60, "replicas": 1}, {"name": "chat", "weight_gb": 50}],
    "every_model": {"min_hot_s": 10},
}


def journal_of(folder: Path, requests=None, **keys) -> Path:
    path = folder / "run.jsonl"
    with FleetJournal.create(path) as journal:
        result = run_of(requests, journal=journal, **keys).go()
    assert result.failure is None
    return path


def told(path: Path, **question) -> list[tuple[float, str, str | None]]:
    return [(round(fact.at, 3), fact.text, fact.rule) for fact in explain_models(path, Question(**question)).facts]


def test_who_displaced_a_replica_and_what_became_of_it(tmp_path):
    path = journal_of(tmp_path, {"chat": [100.0]}, **TWO)
    story = explain_models(path, Question(replica_id="code#0"))
    assert story.about == "code#0"
    assert story.state[0].startswith("At the end of the journal, at ")
    assert story.state[1:] == ("code#0 is WARM, in CPU memory on n, since 0:01:46.0: displaced by chat#1",)
    assert told(path, replica_id="code#0") == [
        (0.0, "models were deployed", None),
        (0.0, "code: 1 more are wanted", "T10"),
        (0.0, "code#0 is to be HOT on n: it fits on GPU 0, from disk", "T3"),
        (0.0, "code#0 is loaded from disk to n, GPU 0", None),
        (35.0, "code#0 is HOT on n, GPU 0", None),
        (100.0, "a replica of chat is asked for: 1 requests wait, and none of its replicas is HOT", "D2"),
        (100.0, "chat: 1 more are wanted", "T10"),
        (100.0, "chat#1 is to be HOT on n: it goes to GPU 0, from disk, once code#0 left: cost 99.17 GB", "T5"),
        (100.0, "code#0 has to leave n, displaced by chat#1", "T5"),
        (106.0, "code#0 became WARM on n: displaced by chat#1", "T6"),
    ]
    later = {fact.text.split(":")[0]: fact.later for fact in story.facts if fact.later}
    assert later == {
        "code#0 is to be HOT on n": "HOT at 0:00:35.0",
        "chat#1 is to be HOT on n": "HOT at 0:02:16.0",
        "code#0 has to leave n, displaced by chat#1": "WARM at 0:01:46.0",
    }


@pytest.mark.parametrize(
    ("at", "how", "why"),
    [
        (20.0, "code#0 is being loaded on n, GPU 0, since 0:00:00.0: it fits on GPU 0, from disk", "code#0 is to be HOT on n"),
        (50.0, "code#0 is HOT on n, GPU 0, since 0:00:35.0: it fits on GPU 0, from disk", "code#0 is HOT on n, GPU 0"),
        (103.0, "code#0 is leaving on n, GPU 0, since 0:01:40.0: displaced by chat#1", "code#0 has to leave n"),
    ],
)
def test_how_a_replica_stood_at_a_moment_and_why(tmp_path, at, how, why):
    path = journal_of(tmp_path, {"chat": [100.0]}, **TWO)
    story = explain_models(path, Question(replica_id="code#0", at=at))
    assert story.state == (how,)
    assert any(fact.text.startswith(why) for fact in story.facts)


def test_what_was_going_on_at_a_moment(tmp_path):
    path = journal_of(tmp_path, {"chat": [100.0]}, **TWO)
    story = explain_models(path, Question(at=103.0))
    assert story.about == "the fleet at 0:01:43.0"
    assert story.state == ("n: code#0 (is leaving), chat#1 (is to be HOT)",)
    assert [fact.text for fact in story.facts][-1] == "code#0 has to leave n, displaced by chat#1"
    at_rest = explain_models(path, Question(at=136.5))
    assert at_rest.state == ("n: chat#1; WARM: code#0",)
    beyond = explain_models(path, Question(model="chat", at=9000.0))
    assert beyond.state[0].startswith("At the end of the journal")


def test_what_fits_nowhere_and_is_not_wanted_any_longer(tmp_path):
    models = [{"name": "huge", "weight_gb": 500}]
    path = journal_of(tmp_path, {"huge": [10.0]}, models=models, dispatch={"wait_for_room_s": 30})
    texts = [(at, text.partition(":")[0], rule) for at, text, rule in told(path, model="huge")]
    assert (10.0, "huge#0 fits nowhere", "T7") in texts
    assert (40.0, "huge is asked for no longer", "D7") in texts
    assert (
        explain_models(path, Question(model="huge", at=20.0)).state[0].startswith("huge#0 waits for a place, since 0:00:10.0")
    )
    assert "wait for a place: huge#0" in explain_models(path, Question(at=20.0)).state
    assert explain_models(path, Question(model="huge", at=50.0)).state[1].startswith("huge#0 is COLD")


def test_losses_crashes_evictions_and_failed_loads_are_told_with_what_they_follow_from(tmp_path):
    models = [{"name": "code", "weight_gb": 60}]
    faults = [
        {"kind": "load_failure", "at": 0, "model": "code"},
        {"kind": "replica_crash", "at": 200, "model": "code"},
        {"kind": "node_loss", "at": 300, "node": "n", "back_after_s": 50},
    ]
    changes = [{"at": 10, "model": "code", "replicas": 1}, {"at": 500, "model": "code", "evict": "COLD"}]
    path = journal_of(tmp_path, models=models, faults=faults, changes=changes)
    texts = [text for _, text, _ in told(path, replica_id="code#0")]
    for words in (
        "the load of code#0 failed: load 1 failed: the load failed",
        "somebody wants 1 of code",
        "code#0 is lost: its process died",
        "node n was lost, with all that was there",
        "somebody wants code off the GPUs",
    ):
        assert words in texts, texts
    assert explain_models(path, Question(at=320.0)).state[0] == "wait for a place: code#0"
    state = explain_models(path, Question(replica_id="code#0")).state[1]
    assert state.startswith("code#0 is COLD: its weights are on disk only, since 0:08:20.0")


def written(folder: Path, *events: object) -> Path:
    """The journal of a fleet that is told these; a callable makes its event of the newest `LoadToGpu`."""
    path, state = folder / "made.jsonl", open_fleet()
    with FleetJournal.create(path, about={"by": "hand"}) as journal:
        journal.begin(state)
        load: LoadToGpu | None = None
        for made in events:
            event: Event = made(load) if callable(made) else made  # type: ignore[assignment]
            step = fleet_step(state, event)
            journal.append(event, step)
            load = next((each for each in step.commands if isinstance(each, LoadToGpu)), load)
            state = step.state
        journal.begin(state)
    return path


def test_a_journal_that_begins_again_goes_on_with_the_places_of_that_state(tmp_path):
    spec = ModelSpec(model="code", weight_bytes=60)
    path = written(
        tmp_path,
        NodeJoined(node_id="n", gpu_bytes=(80, 80), cpu_bytes=200, at=0.0),
        DeployRequested(wanted=(Wanted(spec=spec, replicas=2),), at=1.0),
        lambda load: LoadFinished(replica_id=load.replica_id, move=load.move + 7, at=2.0),
        lambda load: LoadFinished(replica_id=load.replica_id, move=load.move, at=2.5),
        ScaleRequested(model="code", replicas=1, at=3.0),
    )
    story = explain_models(path, Question(model="code"))
    assert [line.partition(",")[0] for line in story.state[1:]] == ["code#0 is HOT on n", "code#1 is leaving on n"]
    assert [text for at, text, _ in told(path, replica_id="code#1") if at == 3.0] == [
        "somebody wants 1 of code",
        "code: 1 fewer are wanted",
        "code#1 has to leave n",
    ]


def test_news_of_measured_memory_is_told(tmp_path):
    spec = ModelSpec(model="code", weight_bytes=60)
    path = written(
        tmp_path,
        NodeJoined(node_id="n", gpu_bytes=(80,), cpu_bytes=200, at=0.0),
        DeployRequested(wanted=(Wanted(spec=spec, replicas=1),), at=1.0),
        lambda load: LoadFinished(replica_id="code#0", move=load.move, at=2.0),
        UsageReported(replica_id="code#0", gpu_bytes=(70,), at=3.0),
        MemoryMeasured(node_id="n", gpu_bytes=(75,), at=4.0),
    )
    texts = [text for _, text, _ in told(path, replica_id="code#0")]
    assert texts[-1] == "code#0: it takes more than was reserved"


def test_a_model_that_is_removed_is_told_with_what_follows_from_it(tmp_path):
    path = written(
        tmp_path,
        NodeJoined(node_id="n", gpu_bytes=(80,), at=0.0),
        DeployRequested(wanted=(Wanted(spec=ModelSpec(model="a", weight_bytes=60), replicas=2),), at=1.0),
        lambda load: LoadFinished(replica_id="a#0", move=load.move, at=2.0),
        RemoveRequested(model="a", at=3.0),
        lambda load: OffloadFinished(replica_id="a#0", move=load.move + 1, at=4.0),
    )
    found = told(path, model="a")
    assert (3.0, "a is removed, with all its replicas", "T10") in found
    assert found[-1] == (4.0, "nobody knows a any more: none of its replicas is left", "T10")
    leaving, waiting = explain_models(path, Question(model="a", at=3.5)).state
    assert leaving.startswith("a#0 is leaving on n, GPU 0")
    assert waiting.startswith("a#1 is COLD")


def test_every_rule_that_is_told_is_explained(tmp_path):
    path = tmp_path / "run.jsonl"
    with FleetJournal.create(path) as journal:
        requests = {"code": [50.0, 300.0], "large": [100.0], "vision": [150.0], "never": [20.0]}
        keys = {key: value for key, value in EVERYTHING.items() if key != "traffic"}
        assert run_of(requests, journal=journal, **keys).go().failure is None
    story = explain_models(path, Question(at=1e9))
    assert story.state[0].startswith("At the end")
    rules = {
        fact.rule for name in ("chat", "code", "large", "vision") for fact in explain_models(path, Question(model=name)).facts
    }
    assert rules - {None} <= RULES.keys()


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ({"model": "cod"}, r"--model: expected one of code, chat, found 'cod' \(did you mean code\?\)"),
        ({"replica_id": "code#9"}, r"--replica: expected one of the 2 replicas in the journal, found 'code#9'"),
        ({"rank": 0}, "--rank: expected --model or --replica, since this is a journal of a fleet, found 0"),
        ({"deployment": "code"}, "--deployment: expected --model or --replica"),
    ],
)
def test_what_is_not_there_is_named(tmp_path, question, expected):
    path = journal_of(tmp_path, {"chat": [100.0]}, **TWO)
    with pytest.raises(NothingToExplain, match=expected):
        explain_models(path, Question(**question))


def test_a_journal_of_deployments_has_no_models(tmp_path):
    with pytest.raises(NothingToExplain, match="--model: expected a journal of models"):
        explain(tmp_path / "any.jsonl", Question(model="code"))


def test_a_reader_gives_typed_entries_and_says_what_the_file_is_about(tmp_path):
    path = written(tmp_path, NodeJoined(node_id="n", gpu_bytes=(80,), at=7.0))
    reader = JournalReader(path, FLEET)
    entries = list(reader)
    assert reader.about == {"by": "hand"}
    assert reader.position == path.stat().st_size
    assert [type(each) for each in entries] == [JournalLine] * 3
    assert isinstance(entries[0].cause, FleetImage)
    assert fleet_of(entries[0].cause) == open_fleet()
    assert [each.at for each in entries] == [0.0, 7.0, 7.0]
    assert entries[1].notes[0].kind == "node joined"
    assert is_of_fleet(path)
    path.write_text('{"journal":1,"about":{}}\n')
    assert not is_of_fleet(path)
    path.write_bytes(b"\xff\n")
    assert not is_of_fleet(path)
    path.write_text('{"fleet_journal":1,"about":{}}\n{"event":{},"commands":7,"notes":[]}\n')
    with pytest.raises(JournalError, match="commands must be a list, got 7"):
        list(JournalReader(path, FLEET))
