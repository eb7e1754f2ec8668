"""The driver: one step is journalled, then adopted, then carried out; and what goes wrong changes nothing."""

import threading
from collections import deque

import pytest

import rankcore
from executors.engine.deployments import Deployed, Recovered, Resumed
from executors.engine.journal import JournalWriter
from executors.engine.loop import Driver
from executors.engine.reading import JournalReader
from rankcore import DeploymentSpec
from rankcore.commands import Command, QueryReplica, StartReplica
from rankcore.errors import InvalidEventError, RankcoreError
from rankcore.events import Event, ReplicaPlaced, ReplicaReady, SpecChanged

SPEC = DeploymentSpec(name="llm", target_replicas=2)
PATIENCE_S = 60.0


class Recorder:
    """An executor that writes down what it is told and tells what it is given."""

    def __init__(self, log: list[str] | None = None) -> None:
        self.commands: list[Command] = []
        self.news: deque[Event] = deque()
        self.log = [] if log is None else log

    def execute(self, command: Command) -> None:
        self.commands.append(command)
        self.log.append("execute")

    def poll(self) -> Event | None:
        return self.news.popleft() if self.news else None


class LoggedFile:
    """A journal file that notes each write, and fails from a given one on."""

    def __init__(self, log: list[str], fails_from: int = 1_000) -> None:
        self.log = log
        self.fails_from = fails_from
        self.data = b""

    def tell(self):
        return len(self.data)

    def seek(self, position):
        self.position = position

    def truncate(self):
        self.data = self.data[: self.position]

    def write(self, text):
        self.fails_from -= 1
        if self.fails_from < 0:
            self.data += text[:5]
            raise OSError(28, "No space left on device")
        self.data += text
        self.log.append("write")
        return len(text)


def placed(state, at=1.0):
    return ReplicaPlaced(replica_id=min(state.replicas), node_id="n1", at=at)


def test_deploy_hands_over_the_first_commands_in_the_order_of_the_core():
    executor = Recorder()
    driver = Driver.deploy(executor, SPEC, at=0.0, epoch=3)
    first = rankcore.deploy(SPEC, at=0.0, epoch=3)
    assert driver.state == first.state
    assert executor.commands == list(first.commands)
    assert sum(isinstance(command, StartReplica) for command in executor.commands) == 2


def test_recover_hands_over_the_queries():
    executor = Recorder()
    Driver.recover(executor, SPEC, ["llm#1.0", "llm#1.1"], at=5.0, epoch=2)
    queried = [command.replica_id for command in executor.commands if isinstance(command, QueryReplica)]
    assert queried == ["llm#1.0", "llm#1.1"]


def test_deliver_adopts_the_state_and_hands_over_the_commands_of_the_step():
    executor = Recorder()
    driver = Driver.deploy(executor, SPEC)
    expected = rankcore.step(driver.state, placed(driver.state))
    executor.commands.clear()
    assert driver.deliver(placed(driver.state)) == expected
    assert driver.state == expected.state
    assert executor.commands == list(expected.commands) != []


def test_a_step_is_journalled_before_its_commands_run():
    log: list[str] = []
    journal = JournalWriter(LoggedFile(log))
    driver = Driver.deploy(Recorder(log), SPEC, journal=journal)
    assert log[:3] == ["write", "write", "execute"]
    log.clear()
    driver.deliver(placed(driver.state))
    assert log[0] == "write"
    assert set(log[1:]) == {"execute"}


def test_a_journal_that_cannot_be_written_stops_the_step_before_anything_changes():
    log: list[str] = []
    file = LoggedFile(log, fails_from=2)
    executor = Recorder(log)
    driver = Driver.deploy(executor, SPEC, journal=JournalWriter(file))
    state, commands, data = driver.state, list(executor.commands), file.data
    with pytest.raises(OSError, match="No space left"):
        driver.deliver(placed(state))
    assert driver.state is state
    assert executor.commands == commands
    assert file.data == data


def test_a_malformed_event_changes_nothing_and_is_not_journalled(tmp_path):
    path = tmp_path / "run.jsonl"
    executor = Recorder()
    with JournalWriter.create(path) as journal:
        driver = Driver.deploy(executor, SPEC, journal=journal)
        state, commands, text = driver.state, list(executor.commands), path.read_bytes()
        with pytest.raises(InvalidEventError):
            driver.deliver(SpecChanged(spec=DeploymentSpec(name="other", target_replicas=1), at=1.0))
        assert path.read_bytes() == text
    assert driver.state is state
    assert executor.commands == commands


def test_an_executor_that_delivers_from_execute_is_told_so():
    class Impatient(Recorder):
        def execute(self, command):
            super().execute(command)
            if self.impatient:
                driver.deliver(ReplicaReady(replica_id="llm#1.0", at=2.0))

        impatient = False

    executor = Impatient()
    driver = Driver.deploy(executor, SPEC)
    executor.impatient = True
    with pytest.raises(RuntimeError, match=r"deliver\(ReplicaReady\) was called while commands are handed over"):
        driver.deliver(placed(driver.state))
    executor.impatient = False
    driver.deliver(ReplicaReady(replica_id="llm#1.0", at=2.0))


