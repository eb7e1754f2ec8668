"""Stories of weights told from a cluster's journal alone: who went where, by which rule, because of what."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from executors.cli.app import app
from executors.engine.clusters import CLUSTER, ClusterRecovered, ClusterResumed
from executors.engine.journal import JournalWriter
from executors.engine.kinds import JournalLine
from executors.engine.reading import JournalError, JournalReader
from executors.engine.replay import replay
from executors.explain.stories import NothingToExplain, Question, explain
from executors.explain.wording import RULES
from executors.simulator.from_journal.history import read_history
from rankcore.autoscaling import AutoscalingSpec
from rankcore.cluster.events import DeletionRequested, MoveProgressed, ScaleRequested
from rankcore.cluster.residency import ResidencySpec
from rankcore.events import NodeLost
from rankcore.residency.events import EvictRequested, MemoryMeasured
from tests.clusters import RecordedCluster, application, entry
from tests.journals import sealed, unsealed

ROOT = Path(__file__).parents[2]


def weights(size: int, **options) -> ResidencySpec:
    return ResidencySpec(weight_bytes=size, min_hot_s=0.0, **options)


class World(RecordedCluster):
    """Weights move when they are told to: a load takes as long as a test lets it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "run.jsonl"
        super().__init__(self.path)
        self.moves_end = False

    def moved(self) -> None:
        """All moves that are under way end now."""
        self.end_moves()
        self.settle()

    def fail(self) -> None:
        """The first move that is under way fails now."""
        self.workers.fail(self.moving[0], self.now)
        self.hear()
        self.settle()

    def told(self, **question) -> list[tuple[float, str, str | None]]:
        return [(round(fact.at, 3), fact.text, fact.rule) for fact in explain(self.path, Question(**question)).facts]

    def texts(self, **question) -> list[str]:
        return [text for _, text, _ in self.told(**question)]


@pytest.fixture
def turns(tmp_path) -> World:
    """A GPU of 6 bytes: code is HOT from 35 s on, chat is called for at 100 s, and is HOT at 136 s."""
    world = World(tmp_path)
    world.join(6)
    world.apply(application(entry("a/code", residency=weights(4)), entry("a/chat", 0, residency=weights(5))))
    world.wait(35.0)
    world.moved()
    world.wait(65.0)
    world.call("a/chat", 3)
    world.wait(6.0)
    world.moved()
    for share in (0.25, 0.5):
        world.wait(10.0)
        world.call("a/chat", 3)
        world.tell(
            MoveProgressed(worker_id="a/chat@1#1.1", move=world.workers.held["a/chat@1#1.1"].move, share=share, at=world.now)
        )
    world.wait(10.0)
    world.moved()
    return world


def test_a_journal_with_weights_replays_to_the_state_that_was(turns):
    result = replay(turns.path)
    assert (result.difference, result.state) == (None, turns.state)


def test_who_displaced_a_worker_and_what_became_of_it(turns):
    story = explain(turns.path, Question(replica_id="a/code@1#1.0"))
    assert story.about == "a/code@1#1.0"
    assert story.state == (
        "At the end of the journal, at 0:02:16.0:",
        "a/code@1#1.0 is WARM, in CPU memory on n0, since 0:01:46.0: displaced by a/chat@1#1.1",
    )
    placed = "a/chat@1#1.1 is to be HOT on n0: it goes to GPU 0, from disk, once a/code@1#1.0 left: cost 39.17 GB"
    assert turns.told(replica_id="a/code@1#1.0") == [
        (0.0, "a/code was deployed: 1 replica of version 1", None),
        (0.0, "a/code@1#1.0 is to be HOT on n0: it fits on GPU 0, from disk", "T3"),
        (0.0, "a/code@1#1.0 is loaded from disk to n0, GPU 0", None),
        (35.0, "a/code@1#1.0 is HOT on n0, GPU 0", None),
        (35.0, "a/code@1#1.0 becomes a/code#1.0", "P4"),
        (100.0, "the target of a/chat goes from 0 to 1: 3 calls wait for it, and it has no replica", "R9"),
        (100.0, placed, "T5"),
        (100.0, "a/code@1#1.0, which is a/code#1.0, has to leave n0, displaced by a/chat@1#1.1", "T5"),
        (106.0, "a/code@1#1.0 is a/code#1.0 no more", "P4"),
        (106.0, "a/code@1#1.0 became WARM on n0: displaced by a/chat@1#1.1", "T6"),
    ]
    later = {fact.text.split(":")[0]: fact.later for fact in story.facts if fact.later}
    assert later == {
        "a/code@1#1.0 is to be HOT on n0": "HOT at 0:00:35.0",
        "a/chat@1#1.1 is to be HOT on n0": "HOT at 0:02:16.0",
        "a/code@1#1.0, which is a/code#1.0, has to leave n0, displaced by a/chat@1#1.1": "WARM at 0:01:46.0",
    }


