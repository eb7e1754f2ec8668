"""The live page without a cluster: what one look sees, what readers are told, and what a what-if is asked with."""

import asyncio
import json
import re
import subprocess
import sys

import attrs
import pytest

pytest.importorskip("starlette", reason="Starlette is not installed: pip install 'rankcore[http]'")
pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.ray_gpu.errors import NoAnswerError
from executors.ray_gpu.metrics.counts import BOUNDS_S
from executors.ray_gpu.overview import DeploymentInfo, ReplicaStatus, Status
from executors.ray_gpu.rest import live as live_module
from executors.ray_gpu.rest import whatif
from executors.ray_gpu.rest.endpoints import STREAMS_MAX, _LiveStream
from executors.ray_gpu.rest.live import LivePlane
from executors.ray_gpu.rest.page import live_page
from executors.ray_gpu.rest.problems import Problem
from executors.ray_gpu.rest.whatif import WhatIf, WhatIfBody, asked_in
from executors.ray_gpu.world import NodeInfo
from executors.simulator.from_journal.calls import MeasuredCalls, MeasuredTimes
from rankcore import DeploymentStatus, ReplicaRank, ReplicaState

NAME = "shop/Chat"
NODES = {"n1": NodeInfo("n1", "10.0.0.1", {"CPU": 4.0, "GPU": 1.0}, {"CPU": 3.0, "GPU": 0.0})}


def replica(rank=0, replica_id=f"{NAME}#1.0", state=ReplicaState.RUNNING):
    ranks = ReplicaRank(rank, 0, 0) if rank is not None else None
    return ReplicaStatus(replica_id=replica_id, state=state, rank=ranks, node_id="n1", pid=7, version="v1")


def status_of(*replicas, journal=None, **fields):
    info = DeploymentInfo(
        name=NAME,
        status=DeploymentStatus.HEALTHY,
        message="",
        world_size=1,
        version="v1",
        class_name="models.Chat",
        app_name="shop",
        replicas=replicas or (replica(),),
        **fields,
    )
    return Status(namespace="rankcore", epoch=1, controller_pid=1, journal=journal, deployments={NAME: info})


class World:
    """What the sampler asks; a look is as late as `at` says."""

    def __init__(self, monkeypatch, status=None):
        self.at, self.status, self.problem = 1000.0, status or status_of(), None
        self.counted = {f"{NAME}#1.0": counted(0)}
        monkeypatch.setattr(live_module, "monotonic", lambda: self.at)
        self.live = LivePlane(self, self.counts, self.nodes, lambda: self.at)

    async def look(self):
        if self.problem is not None:
            raise self.problem
        return self

    async def counts(self, status):
        return self.counted

    async def nodes(self):
        return NODES

    def looks(self, *steps):
        """The samples of looks, one second after the other, each after a step was taken."""

        async def all_of_them():
            found = []
            for step in steps:
                step()
                found.append(await self.live.look())
                self.at += 1.0
            return found

        return asyncio.run(all_of_them())

    def ends(self, calls):
        """So many calls of 150 ms have ended by now, in all."""
        return lambda: self.counted.update({f"{NAME}#1.0": counted(calls)})


def counted(calls, in_flight=2):
    counts = [0] * (len(BOUNDS_S) + 1)
    counts[BOUNDS_S.index(0.2)] = calls
    return {"in_flight": in_flight, "counts": counts, "sum_s": 0.15 * calls}


@pytest.fixture
def world(monkeypatch):
    return World(monkeypatch)


def test_a_rate_is_of_what_ended_since_and_not_of_what_was_before_the_first_look(world):
    first, second, third = world.looks(world.ends(5000), world.ends(5010), world.ends(5030))
    of = [each["deployments"][NAME] for each in (first, second, third)]
    assert [each["rate"] for each in of] == [None, 10.0, 15.0]
    assert (of[0]["p50"], of[0]["in_flight"]) == (None, 2)
    assert of[2]["p50"] == pytest.approx(0.15, rel=0.2)


