"""What processes ask the controller: one question each, answered with what is new; statuses go where calls wait."""

import asyncio
import itertools

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.ray_gpu import watches
from executors.ray_gpu.messages import CallStatus, DeploymentNews, LoadReport, Routes, Seen, WatchQuestion
from executors.ray_gpu.requests.caller import Questions
from executors.ray_gpu.watches import Watches
from rankcore.routing import RoutingSpec
from rankcore.routing.statuses import TELL_EVERY_S
from tests.ray_in_memory import until

EPOCH = 3


class Called:
    """A deployment, and how often it was looked at."""

    def __init__(self, deployment):
        self.deployment = deployment
        self.number, self.looks = 1, 0
        self.status_number, self.shown = 0, None

    def routes(self):
        self.looks += 1
        return (self.number, Routes((), self.number, RoutingSpec(name=self.deployment))) if self.number else None

    def status(self):
        return (self.status_number, self.shown) if self.shown is not None else None

    def stand(self, state, **more):
        self.status_number, self.shown = self.status_number + 1, CallStatus(state, **more)


class World:
    def __init__(self, *names):
        self.deployments = {name: Called(name) for name in names}
        self.left_alone = set()
        self.watches = Watches(EPOCH, self.deployments.get, self.is_gone, lambda: asyncio.get_running_loop().time())

    def is_gone(self, name):
        return name not in self.deployments and name not in self.left_alone

    def change(self, name):
        self.deployments[name].number += 1
        self.watches.touch(name)

    def stand(self, name, state, **more):
        self.deployments[name].stand(state, **more)
        self.watches.touch(name)

    def waits(self, process, seq=1, **counts):
        self.watches.hear(LoadReport(process, 1, seq, {name: {"waiting": count} for name, count in counts.items()}))


_numbers = itertools.count(1)


def asked(world, process, seen, wait_s):
    return world.watches.ask(WatchQuestion(process, next(_numbers), 0, dict(seen)), wait_s)


class Process:
    """One that follows deployments for ever; keeps what it was told, and when."""

    def __init__(self, world, name, *deployments):
        self.world, self.name = world, name
        self.seen = dict.fromkeys(deployments, Seen())
        self.told = []
        self.task = asyncio.get_running_loop().create_task(self._follow())

    async def _follow(self):
        questions = Questions(self.name)
        while True:
            news = await self.world.watches.ask(questions.following(dict(self.seen)), 60.0)
            for name, each in news.items():
                self.told.append((asyncio.get_running_loop().time(), name, each))
                if each is None:
                    del self.seen[name]
                    continue
                seen = self.seen[name]
                status, routes = each.status, each.routes
                refuses = seen.refuses if status is None else status[1].state == "UNAVAILABLE"
                self.seen[name] = Seen(
                    routes[0] if routes is not None else seen.routes, status[0] if status is not None else seen.status, refuses
                )

    @property
    def states(self):
        return [(name, each.status[1].state) for _, name, each in self.told if each is not None and each.status is not None]

    async def heard(self, count):
        await until(lambda: len(self.told) >= count)


def test_fifty_processes_that_call_a_thousand_deployments_have_fifty_questions_and_hear_of_each_change():
    async def scenario():
        world = World(*(f"a/d{number}" for number in range(1000)))
        processes = [Process(world, f"process {number}", *world.deployments) for number in range(50)]
        for process in processes:
            await process.heard(1000)
        await until(lambda: world.watches.pending == 50)
        looks = sum(each.looks for each in world.deployments.values())
        for number in range(20):
            world.change(f"a/d{number * 50}")
        for process in processes:
            await process.heard(1020)
            assert {name for _, name, _ in process.told[1000:]} == {f"a/d{number * 50}" for number in range(20)}
        await until(lambda: world.watches.pending == 50)
        for process in processes:
            process.task.cancel()
        await until(lambda: not world.watches.pending)
        for process in processes:
            world.watches.forget(process.name)
        assert not world.watches._callers, "nobody is remembered who has gone"
        return sum(each.looks for each in world.deployments.values()) - looks

    looks = asyncio.run(scenario())
    assert looks <= 2 * 20 * 50, "each change is looked at for each process, and again when that says that it knows"