def test_a_rank_goes_back_to_the_load_that_brought_it_and_to_who_took_its_memory(turns):
    assert turns.texts(deployment="a/code", rank=0)[1:] == [
        "a/code#1.0 was requested for rank 0, the lowest available rank",
        "a/code@1#1.0 is to be HOT on n0: it fits on GPU 0, from disk",
        "a/code@1#1.0 is HOT on n0, GPU 0",
        "a/code@1#1.0 becomes a/code#1.0",
        "a/code#1.0 was placed on n0 and given rank 0, node rank 0 and local rank 0",
        "a/code#1.0 is ready and runs with rank 0",
        "the target of a/chat goes from 0 to 1: 3 calls wait for it, and it has no replica",
        "a/chat@1#1.1 is to be HOT on n0: it goes to GPU 0, from disk, once a/code@1#1.0 left: cost 39.17 GB",
        "a/code@1#1.0, which is a/code#1.0, has to leave n0, displaced by a/chat@1#1.1",
        "a/code#1.0 leaves for good, and the world size falls from 1 to 0",
        "a/code#1.0, which held rank 0, was told to stop: it leaves for good",
        "a/code@1#1.0 is a/code#1.0 no more",
        "a/code#1.0 stopped, and rank 0 is free",
    ]


def test_a_deployment_tells_what_those_who_call_it_waited_for(turns):
    story = explain(turns.path, Question(deployment="chat"))
    assert story.about == "a/chat"
    calls = [(fact.at, fact.text.partition(" is told ")[2], fact.later) for fact in story.facts if "is told" in fact.text]
    text = "it goes to GPU 0, from disk, once a/code@1#1.0 left: cost 39.17 GB"
    assert calls == [
        (100.0, f"PROVISIONING behind a/code: {text}", ""),
        (106.0, "LOADING: a/chat@1#1.1 on n0", "50 % at 0:02:06.0"),
        (136.0, "LOADING: it is HOT, and waits for its rank", ""),
        (136.0, "READY", ""),
    ]
    assert not [text for text in turns.texts(deployment="chat") if "is ready and runs" in text], "that is of a replica"


@pytest.mark.parametrize(
    ("at", "how", "why"),
    [
        (20.0, "a/code@1#1.0 is being loaded on n0, GPU 0, since 0:00:00.0: it fits on GPU 0, from disk", "to be HOT on n0"),
        (
            50.0,
            "a/code@1#1.0, which is a/code#1.0, is HOT on n0, GPU 0, since 0:00:35.0: it fits on GPU 0, from disk",
            "is HOT",
        ),
        (
            103.0,
            "a/code@1#1.0, which is a/code#1.0, is leaving on n0, GPU 0, since 0:01:40.0: displaced by a/chat@1#1.1",
            "leave",
        ),
    ],
)
def test_how_a_worker_stood_at_a_moment_and_why(turns, at, how, why):
    story = explain(turns.path, Question(replica_id="a/code@1#1.0", at=at))
    assert story.state[-1] == how
    assert any(why in fact.text for fact in story.facts)


