"""A damaged journal is answered with an error that names file and line, or with the first line that differs."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from executors.engine.chain import KEYS
from executors.engine.clusters import CLUSTER
from executors.engine.journal import JournalWriter
from executors.engine.reading import JournalError
from executors.engine.replay import replay
from executors.explain.stories import NothingToExplain, Question, explain
from executors.simulator.load.arrivals import Arrivals
from executors.simulator.run import Run
from executors.simulator.scenario import parse_scenario
from rankcore.cluster.residency import ResidencySpec
from tests.clusters import RecordedCluster, application, entry
from tests.journals import without_chain

DEPLOYMENTS = """
duration_s: 60
nodes: [{name: n, count: 2, gpus: 2}]
deployments: [{name: llm, target_replicas: 3}]
faults: [{kind: replica_crash, at: 20, deployment: llm, rank: 1}, {kind: controller_crash, at: 25, restart_after_s: 2}]
changes: [{at: 30, deployment: llm, target_replicas: 2}]
"""
ODD: list[Any] = [None, True, -1, 2**63, 10**400, 1e308, 5e-324, "", "x", "llm#1.0", [], {}, [[]], {"type": "x"}, [None]]


@pytest.fixture(scope="module")
def journals(tmp_path_factory) -> dict[str, list[bytes]]:
    folder = tmp_path_factory.mktemp("journals")
    scenario = parse_scenario(DEPLOYMENTS, "test")
    with JournalWriter.create(folder / "deployments", fingerprint_every=5) as journal:
        Run(scenario, {"llm": Arrivals()}, journal).go()
    with JournalWriter.create(folder / "fork") as journal:  # begins with a state
        again = Run(scenario, {"llm": Arrivals()})
        again.until(22.0)
        again.fork(journal).go()
    with JournalWriter.create(folder / "cluster", kind=CLUSTER, fingerprint_every=5) as journal:
        turns(journal)
    found = {name: (folder / name).read_bytes().splitlines(keepends=True) for name in NAMES}
    # As an older build wrote them, without a chain: what is damaged there reaches the core.
    for name in tuple(found):
        header = {key: value for key, value in json.loads(found[name][0]).items() if key not in KEYS} | {"journal": 2}
        found[name + LAYOUT_2] = without_chain(folder / name, header).encode().splitlines(keepends=True)
    return found


def turns(journal: JournalWriter) -> None:
    """Two deployments take turns on a GPU, and a controller comes back."""
    cluster = RecordedCluster(journal)
    cluster.join(6)
    cluster.apply(application(*(entry(f"a/{each}", 0, residency=ResidencySpec(weight_bytes=4)) for each in "xy")))
    for deployment in ("a/x", "a/y"):
        cluster.call(deployment, 2)
        cluster.wait(15.0)
    cluster.restart()
    cluster.join(6)
    cluster.wait(15.0)


def places_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, inner in items for place in places_in(inner, (*path, key)))]


def with_another_value(line: bytes, share: float, value: Any, is_deleted: bool) -> bytes:
    data = json.loads(line)
    *above, last = (found := places_in(data)[1:])[int(share * len(found))]
    holder = data
    for key in above:
        holder = holder[key]
    if is_deleted:
        del holder[last]
    else:
        holder[last] = value
    return json.dumps(data, separators=(",", ":")).encode() + b"\n"


def damaged(lines: list[bytes], how: str, where: float, other: float, value: Any) -> bytes:
    index, text = int(where * len(lines)), b"".join(lines)
    place = int(other * len(text))
    match how:
        case "a line is missing":
            return b"".join(lines[:index] + lines[index + 1 :])
        case "a line stands twice":
            return b"".join([*lines[: index + 1], lines[index], *lines[index + 1 :]])
        case "two lines have changed places":
            second = int(other * len(lines))
            return b"".join({index: lines[second], second: lines[index]}.get(at, line) for at, line in enumerate(lines))
        case "a byte is another":
            return text[:place] + bytes([int(where * 256)]) + text[place + 1 :]
        case "bytes are missing":
            return text[:place] + text[place + 1 + int(where * 50) :]
        case "the end is missing":
            return text[:place]
        case _:
            line = with_another_value(lines[index], other, value, how == "a field is missing")
            return b"".join([*lines[:index], line, *lines[index + 1 :]])


NAMES = ("deployments", "fork", "cluster")
LAYOUT_2 = " in layout 2"
HOWS = (
    *("a line is missing", "a line stands twice", "two lines have changed places", "a byte is another", "bytes are missing"),
    *("the end is missing", "a field is missing", "a field has another value"),
)
shares = st.floats(0.0, 1.0, exclude_max=True, allow_subnormal=False)


def assert_located(path: Path, ask: Any) -> None:
    error = None
    try:
        ask()
    except NothingToExplain:
        pass
    except JournalError as found:
        error = str(found)
    assert error is None or re.fullmatch(rf"{re.escape(str(path))}:\d+: .+", error), error


def is_found(path: Path) -> bool:
    try:
        return replay(path).warning is not None
    except JournalError:
        return True


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    which=st.sampled_from([f"{name}{layout}" for name in NAMES for layout in ("", LAYOUT_2)]),
    how=st.sampled_from(HOWS),
    where=shares,
    other=shares,
    value=st.sampled_from(ODD),
)
def test_whatever_is_damaged_replay_and_explain_name_the_line(journals, tmp_path, which, how, where, other, value):
    path = tmp_path / "damaged.jsonl"
    path.write_bytes(damaged(journals[which], how, where, other, value))
    assert_located(path, lambda: replay(path))
    if not which.endswith(LAYOUT_2):
        assert is_found(path) or path.read_bytes() in (whole := b"".join(journals[which]), whole[:-1])
    assert_located(path, lambda: explain(path, Question(rank=1, deployment="llm")))
    assert_located(path, lambda: explain(path, Question(at=20.0)))
    assert_located(path, lambda: explain(path, Question(deployment="a/x")))


@pytest.mark.parametrize("number", [b"1" + 400 * b"0", b"1e308"], ids=["no float", "near the largest float"])
@pytest.mark.parametrize(("which", "field"), [("deployments", rb'"type":"WakeAt","at":'), ("cluster", rb'"at":')])
def test_a_time_that_cannot_be_reckoned_with_is_told_with_its_line(journals, tmp_path, which, field, number):
    path = tmp_path / "damaged.jsonl"
    for index, raw in enumerate(journals[which + LAYOUT_2]):
        changed = re.sub(rb"(%s)[0-9.]+" % field, rb"\g<1>" + number, raw)
        if changed != raw:
            path.write_bytes(b"".join([*journals[which + LAYOUT_2][:index], changed, *journals[which + LAYOUT_2][index + 1 :]]))
            assert_located(path, lambda: replay(path))


def test_notes_without_what_they_are_about_are_told_with_their_line(journals, tmp_path):
    path = tmp_path / "damaged.jsonl"
    text = b"".join(journals["deployments" + LAYOUT_2])
    for field in ("replica_id", "before", "after", "rank"):
        path.write_bytes(re.sub(rb'("%s":)("llm[^"]*"|\d+|\{[^{}]*\})' % field.encode(), rb"\1null", text))
        assert_located(path, lambda: explain(path, Question(rank=1, deployment="llm")))