def test_of_two_questions_of_one_process_the_newer_is_answered():
    async def scenario():
        world = World("m", "n")
        known = Seen((EPOCH, 1))
        first = asyncio.create_task(asked(world, "p", {"m": known}, 60.0))
        await until(lambda: world.watches.pending)
        second = asyncio.create_task(asked(world, "p", {"m": known, "n": known}, 60.0))
        assert await first == {}
        await until(lambda: world.watches.pending == 1)
        assert world.watches.pending == 1
        world.change("m")
        assert {name: news.routes[0] for name, news in (await second).items()} == {"m": (EPOCH, 2)}

    asyncio.run(scenario())


def test_only_what_has_changed_is_looked_at_again():
    async def scenario():
        world = World(*map(str, range(100)))
        question = asyncio.create_task(asked(world, "p", dict.fromkeys(world.deployments, Seen((EPOCH, 1))), 60.0))
        await until(lambda: all(each.looks == 1 for each in world.deployments.values()))
        world.watches.touch("7")
        await until(lambda: world.deployments["7"].looks == 2)
        world.change("8")
        assert list(await question) == ["8"]
        assert sum(each.looks for each in world.deployments.values()) == 102

    asyncio.run(scenario())


def test_who_asks_for_what_is_gone_is_told_so_and_for_what_is_left_alone_hears_nothing():
    async def scenario():
        world = World("m")
        world.left_alone.add("left")
        assert await asked(world, "p", {"no": Seen(), "left": Seen(), "m": Seen((EPOCH, 1))}, 60.0) == {"no": None}
        assert await asked(world, "p", {"left": Seen(), "m": Seen((EPOCH, 1))}, 0.0) == {}
        world.deployments["m"].number = 0  # they are not known yet
        assert await asked(world, "p", {"m": Seen()}, 0.0) == {}

    asyncio.run(scenario())


def test_a_status_goes_to_processes_in_which_calls_wait_and_to_those_that_refuse_them():
    async def scenario():
        world = World("m")
        waiting, refusing, idle = (Process(world, name, "m") for name in ("waiting", "refusing", "idle"))
        for each in (waiting, refusing, idle):
            await each.heard(1)
        world.waits("waiting", m=2)
        world.waits("refusing", m=1)
        world.stand("m", "UNAVAILABLE", because="no room")
        await waiting.heard(2)
        await refusing.heard(2)
        world.waits("refusing", 2, m=0)  # its calls have failed
        world.stand("m", "QUEUED")
        await refusing.heard(3)
        await waiting.heard(3)
        world.stand("m", "LOADING", percent=5)
        await waiting.heard(4)
        world.change("m")
        for each in (waiting, refusing, idle):
            await until(lambda each=each: each.seen["m"].routes == (EPOCH, 2))
        return waiting.states, refusing.states, idle.states

    waiting, refusing, idle = asyncio.run(scenario())
    assert waiting == [("m", "UNAVAILABLE"), ("m", "QUEUED"), ("m", "LOADING")]
    assert refusing == [("m", "UNAVAILABLE"), ("m", "QUEUED"), ("m", "LOADING")], "the last came with the routes"
    assert idle == [("m", "LOADING")], "likewise"


def test_who_begins_to_wait_is_told_how_it_stands():
    async def scenario():
        world = World("m")
        world.deployments["m"].stand("PROVISIONING", behind=("chat/M",))
        process = Process(world, "p", "m")
        process.seen["m"] = Seen((EPOCH, 1))
        await until(lambda: world.watches.pending)
        world.waits("p", m=1)
        await process.heard(1)
        return process.states, str(process.told[0][2].status[1])

    assert asyncio.run(scenario()) == ([("m", "PROVISIONING")], "PROVISIONING behind chat/M")