def test_what_was_going_on_at_a_moment(turns):
    story = explain(turns.path, Question(at=103.0))
    assert story.about == "the cluster at 0:01:43.0"
    assert story.state == ("n0: a/chat@1#1.1 (is to be HOT), a/code@1#1.0 (is leaving)",)
    assert turns.texts(at=103.0)[-1] == "a/code@1#1.0, which is a/code#1.0, has to leave n0, displaced by a/chat@1#1.1"
    assert not [text for text in turns.texts(at=103.0) if text.startswith("a/code#1.0")], "ranks are of one deployment's story"
    assert explain(turns.path, Question(at=136.5)).state == (
        "At the end of the journal, at 0:02:16.0:",
        "n0: a/chat@1#1.1; WARM: a/code@1#1.0",
    )
    beyond = explain(turns.path, Question(deployment="a/chat", at=9000.0))
    assert beyond.state[0].startswith("The journal ends at 0:02:16.0")
    assert beyond.state[-1].startswith("a/chat@1#1.1, which is a/chat#1.0, is HOT on n0, GPU 0, since 0:02:16.0")


def test_what_went_on_with_a_deployment_at_a_moment_has_its_weights_in_it(turns):
    story = explain(turns.path, Question(deployment="a/chat", at=120.0))
    assert story.state == (
        "At 0:02:00.0, a/chat has been UPSCALING since 0:01:40.0, with world size 1.",
        "  rank 0: a/chat#1.0, on its way",
        "a/chat@1#1.1 is being loaded on n0, GPU 0, since 0:01:46.0: it goes to GPU 0, from disk, once a/code@1#1.0 left: "
        "cost 39.17 GB",
        "without a worker that is HOT: a/chat#1.0; who calls is told LOADING",
    )
    assert story.facts[0].text.startswith("the target of a/chat goes from 0 to 1")
    at_rest = explain(turns.path, Question(deployment="a/chat", at=20.0))
    assert at_rest.state[-1] == "a/chat is COLD: its weights are on disk only"


def test_what_fits_nowhere_and_is_not_wanted_any_longer(tmp_path):
    world = World(tmp_path)
    world.join(6)
    world.apply(application(entry("a/huge", 0, residency=weights(500, wait_for_room_s=30.0)), entry("a/other", 0)))
    world.wait(10.0)
    for _ in range(7):
        world.call("a/huge", 1)
        world.wait(5.0)
    found = [(at, text.partition(":")[0], rule) for at, text, rule in world.told(deployment="a/huge")]
    assert (10.0, "a/huge@1#1.0 fits nowhere", "T7") in found
    assert (40.0, "a/huge is asked for no longer", "D7") in found
    assert (40.0, "who calls a/huge is told UNAVAILABLE", "Q11") in found
    assert (40.0, "the target of a/huge goes from 1 to 0", "R9") in found
    state = explain(world.path, Question(deployment="a/huge", at=20.0)).state
    assert state[-2].startswith("a/huge@1#1.0 waits for a place, since 0:00:10.0")
    assert state[-1] == "without a worker that is HOT: a/huge#1.0; who calls is told QUEUED"
    assert "wait for a place: a/huge@1#1.0" in explain(world.path, Question(at=20.0)).state
    assert explain(world.path, Question(deployment="a/huge", at=44.0)).state[-1].startswith("a/huge is COLD")