def test_a_new_replica_counts_from_its_beginning_and_one_that_began_again_does_too(world):
    world.looks(world.ends(100), world.ends(110))
    (after,) = world.looks(world.ends(7))  # another process with the same id: it has counted less than before
    assert after["deployments"][NAME]["rate"] == pytest.approx((10 + 7) / 2)


def test_a_replica_of_a_release_with_other_buckets_hides_no_other(world):
    world.status = status_of(replica(), replica(1, f"{NAME}#1.1"))
    world.looks(world.ends(0))
    world.counted[f"{NAME}#1.1"] = {**counted(0), "counts": [1, 2, 3]}
    (sample,) = world.looks(world.ends(10))
    assert (sample["deployments"][NAME]["rate"], sample["deployments"][NAME]["in_flight"]) == (10.0, 2)


def test_replicas_and_nodes_are_said_only_where_they_differ(world):
    def dies():
        world.status = status_of(replica(replica_id=f"{NAME}#1.1", state=ReplicaState.STARTING))

    first, second, third = world.looks(lambda: None, lambda: None, dies)
    assert first["deployments"][NAME]["replicas"] == [[0, f"{NAME}#1.0", "n1", "running", ""]]
    assert first["nodes"][0] | {"free": None} == {
        "id": "n1",
        "address": "10.0.0.1",
        "total": {"CPU": 4.0, "GPU": 1.0},
        "free": None,
    }
    assert "replicas" not in second["deployments"][NAME]
    assert "nodes" not in second
    assert third["deployments"][NAME]["replicas"] == [[0, f"{NAME}#1.1", "n1", "starting", ""]]


def test_a_controller_that_is_away_is_told_and_all_is_said_anew_after_that(world):
    def goes():
        world.problem = NoAnswerError("the controller has not answered")

    def comes():
        world.problem = None

    _, away, back = world.looks(lambda: None, goes, comes)
    assert (away["problem"], away["deployments"]) == ("the controller has not answered", {})
    assert back["problem"] is None
    assert back["deployments"][NAME]["replicas"]
    assert back["deployments"][NAME]["rate"] is None, "nobody knows how much of it was before"


def past_of(world):
    async def first():
        async for event in world.live.events():
            return event

    world.live.begin = lambda: None
    kind, _, data = asyncio.run(first()).decode().partition("\n")
    assert kind == "event: past"
    return json.loads(data.removeprefix("data: "))["samples"]


def test_a_page_that_opens_later_sees_ten_minutes_and_who_was_there_before(world):
    world.looks(*[lambda: None] * 700)
    samples = past_of(world)
    assert len(samples) == 601
    assert samples[0]["deployments"][NAME]["replicas"], "what a forgotten sample alone has said"
    assert samples[0]["nodes"]
    assert not any("replicas" in each["deployments"][NAME] for each in samples[1:])


def test_the_past_takes_no_more_than_its_room(world, monkeypatch):
    monkeypatch.setattr(live_module, "KEPT_BYTES", 2000)
    world.looks(*[lambda: None] * 50)
    assert len(json.dumps(past_of(world))) < 4000


def test_readers_are_told_each_sample_once_and_one_who_is_late_begins_again(world):
    async def read():
        world.live.begin = lambda: None
        await world.live.look()
        events = world.live.events()
        found = [await anext(events)]
        await world.live.look()
        found.append(await anext(events))
        for _ in range(live_module.EVENTS + 1):
            await world.live.look()
        found.append(await anext(events))
        await events.aclose()
        return [each.decode().split("\n")[0] for each in found]

    assert asyncio.run(read()) == ["event: past", "event: sample", "event: past"]
    assert world.live._readers == 0


def test_notes_come_with_the_sample_but_bookkeeping_does_not(world, tmp_path):
    journal = tmp_path / "journal.jsonl"
    journal.write_text('{"journal":2}\n')
    world.status = status_of(journal=str(journal))

    def decides():
        kinds = ("replica lost", "record numbered")
        notes = [{"kind": "ranks", "deployment": NAME, "of": {"kind": kind}} for kind in kinds]
        with journal.open("a") as file:
            file.write(json.dumps({"event": {"type": "ReplicaDied", "at": 3.0}, "commands": [], "notes": notes}) + "\n")

    first, second = world.looks(lambda: None, decides)
    assert first["notes"] == []
    assert [each["of"]["kind"] for each in second["notes"]] == ["replica lost"]