def test_a_second_thread_is_refused_while_one_takes_a_step_and_no_event_is_lost():
    class Slow(Recorder):
        def execute(self, command):
            super().execute(command)
            if begun is not None:
                begun.set()
                assert goes_on.wait(PATIENCE_S)

    begun, goes_on, executor = None, threading.Event(), Slow()
    driver = Driver.deploy(executor, SPEC)
    begun, (first, second) = threading.Event(), sorted(driver.state.replicas)
    executor.news.append(ReplicaPlaced(replica_id=second, node_id="n1", at=1.0))
    thread = threading.Thread(target=driver.deliver, args=(placed(driver.state),))
    thread.start()
    assert begun.wait(PATIENCE_S)
    for call, name in ((lambda: driver.deliver(placed(driver.state)), "deliver"), (driver.deliver_all, "deliver_all")):
        with pytest.raises(RuntimeError, match=rf"^{name}\(.* was called while another thread takes a step: others .* post"):
            call()
    goes_on.set()
    thread.join(PATIENCE_S)
    assert driver.deliver_all() == 1
    assert [driver.state.replicas[name].node_id for name in (first, second)] == ["n1", "n1"]


def test_a_step_that_failed_leaves_the_turn_to_the_next():
    driver = Driver.deploy(Recorder(), SPEC)
    with pytest.raises(InvalidEventError):
        driver.deliver(None)
    driver.post("none")
    with pytest.raises(InvalidEventError):
        driver.deliver_all()
    assert driver.deliver(placed(driver.state)).commands


def test_deliver_all_delivers_what_the_executor_has_to_tell_in_its_order():
    executor = Recorder()
    driver = Driver.deploy(executor, SPEC)
    events = [ReplicaPlaced(replica_id=name, node_id="n1", at=1.0) for name in sorted(driver.state.replicas)]
    expected = driver.state
    for event in events:
        expected = rankcore.step(expected, event).state
    executor.news.extend(events)
    assert driver.deliver_all() == 2
    assert driver.state == expected
    assert driver.deliver_all() == 0


def test_an_error_leaves_the_rest_of_the_news_with_the_executor():
    executor = Recorder()
    driver = Driver.deploy(executor, SPEC)
    bad = SpecChanged(spec=DeploymentSpec(name="other", target_replicas=1), at=1.0)
    executor.news.extend([bad, placed(driver.state)])
    with pytest.raises(RankcoreError):
        driver.deliver_all()
    assert driver.deliver_all() == 1


def test_each_way_to_begin_is_journalled_with_its_arguments(tmp_path):
    path = tmp_path / "run.jsonl"
    with JournalWriter.create(path) as journal:
        driver = Driver.deploy(Recorder(), SPEC, at=1.0, epoch=4, journal=journal)
        Driver.recover(Recorder(), SPEC, ("llm#4.0",), at=2.0, epoch=5, previous=SPEC, journal=journal)
        Driver(Recorder(), driver.state, journal=journal)
    deployed, recovered, resumed = JournalReader(path)
    assert deployed.cause == Deployed(spec=SPEC, at=1.0, epoch=4)
    assert deployed.commands == rankcore.deploy(SPEC, at=1.0, epoch=4).commands
    assert recovered.cause == Recovered(spec=SPEC, replica_ids=("llm#4.0",), at=2.0, epoch=5, previous=SPEC)
    assert resumed.cause == Resumed(state=driver.state)
    assert resumed.commands == ()


def test_a_driver_goes_on_from_a_given_state_without_repeating_its_commands():
    first = Driver.deploy(Recorder(), SPEC)
    executor = Recorder()
    fork = Driver(executor, first.state)
    assert executor.commands == []
    fork.deliver(placed(fork.state))
    assert executor.commands != []
    assert fork.state != first.state


def test_the_driver_has_the_name_that_the_design_fixes():
    import executors
    from executors.base import Executor

    assert executors.Driver is Driver
    assert executors.Executor is Executor
    assert not hasattr(executors, "driver_of_something_else")


class WithoutPoll:
    def execute(self, command):
        raise AssertionError("nothing is handed over")


class Async(Recorder):
    async def poll(self):
        return None


@pytest.mark.parametrize("executor", [WithoutPoll(), Recorder, Async()])
def test_what_is_no_executor_is_refused_before_a_command_is_handed_over(executor):
    with pytest.raises(TypeError, match=r"^executor must be an object with execute\(command\) and poll\(\).* got "):
        Driver.deploy(executor, SPEC)


def test_a_path_is_no_journal_and_the_text_says_what_makes_one_of_it():
    with pytest.raises(TypeError, match=r"^journal must be what JournalWriter\.create\(path\).* got 'llm\.jsonl'"):
        Driver.deploy(Recorder(), SPEC, journal="llm.jsonl")
    with pytest.raises(TypeError, match=r"^file must be open for writing, as JournalWriter\.create\(path\).* got 'llm\.jsonl'"):
        JournalWriter("llm.jsonl")


def test_an_executor_that_raises_is_told_what_was_not_carried_out():
    class Raises(Recorder):
        def execute(self, command):
            raise ConnectionError("no route to host")

    with pytest.raises(ConnectionError) as caught:
        Driver.deploy(Raises(), SPEC)
    first, *others = rankcore.deploy(SPEC).commands
    (note,) = caught.value.__notes__
    assert note == f"{first} was not carried out, nor {len(others)} commands after it: tell what fails as an event, by poll()"


def test_a_successor_begins_with_what_of_the_last_state_outlives_its_controller():
    state = Driver.deploy(Recorder(), SPEC).state
    how = Recovered.of(state, dict.fromkeys(["llm#1.0"]), at=7.0, epoch=state.epoch + 1)
    assert how == Recovered(spec=SPEC, replica_ids=("llm#1.0",), at=7.0, epoch=2, previous=state.previous)
    assert Driver.begin(Recorder(), how).state.epoch == 2