def test_losses_evictions_and_failed_loads_are_told_with_what_they_follow_from(tmp_path):
    world = World(tmp_path)
    world.join(6)
    world.apply(application(entry("a/code", residency=weights(4))))
    world.wait(10.0)
    world.fail()
    world.wait(10.0)
    world.moved()
    held = world.workers.held
    (worker_id,) = held
    world.wait(100.0)
    world.workers.ends(worker_id, world.now, "killed by SIGKILL")
    world.hear()
    world.settle()
    world.moved()
    world.wait(100.0)
    (worker_id,) = held
    del held[worker_id]
    world.tell(NodeLost(node_id="n0", at=world.now))
    world.wait(50.0)
    world.join(6)
    world.wait(30.0)
    world.moved()
    world.tell(EvictRequested(model="a/code", at=world.now))
    world.moved()
    texts = world.texts(deployment="a/code")
    for words in (
        "the load of a/code@1#1.0 failed: no luck",
        "ended: killed by SIGKILL",
        "node n0 was lost",
        "somebody wants a/code off the GPUs",
        "is taken off its GPUs, to be WARM at most",
        "leaves for good, and the world size falls from 1 to 0",
        "became WARM on n0",
    ):
        assert any(words in text for text in texts), (words, texts)
    (kept,) = [
        fact
        for fact in explain(world.path, Question(deployment="a/code", rank=0)).facts
        if "SIGKILL" in fact.text and "worker" in fact.text
    ]
    assert kept.replica_ids[1].startswith("a/code#"), "a loss is of the replica too that the worker was"
    assert explain(world.path, Question(deployment="a/code", at=260.0)).state[-1].endswith("who calls is told QUEUED")


def test_who_had_loads_that_had_failed_for_good_tried_again_is_told(tmp_path):
    world = World(tmp_path)
    world.join(6)
    world.apply(application(entry("a/code", residency=weights(4), max_start_failures=1)))
    world.fail()
    world.wait(20.0)
    world.call("a/code", 1, "early")
    world.wait(20.0)
    world.call("a/code", 2, "api-1")
    world.moved()
    story = world.told(deployment="a/code", rank=0)
    again = "a/code, whose loads have failed for good, is tried again with one replica: 2 calls wait for it, in api-1"
    texts = [text for _, text, _ in story]
    assert [each for each in story if each[2] == "D7"] == [(40.0, again, "D7")]
    at = texts.index(again)
    assert texts[at - 1].startswith("who calls a/code is told UNAVAILABLE: ")
    assert texts[at + 1] == "a/code#1.1 was requested for rank 0, its version has failed, and is tried once more"
    assert "a/code#1.1 is ready and runs with rank 0" in texts


def test_a_downscale_by_hand_lets_a_worker_go_and_says_whose_wish_it_was(tmp_path):
    world = World(tmp_path)
    world.join(4, 4)
    world.apply(application(entry("a/code", 2, residency=weights(4))))
    world.moved()
    world.wait(3.0)
    world.tell(ScaleRequested(deployment="a/code", target_replicas=1, at=world.now))
    assert world.texts(replica_id="a/code#1.1")[-3:] == [
        "somebody changed a/code: target_replicas 2 -> 1",
        "a/code#1.1, which held rank 1, was told to stop: chosen by the policy 'any'",
        "a/code@1#1.1, which is a/code#1.1, is taken off its GPUs, to be WARM at most",
    ]
    world.moved()
    assert "a/code@1#1.1 became WARM on n0: evicted" in world.texts(deployment="a/code")


def test_an_autoscaler_says_why_it_wants_another_target(tmp_path):
    world = World(tmp_path)
    scaling = AutoscalingSpec(min_replicas=0, max_replicas=3, initial_replicas=1, upscale_delay_s=0.0, metrics_interval_s=1.0)
    world.apply(application(entry("a/code", 1, autoscaling=scaling)))
    for _ in range(4):
        world.wait(1.0)
        world.call("a/code", 9)
    (fact,) = [fact for fact in world.told(deployment="a/code") if "its autoscaler wants it" in fact[1]][:1]
    assert fact[1].startswith("the target of a/code goes from 1 to 3: its autoscaler wants it, since ")


