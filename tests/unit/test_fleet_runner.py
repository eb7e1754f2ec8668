"""A fleet in an event loop: callers that wait, load, displace, fail and go; its journal runs again."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from executors.engine.reading import JournalError
from executors.fleet import (
    FleetClosedError,
    FleetJournal,
    FleetRunner,
    NotThereError,
    RequestError,
    RequestExpiredError,
    RequestRejectedError,
    begin_again,
    replay_fleet,
)
from rankcore.dispatching import DispatchPolicy, ServingChanged, ServingSpec, Status, fleet_step, open_fleet
from rankcore.dispatching.invariants import check
from rankcore.residency import ModelSpec, ResidencyPolicy, Wanted
from rankcore.residency.commands import LoadToGpu
from rankcore.residency.events import DeployRequested, EvictRequested, NodeJoined
from rankcore.routing import RoutingSpec

TIMEOUT_S = 60.0


class Weights:
    """Weights in name only: loads and answers wait for a word of the test where it says so.

    Attributes:
        hot: Replicas on the GPU.
        log: What was done, in order.
        held: What goes on only when the test says: "load a", "answer a".
    """

    def __init__(self) -> None:
        self.hot: set[str] = set()
        self.log: list[str] = []
        self.held: dict[str, asyncio.Event] = {}
        self.fails: dict[str, Exception] = {}

    async def _gate(self, what: str, replica_id: str) -> None:
        model = replica_id.partition("#")[0]
        if f"{what} {model}" in self.held:
            await self.held[f"{what} {model}"].wait()
        if f"{what} {model}" in self.fails:
            raise self.fails[f"{what} {model}"]
        self.log.append(f"{what} {model}")

    async def load(self, command: LoadToGpu, progress: Callable[[int], None]) -> None:
        progress(sum(command.gpu_bytes) // 2)
        await self._gate("load", command.replica_id)
        self.hot.add(command.replica_id)

    async def offload(self, replica_id: str) -> None:
        await self._gate("offload", replica_id)
        self.hot.discard(replica_id)

    async def unload(self, replica_id: str) -> None:
        await self._gate("unload", replica_id)
        self.hot.discard(replica_id)

    async def drop(self, replica_id: str) -> None:
        await self._gate("drop", replica_id)
        self.hot.discard(replica_id)

    async def answer(self, replica_id: str, payload: Any) -> Any:
        if replica_id not in self.hot:
            raise NotThereError(replica_id)
        await self._gate("answer", replica_id)
        if isinstance(payload, Exception):
            raise payload
        return f"{replica_id.partition('#')[0]} says {payload}"


def deploy(fleet: FleetRunner, **sizes: int) -> None:
    fleet.tell(NodeJoined(node_id="n1", gpu_bytes=(80,), cpu_bytes=200, at=fleet.now))
    wanted = tuple(Wanted(spec=ModelSpec(model=model, weight_bytes=size), replicas=0) for model, size in sizes.items())
    fleet.tell(DeployRequested(wanted=wanted, at=fleet.now))


def run(
    main: Callable[..., Any], policy: DispatchPolicy | None = None, planner: ResidencyPolicy | None = None, **sizes: int
) -> Any:
    """Run a scene with a fleet, and see that it is sound at its end."""

    async def scene() -> Any:
        weights = Weights()
        async with FleetRunner(open_fleet(policy, planner), weights) as fleet:
            deploy(fleet, **sizes)
            result = await asyncio.wait_for(main(fleet, weights), TIMEOUT_S)
            assert check(fleet.state) == []
            return result

    return asyncio.run(scene())


async def until(holds: Callable[[], Any]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


def test_requests_for_cold_models_wait_load_and_displace():
    async def main(fleet: FleetRunner, weights: Weights) -> list[str]:
        told: list[Status] = []
        first = await fleet.request("a", 1, on_status=told.append)
        assert [status.kind for status in told] == ["loading", "loading", "ready"]
        assert told[1].percent == 50
        others = await asyncio.gather(*(fleet.request("b", number) for number in range(3)))
        assert weights.log.count("load b") == 1
        assert "offload a" in weights.log
        return [first, *others]

    answers = run(main, DispatchPolicy(turn_s=0.01), a=50, b=60)
    assert answers == ["a says 1", "b says 0", "b says 1", "b says 2"]


def test_what_a_model_raises_is_handed_over_and_it_lives_on():
    async def main(fleet: FleetRunner, _: Weights) -> None:
        with pytest.raises(KeyError, match="mine"):
            await fleet.request("a", KeyError("mine"))
        assert await fleet.request("a", 2) == "a says 2"

    run(main, a=50)


def test_a_load_that_fails_for_good_is_an_error_with_the_reason():
    async def main(fleet: FleetRunner, weights: Weights) -> None:
        weights.fails["load a"] = OSError("no such file")
        with pytest.raises(RequestError, match="OSError: no such file"):
            await fleet.request("a", 1)

    run(main, planner=ResidencyPolicy(max_load_failures=1), a=50)


def test_who_is_not_there_is_asked_again():
    async def main(fleet: FleetRunner, weights: Weights) -> None:
        await fleet.request("a", 1)
        [replica_id] = weights.hot
        weights.hot.clear()
        asking = asyncio.ensure_future(fleet.request("a", 2))
        await until(lambda: fleet.state.waiting("a"))
        weights.hot.add(replica_id)
        assert await asking == "a says 2"

    run(main, a=50)


def test_deadlines_limits_and_cancellation():
    async def main(fleet: FleetRunner, weights: Weights) -> None:
        weights.held["answer a"] = asyncio.Event()
        routing = RoutingSpec(name="a", max_ongoing_requests=1, max_queued_requests=1)
        fleet.tell(ServingChanged(spec=ServingSpec(routing=routing), at=fleet.now))
        with pytest.raises(RequestExpiredError):
            await fleet.request("a", 1, timeout_s=0.01)
        working = asyncio.ensure_future(fleet.request("a", 2))
        await until(lambda: fleet.state.models["a"].router.in_flight)
        waiting = asyncio.ensure_future(fleet.request("a", 3))
        await until(lambda: fleet.state.waiting("a"))
        with pytest.raises(RequestRejectedError, match="try again in"):
            await fleet.request("a", 4)
        waiting.cancel()
        await until(lambda: not fleet.state.waiting("a"))
        working.cancel()
        await until(lambda: not fleet.state.requests)
        with pytest.raises(asyncio.CancelledError):
            await working

    run(main, a=50)


def test_an_eviction_lets_work_finish_and_provisions_again_for_who_waits():
    async def main(fleet: FleetRunner, weights: Weights) -> None:
        routing = RoutingSpec(name="a", max_ongoing_requests=1)
        fleet.tell(ServingChanged(spec=ServingSpec(routing=routing), at=fleet.now))
        weights.held["answer a"] = asyncio.Event()
        asking = [asyncio.ensure_future(fleet.request("a", number)) for number in range(2)]
        await until(lambda: fleet.state.models["a"].router.in_flight)
        fleet.tell(EvictRequested(model="a", at=fleet.now))
        weights.held["answer a"].set()
        assert await asyncio.gather(*asking) == ["a says 0", "a says 1"]
        assert weights.log.count("load a") == 2

    run(main, a=50)


def test_what_does_not_finish_in_its_time_is_stopped_and_lost():
    async def main(fleet: FleetRunner, weights: Weights) -> None:
        weights.held["answer a"] = asyncio.Event()
        asking = asyncio.ensure_future(fleet.request("a", 1))
        await until(lambda: fleet.state.models["a"].router.in_flight)
        fleet.tell(EvictRequested(model="a", at=fleet.now))
        with pytest.raises(RequestError, match="nobody knows whether it was begun"):
            await asking

    run(main, planner=ResidencyPolicy(drain_timeout_s=0.01), a=50)


def test_a_load_that_is_broken_off_and_an_offload_that_fails():
    async def main(fleet: FleetRunner, weights: Weights) -> None:
        weights.held["load a"] = asyncio.Event()
        asking = asyncio.ensure_future(fleet.request("a", 1))
        await until(lambda: fleet.state.moves)
        fleet.tell(EvictRequested(model="a", at=fleet.now))
        weights.held["load a"].set()
        assert await asking == "a says 1"
        weights.fails["offload a"] = MemoryError()
        fleet.tell(EvictRequested(model="a", at=fleet.now))
        await until(lambda: not fleet.state.moves)
        assert "drop a" in weights.log

    run(main, a=50)


def test_whoever_waits_when_the_fleet_is_closed_is_told_so():
    async def scene() -> None:
        weights = Weights()
        async with FleetRunner(open_fleet(), weights) as fleet:
            deploy(fleet, a=50, b=20)
            weights.held["load a"] = weights.held["answer b"] = asyncio.Event()
            asking = [asyncio.ensure_future(fleet.request(model, 1)) for model in "ab"]
            await until(lambda: fleet.state.models["b"].router.in_flight)
        for each in asking:
            with pytest.raises(FleetClosedError):
                await each
        with pytest.raises(FleetClosedError):
            await fleet.request("a", 1)

    asyncio.run(scene())


# -- its journal


def keep(path: Path) -> None:
    async def scene() -> None:
        with FleetJournal.create(path, about={"test": 1}, fingerprint_every=3) as journal:
            async with FleetRunner(open_fleet(DispatchPolicy(turn_s=0.01)), Weights(), journal=journal) as fleet:
                deploy(fleet, a=50, b=60)
                await asyncio.gather(*(fleet.request(model, 1) for model in "abab"))

    asyncio.run(scene())


def test_a_journal_runs_again_to_the_same_state(tmp_path: Path):
    path = tmp_path / "fleet.jsonl"
    keep(path)
    result = replay_fleet(path)
    assert result.difference is None
    assert result.warning is None
    assert result.steps > 12
    assert result.fingerprints == 1 + (result.steps - 1) // 3  # of the beginning, and of every third after it
    assert not result.state.unanswered


def test_a_journal_that_tells_another_story_is_found(tmp_path: Path):
    path = tmp_path / "fleet.jsonl"
    keep(path)
    lines = path.read_text().splitlines(keepends=True)
    other = next(index for index, line in enumerate(lines) if '"Dispatch"' in line)
    for old, new, what in (
        ('"attempt":1', '"attempt":2', "commands[0] differs"),
        ('"rule":"Q3"', '"rule":"Q4"', "notes[1] differs"),
    ):
        path.write_text("".join([*lines[:other], lines[other].replace(old, new), *lines[other + 1 :]]))
        assert what in str(replay_fleet(path).difference)
    marked = next(index for index, line in enumerate(lines) if index > 1 and '"fingerprint"' in line)
    broken = lines[marked][: lines[marked].rindex('"fingerprint"')] + '"fingerprint":"0"}\n'
    path.write_text("".join([*lines[:marked], broken]))
    assert "fingerprint differs" in str(replay_fleet(path).difference)


def test_a_journal_that_was_cut_off_is_read_up_to_there(tmp_path: Path):
    path = tmp_path / "fleet.jsonl"
    keep(path)
    whole = replay_fleet(path).steps
    path.write_bytes(path.read_bytes()[:-5])
    result = replay_fleet(path)
    assert result.steps == whole - 1
    assert "in the middle of this line" in (result.warning or "")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "the file is empty: a journal begins with a line about itself"),
        ("{}\n", "its first line has no key 'journal'"),
        ("x", "not a line of a journal"),
        ('{"fleet_journal":1,"about":{}}\n{"event":{}}\n', "commands is missing"),
        (
            '{"fleet_journal":1,"about":{}}\n{"event":{"type":"ClockAdvanced","at":1.0},"commands":[],"notes":[]}\n',
            "there is an event before it began",
        ),
        ('{"fleet_journal":1,"about":{}}\n{"began":{}}\n', "type is missing"),
        ('{"fleet_journal":1,"about":{}}\n{"began":7}\n', "began must be an object, got 7"),
    ],
)
def test_what_is_no_journal_is_refused_with_its_line(tmp_path: Path, text: str, what: str):
    path = tmp_path / "fleet.jsonl"
    path.write_text(text)
    with pytest.raises(JournalError, match=what):
        replay_fleet(path)


def test_a_process_that_takes_over_answers_whoever_was_left_and_loads_again(tmp_path: Path):
    path = tmp_path / "fleet.jsonl"

    async def dies() -> None:
        weights = Weights()
        journal = FleetJournal.create(path)
        fleet = await FleetRunner(open_fleet(), weights, journal=journal).__aenter__()
        deploy(fleet, a=50)
        weights.held["load a"] = asyncio.Event()
        asking = asyncio.ensure_future(fleet.request("a", 1))
        await until(lambda: fleet.state.moves)
        fleet._closed = True  # as if its process had ended here
        asking.cancel()
        await asyncio.wait([asking])
        journal.close()

    asyncio.run(dies())
    state = replay_fleet(path).state
    assert state.unanswered

    async def takes_over() -> str:
        async with FleetRunner(state, Weights()) as fleet:
            for event in begin_again(state):
                fleet.tell(event)
            assert not fleet.state.unanswered
            fleet.tell(NodeJoined(node_id="n1", gpu_bytes=(80,), cpu_bytes=200, at=fleet.now))
            return await asyncio.wait_for(fleet.request("a", 2), TIMEOUT_S)

    assert asyncio.run(takes_over()) == "a says 2"


def test_an_event_that_does_not_fit_its_state_is_a_difference(tmp_path: Path):
    path = tmp_path / "fleet.jsonl"
    state = open_fleet()
    with FleetJournal.create(path) as journal:
        journal.begin(state)
        event = DeployRequested(wanted=(Wanted(spec=ModelSpec(model="a", weight_bytes=5), replicas=0),), at=0.0)
        step = fleet_step(state, event)
        journal.append(EvictRequested(model="a", at=0.0), step)
    assert "InvalidEventError" in str(replay_fleet(path).difference)