def test_a_process_is_told_of_statuses_four_times_a_second_and_of_the_newest_of_each():
    async def scenario():
        world = World("m", "n")
        process = Process(world, "p", "m", "n")
        await until(lambda: process.seen["m"].routes == process.seen["n"].routes == (EPOCH, 1))
        world.waits("p", m=1, n=1)
        for percent in range(60):
            for name in ("m", "n"):
                world.stand(name, "LOADING", percent=percent)
            await asyncio.sleep(0.01)
        await until(lambda: all(seen.status == (EPOCH, 60) for seen in process.seen.values()))
        return [(at, name, news.status[1].percent) for at, name, news in process.told if news.status is not None]

    told = asyncio.run(scenario())
    for name in ("m", "n"):
        moments = [at for at, about, _ in told if about == name]
        assert len(moments) <= (moments[-1] - moments[0]) / TELL_EVERY_S + 2, "however late each arrives"
    assert {name: percent for _, name, percent in told} == {"m": 59, "n": 59}


def test_a_report_that_has_come_late_brings_no_status_back():
    async def scenario():
        world = World("m")
        world.waits("p", 2, m=0)
        world.waits("p", 1, m=1)
        world.deployments["m"].stand("QUEUED")
        assert await asked(world, "p", {"m": Seen((EPOCH, 1))}, 0.0) == {}
        world.waits("p", 3, m=1)
        news = await asked(world, "p", {"m": Seen((EPOCH, 1))}, 0.0)
        assert news == {"m": DeploymentNews(None, ((EPOCH, 1), CallStatus("QUEUED")))}

    asyncio.run(scenario())


def test_a_question_of_before_there_was_one_for_all_is_told_the_name_that_it_asked_by():
    async def scenario():
        world = World()
        world.deployments["old"] = Called("app/old")
        return (await asked(world, "p", {"old": Seen()}, 60.0))["old"].routes[1].spec.name

    assert asyncio.run(scenario()) == "old"


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (CallStatus("LOADING", percent=40, left_s=12.3), "LOADING 40 %, 12 s"),
        (CallStatus("LOADING", percent=0), "LOADING 0 %"),
        (CallStatus("QUEUED", because="no room"), "QUEUED: no room"),
        (CallStatus("READY"), "READY"),
    ],
)
def test_a_status_can_be_read(status, text):
    assert str(status) == text


def test_a_question_that_adds_to_one_that_is_not_known_is_to_say_all():
    async def scenario():
        world, known = World("m", "n"), Seen((EPOCH, 1))
        assert await world.watches.ask(WatchQuestion("p", 2, 1, {}), 60.0) is None, "as to a controller that has begun again"
        first = asyncio.create_task(world.watches.ask(WatchQuestion("p", 3, 0, {"m": known, "n": known}), 60.0))
        await until(lambda: world.watches.pending)
        assert await world.watches.ask(WatchQuestion("p", 5, 4, {}), 60.0) is None, "the fourth was lost"
        second = asyncio.create_task(world.watches.ask(WatchQuestion("p", 4, 3, {}, ("n",)), 60.0))
        assert await first == {}
        world.change("n")
        world.change("m")
        assert list(await second) == ["m"]
        assert (await world.watches.ask(WatchQuestion("p", 5, 4, {}), 0.0)) == {}, "it was told, and has not said that it knows"
        world.change("m")
        assert (await world.watches.ask(WatchQuestion("p", 6, 5, {}), 60.0))["m"].routes[0] == (EPOCH, 3)

    asyncio.run(scenario())


def test_what_changes_between_two_questions_is_the_answer_of_the_next():
    async def scenario():
        world, known = World("m"), Seen((EPOCH, 1))
        assert await world.watches.ask(WatchQuestion("p", 1, 0, {"m": known}), 0.0) == {}
        world.change("m")
        assert list(await world.watches.ask(WatchQuestion("p", 2, 1, {}), 60.0)) == ["m"]

    asyncio.run(scenario())


def test_processes_that_have_ended_are_forgotten(monkeypatch):
    monkeypatch.setattr(watches, "SILENT_S", -1.0)

    async def scenario():
        world = World("m")
        for number in range(5):
            await asked(world, f"process {number}", {"m": Seen((EPOCH, 1))}, 0.0)
        assert list(world.watches._processes) == ["process 4"]

    asyncio.run(scenario())