def test_a_journal_that_begins_again_goes_on_with_the_places_of_that_state(tmp_path):
    world = World(tmp_path)
    world.join(4, 4)
    world.apply(application(entry("a/code", 2, residency=weights(4))))
    world.moved()
    how = ClusterResumed(state=world.state)
    with JournalWriter.create(tmp_path / "again.jsonl", kind=CLUSTER) as journal:
        journal.begin(how, how.step())
        world.journal = journal
        world.tell(ScaleRequested(deployment="a/code", target_replicas=1, at=3.0))
    story = explain(tmp_path / "again.jsonl", Question(deployment="a/code"))
    assert [line.partition(",")[0] for line in story.state[1:]] == ["a/code@1#1.0", "a/code@1#1.1"]
    assert "is leaving on n0, GPU 1" in story.state[2]
    assert story.facts[0].text == "the journal goes on from a state with 2 replicas, and says nothing of what was before"


def test_a_controller_that_comes_back_in_a_load_finds_it_and_the_story_goes_on(tmp_path):
    world = World(tmp_path)
    world.join(4)
    world.apply(application(entry("a/code", 1, residency=weights(4))))
    world.wait(5.0)
    world.restart()
    world.join(4)
    world.moved()
    texts = world.texts(deployment="a/code")
    found = "a/code@1#1.0 is to be HOT on n0: it was found loading"
    assert world.texts(replica_id="a/code@1#1.0", at=5.0) == [
        "the controller came back in epoch 2 and found 1 worker",
        found,
    ]
    assert "a/code@1#1.0 is to be HOT on n0: it was found loading" in texts
    assert "a/code@1#1.0 is HOT on n0, GPU 0" in texts
    assert replay(world.path).difference is None


def test_news_of_measured_memory_is_told(tmp_path):
    world = World(tmp_path)
    world.join(6)
    world.apply(application(entry("a/code", 1, residency=weights(4))))
    world.moved()
    world.tell(MemoryMeasured(node_id="n0", gpu_bytes=(3,), at=4.0))
    assert world.texts(at=4.0, replica_id="a/code#1.0") == [
        "n0: its GPUs hold so much in all",
        "a/code#1.0 is to be stopped, to be replaced",
        "a/code#1.0, which held rank 0, was told to stop: stopped by name, to be replaced",
        "a/code@1#1.0, which is a/code#1.0, has to leave n0: its node holds less than it said",
    ]


def test_a_deletion_is_told_with_what_follows_from_it(tmp_path):
    world = World(tmp_path)
    world.join(4)
    world.apply(application(entry("a/code", 1, residency=weights(4))))
    world.moved()
    world.wait(3.0)
    world.tell(DeletionRequested(applications=("a",), at=world.now))
    world.moved()
    found = world.told(deployment="a/code")
    assert (3.0, "somebody asked for the end of a/code", None) in found
    assert (3.0, "a/code is gone", "P2") in found
    leaves = [fact for fact in explain(world.path, Question(deployment="a/code")).facts if "off its GPUs" in fact.text]
    assert leaves[0].causes, "it follows from the request"


def test_every_rule_that_is_told_is_explained(turns, tmp_path):
    questions = [Question(at=1e9), *(Question(deployment=each) for each in ("a/code", "a/chat"))]
    rules = {fact.rule for question in questions for fact in explain(turns.path, question).facts}
    assert rules - {None} <= RULES.keys()


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ({"deployment": "a/cod"}, r"--deployment: expected one of a/code, a/chat, found 'a/cod' \(did you mean a/code\?\)"),
        (
            {"replica_id": "a/code@1#9.9"},
            "--replica: expected the replica a/code#1.0, or the worker a/code@1#1.0, found",
        ),
        ({"deployment": "a/code", "rank": 7}, "--rank: expected a rank from 0 to 0, found 7"),
        ({"rank": 0}, "expected --deployment, since the journal has several: a/code, a/chat"),
    ],
)
def test_what_is_not_there_is_named(turns, question, expected):
    with pytest.raises(NothingToExplain, match=expected):
        explain(turns.path, Question(**question))