def test_what_was_measured_is_what_a_what_if_goes_by(world):
    world.looks(*[world.ends(20 * second) for second in range(10)])
    found = world.live.measured()[NAME]
    assert found.rate_per_s == pytest.approx(20.0)
    assert (found.took.count, found.in_flight, found.measured_s) == (180, 2, 9.0)
    assert found.took.sum_s / found.took.count == pytest.approx(0.15)


CALLS = {NAME: MeasuredCalls(rate_per_s=1e4, took=MeasuredTimes((0.1,), (1, 0), 0.05), waiting=0, in_flight=0, measured_s=60)}


@pytest.mark.parametrize(
    ("said", "status", "calls", "field"),
    [
        ({"target": 2}, status_of(has_residency=True), {}, "deployment"),
        ({"target": 2}, status_of(), CALLS, "horizon_s"),
        ({}, status_of(), {}, "node"),
        ({"node": "n7"}, status_of(), {}, "node"),
    ],
)
def test_what_cannot_be_predicted_is_refused_before_anything_is_computed(said, status, calls, field):
    with pytest.raises(Problem) as refused:
        asked_in(WhatIfBody(deployment=NAME, **said), status, NODES, calls)
    assert (refused.value.status, refused.value.field) == (422, field)


def test_what_is_asked_is_said_by_the_full_name():
    assert asked_in(WhatIfBody(deployment="Chat", node="n1"), status_of(), NODES, {}) == {
        "happens": "node",
        "node": "n1",
        "deployment": NAME,
    }


def test_what_the_process_is_told_is_a_question_of_the_simulator():
    from executors.simulator.from_journal.prediction import LiveQuestion

    asked = {"happens": "rank", "rank": 0, "deployment": NAME}
    told = json.loads(json.dumps(whatif.question_of("run.jsonl", 7.0, asked, 60.0, CALLS, NODES)))
    question = LiveQuestion.of(told)
    assert (str(question.journal), question.now, question.asked, question.horizon_s) == ("run.jsonl", 7.0, asked, 60.0)
    assert question.calls[NAME].took.quantile(0.5) == pytest.approx(0.05)
    assert question.free == {"n1": {"CPU": 3.0, "GPU": 0.0}}