def test_of_questions_each_says_what_the_one_before_has_not():
    questions, known = Questions("p"), Seen((EPOCH, 1))
    assert questions.following({"m": Seen(), "n": Seen()}) == WatchQuestion("p", 1, 0, {"m": Seen(), "n": Seen()})
    assert questions.following({"m": known, "n": Seen()}) == WatchQuestion("p", 2, 1, {"m": known})
    assert questions.following({"m": known}) == WatchQuestion("p", 3, 2, {}, ("n",))
    questions.say_all()
    assert questions.following({"m": known}) == WatchQuestion("p", 4, 0, {"m": known})


def test_who_does_not_say_what_waits_there_is_counted_and_is_not_asked_later(monkeypatch):
    monkeypatch.setattr(watches, "INQUIRE_S", 0.01)

    async def scenario():
        world = World("a/x", "a/y")
        speaks, silent = Process(world, "speaks", "a/x"), Process(world, "silent", "a/x")
        for process in (speaks, silent):
            await process.heard(1)
        world.waits("silent", **{"a/x": 2})
        silent.task.cancel()  # it is between two questions
        inquiring = asyncio.create_task(world.watches.inquire(("a/x", "a/y"), None, None, "enough"))
        await speaks.heard(2)
        (inquiry,) = speaks.told[-1][2].inquiries
        assert (inquiry.request, inquiry.because) == (None, "enough")
        world.watches.told(inquiry.number, "speaks", "a/x", [{"request": 7}])
        found = await inquiring
        assert found == {"calls": [{"request": 7, "deployment": "a/x", "process": "speaks"}], "silent": 1}
        world.watches.told(inquiry.number, "silent", "a/x", [{"request": 8}])  # nobody wants to know any more
        assert not any(world.watches._processes["silent"].inquiries.values()), "a call of later is not ended by it"
        assert await world.watches.inquire(("a/y",), None, None, None) == {"calls": [], "silent": 0}, "nobody calls it"
        speaks.task.cancel()

    asyncio.run(scenario())


def test_who_is_silent_for_long_is_counted_by_what_it_has_said_last(monkeypatch):
    monkeypatch.setattr(watches, "INQUIRE_S", 0.01)
    monkeypatch.setattr(watches, "DEAD_S", 0.0)

    async def scenario():
        world = World("a/x")
        for name in ("waits", "idle", "new"):
            process = Process(world, name, "a/x")
            await process.heard(1)
            process.task.cancel()
        world.waits("waits", **{"a/x": 1})
        world.waits("idle", **{"a/x": 1})
        world.waits("idle", 2, **{"a/x": 0})
        await asyncio.sleep(0)
        assert await world.watches.inquire(("a/x",), None, None, None) == {"calls": [], "silent": 3}, "all have just begun"
        monkeypatch.setattr(watches, "COUNTS_S", 0.0)
        assert await world.watches.inquire(("a/x",), None, None, None) == {"calls": [], "silent": 1}
        assert await world.watches.inquire(("a/x",), "idle", None, None) == {"calls": [], "silent": 0}

    asyncio.run(scenario())


def test_what_a_former_controller_was_told_answers_nobody_here():
    async def go():
        world = World("a/x")
        former = Watches(EPOCH - 1, world.deployments.get, world.is_gone, asyncio.get_running_loop().time)
        process = Process(world, "p", "a/x")
        await process.heard(1)
        asking = asyncio.create_task(world.watches.inquire(("a/x",), "p", 7, "enough"))
        await process.heard(2)
        (inquiry,) = process.told[-1][2].inquiries
        world.watches.told(next(former._numbers), "p", "a/x", [{"request": 3}])
        assert not asking.done()
        world.watches.told(inquiry.number, "p", "a/x", [{"request": 7}])
        assert [each["request"] for each in (await asking)["calls"]] == [7]
        process.task.cancel()

    asyncio.run(go())


def test_who_asks_no_more_leaves_no_order_behind():
    async def go():
        world = World("a/x")
        process = Process(world, "p", "a/x")
        await process.heard(1)
        process.task.cancel()
        await asyncio.sleep(0)
        asking = asyncio.create_task(world.watches.inquire(("a/x",), None, None, "enough"))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert not any(world.watches._processes["p"].inquiries.values())
        assert not world.watches._inquiring

    asyncio.run(go())