def test_where_no_weights_are_asked_about_at_a_moment_somebody_is(tmp_path):
    world = World(tmp_path)
    world.apply(application(entry("a/x"), entry("a/y")))
    with pytest.raises(NothingToExplain, match="expected --deployment, since the journal has several: a/x, a/y"):
        explain(world.path, Question(at=0.0))


@pytest.mark.parametrize(
    "first", ['{"fleet_journal":1,"about":{}}', '{"journal":2,"machine":"fleet","release":"0.1.0","about":{}}']
)
def test_a_journal_of_a_fleet_is_refused_with_who_reads_it(tmp_path, first):
    path = tmp_path / "fleet.jsonl"
    path.write_text(f"{first}\n")
    for arguments in (
        ["explain", str(path), "--at", "3"],
        ["explain", str(path), "--deployment", "a"],
        ["replay", str(path)],
        ["plan", "--from", str(path), "--target", "1"],
        ["simulate", "--from", str(path), "--at", "3", "--fault", "node n lost"],
    ):
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 2
        writer = "rankcore 0.1.0" if "release" in first else "another version of rankcore"
        assert "this is a journal of a fleet, there are none any more" in done.stderr
        assert f"the build that wrote it reads it, {writer}" in done.stderr


def test_a_story_is_printed_with_its_reasons_and_as_json(turns):
    done = CliRunner().invoke(app, ["explain", str(turns.path), "--deployment", "a/chat"])
    assert done.exit_code == 0, done.stderr
    assert "3 calls wait for it, and it has no replica (R9)" in done.stdout
    assert "  T5: who is displaced is the cheapest set that suffices" in done.stdout
    done = CliRunner().invoke(app, ["explain", str(turns.path), "--replica", "a/code@1#1.0", "--json"])
    assert '"deployments": [\n        "a/code",\n        "a/chat"\n      ]' in done.stdout
    nothing = CliRunner().invoke(app, ["explain", str(turns.path)])
    assert nothing.exit_code == 2
    assert "expected --deployment NAME, --replica ID, --rank K or --at TIME, found nothing to explain" in nothing.stderr


def test_the_guide_shows_such_a_story_and_such_a_plan(turns):
    done = CliRunner().invoke(app, ["explain", str(turns.path), "--replica", "a/code@1#1.0", "--at", "103"])
    assert shown(done.stdout) in (ROOT / "docs/answers.md").read_text()
    done = CliRunner().invoke(app, ["plan", "--from", str(turns.path), "--at", "50", "--deployment", "a/chat", "--target", "1"])
    assert shown(done.stdout) in (ROOT / "docs/answers.md").read_text()


def shown(text):
    return "".join(f"    {line}" if line.strip() else line for line in text.splitlines(keepends=True))


@pytest.mark.parametrize("at", [50.0, 103.0])
def test_no_world_goes_on_from_it_which_is_said_with_the_deployment(turns, at):
    with pytest.raises(JournalError, match=r"a/code has weights that may be COLD, .*: write a scenario with residency instead"):
        read_history(turns.path, at)


def test_a_reader_gives_typed_entries_and_says_what_the_file_is_about(tmp_path):
    path = tmp_path / "run.jsonl"
    with JournalWriter.create(path, kind=CLUSTER, about={"by": "hand"}) as journal:
        world = RecordedCluster(journal)
        world.now = 7.0
        world.join(80)
    reader = JournalReader(path, CLUSTER)
    entries = list(reader)
    assert (reader.about, reader.position) == ({"by": "hand"}, path.stat().st_size)
    assert [type(each) for each in entries] == [JournalLine] * 2
    assert entries[0].cause == ClusterRecovered()
    assert [each.at for each in entries] == [0.0, 7.0]
    assert [each.of.kind for each in entries[1].notes if each.of is not None] == ["node joined"]
    path.write_bytes(sealed([unsealed(path)[0], {"event": {}, "commands": 7, "notes": []}]))
    with pytest.raises(JournalError, match="commands must be a list, got 7"):
        list(JournalReader(path, CLUSTER))