def test_the_server_needs_nothing_of_the_simulators_packages():
    program = "import sys; sys.modules.update(dict.fromkeys(('cattrs', 'yaml', 'scipy', 'rich', 'typer'))); " + (
        "import executors.simulator.from_journal.past, executors.simulator.from_journal.calls"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


async def stays():
    return False


async def left():
    return True


def asks(monkeypatch, tmp_path, program, is_gone=stays):
    (tmp_path / "stand_in.py").write_text(program)
    monkeypatch.setattr(whatif, "MODULE", "stand_in")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return WhatIf().ask({}, is_gone)


SLOW = "import time\ntime.sleep(600)"


@pytest.mark.parametrize(
    ("program", "status", "text"),
    [
        ("import nothing_of_that_name", 503, r"pip install 'rankcore\[sim\]'"),
        ("raise ValueError('odd')", 500, "ValueError: odd"),
        ('print(\'{"error": "the journal is gone"}\')', 422, "the journal is gone"),
    ],
)
def test_a_prediction_that_fails_says_why(monkeypatch, tmp_path, program, status, text):
    with pytest.raises(Problem, match=text) as refused:
        asyncio.run(asks(monkeypatch, tmp_path, program))
    assert refused.value.status == status


def test_a_client_that_leaves_ends_the_process(monkeypatch, tmp_path):
    begun = []
    beginning = asyncio.create_subprocess_exec

    async def begin(*arguments, **options):
        begun.append(await beginning(*arguments, **options))
        return begun[0]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", begin)
    with pytest.raises(Problem, match="has left"):
        asyncio.run(asks(monkeypatch, tmp_path, SLOW, left))
    assert begun[0].returncode == -9


def test_one_that_takes_too_long_is_ended(monkeypatch, tmp_path):
    monkeypatch.setattr(whatif, "ANSWER_S", 0.0)
    with pytest.raises(Problem, match="shorter horizon_s") as refused:
        asyncio.run(asks(monkeypatch, tmp_path, SLOW))
    assert refused.value.status == 504


def test_one_that_does_not_even_read_a_long_question_is_ended(monkeypatch, tmp_path):
    monkeypatch.setattr(whatif, "ANSWER_S", 0.0)
    (tmp_path / "stand_in.py").write_text(SLOW)
    monkeypatch.setattr(whatif, "MODULE", "stand_in")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    async def ask():
        async with asyncio.timeout(30):
            await WhatIf().ask({"free": "n" * (1 << 20)}, stays)

    with pytest.raises(Problem, match="shorter horizon_s"):
        asyncio.run(ask())


def test_one_at_a_time_is_answered_and_the_next_one_after_it(monkeypatch, tmp_path):
    (tmp_path / "stand_in.py").write_text("import sys\nsys.stdin.readline()\nprint('{}')")
    monkeypatch.setattr(whatif, "MODULE", "stand_in")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    one = WhatIf()

    async def both():
        found = await asyncio.gather(one.ask({}, stays), one.ask({}, stays), return_exceptions=True)
        return found, await one.ask({}, stays)

    (first, second), third = asyncio.run(both())
    assert (first.strip(), third.strip()) == (b"{}", b"{}")
    assert (second.status, second.headers) == (429, {"retry-after": "5"})


def test_the_page_is_one_file_that_asks_its_own_server_alone():
    page = live_page().decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert re.findall(r"script-src ([^;]*)", policy)[0].startswith("'sha256-")
    assert not re.search(r"(?:src|href)=\"(?!#)|url\(|@import|https?://", page)
    assert not re.search(r"\son\w+=|localStorage|sessionStorage|EventSource|innerHTML", page)


def test_the_page_has_landmarks_and_reads_nothing_aloud_unasked():
    page = live_page().decode()
    for part in ("<main>", "<header>", "<footer>", 'role="log"', 'aria-live="off"'):
        assert part in page


def test_a_look_that_fails_ends_nothing(world):
    async def fails(status):
        raise OSError("odd")

    async def go():
        right, world.live._replicas = world.live._replicas, fails
        world.live.begin()
        await asyncio.sleep(0)
        assert not world.live._task.done()
        world.live._replicas = right
        async for event in world.live.events():
            if b"event: sample" in event or b"running" in event:
                await world.live.end()
                return event

    assert asyncio.run(asyncio.wait_for(go(), 60))


def test_readers_that_take_nothing_are_counted_and_forgotten_when_they_are_cut_off(world):
    async def blocks(*_):
        await asyncio.Event().wait()

    async def send(message):
        if message["type"] == "http.response.body":
            await blocks()

    async def go():
        scope = {"type": "http", "asgi": {"spec_version": "2.3"}}
        reading = [asyncio.create_task(_LiveStream.of(world.live.events)(scope, blocks, send)) for _ in range(STREAMS_MAX)]
        while world.live._readers < STREAMS_MAX:
            await asyncio.sleep(0)
        with pytest.raises(Problem, match="64 streams are open already"):
            _LiveStream.of(world.live.events)
        for each in reading:
            each.cancel()
        await asyncio.wait(reading)
        assert (world.live._readers, _LiveStream.open) == (0, 0)
        await world.live.end()

    asyncio.run(asyncio.wait_for(go(), 60))


def test_a_status_is_replaced_as_a_whole(world):
    world.looks(lambda: None)
    world.status = attrs.evolve(world.status, deployments={})
    (gone,) = world.looks(lambda: None)
    assert gone["deployments"] == {}
    assert world.live.measured() == {}
