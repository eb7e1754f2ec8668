"""What docs/embedding.md begins with runs as it stands there, from an empty folder, and prints what the page says."""

import gc
import re
import runpy
import shlex
import signal
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import attrs
import pytest

from executors.cli import main
from executors.engine.replay import replay
from rankcore import DeploymentSpec, DeploymentStatus, deploy, step
from rankcore.commands import PublishRoutes
from rankcore.events import DeleteRequested, ReplicaPlaced
from rankcore.testing import conformance
from rankcore.testing.conformance.running import NotTriedError

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "embedding.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^`(\w+\.py)`\n\n```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
PRINTED = {
    name: (block or f"{line}\n")
    for name, block, line in re.findall(
        r"^`(\w+\.py)`\n\n```python\n(?:(?!^```$).)*?^```\n\nIt prints(?:\n\n```text\n(.*?)```| `(.*?)`\.)$",
        PAGE,
        re.MULTILINE | re.DOTALL,
    )
}
PATIENCE_S = 120


def give_up(*_):
    raise TimeoutError(f"a program of the page has not ended within {PATIENCE_S} s")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PATIENCE_S)
    yield tmp_path
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    for name in FILES:
        sys.modules.pop(name.removesuffix(".py"), None)


def test_every_file_of_the_page_is_tried_here():
    assert list(FILES) == ["mine.py", "loop.py", "journal.py", "recover.py", "test_mine.py", "in_asyncio.py", "in_threads.py"]
    assert set(PRINTED) == set(FILES) - {"mine.py", "test_mine.py"}


@pytest.mark.parametrize("name", PRINTED)
def test_a_program_prints_what_the_page_says(name, folder, capsys):
    runpy.run_path(str(folder / name), run_name="__main__")
    assert capsys.readouterr().out == PRINTED[name]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("explain llm.jsonl --replica 'llm#1.3'", "rank 1 is kept for the replacement of llm#1.1"),
        ("replay llm.jsonl", "steps of 1 deployment(s) (llm) agree"),
    ],
)
def test_a_command_on_the_page_reads_the_journal(command, said, folder, capsys, monkeypatch):
    assert f"`rankcore {command}`" in PAGE
    runpy.run_path(str(folder / "journal.py"))
    monkeypatch.setattr(sys, "argv", ["rankcore", *shlex.split(command)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, said in capsys.readouterr().out) == (0, True)


def test_the_loop_without_the_driver_is_what_the_driver_does():
    (text,) = re.findall(r"^## Without the driver\n\n```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    names = {"step": step}
    exec(text, names)
    log = []

    class Mine(names["Controller"]):
        def journal(self, event, result):
            log.append(("journal", event, result.state))

        def carry_out(self, commands):
            log.extend(("command", type(command).__name__) for command in commands)

    mine = Mine(deploy(DeploymentSpec(name="llm", target_replicas=1)))
    del log[:]
    placed = ReplicaPlaced(replica_id="llm#1.0", node_id="n1", at=1.0)
    mine.on_event(placed)
    assert log == [("journal", placed, mine.state), ("command", "InitializeReplica")]


def test_a_controller_that_finds_a_journal_and_no_replica_starts_all_anew(folder, capsys):
    for _ in range(2):
        sys.modules.pop("loop", None)  # with the scheduler in it
        runpy.run_path(str(folder / "recover.py"))
    assert capsys.readouterr().out.splitlines()[2:] == [
        "{0: 'llm#3.0', 1: 'llm#3.1', 2: 'llm#3.2'}",
        "{0: 'llm#3.0', 1: 'llm#4.0', 2: 'llm#3.2'}",
    ]


def recovering(folder):
    """What the page begins a controller with, and its modules; nothing is left of what it has run."""
    begin = runpy.run_path(str(folder / "recover.py"))["begin"]
    mine, loop = sys.modules["mine"], sys.modules["loop"]
    loop.scheduler.jobs.clear()
    loop.scheduler.ended.clear()
    return begin, mine, loop


def test_a_controller_that_begins_again_wants_what_is_wanted_now_and_one_that_was_deleted_is_deployed_again(folder):
    begin, _, loop = recovering(folder)
    journal = "again.jsonl"
    more = attrs.evolve(loop.SPEC, target_replicas=4)

    def lives(wanted, done, *events):
        driver = begin(journal, wanted)
        for event in events:
            driver.deliver(event)
        loop.run_until(driver, done)
        driver.journal.close()
        return driver.state

    lives(loop.SPEC, loop.healthy)
    state = lives(more, lambda state: loop.healthy(state) and state.world_size == 4)
    assert (state.epoch, [state.holder_of(rank) for rank in range(3)]) == (2, ["llm#1.0", "llm#1.1", "llm#1.2"])
    lives(more, lambda state: state.status is DeploymentStatus.DELETED, DeleteRequested(at=loop.scheduler.now()))
    state = lives(loop.SPEC, loop.healthy)
    assert (state.epoch, sorted(state.replicas)) == (4, ["llm#4.0", "llm#4.1", "llm#4.2"])
    assert replay(journal).difference is None


@pytest.mark.parametrize("raises_at", [1, 3, 5, 6, 8, 9, 11, 12])
def test_an_executor_that_raises_is_begun_again_with_the_next_epoch_and_nothing_is_left_undone(folder, raises_at):
    begin, mine, loop = recovering(folder)
    routes, left = set(), iter(range(1, raises_at))

    class Raising(mine.MyExecutor):
        is_first = True

        def execute(self, command):
            if command.epoch == 1 and next(left, None) is None:
                raise ConnectionError("no route to host")
            if isinstance(command, PublishRoutes):
                if self.is_first:
                    routes.clear()
                self.is_first = False
                routes.update(command.added)
                routes.difference_update(command.removed)
            super().execute(command)

    begin.__globals__["MyExecutor"] = Raising
    journal = "raised.jsonl"

    def life():
        driver = begin(journal)
        with closing(driver.journal):
            loop.run_until(driver, loop.healthy)
            loop.scheduler.end(loop.scheduler.jobs["llm#1.1"])
            loop.run_until(driver, loop.healthy)

    with pytest.raises(ConnectionError) as caught:
        life()
    assert "was not carried out" in caught.value.__notes__[0]
    del caught
    gc.collect()  # the journal of one that has not begun
    driver = begin(journal)
    loop.run_until(driver, loop.healthy)
    assert routes == {*driver.state.replicas} == {*loop.scheduler.jobs}
    driver.journal.close()


def outcomes(bench, tries):
    found = Counter()
    for one in tries:
        try:
            one.play(bench())
        except NotTriedError:
            found["skipped"] += 1
        except conformance.NonconformityError:
            found["broken"] += 1
        else:
            found["passed"] += 1
    return found


def test_the_executor_of_the_page_conforms(folder):
    bench = runpy.run_path(str(folder / "test_mine.py"))["Bench"]
    found = outcomes(bench, conformance.tries(seeds=(1,)))
    assert f"\n{found['passed']} passed, {found['skipped']} skipped\n" in PAGE
    assert not found["broken"]


def test_without_the_two_lines_that_the_page_names_it_does_not(folder):
    lines = "        if command.epoch < self.scheduler.epoch:\n            return\n"
    assert f"    def execute(self, command):\n{lines}" in FILES["mine.py"]
    (folder / "mine.py").write_text(FILES["mine.py"].replace(lines, ""), encoding="utf-8")
    bench = runpy.run_path(str(folder / "test_mine.py"))["Bench"]
    fences = [one for one in conformance.tries(seeds=()) if "fence" in one.name]
    assert outcomes(bench, fences)["broken"] > 2
